"""What can go wrong for a caller.

Wrong types, numbers out of range and unusable buffers raise Python's own
`TypeError`, `OverflowError` and `BufferError`. A miss is no error.
"""


class KvIndexError(Exception):
    """The base of all errors of this package."""


class ConfigError(KvIndexError, ValueError):
    """A setting is unknown or out of its range."""


class DecodeError(KvIndexError, ValueError):
    """A batch cannot be decoded, or strict applying refuses it.

    Attributes:
        offset: The byte at which decoding stopped; None for a fault in an event.
        event: The index of the event at fault; None for bytes that are no batch.
    """

    offset: int | None
    event: int | None

    def __init__(
        self, message: str, offset: int | None = None, event: int | None = None
    ) -> None:
        """Says what was expected and what came, and where."""
        super().__init__(message)
        self.offset = offset
        self.event = event


class UnknownWorkerError(KvIndexError, LookupError):
    """The index does not know this worker."""


class NoEligibleWorkerError(KvIndexError, LookupError):
    """No candidate may serve this prompt now; later ones may be served.

    Attributes:
        reasons: How many candidates were left out, by the rule that did so:
            `allowed`, `pinned`, `ranks` or `busy`. Empty without candidates.
    """

    reasons: dict[str, int]

    def __init__(self, message: str, reasons: dict[str, int] | None = None) -> None:
        """Says which rules left how many out."""
        super().__init__(message)
        self.reasons = reasons or {}

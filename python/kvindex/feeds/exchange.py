"""Exchanges: a replay that was asked for, from request to end marker."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Exchange:
    """A replay that was asked for and has not ended.

    Attributes:
        start: The number it was asked to begin with.
        awaited: The number that must be among the answers, or another engine
            gives them; None once it came, or if it need not.
        check: Whether nothing is known to be missing.
        newest: The newest live number when it was asked for. Whatever is older
            had been published by then, so the replay brings it or nothing does.
        deadline: When silence ends it, in the caller's seconds.
        limit: When it ends whatever comes.
        answers: Batches received.
        again: Whether held batches were dropped and have to be asked for.
    """

    start: int
    awaited: int | None
    check: bool
    newest: int | None
    deadline: float
    limit: float
    answers: int = 0
    again: bool = False

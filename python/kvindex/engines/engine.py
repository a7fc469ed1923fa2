"""What is an engine, to the index? Its habits, and how its payloads are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared
Tier: TypeAlias = Literal["device", "host", "disk", "external"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that a decoder found in a payload.

    Attributes:
        events: What happened, in order; or bytes of vLLM's wire, which the core
            reads itself.
        dp_rank: Whose rank this is; None leaves it to the call of `apply`.
        seq: The batch's number in its stream, where the source has numbers of its
            own; None leaves it to the call. Without numbers a decoder makes at
            most one batch for each rank out of a payload.
        source: Which of the worker's streams counts by these numbers. None means
            one for all numbers of payloads' own, apart from those of the call.
    """

    events: Sequence[Event] | bytes
    dp_rank: int | None = None
    seq: int | None = None
    source: str | None = None


class Decoder(Protocol):
    """Reads the payloads of one worker, one at a time and in order.

    The index makes one for each registered worker, keeps it until the worker is
    removed or registered as another engine's, and calls it from one thread at a
    time. It can be copied with `copy.deepcopy`.
    """

    def decode(self, payload: Any) -> Sequence[Batch]:  # noqa: ANN401
        """Read what the source sent: bytes, str, or what its own API returns.

        Raises:
            DecodeError: The payload is not of this source. The decoder is as it
                was before.
        """

    def reset(self, dp_rank: int | None) -> None:
        """Forget what is known of a rank, or of all: the index has done so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one kind of event source behaves.

    `Indexer.register(worker, profile=name)` takes all of it as defaults; what is
    given to `register` wins. None leaves a setting to the kind. The settings are
    checked by `register`.

    Attributes:
        name: What `profile=` calls it.
        title: What people call it.
        kind: Whose habits the events follow where nothing else is said: what a
            clear means, whether LoRA and salt are inherited from the parent
            ("vllm", "flexkv", "mooncake", "auto") or always named ("sglang"), and
            whether names without tokens are computed from a prompt's ("flexkv";
            "mooncake" for integers).
        clears: The tiers that a clear empties.
        copies: The tiers on which a second store is a second copy.
        chunk_tokens: By tier, the tokens of the chunk that one hash without tokens
            stands for.
        media: By medium, in any case, the tier that it means.
        names: "shared" where equal hashes mean equal prefixes on all workers,
            "own" where the source merely numbers its blocks.
        root_hash: The parent that means "no parent", besides none at all.
        lora_ids: By number, the name of an adapter that events only number.
        max_age: By tier, for how many seconds what was stored there counts.
        decoder: Makes the decoder for one worker, given the index's block size;
            None where payloads are batches of vLLM's or SGLang's wire, which the
            core reads.
    """

    name: str
    title: str
    kind: Literal["auto", "vllm", "sglang", "flexkv", "mooncake"] = "auto"
    clears: Sequence[Tier] | None = None
    copies: Sequence[Tier] | None = None
    chunk_tokens: Mapping[str, int] | None = None
    media: Mapping[str, Tier] | None = None
    names: Literal["shared", "own"] | None = None
    root_hash: int | bytes | None = None
    lora_ids: Mapping[int, str] | None = None
    max_age: Mapping[str, float] | None = None
    decoder: Callable[[int], Decoder] | None = None

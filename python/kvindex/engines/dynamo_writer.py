"""Router events for NVIDIA Dynamo, made of what an engine says.

The other direction of `dynamo`: a fleet whose events kvindex reads can feed a
Dynamo router. Its index takes one copy for all, so copies are counted here: a
block is announced with the first and taken back with the last. Blocks go by their
local keys, computed from their tokens and their namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvindex._core import block_keys, unpack
from kvindex.engines.reading import from_map
from kvindex.errors import DecodeError
from kvindex.events import BlockRemoved, BlockStored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvindex.engines.engine import Event
    from kvindex.events import EngineHash

TIERS = {
    **dict.fromkeys(("gpu", "device"), "device"),
    **dict.fromkeys(("cpu", "cpu_pinned", "cpu_tier1"), "host_pinned"),
    **dict.fromkeys(("cpu_tier2", "disk", "nvme", "ssd", "storage"), "disk"),
    **dict.fromkeys(("external", "network", "remote", "shared"), "external"),
}
"""The storage tier of each medium, in small letters."""

MAIN_KINDS = {None, "full_attention", "mla_attention", "sink_full_attention"}
"""The cache groups' kinds that a router's index knows."""

SALT = "dynamo-cache-salt:"


@dataclass(slots=True)
class Known:
    """A block that a rank holds."""

    key: int
    parent: int | None
    lora: str | None
    salt: str | None
    copies: Counter[str] = field(default_factory=Counter)


class RouterEvents:
    """Writes one worker's events as Dynamo's, rank by rank.

    Not thread-safe.

    Args:
        worker_id: What the router calls the worker, 0 to 2^64-1.
        block_size: Tokens a block, of the engine and of the router.

    Attributes:
        left_out: Stored hashes that could not be said: blocks of another size, of
            pairs, or of another cache group, on a medium that is unknown, or
            without tokens and not held.

    Examples:
        >>> from kvindex import BlockStored
        >>> writer = RouterEvents(7, block_size=4)
        >>> said = writer.write([BlockStored([101], [1, 2, 3, 4])])
        >>> said[0]["event"]["data"]["stored"]["blocks"][0]["block_hash"]
        101
    """

    def __init__(self, worker_id: int, *, block_size: int) -> None:
        """Begin with nothing held and with event 1."""
        self.left_out = 0
        self._worker = worker_id
        self._block_size = block_size
        self._known: dict[int, dict[int, Known]] = {}
        self._next: Counter[int] = Counter()

    def write(
        self, payload: bytes | Sequence[Event], *, dp_rank: int = 0
    ) -> list[dict[str, Any]]:
        """Return the router events for one batch, as dicts for JSON.

        Args:
            payload: A batch of vLLM's wire whose events are maps (vLLM since 0.24,
                SGLang since 0.5.20), or event objects.
            dp_rank: The rank of a batch that names none.

        Raises:
            DecodeError: The bytes are no such batch; nothing was written.
        """
        events: Iterable[Event]
        if isinstance(payload, bytes):
            events, rank = _batch(payload)
            dp_rank = dp_rank if rank is None else rank
        else:
            events = payload
        said = []
        for event in events:
            if isinstance(event, BlockStored):
                said += self._store(event, dp_rank)
            elif isinstance(event, BlockRemoved):
                said += self._remove(event, dp_rank)
            else:
                self._known.pop(dp_rank, None)
                said.append(self._say("cleared", "device", dp_rank))
        return said

    def _say(self, data: Any, tier: str, rank: int) -> dict[str, Any]:  # noqa: ANN401
        self._next[rank] += 1
        event = {"event_id": self._next[rank], "data": data, "dp_rank": rank}
        return {"worker_id": self._worker, "storage_tier": tier, "event": event}

    def _store(self, event: BlockStored, rank: int) -> list[dict[str, Any]]:
        names = [low64(name) for name in _plain(event.block_hashes)]
        tier = TIERS.get((event.medium or "gpu").lower())
        known = self._known.setdefault(rank, {})
        blocks = self._blocks(event, names, known) if _is_main(event) else None
        if tier is None or blocks is None:
            self.left_out += len(names)
            return []
        said: list[dict[str, Any]] = []
        last = None
        for name, made in zip(names, blocks, strict=True):
            block = known.setdefault(name, made)
            block.copies[tier] += 1
            if block.copies[tier] > 1:
                continue
            one = {"block_hash": name, "tokens_hash": block.key, "mm_extra_info": None}
            if said and block.parent == last:
                said[-1]["event"]["data"]["stored"]["blocks"].append(one)
            else:
                data = {"parent_hash": block.parent, "blocks": [one]}
                said.append(self._say({"stored": data}, tier, rank))
            last = name
        return said

    def _blocks(
        self, event: BlockStored, names: list[int], known: dict[int, Known]
    ) -> list[Known] | None:
        """Return what an event says of its blocks; None where that is not enough."""
        tokens = _plain(event.token_ids)
        if not tokens:
            found = [known.get(name) for name in names]
            return None if None in found else [block for block in found if block]
        size = event.block_size or self._block_size
        pairs = isinstance(tokens[0], list | tuple)
        fits = len(tokens) == size * len(names)
        if pairs or not fits or size != self._block_size:
            return None
        parent = (
            None if event.parent_block_hash is None else low64(event.parent_block_hash)
        )
        above = known.get(parent) if parent is not None else None
        lora = event.lora_name or (above.lora if above else None)
        salt = event.cache_salt or (above.salt if above else None)
        blocks = []
        extra = event.extra_keys or [None] * len(names)
        for at, (name, keys) in enumerate(zip(names, extra, strict=True)):
            own, images = _sorted_out(keys or (), lora)
            salt = own or salt
            mm = [(image, 0, size) for image in images]
            (key,) = block_keys(
                tokens[at * size : (at + 1) * size],
                block_size=size,
                lora_name=lora,
                cache_salt=salt,
                mm=mm,
            )
            blocks.append(Known(key, parent, lora, salt))
            parent = name
        return blocks

    def _remove(self, event: BlockRemoved, rank: int) -> list[dict[str, Any]]:
        if not _is_main(event):
            return []
        known = self._known.get(rank, {})
        medium = (event.medium or "gpu").lower()
        # An unknown medium takes the block from every tier.
        tiers = [TIERS[medium]] if medium in TIERS else sorted(set(TIERS.values()))
        gone: dict[str, list[int]] = {}
        for name in map(low64, _plain(event.block_hashes)):
            block = known.get(name)
            for tier in tiers:
                if block is None or not block.copies[tier]:
                    continue
                block.copies[tier] -= 1
                if not block.copies[tier]:
                    del block.copies[tier]
                    gone.setdefault(tier, []).append(name)
            if block is not None and not block.copies:
                del known[name]
        return [
            self._say({"removed": {"block_hashes": hashes}}, tier, rank)
            for tier, hashes in gone.items()
        ]


def low64(name: EngineHash) -> int:
    """Return the 64 bits in which engine hashes compare."""
    if isinstance(name, bytes):
        return int.from_bytes(name[-8:], "big")
    return name & (2**64 - 1)


def _plain(values: Any) -> list[Any]:  # noqa: ANN401 - a sequence or a buffer
    """Return the items of a sequence or of a buffer."""
    if isinstance(values, Sequence):
        return list(values)
    plain: list[Any] = memoryview(values).tolist()
    return plain


def _is_main(event: BlockStored | BlockRemoved) -> bool:
    """Tell whether an event is of the full-attention group, which is the first."""
    return event.group_idx in {None, 0} and event.kv_cache_spec_kind in MAIN_KINDS


def _batch(payload: bytes) -> tuple[list[Event], int | None]:
    batch: Any = unpack(payload)
    match batch:
        case [_, [*events], *rest] if all(isinstance(event, dict) for event in events):
            rank = rest[0] if rest and isinstance(rest[0], int) else None
            return [from_map(event) for event in events], rank
    message = "expected a batch [timestamp, [event, ...], rank] whose events are maps"
    raise DecodeError(message)


def _sorted_out(keys: Sequence[Any], lora: str | None) -> tuple[str | None, list[Any]]:
    """Return the salt among a block's extra keys, and its images."""
    texts = [key for key in keys if isinstance(key, str)]
    others = [key for key in keys if not isinstance(key, str)]
    images = [key if isinstance(key, bytes) else key[0] for key in others]
    if lora is not None and lora in texts:
        texts.remove(lora)
    marked = [text for text in texts if text.startswith(SALT)]
    salts = marked or texts[-1:]
    for salt in salts[:1]:
        texts.remove(salt)
    named = salts[0].removeprefix(SALT) if salts else None
    return named, images + texts

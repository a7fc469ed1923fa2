"""SGLang in the event format "dynamo", with tenants kept apart.

In that format a request's `extra_key` is folded into its blocks' hashes and named
nowhere else. The hash of a block without one follows from its tokens, though: a
block that is called otherwise belongs to some tenant, and is filed where no prompt
finds it. `match_names` does, with the tenant's own hashes (`sglang.page_hashes`).
So a prompt without an extra key matches what such prompts left, and nothing else.

Blocks of a LoRA adapter are taken for what they say. It costs a SHA-256 a page, in
Python. Where no tenants are, and in the default format, `sglang` is the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from kvindex._core import unpack
from kvindex.engines.engine import Batch, Engine, Event
from kvindex.engines.reading import from_map, is_batch, natural, unexpected
from kvindex.engines.sglang import digests, folded_hash, salted, short
from kvindex.events import BlockRemoved, BlockStored

EXPECTED = "a batch of SGLang"

TENANT = "\0sglang extra_key"
"""A salt that nobody has: where blocks of tenants are filed."""


@dataclass(slots=True)
class Rank:
    """What is known of the blocks of one rank."""

    digests: dict[int, bytes] = field(default_factory=dict)
    """Of each block that was held last, by its name, the digest of its prefix."""
    copies: dict[int, int] = field(default_factory=dict)


class SglangTenants:
    """Reads one worker's batches and tells whose blocks are a tenant's."""

    def __init__(self, _: int) -> None:
        """Begin with nothing held; any block size will do."""
        self._ranks: dict[int | None, Rank] = {}

    def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
        """Read a batch; one without a tenant's blocks is left to the core."""
        if not is_batch(payload):
            raise unexpected(EXPECTED, payload)
        batch: Any = unpack(bytes(payload))
        match batch:
            case [_, [*said], *rest] if all(isinstance(each, dict) for each in said):
                rank = natural(rest[0], bits=32) if rest else None
                known = self._ranks.setdefault(rank, Rank())
                events = [from_map(each) for each in said]
                told = [_told(event, known) for event in events]
                if any(
                    one is not other for one, other in zip(events, told, strict=True)
                ):
                    return [Batch(told, rank)]
        return [Batch(bytes(payload))]

    def reset(self, _: int | None) -> None:
        """Forget what was held, on all ranks: it is learned again."""
        self._ranks.clear()


def _told(event: Event, known: Rank) -> Event:
    """Return an event as the index should see it, and remember what it says."""
    if isinstance(event, BlockRemoved):
        _forget(event, known)
        return event
    if not isinstance(event, BlockStored):
        known.digests.clear()
        known.copies.clear()
        return event
    try:
        is_tenants = _is_tenants(event, known)
    except (TypeError, ValueError, OverflowError, IndexError):
        # The core says what is wrong with it.
        return event
    return replace(event, cache_salt=TENANT) if is_tenants else event


def _forget(event: BlockRemoved, known: Rank) -> None:
    hashes: Any = event.block_hashes or ()
    for name in hashes:
        left = known.copies.get(name, 0) - 1
        if left > 0:
            known.copies[name] = left
        else:
            known.copies.pop(name, None)
            known.digests.pop(name, None)


def _is_tenants(event: BlockStored, known: Rank) -> bool:
    """Tell whether the names of a store are not those of its tokens."""
    names: Any = event.block_hashes
    tokens: Any = event.token_ids
    if event.lora_name or not names or not tokens:
        return False
    parent, salt = event.parent_block_hash, event.cache_salt or None
    above = salted(salt) if parent is None else known.digests.get(int(parent))
    if above is None:
        return True
    pairs = not isinstance(tokens[0], int)
    flat = [tokens[0][0], *(pair[1] for pair in tokens)] if pairs else tokens
    size = len(tokens) // len(names)
    made = digests(flat, page_size=size, above=above, pairs=pairs)
    for name, digest in zip(names, made, strict=True):
        plain = short(digest)
        if name not in {plain, folded_hash(plain, None, salt)}:
            return True
        known.digests[name] = digest
        known.copies[name] = known.copies.get(name, 0) + 1
    return False


SGLANG_TENANTS = Engine(
    name="sglang_tenants",
    title="SGLang, tenants kept apart",
    kind="sglang",
    decoder=SglangTenants,
)

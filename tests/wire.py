"""Engine batches as bytes: the layouts of vLLM and SGLang, written with msgspec.

Nothing here knows kvindex, so a fault in its decoder cannot hide behind a like
fault in the tests. A hash is an int or bytes, `None` is written as nil, and a
field that is not given is left out of a map.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)


def pack(value: object) -> bytes:
    """Encode any value as msgpack."""
    return msgspec.msgpack.encode(value)


def batch(
    events: Iterable[object],
    rank: object = None,
    ts: object = 0.0,
    *,
    with_rank: bool = True,
) -> bytes:
    """Encode `[ts, events, rank]`; without a rank item if `with_rank` is false."""
    head = [ts, list(events)]
    return pack([*head, rank] if with_rank else head)


def stored_map(
    hashes: object,
    tokens: object,
    parent: object = None,
    block_size: object = None,
    **fields: object,
) -> dict[str, object]:
    """Write a `BlockStored` as vLLM since 0.24 and SGLang since 0.5.20 send it."""
    event: dict[str, object] = {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": block_size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }
    return event | fields


def removed_map(
    hashes: object, medium: object = "GPU", **fields: object
) -> dict[str, object]:
    """Write a `BlockRemoved` as a map."""
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium} | fields


def cleared_map(**fields: object) -> dict[str, object]:
    """Write an `AllBlocksCleared` as a map."""
    return {"type": "AllBlocksCleared"} | fields


def stored_array(
    hashes: object,
    tokens: object,
    parent: object = None,
    block_size: object = None,
    *,
    length: int = 12,
    **fields: object,
) -> list[object]:
    """Write a `BlockStored` by position, `length` items with the tag.

    vLLM wrote 8 items (0.14), 9 with extra keys (0.19), 10 with the group
    (0.20) and 12 with kind and window (0.22, 0.23); before, 7.
    """
    given = stored_map(hashes, tokens, parent, block_size) | fields
    event = ["BlockStored", *(given.get(field) for field in STORED_FIELDS)]
    return event[:length]


def stored_sglang_array(
    hashes: object,
    tokens: object,
    parent: object = None,
    block_size: object = None,
    *,
    medium: object = "GPU",
    salt: str | None = None,
    length: int | None = None,
) -> list[object]:
    """Write a `BlockStored` of SGLang up to 0.5.19: 6, 7 or 8 items with the tag."""
    event: list[object] = [
        "BlockStored",
        hashes,
        parent,
        tokens,
        block_size,
        None,
        medium,
    ]
    if salt is not None:
        event.append({"cache_salt": salt})
    return event[:length]


def removed_array(
    hashes: object,
    medium: object = "GPU",
    group_idx: object = None,
    *,
    length: int = 4,
) -> list[object]:
    """Write a `BlockRemoved` by position: 2 (old SGLang), 3 or 4 items with the tag."""
    return ["BlockRemoved", hashes, medium, group_idx][:length]


def cleared_array() -> list[object]:
    """Write an `AllBlocksCleared` by position."""
    return ["AllBlocksCleared"]


def pairs(tokens: Sequence[int]) -> list[list[int]]:
    """Write tokens as the overlapping pairs that EAGLE sources send."""
    return [[first, second] for first, second in pairwise(tokens)]

"""The bytes that a simulated engine publishes: vLLM's layout since 0.24.

A batch is an array of a timestamp, the events and the data-parallel rank; an event
is a map. Token numbers, nearly all of the bytes, are written by numpy.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from numpy.typing import NDArray

NIL = b"\xc0"
# An odd factor gives each block a name that fills 64 bits.
SPREAD = 0x9E3779B97F4A7C15
NAME_BYTES = 9


def tokens(blocks: Sequence[int], block_tokens: int) -> NDArray[np.uint32]:
    """Return tokens for blocks, other ones for each identifier.

    They differ as long as identifiers times block size stay below 2^32.
    """
    starts = np.asarray(blocks, dtype=np.uint32) * np.uint32(block_tokens)
    rows = np.add.outer(starts, np.arange(block_tokens, dtype=np.uint32))
    return np.asarray(rows, dtype=np.uint32).ravel()


def batch(time: float, events: Sequence[bytes]) -> bytes:
    """Return one batch."""
    return b"".join(
        (b"\x93\xcb", struct.pack(">d", time), head(events), *events, b"\0")
    )


def stored(
    blocks: Sequence[int], parent: int | None, block_tokens: int, medium: str
) -> bytes:
    """Return a store of consecutive blocks, with their tokens."""
    numbers = tokens(blocks, block_tokens)
    return b"".join(
        (
            STORED,
            head(blocks),
            names(blocks),
            PARENT,
            NIL if parent is None else names([parent]),
            TOKENS,
            head(numbers),
            integers(0xCE, ">u4", numbers),
            about(block_tokens, medium),
        )
    )


def placed(blocks: Sequence[int], medium: str) -> list[bytes]:
    """Return stores that name blocks without saying what is in them, one each."""
    before = STORED + head([None])
    behind = PARENT + NIL + TOKENS + head([]) + about(0, medium)
    written = names(blocks)
    return [
        before + written[at : at + NAME_BYTES] + behind
        for at in range(0, len(written), NAME_BYTES)
    ]


def removed(blocks: Sequence[int], medium: str) -> bytes:
    """Return a removal."""
    behind = text("medium") + text(medium)
    return REMOVED + head(blocks) + names(blocks) + behind


def names(blocks: Sequence[int]) -> bytes:
    """Return the engine's hashes of blocks, which all engines share."""
    hashes = (np.asarray(blocks, dtype=np.uint64) + np.uint64(1)) * np.uint64(SPREAD)
    return integers(0xCF, ">u8", hashes)


def integers(tag: int, form: str, numbers: NDArray[Any]) -> bytes:
    """Return integers of one width, each behind its tag."""
    written = np.empty(len(numbers), dtype=[("tag", "u1"), ("number", form)])
    written["tag"] = tag
    written["number"] = numbers
    return written.tobytes()


def head(items: Sized) -> bytes:
    """Return how an array of so many items begins."""
    return b"\xdd" + struct.pack(">I", len(items))


def text(word: str) -> bytes:
    """Return a short string."""
    return bytes((0xA0 | len(word),)) + word.encode()


@cache
def about(block_tokens: int, medium: str) -> bytes:
    """Return the last fields of a store."""
    size = b"\xce" + struct.pack(">I", block_tokens)
    fields = {"block_size": size, "lora_id": NIL, "medium": text(medium)}
    written = b"".join(text(name) + value for name, value in fields.items())
    return written + text("lora_name") + NIL


# How events begin: the number of fields, the type, the field of the hashes.
STORED = b"\x88" + text("type") + text("BlockStored") + text("block_hashes")
REMOVED = b"\x83" + text("type") + text("BlockRemoved") + text("block_hashes")
PARENT = text("parent_block_hash")
TOKENS = text("token_ids")

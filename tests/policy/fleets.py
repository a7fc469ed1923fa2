"""Indexes for tests: who holds how many blocks of the prompt 0, 1, 2, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kvindex

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK = 16


def fleet(held: Mapping[str, int], medium: str = "GPU") -> kvindex.Indexer:
    """Return an index in which workers hold so many blocks; `w1@3` is a rank."""
    index = kvindex.Indexer(block_size=BLOCK)
    for name, blocks in held.items():
        store(index, name, blocks, medium)
    return index


def store(index: kvindex.Indexer, name: str, blocks: int, medium: str = "GPU") -> None:
    """Let a worker hold so many blocks."""
    worker, _, rank = name.partition("@")
    names = range(1, blocks + 1)
    event = kvindex.BlockStored(names, range(blocks * BLOCK), medium=medium)
    index.apply([event], worker=worker, dp_rank=int(rank or 0))

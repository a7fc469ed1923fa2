"""The peer: the `RadixTree` of ai-dynamo-runtime, where that is installed.

It takes one event a call, as JSON that names every block by the engine's hash and
by its local key, both computed by the caller; it finds by local keys, which it
takes fastest from a list. Each call is carried out by a thread that belongs to the
tree, and waited for.
"""

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

PACKAGE = "ai-dynamo-runtime"


class Scores(Protocol):
    """What the tree answers."""

    @property
    def scores(self) -> dict[tuple[int, int], int]:
        """Matching blocks of each (worker, rank)."""


class Tree(Protocol):
    """What the benchmarks use of the tree."""

    def apply_event(self, worker_id: int, event: bytes, /) -> None:
        """Apply one event."""

    def find_matches(self, keys: list[int], /) -> Scores:
        """Count the leading blocks of every worker."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The package, as far as it is used."""

    tree: Callable[[], Tree]
    hash_tokens: Callable[[list[int], int], list[int]]


def load() -> Peer | None:
    """Import the peer; None where it is not installed."""
    # Read on import: its log goes to the standard output.
    os.environ.setdefault("DYN_LOG", "error")
    try:
        core = importlib.import_module("dynamo._core")
    except ImportError:
        return None
    return Peer(
        tree=core.RadixTree,
        hash_tokens=core.compute_block_hash_for_seq,
    )


def stored_event(
    parent: int | None, names: Sequence[int], keys: Sequence[int]
) -> bytes:
    """Write the event that stores blocks below a parent."""
    blocks = [
        {"block_hash": name, "tokens_hash": key}
        for name, key in zip(names, keys, strict=True)
    ]
    return _event({"stored": {"parent_hash": parent, "blocks": blocks}})


def removed_event(names: Sequence[int]) -> bytes:
    """Write the event that removes blocks."""
    return _event({"removed": {"block_hashes": names}})


def _event(data: object) -> bytes:
    return msgspec.json.encode({"event_id": 0, "data": data, "dp_rank": 0})


class _Stored(msgspec.Struct, tag="BlockStored"):
    """What has to be read of vLLM's event."""

    block_hashes: list[int]
    token_ids: list[int]
    parent_block_hash: int | None


_DECODER = msgspec.msgpack.Decoder(tuple[float, list[_Stored], int | None])


def decode(payload: bytes) -> list[_Stored]:
    """Read one batch of vLLM."""
    _, events, _ = _DECODER.decode(payload)
    return events


def translate(event: Any, peer: Peer, block_size: int) -> bytes:  # noqa: ANN401
    """Turn a store, decoded or an event object, into the tree's: hash and write."""
    keys = peer.hash_tokens(event.token_ids, block_size)
    return stored_event(event.parent_block_hash, event.block_hashes, keys)

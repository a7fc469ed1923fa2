"""How fast are events applied?"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

import pytest

import kvindex
from bench.duel import Call, Duel
from bench.peer import Peer, decode, translate
from bench.sections import APPLY_GIVEN, APPLY_SAME
from bench.workload import BLOCK, Batch, Sent, Stream

BLOCKS_A_ROUND = 4_096
ROUNDS = 160

Chunks: TypeAlias = Sequence[Sequence[Sent]]
Payload: TypeAlias = bytes | list[kvindex.BlockStored]
Form: TypeAlias = Callable[[Batch], Payload]


def as_bytes(batch: Batch) -> bytes:
    """Return the batch as it came off the wire."""
    return batch.payload


def as_objects(batch: Batch) -> list[kvindex.BlockStored]:
    """Return the batch as event objects."""
    return [batch.stored()]


def source(form: Form) -> str:
    """Name a form."""
    return "bytes" if form is as_bytes else "objects"


def ours(index: kvindex.Indexer, chunks: Chunks, form: Form) -> list[Call]:
    """Return calls that fill an index: kvindex decodes and hashes."""

    def apply(sent: list[tuple[str, Payload]]) -> None:
        for worker, payload in sent:
            index.apply(payload, worker=worker)

    return [
        partial(apply, [(f"w{worker}", form(batch)) for worker, batch in chunk])
        for chunk in chunks
    ]


def given(peer: Peer | None, chunks: Chunks) -> list[Call]:
    """Return calls that fill one tree from events that were made before."""
    if peer is None:
        return []
    tree = peer.tree()

    def apply(sent: list[tuple[int, bytes]]) -> None:
        for worker, event in sent:
            tree.apply_event(worker, event)

    return [
        partial(apply, [(worker, batch.event) for worker, batch in chunk])
        for chunk in chunks
    ]


def translated(peer: Peer | None, chunks: Chunks, form: Form) -> list[Call]:
    """Return calls that fill one tree and make its events on the way."""
    if peer is None:
        return []
    tree = peer.tree()

    def apply(peer: Peer, sent: list[tuple[int, Payload]]) -> None:
        for worker, payload in sent:
            events = decode(payload) if isinstance(payload, bytes) else payload
            for event in events:
                tree.apply_event(worker, translate(event, peer, BLOCK))

    return [
        partial(apply, peer, [(worker, form(batch)) for worker, batch in chunk])
        for chunk in chunks
    ]


def check(index: kvindex.Indexer) -> None:
    """Check that the figures are about stores and not about refusals."""
    assert index.stats()["events"]["stored"]["ignored"] == 0
    assert sum(index.stats()["reasons"].values()) == 0


@pytest.mark.parametrize("form", [as_bytes, as_objects])
def test_8_blocks_an_event(
    duel: Duel, eights: Stream, peer: Peer | None, form: Form
) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    chunks = list(islice(eights.chunks(BLOCKS_A_ROUND // 8), ROUNDS))
    calls = ours(index, chunks, form), given(peer, chunks)
    duel.rate(
        APPLY_GIVEN, f"8 blocks an event, from {source(form)}", BLOCKS_A_ROUND, *calls
    )
    check(index)


def test_many_blocks_an_event(
    duel: Duel, long_steps: tuple[int, Stream], peer: Peer | None
) -> None:
    blocks, stream = long_steps
    index = kvindex.Indexer(block_size=BLOCK)
    chunks = list(islice(stream.chunks(BLOCKS_A_ROUND // blocks), ROUNDS))
    calls = ours(index, chunks, as_bytes), given(peer, chunks)
    line = f"{blocks} blocks an event, from bytes"
    duel.rate(APPLY_GIVEN, line, BLOCKS_A_ROUND, *calls)
    check(index)


@pytest.mark.parametrize("form", [as_bytes, as_objects])
def test_8_blocks_an_event_with_the_same_work(
    duel: Duel, eights: Stream, peer: Peer | None, form: Form
) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    chunks = list(islice(eights.chunks(BLOCKS_A_ROUND // 8), ROUNDS))
    calls = ours(index, chunks, form), translated(peer, chunks, form)
    duel.rate(
        APPLY_SAME, f"8 blocks an event, from {source(form)}", BLOCKS_A_ROUND, *calls
    )
    check(index)

"""How much memory does a claim take?

A claim is one worker holding one block. Both sides are fed the same stores, each
in a process of its own, and what its resident memory grew by is divided by the
claims; the index's own count stands beside it.
"""

import sys
from pathlib import Path

import pytest

from bench import footprint
from bench.duel import Duel
from bench.peer import Peer
from bench.sections import MEMORY
from bench.workload import Maker, Stream


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_one_engine_hash_a_block(
    duel: Duel, eights: Stream, peer: Peer | None, tmp_path: Path
) -> None:
    grown = by_peer(eights, peer, tmp_path)
    report(duel, "one engine hash a block", eights, grown, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_engine_hash_a_worker(duel: Duel, tmp_path: Path) -> None:
    # The peer refuses a store below a block that another worker named first.
    stream = Maker(8).mixed(1_000_000, 8, own_names=True)
    report(duel, "an engine hash a block and worker", stream, None, tmp_path)


def report(
    duel: Duel, label: str, stream: Stream, peer: float | None, folder: Path
) -> None:
    """Measure kvindex and report both sides, and its own account besides."""
    path = folder / "batches"
    footprint.write(path, ((worker, batch.payload) for worker, batch in stream.sent))
    found: list[footprint.Footprint] = []
    duel.once(lambda: found.append(footprint.measure("kvindex", path)))
    claims = found[0]["claims"]
    assert claims == stream.claims
    duel.value(MEMORY, label, found[0]["resident"] / claims, peer)
    duel.value(MEMORY, f"{label}, by stats()", found[0]["counted"] / claims, None)


def by_peer(stream: Stream, peer: Peer | None, folder: Path) -> float | None:
    """Measure the peer, where there is one."""
    if peer is None:
        return None
    path = folder / "events"
    footprint.write(path, ((worker, batch.event) for worker, batch in stream.sent))
    return footprint.measure("peer", path)["resident"] / stream.claims

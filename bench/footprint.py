"""Measures what a side's memory grows by, in a process of its own.

`python -m bench.footprint kvindex FILE` (or `peer`) applies the batches of a file
that `write` made, and prints what it measured as JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import TypeAlias, TypedDict

import kvindex
from bench import peer as peers
from bench.workload import BLOCK

RECORD = Struct("<II")
ROOT = Path(__file__).resolve().parents[1]
# Brings in code, threads and buffers before memory is looked at.
WARM_UP = 16

Apply: TypeAlias = Callable[[int, bytes], object]


class Footprint(TypedDict):
    """What a process measured: bytes, but for the claims."""

    resident: int
    counted: int
    claims: int


def write(path: Path, sent: Iterable[tuple[int, bytes]]) -> None:
    """Write each worker and what it sends."""
    with path.open("wb") as file:
        for worker, payload in sent:
            file.write(RECORD.pack(worker, len(payload)))
            file.write(payload)


def read(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield what `write` wrote, one record in memory at a time."""
    with path.open("rb") as file:
        while head := file.read(RECORD.size):
            worker, size = RECORD.unpack(head)
            yield worker, file.read(size)


def measure(side: str, path: Path) -> Footprint:
    """Measure in a new process."""
    command = [sys.executable, "-m", "bench.footprint", side, str(path)]
    done = subprocess.run(  # noqa: S603 - this very file
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    measured: Footprint = json.loads(done.stdout)
    return measured


def resident() -> int:
    """Return the resident bytes of this process."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def growth(warm_up: Apply, apply: Apply, path: Path) -> int:
    """Apply a file; return the resident bytes added."""
    for worker, payload in islice(read(path), WARM_UP):
        warm_up(worker, payload)
    before = resident()
    for worker, payload in read(path):
        apply(worker, payload)
    return resident() - before


def fill_index(path: Path) -> Footprint:
    """Measure kvindex, and take its own account besides."""

    def apply_to(index: kvindex.Indexer) -> Apply:
        return lambda worker, data: index.apply(data, worker=f"w{worker}")

    index = kvindex.Indexer(block_size=BLOCK)
    other = kvindex.Indexer(block_size=BLOCK)
    added = growth(apply_to(other), apply_to(index), path)
    stats = index.stats()
    return {"resident": added, "counted": stats["bytes"], "claims": stats["claims"]}


def fill_tree(path: Path) -> Footprint:
    """Measure the peer."""
    peer = peers.load()
    assert peer is not None
    added = growth(peer.tree().apply_event, peer.tree().apply_event, path)
    return {"resident": added, "counted": 0, "claims": 0}


if __name__ == "__main__":
    _, asked, file = sys.argv
    fill_side = {"kvindex": fill_index, "peer": fill_tree}[asked]
    sys.stdout.write(json.dumps(fill_side(Path(file))))

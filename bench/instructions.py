"""Counts the instructions and the cache misses of single calls.

`python -m bench.instructions FILE` runs a few calls under callgrind (the package
valgrind), which simulates a processor with this machine's caches: two runs give
counts within two percent of each other whatever else the machine does, and no count
is a time. It writes lines as the benches do, for `bench.table` and `bench.report`. The
index is small and warm: what the misses of a large one cost is in the bench in Rust.
"""

import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import kvindex
from bench.duel import Call
from bench.figures import KVINDEX, About, Figure, Writer
from bench.fleet import Fleet
from bench.machine import machine
from bench.workload import BLOCK, Chain, Maker, batches

ROOT = Path(__file__).resolve().parents[1]
CALLS = 256
# Counting is switched on in these functions.
FUNCTIONS = {
    "all of it, from Python": (
        "*__pymethod_match*",
        "*__pymethod_apply__*",
    ),
    "the core alone": ("*Index>::find",),
}
# What was counted is put aside before this one is called.
MARK = "*__pymethod_stats__*"
# What is counted, and callgrind's names for it.
KINDS = {
    "instructions": ("Ir",),
    "first-cache misses": ("I1mr", "D1mr", "D1mw"),
}

Cell = Callable[[Fleet], Sequence[Call]]


def held(blocks: int, holders: int, asked: int | None = None) -> Cell:
    """Ask for chains that so many workers hold, with chained keys."""

    def calls(fleet: Fleet) -> list[Call]:
        chains = fleet.held(blocks, holders)
        return [
            partial(fleet.index.match_chain, chained(chain, asked)) for chain in chains
        ]

    return calls


def chained(chain: Chain, kept: int | None) -> memoryview:
    """Return chain keys, from some block on of a chain that nobody holds."""
    keys = list(chain.keys)
    if kept is not None:
        keys[kept:] = Maker(kept).chain(len(keys) - kept).keys
    return kvindex.chain_keys(keys)


def by_tokens(fleet: Fleet) -> list[Call]:
    """Ask for 64 blocks by their tokens."""
    return [partial(fleet.index.match, chain.tokens) for chain in fleet.held(64, 64)]


def of_groups(fleet: Fleet) -> list[Call]:
    """Ask for chains that 64 workers hold of two cache groups."""
    index = kvindex.Indexer(block_size=BLOCK, group_rules=True)
    chain = fleet.maker.chain(78)
    for group, kind in enumerate(("full_attention", "mamba")):
        event = kvindex.BlockStored(
            chain.names, chain.tokens, group_idx=group, kv_cache_spec_kind=kind
        )
        for worker in range(64):
            index.apply([event], worker=f"w{worker}")
    return [partial(index.match_chain, kvindex.chain_keys(chain.keys))]


def stores(fleet: Fleet) -> list[Call]:
    """Store 8 blocks at a time, none of them known."""
    chains = (fleet.maker.chain(64) for _ in range(2 * CALLS // 8))
    made = (batch for chain in chains for batch in batches(chain, 8))
    return [partial(fleet.index.apply, batch.payload, worker="w0") for batch in made]


CELLS: dict[str, Cell] = {
    "match_chain, 64 blocks held by 1": held(64, 1),
    "match_chain, 78 blocks held by 64": held(78, 64),
    "match_chain, 512 blocks held by 64": held(512, 64),
    "match_chain, 256 blocks held by 256": held(256, 256),
    "match_chain, 78 blocks, half of them held by 64": held(78, 64, 39),
    "match_chain, 78 blocks, nobody holds block 0": held(78, 64, 0),
    "match_chain, 78 blocks held by 64, of two cache groups": of_groups,
    "match by tokens, 64 blocks held by 64": by_tokens,
    "apply, 8 blocks as bytes": stores,
}


def work() -> None:
    """Make the calls of every cell, each between two marks."""
    fleet = Fleet(None)
    for cell in CELLS.values():
        calls = cycle(cell(fleet))
        for counted in (False, True):
            for call in islice(calls, CALLS):
                call()
            if not counted:
                fleet.index.stats()
        fleet.index.stats()


def measure(functions: Iterable[str], folder: Path) -> list[dict[str, int]]:
    """Count inside of these functions; return each cell's events."""
    out = folder / "counts"
    command = [
        shutil.which("valgrind") or "valgrind",
        "--tool=callgrind",
        "--cache-sim=yes",
        "--collect-atstart=no",
        f"--dump-before={MARK}",
        *(f"--toggle-collect={function}" for function in functions),
        f"--callgrind-out-file={out}",
        *(sys.executable, "-m", "bench.instructions", "--work"),
    ]
    done = subprocess.run(  # noqa: S603 - this very file, under valgrind
        command, cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr)
    # The first mark of a cell closes what came before, the second what is counted.
    return [events(folder / f"counts.{2 * number + 2}") for number in range(len(CELLS))]


def events(path: Path) -> dict[str, int]:
    """Read the totals of one dump."""
    fields = dict(
        line.split(": ", 1)
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("events: ", "totals: "))
    )
    names, totals = fields["events"].split(), fields["totals"].split()
    return dict(zip(names, map(int, totals), strict=False))


def figures(of: str, counts: Iterable[dict[str, int]]) -> Iterator[Figure]:
    """Yield the figures of each cell that any of the functions was called in."""
    for unit, names in KINDS.items():
        for cell, found in zip(CELLS, counts, strict=True):
            if found.get("Ir"):
                yield Figure(
                    bench="instructions",
                    section=f"{unit} of a call, simulated: {of}",
                    cell=cell,
                    subject=KVINDEX,
                    unit=unit,
                    value=sum(found.get(name, 0) for name in names) / CALLS,
                )


def main() -> None:
    """Count, and write the lines."""
    parser = ArgumentParser(prog="python -m bench.instructions")
    parser.add_argument("file", type=Path, help="file to write")
    writer = Writer(parser.parse_args().file)
    about = {"machine": machine(), "command": "python -m bench.instructions"}
    writer.write(About(bench="instructions", about=about))
    for of, functions in FUNCTIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            for figure in figures(of, measure(functions, Path(folder))):
                writer.write(figure)


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        main()

"""Fixtures of the benchmarks, and where their figures go."""

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import peer as peers
from bench.duel import Duel
from bench.figures import Record, Writer
from bench.fleet import Fleet
from bench.machine import about
from bench.table import render
from bench.workload import Maker, Stream
from kvindex import _core

RECORDS: pytest.StashKey[list[Record]] = pytest.StashKey()
WRITER: pytest.StashKey[Writer] = pytest.StashKey()
COMMAND = "python -m pytest bench --benchmark-only"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the figures be written to a file."""
    parser.addoption(
        "--figures",
        type=Path,
        metavar="PATH",
        help="write the figures as JSON lines, instead of a table at the end",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a build whose figures would mean nothing."""
    if _core.DEBUG:
        message = "kvindex._core is a debug build; measure what `make bench` builds"
        raise pytest.UsageError(message)
    first = about(peers.load(), COMMAND)
    records: list[Record] = [first]
    config.stash[RECORDS] = records
    if path := config.getoption("--figures"):
        config.stash[WRITER] = Writer(path)
        config.stash[WRITER].write(first)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table, unless the figures went to a file."""
    records: list[Record] = config.stash[RECORDS]
    if WRITER not in config.stash and len(records) > 1:
        terminalreporter.section("kvindex beside its peer")
        terminalreporter.write_line(render(records))


@pytest.fixture(scope="session")
def peer() -> peers.Peer | None:
    """Return the peer, None where it is not installed."""
    return peers.load()


@pytest.fixture
def duel(benchmark: BenchmarkFixture, pytestconfig: pytest.Config) -> Duel:
    """Return what measures one line."""

    def write(record: Record) -> None:
        pytestconfig.stash[RECORDS].append(record)
        if WRITER in pytestconfig.stash:
            pytestconfig.stash[WRITER].write(record)

    return Duel(benchmark, write)


@pytest.fixture(scope="module")
def fleet(peer: peers.Peer | None) -> Fleet:
    """Return empty indexes of both sides, for the module to fill."""
    return Fleet(peer)


@pytest.fixture(scope="session")
def eights() -> Stream:
    """Return a fleet's stream, 8 blocks a batch, of about a million claims."""
    return Maker(8).mixed(1_000_000, 8)


@pytest.fixture(scope="session", params=[64, 512])
def long_steps(request: pytest.FixtureRequest) -> tuple[int, Stream]:
    """Return a fleet's stream of about a million claims, and its blocks a batch.

    8,192 tokens, 512 blocks, are what an engine prefills in one step.
    """
    return request.param, Maker(request.param).mixed(1_000_000, request.param)

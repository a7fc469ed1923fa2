"""Fixtures of the benchmarks, and the table at their end."""

import os
import platform

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import peer as peers
from bench.duel import Duel, Line
from bench.table import render
from bench.workload import Maker, Stream
from kvindex import _core

LINES = pytest.StashKey[list[Line]]()


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a build whose figures would mean nothing."""
    if _core.DEBUG:
        message = "kvindex._core is a debug build; measure what `make bench` builds"
        raise pytest.UsageError(message)
    config.stash[LINES] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table."""
    lines = config.stash[LINES]
    if lines:
        terminalreporter.section("kvindex beside its peer")
        terminalreporter.write_line(render(lines, peers.load(), machine()))


def machine() -> str:
    """Say what the figures were measured on."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    kind = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    busy = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{python}, {kind}{busy}"


@pytest.fixture(scope="session")
def peer() -> peers.Peer | None:
    """Return the peer, None where it is not installed."""
    return peers.load()


@pytest.fixture
def duel(benchmark: BenchmarkFixture, pytestconfig: pytest.Config) -> Duel:
    """Return what measures one line."""
    return Duel(benchmark, pytestconfig.stash[LINES])


@pytest.fixture(scope="session")
def eights() -> Stream:
    """Return a fleet's stream, 8 blocks a batch, of about a million claims."""
    return Maker(8).mixed(1_000_000, 8)


@pytest.fixture(scope="session")
def sixty_fours() -> Stream:
    """Return a fleet's stream, 64 blocks a batch, of about a million claims."""
    return Maker(64).mixed(1_000_000, 64)

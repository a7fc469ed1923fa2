"""Times two sides in turn and keeps what came out for the table."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from time import perf_counter_ns
from typing import TypeAlias

from pytest_benchmark.fixture import BenchmarkFixture

Call: TypeAlias = Callable[[], object]

# A latency line takes about this long, however long a call takes.
SECONDS = 0.8
ROUNDS = (200, 4_000)


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one kind."""

    title: str
    more_is_better: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure, or p50 and p99, of each side."""

    section: Section
    label: str
    ours: tuple[float, ...]
    peer: tuple[float, ...] | None

    def ratios(self) -> tuple[float, ...]:
        """How many times better kvindex is; empty without a peer."""
        pairs = zip(self.ours, self.peer or (), strict=False)
        if self.section.more_is_better:
            return tuple(ours / peer for ours, peer in pairs)
        return tuple(peer / ours for ours, peer in pairs)


@dataclass(slots=True)
class Board:
    """The lines of one run."""

    lines: list[Line] = field(default_factory=list)


@dataclass(slots=True)
class Times:
    """Nanoseconds of each round."""

    ours: list[int] = field(default_factory=list)
    peer: list[int] = field(default_factory=list)


class Duel:
    """Measures one line. The machine is noisy: the sides take turns."""

    def __init__(self, benchmark: BenchmarkFixture, board: Board) -> None:
        """Report to pytest-benchmark and to the table."""
        self.benchmark = benchmark
        self.board = board

    def latency(
        self,
        section: Section,
        label: str,
        ours: Sequence[Call],
        peer: Sequence[Call] | None,
    ) -> None:
        """Time single calls, cycling through those given; p50 and p99 in us."""
        cost = 0
        for calls in filter(None, (ours, peer)):
            cost += min(timed(call) for call in islice(cycle(calls), len(calls) + 3))
        low, high = ROUNDS
        rounds = max(low, min(high, int(SECONDS * 1e9 / cost)))
        times = self._rounds(cycle(ours).__next__, cycle(peer or ()).__next__, rounds)
        self._report(section, label, percentiles(times.ours), percentiles(times.peer))

    def rate(
        self,
        section: Section,
        label: str,
        items: int,
        ours: Sequence[Call],
        peer: Sequence[Call] | None,
    ) -> None:
        """Time each call once; millions of items a second in the median round."""
        times = self._rounds(
            iter(ours).__next__, iter(peer or ()).__next__, len(ours)
        )
        self._report(section, label, rates(items, times.ours), rates(items, times.peer))

    def value(
        self, section: Section, label: str, ours: float, peer: float | None
    ) -> None:
        """Take a figure that is no time."""
        self._report(section, label, (ours,), None if peer is None else (peer,))

    def _rounds(
        self, ours: Callable[[], Call], peer: Callable[[], Call], rounds: int
    ) -> Times:
        """Time the next call of each side in turn."""
        times = Times()

        def before() -> None:
            call = next_or_none(peer)
            if call is not None:
                times.peer.append(timed(call))

        def target() -> None:
            times.ours.append(timed(ours()))

        gc.collect()
        gc.disable()
        try:
            self.benchmark.pedantic(target, setup=before, rounds=rounds)
        finally:
            gc.enable()
        return times

    def _report(
        self,
        section: Section,
        label: str,
        ours: tuple[float, ...],
        peer: tuple[float, ...] | None,
    ) -> None:
        self.benchmark.group = section.title
        self.benchmark.extra_info["kvindex"] = ours
        self.benchmark.extra_info["peer"] = peer
        self.board.lines.append(Line(section, label, ours, peer))


def timed(call: Call) -> int:
    """Call and return the nanoseconds that it took."""
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start


def next_or_none(calls: Callable[[], Call]) -> Call | None:
    """Return the next call; None where there is no side to call."""
    try:
        return calls()
    except StopIteration:
        return None


def percentiles(times: list[int]) -> tuple[float, ...] | None:
    """Return p50 and p99 in microseconds."""

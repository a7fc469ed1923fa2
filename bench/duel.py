"""Times both sides of a line in turn and keeps what came out for the table."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from time import perf_counter_ns
from typing import TypeAlias

from pytest_benchmark.fixture import BenchmarkFixture

Call: TypeAlias = Callable[[], object]
Figures: TypeAlias = tuple[float, ...]

# A line of latencies takes about this long, however long a call takes.
LINE_NS = 800_000_000
ROUNDS = (200, 4_000)


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one kind."""

    title: str
    more_is_better: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One figure, or p50 and p99, of each side; none of an absent peer."""

    section: Section
    label: str
    ours: Figures
    peer: Figures

    def ratios(self) -> Figures:
        """How many times better kvindex is."""
        pairs = zip(self.ours, self.peer, strict=False)
        if self.section.more_is_better:
            return tuple(ours / peer for ours, peer in pairs)
        return tuple(peer / ours for ours, peer in pairs)


@dataclass(slots=True)
class Times:
    """Nanoseconds of each round."""

    ours: list[int] = field(default_factory=list)
    peer: list[int] = field(default_factory=list)


class Duel:
    """Measures one line; the sides take turns, since machines are noisy."""

    def __init__(self, benchmark: BenchmarkFixture, board: list[Line]) -> None:
        """Report to pytest-benchmark and to the table."""
        self.benchmark = benchmark
        self.board = board

    def latency(
        self, section: Section, label: str, ours: Sequence[Call], peer: Sequence[Call]
    ) -> None:
        """Time single calls, those given over and over; p50 and p99 in us."""
        cost = sum(min(map(timed, calls)) for calls in (ours, peer) if calls)
        rounds = max(ROUNDS[0], min(ROUNDS[1], LINE_NS // cost))
        times = self._take_turns(cycle(ours), cycle(peer), rounds)
        figures = percentiles(times.ours), percentiles(times.peer)
        self.report(section, label, *figures)

    def rate(
        self,
        section: Section,
        label: str,
        items: int,
        ours: Sequence[Call],
        peer: Sequence[Call],
    ) -> None:
        """Time each call once; million items a second in the median round."""
        times = self._take_turns(iter(ours), iter(peer), len(ours))
        self.report(section, label, rate(items, times.ours), rate(items, times.peer))

    def report(
        self, section: Section, label: str, ours: Figures, peer: Figures
    ) -> None:
        """Take the figures of a line."""
        self.benchmark.group = section.title
        self.benchmark.extra_info.update(kvindex=ours, peer=peer)
        self.board.append(Line(section, label, ours, peer))

    def _take_turns(
        self, ours: Iterator[Call], peer: Iterator[Call], rounds: int
    ) -> Times:
        times = Times()

        def before() -> None:
            call = next(peer, None)
            if call is not None:
                times.peer.append(timed(call))

        def target() -> None:
            times.ours.append(timed(next(ours)))

        gc.collect()
        gc.disable()
        try:
            self.benchmark.pedantic(  # type: ignore[no-untyped-call]
                target, setup=before, rounds=rounds
            )
        finally:
            gc.enable()
        return times


def timed(call: Call) -> int:
    """Call, and return the nanoseconds that it took."""
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start


def percentiles(times: Sequence[int]) -> Figures:
    """Return p50 and p99 in microseconds."""
    ordered = sorted(times)
    if not ordered:
        return ()
    return ordered[len(ordered) // 2] / 1e3, ordered[len(ordered) * 99 // 100] / 1e3


def rate(items: int, times: Sequence[int]) -> Figures:
    """Return million items a second, from the median round."""
    return (items / median(times) * 1e3,) if times else ()

"""Times both sides of a line in turn and writes down what came out."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from time import perf_counter_ns
from typing import Any, TypeAlias

from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import KVINDEX, Figure, Record, spread
from bench.peer import PACKAGE
from bench.sections import Section

Call: TypeAlias = Callable[[], object]
Report: TypeAlias = Callable[[Record], None]

# A line of latencies takes about this long, however long a call takes.
LINE_NS = 800_000_000
ROUNDS = (200, 4_000)


@dataclass(slots=True)
class Times:
    """Nanoseconds of each round."""

    ours: list[int] = field(default_factory=list)
    peer: list[int] = field(default_factory=list)


class Duel:
    """Measures one line; the sides take turns, since machines are noisy."""

    def __init__(self, benchmark: BenchmarkFixture, write: Report) -> None:
        """Report to pytest-benchmark and to whoever writes figures down."""
        self.benchmark = benchmark
        self.write = write

    def latency(
        self, section: Section, label: str, ours: Sequence[Call], peer: Sequence[Call]
    ) -> None:
        """Time single calls, those given over and over."""
        cost = sum(min(map(timed, calls)) for calls in (ours, peer) if calls)
        rounds = max(ROUNDS[0], min(ROUNDS[1], LINE_NS // cost))
        times = self._take_turns(cycle(ours), cycle(peer), rounds)
        self.spread(section, label, times.ours, times.peer)

    def rate(
        self,
        section: Section,
        label: str,
        items: int,
        ours: Sequence[Call],
        peer: Sequence[Call],
    ) -> None:
        """Time each call once; items a second in the median round."""
        times = self._take_turns(iter(ours), iter(peer), len(ours))
        self.value(section, label, rate(items, times.ours), rate(items, times.peer))

    def turns(
        self,
        section: Section,
        items: int,
        ours: Mapping[str, Call],
        peer: Mapping[str, Call],
    ) -> None:
        """Time loops over so many items, all of them in turns; one item each.

        What a short call takes is otherwise blurred by the clock, and what differs
        between lines by what else the machine does meanwhile.
        """
        sides = ((KVINDEX, ours), (PACKAGE, peer))
        loops = [
            (label, subject, call, list[int]())
            for subject, calls in sides
            for label, call in calls.items()
        ]

        def measure() -> None:
            cost = sum(timed(call) for _, _, call, _ in loops)
            for _ in range(max(20, min(400, len(loops) * LINE_NS // (2 * cost)))):
                for _, _, call, times in loops:
                    times.append(timed(call))

        self.once(measure)
        for label, subject, _, times in loops:
            one = median(times) / items
            value = 1e9 / one if section.unit.endswith("/s") else one
            self._write(section, label, subject, {"value": value})

    def once(self, measure: Callable[[], None]) -> None:
        """Run what takes its own times."""
        with quiet():
            self.benchmark.pedantic(measure, rounds=1)  # type: ignore[no-untyped-call]

    def value(
        self, section: Section, label: str, ours: float | None, peer: float | None
    ) -> None:
        """Write down one figure of each side that has one."""
        for subject, value in ((KVINDEX, ours), (PACKAGE, peer)):
            if value is not None:
                self._write(section, label, subject, {"value": value})

    def spread(
        self, section: Section, label: str, ours: Sequence[int], peer: Sequence[int]
    ) -> None:
        """Write down how the times of each side spread."""
        for subject, times in ((KVINDEX, ours), (PACKAGE, peer)):
            if times:
                self._write(section, label, subject, spread(times))

    def _write(
        self, section: Section, label: str, subject: str, figures: dict[str, Any]
    ) -> None:
        self.benchmark.group = section.title
        self.benchmark.extra_info[subject] = figures
        self.write(
            Figure(
                bench="python",
                section=section.title,
                cell=label,
                subject=subject,
                unit=section.unit,
                **figures,
            )
        )

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

        with quiet():
            self.benchmark.pedantic(  # type: ignore[no-untyped-call]
                target, setup=before, rounds=rounds
            )
        return times


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the garbage collector out of the times."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(call: Call) -> int:
    """Call, and return the nanoseconds that it took."""
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start


def rate(items: int, times: Sequence[int]) -> float | None:
    """Return items a second, from the median round."""
    return items / median(times) * 1e9 if times else None

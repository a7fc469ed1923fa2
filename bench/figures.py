"""What a bench reports: one figure a line, as JSON.

Both benches write these lines, the one in Python and the one in Rust; the table and
the report read them. Times are in nanoseconds, rates in items a second.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import msgspec

KVINDEX = "kvindex"
# Steps of the histograms: four and a half percent each.
STEPS_AN_OCTAVE = 16
# What fewer samples say about one call in a thousand is chance.
ENOUGH_FOR_P999 = 1_000

# The upper bounds of the steps that were hit, and how often.
Histogram: TypeAlias = tuple[tuple[float, int], ...]


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one subject did in one cell: a value, or how single calls spread."""

    bench: str
    section: str = ""
    workload: str = ""
    claims: int | None = None
    cell: str
    subject: str
    # Nothing where there is no figure, and a note says why.
    unit: str = ""
    # Where on the axis of a series the cell lies.
    x: float | None = None
    value: float | None = None
    p50: float | None = None
    p99: float | None = None
    p999: float | None = None
    histogram: Histogram = ()
    # How many samples, or answers that the wrong ones are out of.
    of: int | None = None
    note: str = ""

    @property
    def numbers(self) -> tuple[float, ...]:
        """The value, or p50 and p99."""
        given = (self.p50, self.p99) if self.value is None else (self.value,)
        return tuple(number for number in given if number is not None)

    @property
    def more_is_better(self) -> bool:
        """Whether this is a rate."""
        return self.unit.endswith("/s")

    def ratios(self, other: "Figure") -> tuple[float, ...]:
        """How many times better this is than another figure of the same cell."""
        pairs = zip(self.numbers, other.numbers, strict=False)
        if self.more_is_better:
            return tuple(mine / its for mine, its in pairs if its)
        return tuple(its / mine for mine, its in pairs if mine)


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file's figures were measured on and with."""

    bench: str
    about: dict[str, Any]


Record: TypeAlias = Figure | About


class Writer:
    """Writes lines as they come, so that a run that breaks off leaves its figures."""

    def __init__(self, path: Path) -> None:
        """Start the file anew."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        self.path = path

    def write(self, record: Record) -> None:
        """Add one line."""
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")


def read(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the lines of files; fields that are not known here are left out."""
    for path in paths:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                raw = msgspec.json.decode(line)
                if "about" in raw:
                    yield msgspec.convert(raw, About)
                else:
                    yield msgspec.convert(raw, Figure)
            except (msgspec.DecodeError, msgspec.ValidationError, TypeError) as error:
                message = f"{path}, line {number}: {error}"
                raise ValueError(message) from error


def merged(records: Iterable[Record]) -> list[Record]:
    """Make one figure of those that were measured in rounds: the median of each.

    Their histograms are added up.
    """
    rounds: dict[tuple[object, ...], list[Figure]] = {}
    others: list[Record] = []
    for record in records:
        if isinstance(record, Figure) and record.numbers:
            place = record.bench, record.section, record.workload, record.claims
            cell = record.cell, record.subject, record.x
            rounds.setdefault((*place, *cell), []).append(record)
        else:
            others.append(record)
    return [*others, *map(_one, rounds.values())]


def _one(figures: Sequence[Figure]) -> Figure:
    if len(figures) == 1:
        return figures[0]
    added: Counter[float] = Counter()
    for figure in figures:
        added.update(dict(figure.histogram))
    middle = {}
    for name in ("value", "p50", "p99", "p999"):
        given = [getattr(figure, name) for figure in figures]
        numbers = [number for number in given if number is not None]
        middle[name] = median(numbers) if numbers else None
    return msgspec.structs.replace(
        figures[0], histogram=tuple(sorted(added.items())), **middle
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of the ordered ones lies."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def spread(times: Sequence[int]) -> dict[str, Any]:
    """Return p50, p99, p99.9 where there are enough, and the histogram."""
    ordered = sorted(times)
    enough = len(ordered) >= ENOUGH_FOR_P999
    return {
        "p50": percentile(ordered, 0.5),
        "p99": percentile(ordered, 0.99),
        "p999": percentile(ordered, 0.999) if enough else None,
        "histogram": histogram(ordered),
    }


def histogram(times: Iterable[int]) -> Histogram:
    """Count times in steps that grow by the same factor."""
    steps = Counter(
        math.ceil(math.log2(max(time, 1)) * STEPS_AN_OCTAVE) for time in times
    )
    return tuple(
        (round(2 ** (step / STEPS_AN_OCTAVE), 1), count)
        for step, count in sorted(steps.items())
    )

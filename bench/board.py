"""Puts the figures of one cell side by side: kvindex, and its peers, best first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from bench.figures import KVINDEX, Figure, Record, merged
from bench.names import words

# A bench, and a section in it.
Place: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One cell: a figure of kvindex, and those of the peers on the same work."""

    label: str
    ours: Figure | None
    peers: list[Figure]

    @property
    def best(self) -> Figure | None:
        """The best peer's figure."""
        return self.peers[0] if self.peers else None

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times better kvindex is than the best peer; empty if unknown."""
        if self.ours is None or self.best is None or self.best.unit == "wrong":
            return ()
        return self.ours.ratios(self.best)

    @property
    def unit(self) -> str:
        """The unit in which its figures are given."""
        return self.figures[0].unit

    @property
    def figures(self) -> list[Figure]:
        """Everything there is, kvindex first."""
        return [*([self.ours] if self.ours else []), *self.peers]


@dataclass(slots=True)
class _Cell:
    """What is found of one cell."""

    ours: dict[str, Figure] = field(default_factory=dict)
    peers: dict[str, Figure] = field(default_factory=dict)

    def add(self, figure: Figure) -> None:
        mine = is_ours(figure.subject)
        (self.ours if mine else self.peers)[figure.subject] = figure

    def rows(self, label: str) -> Iterator[Row]:
        """Yield a row, and one for each way in which kvindex can be used besides."""
        peers = sorted(self.peers.values(), key=order)
        if peers and not self.ours:
            yield Row(label, None, peers)
        for subject, ours in self.ours.items():
            way = subject.removeprefix(KVINDEX).lstrip("-")
            yield Row(f"{label} ({way})" if way else label, ours, peers)


def is_ours(subject: str) -> bool:
    """Whether this is kvindex, in one way or another."""
    return subject == KVINDEX or subject.startswith(f"{KVINDEX}-")


def order(figure: Figure) -> float:
    """Sort the best first."""
    first = figure.numbers[0]
    return -first if figure.more_is_better else first


def board(records: Iterable[Record]) -> dict[Place, list[Row]]:
    """Return the rows of each section, in the order in which they came."""
    found: dict[Place, dict[str, _Cell]] = {}
    for record in merged(records):
        if isinstance(record, Figure) and record.numbers:
            cells = found.setdefault((record.bench, place(record)), {})
            cells.setdefault(label(record), _Cell()).add(record)
    return {
        where: [row for label, cell in cells.items() for row in cell.rows(label)]
        for where, cells in found.items()
    }


def place(figure: Figure) -> str:
    """Name the section of a figure: its title, or its workload and size."""
    if figure.section:
        return figure.section
    if figure.claims is None or figure.x is not None:
        return words(figure.workload)
    return f"{words(figure.workload)}, {figure.claims:,} claims"


def label(figure: Figure) -> str:
    """Name the cell of a figure."""
    if figure.section:
        return figure.cell
    at = "" if figure.x is None else f" at {figure.x:,.0f}"
    return f"{words(figure.cell)}{at}"

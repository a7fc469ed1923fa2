"""Puts the figures of one cell side by side: kvindex, and its peers, best first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from bench.figures import KVINDEX, Figure, Record, merged
from bench.names import MACHINE, at, words

# The unit of wrong answers.
WRONG = "wrong"

# A bench, and a section in it.
Place: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One cell: a figure of kvindex, and those of the peers on the same work."""

    label: str
    ours: Figure | None
    peers: list[Figure]
    # Who answered wrongly in this workload: being quick is then no merit.
    wrong: frozenset[str] = frozenset()
    # How kvindex is used, if not in the usual way.
    way: str = ""

    @property
    def name(self) -> str:
        """The label, and the way."""
        return f"{self.label.strip()} ({self.way})" if self.way else self.label

    @property
    def best(self) -> Figure | None:
        """The figure of the best peer that answered rightly."""
        right = (peer for peer in self.peers if peer.subject not in self.wrong)
        return next(right, None)

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times better kvindex is than the best peer; empty if unknown."""
        if self.ours is None or self.best is None or self.unit == WRONG:
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

    def rows(self, label: str, wrong: frozenset[str]) -> Iterator[Row]:
        """Yield a row, and one for each way in which kvindex can be used besides."""
        peers = sorted(self.peers.values(), key=order)
        if peers and not self.ours:
            yield Row(label, None, peers, wrong)
        for subject, ours in self.ours.items():
            way = subject.removeprefix(KVINDEX).lstrip("-")
            yield Row(label, ours, peers, wrong, words(way))


def is_ours(subject: str) -> bool:
    """Whether this is kvindex, in one way or another."""
    return subject == KVINDEX or subject.startswith(f"{KVINDEX}-")


def is_other_way(subject: str) -> bool:
    """Whether this is kvindex, but not in the usual way."""
    return is_ours(subject) and subject != KVINDEX


def order(figure: Figure) -> float:
    """Sort the best first."""
    first = figure.numbers[0]
    return -first if figure.more_is_better else first


def board(records: Iterable[Record]) -> dict[Place, list[Row]]:
    """Return the rows of each section, in the order in which they came."""
    found: dict[Place, dict[str, _Cell]] = {}
    wrong: dict[Place, set[str]] = {}
    for record in merged(records):
        if isinstance(record, Figure) and record.numbers:
            where = record.bench, place(record)
            cells = found.setdefault(where, {})
            cells.setdefault(label(record), _Cell()).add(record)
            if record.unit == WRONG and record.value:
                wrong.setdefault(where, set()).add(record.subject)
    return {
        where: [
            row
            for label, cell in cells.items()
            for row in cell.rows(label, frozenset(wrong.get(where, ())))
        ]
        for where, cells in found.items()
    }


def place(figure: Figure) -> str:
    """Name the section of a figure: its title, or its workload and size."""
    if figure.section:
        return figure.section
    if not figure.claims or figure.x is not None:
        return words(figure.workload)
    return f"{words(figure.workload)}, {figure.claims:,} claims"


def label(figure: Figure) -> str:
    """Name the cell of a figure."""
    if figure.section:
        return figure.cell
    return words(figure.cell) if figure.x is None else at(figure.cell, figure.x)


def is_machine(row: Row) -> bool:
    """Whether this is what the machine itself takes."""
    return row.figures[0].subject == MACHINE

"""The figures, as the chapters of the page look for them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from bench.board import Row, board, is_machine
from bench.figures import About, Figure, Record, merged
from bench.names import BUSY
from bench.names import subject as written
from bench.report.sheet import Entry, Panel
from bench.units import digits, suited, text

# Of all workloads the one of which most is shown.
MAIN = "mixed"

# Below each title the figures, each with the name of its subject.
Titled: TypeAlias = dict[str, dict[Figure, str]]


@dataclass(slots=True)
class Book:
    """All figures, side by side."""

    records: Sequence[Record]
    rows: dict[tuple[str, str], list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        """Put figures of one cell side by side."""
        self.records = merged(self.records)
        self.rows = board(self.records)

    def about(self, bench: str) -> dict[str, Any]:
        """What a bench told of itself."""
        for record in self.records:
            if isinstance(record, About) and record.bench == bench:
                return record.about
        return {}

    def command(self, bench: str) -> str:
        """The command that measured."""
        return str(self.about(bench).get("command", ""))

    def workloads(self) -> dict[str, list[Row]]:
        """The workloads of the bench in Rust, without its series."""
        return {
            place: rows
            for (bench, place), rows in self.rows.items()
            if bench == "peers" and not is_series(rows[0]) and not is_machine(rows[0])
        }

    def machine(self) -> list[Row]:
        """What the machine itself takes."""
        return [row for rows in self.rows.values() for row in rows if is_machine(row)]

    def cells(self, cell: str) -> list[tuple[str, Row]]:
        """A cell of every workload that has it."""
        return [
            (place, row)
            for place, rows in self.workloads().items()
            for row in rows
            if named(row) == cell
        ]

    def main(self) -> tuple[str, list[Row]]:
        """The workload that most is shown of: mixed, and of those the largest."""
        found = self.workloads()

        def weight(place: str) -> tuple[bool, int]:
            first = found[place][0].figures[0]
            return first.workload == MAIN, first.claims or 0

        place = max(found, key=weight, default="")
        return place, found.get(place, [])

    def section(self, title: str) -> list[Row]:
        """The rows of a section of the bench in Python."""
        return self.rows.get(("python", title), [])

    def notes(self) -> Iterator[Figure]:
        """Yield what says why there is no figure."""
        for record in self.records:
            if isinstance(record, Figure) and record.note:
                yield record


def named(row: Row) -> str:
    """Return the cell's name as the bench gave it."""
    return row.figures[0].cell


def is_series(row: Row) -> bool:
    """Whether the row is a point of a series."""
    return row.figures[0].x is not None


def best_first(figures: Iterable[Figure]) -> list[Figure]:
    """Order figures of one cell: the best first."""

    def order(figure: Figure) -> float:
        first = figure.numbers[0]
        return -first if figure.more_is_better else first

    return sorted(figures, key=order)


def amounts(figures: Sequence[Figure]) -> list[str]:
    """Write figures, all in the unit that suits them."""
    if not figures:
        return []
    factor, name = suited(figures)
    return [f"{text(figure, factor)} {name}" for figure in figures]


def panels(found: Titled) -> list[Panel]:
    """Return a panel for each title, its subjects from the best to the worst."""
    ordered = {title: best_first(members) for title, members in found.items()}
    words = iter(amounts([*chain.from_iterable(ordered.values())]))
    return [
        Panel(
            title,
            [
                Entry(found[title][figure], figure.subject, (figure,), next(words))
                for figure in figures
            ],
        )
        for title, figures in ordered.items()
    ]


def titled(rows: Iterable[tuple[str, Row]]) -> Titled:
    """Gather the figures of rows below their titles."""
    found: Titled = {}
    for title, row in rows:
        found.setdefault(title, {}).update(
            {figure: marked(row, figure.subject) for figure in row.figures}
        )
    return found


def marked(row: Row, subject: str) -> str:
    """Name a subject, and mark one that answered wrongly in this workload."""
    return f"{written(subject)} !" if subject in row.wrong else written(subject)


def standing(rows: Sequence[Row]) -> str:
    """Say on how many rows kvindex is first, and where it is least ahead or behind."""
    ratios = {row.label: row.ratios[0] for row in rows if row.ratios and not row.way}
    if not ratios:
        return ""
    least = min(ratios, key=ratios.__getitem__)
    ahead = sum(ratio > 1 for ratio in ratios.values())
    where = " ".join(least.split())
    if len(ratios) == ahead == 1:
        return f"kvindex is {digits(ratios[least])} times ahead of the best peer."
    if len(ratios) == ahead:
        return (
            f"kvindex is first in all {ahead}, by {digits(ratios[least])} times or "
            f"more; the closest is: {where}."
        )
    return (
        f"kvindex is first in {ahead} of {len(ratios)}; it is furthest behind, by "
        f"{digits(1 / ratios[least])} times, in: {where}."
    )


def beside_a_writer(rows: Sequence[Row]) -> list[Panel]:
    """Pair each subject's cell with the same one beside a writer."""
    every = {
        (named(row), figure.subject): figure for row in rows for figure in row.figures
    }
    found = titled((named(row), row) for row in rows if named(row).startswith(BUSY))
    made = []
    for cell, members in found.items():
        quiet = cell.removeprefix(BUSY)
        title = next((row.label for row in rows if named(row) == quiet), "")
        both = [
            (every[quiet, busy.subject], busy)
            for busy in sorted(members, key=lambda busy: busy.p99 or 0)
            if (quiet, busy.subject) in every and busy.p99 is not None
        ]
        made.append(Panel(title, [beside(*pair) for pair in both]))
    return made


def beside(quiet: Figure, busy: Figure) -> Entry:
    """Return the row of one subject: its p99 without and with a writer."""
    before, after = quiet.numbers[-1], busy.numbers[-1]
    words = f"{before:,.0f} to {after:,.0f} ns, {digits(after / before)} x"
    return Entry(written(busy.subject), busy.subject, (quiet, busy), words)

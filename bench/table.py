"""Renders figures as one table: `python -m bench.table target/bench/*.jsonl`."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

from bench.board import WRONG, Row, board, is_machine, place
from bench.figures import About, Figure, Record, read
from bench.units import ratios, suited, text

HEAD = (
    "A ratio above 1 means that kvindex is better than the best peer of its line.\n"
    "Two figures are p50 and p99. Who answers wrongly in a workload is no peer there."
)
TITLES = ("", "kvindex", "best peer", "ratio", "unit", "which peer")

Cells: TypeAlias = tuple[str, ...]


def render(records: Iterable[Record]) -> str:
    """Return the whole table."""
    records = list(records)
    places = {
        place: [row for row in rows if not is_idle(row)]
        for place, rows in board(records).items()
    }
    head, *lines = aligned(
        [TITLES, *chain.from_iterable(map(section, places.values()))]
    )
    out = [*told(records), HEAD, "", head]
    left = iter(lines)
    for (_, title), rows in places.items():
        out += ["", title, *islice(left, len(rows))]
    every = [row for rows in places.values() for row in rows]
    return "\n".join([*out, "", *verdict(every)])


def is_idle(row: Row) -> bool:
    """Whether a row only says once more that nobody answered wrongly."""
    nobody = row.unit == WRONG and not any(figure.value for figure in row.figures)
    return nobody and row.figures[0].cell != WRONG


def section(rows: Sequence[Row]) -> Iterator[Cells]:
    """Yield the lines of a section, each unit scaled alike in all of it."""
    alike: dict[str, list[Figure]] = {}
    for row in rows:
        alike.setdefault(row.unit, []).extend(row.figures)
    scales = {unit: suited(figures) for unit, figures in alike.items()}
    for row in rows:
        yield cells(row, *scales[row.unit])


def told(records: Iterable[Record]) -> Iterator[str]:
    """Yield what the figures were measured on and with."""
    for record in records:
        if isinstance(record, About):
            parts = (part for key in record.about if (part := spell(record.about[key])))
            yield f"{record.bench}: {'; '.join(parts)}"


def spell(value: object) -> str:
    """Write what a bench tells of itself."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {spell(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(spell, value))
    return str(value)


def cells(row: Row, factor: float, unit: str) -> Cells:
    """Return the cells of one line."""
    if is_machine(row):
        factor, unit = suited(row.figures)
        return f"  {row.name}", "", "", "", f"{text(row.best, factor)} {unit}", ""
    ours, best = text(row.ours, factor), text(row.best, factor)
    which = row.best.subject if row.best else ""
    if unit == WRONG:
        # All of them: there is no best one among those that should be 0.
        best, unit = "-", out_of(row)
        faulty = [peer for peer in row.peers if peer.value]
        which = ", ".join(f"{peer.subject} {text(peer, 1)}" for peer in faulty)
    return f"  {row.name}", ours, best, ratios(row.ratios), unit, which


def out_of(row: Row) -> str:
    """Say what wrong answers are out of."""
    of = row.figures[0].of
    return f"of {of:,}" if of else ""


def aligned(rows: Sequence[Cells]) -> list[str]:
    """Pad the columns: figures to the left, words to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(pad, row, widths, range(len(row)))).rstrip() for row in rows]


def pad(cell: str, width: int, column: int) -> str:
    """Pad one cell."""
    return f"{cell:>{width}}" if column in {1, 2, 3} else f"{cell:<{width}}"


def verdict(rows: Sequence[Row]) -> Iterator[str]:
    """Say on how many lines kvindex is ahead, and on which it is not."""
    compared = [row for row in rows if row.ratios and not row.way]
    behind = [row for row in compared if min(row.ratios) <= 1]
    if not compared:
        yield "No peer was measured: kvindex stands alone."
        return
    yield f"kvindex is ahead on {len(compared) - len(behind)} of {len(compared)} lines."
    for row in behind:
        yield f"  not ahead: {place(row.figures[0])}: {row.name}"


if __name__ == "__main__":
    sys.stdout.write(render(read(map(Path, sys.argv[1:]))) + "\n")

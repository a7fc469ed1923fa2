"""The tables of the page: at a glance, exactness, the machine, and every figure."""

import dataclasses
from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain

from bench import sections
from bench.board import WRONG, Row, is_machine, is_ours, label, place
from bench.figures import Figure
from bench.names import WAYS
from bench.names import subject as written
from bench.report.book import Book, amounts
from bench.report.html import group, heading, line, table
from bench.table import is_idle
from bench.units import number, ratios, suited, text

# What of the bench in Python is worth a line at the top: section, and cell if not all.
HEADLINES = (
    (sections.APPLY_SAME, "8 blocks an event, from bytes"),
    (sections.HASHING, "32-bit buffer"),
    (sections.TOKENS, "   64 blocks,  64 holders"),
    (sections.TOKENS, "  512 blocks,  64 holders"),
    (sections.BEST, "   64 blocks,  64 holders"),
    (sections.PACED, "8,192-block batches"),
    (sections.MEMORY, "one engine hash a block"),
)
FLOOR = "The machine itself"
EXACTNESS = (
    "Wrong answers out of all queries, judged by a brute-force model that knows what "
    "every worker holds; in brackets by how many blocks the worst are too long and too "
    "short. Who answers wrongly in a workload is marked with ! and no peer there."
)


def headline(book: Book) -> Iterator[str]:
    """Yield the table at the top."""
    yield heading("At a glance")
    head = ("", "kvindex", "best peer", "ratio", "which peer")
    body = []
    place_name, rows = book.main()
    main = [row for row in rows if row.unit != WRONG and not row.way]
    if main:
        body += [group(f"Rust: {place_name}", len(head)), *map(compared, main)]
    chosen = [
        relabelled(row, f"{section.title.partition(';')[0]}: {cell.strip()}")
        for section, cell in HEADLINES
        for row in book.section(section.title)
        if row.label == cell
    ]
    if chosen:
        body += [group("Python", len(head)), *map(compared, chosen)]
    yield table(head, body)
    ways = {row.way for rows in book.rows.values() for row in rows} & WAYS.keys()
    notes = ["Two figures are p50 and p99.", *(WAYS[way] for way in sorted(ways))]
    yield f'<p class="small">{escape(" ".join(notes))}</p>'


def relabelled(row: Row, label: str) -> Row:
    """Return the row below another label."""
    return dataclasses.replace(row, label=label)


def compared(row: Row) -> str:
    """Return the line of one cell: kvindex, the best peer, the ratio."""
    ours, best = side_by_side(row)[:2]
    ratio = ratios(row.ratios)
    return line(
        [
            ("", row.name.strip()),
            ("ours", ours),
            ("", best),
            (kind(row), ratio if ratio == "-" else f"{ratio} x"),
            ("", row.best.subject if row.best else ""),
        ]
    )


def side_by_side(row: Row) -> list[str]:
    """Write the figures of a row in one unit, kvindex first; "-" where none is."""
    found = amounts(row.figures)
    if row.ours is None:
        found.insert(0, "-")
    return [*found, "-"]


def kind(row: Row) -> str:
    """Return the class of a ratio."""
    return "behind" if row.ratios and min(row.ratios) <= 1 else "ratio"


def exactness(book: Book) -> Iterator[str]:
    """Yield the table of wrong answers."""
    answers, many, few = (
        {
            (name, figure.subject): figure
            for name, row in book.cells(cell)
            for figure in row.figures
        }
        for cell in ("wrong", "wrong_too_many", "wrong_too_few")
    )
    if not answers:
        return
    every = dict.fromkeys(subject for _, subject in answers)
    subjects = sorted(every, key=lambda subject: not is_ours(subject))
    yield heading("Exactness")
    yield f"<p>{EXACTNESS}</p>"
    body = []
    for name in dict.fromkeys(name for name, _ in answers):
        row = [answers.get((name, subject)) for subject in subjects]
        of = max(figure.of or 0 for figure in row if figure)
        cells = [("", name), ("", f"{of:,}")]
        for subject, figure in zip(subjects, row, strict=True):
            worst = many.get((name, subject)), few.get((name, subject))
            cells.append(wrong(figure, *worst))
        body.append(line(cells))
    yield table(("workload", "queries", *map(written, subjects)), body)


def wrong(
    figure: Figure | None, many: Figure | None, few: Figure | None
) -> tuple[str, str]:
    """Return the cell of one subject: wrong answers, and the worst of them."""
    if figure is None:
        return "", "-"
    if not figure.value:
        return "ours", "0"
    worst = [
        f"{sign}{number(given.value or 0)}"
        for sign, given in (("+", many), ("-", few))
        if given
    ]
    brackets = f" ({', '.join(worst)})" if worst else ""
    return "behind", f"{number(figure.value)}{brackets}"


def floor(book: Book) -> Iterator[str]:
    """Yield what the machine itself takes."""
    rows = book.machine()
    if rows:
        yield heading(FLOOR)
        yield (
            "<p>No index is faster than what it is made of: these are to be held "
            "against the figures above.</p>"
        )
        yield table(
            ("", "time or rate"),
            [line([("", row.name), ("", amounts(row.figures)[0])]) for row in rows],
        )


def everything(book: Book) -> Iterator[str]:
    """Yield every figure, all peers."""
    yield heading("All figures")
    for bench in dict.fromkeys(bench for bench, _ in book.rows):
        places = {
            name: rows
            for (of, name), rows in book.rows.items()
            if of == bench and not is_machine(rows[0])
        }
        every = chain.from_iterable(places.values())
        found = (peer.subject for row in every for peer in row.peers)
        peers = list(dict.fromkeys(found))
        body = []
        for name, rows in places.items():
            body.append(group(name, 4 + len(peers)))
            body += [complete(row, peers) for row in rows if not is_idle(row)]
        yield table(("", "unit", "kvindex", "ratio", *peers), body, "dense")
    for note in book.notes():
        what = f"{note.subject}, {place(note)}, {label(note)}: {note.note}"
        yield f'<p class="small">{escape(what)}</p>'


def complete(row: Row, peers: Sequence[str]) -> str:
    """Return the line of one cell with every peer."""
    factor, unit = suited(row.figures)
    texts = {peer.subject: text(peer, factor) for peer in row.peers}
    cells = [
        ("", row.name.strip()),
        ("", unit),
        ("ours", text(row.ours, factor)),
        (kind(row), ratios(row.ratios)),
    ]
    return line(cells + [("", texts.get(peer, "-")) for peer in peers])

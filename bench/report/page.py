"""Writes the page: one HTML file, its drawings inside, no script and no network."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain
from pathlib import Path

from bench import sections
from bench.board import WRONG, Row, is_machine, is_ours, label, place
from bench.figures import About, Figure, Record
from bench.names import WAYS
from bench.names import subject as written
from bench.report.book import Book, amounts
from bench.report.chapters import Chapter, Plot
from bench.report.style import FONT, schemes
from bench.table import is_idle, spell
from bench.units import number, ratios, suited, text

CSS = Path(__file__).with_name("page.css")
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
BENCHES = {"peers": "Rust", "python": "Python", "instructions": "Instructions"}
FLOOR = "The machine itself"
EXACTNESS = (
    "Wrong answers out of all queries, judged by a brute-force model that knows what "
    "every worker holds; in brackets by how many blocks the worst are too long and too "
    "short. Who answers wrongly in a workload is marked with ! and no peer there."
)


def page(records: Sequence[Record], made: Sequence[Chapter]) -> str:
    """Return the whole page."""
    book = Book(records)
    style = schemes() + CSS.read_text(encoding="utf-8").replace("FONT", FONT)
    body = [
        "<h1>kvindex beside its peers</h1>",
        f'<p class="lead">{escape(summary(book))}</p>',
        *measured_on(book),
        contents(book, made),
        *headline(book),
        *exactness(book),
        *(part for chapter in made for part in told(chapter)),
        *floor(book),
        *everything(book),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>kvindex beside its peers</title><style>{style}</style></head>\n"
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def summary(book: Book) -> str:
    """Say in a sentence how kvindex stands."""
    rows = [row for members in book.rows.values() for row in members if row.ratios]
    if not rows:
        return "No peer was measured: kvindex stands alone."
    ahead = sum(min(row.ratios) > 1 for row in rows)
    return (
        f"kvindex is ahead of the best peer on {ahead} of {len(rows)} lines. All "
        "subjects did the same work in the same run; a ratio above 1 means that "
        "kvindex is better."
    )


def measured_on(book: Book) -> Iterator[str]:
    """Yield what the benches told of themselves."""
    for record in book.records:
        if isinstance(record, About):
            name = BENCHES.get(record.bench, record.bench)
            parts = "; ".join(spell(value) for value in record.about.values())
            yield f'<p class="small"><b>{escape(name)}</b>: {escape(parts)}</p>'


def contents(book: Book, made: Sequence[Chapter]) -> str:
    """Return links to the chapters."""
    judged = ["Exactness"] if book.cells("wrong") else []
    told = [chapter.title for chapter in made]
    floor = [FLOOR] if book.machine() else []
    titles = ["At a glance", *judged, *told, *floor, "All figures"]
    links = (f'<a href="#{anchor(title)}">{escape(title)}</a>' for title in titles)
    return f"<nav>{' '.join(links)}</nav>"


def anchor(title: str) -> str:
    """Return the name of a heading in links."""
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())


def heading(title: str) -> str:
    """Return the heading of a chapter."""
    return f'<h2 id="{anchor(title)}">{escape(title)}</h2>'


def told(chapter: Chapter) -> Iterator[str]:
    """Yield a chapter."""
    yield heading(chapter.title)
    if chapter.text:
        yield f"<p>{escape(chapter.text)}</p>"
    for plot in chapter.plots:
        yield shown(plot)


def shown(plot: Plot) -> str:
    """Return a plot with what it says and where its figures come from."""
    made = f"<figcaption>Measured by <code>{escape(plot.command)}</code></figcaption>"
    return (
        f"<figure><h3>{escape(plot.title)}</h3><p>{escape(plot.says)}</p>"
        f'<div class="wide">{plot.svg}</div>{made if plot.command else ""}</figure>'
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


def table(head: Iterable[str], body: Iterable[str], kind: str = "") -> str:
    """Return a table."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    rows = "\n".join(body)
    return (
        f'<div class="wide {kind}"><table><thead><tr>{titles}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def group(title: str, columns: int) -> str:
    """Return a line that heads the ones below it."""
    return f'<tr class="group"><th colspan="{columns}">{escape(title)}</th></tr>'


def line(cells: Iterable[tuple[str, str]]) -> str:
    """Return a line of cells, each with its class."""
    made = (
        f'<td class="{kind}">{escape(text)}</td>'
        if kind
        else f"<td>{escape(text)}</td>"
        for kind, text in cells
    )
    return f"<tr>{''.join(made)}</tr>"

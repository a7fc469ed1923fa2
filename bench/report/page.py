"""Writes the page: one HTML file, its drawings inside, no script and no network."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from bench.figures import About, Record
from bench.report.book import Book
from bench.report.chapters import Chapter, Plot
from bench.report.html import anchor, heading
from bench.report.style import FONT, schemes
from bench.report.tables import FLOOR, everything, exactness, floor, headline
from bench.table import spell

CSS = Path(__file__).with_name("page.css")
BENCHES = {"peers": "Rust", "python": "Python", "instructions": "Instructions"}


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
    every = (row for rows in book.rows.values() for row in rows)
    rows = [row for row in every if row.ratios and not row.way]
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

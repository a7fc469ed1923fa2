"""The chapters of the page: which figures are shown, and what each plot says."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench import sections
from bench.board import Row
from bench.figures import KVINDEX, Figure, Record
from bench.names import MACHINE, words
from bench.report.book import (
    Book,
    amounts,
    beside_a_writer,
    named,
    panels,
    standing,
    titled,
)
from bench.report.lines import Course, lines
from bench.report.plots import bars, pairs, spreads
from bench.report.sheet import Entry, Panel
from bench.sections import Section

HILLS = (
    "Each hill shows how single calls spread on a logarithmic axis: further left is "
    "better, the dot is p50, the tick p99."
)
ALONG = {
    "claims": "claims",
    "depth": "depth of the prompt in blocks",
    "holders": "holders of the prompt",
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing, what it shows, and the command that made its figures."""

    name: str
    title: str
    says: str
    command: str
    svg: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """A heading, a few words, and plots."""

    title: str
    text: str
    plots: Sequence[Plot]


def chapters(records: Sequence[Record]) -> Iterator[Chapter]:
    """Yield the chapters that there are figures for."""
    book = Book(records)
    made = (
        ("Match", "How long a router waits for an answer.", matching(book)),
        ("Matching while a writer runs", "", busy(book)),
        (
            "Applying events",
            "One thread writes; the clock runs until all of it can be found.",
            applying(book),
        ),
        (
            "Memory",
            "A claim is one worker holding one block; what many hold is one block.",
            memory(book),
        ),
        ("Growth", "", growth(book)),
        (
            "Match from Python",
            "The package beside the RadixTree of ai-dynamo-runtime, in one process.",
            python_match(book),
        ),
        ("Rates and forms from Python", "", python_rates(book)),
    )
    for title, text, plots in made:
        kept = [plot for plot in plots if plot is not None]
        if kept:
            yield Chapter(title, text, kept)


def matching(book: Book) -> Iterator[Plot | None]:
    """Yield the matches of the main workload, then what others have besides."""
    main, rows = book.main()
    matches = [row for row in rows if named(row).startswith("match")]
    yield hills(book, "match", f"Matches: {main}", matches)
    seen = {named(row) for row in matches}
    others = [
        dataclasses.replace(row, label=f"{row.label}: {place}")
        for place, found in book.workloads().items()
        for row in found
        if named(row).startswith("match") and named(row) not in seen
    ]
    yield hills(book, "match-others", "Matches in other workloads", others)


def busy(book: Book) -> Iterator[Plot | None]:
    """Yield the matches of the main workload beside a writer."""
    place, rows = book.main()
    found = beside_a_writer(rows)
    if any(panel.entries for panel in found):
        title = f"p99 without and with a writer: {place}"
        says = (
            "The ring is p99 while nobody writes, the dot p99 of the same matches "
            "while another thread stores and removes flat out; further left is better, "
            "and so is a short line."
        )
        drawing = pairs("busy", title, found, "p99 of one call, logarithmic")
        yield Plot("busy", title, says, book.command("peers"), drawing)


def applying(book: Book) -> Iterator[Plot | None]:
    """Yield the rates of each workload."""
    yield by_workload(book, "store", "Blocks stored in a second")
    yield by_workload(book, "remove", "Blocks removed in a second")
    yield by_workload(
        book, "agentic", "Blocks stored and removed in a second by agents"
    )


def memory(book: Book) -> Iterator[Plot | None]:
    """Yield the sizes of each workload."""
    yield by_workload(book, "bytes_per_claim", "Bytes a claim")
    yield by_workload(book, "bytes_per_block", "Bytes a distinct block")


def growth(book: Book) -> Iterator[Plot]:
    """Yield the series."""
    series: dict[str, dict[str, list[Figure]]] = {}
    for record in book.records:
        if isinstance(record, Figure) and is_growth(record):
            courses = series.setdefault(record.workload, {})
            courses.setdefault(record.cell, []).append(record)
    for workload, courses in series.items():
        what = workload.removeprefix("growth-")
        title = f"Growth with {what}"
        drawn = [Course(words(cell), found) for cell, found in courses.items()]
        says = (
            "Both axes are logarithmic, so a level line does not depend on what the "
            "axis counts; of times, p50 is shown."
        )
        drawing = lines(workload, title, drawn, ALONG.get(what, what))
        yield Plot(workload, title, says, book.command("peers"), drawing)


def is_growth(figure: Figure) -> bool:
    """Whether this is a point of a series that is to be drawn."""
    series = figure.x is not None and figure.workload != MACHINE
    return series and bool(figure.numbers)


def python_match(book: Book) -> Iterator[Plot | None]:
    """Yield the matches from Python, alone and beside a writer."""
    for name, section in (
        ("python-tokens", sections.TOKENS),
        ("python-keys", sections.KEYS),
        ("python-best", sections.BEST),
    ):
        rows = book.section(section.title)
        wide = [row for row in rows if " 64 holders" in row.label]
        yield hills(book, name, f"{headed(section)}: 64 holders", wide)
    for name, section in (
        ("python-paced", sections.PACED),
        ("python-back-to-back", sections.BACK_TO_BACK),
    ):
        yield hills(book, name, headed(section), book.section(section.title))


def python_rates(book: Book) -> Iterator[Plot | None]:
    """Yield the rates from Python, and what each form of a call costs."""
    yield both_sides(book, "python-apply", sections.APPLY_SAME)
    yield both_sides(book, "python-hashing", sections.HASHING)
    yield both_sides(book, "python-threads", sections.THREADS)
    yield both_sides(book, "python-many", sections.MANY)
    yield alone(book, "python-parts", sections.PARTS)
    yield alone(book, "python-input", sections.INPUT)


def headed(section: Section) -> str:
    """Write a section's title as a heading."""
    return section.title[0].upper() + section.title[1:]


def hills(book: Book, name: str, title: str, rows: Iterable[Row]) -> Plot | None:
    """Draw how single calls spread."""
    rows = [row for row in rows if all(figure.histogram for figure in row.figures)]
    if not rows:
        return None
    made = panels(titled((row.label.strip(), row) for row in rows))
    command = book.command(rows[0].figures[0].bench)
    says = f"{HILLS} {standing(rows)}"
    return Plot(name, title, says, command, spreads(name, title, made))


def by_workload(book: Book, cell: str, title: str) -> Plot | None:
    """Draw one cell of every workload as bars."""
    found = book.cells(cell)
    if not found:
        return None
    every = [dataclasses.replace(row, label=place) for place, row in found]
    name = cell.replace("_", "-")
    return barred(book, "peers", name, title, panels(titled(found)), every)


def both_sides(book: Book, name: str, section: Section) -> Plot | None:
    """Draw a section of the bench in Python as bars."""
    rows = book.section(section.title)
    if not rows:
        return None
    made = panels(titled((row.label.strip(), row) for row in rows))
    return barred(book, "python", name, headed(section), made, rows)


def barred(
    book: Book,
    bench: str,
    name: str,
    title: str,
    made: Sequence[Panel],
    rows: Sequence[Row],
) -> Plot:
    """Draw bars and say how kvindex stands."""
    better = "Longer" if rows[0].figures[0].more_is_better else "Shorter"
    says = f"{better} bars are better. {standing(rows)}"
    return Plot(name, title, says, book.command(bench), bars(name, title, made))


def alone(book: Book, name: str, section: Section) -> Plot | None:
    """Draw a section that kvindex has alone: a bar for each line."""
    figures = [row.ours for row in book.section(section.title) if row.ours]
    if not figures:
        return None
    groups: dict[str, list[Entry]] = {}
    for figure, amount in zip(figures, amounts(figures), strict=True):
        group, _, what = figure.cell.partition(": ")
        entry = Entry(what, KVINDEX, (figure,), amount)
        groups.setdefault(group.strip(), []).append(entry)
    made = [Panel(group, members) for group, members in groups.items()]
    title = headed(section)
    says = "Shorter bars are better; kvindex alone, each the mean call of a loop."
    drawing = bars(name, title, made, " a call")
    return Plot(name, title, says, book.command("python"), drawing)

"""The plots that have a row for each subject: spreads, bars and pairs."""

import math
from collections.abc import Sequence

from bench.figures import Figure, Histogram
from bench.report.sheet import ROW, Entry, Panel, Sheet
from bench.report.style import PAGE, colour, strength

# Steps of a hill an octave, and how wide a step of a histogram is at the most.
GRAIN = 8
WIDEST = 1 / 3
# Groups of bars share an axis unless one is so many times longer than another.
MUCH = 8
# Less than this share of a hill's top is not worth room on the axis.
FLAT = 0.02


def spreads(name: str, title: str, panels: Sequence[Panel]) -> str:
    """Draw how single calls spread: a hill each, a dot at p50, a tick at p99."""
    sheet = Sheet(panels)
    figures = [entry.figures[0] for entry in entries(panels)]
    sheet.times(*reach(figures), "time of one call, logarithmic")
    for entry, middle in sheet.rows():
        hue, base = colour(entry.subject), middle + ROW * 0.36
        across, heights = hill(entry.figures[0].histogram)
        sheet.axes.fill_between(
            across,
            [base - height * ROW * 0.8 for height in heights],
            base,
            step="mid",
            color=hue,
            alpha=0.55 * strength(entry.subject),
            linewidth=0,
        )
        p50, p99 = entry.figures[0].numbers
        sheet.axes.plot([p50, p99], [base] * 2, color=hue, linewidth=2)
        sheet.axes.plot([p50], [base], "o", color=hue, markersize=7)
        sheet.axes.plot([p99], [base], "|", color=hue, markersize=11, mew=2.5)
    return sheet.svg(name, title)


def bars(name: str, title: str, panels: Sequence[Panel], of: str = "") -> str:
    """Draw a bar for each figure, from zero."""
    sheet = Sheet(panels)
    longest = {panel.title: max(map(length, panel.entries)) for panel in panels}
    whole = {entry: longest[panel.title] for panel in panels for entry in panel.entries}
    alike = max(longest.values()) < MUCH * min(longest.values())
    if alike:
        unit = panels[0].entries[0].figures[0].unit
        sheet.amounts(unit, max(longest.values()), of)
    else:
        sheet.shares("from zero, each group on a scale of its own")
    for entry, middle in sheet.rows():
        across = length(entry) if alike else length(entry) / whole[entry]
        hue, alpha = colour(entry.subject), strength(entry.subject)
        # The grid does not shine through a pale bar.
        for fill, opaque in ((PAGE, 1.0), (hue, alpha)):
            sheet.axes.barh(middle, across, ROW * 0.62, color=fill, alpha=opaque)
    return sheet.svg(name, title)


def length(entry: Entry) -> float:
    """Return the figure that a bar stands for."""
    return entry.figures[0].numbers[0]


def pairs(name: str, title: str, panels: Sequence[Panel], of: str) -> str:
    """Draw for each row how far its second figure is from its first: p99 of each."""
    sheet = Sheet(panels)
    values = [last(figure) for entry in entries(panels) for figure in entry.figures]
    sheet.times(min(values) / 1.3, max(values) * 1.3, of)
    for entry, middle in sheet.rows():
        hue = colour(entry.subject)
        first, second = map(last, entry.figures)
        sheet.axes.plot([first, second], [middle] * 2, color=hue, linewidth=2)
        sheet.axes.plot(
            [first], [middle], "o", markersize=7, mfc="none", mec=hue, mew=1.6
        )
        sheet.axes.plot([second], [middle], "o", color=hue, markersize=8)
    return sheet.svg(name, title)


def entries(panels: Sequence[Panel]) -> list[Entry]:
    """Return the rows of all panels."""
    return [entry for panel in panels for entry in panel.entries]


def last(figure: Figure) -> float:
    """Return the p99 of a figure."""
    return figure.numbers[-1]


def reach(figures: Sequence[Figure]) -> tuple[float, float]:
    """Return the ends of an axis on which every hill has room."""
    seen = []
    for figure in figures:
        across, heights = hill(figure.histogram)
        steps = zip(across, heights, strict=True)
        seen += [at for at, height in steps if height > FLAT]
        seen += figure.numbers
    return min(seen) / 1.15, max(seen) * 1.15


def hill(histogram: Histogram) -> tuple[list[float], list[float]]:
    """Return the middles of even steps, and how much lies in each; at most 1."""
    found: dict[int, float] = {}
    before = 0.0
    for upper, count in histogram:
        end = math.log2(max(upper, 1))
        begin = max(before, end - WIDEST) if before else end - 1 / GRAIN
        share_out(found, begin, end, count)
        before = end
    most = max(found.values())
    steps = range(min(found) - 1, max(found) + 2)
    middles = [2 ** ((step + 0.5) / GRAIN) for step in steps]
    return middles, [found.get(step, 0) / most for step in steps]


def share_out(found: dict[int, float], begin: float, end: float, count: int) -> None:
    """Share a count among the even steps between two logarithms."""
    for step in range(math.floor(begin * GRAIN), math.ceil(end * GRAIN)):
        inside = min(end, (step + 1) / GRAIN) - max(begin, step / GRAIN)
        if inside > 0:
            found[step] = found.get(step, 0) + count * inside / (end - begin)

"""A sheet: titled panels of rows below each other, on one axis across.

Each row has a name at its left and its figures in words at its right, so that a
reader needs no legend and no grid to read a number off.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from bench.board import is_ours
from bench.figures import Figure
from bench.report.style import INK, WIDTH, area, canvas, colour, svg
from bench.units import number, scale

TOP, BOTTOM = 4, 48
ROW, GAP, HEAD = 24, 14, 26
# Text stands this far from the plotted part; a letter is at most so wide.
AWAY, LETTER = 12, 7.8


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: what it is called, its figures, and these in words."""

    label: str
    subject: str
    figures: tuple[Figure, ...]
    words: str

    @property
    def is_ours(self) -> bool:
        """Whether this row is to stand out."""
        return is_ours(self.subject)


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows below one title."""

    title: str
    entries: Sequence[Entry]


class Sheet:
    """The drawn panels; a plot adds its marks at the height of each row."""

    def __init__(self, panels: Sequence[Panel]) -> None:
        """Make room for all titles, names and words."""
        self.panels = [panel for panel in panels if panel.entries]
        inner = (
            sum(HEAD + GAP + ROW * len(panel.entries) for panel in self.panels) - GAP
        )
        every = [entry for panel in self.panels for entry in panel.entries]
        self.left = AWAY + LETTER * max(20, *(len(entry.label) for entry in every))
        right = AWAY + LETTER * max(16, *(len(entry.words) for entry in every))
        self.width = WIDTH - self.left - right
        self.canvas = canvas(TOP + inner + BOTTOM)
        self.axes = area(self.canvas, self.left, TOP, self.width, inner)
        self.axes.set_ylim(inner, 0)
        self.axes.yaxis.set_major_locator(NullLocator())

    def rows(self) -> Iterator[tuple[Entry, float]]:
        """Write each row's words, and yield it with the height of its middle."""
        down = 0.0
        for panel in self.panels:
            self._write(-self.left, down + HEAD * 0.4, panel.title, INK, bold=True)
            down += HEAD
            for entry in panel.entries:
                at, bold = down + ROW / 2, entry.is_ours
                self._name(at, entry, bold=bold)
                self._write(self.width + AWAY, at, entry.words, INK, bold=bold)
                yield entry, at
                down += ROW
            down += GAP

    def times(self, low: float, high: float, of: str) -> None:
        """Let the axis be one of time, logarithmic."""
        self.axes.set_xscale("log")
        self.axes.set_xlim(low, high)
        self.axes.xaxis.set_major_locator(FixedLocator(ticks(low, high)))
        self.axes.xaxis.set_minor_locator(NullLocator())
        self.axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: time(value)))
        self.axes.set_xlabel(of, labelpad=8)

    def amounts(self, unit: str, high: float, of: str) -> None:
        """Let the axis begin at zero."""
        factor, name = scale(unit, high)
        self.axes.set_xlim(0, high * 1.02)
        self.axes.xaxis.set_major_locator(MaxNLocator(6))
        self.axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value / factor:,g}")
        )
        self.axes.set_xlabel(f"{name}{of}", labelpad=8)

    def shares(self, of: str) -> None:
        """Let the axis go to the longest bar of each panel, without figures."""
        self.axes.set_xlim(0, 1.02)
        self.axes.xaxis.set_major_locator(NullLocator())
        self.axes.set_xlabel(of, labelpad=8)

    def svg(self, name: str, title: str) -> str:
        """Return the drawing."""
        return svg(self.canvas, name, title)

    def _name(self, down: float, entry: Entry, *, bold: bool) -> None:
        hue = colour(entry.subject)
        self._write(-AWAY, down, entry.label, hue, bold=bold, to="right")

    def _write(
        self,
        across: float,
        down: float,
        text: str,
        hue: str,
        *,
        bold: bool,
        to: str = "left",
    ) -> None:
        self.axes.text(
            across / self.width,
            down,
            text,
            transform=self.axes.get_yaxis_transform(),
            color=hue,
            weight="bold" if bold else "normal",
            ha=to,
            va="center",
        )


def time(value: float) -> str:
    """Write a round time with its unit."""
    factor, name = scale("ns", value)
    return f"{number(value / factor)} {name}"


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers of an axis, fewer of each power of ten on a long one."""
    decades = math.log10(high / low)
    spacing: dict[float, tuple[float, ...]] = {
        0.7: (1, 1.5, 2, 3, 4, 5, 7),
        2.5: (1, 2, 5),
        4.0: (1, 3),
        math.inf: (1,),
    }
    steps = next(steps for longest, steps in spacing.items() if decades < longest)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = (step * 10.0**power for power in powers for step in steps)
    return [mark for mark in marks if low <= mark <= high]

"""Plots how a figure grows: one line for each subject, named at its end."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench.board import is_other_way, is_ours
from bench.figures import Figure
from bench.names import subject as written
from bench.report.sheet import ticks
from bench.report.style import WIDTH, area, canvas, colour, svg
from bench.units import number, suited

LEFT, NAMES, TOP, BOTTOM = 64, 142, 40, 56
HEIGHT = 214
# Names of lines are at least this far from each other.
APART = 15


@dataclass(frozen=True, slots=True)
class Course:
    """One small plot: a figure of every subject along the axis."""

    title: str
    figures: Sequence[Figure]


def lines(name: str, title: str, courses: Sequence[Course], along: str) -> str:
    """Draw the courses side by side, two in a row."""
    columns = min(2, len(courses))
    rows = -(-len(courses) // columns)
    width, height = WIDTH / columns, TOP + HEIGHT + BOTTOM
    drawn = canvas(rows * height)
    for place, course in enumerate(courses):
        down, across = divmod(place, columns)
        left, top = across * width + LEFT, down * height + TOP
        axes = area(drawn, left, top, width - LEFT - NAMES, HEIGHT)
        draw(axes, course, along)
    return svg(drawn, name, title)


def draw(axes: Axes, course: Course, along: str) -> None:
    """Draw one of them."""
    series: dict[str, list[tuple[float, float]]] = {}
    for figure in course.figures:
        point = (figure.x or 0, figure.numbers[0])
        series.setdefault(figure.subject, []).append(point)
    frame(axes, course, along)
    ends = {}
    for subject, points in sorted(series.items(), key=lambda item: is_ours(item[0])):
        across, up = zip(*sorted(points), strict=True)
        axes.plot(
            across,
            up,
            ":o" if is_other_way(subject) else "-o",
            color=colour(subject),
            linewidth=2.6 if is_ours(subject) else 1.6,
            markersize=5.5 if is_ours(subject) else 4,
        )
        ends[subject] = (across[-1], up[-1])
    write_names(axes, ends)


def frame(axes: Axes, course: Course, along: str) -> None:
    """Set up both axes."""
    across = [figure.x or 0 for figure in course.figures]
    up = [figure.numbers[0] for figure in course.figures]
    factor, unit = suited(course.figures)
    axes.annotate(
        f"{course.title}, {unit}",
        (0, 1),
        xycoords="axes fraction",
        xytext=(-LEFT, 22),
        textcoords="offset pixels",
        weight="bold",
        va="center",
    )
    axes.set_xscale("log")
    axes.set_xlim(min(across) / 1.3, max(across) * 1.3)
    powers = [10.0**power for power in range(12)]
    marks = [at for at in powers if min(across) <= at * 1.3 and at <= max(across) * 1.3]
    axes.xaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.set_xlabel(along, labelpad=8)
    axes.set_yscale("log")
    low, high = min(up) / 1.4, max(up) * 1.4
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ticks(low, high)))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: number(round(value / factor, 6)))
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(axis="y")
    axes.grid(visible=False, axis="x")


def short(value: float) -> str:
    """Write a power of ten."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.0f} {name}"
    return f"{value:.0f}"


def write_names(axes: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """Name each line at its end; names that would overlap are moved apart."""
    points = axes.transData.transform(list(ends.values()))
    heights = {name: float(point[1]) for name, point in zip(ends, points, strict=True)}
    below = float("inf")
    for name in sorted(heights, key=lambda name: -heights[name]):
        below = min(heights[name], below - APART)
        axes.annotate(
            written(name),
            ends[name],
            xytext=(9, below - heights[name]),
            textcoords="offset pixels",
            color=colour(name),
            weight="bold" if is_ours(name) else "normal",
            va="center",
            annotation_clip=False,
        )

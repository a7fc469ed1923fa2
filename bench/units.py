"""Writes figures in the unit that suits their size."""

from collections.abc import Iterable
from statistics import median
from typing import TypeAlias

from bench.figures import Figure

# From how much on a unit is taken, and what it is called.
Steps: TypeAlias = tuple[tuple[float, str], ...]

TIMES: Steps = ((1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s"))
# Times are written in a unit of which there are at least so many: those that are
# read together are then more often in the same one, without a fraction.
LEAST = 10.0
RATES: Steps = ((1.0, ""), (1e3, "k "), (1e6, "M "), (1e9, "G "))


def scale(unit: str, size: float, least: float = 1) -> tuple[float, str]:
    """Return what a figure of about this size is divided by, and its unit then.

    A unit is taken where it gives at least so much.
    """
    steps: Steps = TIMES if unit == "ns" else ((1.0, unit),)
    if unit.endswith("/s"):
        steps = tuple((factor, prefix + unit) for factor, prefix in RATES)
    fitting = [step for step in steps if step[0] * least <= size]
    return fitting[-1] if fitting else steps[0]


def suited(figures: Iterable[Figure]) -> tuple[float, str]:
    """Return the same for figures of one unit that are read together."""
    figures = list(figures)
    first = figures[0]
    if first.more_is_better:
        return scale(first.unit, max(figure.numbers[0] for figure in figures))
    middle = median(figure.numbers[0] for figure in figures)
    return scale(first.unit, middle, LEAST)


def number(value: float) -> str:
    """Write about three significant digits, no exponent; small counts as they are."""
    return f"{value:.0f}" if value == int(value) and value < 1_000 else digits(value)


def digits(value: float) -> str:
    """Write about three significant digits, no exponent."""
    decimals = next(
        (at for at, least in enumerate((100, 10, 0.1)) if value >= least), 3
    )
    return f"{value:,.{decimals}f}"


def text(figure: Figure | None, factor: float) -> str:
    """Write a figure: one number, or p50 and p99."""
    if figure is None:
        return "-"
    write = number if factor == 1 else digits
    return " / ".join(write(value / factor) for value in figure.numbers)


def ratios(values: Iterable[float]) -> str:
    """Write how many times better: one number, or those of p50 and p99."""
    return " / ".join(map(digits, values)) or "-"

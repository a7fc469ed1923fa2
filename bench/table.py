"""Renders the lines of a run as one table."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from bench.duel import Figures, Line
from bench.peer import Peer

ABSENT = "ai-dynamo-runtime is not installed: no peer beside the figures."
HEAD = "A ratio above 1 means that kvindex is better; the sides took turns."


def render(lines: Sequence[Line], peer: Peer | None, machine: str) -> str:
    """Return the whole table."""
    name = f"{peer.name}'s RadixTree" if peer else "no peer"
    cells = [("", "kvindex", name, "ratio"), *map(row, lines)]
    head, *rows = aligned(cells)
    out = [machine, HEAD if peer else ABSENT, "", head]
    pairs = zip(lines, rows, strict=True)
    for section, members in groupby(pairs, key=lambda pair: pair[0].section):
        out += ["", section.title, *(text for _, text in members)]
    return "\n".join([*out, "", verdict(lines)] if peer else out)


def row(line: Line) -> tuple[str, str, str, str]:
    """Return the cells of one line."""
    ours, peer, ratios = map(join, (line.ours, line.peer, line.ratios()))
    return f"  {line.label}", ours, peer, ratios


def join(figures: Figures) -> str:
    """Write one figure, or p50 and p99."""
    return " / ".join(map(number, figures)) or "-"


def number(value: float) -> str:
    """Write three significant digits, no exponent."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Pad the first column to the right and the others to the left."""
    rows = list(rows)
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    out = []
    for label, *cells in rows:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, others, strict=True)]
        out.append("  ".join([f"{label:<{first}}", *padded]).rstrip())
    return out


def verdict(lines: Sequence[Line]) -> str:
    """Say on how many lines kvindex is ahead, and on which it is not."""
    compared = [line for line in lines if line.ratios()]
    behind = [line for line in compared if min(line.ratios()) <= 1]
    ahead = len(compared) - len(behind)
    out = [f"kvindex is ahead on {ahead} of {len(compared)} lines."]
    out += [f"  not ahead: {line.section.title}: {line.label}" for line in behind]
    return "\n".join(out)

"""Plots of a replay, and one page with all of them. Needs matplotlib."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

import numpy as np

from kvindex.replay.table import HEADS, about, cells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from kvindex.replay.fleet import Fleet
    from kvindex.replay.result import Result
    from kvindex.replay.trace import Trace

TIERS = (("device", "#1b6ca8"), ("host", "#6fb1d6"), ("disk", "#c9dfec"))
LINES = (
    "#1b6ca8",
    "#d1495b",
    "#2e8b57",
    "#e0912f",
    "#6d4c9f",
    "#17868a",
    "#8a8a8a",
    "#b08968",
    "#444444",
)
DASHES = ("-", "--", ":", "-.")
GRID = {"color": "#dddddd", "linewidth": 0.8}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem;
       padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
img { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
"""


def write(folder: Path, trace: Trace, fleet: Fleet, results: Sequence[Result]) -> Path:
    """Write a plot for each question and a page; return the page's path.

    Raises:
        ImportError: Without matplotlib.
        OSError: If the folder cannot be written.
    """
    figures = [drawn(draw, results) for _, _, draw in PLOTS]
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for (name, title, _), figure in zip(PLOTS, figures, strict=True):
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=150)
        data = base64.b64encode(path.read_bytes()).decode()
        sections.append(
            f"<h2>{html.escape(title)}</h2>"
            f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'
        )
    page = folder / "index.html"
    page.write_text(
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<title>kvindex replay: {html.escape(trace.name)}</title>"
        f"<style>{STYLE}</style><h1>Replay of {html.escape(trace.name)}</h1>"
        f"<p>{html.escape(about(trace, fleet))}</p>{table(results)}"
        f"{''.join(sections)}</html>\n",
        encoding="utf-8",
    )
    return page


def table(results: Sequence[Result]) -> str:
    """Return the table as HTML."""
    rows = [cells(result.summary()) for result in results]
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in HEADS)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def drawn(draw: Callable[[Any, Sequence[Result]], None], results: Any) -> Figure:  # noqa: ANN401
    """Return a figure with one plot."""
    # Only here is it needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(
        figsize=(9, 1.6 + 0.42 * max(6, len(results))), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    draw(axes, results)
    return figure


def cached(axes: Any, results: Sequence[Result]) -> None:  # noqa: ANN401
    """Draw the cached tokens by tier, a bar for each policy."""
    labels = [result.policy for result in results]
    left = np.zeros(len(results))
    for tier, colour in TIERS:
        shares = 100 * np.array([getattr(r.summary(), tier) for r in results])
        if shares.any():
            axes.barh(labels, shares, left=left, color=colour, label=tier)
        left += shares
    for at, share in enumerate(left):
        axes.text(share, at, f" {share:.1f} %", va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.0, 1.1 * left.max()))
    axes.set_xlabel("prompt tokens that were cached, in per cent")
    axes.grid(axis="x", **GRID)
    # Beside the plot, where no bar or line can be.
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)


def first_token(axes: Any, results: Sequence[Result]) -> None:  # noqa: ANN401
    """Draw how the times to the first token spread."""
    for at, (result, colour) in enumerate(
        zip(results, cycled(len(results)), strict=True)
    ):
        times = np.sort(result.ttft)
        shares = 100 * np.arange(1, len(times) + 1) / max(1, len(times))
        # Where colours come again, lines are broken.
        dashes = DASHES[at // len(LINES) % len(DASHES)]
        axes.plot(
            np.maximum(times, 1e-3),
            shares,
            color=colour,
            linestyle=dashes,
            label=result.policy,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    early = [np.percentile(result.ttft, 1) for result in results if len(result.ttft)]
    axes.set_xlim(left=max(1e-3, 0.8 * min(early, default=1e-3)))
    axes.set_ylim(0, 101)
    axes.set_xlabel("seconds to the first token, or sooner")
    axes.set_ylabel("requests, in per cent")
    axes.grid(**GRID)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)


def balance(axes: Any, results: Sequence[Result]) -> None:  # noqa: ANN401
    """Draw how busy each engine was with prompts."""
    for at, (result, colour) in enumerate(
        zip(results, cycled(len(results)), strict=True)
    ):
        minutes = np.sort(result.busy_seconds) / 60
        axes.plot(minutes, np.full(len(minutes), at), "|", color=colour, ms=16, mew=2)
        axes.plot(minutes.mean(), at, "o", color=colour, ms=7, mec="white")
    axes.set_yticks(range(len(results)), [result.policy for result in results])
    axes.set_ylim(len(results) - 0.5, -0.5)
    # An engine that did nothing is to be seen, too.
    axes.set_xlim(left=-0.01 * axes.get_xlim()[1])
    axes.set_xlabel("minutes of prefill, a stroke for each engine, a dot for the mean")
    axes.grid(axis="x", **GRID)


def cycled(count: int) -> list[str]:
    """Return so many colours."""
    return [LINES[at % len(LINES)] for at in range(count)]


PLOTS: tuple[tuple[str, str, Callable[[Any, Sequence[Result]], None]], ...] = (
    ("cached", "How much was cached, and where", cached),
    ("ttft", "How soon the first token came", first_token),
    ("balance", "How evenly the engines worked", balance),
)

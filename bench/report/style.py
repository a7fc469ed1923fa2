"""Colours, type and canvas of the plots.

A plot is drawn with stand-in colours, which are replaced by CSS variables: so the
same drawing suits a light page, a dark one and paper. One unit of a drawing is one
pixel of the page.
"""

import io
import re
from collections.abc import Iterable

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from bench.board import is_other_way, is_ours
from bench.figures import KVINDEX

INK, MUTED, GRID = "#010101", "#020202", "#030303"
OURS = "#040404"
PAGE = "#0b0b0b"
# One project, one colour: the package is the crate as Python sees it.
PEERS = {
    "dynamo-kv-router": "#050505",
    "ai-dynamo-runtime": "#050505",
    "smg-radix-tree": "#060606",
    "kv-index-chain": "#070707",
    "kv-index-positional": "#080808",
}
OTHERS = ("#090909", "#0a0a0a")

# Variable, stand-in, on a light page, on a dark one.
PALETTE = (
    ("page", PAGE, "#ffffff", "#14171a"),
    ("ink", INK, "#1b1f24", "#e8eaed"),
    ("muted", MUTED, "#5b6470", "#a3abb5"),
    ("grid", GRID, "#e3e6ea", "#33383f"),
    ("ours", OURS, "#0a6ebd", "#52b1ff"),
    ("peer1", "#050505", "#7c8b4f", "#a3b173"),
    ("peer2", "#060606", "#b0793a", "#cf9d62"),
    ("peer3", "#070707", "#8d6b94", "#b795be"),
    ("peer4", "#080808", "#a8605c", "#cf8f8a"),
    ("other1", "#090909", "#4f8a86", "#7fb5b1"),
    ("other2", "#0a0a0a", "#6f7682", "#9aa1ac"),
)
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
TEXT = 12.5
SMALL = 11.5
WIDTH = 880

mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": KVINDEX,
        "font.family": "DejaVu Sans",
        "font.size": TEXT,
        "text.color": INK,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "axes.labelsize": SMALL,
        "axes.titlesize": TEXT,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.axisbelow": True,
        "axes.grid.axis": "x",
        "axes.grid": True,
        "grid.color": GRID,
        "grid.linewidth": 1.0,
        "xtick.color": GRID,
        "ytick.color": GRID,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "xtick.minor.visible": False,
        "lines.solid_capstyle": "round",
    }
)


def colour(subject: str) -> str:
    """Return the stand-in colour of a subject, the same in every plot."""
    if is_ours(subject):
        return OURS
    return PEERS.get(subject, OTHERS[sum(subject.encode()) % len(OTHERS)])


def strength(subject: str) -> float:
    """Return how opaque a subject is drawn: kvindex stands out in its usual way."""
    if is_other_way(subject):
        return 0.55
    return 1.0 if is_ours(subject) else 0.75


def canvas(height: float, width: float = WIDTH) -> Canvas:
    """Return an empty canvas, in pixels."""
    made = Canvas(figsize=(width / 72, height / 72), dpi=72)
    made.patch.set_alpha(0)
    return made


def area(on: Canvas, left: float, top: float, width: float, height: float) -> Axes:
    """Return axes at a place in pixels, counted from the top left."""
    across, down = on.get_size_inches() * 72
    box = (left / across, 1 - (top + height) / down, width / across, height / down)
    axes = on.add_axes(box)
    axes.patch.set_alpha(0)
    axes.tick_params(length=0, which="both", pad=5)
    return axes


def svg(drawn: Canvas, name: str, title: str) -> str:
    """Return a drawing as an element to put into a page."""
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", text)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", FONT, text)
    # Names are made unique, for many drawings share a page.
    text = re.sub(r'(id="|url\(#|href="#)', rf"\1{name}-", text)
    for variable, stand_in, _, _ in PALETTE:
        text = text.replace(stand_in, f"var(--{variable})")
    return text


def variables(dark: bool) -> str:  # noqa: FBT001 - one of two columns
    """Return the CSS variables of one scheme."""
    chosen = ((name, second if dark else first) for name, _, first, second in PALETTE)
    return "".join(f"--{name}:{value};" for name, value in chosen)


def schemes(rules: Iterable[str] = (":root",)) -> str:
    """Return the CSS of both schemes; paper is light."""
    where = ",".join(rules)
    return (
        f"{where}{{{variables(dark=False)}}}"
        "@media screen and (prefers-color-scheme:dark)"
        f"{{{where}{{{variables(dark=True)}}}}}"
    )


def standalone(drawing: str) -> str:
    """Return a drawing as a file of its own."""
    at = drawing.index(">") + 1
    style = f"{schemes(('svg',))}svg{{background:var(--page)}}"
    return f"{drawing[:at]}<style>{style}</style>{drawing[at:]}"

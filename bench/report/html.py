"""The pieces of HTML that the page is put together from."""

from collections.abc import Iterable
from html import escape


def anchor(title: str) -> str:
    """Return the name of a heading in links."""
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())


def heading(title: str) -> str:
    """Return the heading of a chapter."""
    return f'<h2 id="{anchor(title)}">{escape(title)}</h2>'


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

"""`docs/engines.md` speaks of every engine, and of nothing else."""

import re
from pathlib import Path

from kvindex import engines

DOCS = Path(__file__).parents[2] / "docs" / "engines.md"
TESTED = {"captured", "layout only", "no"}


def rows() -> list[list[str]]:
    """Return the cells of the table's rows."""
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_names_every_engine_and_no_other() -> None:
    named = {row[0].strip("`") for row in rows()}
    known = {known for known in engines.names() if not known.startswith("test-")}
    assert named == known


def test_every_row_says_how_it_is_tested() -> None:
    for row in rows():
        assert len(row) == 7
        assert row[-1] in TESTED, row


def test_every_engine_has_tests() -> None:
    sources = "".join(
        path.read_text() for path in Path(__file__).parent.glob("test_*.py")
    )
    for known in {row[0].strip("`") for row in rows()}:
        assert re.search(rf'"{known}"', sources), known

"""Writes the page and its plots from files of figures."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from bench.figures import read
from bench.report.chapters import chapters
from bench.report.page import page
from bench.report.style import standalone


def main() -> None:
    """Read the figures, write the folder."""
    parser = ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("figures", type=Path, nargs="+", help="files of JSON lines")
    given = parser.parse_args()
    records = list(read(given.figures))
    made = list(chapters(records))
    given.out.mkdir(parents=True, exist_ok=True)
    for chapter in made:
        for plot in chapter.plots:
            svg = given.out / f"{plot.name}.svg"
            svg.write_text(standalone(plot.svg), encoding="utf-8")
    index = given.out / "index.html"
    index.write_text(page(records, made), encoding="utf-8")
    sys.stdout.write(f"{index}\n")


if __name__ == "__main__":
    main()

"""The report shows the figures that it is given, in a page that needs nothing else."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from bench.figures import About, Figure, Record, Writer, spread
from bench.report.book import Book, beside_a_writer, standing
from bench.report.chapters import chapters
from bench.report.page import page
from bench.report.plots import hill
from bench.report.style import standalone
from bench.sections import PARTS, THREADS, TOKENS, Section

SUBJECTS = {"kvindex": 1, "kvindex-copies": 2, "quick": 3, "slow": 9}
WRONG = {"kvindex": 0, "kvindex-copies": 0, "quick": 0, "slow": 17}


def line(subject: str, cell: str, unit: str, **given: Any) -> Figure:  # noqa: ANN401
    place = {"bench": "peers", "workload": "mixed", "claims": 1_000}
    fields = {**place, "subject": subject, "cell": cell, "unit": unit, **given}
    return msgspec.convert(fields, Figure)


def times(scale: int) -> dict[str, Any]:
    return spread([scale * time for time in range(100, 400)])


def in_rust() -> list[Record]:
    """Invented lines of the bench in Rust."""
    made: list[Record] = [About(bench="peers", about={"command": "run the peers"})]
    for subject, factor in SUBJECTS.items():
        made += [
            line(subject, "store", "blocks/s", value=9e6 / factor),
            line(subject, "bytes_per_claim", "bytes", value=9.0 * factor),
            line(subject, "match_64x78", "ns", **times(factor)),
            line(subject, "busy_match_64x78", "ns", **times(2 * factor)),
            line(subject, "wrong", "wrong", value=WRONG[subject], of=4_120),
        ]
        made += [
            line(subject, "match", "ns", workload="growth-depth", x=x, **times(factor))
            for x in (1, 64, 4_096)
        ]
    made += [
        line("machine", "clock", "ns", workload="machine", claims=0, **times(1)),
        line("machine", "dependent_load", "ns", workload="machine", x=2**24, value=90),
        line("slow", "store", "", note="no <room>"),
    ]
    return made


def in_python() -> list[Record]:
    """Invented lines of the bench in Python."""

    def given(section: Section, cell: str, subject: str, **figures: Any) -> Figure:  # noqa: ANN401
        fields = {"bench": "python", "section": section.title, "unit": section.unit}
        named = {"cell": cell, "subject": subject}
        return msgspec.convert({**fields, **named, **figures}, Figure)

    made: list[Record] = [About(bench="python", about={"command": "run pytest"})]
    for subject, factor in (("kvindex", 1), ("ai-dynamo-runtime", 8)):
        made += [
            given(TOKENS, "   64 blocks,  64 holders", subject, **times(10 * factor)),
            given(THREADS, "2 threads", subject, value=5e5 / factor),
        ]
    made.append(given(PARTS, "1 holder: match", "kvindex", value=900.0))
    return made


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return in_rust() + in_python()


@pytest.fixture(scope="module")
def html(records: list[Record]) -> str:
    return page(records, list(chapters(records)))


def test_every_plot_says_what_it_shows_and_which_command_made_it(
    records: list[Record],
) -> None:
    plots = [plot for chapter in chapters(records) for plot in chapter.plots]
    names = {plot.name for plot in plots}
    assert len(names) == len(plots)
    assert names >= {"match", "busy", "store", "bytes-per-claim", "growth-depth"}
    assert names >= {"python-tokens", "python-threads", "python-parts"}
    for plot in plots:
        assert plot.says
        assert plot.command in {"run the peers", "run pytest"}


def test_every_drawing_is_sound_and_has_both_schemes(records: list[Record]) -> None:
    for chapter in chapters(records):
        for plot in chapter.plots:
            alone = standalone(plot.svg)
            ET.fromstring(alone)  # noqa: S314 - drawn above
            assert "prefers-color-scheme:dark" in alone
            used = set(re.findall(r"var\((--\w+)\)", alone))
            assert used <= set(re.findall(r"(--\w+):", alone))
            assert not re.search(r"#0[0-9a-b]0[0-9a-b]0[0-9a-b]\b", alone)


def test_the_page_needs_neither_network_nor_scripts(html: str) -> None:
    assert "<script" not in html
    assert not re.search(r'(src|href)="(?!#)', html)
    assert "url(http" not in html
    assert "@import" not in html
    assert "prefers-color-scheme: dark" in html


def test_names_in_the_page_are_unique(html: str) -> None:
    names = re.findall(r'\bid="([^"]+)"', html)
    assert len(names) == len(set(names))
    assert set(re.findall(r'"#([^"]+)"|url\(#([^)]+)\)', html)) <= {
        pair for name in names for pair in ((name, ""), ("", name))
    }


def test_the_page_shows_figures_ratios_wrong_answers_and_notes(html: str) -> None:
    text = re.sub(r"<[^>]+>", " ", html)
    text = " ".join(text.split())
    assert "9.00 M blocks/s 3.00 M blocks/s 3.00 x quick" in text
    assert "mixed, 1,000 claims 4,120 0 0 0 17" in text
    assert "a load that waits for the one before in 16 MiB 90 ns" in text
    assert "slow, mixed, 1,000 claims, store: no &lt;room&gt;" in text


def test_a_page_without_peers_says_so() -> None:
    records = [record for record in in_rust() if not is_peer(record)]
    assert "No peer was measured" in page(records, list(chapters(records)))


def is_peer(record: Record) -> bool:
    return isinstance(record, Figure) and not record.subject.startswith("kvindex")


def test_where_kvindex_is_behind_is_said() -> None:
    ahead = [line("kvindex", "a", "ns", value=1), line("quick", "a", "ns", value=3)]
    behind = [line("kvindex", "b", "ns", value=4), line("quick", "b", "ns", value=2)]
    (rows,) = Book(ahead + behind).rows.values()
    expected = (
        "kvindex is first in 1 of 2; it is furthest behind, by 2.00 times, in: b."
    )
    assert standing(rows) == expected


def test_p99_without_and_with_a_writer_are_paired() -> None:
    (_, rows) = Book(in_rust()).main()
    (panel,) = beside_a_writer(rows)
    assert [entry.label for entry in panel.entries][:2] == [
        "kvindex",
        "kvindex (copies)",
    ]
    assert panel.entries[0].words == "397 to 794 ns, 2.00 x"


def test_a_hill_keeps_its_shape_whatever_the_grain_of_its_histogram() -> None:
    coarse, fine = (((1_000.0, 1), (1_250.0, 8), (1_500.0, 4)), ((1_000.0, 5),))
    across, heights = hill(coarse)
    assert max(heights) == 1
    assert heights[0] == heights[-1] == 0
    assert 1_000 < across[heights.index(1)] < 1_250
    across, heights = hill(fine)
    assert 900 < across[heights.index(1)] < 1_050


def test_the_folder_is_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "peers.jsonl")
    for record in in_rust():
        writer.write(record)
    out = tmp_path / "report"
    command = [
        sys.executable,
        "-m",
        "bench.report",
        "--out",
        str(out),
        str(writer.path),
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert (
        (out / "index.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    )
    assert (out / "match.svg").read_text(encoding="utf-8").startswith("<svg")

"""The benchmarks' figures are written, read and set side by side as they are."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench import instructions
from bench.board import board
from bench.figures import About, Figure, Record, Writer, read, spread
from bench.table import render
from bench.units import number, scale


def figure(
    subject: str, *, cell: str = "store", unit: str = "ns", **given: object
) -> Figure:
    place = {"bench": "peers", "workload": "mixed", "cell": cell, "unit": unit}
    fields = {**place, "subject": subject, **(given or {"value": 1.0})}
    return msgspec.convert(fields, Figure)


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    records: list[Record] = [
        About(bench="python", about={"machine": "m", "subjects": {"kvindex": "1"}}),
        figure("kvindex", p50=1.5, p99=2.5, x=4.0),
        Figure(bench="python", cell="c", subject="s", unit="ns", **spread([1, 2, 3])),
    ]
    writer = Writer(tmp_path / "new" / "figures.jsonl")
    for record in records:
        writer.write(record)
    assert list(read([writer.path])) == records


def test_fields_that_are_not_known_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    path.write_text('{"bench":"b","cell":"c","subject":"s","colour":1}\n')
    assert list(read([path])) == [Figure(bench="b", cell="c", subject="s")]


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    path.write_text('{"bench":"b","cell":"c","subject":"s"}\n{"bench":')
    with pytest.raises(ValueError, match=r"figures\.jsonl, line 2"):
        list(read([path]))


def test_percentiles_are_those_of_the_ordered_times() -> None:
    found = spread([*range(2_000, 0, -1)])
    assert (found["p50"], found["p99"], found["p999"]) == (1_001, 1_981, 1_999)


def test_few_times_say_nothing_about_one_in_a_thousand() -> None:
    assert spread([5] * 999)["p999"] is None


def test_a_histogram_counts_every_time_below_its_bound() -> None:
    times = [1, 90, 100, 100, 5_000, 77_777]
    found = spread(times)["histogram"]
    assert sum(count for _, count in found) == len(times)
    for (bound, count), below in zip(found, [1, 90, 100, 5_000, 77_777], strict=True):
        assert below <= bound < below * 1.05
        assert count == times.count(below)


def test_peers_stand_beside_kvindex_and_the_best_comes_first() -> None:
    records = [
        figure("slow", unit="blocks/s", value=1.0),
        figure("kvindex", unit="blocks/s", value=6.0),
        figure("quick", unit="blocks/s", value=3.0),
    ]
    ((row,),) = board(records).values()
    assert [peer.subject for peer in row.peers] == ["quick", "slow"]
    assert row.ratios == (2.0,)


def test_ratios_of_times_are_above_1_where_kvindex_takes_less() -> None:
    records = [figure("kvindex", p50=2, p99=8), figure("peer", p50=6, p99=4)]
    ((row,),) = board(records).values()
    assert row.ratios == (3.0, 0.5)


def test_other_ways_of_use_are_lines_of_kvindex_and_no_peers() -> None:
    records = [figure("kvindex"), figure("kvindex-copies"), figure("peer")]
    ((plain, copies),) = board(records).values()
    assert (plain.name, copies.name) == ("store", "store (copies)")
    assert plain.peers == copies.peers


def test_a_peer_that_answers_wrongly_is_not_compared_with() -> None:
    records = [
        figure("kvindex", value=4),
        figure("quick", value=1),
        figure("right", value=8),
        figure("quick", cell="wrong", unit="wrong", value=3),
        figure("right", cell="wrong", unit="wrong", value=0),
    ]
    ((row, _),) = board(records).values()
    assert [peer.subject for peer in row.peers] == ["quick", "right"]
    assert row.best is row.peers[1]
    assert row.ratios == (2.0,)


def test_a_note_is_no_figure() -> None:
    records = [figure("kvindex"), Figure(bench="peers", cell="store", subject="peer")]
    ((row,),) = board(records).values()
    assert row.best is None


def test_rounds_of_a_cell_give_their_median_and_one_histogram() -> None:
    records = [
        figure("kvindex", p50=20, p99=50, histogram=[[20, 5]]),
        figure("kvindex", p50=10, p99=90, histogram=[[10, 1], [20, 2]]),
        figure("kvindex", p50=30, p99=60, histogram=[[30, 1]]),
    ]
    ((row,),) = board(records).values()
    assert row.ours is not None
    assert [*row.ours.numbers] == [20, 60]
    assert [*row.ours.histogram] == [(10, 1), (20, 7), (30, 1)]


@pytest.mark.parametrize(
    ("unit", "size", "expected"),
    [
        ("ns", 0.5, (1.0, "ns")),
        ("ns", 999.0, (1.0, "ns")),
        ("ns", 1e3, (1e3, "us")),
        ("blocks/s", 4e6, (1e6, "M blocks/s")),
        ("bytes", 4096.0, (1.0, "bytes")),
        ("wrong", 4096.0, (1.0, "wrong")),
    ],
)
def test_a_unit_suits_the_size(
    unit: str, size: float, expected: tuple[float, str]
) -> None:
    assert scale(unit, size) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (7, "7"), (0.0594, "0.059"), (4.567, "4.57"), (12_345.6, "12,346")],
)
def test_numbers_have_about_three_digits(value: float, expected: str) -> None:
    assert number(value) == expected


def test_the_table_has_ratios_and_a_verdict() -> None:
    records: list[Record] = [
        About(bench="peers", about={"machine": "a machine"}),
        figure("kvindex", cell="match", p50=200, p99=400),
        figure("quick", cell="match", p50=300, p99=1_000),
        figure("kvindex", cell="remove", value=5),
        figure("quick", cell="remove", value=4),
        figure("kvindex", cell="wrong", unit="wrong", value=0, of=4_120),
        figure("slow", cell="wrong", unit="wrong", value=3_005, of=4_120),
    ]
    lines = [" ".join(line.split()) for line in render(records).splitlines()]
    assert "peers: a machine" in lines
    assert "match 200 / 400 300 / 1,000 1.50 / 2.50 ns quick" in lines
    assert "wrong answers 0 - - of 4,120 slow 3,005" in lines
    assert lines[-2:] == [
        "kvindex is ahead on 1 of 2 lines.",
        "not ahead: mixed: remove",
    ]


def test_what_the_machine_takes_stands_in_no_column_of_a_subject() -> None:
    records = [
        figure("kvindex", value=5),
        figure("machine", workload="machine", cell="chain_key", value=4.5),
    ]
    (text,) = (line for line in render(records).splitlines() if "chain key" in line)
    assert text.split() == [
        "a",
        "chain",
        "key,",
        "each",
        "waits",
        "for",
        "the",
        "one",
        "before",
        "4.50",
        "ns",
    ]


def test_the_table_is_rendered_from_files(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "figures.jsonl")
    writer.write(figure("kvindex", value=3))
    command = [sys.executable, "-m", "bench.table", str(writer.path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "No peer was measured: kvindex stands alone." in done.stdout


def test_counts_are_read_from_dumps_and_shared_among_the_calls(tmp_path: Path) -> None:
    path = tmp_path / "counts.2"
    path.write_text("version: 1\nevents: Ir Dr D1mr\nfn=(1)\n\ntotals: 512 9 256\n")
    counts = [instructions.events(path)] + [{}] * (len(instructions.CELLS) - 1)
    found = list(instructions.figures("all", counts))
    assert [(figure.unit, figure.value) for figure in found] == [
        ("instructions", 512 / instructions.CALLS),
        ("first-cache misses", 256 / instructions.CALLS),
    ]

"""Traces are read as they are written, and made up as they are asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import kvindex
from kvindex.replay import SHAPES, Request, Trace, generate, read

if TYPE_CHECKING:
    from pathlib import Path

LINE = {
    "timestamp": 1500,
    "input_length": 1100,
    "output_length": 7,
    "hash_ids": [2**60, 9, 8],
}


def written(path: Path, *lines: dict[str, Any] | str) -> Path:
    """Write lines to a file."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


def test_a_line_is_a_request_and_a_partial_block_is_none(tmp_path: Path) -> None:
    later = {**LINE, "timestamp": 0, "hash_ids": [9, 2**60], "input_length": 1024}
    trace = read(written(tmp_path / "day.jsonl", LINE, later))
    assert trace.name == "day"
    # In the order of arrival; identifiers become small numbers.
    assert trace.requests == (
        Request(0.0, 1024, 7, (1, 0)),
        Request(1.5, 1100, 7, (0, 1)),
    )
    assert trace.input_tokens == 2124


def test_identifiers_of_full_blocks_alone_will_do(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", {**LINE, "hash_ids": [1, 2]}, "", LINE)
    assert [len(request.blocks) for request in read(path).requests] == [2, 2]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: Expecting property name"),
        ("[1]", "line 2: expected an object"),
        ({**LINE, "timestamp": None}, "timestamp is None"),
        ({**LINE, "timestamp": -1}, "timestamp is -1"),
        ({**LINE, "input_length": 1.5}, "input_length is 1.5"),
        ({**LINE, "output_length": -3}, "output_length is -3"),
        ({**LINE, "hash_ids": [1, 2, -3]}, "hash_ids is not a list"),
        ({**LINE, "hash_ids": [1, 2, 1]}, "hash_ids is not a list of different"),
        ({**LINE, "hash_ids": None}, "hash_ids is not a list"),
        ({**LINE, "hash_ids": [1]}, "1 hash_ids for 1100 tokens"),
        ({**LINE, "hash_ids": [1, 2, 3, 4]}, "4 hash_ids for 1100 tokens"),
    ],
)
def test_a_line_that_is_no_request_is_named_with_its_fault(
    tmp_path: Path, line: dict[str, Any] | str, told: str
) -> None:
    with pytest.raises(kvindex.ConfigError, match=f"t.jsonl, line 2: .*{told[8:]}"):
        read(written(tmp_path / "t.jsonl", LINE, line))


def test_a_faster_trace_has_the_same_requests_sooner() -> None:
    trace = Trace("t", (Request(2.0, 5, 6, ()), Request(8.0, 5, 6, ())))
    fast = trace.faster(4)
    assert [request.arrival for request in fast.requests] == [0.5, 2.0]
    assert (trace.seconds, fast.seconds, trace.first(1).seconds) == (6.0, 1.5, 0.0)
    for speed in (0, -1, float("nan")):
        with pytest.raises(kvindex.ConfigError, match="speed"):
            trace.faster(speed)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_made_up_trace_is_that_of_its_seed(shape: str) -> None:
    trace = generate(shape, requests=300, rate=2.0, seed=1)
    assert trace == generate(shape, requests=300, rate=2.0, seed=1)
    assert trace != generate(shape, requests=300, rate=2.0, seed=2)
    assert len(trace.requests) == 300


@pytest.mark.parametrize("shape", SHAPES)
def test_a_made_up_identifier_means_one_prefix_and_some_are_shared(shape: str) -> None:
    before: dict[int, int | None] = {}
    seen = 0
    trace = generate(shape, requests=300, seed=1)
    for request in trace.requests:
        assert len(request.blocks) == request.input_length // trace.block_tokens
        for at, block in enumerate(request.blocks):
            parent = request.blocks[at - 1] if at else None
            assert before.setdefault(block, parent) == parent
            seen += 1
    assert seen > 1.5 * len(before)


def test_arrivals_come_at_about_the_rate() -> None:
    for rate in (1.0, 10.0):
        trace = generate("rag", requests=1_000, rate=rate, seed=1)
        assert trace.seconds == pytest.approx(1_000 / rate, rel=0.1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shape": "poems"}, "shape is 'poems'"),
        ({"shape": "chat", "requests": 0}, "requests is 0"),
        ({"shape": "chat", "rate": 0.0}, "rate is 0"),
    ],
)
def test_what_cannot_be_made_up_is_refused_by_name(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(kvindex.ConfigError, match=told):
        generate(given.pop("shape"), **given)

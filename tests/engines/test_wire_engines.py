"""Engines whose payloads the core reads: their habits, beside the kind's own.

What vLLM's and SGLang's captured streams mean is in `tests/test_streams.py`.
"""

import pytest

import kvindex
from kvindex import engines
from tests import wire
from tests.helpers import BLOCK, depths, name, split, tokens
from tests.streams import load


@pytest.mark.parametrize("profile", ["auto", "vllm", "sglang", "kvbm", "flexkv"])
def test_they_have_no_decoder(profile: str) -> None:
    assert engines.find(profile).decoder is None


def test_an_unregistered_worker_is_auto() -> None:
    stream = load("vllm", "c1_offload_sd")
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register("registered", profile="auto")
    for message in stream.messages:
        for worker in ("registered", "unregistered"):
            index.apply(message.payload, worker=worker, seq=message.seq)
        one, other = index.workers()
        assert (one.device, one.host) == (other.device, other.host)
    for request in stream.requests:
        found = index.match(request.tokens, workers=["registered", "unregistered"])
        assert found.scores[0] == found.scores[1]


def stored(path: str, above: str = "", medium: str | None = None) -> dict[str, object]:
    """Write one block as KVBM's consolidator does: no medium in dedup mode."""
    parent = name(above) if above else None
    event = wire.stored_map([name(above + path)], tokens(path), parent, BLOCK)
    event.pop("medium")
    return event if medium is None else event | {"medium": medium}


def removed(path: str, medium: str | None = None) -> dict[str, object]:
    event = wire.removed_map([name(path)])
    event.pop("medium")
    return event if medium is None else event | {"medium": medium}


def test_kvbm_in_dedup_mode_is_one_tier() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    index.register("w1", profile="kvbm")
    index.apply(wire.batch([stored("A"), stored("B", "A")], 0), worker="w1")
    index.apply(wire.batch([removed("AB")], 0), worker="w1")
    (row,) = index.match(tokens("AB"))
    assert split(row) == (1, 0, 0, 0)


def test_kvbm_in_passthrough_mode_has_three() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    index.register("w1", profile="kvbm")
    for medium in ("GPU", "CPU_TIER1", "CPU_TIER2"):
        index.apply(wire.batch([stored("A", medium=medium)], 0), worker="w1")
    index.apply(wire.batch([stored("B", "A", "CPU_TIER1")], 0), worker="w1")
    index.apply(wire.batch([stored("C", "AB", "CPU_TIER2")], 0), worker="w1")
    (row,) = index.match(tokens("ABC"))
    assert split(row) == (1, 1, 1, 0)
    # A tier holds a block once, however often it says so.
    index.apply(wire.batch([stored("A", medium="CPU_TIER1")], 0), worker="w1")
    gone = [removed("A", "GPU"), removed("A", "CPU_TIER1")]
    index.apply(wire.batch(gone, 0), worker="w1")
    (row,) = index.match(tokens("ABC"))
    assert split(row) == (0, 1, 2, 0)
    index.apply(wire.batch([wire.cleared_map()], 0), worker="w1")
    assert depths(index, "A") == {}

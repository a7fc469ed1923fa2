"""SGLang's tenants apart: every captured stream, exact by tokens where it was not.

The truth is the engine's resident hashes, joined with prompts by hashes that the
tests compute (`tests/streams/sglang_hash.py`).
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest

import kvindex
from tests import wire
from tests.engines.test_sglang import spaces
from tests.helpers import BLOCK, depths, tokens
from tests.streams import Stream, load, low64, names_of, sglang_hash

WORKER = "engine"
STREAMS = names_of("sglang")


def replayed(stream: Stream) -> kvindex.Indexer:
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register(WORKER, profile="sglang_tenants")
    for message in stream.messages:
        report = index.apply(message.payload, worker=WORKER, seq=message.seq)
        assert (report.status, report.ignored) == ("ok", 0)
    return index


def depth(names: list[int], stream: Stream) -> int:
    (held,) = stream.final.resident.values()
    everywhere = {name for tier in held.values() for name in tier}
    return len(list(takewhile(everywhere.__contains__, map(low64, names))))


@pytest.mark.parametrize("stream_name", STREAMS)
def test_a_prompt_matches_what_prompts_of_its_kind_left(stream_name: str) -> None:
    stream = load("sglang", stream_name)
    index = replayed(stream)
    (rank,) = stream.final.resident
    queries: list[dict[str, Any]] = spaces(stream_name)
    queries += [{"folded": False}] * (len(stream.requests) - len(queries))
    for request, query in zip(stream.requests, queries, strict=True):
        own = [low64(name) for name in request.names]
        by_name = index.match_names(request.names, workers=[(WORKER, rank)])
        assert by_name.depths[0] == depth(own, stream)
        found = index.match(request.tokens, workers=[(WORKER, rank)], **request.options)
        names = own
        if query["folded"] and request.lora_name is None:
            # Tokens say nothing of a tenant: they ask for what has none.
            base = query | {"extra_key": None}
            names = sglang_hash.names(request.tokens, **base)
        assert found.depths[0] == depth(names, stream)


@pytest.mark.parametrize("stream_name", STREAMS)
def test_it_holds_what_the_plain_engine_holds(stream_name: str) -> None:
    stream = load("sglang", stream_name)
    index = replayed(stream)
    (held,) = stream.final.resident.values()
    (state,) = index.workers()
    # One block for each content; tenants share contents with each other at most.
    assert state.device <= len(held["device"])
    plain = kvindex.Indexer(block_size=stream.block_size)
    plain.register(WORKER, profile="sglang")
    for message in stream.messages:
        plain.apply(message.payload, worker=WORKER)
    assert state.device >= plain.workers()[0].device


def stored(
    path: str,
    *,
    above: str = "",
    tenant: str | None = None,
    **fields: Any,  # noqa: ANN401
) -> dict[str, object]:
    """Write a store as SGLang would in the format `dynamo`."""
    whole = sglang_hash.names(
        tokens(above + path), page_size=BLOCK, extra_key=tenant, folded=True
    )
    return wire.stored_map(
        whole[len(above) :],
        tokens(path),
        whole[len(above) - 1] if above else None,
        BLOCK,
        **fields,
    )


@pytest.fixture
def index() -> kvindex.Indexer:
    index = kvindex.Indexer(block_size=BLOCK)
    index.register(WORKER, profile="sglang_tenants")
    return index


def test_what_lies_below_a_tenants_block_is_the_tenants(index: kvindex.Indexer) -> None:
    index.apply(wire.batch([stored("A", tenant="t")]), worker=WORKER)
    index.apply(wire.batch([stored("B", above="A", tenant="t")]), worker=WORKER)
    assert depths(index, "AB") == {}
    hashes = sglang_hash.names(
        tokens("AB"), page_size=BLOCK, extra_key="t", folded=True
    )
    assert list(index.match_names(hashes).depths) == [2]


def test_a_salt_is_no_tenant(index: kvindex.Indexer) -> None:
    for tenant in (None, "t"):
        hashes = sglang_hash.names(
            tokens("AB"),
            page_size=BLOCK,
            cache_salt="s",
            extra_key=tenant,
            folded=True,
        )
        event = wire.stored_map(hashes, tokens("AB"), None, BLOCK, cache_salt="s")
        if tenant is not None:
            index.reset(WORKER)
        index.apply(wire.batch([event]), worker=WORKER)
        expected = {} if tenant else {WORKER: 2}
        assert depths(index, "AB", cache_salt="s") == expected


def test_a_block_below_one_that_is_gone_cannot_be_told(index: kvindex.Indexer) -> None:
    index.apply(
        wire.batch([stored("A"), stored("A", medium="CPU_PINNED")]), worker=WORKER
    )
    gone = wire.removed_map(sglang_hash.names(tokens("A"), page_size=BLOCK))
    index.apply(wire.batch([gone]), worker=WORKER)
    index.apply(wire.batch([stored("B", above="A")]), worker=WORKER)
    assert depths(index, "AB") == {WORKER: 2}
    index.apply(wire.batch([gone | {"medium": "CPU_PINNED"}]), worker=WORKER)
    index.apply(wire.batch([stored("C", above="A")]), worker=WORKER)
    assert index.match(tokens("AC")).to_dict()["depth"] == []


def test_a_clear_and_a_reset_forget_all(index: kvindex.Indexer) -> None:
    child = wire.batch([stored("B", above="A")])
    index.apply(wire.batch([stored("A")]), worker=WORKER)
    index.apply(wire.batch([wire.cleared_map()]), worker=WORKER)
    assert index.apply(child, worker=WORKER).reasons == {"orphan": 1}
    index.reset(WORKER)
    index.apply(wire.batch([stored("A")]), worker=WORKER)
    index.apply(child, worker=WORKER)
    assert depths(index, "AB") == {WORKER: 2}


def test_ranks_are_apart(index: kvindex.Indexer) -> None:
    index.apply(wire.batch([stored("A")], 1), worker=WORKER)
    index.apply(wire.batch([stored("A"), stored("B", above="A")], 2), worker=WORKER)
    index.apply(wire.batch([wire.cleared_map()], 1), worker=WORKER)
    index.apply(wire.batch([stored("C", above="AB")], 2), worker=WORKER)
    assert depths(index, "ABC") == {f"{WORKER}@2": 3}


@pytest.mark.parametrize(
    "event",
    [
        wire.stored_map(["1"], tokens("A"), block_size=BLOCK),
        wire.stored_map([1], [-1] * BLOCK, block_size=BLOCK),
        wire.stored_map(5, tokens("A"), block_size=BLOCK),
        wire.stored_map([1], tokens("A")[:1], "parent", block_size=BLOCK),
        wire.stored_map([1, 2], tokens("A"), block_size=BLOCK, lora_name=5),
        {"type": "BlockMoved"},
    ],
    ids=str,
)
def test_a_faulty_event_costs_only_itself(
    index: kvindex.Indexer, event: dict[str, object]
) -> None:
    batch = wire.batch([stored("X", tenant="t"), event, stored("A")])
    report = index.apply(batch, worker=WORKER)
    assert report.stored == 2
    assert report.ignored == sum(report.reasons.values()) > 0
    assert depths(index, "A") == {WORKER: 1}


@pytest.mark.parametrize("payload", [5, "text", b"\x93\xc1", b"", {}], ids=str)
def test_what_is_no_batch_is_a_decode_error(
    index: kvindex.Indexer,
    payload: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(kvindex.DecodeError):
        index.apply(payload, worker=WORKER)

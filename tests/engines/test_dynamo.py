"""Router events of NVIDIA Dynamo, in and out.

The capture is a dump of Dynamo's own tree, its answers, and its keys of the same
prompts. Where its package is installed it also judges live.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import kvindex
from kvindex import AllBlocksCleared, BlockRemoved, BlockStored
from kvindex.engines.dynamo import holdings
from kvindex.engines.dynamo_writer import RouterEvents
from tests import hashing, wire
from tests.engines import meta
from tests.helpers import BLOCK, depths, name, names, split, tokens
from tests.streams import load

TREE = meta("dynamo/radix_tree.json")
WORKER = "dynamo"


def said(
    data: Any,  # noqa: ANN401
    event_id: int = 0,
    *,
    tier: str = "device",
    rank: int = 0,
    **more: Any,  # noqa: ANN401
) -> dict[str, Any]:
    event = {"event_id": event_id, "data": data, "dp_rank": rank}
    return {"worker_id": 7, "storage_tier": tier, "event": event} | more


def stored(path: str, above: str = "") -> dict[str, Any]:
    whole = above + path
    keys = hashing.local_keys(tokens(whole), block_size=BLOCK)[len(above) :]
    blocks = [
        {"block_hash": name(above + path[: i + 1]), "tokens_hash": key}
        for i, key in enumerate(keys)
    ]
    return {"stored": {"parent_hash": name(above) if above else None, "blocks": blocks}}


def removed(*paths: str) -> dict[str, Any]:
    return {"removed": {"block_hashes": names(*paths)}}


@pytest.fixture
def index() -> kvindex.Indexer:
    index = kvindex.Indexer(block_size=BLOCK)
    index.register(WORKER, profile="dynamo")
    return index


# In.


def test_local_keys_are_dynamos() -> None:
    size = TREE["block_size"]
    for prompt in TREE["prompts"]:
        keys = kvindex.block_keys(
            TREE["docs"][prompt["doc"]],
            block_size=size,
            lora_name=prompt.get("lora_name"),
            cache_salt=prompt.get("cache_namespace"),
        )
        assert list(keys) == prompt["keys"]


@pytest.mark.parametrize("form", ["dicts", "texts"])
def test_a_dump_of_dynamos_tree_gives_its_answers(form: str) -> None:
    dump = TREE["dump"] if form == "dicts" else list(map(json.dumps, TREE["dump"]))
    index = kvindex.Indexer(block_size=TREE["block_size"])
    for (worker, rank), events in holdings(dump).items():
        report = index.apply(events, worker=str(worker), dp_rank=rank)
        assert report.ignored == 0
    for prompt in TREE["prompts"]:
        expected = {(str(w), rank): depth for w, rank, depth in prompt["scores"]}
        by_keys = index.match_keys(prompt["keys"])
        by_tokens = index.match(
            TREE["docs"][prompt["doc"]],
            lora_name=prompt.get("lora_name"),
            cache_salt=prompt.get("cache_namespace"),
        )
        for found in (by_keys, by_tokens):
            assert {(row.worker, row.dp_rank): row.depth for row in found} == expected


def test_storage_tiers_are_tiers(index: kvindex.Indexer) -> None:
    tiers = ("device", "host_pinned", "disk", "external")
    path = "ABCD"
    events = [
        said(stored(letter, path[:at]), at, tier=tier)
        for at, (letter, tier) in enumerate(zip(path, tiers, strict=True))
    ]
    index.apply(json.dumps(events), worker=WORKER)
    (row,) = index.match(tokens(path))
    assert split(row) == (1, 1, 1, 1)
    # A tier is a set, whatever was said twice.
    index.apply([said(stored("B", "A"), 4, tier="host_pinned")], worker=WORKER)
    index.apply(said(removed("AB"), 5, tier="host_pinned"), worker=WORKER)
    assert depths(index, path) == {WORKER: 1}
    index.apply(said("cleared", 6), worker=WORKER)
    assert len(index) == 0


def test_events_have_ranks_and_numbers(index: kvindex.Indexer) -> None:
    index.apply([said(stored("A"), 1), said(stored("AB"), 1, rank=3)], worker=WORKER)
    assert depths(index, "AB") == {WORKER: 1, f"{WORKER}@3": 2}
    report = index.apply([said(removed("A"), 4)], worker=WORKER)
    assert report.gap == (2, 3)
    again = index.apply([said(stored("A"), 1)], worker=WORKER)
    assert (again.status, again.stored) == ("duplicate", 0)
    cleared = index.apply([said({"cleared": None}, 2, rank=3)], worker=WORKER)
    assert (cleared.cleared, cleared.dp_rank) == (1, 3)
    assert len(index) == 0


def test_what_survives_its_engine_is_left_out(index: kvindex.Indexer) -> None:
    events = [
        said(stored("A"), 1, residency_domain="cache_owner"),
        said(stored("A"), 2, tier="tape"),
        said(stored("B"), 3, residency_domain="worker"),
    ]
    report = index.apply(events, worker=WORKER)
    assert (report.stored, report.reasons) == (1, {"medium": 2})


def test_batches_of_an_engine_are_read_too(index: kvindex.Indexer) -> None:
    event = wire.stored_map(
        names("A", "AB"),
        tokens("AB"),
        block_size=BLOCK,
        block_mm_infos=[None, {"mm_objects": [{"mm_hash": 5, "offsets": [[0, 2]]}]}],
    )
    index.apply(wire.batch([event], 2), worker=WORKER)
    image = f"{5:016x}".ljust(64, "0")
    assert depths(index, "AB") == {f"{WORKER}@2": 1}
    assert depths(index, "AB", mm=[(image, BLOCK, 2)]) == {f"{WORKER}@2": 2}


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"worker_id": 7, "storage_tier": "device"},
        said(5, 1),
        said({"stored": {"blocks": [{"block_hash": 1}]}}, 1),
        said({"moved": {}}, 1),
        said({"removed": {"block_hashes": 1}}, 1),
        said({"removed": {"block_hashes": ["1"]}}, 1),
    ],
    ids=str,
)
def test_a_faulty_event_costs_only_itself(
    index: kvindex.Indexer, event: dict[str, Any]
) -> None:
    event = {"worker_id": 7} | event
    report = index.apply([said(stored("A"), 0), event], worker=WORKER)
    assert (report.stored, report.reasons) == (1, {"malformed": 1})
    if "event" in event:
        after = index.apply([said(stored("B", "A"), 2)], worker=WORKER)
        assert after.status == "ok"


@pytest.mark.parametrize(
    "payload",
    [
        [said("cleared"), said("cleared") | {"worker_id": 8}],
        [said("cleared"), said("cleared") | {"worker_id": []}],
        "no JSON",
        [5],
        b"\x81",
    ],
    ids=str,
)
def test_what_is_not_one_workers_events_is_a_decode_error(
    index: kvindex.Indexer,
    payload: Any,  # noqa: ANN401
) -> None:
    index.apply([said(stored("A"))], worker=WORKER)
    with pytest.raises(kvindex.DecodeError):
        index.apply(payload, worker=WORKER)
    assert depths(index, "A") == {WORKER: 1}


@pytest.mark.parametrize("dump", [[{"worker_id": -1}], [5], ["no JSON"]], ids=str)
def test_what_is_no_dump_is_a_decode_error(dump: list[Any]) -> None:
    with pytest.raises(kvindex.DecodeError):
        holdings(dump)


# Out.


def test_what_is_written_means_what_was_read() -> None:
    """Every captured stream of maps, against the index that read it itself."""
    for family, stream_name in [
        ("vllm", "c1_offload_sd"),
        ("vllm", "e_lora_salt_mm"),
        ("vllm", "c4_tiering_fs_local"),
        ("sglang", "gpu_ps16"),
        ("sglang", "hicache_write_back"),
    ]:
        stream = load(family, stream_name)
        read = kvindex.Indexer(block_size=stream.block_size)
        read.register("w", profile=family, clears=("device", "host", "disk"))
        fed = kvindex.Indexer(block_size=stream.block_size)
        fed.register("w", profile="dynamo")
        writer = RouterEvents(7, block_size=stream.block_size)
        for message in stream.messages:
            read.apply(message.payload, worker="w")
            events = json.loads(json.dumps(writer.write(message.payload)))
            report = fed.apply(events, worker="w")
            assert not report.ignored, stream_name
            assert report.status == "ok"
        assert writer.left_out == 0
        held = [(row.device, row.host, row.disk) for row in read.workers()]
        assert [(row.device, row.host, row.disk) for row in fed.workers()] == held
        for request in stream.requests:
            options = request.options
            expected = read.match(request.tokens, workers=["w"], **options)
            found = fed.match(request.tokens, workers=["w"], **options)
            assert found == expected, (stream_name, request.label)


def test_a_block_is_said_with_its_first_copy_and_its_last() -> None:
    writer = RouterEvents(7, block_size=BLOCK)
    event = BlockStored(names("A", "AB"), tokens("AB"))
    assert len(writer.write([event])) == 1
    longer = BlockStored(names("A", "AB", "ABC"), tokens("ABC"))
    (again,) = writer.write([longer])
    data = again["event"]["data"]["stored"]
    assert data["parent_hash"] == name("AB")
    assert [block["block_hash"] for block in data["blocks"]] == names("ABC")
    gone = BlockRemoved(names("ABC", "AB", "A"))
    (first,) = writer.write([gone])
    assert first["event"]["data"] == removed("ABC")
    (second,) = writer.write([gone])
    assert second["event"]["data"] == removed("AB", "A")
    assert writer.write([gone]) == []
    assert second["event"]["event_id"] == 4
    # What lies between two new blocks is not said again.
    writer.write([event, BlockRemoved(names("A"))])
    said_again = writer.write([longer])
    parents = [each["event"]["data"]["stored"]["parent_hash"] for each in said_again]
    assert parents == [None, name("AB")]


def test_a_block_has_its_parents_namespace() -> None:
    writer, index = RouterEvents(7, block_size=BLOCK), kvindex.Indexer(block_size=BLOCK)
    index.register(WORKER, profile="dynamo")
    first = BlockStored(names("A"), tokens("A"), lora_name="adapter", cache_salt="s")
    second = BlockStored(names("AB"), tokens("B"), name("A"))
    index.apply(writer.write([first, second]), worker=WORKER)
    assert depths(index, "AB") == {}
    space = {"lora_name": "adapter", "cache_salt": "s"}
    assert depths(index, "AB", **space) == {WORKER: 2}


def test_names_without_tokens_are_said_where_they_are_held() -> None:
    writer = RouterEvents(7, block_size=BLOCK)
    writer.write([BlockStored(names("A"), tokens("A"))])
    on_host = BlockStored(names("A"), [], medium="CPU")
    (event,) = writer.write([on_host])
    assert event["storage_tier"] == "host_pinned"
    key = hashing.local_keys(tokens("A"), block_size=BLOCK)[0]
    (block,) = event["event"]["data"]["stored"]["blocks"]
    assert block == {"block_hash": name("A"), "tokens_hash": key, "mm_extra_info": None}
    # An unknown medium takes it from everywhere.
    both = writer.write([BlockRemoved(names("A"), "tape")])
    assert {event["storage_tier"] for event in both} == {"device", "host_pinned"}
    assert writer.write([on_host]) == []
    assert writer.left_out == 1


@pytest.mark.parametrize(
    "event",
    [
        BlockStored([1], tokens("A"), medium="tape"),
        BlockStored([1], tokens("AB"), block_size=2 * BLOCK),
        BlockStored([1, 2], tokens("A")),
        BlockStored([1], wire.pairs([*tokens("A"), 5])),
        BlockStored([1], tokens("A"), group_idx=1),
        BlockStored([1], tokens("A"), kv_cache_spec_kind="mamba"),
    ],
    ids=str,
)
def test_what_a_router_cannot_know_is_left_out(event: BlockStored) -> None:
    writer = RouterEvents(7, block_size=BLOCK)
    assert writer.write([event]) == []
    assert writer.left_out == len(list(event.block_hashes))  # type: ignore[arg-type]
    writer.write([BlockStored([1], tokens("A"))])
    assert writer.write([BlockRemoved([1], group_idx=1)]) == []


def test_ranks_are_apart_and_numbered_apart() -> None:
    writer = RouterEvents(7, block_size=BLOCK)
    batch = wire.batch([wire.stored_map(names("A"), tokens("A"))], 3)
    (event,) = writer.write(batch, dp_rank=1)
    assert (event["event"]["dp_rank"], event["event"]["event_id"]) == (3, 1)
    (event,) = writer.write([BlockStored(names("A"), tokens("A"))], dp_rank=1)
    assert (event["event"]["dp_rank"], event["event"]["event_id"]) == (1, 1)
    (event,) = writer.write([AllBlocksCleared()], dp_rank=1)
    assert event["event"] == {"event_id": 2, "data": "cleared", "dp_rank": 1}
    (event,) = writer.write([BlockRemoved(names("A"))], dp_rank=3)
    assert event["event"]["data"] == removed("A")
    assert writer.write([BlockRemoved(names("A"))], dp_rank=1) == []


@pytest.mark.parametrize(
    "payload", [b"\xc1", wire.pack({}), wire.batch([wire.cleared_array()])]
)
def test_what_is_no_batch_of_maps_is_a_decode_error(payload: bytes) -> None:
    with pytest.raises(kvindex.DecodeError):
        RouterEvents(7, block_size=BLOCK).write(payload)


def test_an_image_may_be_bytes_or_bare() -> None:
    writer = RouterEvents(7, block_size=BLOCK)
    extra: list[list[Any]] = [[b"digest"], ["adapter", "dynamo-cache-salt:s", "bare"]]
    event = BlockStored(
        names("A", "AB"), tokens("AB"), extra_keys=extra, lora_name="adapter"
    )
    index = kvindex.Indexer(block_size=BLOCK)
    index.apply([event], worker="w1")
    said_blocks = writer.write([event])[0]["event"]["data"]["stored"]["blocks"]
    found = index.match_keys([block["tokens_hash"] for block in said_blocks])
    assert list(found.depths) == [2]


# Both, against Dynamo itself where it is installed.


def test_dynamos_tree_reads_what_is_written() -> None:
    core = pytest.importorskip("dynamo._core")
    tree, index = core.RadixTree(), kvindex.Indexer(block_size=BLOCK)
    writers = {number: RouterEvents(number, block_size=BLOCK) for number in (1, 2)}
    chance = random.Random(1)
    for _ in range(300):
        number = chance.choice([1, 2])
        above = "".join(chance.choices("AB", k=chance.randrange(3)))
        path = "".join(chance.choices("AB", k=chance.randrange(1, 3)))
        event: BlockStored | BlockRemoved = BlockStored(
            names(*(above + path[: i + 1] for i in range(len(path)))),
            tokens(path),
            name(above) if above else None,
        )
        found = index.match_names([name(above)], workers=[str(number)])
        if chance.random() < 0.3:
            event = BlockRemoved(names(above + path))
        elif above and not found.depths[0]:
            # Dynamo refuses a block whose parent it does not know.
            continue
        index.apply([event], worker=str(number))
        for router_event in writers[number].write([event]):
            payload = json.dumps(router_event["event"]).encode()
            tree.apply_event(number, payload)
        keys = hashing.local_keys(
            tokens("".join(chance.choices("AB", k=4))), block_size=BLOCK
        )
        held = {row.worker: row.depth for row in index.match_keys(keys)}
        # Dynamo forgets what lies behind a block that went, until it comes again.
        for (worker, _), depth in tree.find_matches(keys).scores.items():
            assert depth <= held[str(worker)]
    dump = kvindex.Indexer(block_size=BLOCK)
    for (worker, rank), events in holdings(tree.dump_tree_as_events()).items():
        assert dump.apply(events, worker=str(worker), dp_rank=rank).ignored == 0


def test_keys_equal_those_of_dynamo_itself() -> None:
    core = pytest.importorskip("dynamo._core")
    chance = random.Random(2)
    for _ in range(50):
        size = chance.randrange(1, 40)
        prompt = [chance.randrange(2**32) for _ in range(chance.randrange(200))]
        lora = chance.choice([None, "", "adapter"])
        salt = chance.choice([None, "", "tenant"])
        pairs = chance.choice([False, True])
        expected = core.compute_block_hash_for_seq(
            prompt, size, None, lora, pairs, salt
        )
        keys = kvindex.block_keys(
            prompt, block_size=size, lora_name=lora, cache_salt=salt, pairs=pairs
        )
        assert list(keys) == expected

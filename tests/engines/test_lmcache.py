"""LMCache: its server's stream, through vLLM and its own, and its coordinator's events.

The truth of the captures is the server's description: which chunks it held at the
end, and the tokens and parent of every chunk, computed when the capture was made.
"""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import takewhile
from typing import Any

import pytest

import kvindex
from kvindex import BlockStored
from tests import wire
from tests.engines import lines, meta, payloads
from tests.helpers import BLOCK, depths, name, split, tokens

SERVER = meta("lmcache/mp_server_kv_event_batches.meta.json")
COORDINATOR = meta("lmcache/coordinator_events.meta.json")
CHUNKS: dict[str, Any] = SERVER["chunks"]
CHUNK: int = SERVER["chunk_size"]
MP_FRAMES = payloads("lmcache/mp_connector_vllm_frames.jsonl")
BODIES = lines("lmcache/coordinator_events.jsonl")
WORKER = "lmcache"


def path(chunk: str) -> list[str]:
    """Return a chunk and all before it, the first one first."""
    parent = CHUNKS[chunk]["parent"]
    return [*(path(parent) if parent else []), chunk]


def prompt(chunk: str) -> list[int]:
    return [token for one in path(chunk) for token in CHUNKS[one]["tokens"]]


def leading(chunk: str, held: set[str]) -> int:
    return len(list(takewhile(held.__contains__, path(chunk))))


def registered(block_size: int, profile: str = "lmcache") -> kvindex.Indexer:
    index = kvindex.Indexer(block_size=block_size)
    index.register(WORKER, profile=profile)
    return index


# The server's stream, through vLLM.


@pytest.mark.parametrize("block_size", [CHUNK, 4])
def test_the_servers_stream_is_exact(block_size: int) -> None:
    index = registered(block_size)
    for payload in MP_FRAMES[:-1]:
        assert index.apply(payload, worker=WORKER).ignored == 0
    held = set(SERVER["expected_final_cpu_hex"])
    for chunk in CHUNKS:
        (row,) = index.match(prompt(chunk), workers=[WORKER])
        assert row.host == row.depth == leading(chunk, held) * CHUNK // block_size
    assert index.workers()[0].host == len(held) * CHUNK // block_size
    # The last one withdraws all, since the server lost records.
    index.apply(MP_FRAMES[-1], worker=WORKER)
    assert len(index) == 0


def test_a_clear_in_vllms_stream_is_the_gpus() -> None:
    index = registered(CHUNK)
    for payload in MP_FRAMES[:-1]:
        index.apply(payload, worker=WORKER)
    before = index.workers()[0].host
    index.apply(wire.batch([wire.cleared_map()]), worker=WORKER)
    assert index.workers()[0].host == before > 0


def test_the_servers_chunks_are_a_set() -> None:
    index = registered(BLOCK)
    stored = wire.stored_map([name("A")], tokens("A"), medium="CPU")
    removed = wire.removed_map([name("A")], "CPU")
    index.apply(wire.batch([stored, stored, removed]), worker=WORKER)
    assert len(index) == 0


SERVER_BATCHES = [
    b64decode(line["payload"])
    for line in lines("lmcache/mp_server_kv_event_batches.jsonl")
]


@pytest.mark.parametrize("block_size", [CHUNK, 4])
def test_the_servers_own_batches_are_exact(block_size: int) -> None:
    index = registered(block_size)
    for payload in SERVER_BATCHES[:-1]:
        assert index.apply(payload, worker=WORKER).ignored == 0
    held = set(SERVER["expected_final_cpu_hex"])
    for chunk in CHUNKS:
        (row,) = index.match(prompt(chunk), workers=[WORKER])
        assert row.host == row.depth == leading(chunk, held) * CHUNK // block_size
    # The last one says that records were lost.
    report = index.apply(SERVER_BATCHES[-1], worker=WORKER)
    assert (report.removed, len(index)) == (len(held), 0)


def server(*records: object, incarnation: object = 1, **more: object) -> bytes:
    batch = {"incarnation": incarnation, "lost": False, "events": list(records)}
    return wire.pack(batch | more)


def record(kind: str, path: str, **more: object) -> dict[str, object]:
    digest = name(path).to_bytes(8, "big") * 4
    above = name(path[:-1]).to_bytes(8, "big") * 4 if path[:-1] else None
    said: dict[str, object] = {
        "kind": kind,
        "model_name": "model",
        "block_hashes": [digest],
        "parent_block_hash": above,
        "token_ids": tokens(path[-1]) if kind == "stored" else [],
    }
    return said | more


def test_a_server_that_begins_anew_takes_all_back() -> None:
    index = registered(BLOCK)
    both = server(record("stored", "A"), record("stored", "AB"))
    index.apply(both, worker=WORKER)
    index.apply(server(record("stored", "A"), incarnation=2), worker=WORKER)
    assert depths(index, "AB") == {WORKER: 1}
    late = server(record("removed", "AB"), incarnation=2)
    assert index.apply(late, worker=WORKER).ignored == 0
    again = server({"kind": "lost"}, record("stored", "AB"), incarnation=2)
    assert index.apply(again, worker=WORKER).removed == 1
    assert len(index) == 0
    # What was said and not taken back, is: A is announced again.
    index.apply(server(record("stored", "A"), incarnation=2), worker=WORKER)
    assert depths(index, "AB") == {WORKER: 2}
    gone = server(record("removed", "AB"), record("removed", "X"), incarnation=2)
    report = index.apply(gone, worker=WORKER)
    assert (report.removed, report.ignored) == (1, 0)


def test_a_servers_other_models_and_faults_are_counted() -> None:
    index = registered(BLOCK)
    batch = server(
        record("stored", "A"),
        record("stored", "X", model_name="other"),
        record("stored", "Y", block_hashes=5),
        record("stored", "Y", block_hashes=[1 << 40]),
        5,
    )
    report = index.apply(batch, worker=WORKER)
    assert (report.stored, report.reasons) == (1, {"medium": 1, "malformed": 3})
    faulty = server(record("stored", "Z"), incarnation=-1)
    assert index.apply(faulty, worker=WORKER).reasons == {"malformed": 1}
    index.reset(WORKER)
    other = server(record("stored", "X", model_name="other"))
    assert index.apply(other, worker=WORKER).stored == 1


# The coordinator's events.


def test_the_coordinators_events_are_exact_where_names_are_known() -> None:
    index = registered(CHUNK)
    for chunk in CHUNKS:
        taught = [bytes.fromhex(one) for one in path(chunk)]
        index.apply([BlockStored(taught, prompt(chunk))], worker="teacher")
    for body in BODIES:
        report = index.apply(json.dumps(body), worker=WORKER)
        assert report.status == "ok"
        assert set(report.reasons) <= {"medium"}
    held = set(COORDINATOR["expected_final"]["l1/dram"])
    for chunk in CHUNKS:
        (row,) = index.match(prompt(chunk), workers=[WORKER])
        assert row.host == row.depth == leading(chunk, held)
    (state,) = [row for row in index.workers() if row.worker == WORKER]
    assert (state.host, state.disk, state.external) == (len(held), 0, 0)


def test_alone_the_coordinators_events_never_say_too_much() -> None:
    index = registered(CHUNK)
    placed = 0
    for body in BODIES:
        report = index.apply(body, worker=WORKER)
        assert set(report.reasons) <= {
            "medium",
            "unresolved",
            "unknown_block",
            "orphan",
        }
    held = set(COORDINATOR["expected_final"]["l1/dram"])
    for chunk in CHUNKS:
        (row,) = index.match(prompt(chunk), workers=[WORKER])
        assert row.depth <= leading(chunk, held)
        placed += row.depth
    assert placed > 0


def test_shared_chunks_are_left_out_and_counted() -> None:
    index = registered(CHUNK)
    shared = [
        len(batch["entries"])
        for body in BODIES
        for batch in body["batches"]
        if batch["shared"]
    ]
    counted = [index.apply(body, worker=WORKER).reasons for body in BODIES]
    assert sum(reasons.get("medium", 0) for reasons in counted) == sum(shared) > 0


def test_what_is_shared_is_a_pool() -> None:
    index = kvindex.Indexer(block_size=CHUNK)
    index.register_pool("l2", profile="lmcache_shared")
    for chunk in CHUNKS:
        taught = [bytes.fromhex(one) for one in path(chunk)]
        index.apply([BlockStored(taught, prompt(chunk))], worker="teacher")
    for body in BODIES:
        report = index.apply(body, pool="l2")
        assert set(report.reasons) <= {"medium"}
    held = set(COORDINATOR["expected_final"]["l2(any backend)"])
    for chunk in CHUNKS:
        found = index.match(prompt(chunk), workers=["anybody"])
        assert found.pools["l2"] == found[0].shared == leading(chunk, held)
    alone = registered(CHUNK, "lmcache_shared")
    placed = 0
    for body in BODIES:
        alone.apply(body, worker=WORKER)
    for chunk in CHUNKS:
        (row,) = alone.match(prompt(chunk), workers=[WORKER])
        assert row.depth <= leading(chunk, held)
        placed += row.depth
    # Parents are told by the instances' own tiers.
    assert placed > 0


def test_what_is_shared_comes_from_any_instance_and_outlives_it() -> None:
    instance = Instance(registered(BLOCK, "lmcache_shared"))
    fs = {"tier": "l2", "backend": "fs", "shared": True}
    instance.post("store", "A", "AB", instance_id="mp-1")
    instance.post("store", "A", "AB", **fs)
    assert instance.tiers("AB") == (0, 0, 2, 0)
    instance.seq, instance.incarnation = 0, 6
    report = instance.post("delete", "AB", **fs)
    assert (report.status, report.removed) == ("ok", 1)
    assert instance.tiers("AB") == (0, 0, 1, 0)
    instance.seq = 0
    assert instance.post("delete", "A", **fs).status == "duplicate"
    instance.seq = 1
    assert instance.post("delete", "A", **fs, instance_id="mp-1").removed == 1
    # Each instance counts for itself.
    instance.seq = 8
    assert instance.post("store", "A", **fs, instance_id="mp-2").status == "ok"


def key(path: str, rank: int, world: int, group: int, salt: str) -> dict[str, Any]:
    packed = world << 24 | rank << 16 | world << 8 | rank
    digest = name(path).to_bytes(8, "big") * 4
    return {
        "chunk_hash_hex": digest.hex(),
        "model_name": "model",
        "kv_rank": packed,
        "object_group_id": group,
        "cache_salt": salt,
    }


class Instance:
    """One LMCache instance, as its coordinator hears it."""

    def __init__(self, index: kvindex.Indexer) -> None:
        """Post to `index`."""
        self.index = index
        self.seq = 0
        self.incarnation = 5

    def post(self, kind: str, *paths: str, **said: Any) -> kvindex.ApplyReport:  # noqa: ANN401
        """Post one batch of chunks, one part each."""
        self.seq += 1
        rank, world = said.pop("rank", 0), said.pop("world", 1)
        group, salt = said.pop("group", 0), said.pop("salt", "")
        model = said.pop("model", "model")
        entries = []
        for one in paths:
            packed = key(one, rank, world, group, salt) | {"model_name": model}
            text = tokens(one[-1]) if kind == "store" else []
            start = (len(one) - 1) * BLOCK if kind == "store" else -1
            entries.append({"key": packed, "token_ids": text, "token_offset": start})
        batch = {
            "instance_id": "mp-0",
            "incarnation": self.incarnation,
            "seq": self.seq,
            "event_type": kind,
            "tier": "l1",
            "backend": "dram",
            "shared": False,
            "entries": entries,
        }
        return self.index.apply({"batches": [batch | said]}, worker=WORKER)

    def tiers(self, query: str, **options: Any) -> tuple[int, ...]:  # noqa: ANN401
        """Return how many blocks of a query lie on each tier."""
        (row,) = self.index.match(tokens(query), workers=[WORKER], **options)
        return split(row)


@pytest.fixture
def instance() -> Instance:
    return Instance(registered(BLOCK))


def test_a_chunk_counts_when_all_ranks_have_it(instance: Instance) -> None:
    instance.post("store", "A", "AB", rank=0, world=2)
    assert instance.tiers("AB") == (0, 0, 0, 0)
    instance.post("store", "A", rank=1, world=2)
    assert instance.tiers("AB") == (0, 1, 0, 0)
    instance.post("store", "A", "AB", rank=1, world=2)
    assert instance.tiers("AB") == (0, 2, 0, 0)
    assert instance.post("delete", "A", rank=0, world=2).removed == 1
    assert instance.tiers("AB") == (0, 0, 0, 0)
    assert instance.post("delete", "A", rank=1, world=2).removed == 0
    instance.post("store", "A", rank=1, world=2)
    assert instance.tiers("AB") == (0, 0, 0, 0)
    instance.post("store", "A", rank=0, world=2)
    assert instance.tiers("AB") == (0, 2, 0, 0)


def test_a_chunk_counts_when_all_groups_that_were_heard_of_have_it(
    instance: Instance,
) -> None:
    instance.post("store", "A", "AB")
    assert instance.tiers("AB") == (0, 2, 0, 0)
    instance.post("store", "A", group=1)
    assert instance.tiers("AB") == (0, 1, 0, 0)
    instance.post("store", "A", "AB", group=1)
    assert instance.tiers("AB") == (0, 2, 0, 0)
    instance.post("delete", "AB", group=0)
    assert instance.tiers("AB") == (0, 1, 0, 0)


def test_the_second_tier_is_a_disk_or_far_away(instance: Instance) -> None:
    instance.post("store", "A", "AB")
    instance.post("store", "AB", "A", tier="l2", backend="fs")
    instance.post("store", "AB", tier="l2", backend="s3")
    instance.post("delete", "A", "AB")
    assert instance.tiers("AB") == (0, 0, 2, 0)
    # Two backends of one kind: the last one counts.
    instance.post("store", "AB", tier="l2", backend="nvme")
    instance.post("delete", "AB", tier="l2", backend="fs")
    assert instance.tiers("AB") == (0, 0, 2, 0)
    instance.post("delete", "AB", tier="l2", backend="nvme")
    assert instance.tiers("AB") == (0, 0, 1, 1)


def test_only_the_first_tiers_batches_are_one_request(instance: Instance) -> None:
    # Not even there does a chunk follow one that does not end where it begins.
    instance.post("store", "X", tier="l1")
    report = instance.post("store", "X", "AB", tier="l2", backend="fs")
    assert report.reasons == {"unresolved": 1}
    assert instance.post("store", "X", "ABC").reasons == {"unresolved": 1}
    assert depths(instance.index, "XB") == {WORKER: 1}


def test_a_chunk_that_comes_back_has_the_parent_that_it_had(
    instance: Instance,
) -> None:
    instance.post("store", "A", "AB", "ABC")
    instance.post("delete", "AB")
    assert instance.tiers("ABC") == (0, 1, 0, 0)
    instance.post("store", "AB")
    assert instance.tiers("ABC") == (0, 3, 0, 0)


def test_a_new_incarnation_holds_nothing(instance: Instance) -> None:
    instance.post("store", "A", "AB")
    instance.post("store", "A", tier="l2", backend="fs")
    instance.incarnation, instance.seq = 6, 0
    report = instance.post("store", "X")
    assert (report.removed, report.stored, report.status) == (3, 1, "ok")
    assert depths(instance.index, "AB") == {}
    # What is late from the last one changes nothing.
    instance.incarnation, instance.seq = 5, 7
    instance.post("store", "A")
    assert depths(instance.index, "A") == {}
    assert depths(instance.index, "X") == {WORKER: 1}


def test_numbers_that_are_missing_are_a_gap(instance: Instance) -> None:
    instance.post("store", "A")
    instance.seq = 4
    assert instance.post("store", "A", "AB").gap == (2, 4)
    instance.seq = 3
    report = instance.post("delete", "A")
    assert (report.status, report.removed) == ("duplicate", 0)
    assert instance.post("delete", "A").status == "duplicate"
    instance.seq = 5
    assert instance.post("delete", "A").removed == 1


def test_salts_are_apart_though_their_hashes_are_one(instance: Instance) -> None:
    instance.post("store", "A", "AB", salt="one")
    instance.post("store", "A", salt="two")
    assert instance.tiers("AB") == (0, 0, 0, 0)
    assert instance.tiers("AB", cache_salt="one") == (0, 2, 0, 0)
    instance.post("delete", "A", salt="two")
    assert instance.tiers("AB", cache_salt="one") == (0, 2, 0, 0)
    assert instance.tiers("AB", cache_salt="two") == (0, 0, 0, 0)


def test_one_model_is_followed(instance: Instance) -> None:
    instance.post("store", "A")
    assert instance.post("store", "X", model="other").reasons == {"medium": 1}
    assert depths(instance.index, "X") == {}


def test_a_reset_forgets_the_parts(instance: Instance) -> None:
    instance.post("store", "A", rank=0, world=2)
    instance.index.reset(WORKER)
    instance.post("store", "A", rank=1, world=2)
    assert instance.tiers("A") == (0, 0, 0, 0)
    instance.index.clear()
    instance.seq = 0
    assert instance.post("store", "A").stored == 1


@pytest.mark.parametrize(
    "body",
    [
        {"batches": 5},
        {"batches": [5]},
        {"batches": [{"instance_id": "a"}, {"instance_id": "b"}]},
        {"batches": [{"instance_id": {}}]},
        [],
        "no JSON",
        b"\x81",
        5,
    ],
    ids=str,
)
def test_what_is_no_body_is_a_decode_error(body: Any, instance: Instance) -> None:  # noqa: ANN401
    instance.post("store", "A")
    if body == []:
        body = [{}]
    with pytest.raises(kvindex.DecodeError):
        instance.index.apply(body, worker=WORKER)
    assert instance.tiers("A") == (0, 1, 0, 0)


@pytest.mark.parametrize(
    "said",
    [{"seq": -1}, {"incarnation": None}, {"entries": 5}, {"entries": [{"key": {}}]}],
    ids=str,
)
def test_a_faulty_batch_costs_only_itself(
    said: dict[str, Any], instance: Instance
) -> None:
    instance.post("store", "A")
    assert instance.post("store", "X", **said).reasons == {"malformed": 1}
    instance.post("store", "A", "AB")
    assert instance.tiers("AB") == (0, 2, 0, 0)


def test_events_of_another_instance_are_refused(instance: Instance) -> None:
    instance.post("store", "A")
    with pytest.raises(kvindex.DecodeError, match="expected events of one instance"):
        instance.post("store", "X", instance_id="mp-1")

"""Findings: what looks wrong with a source is named, and nothing else is.

Where a captured stream shows a fault its bytes are used; the rest is made.
"""

import threading

import pytest

import kvindex
from kvindex.diagnosis import COMPARED, DUPLICATES, SILENCE, Finding
from kvindex.events import BlockStored
from tests.engines import lines, meta, payloads
from tests.helpers import BLOCK, Scene, name, raw, tokens
from tests.streams import Stream, load, names_of
from tests.wire import stored_map

TRUE = {
    # Offloading that does not describe itself.
    "d1_offload_placeholder": {"sizeless": 66},
    "h_vllm_0.22.1_offload": {"sizeless": 37},
    # Hybrid models.
    "f1_hybrid_full_swa": {"group": 229},
    "f3_hybrid_full_mamba": {"group": 17},
    # A restart that no feed has followed.
    "j_publisher_restart": {"orphan": 7},
}


def found(index: kvindex.Indexer, who: str = "w1", rank: int = 0) -> dict[str, int]:
    """Return what is found of a worker's rank: how often, by kind."""
    return {
        finding.kind: finding.count
        for finding in index.diagnose()
        if (finding.worker, finding.dp_rank) == (who, rank)
    }


def advice(index: kvindex.Indexer, kind: str) -> str:
    """Return the advice of the one finding of a kind."""
    (text,) = (each.advice for each in index.diagnose() if each.kind == kind)
    return text


def feed(index: kvindex.Indexer, who: str, stream: Stream, count: int = 10**9) -> None:
    """Apply the first batches of a captured stream."""
    for message in stream.messages[:count]:
        index.apply(message.payload, worker=who)


# Healthy sources.


@pytest.mark.parametrize(
    ("family", "stream"),
    [(family, each) for family in ("vllm", "sglang") for each in names_of(family)],
)
def test_a_captured_stream_has_no_finding_or_the_true_one(
    family: str, stream: str
) -> None:
    captured = load(family, stream)
    index = kvindex.Indexer(block_size=captured.block_size)
    index.register("w1", profile=family)
    ranks = len(captured.final.resident)
    for message in captured.messages:
        source = message.topic.decode() if ranks == 1 else str(hash(message.topic))
        seq = message.seq if ranks == 1 else None
        index.apply(message.payload, worker="w1", source=source, seq=seq)
    assert index.stats()["findings"] == dict.fromkeys(TRUE.get(stream, {}), 1)
    assert found(index, rank=index.workers()[0].dp_rank) == TRUE.get(stream, {})


@pytest.mark.parametrize(
    ("profile", "stream", "block_size"),
    [
        ("lmcache", "lmcache/mp_connector_vllm_frames.jsonl", 16),
        ("flexkv", "flexkv/collector.jsonl", 16),
        ("tensorrt_llm", "trtllm/dynamo_1.6.1_trtllm_zmq.jsonl", 4),
    ],
)
def test_a_captured_backend_has_no_finding(
    profile: str, stream: str, block_size: int
) -> None:
    index = kvindex.Indexer(block_size=block_size)
    index.register("w1", profile=profile)
    for payload in payloads(stream):
        index.apply(payload, worker="w1")
    assert index.stats()["events"]["stored"]["applied"] > 0
    assert found(index) == {}


def test_a_captured_coordinator_misses_parents() -> None:
    chunk = meta("lmcache/mp_server_kv_event_batches.meta.json")["chunk_size"]
    index = kvindex.Indexer(block_size=chunk)
    index.register("w1", profile="lmcache")
    index.register_pool("l2", profile="lmcache_shared")
    for line in lines("lmcache/coordinator_events.jsonl"):
        index.apply(line, worker="w1")
        index.apply(line, pool="l2")
    assert set(found(index)) == {"orphan", "unresolved"}
    pool = {each.kind for each in index.diagnose() if each.pool == "l2"}
    assert pool == {"orphan", "unresolved"}


def test_a_fleet_with_one_hash_function_has_no_findings() -> None:
    index = kvindex.Indexer(block_size=16)
    for who, stream in (("w1", "a_gpu_only"), ("w2", "g_sha256_bytes")):
        feed(index, who, load("vllm", stream), 12)
    assert index.diagnose() == []
    assert index.stats()["findings"] == {}


def test_an_empty_index_has_no_findings() -> None:
    index = kvindex.Indexer(block_size=4)
    index.register("w1")
    index.register_pool("p")
    assert index.diagnose(tiers=("device", "host")) == []


# Each kind.


def test_offloaded_chunks_without_tokens_are_found() -> None:
    stream = load("vllm", "d1_offload_placeholder")
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register("w1")
    feed(index, "w1", stream)
    assert found(index) == {"sizeless": 66}
    assert "self_describing_kv_events" in advice(index, "sizeless")
    index.register("w1", chunk_tokens={"host": stream.block_size})
    assert index.diagnose() == []
    feed(index, "w1", stream)
    assert found(index) == {}


def test_names_that_nobody_announced_are_found() -> None:
    stream = load("vllm", "d1_offload_placeholder")
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register("w1", media={"GPU": "external"}, chunk_tokens={"host": 16})
    late = stream.messages[len(stream.messages) // 2 :]
    for message in late:
        index.apply(message.payload, worker="w1")
    assert found(index)["unresolved"] > 0


def test_a_tier_that_is_expected_and_never_comes_is_found() -> None:
    stream = load("vllm", "a_gpu_only")
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register("w1")
    feed(index, "w1", stream)
    assert index.diagnose() == []
    (finding,) = index.diagnose(tiers=("device", "host"))
    assert (finding.kind, finding.count) == ("tier", 1)
    assert "host" in finding.advice
    index.register("w1", max_age={"disk": 60.0})
    feed(index, "w1", stream, 1)
    assert found(index) == {"tier": 1}
    feed(index, "w1", load("vllm", "c4_tiering_fs_local"), 60)
    assert found(index) == {}


def test_a_block_size_that_does_not_fit_is_found() -> None:
    index = kvindex.Indexer(block_size=24)
    feed(index, "w1", load("vllm", "a_gpu_only"))
    kinds = found(index)
    assert set(kinds) == {"block_size"}
    assert "Blocks of 16 tokens do not fit an index of 24" in advice(
        index, "block_size"
    )


@pytest.mark.parametrize("other", ["g_sha256_cbor_int64", "g_xxhash_cbor_bytes"])
def test_hashes_that_never_agree_are_found(other: str) -> None:
    index = kvindex.Indexer(block_size=16)
    feed(index, "w1", load("vllm", "a_gpu_only"), 12)
    feed(index, "w2", load("vllm", other), 12)
    assert set(found(index)) == set(found(index, "w2")) == {"names"}
    assert found(index)["names"] >= COMPARED
    assert "PYTHONHASHSEED" in index.diagnose()[0].advice


def test_only_the_one_that_differs_is_found(scene: Scene) -> None:
    for path in "ABC":
        scene.S("w1", path)
        scene.S("w2", path)
        scene.S("w3", path, names=[name("other " + path)])
    assert (found(scene.index), found(scene.index, "w2")) == ({}, {})
    assert found(scene.index, "w3") == {"names": 3}


def test_ranks_of_one_worker_that_agree_hide_nothing(scene: Scene) -> None:
    for path in "ABC":
        scene.S("w1@0", path)
        scene.S("w1@1", path)
        scene.S("w2", path, names=[name("other " + path)])
    assert found(scene.index) == found(scene.index, "w1", 1) == {"names": 3}
    alone = Scene()
    for path in "ABC":
        alone.S("w1@0", path)
        alone.S("w1@1", path, names=[name("other " + path)])
    assert alone.index.diagnose() == []


def test_names_are_compared_among_sources_of_one_kind(scene: Scene) -> None:
    scene.index.register("w1", profile="sglang")
    scene.index.register("w2", profile="vllm")
    scene.index.register("w3", names="own")
    for path in "ABCD":
        for who in ("w1", "w2", "w3"):
            scene.S(who, path, names=[name(who + path)])
    assert scene.index.diagnose() == []


def test_one_block_that_agrees_is_enough(scene: Scene) -> None:
    for path in "ABCD":
        scene.S("w1", path)
        scene.S("w2", path, names=[name(path if path == "D" else "other " + path)])
    assert scene.index.diagnose() == []


def test_parents_that_never_come_are_found(scene: Scene) -> None:
    scene.S("w1", "BC", "A")
    assert found(scene.index) == {"orphan": 2}
    scene.S("w1", "A")
    assert found(scene.index) == {}
    tiny = Scene(orphan_blocks=1)
    tiny.S("w1", "BC", "A")
    assert found(tiny.index) == {"orphan": 2}


def test_a_worker_that_went_silent_is_found(scene: Scene) -> None:
    scene.S("w1", "A")
    for _ in range(SILENCE - 1):
        scene.S("w2", "A")
    assert found(scene.index) == {}
    scene.S("w2", "A")
    assert found(scene.index) == {"silent": SILENCE}
    scene.S("w1", "A")
    assert found(scene.index) == {}


def test_a_worker_is_silent_by_what_each_other_sends(scene: Scene) -> None:
    scene.S("w1", "A")
    for turn in range(SILENCE + 1):
        scene.S("w2" if turn % 2 else "w3", "A")
    assert scene.index.diagnose() == []


def test_a_registered_worker_that_never_sent_is_found(scene: Scene) -> None:
    for _ in range(50):
        scene.S("w2", "A")
    scene.index.register("w1")
    for _ in range(SILENCE - 1):
        scene.S("w2", "A")
    assert found(scene.index) == {}
    scene.S("w2", "A")
    assert found(scene.index) == {"silent": SILENCE}
    assert "--kv-events-config" in advice(scene.index, "silent")


def test_a_pool_may_be_silent(scene: Scene) -> None:
    scene.index.register_pool("p")
    for _ in range(2 * SILENCE):
        scene.S("w2", "A")
    assert scene.index.diagnose() == []


def test_numbers_that_never_came_are_found() -> None:
    stream = load("vllm", "i_replay_small_buffer")
    index = kvindex.Indexer(block_size=stream.block_size)
    for message in stream.messages:
        if message.seq not in {5, 6, 9}:
            index.apply(message.payload, worker="w1", seq=message.seq)
    assert found(index)["gap"] == 3


def test_a_restarted_engine_is_found() -> None:
    stream = load("vllm", "j_publisher_restart")
    index = kvindex.Indexer(block_size=stream.block_size)
    first = next(i for i, each in enumerate(stream.messages[1:], 1) if not each.seq)
    for message in stream.messages[: first + DUPLICATES - 1]:
        index.apply(message.payload, worker="w1", seq=message.seq)
    assert found(index) == {}
    again = stream.messages[first + DUPLICATES - 1]
    index.apply(again.payload, worker="w1", seq=again.seq)
    assert found(index) == {"restart": DUPLICATES}
    index.reset("w1")
    assert index.diagnose() == []


def test_adapters_without_names_are_found() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    stored = stored_map([1], tokens("A"), None, BLOCK, lora_id=7)
    raw(index, stored)
    assert found(index) == {"lora_id": 1}
    assert "Adapter 7 comes by number" in advice(index, "lora_id")
    index.register("w1", lora_ids={7: "x"})
    raw(index, stored)
    assert found(index) == {}


def test_an_unknown_medium_is_found(scene: Scene) -> None:
    scene.S("w1", "AB", medium="L2")
    assert found(scene.index) == {"medium": 2}
    assert "'L2'" in advice(scene.index, "medium")
    scene.index.register("w1", media={"l2": "disk"})
    scene.S("w1", "AB", medium="L2")
    assert found(scene.index) == {}


def test_groups_that_are_not_indexed_are_found() -> None:
    stream = load("vllm", "f1_hybrid_full_swa")
    index = kvindex.Indexer(block_size=stream.block_size)
    feed(index, "w1", stream)
    assert set(found(index)) == {"group"}
    assert "Indexer(group_rules=True)" in advice(index, "group")


def test_with_group_rules_there_is_no_finding_of_groups() -> None:
    index = kvindex.Indexer(block_size=BLOCK, group_rules=True)
    gone = kvindex.BlockRemoved([name("A")], group_idx=3)
    assert index.apply([gone], worker="w1").reasons == {"group": 1}
    assert index.diagnose() == []


def test_a_pool_has_no_finding_of_groups_since_nothing_helps() -> None:
    stream = load("vllm", "f1_hybrid_full_swa")
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register_pool("p")
    reasons = 0
    for message in stream.messages:
        report = index.apply(message.payload, pool="p")
        reasons += report.reasons.get("group", 0)
    assert reasons > 0
    assert index.diagnose() == []


def test_refused_names_are_found(scene: Scene) -> None:
    scene.index.register("w1", profile="vllm")
    scene.S("w1", "A", names=[1], salt="s")
    scene.S("w1", "A", names=[1], salt="t")
    scene.P("w1", 1, block_size=BLOCK)
    assert found(scene.index) == {"ambiguous": 1}


def test_events_that_cannot_be_read_are_found() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    index.apply([BlockStored([1, 1], tokens("AB"))], worker="w1")
    raw(index, {"type": "BlockMoved"})
    assert found(index) == {"faulty": 3}
    assert (
        "unknown_type 1, malformed 0, extra_keys 0, parent 0, duplicate_hash 2"
        in advice(index, "faulty")
    )


# Where findings are shown, and when they end.


def test_ranks_and_pools_have_findings_of_their_own(scene: Scene) -> None:
    scene.S("w1@3", "A", medium="L2")
    scene.S("pool:p", "AB", medium="L2")
    assert [
        (each.worker, each.pool, each.dp_rank, each.count)
        for each in scene.index.diagnose()
    ] == [("w1", None, 3, 1), (None, "p", 0, 2)]


def test_stats_and_explain_name_the_kinds(scene: Scene) -> None:
    scene.S("w1", "A", medium="L2")
    scene.S("w1@1", "BC", "A", medium="L2")
    scene.S("w1", "BC", "X")
    index = scene.index
    assert index.stats()["findings"] == {"medium": 2, "orphan": 1}
    assert index.explain([], worker="w1")["findings"] == ["orphan", "medium"]
    assert index.explain([], worker="w1", dp_rank=1)["findings"] == ["medium"]
    assert index.explain([], worker="w2")["findings"] == []


def test_a_registration_and_a_reset_begin_anew(scene: Scene) -> None:
    for again in (
        lambda: scene.index.register("w1"),
        lambda: scene.index.reset("w1"),
        lambda: scene.index.remove_worker("w1"),
        scene.index.clear,
    ):
        scene.S("w1", "A", medium="L2")
        assert found(scene.index) == {"medium": 1}
        again()
        assert scene.index.diagnose() == []
        assert scene.index.stats()["reasons"]["medium"] > 0


def test_a_finding_reads_as_a_sentence() -> None:
    finding = Finding(kind="gap", count=3, advice="Look.", worker="w1", dp_rank=2)
    assert str(finding) == "worker 'w1', rank 2: gap (3): Look."
    assert str(Finding(kind="gap", count=1, advice="Look.", pool="p")) == (
        "pool 'p': gap (1): Look."
    )


def test_an_unknown_tier_is_refused(scene: Scene) -> None:
    with pytest.raises(kvindex.ConfigError, match="a tier is one of"):
        scene.index.diagnose(tiers=("tape",))


def test_diagnosing_beside_a_writer_is_safe(scene: Scene) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            scene.S("w1", "ABC")
            scene.R("w1", "ABC", "AB", "A")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            assert scene.index.diagnose() == []
    finally:
        stop.set()
        writer.join()

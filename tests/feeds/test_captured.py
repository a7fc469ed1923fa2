"""Captured engine streams and replays through real sockets, compared with facts."""

from collections.abc import Iterable

import pytest

import kvindex
from kvindex.feeds import Feed, Source
from tests.feeds.batches import captured, captured_replay, facts
from tests.feeds.conftest import Start
from tests.feeds.publisher import Publisher

PAGE = 16


@pytest.fixture
def index() -> kvindex.Indexer:
    """Return an empty index with the blocks of the captured streams."""
    return kvindex.Indexer(block_size=PAGE)


def source(publisher: Publisher, **options: object) -> Source:
    """Return the source of a publisher."""
    return Source(
        "w1",
        publisher.endpoint,
        replay=publisher.replay,
        **options,  # type: ignore[arg-type]
    )


def check_residency(index: kvindex.Indexer, stream: str, rank: int = 0) -> None:
    """Compare a GPU-only vLLM stream with what the engine held at its end."""
    known = facts(stream)
    entries = known["expected"][str(rank)]["GPU"]
    resident = {entry["hash"] for entry in entries if entry["group_idx"] == 0}
    (line,) = [row for row in index.workers() if row.dp_rank == rank]
    assert line.device == len(resident)
    for request in known["requests"]:
        if request["engine"] != rank:
            continue
        hashes = request["block_hashes"]
        depth = next(
            (i for i, hash_ in enumerate(hashes) if hash_ not in resident), len(hashes)
        )
        tokens = request["prompt_token_ids"] + request["output_token_ids"]
        (row,) = index.match(tokens[: PAGE * len(hashes)], workers=[("w1", rank)])
        assert row.depth == depth


def same_holdings(
    index: kvindex.Indexer, payloads: Iterable[bytes], **profile: object
) -> None:
    """Compare with an index that was given the payloads one after another."""
    other = kvindex.Indexer(block_size=index.block_size)
    if profile:
        other.register("w1", **profile)  # type: ignore[arg-type]
    for seq, payload in enumerate(payloads):
        other.apply(payload, worker="w1", seq=seq)
    assert index.workers() == other.workers()
    assert len(index) > 0


def test_a_restarted_engine_of_vllm_is_exact_without_replay(
    index: kvindex.Indexer, start: Start
) -> None:
    batches = captured("vllm/j_publisher_restart")
    first, second = batches[:14], batches[14:]
    engine = start(replay=False)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        for _, payload in first:
            engine.publish(payload)
        assert feed.wait(until={"w1": 13})
        other = engine.successor()
        try:
            other.subscribed()
            for _, payload in second:
                other.publish(payload)
            assert feed.wait(until={"w1": 17})
            (row,) = feed.sources()
        finally:
            other.stop()
    assert (row.applied, row.restarts, row.lost) == (32, 1, 0)
    check_residency(index, "vllm/j_publisher_restart")


@pytest.mark.parametrize("missed", [0, 5, 13, 14, 15, 18])
def test_a_restarted_engine_of_vllm_is_exact_with_replay(
    index: kvindex.Indexer, start: Start, missed: int
) -> None:
    batches = captured("vllm/j_publisher_restart")
    first, second = batches[:14], batches[14:]
    engine = start()
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        for _, payload in first:
            engine.publish(payload)
        assert feed.wait(until={"w1": 13})
        other = engine.successor()
        try:
            # Nobody is there for these; the replay has to bring them.
            other.buffer.extend(second[:missed])
            other.next = missed
            other.subscribed()
            for _, payload in second[missed:]:
                other.publish(payload)
            assert feed.wait(until=lambda rows: rows[0].restarts == 1)
            assert feed.wait(until={"w1": 17})
            (row,) = feed.sources()
        finally:
            other.stop()
    assert (row.restarts, row.lost) == (1, 0)
    check_residency(index, "vllm/j_publisher_restart")


def test_a_restart_seen_only_by_its_numbers_is_exact(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        for seq, payload in captured("vllm/j_publisher_restart"):
            engine.send(seq, payload)
        assert feed.wait(until={"w1": 17})
        (row,) = feed.sources()
    assert (row.restarts, row.connects, row.lost) == (1, 1, 0)
    check_residency(index, "vllm/j_publisher_restart")


def test_losses_of_every_kind_leave_the_answer_exact(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    batches = captured("vllm/a_gpu_only")
    with Feed(index, [source(engine)]) as feed:
        for seq, payload in batches:
            assert engine.publish(payload, lost=seq % 7 in (2, 3)) == seq
        assert feed.wait(until={"w1": batches[-1][0]})
        (row,) = feed.sources()
    assert (row.applied, row.lost) == (len(batches), 0)
    check_residency(index, "vllm/a_gpu_only")


def test_a_small_buffer_of_vllm_is_reported(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(buffer_steps=8)
    batches = captured("vllm/i_replay_small_buffer")
    for _, payload in batches:
        engine.publish(payload)
    with Feed(index, [source(engine)]) as feed:
        assert feed.wait()
        (row,) = feed.sources()
    assert (row.applied, row.lost_ranges, row.seq) == (8, ((0, 19),), 27)
    # One that was there from the start has everything, replay or not.
    whole = kvindex.Indexer(block_size=PAGE)
    second = start(buffer_steps=8)
    with Feed(whole, [source(second)]) as feed:
        second.subscribed()
        assert feed.wait()
        for _, payload in batches:
            second.publish(payload)
        assert feed.wait(until={"w1": 27})
        assert feed.sources()[0].lost == 0
    check_residency(whole, "vllm/i_replay_small_buffer")


def test_both_ranks_of_vllm_are_exact(index: kvindex.Indexer, start: Start) -> None:
    stream = "vllm/b_dp2"
    engines = [start(), start()]
    sources = [source(engine, dp_rank=rank) for rank, engine in enumerate(engines)]
    # One topic and colliding numbers: the rank is what a batch ends with.
    for seq, payload in captured(stream):
        assert engines[payload[-1]].publish(payload) == seq
    with Feed(index, sources) as feed:
        assert feed.wait()
        assert all(row.lost == 0 for row in feed.sources())
    for rank in range(2):
        check_residency(index, stream, rank)


@pytest.mark.parametrize(
    "stream", ["vllm/c2_offload_sd_chunk256", "vllm/h_vllm_0.22.1_offload"]
)
def test_a_stream_of_two_tiers_is_the_same_live(
    index: kvindex.Indexer, start: Start, stream: str
) -> None:
    profile = {"profile": "vllm", "clears": ("device",)}
    index.register("w1", **profile)  # type: ignore[arg-type]
    engine = start(frames=3)
    batches = captured(stream)
    with Feed(index, [source(engine)]) as feed:
        for seq, payload in batches:
            engine.publish(payload, lost=seq % 5 == 3)
        assert feed.wait(until={"w1": batches[-1][0]})
    same_holdings(index, (payload for _, payload in batches), **profile)


@pytest.mark.parametrize(
    "stream",
    [
        "vllm/i_replay_small_buffer",
        "vllm/g_sha256_bytes",
        "vllm/g_sha256_cbor_int64",
        "sglang/gpu_ps16",
        "sglang/hicache_write_through",
        "sglang/gpu_dp_rank3",
    ],
)
def test_the_answers_of_a_real_publisher_are_understood(
    start: Start, stream: str
) -> None:
    first, answers = captured_replay(stream)
    engine = start()
    engine.script = answers
    page = facts(stream).get("page_size", PAGE)
    index = kvindex.Indexer(block_size=page)
    with Feed(index, [source(engine)]) as feed:
        assert feed.wait()
        (row,) = feed.sources()
    assert engine.requests == [first]
    assert row.applied == len(answers) - 1
    assert (row.malformed, row.undecodable, row.replay_failures) == (0, 0, 0)
    seqs = [int.from_bytes(frames[-2], "big") for frames in answers[:-1]]
    assert row.lost == seqs[0]
    other = kvindex.Indexer(block_size=page)
    for seq, frames in zip(seqs, answers, strict=False):
        other.apply(frames[-1], worker="w1", seq=seq)
    assert index.workers() == other.workers()

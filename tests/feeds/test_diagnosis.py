"""What looks wrong with how events arrive, over real sockets where it shows there."""

from dataclasses import replace
from typing import Any

import pytest

import kvindex
from kvindex.feeds import Feed, Source, SourceState
from kvindex.feeds.diagnosis import of_sources
from kvindex.feeds.state import resting
from tests.feeds.batches import batch, captured, chain, stores
from tests.feeds.conftest import Start

NOBODY = "tcp://127.0.0.1:1"
NOW = 1_000_000.0


def found(feed: Feed, **options: float) -> list[tuple[str | None, str, int]]:
    """Return whose, what and how often of all findings."""
    findings = feed.diagnose(**options)
    return [(each.worker, each.kind, each.count) for each in findings]


@pytest.mark.parametrize("stream", ["vllm/a_gpu_only", "sglang/gpu_ps16"])
def test_a_healthy_feed_has_no_findings(start: Start, stream: str) -> None:
    index = kvindex.Indexer(block_size=16)
    index.register("w1", profile=stream.split("/", maxsplit=1)[0])
    engine = start()
    batches = captured(stream)
    for _, payload in batches:
        engine.publish(payload)
    source = Source("w1", engine.endpoint, replay=engine.replay)
    with Feed(index, [source]) as feed:
        assert feed.wait(until={"w1": batches[-1][0]})
        assert found(feed) == []
    assert index.diagnose() == []


def test_a_publisher_that_is_not_there_is_found(index: kvindex.Indexer) -> None:
    feed = Feed(index, [Source("w1", NOBODY)])
    assert found(feed) == []
    with feed:
        assert feed.wait(until=lambda rows: rows[0].status == "connecting")
        assert found(feed) == [("w1", "unreachable", 1)]
        assert f"{NOBODY}: no publisher there (connecting)" in feed.diagnose()[0].advice


def test_losses_without_a_replay_are_found(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    with Feed(index, [Source("w1", engine.endpoint)]) as feed:
        engine.subscribed()
        for number, payload in enumerate(chain(5)):
            engine.publish(payload, lost=number == 2)
        assert feed.wait(until={"w1": 4})
        assert found(feed) == [("w1", "lost", 1)]
    assert {each.kind: each.count for each in index.diagnose()} == {
        "gap": 1,
        "orphan": 2,
    }


def test_a_replay_that_does_not_answer_is_found(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(silent=True)
    source = Source("w1", engine.endpoint, replay=engine.replay)
    with Feed(index, [source], replay_timeout=0.1) as feed:
        engine.subscribed()
        engine.publish(batch(stores("A")))
        assert feed.wait(until=lambda rows: rows[0].replay_failures > 0)
        assert ("w1", "replay", 1) in found(feed)


def test_batches_that_cannot_be_read_are_found(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    source = Source("w1", engine.endpoint, replay=engine.replay)
    with Feed(index, [source]) as feed:
        engine.publish(b"no batch")
        engine.publish(batch(stores("A")))
        assert feed.wait(until={"w1": 1})
        assert found(feed) == [("w1", "unreadable", 1)]


def test_ranks_that_the_source_does_not_say_are_found(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    source = Source("w1", engine.endpoint, replay=engine.replay)
    with Feed(index, [source]) as feed:
        engine.publish(batch(stores("A"), rank=3))
        assert feed.wait(until=lambda rows: rows[0].applied == 1)
        assert found(feed) == [("w1", "rank", 1)]
        assert "name rank 3 where the source says 0" in feed.diagnose()[0].advice


def live(worker: str, last: float | None, **more: Any) -> SourceState:  # noqa: ANN401
    """Return a row of a source that was last heard of at a moment."""
    row = replace(resting(Source(worker, NOBODY), "live"), last_activity=last)
    return replace(row, **more)


def silent(*states: SourceState) -> list[tuple[str | None, int]]:
    """Return who is silent, and for how many seconds."""
    findings = of_sources(states, now=NOW, silence=60.0)
    return [(each.worker, each.count) for each in findings if each.kind == "silent"]


def test_a_source_is_silent_while_others_talk() -> None:
    talking = live("w2", NOW - 59.0)
    assert silent(live("w1", NOW - 61.0), talking) == [("w1", 61)]
    assert silent(live("w1", None, last_connect=NOW - 61.0), talking) == [("w1", 61)]
    assert silent(live("w1", NOW - 59.0), talking) == []
    assert silent(live("w1", NOW - 61.0), live("w2", NOW - 60.0)) == []
    assert silent(live("w1", NOW - 61.0, status="replaying"), talking) == []
    assert silent(live("w1", None, last_connect=NOW - 61.0)) == []


def test_a_source_is_not_silent_before_it_had_the_time_to_talk() -> None:
    talking = live("w2", NOW)
    assert silent(live("w1", None, last_connect=NOW - 59.0), talking) == []
    back = live("w1", NOW - 100.0, last_connect=NOW - 1.0)
    assert silent(back, talking) == []


def test_a_source_that_has_just_connected_has_no_finding(
    index: kvindex.Indexer, start: Start
) -> None:
    engines = [start(replay=False), start(replay=False)]
    sources = [
        Source(f"w{number}", engine.endpoint)
        for number, engine in enumerate(engines, 1)
    ]
    with Feed(index, sources) as feed:
        for engine in engines:
            engine.subscribed()
        engines[0].publish(batch(stores("A")))
        assert feed.wait(
            until=lambda rows: (
                all(row.status == "live" for row in rows) and rows[0].applied == 1
            )
        )
        assert found(feed) == []


def test_a_pools_source_is_found_as_the_pools() -> None:
    pool = resting(Source("store", NOBODY, pool=True), "failed")
    (finding,) = of_sources([pool], now=NOW, silence=60.0)
    assert (finding.worker, finding.pool) == (None, "store")
    assert str(finding).startswith("pool 'store': unreachable (1): ")


def test_a_source_that_was_given_up_says_why() -> None:
    failed = live("w1", None, status="failed", last_error="OSError: gone")
    (finding,) = of_sources([failed], now=NOW, silence=60.0)
    assert (finding.kind, finding.count) == ("unreachable", 1)
    assert "(failed; OSError: gone)" in finding.advice

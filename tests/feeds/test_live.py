"""Live batches over real sockets."""

import pytest
import zmq

import kvindex
from kvindex.feeds import Feed, Source
from tests import wire
from tests.feeds.batches import batch, chain, removes, stores
from tests.feeds.conftest import Start
from tests.feeds.publisher import Publisher, number
from tests.helpers import depths


def source(publisher: Publisher, worker: str = "w1", **options: object) -> Source:
    """Return the source of a publisher."""
    return Source(worker, publisher.endpoint, **options)  # type: ignore[arg-type]


def test_every_source_is_applied_to_its_own_holder(
    index: kvindex.Indexer, start: Start
) -> None:
    ports = [start(replay=False) for _ in range(3)]
    sources = [
        source(ports[0], "w1"),
        source(ports[1], "w1", dp_rank=1),
        source(ports[2], "w2"),
    ]
    with Feed(index, sources) as feed:
        assert feed.wait()
        for length, port in enumerate(ports, 1):
            port.subscribed()
            port.publish(batch(stores("ABC"[:length]), rank=None))
        assert feed.wait(until={"w1": 0, "w2": 0})
        assert depths(index, "ABC") == {"w1": 1, "w1@1": 2, "w2": 3}


def test_the_rank_inside_a_batch_wins(index: kvindex.Indexer, start: Start) -> None:
    engine = start(replay=False)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        engine.publish(batch(stores("AB"), rank=3))
        assert feed.wait(until={"w1": 0})
        assert depths(index, "AB") == {"w1@3": 2}
        assert feed.sources()[0].ranks == (3,)
        # The number goes back: the holder that is reset is the one that was fed.
        engine.send(0, batch(stores("X"), rank=3))
        assert feed.wait(until=lambda rows: rows[0].restarts == 1)
        assert depths(index, "AB") == {}
        assert depths(index, "X") == {"w1@3": 1}


def test_a_publisher_that_connects_is_bound_for(
    index: kvindex.Indexer, start: Start
) -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as probe:
        port = probe.bind_to_random_port("tcp://127.0.0.1")
    endpoint = f"tcp://127.0.0.1:{port}"
    with Feed(index, [Source("w1", endpoint, bind=True)]) as feed:
        engine = start(endpoint, connects=True, replay=False)
        engine.subscribed()
        engine.publish(batch(stores("AB")))
        assert feed.wait(until={"w1": 0})
        assert depths(index, "AB") == {"w1": 2}
        engine.stop()
        assert feed.wait(until=lambda rows: rows[0].status == "connecting")


def test_only_the_topic_that_was_asked_for_is_followed(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False, topic="kv@pod-1@model")
    with Feed(index, [source(engine, topic="kv@pod-1@")]) as feed:
        assert engine.subscribed() == b"kv@pod-1@"
        engine.send_frames([b"kv@pod-2@model", number(0), batch(stores("X"))])
        engine.publish(batch(stores("AB")))
        assert feed.wait(until={"w1": 0})
        assert depths(index, "AB") == {"w1": 2}
        assert depths(index, "X") == {}


def test_a_message_of_another_form_is_counted_and_dropped(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    good = batch(stores("A"))
    bad = (
        [b"kv-events"],
        [number(0), good],
        [b"kv-events", number(0), good, b""],
        [b"kv-events", b"\0" * 7, good],
        [b"kv-events", b"", good],
        [b"kv-events", b"\xff" * 8, good],
    )
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        for frames in bad:
            engine.send_frames(frames)
        engine.publish(good)
        assert feed.wait(until={"w1": 0})
        (row,) = feed.sources()
    assert row.malformed == len(bad)
    assert (row.applied, row.lost) == (1, 0)
    assert row.last_error is not None
    assert row.last_error.endswith(f"frames of 9, 8, {len(good)} bytes")


def test_a_batch_that_cannot_be_decoded_is_stepped_over(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    first, second = chain(2)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        engine.publish(first)
        engine.publish(b"\xc1 is never used in msgpack")
        engine.publish(wire.pack({"no": "batch"}))
        engine.publish(second)
        assert feed.wait(until={"w1": 3})
        (row,) = feed.sources()
    assert (row.applied, row.undecodable, row.gaps, row.lost) == (2, 2, 0, 0)
    assert row.last_error is not None
    assert row.last_error.startswith("batch 2 skipped: ")
    assert depths(index, "AB") == {"w1": 2}
    assert [row.seq for row in index.workers()] == [3]


def test_a_batch_stepped_over_is_of_the_rank_that_came_before(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        engine.publish(batch(stores("A"), rank=3))
        engine.publish(b"no batch")
        assert feed.wait(until={"w1": 1})
        assert [(row.dp_rank, row.seq) for row in index.workers()] == [(3, 1)]


def test_a_batch_delivered_twice_is_applied_once(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    first, second = chain(2)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        engine.publish(first)
        engine.send(0, first)
        engine.publish(second)
        engine.send(0, first)
        # One copy was stored, so one removal is enough.
        engine.publish(batch(removes("A")))
        assert feed.wait(until={"w1": 2})
        (row,) = feed.sources()
    assert (row.applied, row.duplicates, row.restarts) == (3, 2, 0)
    assert depths(index, "AB") == {}


@pytest.mark.parametrize("copies", [2, 3])
def test_every_source_of_a_feed_has_its_own_numbers(
    index: kvindex.Indexer, start: Start, copies: int
) -> None:
    engines = [start(replay=False) for _ in range(copies)]
    sources = [source(engine, f"w{i}") for i, engine in enumerate(engines)]
    with Feed(index, sources) as feed:
        for engine in engines:
            engine.subscribed()
        for payload in chain(5):
            for engine in engines:
                engine.publish(payload)
        assert feed.wait(until={f"w{i}": 4 for i in range(copies)})
        assert all(row.duplicates == 0 for row in feed.sources())
    assert depths(index, "ABCDE") == {f"w{i}": 5 for i in range(copies)}

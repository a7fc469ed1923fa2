"""Restarted engines over real sockets."""

import pytest

import kvindex
from kvindex.feeds import Feed, Source, SourceState
from tests.feeds.batches import batch, chain, removes, stores
from tests.feeds.conftest import Start
from tests.feeds.publisher import Publisher
from tests.helpers import depths


def source(publisher: Publisher, worker: str = "w1") -> Source:
    """Return the source of a publisher."""
    return Source(worker, publisher.endpoint, replay=publisher.replay)


def reconnected(rows: list[SourceState]) -> bool:
    """Tell whether the first source is connected a second time, and settled."""
    return rows[0].connects == 2 and rows[0].status == "live"


def test_a_number_that_goes_back_resets_the_holder(
    index: kvindex.Indexer, start: Start
) -> None:
    first = start(replay=False)
    with Feed(index, [source(first)]) as feed:
        first.subscribed()
        for payload in chain(3):
            first.publish(payload)
        assert feed.wait(until={"w1": 2})
        second = first.successor()
        try:
            second.subscribed()
            second.publish(batch(stores("X")))
            assert feed.wait(until=lambda rows: rows[0].restarts == 1)
            second.publish(batch(stores("Y", "X")))
            assert feed.wait(until={"w1": 1})
            (row,) = feed.sources()
        finally:
            second.stop()
    assert depths(index, "ABC") == {}
    assert depths(index, "XY") == {"w1": 2}
    assert (row.connects, row.applied, row.lost) == (2, 5, 0)


def test_only_the_restarted_rank_is_reset(index: kvindex.Indexer, start: Start) -> None:
    ports = [start(replay=False) for _ in range(2)]
    sources = [Source("w1", port.endpoint, dp_rank=r) for r, port in enumerate(ports)]
    with Feed(index, sources) as feed:
        for rank, port in enumerate(ports):
            port.subscribed()
            port.publish(batch(stores("AB"), rank=rank))
        assert feed.wait(until={"w1": 0})
        ports[1].send(0, batch(stores("X"), rank=1))
        assert feed.wait(until=lambda rows: rows[1].restarts == 1)
    assert depths(index, "AB") == {"w1": 2}
    assert depths(index, "X") == {"w1@1": 1}


@pytest.mark.parametrize("frames", [3, 4])
def test_a_broken_connection_to_the_same_engine_loses_nothing(
    index: kvindex.Indexer, start: Start, frames: int
) -> None:
    engine = start(frames=frames)
    payloads = chain(5)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        for payload in payloads[:3]:
            engine.publish(payload)
        assert feed.wait(until={"w1": 2})
        engine.stop()
        assert feed.wait(until=lambda rows: rows[0].status == "connecting")
        for payload in payloads[3:]:
            engine.buffer.append((engine.next, payload))
            engine.next += 1
        again = engine.successor(same_engine=True)
        try:
            assert feed.wait(until={"w1": 4})
            assert feed.wait(until=reconnected)
            (row,) = feed.sources()
            assert again.requests == [2]
        finally:
            again.stop()
    assert depths(index, "ABCDE") == {"w1": 5}
    assert (row.restarts, row.lost) == (0, 0)


@pytest.mark.parametrize("published", [0, 2, 3, 6])
def test_another_engine_is_known_before_it_publishes(
    index: kvindex.Indexer, start: Start, published: int
) -> None:
    first = start()
    with Feed(index, [source(first)]) as feed:
        first.subscribed()
        for payload in chain(3):
            first.publish(payload)
        assert feed.wait(until={"w1": 2})
        second = first.successor()
        # It has published before anybody could connect: no live message tells.
        letters = "UVWXYZ"[:published]
        for i, letter in enumerate(letters):
            second.buffer.append((i, batch(stores(letter, letters[:i]))))
        second.next = published
        try:
            assert feed.wait(until=lambda rows: rows[0].restarts == 1)
            assert feed.wait(until=reconnected)
            # The cursor's batch was compared, then everything was asked for.
            assert second.requests == [2, 0]
        finally:
            second.stop()
    assert depths(index, "ABC") == {}
    assert depths(index, letters) == ({"w1": published} if published else {})


def test_a_reconnect_alone_decides_nothing_without_replay(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    first, second = chain(2)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        engine.publish(first)
        assert feed.wait(until={"w1": 0})
        again = engine.successor(same_engine=True)
        try:
            again.subscribed()
            assert feed.wait(until=reconnected)
            assert depths(index, "A") == {"w1": 1}
            again.publish(second)
            assert feed.wait(until={"w1": 1})
            assert feed.sources()[0].restarts == 0
        finally:
            again.stop()
    assert depths(index, "AB") == {"w1": 2}


def test_a_reconnect_that_nobody_answers_decides_nothing(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    with Feed(index, [source(engine)], replay_timeout=0.2) as feed:
        engine.subscribed()
        assert feed.wait()
        engine.publish(chain(1)[0])
        assert feed.wait(until={"w1": 0})
        engine.stop()
        again = Publisher(engine.endpoint, replay=False)
        try:
            assert feed.wait(until=lambda rows: rows[0].replay_failures == 1)
            assert feed.wait(until=reconnected)
            assert feed.sources()[0].restarts == 0
        finally:
            again.stop()
    assert depths(index, "A") == {"w1": 1}


def test_a_jump_that_hides_a_restart_is_found_by_its_replay(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        assert feed.wait()
        for payload in chain(2):
            engine.publish(payload)
        assert feed.wait(until={"w1": 1})
        # The same sockets, as behind a relay: no reconnect gives it away.
        engine.buffer.clear()
        engine.next = 0
        for letter in "UVW":
            engine.publish(batch(stores(letter)), lost=True)
        engine.publish(batch(stores("X")))
        assert feed.wait(until=lambda rows: rows[0].restarts == 1)
        assert feed.wait(until={"w1": 3})
    assert depths(index, "A") == {}
    assert [depths(index, letter) for letter in "UVWX"] == [{"w1": 1}] * 4


def test_a_new_feed_applies_only_what_the_index_has_not_had(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    for payload in chain(3):
        engine.publish(payload)
    with Feed(index, [source(engine)]) as feed:
        assert feed.wait()
    engine.publish(batch(removes("ABC")))
    with Feed(index, [source(engine)]) as feed:
        assert feed.wait()
        (row,) = feed.sources()
    assert engine.requests == [0, 0]
    assert (row.applied, row.restarts, row.duplicates) == (1, 0, 3)
    assert depths(index, "ABC") == {"w1": 2}


@pytest.mark.parametrize("replay", [False, True])
def test_a_new_feed_recognises_an_engine_that_is_behind(
    index: kvindex.Indexer, start: Start, *, replay: bool
) -> None:
    first = start(replay=replay)
    with Feed(index, [source(first)]) as feed:
        first.subscribed()
        for payload in chain(3):
            first.publish(payload)
        assert feed.wait(until={"w1": 2})
    second = first.successor()
    try:
        with Feed(index, [source(second)]) as feed:
            second.subscribed()
            assert feed.wait()
            second.publish(batch(stores("X")))
            assert feed.wait(until=lambda rows: rows[0].restarts == 1)
            assert feed.wait(until={"w1": 0})
    finally:
        second.stop()
    assert depths(index, "ABC") == {}
    assert depths(index, "X") == {"w1": 1}

"""Replays over real sockets: what was missed, and in which order it is applied."""

import pytest

import kvindex
from kvindex.feeds import Feed, Source
from tests.feeds.batches import batch, chain, removes, stores
from tests.feeds.conftest import Start
from tests.feeds.publisher import Publisher
from tests.helpers import depths


def source(publisher: Publisher, worker: str = "w1") -> Source:
    """Return the source of a publisher that answers replays."""
    return Source(worker, publisher.endpoint, replay=publisher.replay)


def no_replay(publisher: Publisher) -> Source:
    """Return the source of a publisher as if it answered none."""
    return Source("w1", publisher.endpoint)


@pytest.mark.parametrize("frames", [3, 4])
def test_what_was_published_before_is_asked_for(
    index: kvindex.Indexer, start: Start, frames: int
) -> None:
    engine = start(frames=frames)
    for payload in chain(5):
        engine.publish(payload)
    with Feed(index, [source(engine)]) as feed:
        assert feed.wait()
        (row,) = feed.sources()
        assert depths(index, "ABCDE") == {"w1": 5}
    assert (row.applied, row.replayed, row.lost, row.malformed) == (5, 5, 0, 0)
    assert engine.requests == [0]
    assert engine.refused == 0


@pytest.mark.parametrize("frames", [3, 4])
@pytest.mark.parametrize("stored", ["B", "C"])
def test_an_older_batch_is_never_applied_after_a_newer_one(
    index: kvindex.Indexer, start: Start, frames: int, stored: str
) -> None:
    engine = start(frames=frames)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        assert feed.wait()
        engine.publish(batch())
        engine.publish(batch(stores("AB")))
        assert feed.wait(until={"w1": 1})
        engine.publish(batch(removes("AB")), lost=True)
        engine.publish(batch(stores(stored, "A")))
        assert feed.wait(until={"w1": 3})
        (row,) = feed.sources()
    assert depths(index, "AB") == {"w1": 2 if stored == "B" else 1}
    assert depths(index, "AC") == {"w1": 2 if stored == "C" else 1}
    assert (row.gaps, row.last_gap, row.lost) == (1, (2, 2), 0)
    # The batch before the gap is asked for too, and compared.
    assert engine.requests == [0, 1]


@pytest.mark.parametrize("on_gap", ["keep", "reset"])
def test_a_gap_without_an_answer_is_reported_once(
    index: kvindex.Indexer, start: Start, on_gap: str
) -> None:
    engine = start(replay=False)
    with Feed(index, [no_replay(engine)], on_gap=on_gap) as feed:  # type: ignore[arg-type]
        engine.subscribed()
        engine.publish(batch())
        engine.publish(batch(stores("AB")))
        engine.publish(batch(removes("AB")), lost=True)
        engine.publish(batch(stores("AC")))
        assert feed.wait(until={"w1": 3})
        (row,) = feed.sources()
    assert (row.gaps, row.last_gap) == (1, (2, 2))
    assert (row.lost, row.lost_ranges) == (1, ((2, 2),))
    assert row.resets == (1 if on_gap == "reset" else 0)
    assert depths(index, "AC") == {"w1": 2}
    assert depths(index, "AB") == {"w1": 1 if on_gap == "reset" else 2}


def test_live_batches_wait_while_a_replay_is_open(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    first, second, third, fourth = chain(4)
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        assert feed.wait()
        engine.publish(first)
        assert feed.wait(until={"w1": 0})
        engine.gate.clear()
        engine.publish(second, lost=True)
        engine.publish(third)
        engine.publish(fourth)
        assert feed.wait(until=lambda rows: rows[0].held == 2)
        assert feed.sources()[0].status == "replaying"
        assert depths(index, "ABCD") == {"w1": 1}
        engine.gate.set()
        assert feed.wait()
        assert depths(index, "ABCD") == {"w1": 4}


def test_a_silent_replay_endpoint_holds_nothing_up_for_long(
    index: kvindex.Indexer, start: Start
) -> None:
    silent, other = start(silent=True), start()
    first, second, third = chain(3)
    with Feed(index, [source(silent), source(other, "w2")], replay_timeout=0.3) as feed:
        silent.subscribed()
        other.subscribed()
        silent.publish(first)
        silent.publish(second, lost=True)
        silent.publish(third)
        other.publish(first)
        # The other source does not wait for the silent one.
        assert feed.wait(until={"w2": 0})
        assert feed.wait(until={"w1": 2})
        row = feed.sources()[0]
    assert row.lost_ranges == ((1, 1),)
    assert row.replay_failures >= 1
    assert row.last_error is not None
    assert "no end in time" in row.last_error
    assert depths(index, "A") == {"w1": 1, "w2": 1}


def test_a_replay_endpoint_that_nobody_listens_on_holds_nothing_up_for_long(
    index: kvindex.Indexer, start: Start
) -> None:
    engine, gone = start(replay=False), start()
    gone.stop()
    only = Source("w1", engine.endpoint, replay=gone.replay)
    with Feed(index, [only], replay_timeout=0.2) as feed:
        engine.subscribed()
        for payload in chain(3):
            engine.publish(payload)
        assert feed.wait(until={"w1": 2})
        assert feed.sources()[0].lost == 0
    assert depths(index, "ABC") == {"w1": 3}


def test_a_replay_that_breaks_off_is_ended_by_time(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(cut=2)
    for payload in chain(4):
        engine.publish(payload)
    with Feed(index, [source(engine)], replay_timeout=0.2, check_interval=0.1) as feed:
        # The next check asks from the cursor on and brings one batch more.
        assert feed.wait(until={"w1": 3})
        (row,) = feed.sources()
        assert depths(index, "ABCD") == {"w1": 4}
    assert row.replay_failures >= 1
    assert (row.lost, row.restarts) == (0, 0)


def test_a_small_buffer_leaves_a_loss_that_is_reported(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(buffer_steps=2)
    for payload in chain(3):
        engine.publish(payload)
    engine.publish(batch(stores("XY")))
    with Feed(index, [source(engine)]) as feed:
        assert feed.wait()
        (row,) = feed.sources()
    assert (row.applied, row.lost_ranges) == (2, ((0, 1),))
    assert depths(index, "XY") == {"w1": 2}
    assert depths(index, "ABC") == {}


def test_a_number_that_was_used_up_is_not_waited_for(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    first, second = chain(2)
    with Feed(index, [source(engine)], replay_timeout=60.0) as feed:
        engine.subscribed()
        assert feed.wait()
        engine.publish(first)
        engine.publish(b"cannot be encoded", lost=True, kept=False)
        engine.publish(second)
        assert feed.wait(timeout=2.0, until={"w1": 2})
        (row,) = feed.sources()
    assert (row.gaps, row.lost_ranges, row.replay_failures) == (1, ((1, 1),), 0)
    assert depths(index, "AB") == {"w1": 2}


def test_a_loss_that_nothing_follows_is_found_by_asking(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    first, second = chain(2)
    with Feed(index, [source(engine)], check_interval=0.1) as feed:
        engine.subscribed()
        engine.publish(first)
        engine.publish(second, lost=True)
        assert feed.wait(until={"w1": 1})
        assert feed.sources()[0].lost == 0
    assert depths(index, "AB") == {"w1": 2}


def test_a_replay_answer_of_another_form_is_counted_and_dropped(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    engine.publish(chain(1)[0])
    good = engine.answers(0)
    bad = [[b""], [b"", b"short", b"x"], [b"", b"", b"", *good[0][-2:]]]
    engine.script = [*bad, *good]
    with Feed(index, [source(engine)]) as feed:
        assert feed.wait()
        (row,) = feed.sources()
    assert (row.malformed, row.applied) == (3, 1)


@pytest.mark.parametrize("number_of_marker", [0, 2**64 - 1])
def test_either_mark_ends_a_replay(
    index: kvindex.Indexer, start: Start, number_of_marker: int
) -> None:
    engine = start()
    engine.publish(chain(1)[0])
    batches = engine.answers(0)[:-1]
    payload = b"" if number_of_marker == 0 else b"ignored"
    marker = [b"", b"", number_of_marker.to_bytes(8, "big"), payload]
    engine.script = [*batches, marker]
    with Feed(index, [source(engine)], replay_timeout=60.0) as feed:
        assert feed.wait(timeout=2.0)
        assert feed.sources()[0].applied == 1


def test_many_batches_published_during_the_replay_come_once_and_in_order(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    payloads = chain(40)
    for payload in payloads[:20]:
        engine.publish(payload)
    engine.gate.clear()
    with Feed(index, [source(engine)]) as feed:
        engine.subscribed()
        engine.asked(1)
        for payload in payloads[20:]:
            engine.publish(payload)
        assert feed.wait(until=lambda rows: rows[0].held == 20)
        engine.gate.set()
        assert feed.wait(until={"w1": 39})
        assert feed.wait()
        (row,) = feed.sources()
    assert (row.applied, row.gaps, row.lost) == (40, 0, 0)
    assert row.duplicates == row.replayed - 20
    assert depths(index, "".join(chr(ord("A") + i) for i in range(40))) == {"w1": 40}

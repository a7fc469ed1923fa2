"""Order, duplicates, gaps and restarts, one decision at a time."""

from itertools import pairwise

import pytest

from kvindex.feeds.state import Tally
from kvindex.feeds.tracker import REMEMBERED
from tests.feeds.simulation import Simulation


def live(*, batches: int = 0, **options: object) -> Simulation:
    """Return a simulation that is connected and has applied `batches`."""
    sim = Simulation(**options)  # type: ignore[arg-type]
    sim.connect()
    if sim.exchange is not None:
        sim.replay()
    for _ in range(batches):
        sim.publish()
        sim.deliver()
    assert sim.seqs == list(range(batches))
    assert sim.status() == "live"
    return sim


def test_connecting_asks_for_everything() -> None:
    sim = Simulation()
    assert sim.status() == "connecting"
    sim.publish()
    sim.publish()
    sim.connect()
    assert sim.status() == "replaying"
    assert sim.asked() == 0
    sim.replay()
    assert sim.seqs == [0, 1]
    assert sim.status() == "live"


def test_without_a_replay_endpoint_nothing_is_asked_for() -> None:
    sim = live(replay=False, batches=2)
    sim.disconnect()
    sim.connect()
    assert sim.asked() is None
    assert sim.sink.resets == 0


def test_a_gap_is_filled_before_what_came_after_it() -> None:
    sim = live(batches=2)
    sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    assert sim.seqs == [0, 1]
    assert sim.tally.held == 1
    sim.replay()
    assert sim.seqs == [0, 1, 2, 3]
    assert (sim.tally.gaps, sim.tally.last_gap, sim.tally.lost) == (1, (2, 2), 0)


def test_a_gap_without_replay_is_lost_and_reported_once() -> None:
    sim = live(replay=False, batches=2)
    sim.publish(lost=True)
    sim.publish()
    sim.publish()
    sim.settle()
    assert sim.seqs == [0, 1, 3, 4]
    assert (sim.tally.gaps, sim.tally.lost) == (1, 1)
    assert sim.tally.lost_ranges == ((2, 2),)
    assert sim.sink.resets == 0


def test_a_gap_resets_if_asked_to() -> None:
    sim = live(replay=False, batches=2, on_gap="reset")
    sim.publish(lost=True)
    sim.publish()
    sim.settle()
    assert sim.seqs == [3]
    assert (sim.tally.resets, sim.tally.restarts) == (1, 0)


def test_the_first_contact_resets_nothing() -> None:
    sim = Simulation(replay=False, on_gap="reset")
    sim.publish()
    sim.connect()
    sim.publish()
    sim.settle()
    assert sim.seqs == [1]
    assert sim.tally.lost_ranges == ((0, 0),)
    assert sim.sink.resets == 0


def test_a_gap_that_the_replay_does_not_fill_ends_with_it() -> None:
    sim = live(batches=2)
    sim.publish(unsent=True)
    sim.publish()
    sim.deliver()
    sim.replay()
    assert sim.seqs == [0, 1, 3]
    assert sim.tally.lost_ranges == ((2, 2),)
    assert sim.asked() is None


def test_what_is_held_fills_the_holes_of_a_replay() -> None:
    sim = live(batches=1, buffer_steps=2)
    sim.publish(lost=True)
    for _ in range(4):
        sim.publish()
    while sim.deliver():
        pass
    sim.replay()
    assert sim.seqs == [0, 2, 3, 4, 5]
    assert sim.tally.lost_ranges == ((1, 1),)


def test_a_batch_lost_while_the_replay_was_under_way_is_asked_for() -> None:
    sim = live(batches=2)
    sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    sim.serve()
    sim.publish(lost=True)
    sim.publish()
    sim.settle()
    assert sim.seqs == [0, 1, 2, 3, 4, 5]
    assert sim.tally.lost == 0


def test_silence_ends_a_replay() -> None:
    sim = live(batches=2, replay_timeout=1.5)
    sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    sim.wait(1.4)
    assert sim.status() == "replaying"
    sim.wait(0.2)
    assert sim.status() == "live"
    assert sim.seqs == [0, 1, 3]
    assert sim.tally.replay_failures == 1
    assert sim.tally.last_error == "replay from 1: no end in time"


def test_a_trickle_does_not_keep_a_replay_open_for_ever() -> None:
    sim = live(batches=1, replay_timeout=1.0, buffer_steps=100)
    for _ in range(50):
        sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    sim.serve()
    answered = 0
    while sim.answer():
        answered += 1
        sim.wait(0.9)
    assert answered == 12
    assert sim.seqs == [*range(12), 51]


def test_a_full_hold_back_ends_a_silent_replay() -> None:
    sim = live(batches=1, hold_back=3)
    sim.publish(lost=True)
    for _ in range(4):
        sim.publish()
        sim.deliver()
    assert sim.seqs == [0, 2, 3, 4, 5]
    assert sim.tally.lost == 1
    assert sim.tally.held == 0


def test_a_full_hold_back_leaves_it_to_a_replay_that_answers() -> None:
    sim = live(batches=1, hold_back=3)
    sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    sim.serve()
    sim.answer()
    for _ in range(5):
        sim.publish()
        sim.deliver()
        assert sim.tally.held <= 3
    sim.settle()
    assert sim.seqs == list(range(8))
    assert sim.tally.lost == 0


def test_a_batch_delivered_again_is_dropped() -> None:
    sim = live(replay=False, batches=4)
    for which in (3, 0, 1):
        sim.tracker.live(*sim.delivered[which], sim.now)
    assert sim.seqs == [0, 1, 2, 3]
    assert (sim.tally.duplicates, sim.tally.restarts) == (3, 0)


def test_a_replay_overtakes_live_batches() -> None:
    sim = Simulation()
    sim.connect()
    for _ in range(3 * REMEMBERED):
        sim.publish()
    sim.deliver()
    sim.replay()
    while sim.deliver():
        pass
    assert sim.seqs == list(range(3 * REMEMBERED))
    assert sim.tally.restarts == 0
    assert sim.tally.duplicates == 3 * REMEMBERED


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("first", [0, 2])
def test_a_number_that_goes_back_is_another_engine(*, replay: bool, first: int) -> None:
    sim = live(replay=replay, batches=5)
    sim.engine = 2
    sim.stream.clear()
    sim.buffer.clear()
    sim.next = 0
    for seq in range(4):
        sim.publish(lost=seq < first)
    sim.settle()
    assert sim.tally.restarts == 1
    assert sim.sink.resets == 1
    assert sim.sink.applied == (sim.stream if replay else sim.stream[first:])
    assert sim.tally.lost == (0 if replay else first)


def test_a_number_older_than_memory_is_another_engine() -> None:
    sim = live(replay=False, batches=REMEMBERED + 10)
    sim.tracker.live(0, b"another", sim.now)
    assert sim.sink.applied == [(0, b"another")]


def test_a_lost_batch_that_comes_late_is_dropped() -> None:
    sim = live(replay=False, batches=2)
    late = (sim.publish(lost=True), sim.stream[-1][1])
    sim.publish()
    sim.deliver()
    sim.tracker.live(*late, sim.now)
    sim.publish()
    sim.deliver()
    assert sim.seqs == [0, 1, 3, 4]
    assert (sim.tally.restarts, sim.tally.duplicates) == (0, 1)


def test_an_engine_that_begins_inside_a_gap_is_recognised_by_its_second_batch() -> None:
    sim = live(replay=False, batches=2)
    for _ in range(5):
        sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    sim.tracker.live(3, b"another 3", sim.now)
    sim.tracker.live(4, b"another 4", sim.now)
    assert sim.sink.applied == [(3, b"another 3"), (4, b"another 4")]
    assert (sim.tally.restarts, sim.tally.duplicates) == (1, 0)


def test_a_reconnect_to_the_same_engine_brings_what_was_missed() -> None:
    sim = live(batches=3)
    sim.disconnect()
    assert sim.status() == "connecting"
    sim.publish()
    sim.connect()
    assert sim.asked() == 2
    sim.replay()
    assert sim.seqs == [0, 1, 2, 3]
    assert sim.sink.resets == 0


@pytest.mark.parametrize("published", [0, 1, 3, 5])
def test_a_reconnect_to_another_engine_starts_anew(published: int) -> None:
    sim = live(batches=3)
    sim.restart()
    for _ in range(published):
        sim.publish()
    sim.connect()
    sim.settle()
    assert sim.tally.restarts == 1
    assert sim.sink.applied == sim.stream
    assert sim.tally.replays == 3


def test_a_reconnect_whose_batch_is_no_longer_kept_starts_anew() -> None:
    sim = live(batches=3, buffer_steps=2)
    sim.disconnect()
    for _ in range(4):
        sim.publish()
    sim.connect()
    sim.settle()
    assert sim.seqs == [5, 6]
    assert sim.tally.restarts == 1
    assert sim.tally.lost_ranges == ((0, 4),)


def test_a_gap_whose_batch_is_no_longer_kept_keeps_the_state() -> None:
    sim = live(batches=3, buffer_steps=2)
    for _ in range(4):
        sim.publish(lost=True)
    sim.publish()
    sim.settle()
    assert sim.seqs == [0, 1, 2, 6, 7]
    assert sim.tally.restarts == 0
    assert sim.tally.lost_ranges == ((3, 5),)


def test_a_jump_to_another_engine_is_seen_by_its_replay() -> None:
    sim = live(batches=3)
    sim.engine = 2
    sim.stream.clear()
    sim.buffer.clear()
    sim.next = 0
    for _ in range(5):
        sim.publish(lost=True)
    sim.publish()
    sim.settle()
    assert sim.tally.restarts == 1
    assert sim.sink.applied == sim.stream


def test_a_reconnect_that_is_not_answered_decides_nothing() -> None:
    sim = live(batches=3)
    sim.disconnect()
    sim.connect()
    sim.wait(3.0)
    assert sim.status() == "live"
    assert sim.sink.resets == 0


def test_a_reconnect_that_was_not_answered_is_decided_by_the_next_check() -> None:
    sim = live(batches=3, check_interval=5.0)
    sim.restart()
    sim.connect()
    sim.wait(3.0)
    assert sim.sink.resets == 0
    sim.wait(11.0)
    sim.replay()
    assert sim.tally.restarts == 1


def test_a_silent_source_is_asked_for_what_was_missed() -> None:
    sim = live(batches=2, check_interval=5.0)
    sim.publish(lost=True)
    sim.wait(4.9)
    assert sim.asked() is None
    sim.wait(0.2)
    assert sim.asked() == 1
    assert sim.status() == "live"
    sim.replay()
    assert sim.seqs == [0, 1, 2]


def test_a_check_that_finds_nothing_changes_nothing() -> None:
    sim = live(batches=2, check_interval=5.0, buffer_steps=0)
    sim.wait(5.1)
    sim.replay()
    assert sim.seqs == [0, 1]
    assert sim.sink.resets == 0


def test_a_live_batch_does_not_wait_for_a_check() -> None:
    sim = live(batches=2, check_interval=5.0)
    sim.wait(5.1)
    sim.publish()
    sim.deliver()
    assert sim.seqs == [0, 1, 2]
    assert sim.asked() is None


def test_checks_that_fail_become_rare() -> None:
    sim = live(batches=2, check_interval=1.0, replay_timeout=0.5)
    asked = []
    for _ in range(2400):
        before = sim.exchange
        sim.wait(0.125)
        if before is None and sim.exchange is not None:
            asked.append(sim.now)
    waits = [b - a for a, b in pairwise(asked)]
    assert waits == sorted(waits)
    assert 64 <= waits[-1] <= 66


def test_a_long_replay_may_come_before_the_first_live_batch() -> None:
    sim = Simulation()
    sim.connect()
    for _ in range(REMEMBERED + 10):
        sim.publish()
    sim.replay()
    sim.deliver_all()
    assert sim.tally.restarts == 0
    # Nothing tells such a batch from another engine's, so the replay is asked.
    assert sim.asked() == REMEMBERED + 9
    sim.settle()
    assert sim.seqs == list(range(REMEMBERED + 10))


def test_a_first_live_batch_older_than_memory_may_be_another_engines() -> None:
    sim = Simulation()
    sim.connect()
    for _ in range(REMEMBERED + 10):
        sim.publish(lost=True)
    sim.replay()
    sim.engine = 2
    sim.stream.clear()
    sim.buffer.clear()
    sim.next = 0
    sim.publish()
    sim.deliver()
    for _ in range(REMEMBERED + 20):
        sim.publish(lost=True)
    sim.settle()
    assert sim.sink.applied == sim.stream
    assert sim.tally.restarts == 1


def test_what_an_earlier_engine_left_held_gives_way_to_the_replay() -> None:
    sim = Simulation()
    sim.connect()
    sim.publish(lost=True)
    for _ in range(3):
        sim.publish()
    sim.restart()
    sim.publish()
    sim.publish()
    sim.connect()
    sim.deliver_all()
    assert sim.tally.held == 3
    sim.settle()
    assert sim.sink.applied == sim.stream == [(0, b"2:0"), (1, b"2:1")]


def in_doubt() -> Simulation:
    """Return a simulation whose reconnect to another engine was not answered."""
    sim = live(batches=3, check_interval=5.0)
    sim.restart()
    for _ in range(3):
        sim.publish()
    sim.connect()
    sim.wait(3.0)
    assert sim.status() == "live"
    return sim


def test_live_batches_do_not_put_off_what_is_in_doubt() -> None:
    sim = in_doubt()
    for _ in range(11):
        sim.publish()
        sim.deliver()
        sim.wait(1.0)
    assert sim.asked() == 2
    sim.replay()
    sim.settle()
    assert sim.tally.restarts == 1
    assert sim.sink.applied == sim.stream


def test_live_batches_wait_for_what_is_in_doubt() -> None:
    sim = in_doubt()
    sim.wait(11.0)
    assert sim.asked() == 2
    sim.publish()
    sim.deliver()
    assert sim.seqs == [0, 1, 2]
    sim.settle()
    assert sim.sink.applied == sim.stream


def test_an_answer_ends_the_doubt() -> None:
    sim = live(batches=3)
    sim.disconnect()
    sim.connect()
    sim.replay()
    for _ in range(3):
        sim.publish()
        sim.deliver()
    sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    assert sim.asked() == 5


def test_the_gaps_of_one_engine_mean_nothing_for_the_next() -> None:
    sim = live(replay=False, batches=2)
    for _ in range(3):
        sim.publish(lost=True)
    sim.publish()
    sim.deliver()
    for engine in (2, 3):
        sim.tracker.live(3, f"{engine}:3".encode(), sim.now)
        sim.tracker.live(4, f"{engine}:4".encode(), sim.now)
        assert sim.seqs == [3, 4]
    sim.tracker.live(2, b"4:2", sim.now)
    assert sim.sink.applied == [(2, b"4:2")]
    assert sim.tally.restarts == 3


def test_what_an_earlier_feed_has_applied_is_dropped_by_the_index() -> None:
    sim = Simulation(had=3)
    for _ in range(5):
        sim.publish()
    sim.connect()
    sim.replay()
    sim.publish()
    sim.deliver()
    assert sim.seqs == [3, 4, 5]
    assert sim.sink.resets == 0


@pytest.mark.parametrize("replay", [False, True])
def test_news_that_the_index_has_had_come_from_another_engine(*, replay: bool) -> None:
    sim = Simulation(had=7, replay=replay)
    for _ in range(3):
        sim.publish()
    sim.connect()
    sim.settle()
    assert sim.sink.resets == 0
    sim.publish()
    sim.settle()
    assert sim.seqs == ([0, 1, 2, 3] if replay else [3])
    assert sim.tally.restarts == 1


def test_what_somebody_else_applies_later_means_no_other_engine() -> None:
    sim = live(batches=2)
    sim.sink.had = 5
    sim.publish()
    sim.deliver()
    assert sim.tally.restarts == 0


def test_a_state_has_the_fields_that_are_counted() -> None:
    from kvindex.feeds import SourceState  # noqa: PLC0415

    shown = list(SourceState.__dataclass_fields__)
    assert shown == [
        "worker",
        "dp_rank",
        "endpoint",
        "source",
        "pool",
        "status",
        *Tally.__dataclass_fields__,
    ]

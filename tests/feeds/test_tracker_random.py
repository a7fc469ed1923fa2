"""Order, duplicates, gaps and restarts, whatever happens and in whatever order."""

from hypothesis import given
from hypothesis import strategies as st

from tests.feeds.simulation import Simulation

ENGINE = ("publish", "lose", "deliver", "serve", "answer")
STEPS = (*ENGINE, "again", "reconnect", "restart", "wait")


def play(sim: Simulation, step: str, data: st.DataObject) -> None:
    """Let one thing happen."""
    if step in ("publish", "lose"):
        sim.publish(lost=step == "lose")
    elif step == "again":
        sim.again(data.draw(st.integers(0, 4)))
    elif step == "wait":
        sim.wait(0.5)
    elif step == "reconnect":
        sim.disconnect()
        sim.connect()
    elif step == "restart":
        replace_engine(sim, data)
    else:
        getattr(sim, step)()


def replace_engine(sim: Simulation, data: st.DataObject) -> None:
    """Let another engine take over, before or after it has published."""
    if not sim.sink.applied:
        # With nothing to compare, the old engine's batches must be in time.
        sim.deliver_all()
    sim.restart()
    for _ in range(data.draw(st.integers(0, 4), "published")):
        sim.publish()
    sim.connect()
    for _ in range(data.draw(st.integers(0, 2), "published since")):
        sim.publish()
    # What the old engine had sent is read before any answer.
    sim.deliver_all()


@given(st.data())
def test_whatever_happens_the_engine_that_is_there_is_told_in_full(
    data: st.DataObject,
) -> None:
    sim = Simulation(replay_timeout=1.0)
    sim.connect()
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=60)):
        play(sim, step, data)
    sim.disconnect()
    sim.connect()
    sim.settle()
    lost = {
        seq for first, last in sim.tally.lost_ranges for seq in range(first, last + 1)
    }
    missing = set(sim.stream) - set(sim.sink.applied)
    assert set(sim.sink.applied) <= set(sim.stream)
    assert {seq for seq, _ in missing} <= lost


@given(st.data())
def test_every_number_is_applied_or_reported_lost(data: st.DataObject) -> None:
    sim = Simulation(
        hold_back=data.draw(st.integers(1, 3), "hold_back"),
        buffer_steps=data.draw(st.sampled_from([1, 3, None]), "buffer_steps"),
    )
    sim.connect()
    for step in data.draw(st.lists(st.sampled_from(ENGINE), max_size=60)):
        play(sim, step, data)
        assert sim.tally.held <= 3
    sim.publish()
    sim.settle()
    assert sim.sink.resets == 0
    assert sim.seqs[-1] == sim.next - 1
    assert sim.tally.lost + len(sim.seqs) == sim.next

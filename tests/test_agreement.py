"""The index agrees with the model: random episodes, and a state machine.

`KVINDEX_EPISODES` says how many episodes are played, `KVINDEX_SEED` which is the
first.
"""

import os
import time
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.episodes import EpisodeError, run, summary
from tests.episodes_duel import Duel
from tests.episodes_shrink import readable
from tests.episodes_steps import Batch, Episode, Step
from tests.episodes_world import World

EPISODES = int(os.environ.get("KVINDEX_EPISODES", "300"))
FIRST_SEED = int(os.environ.get("KVINDEX_SEED", "1"))
ENOUGH = 300
SITUATIONS = (
    # every reason there is
    *("unknown_type", "malformed", "extra_keys", "parent", "duplicate_hash"),
    *("tokens", "partial", "orphan", "orphan_dropped", "unknown_block"),
    *("unresolved", "ambiguous", "medium", "block_size", "group", "lora_id"),
    *("epoch", "unregistered", "duplicate"),
    # other outcomes, and what the state has in it
    *("gap", "attached", "cleared", "undecodable", "strict faults"),
    *("matched device", "matched host", "matched disk", "matched external"),
    *("with units", "with pairs", "with images", "with several copies"),
    *("with aliases", "with shared names", "with waiting", "with taken waiting"),
    *("with ages", "expired"),
)

seeds_of_random = st.integers(0, 2**32)


@pytest.mark.timeout(120 + EPISODES)
def test_index_and_model_agree_over_random_episodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + EPISODES)
    started = time.perf_counter()
    try:
        seen = run(seeds)
    except EpisodeError as error:
        pytest.fail(str(error), pytrace=False)
    with capsys.disabled():
        print("\n" + summary(seeds, seen, time.perf_counter() - started))  # noqa: T201
    if len(seeds) >= ENOUGH:
        assert [name for name in SITUATIONS if not seen[name]] == []


class Agreement(RuleBasedStateMachine):
    """An index and a model that are told the same in an order hypothesis chooses."""

    @initialize(seed=seeds_of_random)
    def begin(self, seed: int) -> None:
        """Draw a world and make both sides."""
        self.seed = seed
        self.world = World(Random(seed))
        self.duel = Duel(self.world.settings)
        self.steps: list[Step] = []
        for step in self.world.first_steps():
            self.do(step)

    def do(self, step: Step | None) -> None:
        """Do one step on both sides and compare every answer."""
        if step is None:
            return
        self.steps.append(step)
        queries = tuple(self.world.queries(4))
        story = Episode(self.seed, self.world.settings, tuple(self.steps), queries)
        try:
            self.duel.play(step)
            self.duel.compare(queries, thorough=True)
        except Exception:
            note(readable(story))
            raise

    @rule(seed=seeds_of_random)
    def anything(self, seed: int) -> None:
        """Let an engine work, or the operator, or chance."""
        self.world.random = Random(seed)
        self.do(self.world.step())

    @rule(seed=seeds_of_random, which=st.integers(0, 5))
    def work(self, seed: int, which: int) -> None:
        """Let one engine work."""
        self.world.random = Random(seed)
        self.do(self.world.batch(self.world.engines[which % len(self.world.engines)]))

    @rule(seed=seeds_of_random, times=st.integers(1, 3))
    def repeat(self, seed: int, times: int) -> None:
        """Deliver the last batch again, with its old number or without one."""
        batches = [step for step in self.steps if isinstance(step, Batch)]
        for _ in range(times if batches else 0):
            self.world.random = Random(seed)
            self.do(batches[-1])


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

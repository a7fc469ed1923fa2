"""One candidate is picked: the cheapest, or by chance in the right proportions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import kvindex
from kvindex.policy import Filter, Random, Router, Selection
from tests.policy.fleets import fleet

PICKS = 8_000


def shares(
    selection: Selection, costs: list[float], requests: list[int] | None = None
) -> list[float]:
    """Return how often each candidate is picked."""
    given = None if requests is None else np.array(requests)
    picks = Counter(selection.pick(np.array(costs), given) for _ in range(PICKS))
    return [picks[at] / PICKS for at in range(len(costs))]


def test_equal_candidates_get_equal_shares() -> None:
    for share in shares(Selection(seed=1), [3.0] * 8):
        assert share == pytest.approx(1 / 8, abs=0.02)


def test_the_lowest_cost_wins_wherever_it_stands() -> None:
    costs = [5.0, 4.0, 3.0, 4.0]
    for turn in range(4):
        turned = costs[turn:] + costs[:turn]
        assert shares(Selection(seed=1), turned)[turned.index(3.0)] == 1


def test_of_equal_costs_the_fewest_requests_decide_before_chance() -> None:
    got = shares(Selection(seed=1), [1.0, 1.0, 1.0, 2.0], [3, 2, 2, 0])
    assert got[0] == got[3] == 0
    assert got[1] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 4.0])
def test_softmax_goes_by_costs_scaled_to_one(scale: float, temperature: float) -> None:
    costs = [0.0, 0.25, 0.5, 1.0]
    weights = [math.exp(-cost / temperature) for cost in costs]
    got = shares(
        Selection(temperature, seed=2), [7 * scale + scale * cost for cost in costs]
    )
    assert got == pytest.approx([w / sum(weights) for w in weights], abs=0.02)


def test_softmax_over_equal_costs_is_even_whatever_runs_there() -> None:
    got = shares(Selection(0.5, seed=3), [2.0, 2.0], [9, 0])
    assert got == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_seed_makes_choices_reproducible(temperature: float) -> None:
    costs = np.array([1.0, 1.0, 1.0, 1.1])

    def picks(seed: int) -> list[int]:
        selection = Selection(temperature, seed=seed)
        return [selection.pick(costs) for _ in range(50)]

    assert picks(5) == picks(5)
    assert picks(5) != picks(6)


def test_a_temperature_of_a_call_is_not_kept() -> None:
    selection = Selection(seed=4)
    costs = np.array([1.0, 2.0])
    assert {selection.pick(costs, temperature=5.0) for _ in range(200)} == {0, 1}
    assert {selection.pick(costs) for _ in range(200)} == {0}


@pytest.mark.parametrize("temperature", [-1.0, math.nan, math.inf])
def test_a_temperature_without_a_meaning_is_refused(temperature: float) -> None:
    with pytest.raises(kvindex.ConfigError, match="temperature"):
        Selection(temperature)
    with pytest.raises(kvindex.ConfigError, match="temperature"):
        Selection().pick(np.array([1.0]), temperature=temperature)


def test_nobody_to_pick_from_is_an_error() -> None:
    with pytest.raises(kvindex.ConfigError, match="no candidate"):
        Selection().pick(np.array([]))


def test_a_router_spreads_prompts_that_nobody_holds_over_all_workers() -> None:
    router = Router(fleet({}), [f"w{i}" for i in range(8)], selection=Selection(seed=1))
    picks: Counter[str] = Counter()
    for _ in range(PICKS):
        decision = router.route(range(64))
        picks[decision.worker] += 1
        router.done(decision)
    for worker in router.workers:
        assert picks[str(worker)] / PICKS == pytest.approx(1 / 8, abs=0.02)


def test_a_router_prefers_the_idle_of_two_equal_holders_in_either_order() -> None:
    index = fleet({"w0": 8, "w1": 8})
    for names in (["w0", "w1"], ["w1", "w0"]):
        router = Router(index, names)
        router.load.add("other", "w0")
        for _ in range(20):
            decision = router.route(range(128))
            assert decision.worker == "w1"
            router.done(decision)


def test_random_and_filters_go_together() -> None:
    router = Router(fleet({"w0": 8}), ["w0", "w1", "w2"], policy=Random(seed=1))
    only = Filter(allowed={"w1", "w2"})
    picked = {router.route(range(128), only=only).worker for _ in range(50)}
    assert picked == {"w1", "w2"}


def test_random_looks_neither_at_prefixes_nor_at_load() -> None:
    router = Router(fleet({"w0": 8}), ["w0", "w1", "w2"], policy=Random(seed=1))
    router.load.add("other", "w1")
    picks: Counter[str] = Counter()
    for _ in range(3_000):
        decision = router.route(range(128))
        picks[decision.worker] += 1
        router.done(decision)
    for worker in ("w0", "w1", "w2"):
        assert picks[worker] / 3_000 == pytest.approx(1 / 3, abs=0.04)

"""The policies of other gateways choose as these do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import kvindex
from kvindex.policy import (
    DYNAMO,
    LLM_D,
    VLLM_ROUTER,
    CacheThreshold,
    HighestScore,
    LeastLoaded,
    LongestPrefix,
    Policy,
    RoundRobin,
    Router,
    Selection,
)
from tests.policy.fleets import fleet, store
from tests.policy.views import view

if TYPE_CHECKING:
    from kvindex.policy import View

PROMPT = range(160)


def best(policy: Policy, seen: View) -> int:
    """Return whom a policy has chosen."""
    return Selection(seed=1).pick(policy.costs(seen), seen.requests)


def test_the_longest_prefix_wins_whatever_it_is_worth_or_costs() -> None:
    seen = view(depths=[3, 5, 4], scores=[3.0, 1.0, 4.0], requests=[0, 90, 0])
    assert best(LongestPrefix(), seen) == 1


def test_without_a_prefix_the_least_loaded_is_chosen() -> None:
    for policy in (LongestPrefix(), HighestScore(), CacheThreshold(), LeastLoaded()):
        assert best(policy, view(requests=[3, 1, 2])) == 1


def test_the_highest_score_goes_by_the_tiers_weights() -> None:
    index = fleet({"gpu": 7})
    store(index, "host", 9, "CPU")
    store(index, "disk", 10, "STORAGE")
    names = ["gpu", "host", "disk"]
    winners = {
        label: Router(index, names, policy=HighestScore(weights)).route(PROMPT).worker
        for label, weights in {
            "dynamo": DYNAMO,
            "vllm": VLLM_ROUTER,
            "llm-d": LLM_D,
            "flat": {"host": 1.0, "disk": 1.0},
        }.items()
    }
    # 7, 6.75, 2.5; 7, 7.2, 6; 7, 7.2, 2.5; 7, 9, 10.
    assert winners == {"dynamo": "gpu", "vllm": "host", "llm-d": "host", "flat": "disk"}


@pytest.mark.parametrize(
    ("requests", "depths", "chosen"),
    [
        ([70, 5], [10, 0], 1),  # out of balance: 65 more, and more than 1.5 times
        ([69, 5], [10, 0], 0),  # only 64 more
        ([202, 134], [10, 0], 1),  # 68 more, just above 1.5 times
        ([201, 134], [10, 0], 0),  # 67 more, and 1.5 times, which is not above
        ([202, 135], [10, 0], 0),  # 67 more, but within 1.5 times
        ([5, 4], [4, 0], 0),  # 4 of 10 blocks are enough
        ([5, 4], [3, 0], 1),  # 3 of 10 are not more than 0.3
    ],
)
def test_a_cache_threshold_goes_by_prefix_or_by_load(
    requests: list[int], depths: list[int], chosen: int
) -> None:
    seen = view(requests=requests, depths=depths)
    assert best(CacheThreshold(), seen) == chosen


@pytest.mark.parametrize(
    "given",
    [
        {"cache_threshold": 1.1},
        {"cache_threshold": float("nan")},
        {"balance_abs_threshold": -1},
        {"balance_rel_threshold": float("inf")},
    ],
)
def test_a_threshold_without_a_meaning_is_refused_by_name(
    given: dict[str, Any],
) -> None:
    with pytest.raises(kvindex.ConfigError, match=next(iter(given))):
        CacheThreshold(**given)


def test_round_robin_takes_turns_whatever_is_held() -> None:
    router = Router(fleet({"w1": 10}), ["w0", "w1", "w2"], policy=RoundRobin())
    picked = [router.route(PROMPT).worker for _ in range(6)]
    assert picked == ["w0", "w1", "w2"] * 2

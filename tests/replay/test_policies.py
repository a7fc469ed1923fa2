"""Policies by name are those that their settings say."""

from __future__ import annotations

import pytest

import kvindex
from kvindex.policy import (
    CacheThreshold,
    Cost,
    HighestScore,
    LeastLoaded,
    LongestPrefix,
    Policy,
    Predictions,
    Random,
    RoundRobin,
)
from kvindex.replay import DEFAULT_POLICIES, policy


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("cost", Cost()),
        (
            "cost:scale=10,decay=0.5,active=2,host=0.5",
            Cost(10.0, 0.5, 2.0, {"host": 0.5}),
        ),
        ("highest-score:host=0.8", HighestScore({"host": 0.8})),
        ("longest-prefix", LongestPrefix()),
        ("cache-threshold:cache=0.5,abs=8,rel=2", CacheThreshold(0.5, 8.0, 2.0)),
        ("least-loaded", LeastLoaded()),
        ("round-robin", RoundRobin()),
        ("random", Random(3)),
    ],
)
def test_a_text_is_a_policy_and_its_settings(text: str, made: Policy) -> None:
    named = policy(text)
    assert named.label == text
    assert named.make(3) == made


def test_temperature_is_a_setting_of_all() -> None:
    assert policy("cost:temperature=0.5").temperature == 0.5
    assert policy("longest-prefix:temperature=1").temperature == 1.0
    named = policy("cache-threshold:temperature=1,abs=8")
    assert named.make(0) == CacheThreshold(balance_abs_threshold=8.0)


def test_only_those_that_look_at_prefixes_use_the_index() -> None:
    blind = {text for text in DEFAULT_POLICIES if not policy(text).uses_index}
    assert blind == {"least-loaded", "round-robin", "random"}


def test_the_approximate_mode_hears_of_no_events() -> None:
    deaf = {text for text in DEFAULT_POLICIES if not policy(text).hears}
    blind = {"least-loaded", "round-robin", "random"}
    assert deaf == {"approximate", "approximate:scale=10", *blind}
    named = policy("approximate:scale=10,capacity=50")
    assert named.predictions == Predictions(capacity=50)
    assert named.make(0) == Cost(10.0)
    assert policy("approximate").predictions == Predictions()


def test_predictions_beside_events_are_a_setting() -> None:
    named = policy("cost:ttl=5")
    assert (named.predictions, named.hears) == (Predictions(5.0), True)
    assert policy("cost").predictions is None
    with pytest.raises(kvindex.ConfigError, match="ttl is 0"):
        policy("cost:ttl=0")


def test_each_run_has_turns_of_its_own() -> None:
    named = policy("round-robin")
    assert named.make(0) is not named.make(0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("costs", "policy is 'costs': expected one of cost"),
        ("cost:hosts=1", "cost has no setting 'hosts': expected one of scale"),
        ("random:host=1", "random has no setting 'host'"),
        ("cost:host=much", "host of cost is 'much': expected a number"),
        ("cost:scale=-1", "prefill_load_scale is -1"),
    ],
)
def test_a_text_without_a_meaning_is_refused_with_the_choices(
    text: str, told: str
) -> None:
    with pytest.raises(kvindex.ConfigError, match=told):
        policy(text)

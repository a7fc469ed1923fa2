"""A router that expects what it has just decided."""

import math

import pytest

import kvindex
from kvindex.policy import (
    Disaggregated,
    LongestPrefix,
    Predictions,
    Router,
    Selection,
)
from kvindex.policy.filter import Candidate

BLOCK = 4
PROMPT = list(range(5 * BLOCK))
WORKERS: list[Candidate] = ["w0", "w1", "w2", ("w3", 1)]


def router(predictions: Predictions | None, **options: object) -> Router:
    """Return a router that follows prefixes alone."""
    return Router(
        kvindex.Indexer(block_size=BLOCK),
        WORKERS,
        policy=LongestPrefix(),
        selection=Selection(seed=3),
        predictions=predictions,
        **options,  # type: ignore[arg-type]
    )


def test_the_second_prompt_follows_the_first() -> None:
    ours = router(Predictions())
    first = ours.route(PROMPT, now=0.0)
    assert first.row.depth == 0
    second = ours.route([*PROMPT, 7, 7, 7, 7], now=1.0)
    assert (second.worker, second.dp_rank) == (first.worker, first.dp_rank)
    assert (second.row.predicted, second.prefill_tokens) == (5, BLOCK)


def test_without_predictions_nothing_is_expected() -> None:
    ours = router(None)
    ours.route(PROMPT, now=0.0)
    assert ours.route(PROMPT, now=1.0).row.depth == 0
    assert ours.index.stats()["predicted"] == 0


def test_keys_are_expected_as_prompts_are() -> None:
    ours = router(Predictions())
    keys = kvindex.block_keys(PROMPT, block_size=BLOCK)
    first = ours.route_keys(keys, prompt_tokens=len(PROMPT), now=0.0)
    assert ours.route(PROMPT, now=1.0).worker == first.worker


def test_namespaces_are_expected_apart() -> None:
    ours = router(Predictions())
    ours.route(PROMPT, lora_name="x", now=0.0)
    assert ours.route(PROMPT, now=1.0).row.depth == 0
    assert ours.route(PROMPT, lora_name="x", now=1.0).row.depth == 5


def test_what_is_due_is_gone_a_hundredth_later() -> None:
    ours = router(Predictions(ttl=100.0))
    ours.route(PROMPT, now=0.0)
    ours.route(list(range(100, 100 + BLOCK)), now=99.5)
    assert ours.route(PROMPT, now=101.0).row.depth == 0


def test_predicting_again_begins_anew() -> None:
    ours = router(Predictions(ttl=10.0))
    ours.route(PROMPT, now=0.0)
    ours.route(PROMPT, now=8.0)
    assert ours.route(PROMPT, now=12.0).row.depth == 5


def test_events_confirm_and_are_not_added() -> None:
    ours = router(Predictions(ttl=5.0))
    first = ours.route(PROMPT, now=0.0)
    stored = kvindex.BlockStored([1, 2, 3], PROMPT[: 3 * BLOCK])
    ours.index.apply([stored], worker=first.worker, dp_rank=first.dp_rank)
    row = ours.route(PROMPT, now=1.0).row
    assert (row.depth, row.device, row.predicted) == (5, 3, 2)
    assert ours.route(PROMPT, now=20.0).row.depth == 3


def test_a_capacity_keeps_the_head_of_a_prompt() -> None:
    ours = router(Predictions(ttl=math.inf, capacity=3))
    first = ours.route(PROMPT, now=0.0)
    assert ours.route(PROMPT, now=1e9).row.predicted == 3
    (state,) = ours.index.workers()
    assert (state.worker, state.dp_rank) == (first.worker, first.dp_rank)


def test_both_pools_expect_what_they_are_sent() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    predictions = Predictions()
    both = Disaggregated(
        Router(index, ["p0"], role="prefill", predictions=predictions),
        Router(index, ["d0"], role="decode", predictions=predictions),
    )
    both.route(PROMPT, now=0.0)
    found = index.match(PROMPT, workers=["p0", "d0"])
    assert list(found.predicted) == [5, 5]


@pytest.mark.parametrize("ttl", [0.0, -1.0, math.nan])
def test_a_time_to_live_is_above_zero(ttl: float) -> None:
    with pytest.raises(kvindex.ConfigError, match=r"ttl is .*: expected more than 0"):
        Predictions(ttl=ttl)


def test_a_capacity_is_a_number_of_blocks() -> None:
    with pytest.raises(kvindex.ConfigError, match="capacity is 0: expected 1 or more"):
        Predictions(capacity=0)

"""Who may serve a prompt at all; that nobody may is an error of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import kvindex
from kvindex.errors import NoEligibleWorkerError
from kvindex.policy import Filter, Limits, Router
from tests.policy.fleets import fleet
from tests.policy.views import COLUMNS, view

PROMPT = range(160)
RANKS = [("w0", 0), ("w0", 1), ("w1", 0), ("w1", 1)]


def chosen(router: Router, only: Filter, count: int = 40) -> set[tuple[str, int]]:
    """Return who is chosen, with nothing running."""
    found = set()
    for _ in range(count):
        decision = router.route(PROMPT, only=only)
        found.add((decision.worker, decision.dp_rank))
        router.done(decision)
    return found


@pytest.fixture
def router() -> Router:
    """Return a router over two workers with two ranks, of which one holds all."""
    return Router(fleet({"w0@0": 10}), RANKS)


def test_a_view_of_some_has_their_entries_and_what_all_share() -> None:
    columns = {name: [at, at + 10, at + 20] for at, name in enumerate(COLUMNS)}
    shared: dict[str, Any] = {
        "prompt_tokens": 7,
        "block_size": 3,
        "device_weight": 0.5,
        "tracks_prefill": False,
    }
    whole = view(**columns, **shared, preference=np.array([1.0, 2.0, 3.0]))
    some = whole.where(np.array([True, False, True]))
    for name, entries in columns.items():
        assert getattr(some, name).tolist() == [entries[0], entries[2]]
    assert {name: getattr(some, name) for name in shared} == shared
    assert some.preference is not None
    assert some.preference.tolist() == [1.0, 3.0]


def test_without_a_filter_the_holder_is_chosen(router: Router) -> None:
    assert chosen(router, Filter()) == {("w0", 0)}


@pytest.mark.parametrize(
    ("only", "left"),
    [
        (Filter(allowed={"w1"}), {("w1", 0), ("w1", 1)}),
        (Filter(allowed=[("w0", 1), "w1"]), {("w0", 1), ("w1", 0), ("w1", 1)}),
        (Filter(pinned="w1"), {("w1", 0), ("w1", 1)}),
        (Filter(pinned=("w1", 1)), {("w1", 1)}),
        (Filter(ranks=range(1, 2)), {("w0", 1), ("w1", 1)}),
        (Filter(allowed={"w1"}, ranks={1}), {("w1", 1)}),
        (Filter(allowed={"w1", "gone"}, pinned=("w1", 0)), {("w1", 0)}),
    ],
)
def test_a_rule_leaves_only_those_that_it_names(
    router: Router, only: Filter, left: set[tuple[str, int]]
) -> None:
    assert chosen(router, only) == left


@pytest.mark.parametrize(
    ("only", "reasons"),
    [
        (Filter(allowed=()), {"allowed": 4}),
        (Filter(pinned="gone"), {"pinned": 4}),
        (Filter(allowed={"w0"}, pinned="w1"), {"allowed": 2, "pinned": 2}),
        (Filter(allowed={"w0"}, ranks={7}), {"allowed": 2, "ranks": 2}),
        (Filter(pinned=("w0", 0), limits=Limits(requests=0)), {"pinned": 3, "busy": 1}),
    ],
)
def test_nobody_left_is_an_error_that_says_why_and_the_next_call_works(
    router: Router, only: Filter, reasons: dict[str, int]
) -> None:
    router.load.add("other", ("w0", 0))
    with pytest.raises(NoEligibleWorkerError) as caught:
        router.route(PROMPT, request="r", only=only)
    assert caught.value.reasons == reasons
    assert isinstance(caught.value, kvindex.KvIndexError)
    assert len(router.load) == 1
    assert router.route(PROMPT, request="r").request == "r"


def test_no_candidates_at_all_is_the_same_error() -> None:
    router = Router(fleet({}))
    with pytest.raises(NoEligibleWorkerError, match="no candidate"):
        router.route(PROMPT)
    router.set_workers(["w0"])
    assert router.route(PROMPT).worker == "w0"


@pytest.mark.parametrize(
    ("over", "at"),
    [
        (Limits(prefill_tokens=99), Limits(prefill_tokens=100)),
        (Limits(decode_blocks=11), Limits(decode_blocks=12)),
        (Limits(requests=0), Limits(requests=1)),
    ],
)
def test_who_has_more_than_a_limit_is_busy(
    router: Router, over: Limits, at: Limits
) -> None:
    # Two blocks are the other request's, ten the prompt's own.
    router.load.add("other", ("w0", 0), chain_keys=[1, 2], prefill_tokens=100)
    with pytest.raises(NoEligibleWorkerError, match="1 by busy"):
        router.route(PROMPT, only=Filter(pinned=("w0", 0), limits=over))
    only = Filter(pinned=("w0", 0), limits=at)
    assert router.route(PROMPT, only=only).candidate == ("w0", 0)


def test_limits_of_a_filter_replace_those_of_the_router(router: Router) -> None:
    router.limits = Limits(requests=0)
    router.load.add("other", ("w0", 0))
    only = Filter(pinned=("w0", 0), limits=Limits())
    assert router.route(PROMPT, only=only).candidate == ("w0", 0)


def test_a_routers_limits_hold_for_all_prompts(router: Router) -> None:
    router.limits = Limits(requests=0)
    picked = {router.route(PROMPT).candidate for _ in range(4)}
    assert picked == set(RANKS)
    with pytest.raises(NoEligibleWorkerError, match="busy"):
        router.route(PROMPT)


@pytest.mark.parametrize("name", ["prefill_tokens", "decode_blocks", "requests"])
def test_a_limit_without_a_meaning_is_refused_by_name(name: str) -> None:
    for value in (-1.0, math.nan):
        with pytest.raises(kvindex.ConfigError, match=name):
            Limits(**{name: value})

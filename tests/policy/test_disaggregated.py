"""Two pools: the prompt is computed in one and answered in the other."""

from __future__ import annotations

import pytest

import kvindex
from kvindex.errors import NoEligibleWorkerError
from kvindex.policy import Bypass, Cost, Disaggregated, Limits, Router, Split
from tests.policy.fleets import fleet

PROMPT = range(160)


def pools(
    held: dict[str, int], bypass: Bypass | None = None, weights: float = 1.0
) -> Disaggregated:
    """Return two pools of two workers."""
    index = fleet(held)
    policy = Cost(weights={"device": weights})
    return Disaggregated(
        Router(index, ["p0", "p1"], role="prefill"),
        Router(index, ["d0", "d1"], role="decode", policy=policy),
        bypass=bypass,
    )


def names(split: Split) -> tuple[str | None, str]:
    """Return the workers of both pools."""
    return split.prefill.worker if split.prefill else None, split.decode.worker


def test_each_pool_goes_by_what_its_own_workers_hold() -> None:
    both = pools({"p1": 4, "d0": 2, "p0": 1, "d1": 1})
    assert names(both.route(PROMPT)) == ("p1", "d0")


def test_a_pool_with_no_device_weight_goes_by_load_alone() -> None:
    both = pools({"d0": 9}, weights=0.0)
    both.decode.load.add("other", "d0", chain_keys=[1])
    assert names(both.route(PROMPT))[1] == "d1"


@pytest.mark.parametrize(
    ("blocks", "bypass", "why"),
    [
        (6, Bypass(tokens=65), "short"),  # 64 tokens are left, 0.4 of the prompt
        (6, Bypass(tokens=64), None),
        (3, Bypass(), None),  # 112 tokens, 0.7
        (4, Bypass(), "short"),
        (10, None, None),
    ],
)
def test_a_short_rest_is_computed_where_it_is_answered(
    blocks: int, bypass: Bypass | None, why: str | None
) -> None:
    split = pools({"d1": blocks}, bypass).route(PROMPT)
    assert split.bypass == why
    assert split.decode.worker == "d1"
    assert (split.prefill is None) == (why is not None)


def test_without_a_prefill_worker_the_decode_worker_computes() -> None:
    both = pools({})
    both.prefill.limits = Limits(requests=0)
    splits = [both.route(PROMPT) for _ in range(3)]
    assert [split.bypass for split in splits] == [None, None, "nobody"]
    assert len(both.decode.load) == 3


def test_without_a_decode_worker_nothing_is_added() -> None:
    both = pools({})
    both.decode.set_workers([])
    with pytest.raises(NoEligibleWorkerError):
        both.route(PROMPT)
    assert len(both.prefill.load) == len(both.decode.load) == 0


def test_a_name_that_one_pool_knows_already_is_added_to_neither() -> None:
    both = pools({})
    both.prefill.load.add("r", "p0")
    with pytest.raises(kvindex.ConfigError, match="running already"):
        both.route(PROMPT, request="r")
    assert (len(both.prefill.load), len(both.decode.load)) == (1, 0)


def test_a_request_leaves_the_prefill_pool_first() -> None:
    both = pools({})
    split = both.route(PROMPT)
    assert (len(both.prefill.load), len(both.decode.load)) == (1, 1)
    both.prefill_complete(split)
    assert (len(both.prefill.load), len(both.decode.load)) == (0, 1)
    assert both.produced(split, 5)
    assert both.done(split)
    assert not both.done(split)
    assert (len(both.prefill.load), len(both.decode.load)) == (0, 0)


def test_the_first_token_frees_the_prefill_worker() -> None:
    both = pools({})
    both.produced(both.route(PROMPT), 1)
    assert len(both.prefill.load) == 0


def test_a_request_that_is_given_up_leaves_both_pools() -> None:
    both = pools({})
    assert both.done(both.route(PROMPT))
    assert (len(both.prefill.load), len(both.decode.load)) == (0, 0)


def test_routers_of_the_wrong_role_are_refused() -> None:
    router = Router(fleet({}), ["w0"])
    with pytest.raises(kvindex.ConfigError, match="prefill router's role is 'both'"):
        Disaggregated(router, router)


@pytest.mark.parametrize("given", [{"tokens": -1}, {"ratio": 1.5}, {"ratio": -0.1}])
def test_a_bypass_without_a_meaning_is_refused_by_name(
    given: dict[str, float],
) -> None:
    with pytest.raises(kvindex.ConfigError, match=next(iter(given))):
        Bypass(**given)

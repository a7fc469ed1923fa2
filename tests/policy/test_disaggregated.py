"""Two pools: the prompt is computed in one and answered in the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kvindex
from kvindex.errors import NoEligibleWorkerError
from kvindex.policy import (
    Bypass,
    Cost,
    Disaggregated,
    Filter,
    LeastLoaded,
    Limits,
    LongestPrefix,
    Override,
    Predictions,
    Router,
    Split,
)
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


@pytest.mark.parametrize(
    ("waiting", "bypass", "why"),
    [
        (100, Bypass(prefill_tokens=99), "busy"),
        (100, Bypass(prefill_tokens=100), None),
        (100, Bypass(tokens=0, prefill_tokens=99), "busy"),
        (9_999, Bypass(), None),
        # The prompt has 10 blocks, of which 2 are in use already; 1 more is another's.
        (100, Bypass(prefill_tokens=99, decode_blocks=11), "busy"),
        (100, Bypass(prefill_tokens=99, decode_blocks=10), None),
    ],
)
def test_a_prompt_passes_a_busy_prefill_worker_by(
    waiting: int, bypass: Bypass, why: str | None
) -> None:
    both = pools({"p0": 9}, bypass)
    # Whom the prompt would go to counts, although another worker idles.
    both.prefill.policy = LongestPrefix()
    both.prefill.load.add("waits", "p0", prefill_tokens=waiting)
    keys = kvindex.chain_keys(kvindex.block_keys(PROMPT, block_size=16))
    for worker in ("d0", "d1"):
        both.decode.load.add(worker, worker, chain_keys=[*keys[:2]])
        both.decode.load.add(f"{worker} too", worker, chain_keys=[1])
    split = both.route(PROMPT)
    assert split.bypass == why
    if why is None:
        assert names(split)[0] == "p0"
    assert len(both.prefill.load) == (1 if why else 2)
    assert len(both.decode.load) == 5


def test_a_full_decode_worker_does_not_compute_a_short_rest() -> None:
    for limit, why in ((9, None), (10, "short")):
        both = pools({"d1": 6}, Bypass(decode_blocks=limit))
        assert both.route(PROMPT).bypass == why


def test_whoever_is_passed_by_is_expected_to_hold_nothing() -> None:
    both = pools({}, Bypass(tokens=0, prefill_tokens=99))
    both.prefill.predictions = Predictions()
    for worker in ("p0", "p1"):
        both.prefill.load.add(worker, worker, prefill_tokens=100)
    assert both.route(PROMPT).bypass == "busy"
    assert both.prefill.index.stats()["predicted"] == 0
    both.bypass = Bypass(tokens=0)
    assert both.route(PROMPT).bypass is None
    assert both.prefill.index.stats()["predicted"] == 10


def test_filters_and_overrides_are_those_of_each_pool() -> None:
    both = pools({"p0": 9, "d0": 9})
    cases: list[tuple[dict[str, Any], tuple[str | None, str]]] = [
        ({}, ("p0", "d0")),
        ({"only": {"prefill": Filter(pinned="p1")}}, ("p1", "d0")),
        ({"only": {"decode": Filter(allowed={"d1"})}}, ("p0", "d1")),
        ({"override": {"prefill": Override(LeastLoaded())}}, ("p1", "d0")),
        ({"override": {"decode": Override(LeastLoaded())}}, ("p0", "d1")),
        ({"only": {"prefill": Filter(pinned="d1")}}, (None, "d0")),
    ]
    for given, chosen in cases:
        # The holders are busy: by load alone the others are chosen.
        both.prefill.load.add("one", "p0")
        both.decode.load.add("two", "d0")
        split = both.route(PROMPT, **given)
        assert names(split) == chosen, given
        both.done(split)
        both.prefill.done("one")
        both.decode.done("two")


def test_a_filter_that_leaves_no_decode_worker_adds_nothing() -> None:
    both = pools({})
    with pytest.raises(NoEligibleWorkerError, match="2 by pinned"):
        both.route(PROMPT, only={"decode": Filter(pinned="p0")})
    assert len(both.prefill.load) == len(both.decode.load) == 0


def test_a_pool_that_there_is_not_is_refused_by_name() -> None:
    both = pools({})
    for given in ({"only": {"both": Filter()}}, {"override": {"both": Override()}}):
        with pytest.raises(kvindex.ConfigError, match="pool is 'both'"):
            both.route(PROMPT, **given)
    assert len(both.decode.load) == 0


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


@pytest.mark.parametrize(
    "given",
    [
        {"tokens": -1},
        {"ratio": 1.5},
        {"ratio": -0.1},
        {"prefill_tokens": -1},
        {"decode_blocks": float("nan")},
    ],
)
def test_a_bypass_without_a_meaning_is_refused_by_name(
    given: dict[str, float],
) -> None:
    with pytest.raises(kvindex.ConfigError, match=next(iter(given))):
        Bypass(**given)


@pytest.mark.parametrize("predictions", [None, Predictions()])
def test_a_prompt_is_hashed_before_the_load_is_locked(
    predictions: Predictions | None,
) -> None:
    both = pools({"p1": 4})
    both.prefill.predictions = predictions
    index = both.prefill.index
    asked: list[bool] = []

    class Watched:
        """An index that looks whether others could decide while it is asked."""

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever it is
            if name.startswith("match"):
                with ThreadPoolExecutor(1) as threads:
                    asked.append(threads.submit(could_decide).result())
            return getattr(index, name)

    def could_decide() -> bool:
        free = both.prefill.load.lock.acquire(blocking=False)
        if free:
            both.prefill.load.lock.release()
        return free

    both.prefill.index = Watched()  # type: ignore[assignment]
    assert names(both.route(PROMPT))[0] == "p1"
    assert asked == [True]

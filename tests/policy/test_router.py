"""A router's decisions follow from the index, the load and the policy."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kvindex
from kvindex.policy import (
    Cost,
    LeastLoaded,
    Load,
    LongestPrefix,
    Override,
    Router,
    Selection,
    WorkerLoad,
)
from tests.policy.fleets import BLOCK, fleet, store

if TYPE_CHECKING:
    from kvindex.policy.view import Floats, View

PROMPT = range(160)


class Slow(LeastLoaded):
    """A policy that lets other threads go first."""

    def costs(self, view: View) -> Floats:
        """Wait, then go by requests."""
        time.sleep(0.02)
        return super().costs(view)


def test_a_decision_names_the_holder_its_row_and_what_is_left_to_compute() -> None:
    index = fleet({"w0": 4, "w1": 2})
    decision = Router(index, ["w1", "w0", "w2"]).route(PROMPT)
    assert (decision.worker, decision.dp_rank) == ("w0", 0)
    assert decision.row == index.match(PROMPT, workers=["w0"])[0]
    assert decision.prefill_tokens == 160 - 4 * BLOCK
    assert decision.cost == (10 - 4) + 10
    assert decision.why == {
        "cost": 16.0,
        "depth": 4,
        "score": 4.0,
        "device": 4,
        "prefill_tokens": 0,
        "decode_blocks": 10,
        "requests": 0,
        "eligible": 3,
        "rank": 0,
    }
    assert decision.alternatives == [("w1", 0, 18.0), ("w2", 0, 20.0)]


def test_load_moves_prompts_away_until_the_prefix_is_worth_the_queue() -> None:
    router = Router(fleet({"w0": 10}), ["w0", "w1"], policy=Cost())
    first = router.route(PROMPT)
    assert first.worker == "w0"
    assert first.prefill_tokens == 0
    # Nothing of it is cached anywhere: 10 blocks to compute, 10 in use.
    other = router.route(range(1_000, 1_160))
    assert other.worker == "w1"
    # w0: nothing to compute and no further block; w1: 20 to compute and 20 in use.
    assert router.route(PROMPT).why["decode_blocks"] == 10


def test_load_goes_when_the_request_goes() -> None:
    router = Router(fleet({"w0": 4}), ["w0"])
    decision = router.route(PROMPT, request="mine")
    assert router.load.workers() == [WorkerLoad("w0", None, 96, 10, 1)]
    assert router.prefill_complete(decision)
    assert router.load.workers() == [WorkerLoad("w0", None, 0, 10, 1)]
    assert router.produced("mine", 33)
    assert router.load.workers() == [WorkerLoad("w0", None, 0, 12, 1)]
    assert router.done(decision)
    assert router.load.workers() == [WorkerLoad("w0", None, 0, 0, 0)]
    assert not router.done("mine")


def test_a_request_that_got_lost_stops_counting_in_time() -> None:
    load = Load(block_size=BLOCK, expiry_seconds=60)
    router = Router(fleet({}), ["w0"], load=load)
    router.route(PROMPT, request="lost", now=0.0)
    router.route(PROMPT, request="next", now=59.0)
    assert len(load) == 2
    router.route(PROMPT, request="later", now=61.0)
    assert len(load) == 2


def test_a_choice_counts_nothing_until_it_begins() -> None:
    router = Router(fleet({"w0": 4}), ["w0", "w1"])
    decision = router.choose(PROMPT, request="mine")
    assert decision.worker == "w0"
    assert len(router.load) == 0
    router.begin(decision)
    assert router.load.workers()[0] == WorkerLoad("w0", None, 96, 10, 1)
    with pytest.raises(kvindex.ConfigError, match="'mine' is running already"):
        router.begin(decision)
    assert router.done("mine")


def test_a_policy_of_one_prompt_is_not_kept() -> None:
    index = fleet({"gpu": 5})
    store(index, "host", 6, "CPU")
    router = Router(index, ["gpu", "host"], policy=Cost())
    flat = Override(replace(Cost(), weights={"host": 1.0}))
    workers = []
    for override in (Override(), flat, Override()):
        decision = router.route(PROMPT, override=override)
        workers.append(decision.worker)
        router.done(decision)
    assert workers == ["gpu", "host", "gpu"]


def test_a_policy_of_one_prompt_decides_alone() -> None:
    router = Router(fleet({"w0": 10}), ["w0", "w1"])
    router.load.add("other", "w0")
    assert router.choose(PROMPT).worker == "w0"
    by_load = router.choose(PROMPT, override=Override(LeastLoaded()))
    assert (by_load.worker, by_load.cost) == ("w1", 0.0)


def test_what_is_loaded_from_further_away_counts_as_prefill_by_its_weight() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    store(index, "w0", 8, "CPU")
    decision = Router(index, ["w0"]).route(PROMPT)
    assert decision.prefill_tokens == 160 - 6 * BLOCK


def test_a_temperature_of_one_prompt_spreads_it() -> None:
    router = Router(fleet({"w0": 10}), ["w0", "w1"], selection=Selection(seed=1))
    picked: Counter[str] = Counter()
    for _ in range(200):
        decision = router.route(PROMPT, override=Override(temperature=100.0))
        picked[decision.worker] += 1
        router.done(decision)
    assert 70 < picked["w0"] < 130
    assert router.route(PROMPT).worker == "w0"


def test_preferred_workers_cost_less_by_the_formula() -> None:
    router = Router(fleet({}), [("w0", 0), ("w0", 1), "w1"])
    override = Override(preferred={"w0": 0.5, ("w0", 1): 0.5, "gone": 9.0})
    decision = router.route(PROMPT, override=override)
    assert decision.candidate == ("w0", 1)
    costs = {(a.worker, a.dp_rank): a.cost for a in decision.alternatives}
    assert decision.cost == pytest.approx(20 * np.exp(-np.tanh(1.0)))
    assert costs["w0", 0] == pytest.approx(20 * np.exp(-np.tanh(0.5)))
    assert costs["w1", 0] == 20


def test_a_bare_name_serves_at_its_best_rank() -> None:
    router = Router(fleet({"w0@1": 3, "w0@5": 6}), ["w0", "w1"])
    decision = router.route(PROMPT)
    assert (decision.candidate, decision.worker, decision.dp_rank) == ("w0", "w0", 5)


def test_ranks_carry_load_of_their_own() -> None:
    router = Router(fleet({}), [("w0", 0), ("w0", 1)])
    picked = [router.route(PROMPT).dp_rank for _ in range(4)]
    assert Counter(picked) == {0: 2, 1: 2}


def test_a_namespace_is_part_of_what_is_matched_and_of_what_is_in_use() -> None:
    router = Router(fleet({"w0": 10}), ["w0"])
    router.route(PROMPT)
    assert router.route(PROMPT).why["decode_blocks"] == 10
    salted = router.route(PROMPT, cache_salt="tenant")
    assert (salted.row.depth, salted.why["decode_blocks"]) == (0, 20)
    adapted = router.route(PROMPT, lora_name="sql")
    assert (adapted.row.depth, adapted.why["decode_blocks"]) == (0, 30)
    pictured = router.route(PROMPT, mm=[("cat", 0, 4)])
    assert (pictured.row.depth, pictured.why["decode_blocks"]) == (0, 40)


def test_keys_computed_elsewhere_give_the_same_decision() -> None:
    router = Router(fleet({"w0": 4, "w1": 2}), ["w0", "w1"])
    keys = kvindex.block_keys(PROMPT, block_size=BLOCK)
    by_tokens = router.route(PROMPT)
    router.done(by_tokens)
    by_keys = router.route_keys(keys, prompt_tokens=160)
    assert (by_keys.row, by_keys.cost) == (by_tokens.row, by_tokens.cost)
    assert by_keys.prefill_tokens == by_tokens.prefill_tokens


@pytest.mark.parametrize("tokens", [[], [1, 2, 3], range(15)])
def test_a_prompt_without_a_full_block_goes_to_the_idle(tokens: list[int]) -> None:
    router = Router(fleet({"w0": 4}), ["w0", "w1"])
    router.load.add("other", "w0", chain_keys=[1])
    decision = router.route(tokens)
    assert (decision.worker, decision.prefill_tokens) == ("w1", len(tokens))


def test_workers_come_and_go() -> None:
    router = Router(fleet({"w0": 10}), ["w0"])
    router.route(PROMPT)
    router.set_workers(["w1", "w2"])
    assert router.workers == ("w1", "w2")
    assert {router.route(PROMPT).worker for _ in range(2)} == {"w1", "w2"}
    router.set_workers(["w0"])
    assert router.route(PROMPT).why["requests"] == 1


def test_a_name_that_runs_already_is_refused_and_nothing_is_added() -> None:
    router = Router(fleet({}), ["w0"])
    router.route(PROMPT, request="r")
    with pytest.raises(kvindex.ConfigError, match="'r' is running already"):
        router.route(PROMPT, request="r")
    assert len(router.load) == 1


def test_a_pool_that_only_prefills_counts_no_blocks_and_ends_with_the_prefill() -> None:
    router = Router(fleet({"p0": 4}), ["p0"], role="prefill")
    decision = router.route(PROMPT)
    assert router.load.workers() == [WorkerLoad("p0", None, 96, 0, 1)]
    assert router.prefill_complete(decision)
    assert router.load.workers() == [WorkerLoad("p0", None, 0, 0, 0)]


def test_a_pool_that_only_decodes_counts_no_prefill() -> None:
    router = Router(fleet({"d0": 4}), ["d0", "d1"], role="decode")
    decision = router.route(PROMPT)
    assert (decision.worker, decision.cost) == ("d0", 6.0)
    assert router.load.workers()[0] == WorkerLoad("d0", None, 0, 10, 1)


def test_policies_without_weights_use_those_of_the_index() -> None:
    index = kvindex.Indexer(block_size=BLOCK, weights={"device": 0.5})
    store(index, "w0", 4)
    assert Router(index, ["w0"], policy=LongestPrefix()).route(PROMPT).row.score == 2.0
    decayed = Router(index, ["w0", "w1"], policy=Cost(overlap_credit_decay=1.0))
    decayed.load.add("other", "w0", prefill_tokens=320)
    decayed.load.add("more", "w1", prefill_tokens=160)
    decision = decayed.route(PROMPT)
    assert (decision.worker, decision.cost) == ("w1", 30.0)
    # Behind a queue that is longer by the prompt's length, half of 0.5 * 4 is left.
    assert decision.alternatives == [("w0", 0, 30.0 - 1.0 + 10.0)]


def test_a_wrong_role_and_a_foreign_load_are_refused() -> None:
    with pytest.raises(kvindex.ConfigError, match="role is 'both ends'"):
        Router(fleet({}), role="both ends")  # type: ignore[arg-type]
    with pytest.raises(kvindex.ConfigError, match="block_size is 4"):
        Router(fleet({}), load=Load(block_size=4))


def test_threads_decide_one_at_a_time() -> None:
    router = Router(fleet({}), [f"w{i}" for i in range(8)], policy=Slow())
    threads = [threading.Thread(target=router.route, args=(PROMPT,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each decision saw all before it.
    assert [row.requests for row in router.load.workers()] == [1] * 8

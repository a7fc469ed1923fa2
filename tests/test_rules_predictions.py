"""Predictions: what is expected to be held, and until when."""

import math
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest

import kvindex
from tests.helpers import Scene, depths, query, state, tokens


def predict(scene: Scene, who: str, path: str, **options: Any) -> int:  # noqa: ANN401
    """Predict a path of a worker."""
    return scene.index.predict(tokens(path), worker=who, **{"now": 0.0} | options)


def predicted(scene: Scene, path: str) -> dict[str, int]:
    """Return how many blocks of a path are only predicted, by worker."""
    return {who: row.predicted for who, row in scene.rows(path).items()}


# K25: approximate mode is seeded by the first request, and facts are not added to.


def test_k25_the_first_prediction_is_found(scene: Scene) -> None:
    assert predict(scene, "w1", "ABC") == 3
    assert scene.depths("ABC") == {"w1": 3}
    assert scene.scores("ABCD") == {"w1": 3.0}


def test_k25_predictions_and_facts_are_not_added(scene: Scene) -> None:
    scene.S("w1", "AB")
    predict(scene, "w1", "ABCD", ttl=5.0)
    row = scene.rows("ABCD")["w1"]
    assert (row.depth, row.device, row.predicted, row.score) == (4, 2, 2, 4.0)
    assert scene.index.expire(6.0) == 4
    assert scene.depths("ABCD") == {"w1": 2}


def test_k25_predicting_again_moves_the_deadline(scene: Scene) -> None:
    predict(scene, "w1", "ABCD", ttl=5.0)
    predict(scene, "w1", "ABCD", ttl=5.0, now=3.0)
    assert scene.index.expire(6.0) == 0
    assert scene.depths("ABCD") == {"w1": 4}
    assert scene.index.expire(8.0) == 4
    assert scene.depths("ABCD") == {}


def test_k25_no_time_to_live_leaves_no_trace(scene: Scene) -> None:
    assert predict(scene, "w1", "ABCD", ttl=0.0) == 0
    assert scene.depths("ABCD") == {}
    assert scene.index.workers() == []


# Deadlines.


def test_a_shorter_prediction_shortens_nothing(scene: Scene) -> None:
    predict(scene, "w1", "ABCD", ttl=9.0)
    predict(scene, "w1", "ABCD", ttl=2.0, now=1.0)
    scene.index.expire(5.0)
    assert scene.depths("ABCD") == {"w1": 4}


def test_what_is_shared_by_prompts_stays_as_long_as_the_last(scene: Scene) -> None:
    predict(scene, "w1", "ABCD", ttl=2.0)
    predict(scene, "w1", "ABX", ttl=5.0)
    assert scene.index.expire(2.0) == 2
    assert scene.depths("ABCD") == {"w1": 2}
    assert scene.depths("ABX") == {"w1": 3}


def test_predicting_ends_what_is_due_of_that_rank_alone(scene: Scene) -> None:
    predict(scene, "w1", "AB", ttl=2.0)
    predict(scene, "w2", "AB", ttl=2.0)
    predict(scene, "w1", "XY", now=2.0)
    assert scene.depths("AB") == {"w2": 2}


def test_a_prediction_without_end_stays(scene: Scene) -> None:
    predict(scene, "w1", "AB", ttl=math.inf)
    assert scene.index.expire(1e300) == 0
    assert scene.depths("AB") == {"w1": 2}


def test_the_clock_is_monotonic_by_default(scene: Scene) -> None:
    before = time.monotonic()
    scene.index.predict(tokens("AB"), worker="w1", ttl=50.0)
    assert scene.index.expire(before + 49.0) == 0
    assert scene.index.expire() == 0
    assert scene.index.expire(time.monotonic() + 51.0) == 2


# What counts for whom.


def test_events_confirm_blocks_one_by_one(scene: Scene) -> None:
    predict(scene, "w1", "ABCD")
    scene.S("w1", "A")
    assert predicted(scene, "ABCD") == {"w1": 3}
    scene.S("w1", "CD", "AB", tier="cpu")  # waits for its parent
    scene.S("w1", "B", "A")
    row = scene.rows("ABCD")["w1"]
    assert (row.device, row.host, row.predicted) == (2, 2, 0)


def test_a_prediction_fills_a_hole_up_to_where_it_reaches(scene: Scene) -> None:
    scene.S("w1", "ABCDE")
    scene.R("w1", "AB")
    assert scene.depths("ABCDE") == {"w1": 1}
    predict(scene, "w1", "ABC")
    row = scene.rows("ABCDE")["w1"]
    assert (row.depth, row.device, row.predicted) == (5, 4, 1)


def test_a_hole_behind_the_end_of_everybody_is_found(scene: Scene) -> None:
    # Nobody holds block 0, and the worker's own blocks lie behind a fork.
    scene.S("w1", "AB")
    scene.S("w2", "ABXY")
    scene.S("w1", "CD", "AB")
    scene.R("w1", "A", "AB")
    scene.R("w2", "A", "AB", "ABX", "ABXY")
    predict(scene, "w1", "AB")
    row = scene.rows("ABCDE")["w1"]
    assert (row.depth, row.device, row.predicted) == (4, 2, 2)


def test_a_pool_comes_before_a_prediction(scene: Scene) -> None:
    scene.S("pool:p", "ABC")
    predict(scene, "w1", "ABCDE")
    row = scene.rows("ABCDE")["w1"]
    assert (row.shared, row.predicted, row.score) == (3, 2, 3.5)
    assert scene.index.match(query("ABC"), workers=["w1"])[0].predicted == 0


def test_predictions_weigh_as_the_device(scene: Scene) -> None:
    predict(scene, "w1", "AB")
    assert scene.scores("AB", weights={"device": 3.0}) == {"w1": 6.0}


def test_a_one_way_walk_has_no_predictions(scene: Scene) -> None:
    scene.S("w1", "A")
    predict(scene, "w1", "ABC")
    assert scene.depths("ABC", cascade=True) == {"w1": 1}


def test_candidates_get_their_own_predictions(scene: Scene) -> None:
    predict(scene, "w1", "ABC", dp_rank=2)
    predict(scene, "w2", "AB")
    found = scene.index.match(query("ABC"), workers=["w3", ("w1", 0), "w1", "w2"])
    assert list(found.depths) == [0, 0, 3, 2]
    assert list(np.asarray(found.predicted)) == [0, 0, 3, 2]
    assert found[2].dp_rank == 2


def test_namespaces_and_images_are_told_apart(scene: Scene) -> None:
    predict(scene, "w1", "AB", lora_name="x", cache_salt="s")
    predict(scene, "w2", "AB", mm=[("picture", 0, 2)])
    assert scene.depths("AB") == {}
    assert scene.depths("AB", lora_name="x", cache_salt="s") == {"w1": 2}
    assert scene.depths("AB", mm=[("picture", 1, 1)]) == {"w2": 2}


def test_keys_predict_as_tokens_do(scene: Scene) -> None:
    keys = kvindex.block_keys(tokens("ABC"), block_size=4)
    assert scene.index.predict_keys(keys, worker="w1", ttl=5.0, now=0.0) == 3
    assert scene.depths("ABC") == {"w1": 3}
    assert list(scene.index.match_keys(keys).predicted) == [3]
    chain = kvindex.chain_keys(keys)
    assert scene.index.predict_chain(chain, worker="w2", ttl=5.0, now=0.0) == 3
    assert scene.depths("ABC") == {"w1": 3, "w2": 3}


def test_a_partial_block_is_not_predicted(scene: Scene) -> None:
    assert scene.index.predict([1, 2, 3], worker="w1") == 0
    assert scene.index.predict([], worker="w1") == 0
    assert scene.index.workers() == []


# What events and calls do to predictions, and they to what is held.


def test_predictions_are_not_held(scene: Scene) -> None:
    predict(scene, "w1", "ABC")
    assert len(scene.index) == 0
    assert (state(scene.index, "w1").device, state(scene.index, "w1").predicted) == (
        0,
        3,
    )
    assert scene.index.stats()["predicted"] == 3
    assert scene.S("w2", "D", "ABC").reasons == {"orphan": 1}


def test_a_removal_leaves_predictions(scene: Scene) -> None:
    scene.S("w1", "AB")
    predict(scene, "w1", "AB")
    scene.R("w1", "A", "AB")
    assert predicted(scene, "AB") == {"w1": 2}


def test_a_clear_of_the_device_ends_predictions(scene: Scene) -> None:
    scene.index.register("w1", clears=("host",))
    predict(scene, "w1", "AB")
    scene.C("w1")
    assert scene.depths("AB") == {"w1": 2}
    scene.index.register("w1", clears=("device",))
    predict(scene, "w2", "AB")
    scene.C("w1")
    assert scene.depths("AB") == {"w2": 2}


@pytest.mark.parametrize("forget", ["reset", "remove_worker"])
def test_forgetting_a_worker_ends_its_predictions(scene: Scene, forget: str) -> None:
    predict(scene, "w1", "AB")
    predict(scene, "w2", "ABC")
    assert getattr(scene.index, forget)("w1") is True
    assert scene.depths("ABC") == {"w2": 3}
    assert getattr(scene.index, forget)("w1") is False


def test_forgetting_everybody_ends_all_predictions(scene: Scene) -> None:
    predict(scene, "w1", "AB")
    scene.index.clear()
    assert scene.depths("AB") == {}
    assert scene.index.stats()["predicted"] == 0


def test_unregistered_workers_are_not_predicted_where_only_others_count() -> None:
    index = kvindex.Indexer(block_size=4, registered_only=True)
    assert index.predict(tokens("AB"), worker="w1") == 0
    index.register("w1")
    assert index.predict(tokens("AB"), worker="w1") == 2
    assert depths(index, "AB") == {"w1": 2}


# Capacity.


def test_a_prompt_above_the_capacity_keeps_its_head(scene: Scene) -> None:
    assert predict(scene, "w1", "ABCDE", capacity=3) == 3
    assert scene.depths("ABCDE") == {"w1": 3}
    assert predict(scene, "w1", "ABCDE", capacity=0) == 0


def test_the_least_recently_predicted_goes_first_and_its_deepest_block(
    scene: Scene,
) -> None:
    options = {"ttl": math.inf, "capacity": 6}
    predict(scene, "w1", "ABC", **options)
    predict(scene, "w1", "XYZ", **options)
    predict(scene, "w1", "AB", **options)
    predict(scene, "w1", "PQ", **options)
    assert scene.depths("ABC") == {"w1": 2}  # C was used longest ago
    assert scene.depths("XYZ") == {"w1": 2}  # then Z
    assert scene.depths("PQ") == {"w1": 2}
    assert state(scene.index, "w1").predicted == 6


def test_of_one_prompt_the_deepest_goes_first_behind_a_fork_too(scene: Scene) -> None:
    predict(scene, "w2", "ABX")  # so that C and D lie behind a fork
    predict(scene, "w1", "ABCD")
    predict(scene, "w1", "P", capacity=3)
    assert scene.depths("ABCD")["w1"] == 2
    assert scene.depths("P") == {"w1": 1}


def test_what_ends_first_goes_first(scene: Scene) -> None:
    predict(scene, "w1", "ABC", ttl=9.0)
    predict(scene, "w1", "XYZ", ttl=5.0, now=1.0)
    predict(scene, "w1", "PQ", ttl=9.0, now=2.0, capacity=6)
    assert scene.depths("XYZ") == {"w1": 1}
    assert scene.depths("ABC") == {"w1": 3}


def test_long_prompts_lose_their_ends_across_runs() -> None:
    index = kvindex.Indexer(block_size=1)
    prompt = list(range(10_000))
    index.predict(prompt, worker="w1", ttl=9.0, now=0.0)
    index.predict(prompt[:5000], worker="w1", ttl=20.0, now=0.0)
    index.predict([-1 % 2**32] * 4000, worker="w1", ttl=5.0, now=0.0, capacity=12_000)
    assert index.match(prompt, workers=["w1"])[0].depth == 10_000
    assert index.expire(9.0) == 5000 + 2000
    assert index.match(prompt, workers=["w1"])[0].depth == 5000


# Bad input, and what else belongs to a surface.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": -1.0}, "ttl must be 0 or more, not -1"),
        ({"ttl": math.nan}, "ttl must be 0 or more, not NaN"),
        ({"now": math.nan}, "now must be a number, not NaN"),
        ({"now": -math.inf}, "now must be a number, not -inf"),
    ],
)
def test_times_have_to_be_numbers(
    scene: Scene, options: dict[str, float], message: str
) -> None:
    with pytest.raises(kvindex.ConfigError, match=message):
        predict(scene, "w1", "AB", **options)
    assert scene.depths("AB") == {}


def test_expiring_needs_a_number(scene: Scene) -> None:
    with pytest.raises(kvindex.ConfigError, match="now must be a number, not NaN"):
        scene.index.expire(math.nan)


def test_answers_with_predictions_are_pickled(scene: Scene) -> None:
    predict(scene, "w1", "AB")
    found = scene.index.match(query("AB"))
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own
    assert found.to_dict()["predicted"] == [2]


def test_explaining_shows_predictions(scene: Scene) -> None:
    scene.S("w1", "A")
    predict(scene, "w1", "ABC")
    why = scene.index.explain(tokens("ABCD"), worker="w1")
    assert (why["depth"], why["device"], why["predicted"]) == (3, 1, 2)


def test_memory_comes_back(scene: Scene) -> None:
    for turn in range(300):
        predict(
            scene, f"w{turn % 3}", "ABCDEFG"[: turn % 7 + 1], now=float(turn), ttl=3.0
        )
    scene.index.expire(1e9)
    stats = scene.index.stats()
    assert stats["predicted"] == 0
    for turn in range(30_000):
        predict(
            scene, f"w{turn % 3}", "ABCDEFG"[: turn % 7 + 1], now=float(turn), ttl=3.0
        )
    scene.index.expire(1e9)
    assert scene.index.stats() == stats


def test_readers_and_predictions_race_without_harm() -> None:
    index = kvindex.Indexer(block_size=1)
    prompts = [[0, *range(start, start + 200)] for start in (1, 100, 1000)]
    stop = threading.Event()
    wrong: list[int] = []

    def ask() -> None:
        while not stop.is_set():
            for prompt in prompts:
                rows = list(index.match(prompt))
                wrong.extend(row.depth for row in rows if row.depth not in (1, 201))
                wrong.extend(row.depth for row in rows if row.depth != row.predicted)

    asking = threading.Thread(target=ask)
    asking.start()
    for turn in range(2000):
        prompt = prompts[turn % 3]
        index.predict(prompt, worker=f"w{turn % 5}", ttl=4.0, now=float(turn))
        index.expire(float(turn))
    stop.set()
    asking.join()
    assert not wrong

"""Limits of age: what was stored too long ago ends by itself."""

import math
import time

import msgspec
import pytest

import kvindex
from tests.helpers import Scene, names, query, split, state
from tests.streams import load, low64

LIMIT = 10.0
X, Y = names("x", "y")


@pytest.fixture
def aged(scene: Scene) -> Scene:
    """An index with a worker whose disk forgets after ten seconds."""
    scene.index.register("w1", profile="vllm", max_age={"disk": LIMIT})
    return scene


def disk(scene: Scene, who: str = "w1") -> int:
    """Return how many blocks a holder has on disk."""
    return state(scene.index, who).disk


# When it ends.


def test_what_is_as_old_as_the_limit_ends(aged: Scene) -> None:
    aged.S("w1", "ABC", tier="disk", now=100.0)
    assert aged.index.expire(109.9) == 0
    assert aged.depths("ABC") == {"w1": 3}
    assert aged.index.expire(110.0) == 3
    assert (aged.depths("ABC"), disk(aged), len(aged.index)) == ({}, 0, 0)
    assert aged.index.stats()["names"] == 0


def test_storing_again_begins_anew(aged: Scene) -> None:
    aged.S("w1", "ABC", tier="disk", now=100.0)
    aged.S("w1", "AB", tier="disk", now=105.0)
    assert aged.index.expire(110.0) == 1
    assert aged.depths("ABC") == {"w1": 2}
    assert aged.index.expire(115.0) == 2


def test_queries_see_it_until_somebody_looks(aged: Scene) -> None:
    aged.S("w1", "ABC", tier="disk", now=100.0)
    aged.S("w2", "X", now=200.0)
    assert aged.depths("ABC") == {"w1": 3}
    aged.S("w1", "X", now=200.0)
    assert aged.depths("ABC") == {}


def test_a_batch_that_is_refused_ends_nothing(aged: Scene) -> None:
    aged.S("w1", "ABC", tier="disk", now=100.0, seq=5)
    assert aged.S("w1", "X", now=200.0, seq=5).status == "duplicate"
    assert aged.depths("ABC") == {"w1": 3}


def test_a_block_that_comes_with_the_batch_that_ends_it_stays(aged: Scene) -> None:
    aged.S("w1", "A", tier="disk", now=100.0)
    aged.S("w1", "A", tier="disk", now=200.0)
    assert (aged.depths("A"), aged.index.expire(205.0)) == ({"w1": 1}, 0)


def test_a_clock_that_goes_back_stands_still(aged: Scene) -> None:
    aged.S("w1", "A", tier="disk", now=100.0)
    aged.S("w1", "B", "A", tier="disk", now=50.0)
    assert aged.index.expire(109.0) == 0
    assert aged.index.expire(110.0) == 2
    for letter, moment in (("A", 150.0), ("X", 155.0), ("A", 150.0)):
        aged.S("w1", letter, tier="disk", now=moment)
    assert aged.index.expire(160.0) == 0
    assert aged.index.expire(165.0) == 2


def test_the_clock_is_monotonic_by_default(aged: Scene) -> None:
    before = time.monotonic()
    aged.S("w1", "A", tier="disk")
    assert aged.index.expire(before + LIMIT - 0.1) == 0
    assert aged.index.expire() == 0
    assert aged.index.expire(time.monotonic() + LIMIT) == 1


# What ends.


def test_other_tiers_and_holders_keep_what_they_have(aged: Scene) -> None:
    for tier in ("gpu", "cpu", "disk"):
        aged.S("w1", "AB", tier=tier, now=100.0)
    aged.S("w2", "AB", tier="disk", now=100.0)
    assert aged.index.expire(math.inf) == 2
    assert split(aged.rows("AB")["w1"]) == (2, 0, 0, 0)
    assert (state(aged.index, "w1").host, disk(aged, "w2")) == (2, 2)


def test_every_copy_ends(scene: Scene) -> None:
    scene.index.register("w1", max_age={"host": LIMIT})
    for moment in (100.0, 101.0):
        scene.S("w1", "A", tier="cpu", now=moment)
        scene.S("w1", "A", tier="cpu", names=[X], now=moment)
    assert scene.index.expire(111.0) == 1
    assert scene.depths("A") == {}


def test_a_block_stays_under_the_name_that_is_younger(scene: Scene) -> None:
    scene.index.register("w1", max_age={"host": LIMIT})
    scene.S("w1", "A", tier="cpu", names=[X], now=100.0)
    scene.S("w1", "A", tier="cpu", names=[Y], now=105.0)
    assert (scene.index.expire(110.0), scene.depths("A")) == (0, {"w1": 1})
    assert (scene.index.expire(115.0), scene.depths("A")) == (1, {})


def test_bytes_and_integers_are_one_name(scene: Scene) -> None:
    scene.index.register("w1", max_age={"disk": LIMIT})
    scene.S("w1", "A", tier="disk", names=[b"whole\0\0\0\0\0\0\0\7"], now=100.0)
    scene.S("w1", "A", tier="disk", names=[7], now=105.0)
    assert scene.index.expire(110.0) == 0
    assert scene.index.expire(115.0) == 1


def test_a_larger_block_ends_as_a_whole(aged: Scene) -> None:
    aged.S("w1", "ABCD", tier="disk", names=[X, Y], block_size=8, now=100.0)
    aged.S("w1", "AB", tier="disk", names=[X], block_size=8, now=101.0)
    assert aged.index.expire(110.0) == 2
    assert aged.depths("ABCD") == {"w1": 2}


def test_a_chunk_that_is_only_named_ends_as_a_whole(scene: Scene) -> None:
    limits = {"disk": LIMIT}
    scene.index.register("w1", chunk_tokens={"disk": 8}, max_age=limits)
    scene.S("w1", "ABCD", now=100.0)
    scene.P("w1", "AB", "ABCD", tier="disk", now=100.0)
    scene.R("w1", "A", "AB", "ABC", "ABCD", now=105.0)
    assert scene.depths("ABCD") == {"w1": 4}
    assert scene.index.expire(110.0) == 4


def test_what_waits_ends_as_well(aged: Scene) -> None:
    aged.S("w1", "BC", "A", tier="disk", now=100.0)
    assert (aged.index.expire(110.0), aged.waiting("w1")) == (0, 0)
    assert aged.S("w1", "A", tier="disk", now=110.0).attached == 0


def test_waiting_does_not_make_younger(aged: Scene) -> None:
    aged.S("w1", "BC", "A", tier="disk", now=100.0)
    assert aged.S("w1", "A", now=105.0).attached == 2
    assert aged.index.expire(110.0) == 2
    assert aged.depths("ABC") == {"w1": 1}


def test_removals_are_applied_besides(aged: Scene) -> None:
    aged.S("w1", "AB", tier="disk", now=100.0)
    assert aged.R("w1", "AB", tier="disk", now=101.0).removed == 1
    assert aged.index.expire(110.0) == 1


def test_the_hole_that_an_old_block_leaves_hides_what_is_behind(aged: Scene) -> None:
    aged.S("w1", "ABC", tier="disk", now=100.0)
    aged.S("w1", "BC", "A", tier="disk", now=105.0)
    aged.index.expire(110.0)
    assert (aged.depths("ABC"), disk(aged)) == ({}, 2)
    aged.S("w1", "A", tier="disk", now=110.0)
    assert aged.depths("ABC") == {"w1": 3}


def test_a_pool_may_forget(scene: Scene) -> None:
    scene.index.register_pool("p", max_age={"host": LIMIT})
    scene.S("pool:p", "AB", tier="cpu", now=100.0)
    assert scene.index.expire(110.0) == 2
    assert scene.index.match(query("AB")).pools == {"p": 0}


def test_predictions_and_old_blocks_are_counted_together(aged: Scene) -> None:
    aged.S("w1", "AB", tier="disk", now=100.0)
    aged.index.predict([1, 2, 3, 4], worker="w2", ttl=5.0, now=100.0)
    assert aged.index.expire(110.0) == 3


# Clears, resets and other registrations.


def test_what_was_cleared_does_not_end_later_blocks(aged: Scene) -> None:
    aged.index.register("w1", clears=("disk",), max_age={"disk": LIMIT})
    aged.S("w1", "AB", tier="disk", now=100.0)
    aged.C("w1", now=101.0)
    aged.S("w1", "A", tier="disk", now=105.0)
    assert aged.index.expire(110.0) == 0
    aged.index.reset("w1")
    aged.S("w1", "A", tier="disk", now=50.0)
    assert aged.index.expire(60.0) == 1


def test_a_removed_worker_has_no_limit(aged: Scene) -> None:
    aged.S("w1", "A", tier="disk", now=100.0)
    aged.index.remove_worker("w1")
    aged.S("w1", "A", tier="disk", now=101.0)
    assert aged.index.expire(math.inf) == 0


def test_another_limit_holds_for_what_is_there(aged: Scene) -> None:
    aged.S("w1", "A", tier="disk", now=100.0)
    aged.index.register("w1", max_age={"disk": 20.0})
    assert aged.index.expire(119.0) == 0
    assert aged.index.expire(120.0) == 1


def test_without_a_limit_what_is_there_stays(aged: Scene) -> None:
    aged.S("w1", "AB", tier="disk", now=100.0)
    aged.index.register("w1")
    assert aged.index.expire(math.inf) == 0
    aged.index.register("w1", max_age={"disk": LIMIT})
    aged.S("w1", "A", tier="disk", now=200.0)
    assert aged.index.expire(math.inf) == 1
    assert disk(aged) == 1


def test_a_new_rank_has_its_workers_limit(aged: Scene) -> None:
    aged.S("w1@3", "A", tier="disk", now=100.0)
    assert aged.index.expire(110.0) == 1


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_is_a_finite_time(seconds: float) -> None:
    index = kvindex.Indexer(block_size=4)
    with pytest.raises(kvindex.ConfigError, match="max_age for disk must be a finite"):
        index.register("w1", max_age={"disk": seconds})
    with pytest.raises(kvindex.ConfigError, match="max_age for disk must be a finite"):
        index.register_pool("p", max_age={"disk": seconds})
    assert index.stats()["workers"] == 0


def test_faulty_limits_and_moments_are_named() -> None:
    index = kvindex.Indexer(block_size=4)
    with pytest.raises(kvindex.ConfigError, match="a tier is one of"):
        index.register("w1", max_age={"tape": 1.0})
    with pytest.raises(TypeError):
        index.register("w1", max_age={"disk": "1h"})  # type: ignore[dict-item]
    with pytest.raises(kvindex.ConfigError, match="now must be a number, not NaN"):
        index.apply([], worker="w1", now=math.nan)


def test_names_that_are_stored_again_and_again_take_no_more_memory(
    aged: Scene,
) -> None:
    for turn in range(20):
        aged.S("w1", "AB", tier="disk", now=float(turn))
    before = aged.index.stats()["bytes"]
    for turn in range(2000):
        aged.S("w1", "AB", tier="disk", now=20.0 + turn / 1000)
    assert aged.index.stats()["bytes"] <= before + 1024


# What really arrives.


def test_a_captured_disk_tier_holds_what_was_stored_lately() -> None:
    stream = load("vllm", "c4_tiering_fs_local")
    index = kvindex.Indexer(block_size=stream.block_size)
    limit = 30.0
    index.register("w0", max_age={"disk": limit})
    newest: dict[int, int] = {}
    for moment, message in enumerate(stream.messages):
        index.apply(message.payload, worker="w0", now=float(moment))
        for event in msgspec.msgpack.decode(message.payload)[1]:
            if event["type"] == "BlockStored" and event.get("medium") == "STORAGE":
                newest |= {low64(key): moment for key in event["block_hashes"]}
        index.expire(float(moment))
        young = {key for key, stored in newest.items() if stored + limit > moment}
        (row,) = index.workers()
        assert row.disk == len(young)
    assert 0 < len(young) < len(newest)
    kept = [row for key in young for row in index.match_names([key])]
    assert [row.depth for row in kept] == [1] * len(young)

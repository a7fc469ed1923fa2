"""Pools: caches that belong to no worker, and for whom they count."""

import itertools
import logging
import pickle
from typing import Any

import pytest

import kvindex
from tests import wire
from tests.helpers import BLOCK, Scene, name, names, query, split, tokens

EPOCH = {"epoch": 1}


def answer(scene: Scene, path: str, **options: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401
    """Return each row's blocks by tier and in pools, in one tuple."""
    return {
        who: (*split(row), row.shared)
        for who, row in scene.rows(path, **options).items()
    }


def shared(scene: Scene, path: str, *workers: str) -> list[int]:
    """Return how many blocks pools alone give each of some workers."""
    return list(scene.index.match(query(path), workers=workers).shared)


# What counts for whom.


def test_a_pool_goes_on_where_a_worker_ends(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("pool:p", "ABCD", tier="cpu")
    assert answer(scene, "ABCDE") == {"w1": (2, 0, 0, 0, 2)}


def test_a_pool_fills_holes(scene: Scene) -> None:
    scene.S("w1", "ABCDE")
    scene.R("w1", "A", "ABC")
    scene.S("pool:p", "ABC")
    scene.R("pool:p", "AB")
    assert answer(scene, "ABCDEF") == {"w1": (3, 0, 0, 0, 2)}


def test_a_worker_and_a_pool_fill_each_others_holes_across_runs(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("pool:p", "CD", "AB")
    scene.S("w2", "ABX")  # the chain forks here
    scene.S("w1", "E", "ABCD", tier="disk")
    scene.S("w1", "FG", "ABCDE")
    assert answer(scene, "ABCDEFG")["w1"] == (4, 0, 1, 0, 2)
    assert answer(scene, "ABCDEFG")["w2"] == (2, 0, 0, 0, 2)


@pytest.mark.parametrize("tier", ["gpu", "cpu", "disk", "external"])
def test_a_workers_own_copy_comes_first_whatever_the_tier(
    scene: Scene, tier: str
) -> None:
    scene.S("pool:p", "AB")
    scene.S("w1", "A", tier=tier)
    (row,) = scene.rows("AB").values()
    assert sum(split(row)) == 1
    assert row.shared == 1


@pytest.mark.parametrize("tier", ["gpu", "cpu", "disk", "external"])
def test_a_pools_tier_is_no_matter(scene: Scene, tier: str) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "AB", tier=tier)
    assert answer(scene, "AB") == {"w1": (1, 0, 0, 0, 1)}


def test_pools_count_together(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "AB")
    scene.S("pool:q", "C", "AB")
    assert answer(scene, "ABC") == {"w1": (1, 0, 0, 0, 2)}
    assert scene.index.match(tokens("ABC")).pools == {"p": 2, "q": 0}


def test_shared_blocks_have_a_weight(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "ABC")
    assert scene.scores("ABC") == {"w1": 2.0}
    assert scene.scores("ABC", weights={"shared": 0.125}) == {"w1": 1.25}
    other = Scene(weights={"shared": 0.0})
    other.S("w1", "A")
    other.S("pool:p", "ABC")
    (row,) = other.rows("ABC").values()
    assert (row.depth, row.score) == (3, 1.0)


def test_pools_are_candidates_of_none_and_form_no_rows(scene: Scene) -> None:
    scene.S("pool:p", "AB")
    assert len(scene.index.match(tokens("AB"))) == 0
    scene.S("w1", "X")
    assert scene.depths("AB") == {}
    found = scene.index.match(tokens("AB"), workers=["p", ("p", 0)])
    assert found.workers == ("p", "p")
    assert list(found.shared) == [2, 2]  # as for any unknown worker


def test_a_worker_without_a_block_that_counts_forms_no_row(scene: Scene) -> None:
    scene.S("w1", "ABCD")
    scene.R("w1", "A", "AB", "ABC")
    scene.S("pool:p", "AB")
    assert scene.depths("ABCD") == {}
    scene.S("pool:p", "C", "AB")
    assert answer(scene, "ABCD") == {"w1": (1, 0, 0, 0, 3)}


def test_candidates_that_hold_nothing_get_the_pools_blocks(scene: Scene) -> None:
    scene.S("pool:p", "AB")
    scene.S("w1", "ABC")
    scene.S("w2", "X")
    assert answer(scene, "ABC", workers=["w1", "w2", ("w3", 7)]) == {
        "w1": (3, 0, 0, 0, 0),
        "w2": (0, 0, 0, 0, 2),
        "w3@7": (0, 0, 0, 0, 2),
    }


def test_nobody_but_candidates_is_looked_at(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2", "A")
    scene.S("pool:p", "ABC")
    assert answer(scene, "ABC", workers=["w2"]) == {"w2": (1, 0, 0, 0, 2)}


def test_a_worker_that_is_asked_about_twice_has_its_own_blocks(scene: Scene) -> None:
    # Blocks of pairs are looked for in a walk of their own.
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]
    assert scene.apply("w9", [kvindex.BlockStored([9], pairs)]).stored == 1
    scene.S("w1", "AB", tier="disk")
    scene.S("pool:p", "AB")
    found = scene.index.match(tokens("AB"), workers=[("w1", 0), "w1", ("w1", 0)])
    assert [(row.disk, row.shared) for row in found] == [(2, 0)] * 3


def test_the_best_rank_may_be_one_that_holds_nothing(scene: Scene) -> None:
    scene.S("w1@0", "AB", tier="disk")
    scene.S("w1@1", "X")
    scene.S("pool:p", "AB")
    found = scene.index.match(tokens("AB"), workers=["w1"])
    assert (found[0].dp_rank, found[0].shared) == (1, 2)
    found = scene.index.match(tokens("AB"), workers=["w1"], weights={"disk": 1})
    assert (found[0].dp_rank, found[0].disk) == (0, 2)


def test_rows_are_the_same_with_and_without_candidates_for_either_kind_of_keys(
    scene: Scene,
) -> None:
    chain = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    pairs = [list(pair) for pair in itertools.pairwise(chain)]
    scene.apply("w1", [kvindex.BlockStored([1], chain[:4])])
    scene.apply("pool:p", [kvindex.BlockStored([8, 9], pairs)])
    for workers in (None, ["w1"]):
        found = scene.index.match(chain, workers=workers)
        assert [(row.depth, row.shared) for row in found] == [(2, 2)]
        assert found.pools == {"p": 2}
    scene.apply("w2", [kvindex.BlockStored([8], pairs[:4])])
    assert {row.worker: row.shared for row in scene.index.match(chain)} == {
        "w1": 2,
        "w2": 1,
    }


def test_units_of_pools_count_whole(scene: Scene) -> None:
    scene.S("pool:p", "ABCD", names=[1], tier="cpu", block_size=4 * BLOCK)
    scene.S("w1", "A")
    assert answer(scene, "ABC") == {"w1": (1, 0, 0, 0, 0)}
    assert answer(scene, "ABCD") == {"w1": (1, 0, 0, 0, 3)}


def test_chunks_of_pools_count_whole(scene: Scene) -> None:
    scene.index.register_pool("p", chunk_tokens={"host": 2 * BLOCK})
    scene.S("w1", "ABCD")
    scene.P("pool:p", "AB", "ABCD")
    scene.R("w1", "A", "AB", "ABC")
    assert answer(scene, "ABCD") == {"w1": (1, 0, 0, 0, 3)}
    assert shared(scene, "ABC", "w1") == [2]


def test_a_cascade_looks_at_no_pools(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "ABC")
    options: dict[str, Any] = {"cascade": True}
    assert answer(scene, "ABC", **options) == {"w1": (1, 0, 0, 0, 0)}
    assert shared(scene, "ABC", "w1") == [2]
    found = scene.index.match(tokens("ABC"), workers=["w1", "w2"], **options)
    assert list(found.depths) == [1, 0]
    assert found.pools == {}


def test_every_kind_of_query_looks_at_pools(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "AB")
    index, text = scene.index, tokens("ABC")
    keys = kvindex.block_keys(text, block_size=BLOCK)
    for found in (
        index.match(text),
        index.match_many([text])[0],
        index.match_keys(keys),
        index.match_chain(kvindex.chain_keys(keys)),
        index.match_names(names("A", "AB", "ABC")),
    ):
        assert [(row.device, row.shared) for row in found] == [(1, 1)]
        assert found.pools == {"p": 2}


def test_names_count_where_a_pool_holds_them(scene: Scene) -> None:
    scene.S("w1", "AC")
    scene.S("pool:p", "AB", names=[1, 2])
    found = scene.index.match_names([1, 2], workers=["w1", "w2"])
    assert list(found.shared) == [2, 2]
    assert len(scene.index.match_names([1, 2])) == 0


def test_found_pools_names_every_pool(scene: Scene) -> None:
    scene.index.register_pool("silent")
    scene.S("pool:p", "ABX")
    scene.S("pool:q", "AB")
    scene.R("pool:q", "A")
    found = scene.index.match(tokens("ABC"))
    assert found.pools == {"silent": 0, "p": 2, "q": 0}
    assert scene.index.match([]).pools == {"silent": 0, "p": 0, "q": 0}
    assert Scene().index.match(tokens("ABC")).pools == {}


def test_answers_keep_their_pools(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "AB")
    found = scene.index.match(tokens("AB"), workers=["w1", "w2"])
    twin = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert twin == found
    assert twin.to_dict() == found.to_dict()
    assert twin.pools == found[1:].pools == {"p": 2}
    scene.index.remove_pool("p")
    assert found.pools == {"p": 2}
    assert found != scene.index.match(tokens("AB"), workers=["w1", "w2"])


# Reach.


def test_a_worker_that_is_attached_reaches_those_pools_alone(scene: Scene) -> None:
    scene.S("pool:p", "AB")
    scene.S("pool:q", "ABC")
    scene.index.attach("w1", "p")
    assert shared(scene, "ABC", "w1", "w2") == [2, 3]
    scene.index.attach("w1", "q")
    assert shared(scene, "ABC", "w1") == [3]
    assert scene.index.match(tokens("ABC"), workers=["w1"]).pools == {"p": 2, "q": 3}


def test_attaching_concerns_all_ranks_and_rows_without_candidates(scene: Scene) -> None:
    scene.index.register_pool("q")
    scene.index.attach("w1", "q")
    scene.S("w1@0", "A")
    scene.S("w1@3", "A")
    scene.S("w2", "A")
    scene.S("pool:p", "AB")
    assert scene.depths("AB") == {"w1": 1, "w1@3": 1, "w2": 2}
    scene.S("pool:q", "AB")
    assert scene.depths("AB") == {"w1": 2, "w1@3": 2, "w2": 2}
    assert shared(scene, "AB", "w1") == [1]


def test_a_worker_that_is_detached_from_all_reaches_all(scene: Scene) -> None:
    scene.S("pool:p", "A")
    scene.S("pool:q", "AB")
    scene.index.attach("w1", "p")
    assert scene.index.detach("w1", "q") is False
    assert scene.index.detach("w2", "p") is False
    assert shared(scene, "AB", "w1") == [1]
    assert scene.index.detach("w1", "p") is True
    assert scene.index.detach("w1", "p") is False
    assert shared(scene, "AB", "w1") == [2]


def test_a_removed_pool_does_not_widen_the_reach(scene: Scene) -> None:
    scene.S("pool:p", "A")
    scene.S("pool:q", "AB")
    scene.index.attach("w1", "p")
    scene.index.remove_pool("p")
    assert shared(scene, "AB", "w1", "w2") == [0, 2]
    scene.S("pool:p", "A")
    assert shared(scene, "AB", "w1") == [1]


def test_a_removed_worker_is_attached_to_nothing(scene: Scene) -> None:
    scene.index.register_pool("q")
    scene.S("pool:p", "A")
    scene.index.attach("w1", "q")
    assert scene.index.remove_worker("w1") is True
    assert scene.index.remove_worker("w1") is False
    assert shared(scene, "A", "w1") == [1]


def test_attaching_needs_a_pool(scene: Scene) -> None:
    scene.S("w1", "A")
    for pool in ("p", "w1"):
        with pytest.raises(kvindex.ConfigError, match=f'there is no pool "{pool}"'):
            scene.index.attach("w1", pool)
    scene.index.register_pool("p")
    scene.index.attach("w1", "p")
    scene.index.remove_pool("p")
    with pytest.raises(kvindex.ConfigError):
        scene.index.attach("w1", "p")


# What a pool holds, and for how long.


def test_a_pools_clear_is_its_own(scene: Scene) -> None:
    for who in ("w1", "pool:p", "pool:q"):
        scene.S(who, "AB")
    assert scene.C("pool:p").cleared == 1
    assert scene.index.match(tokens("AB")).pools == {"p": 0, "q": 2}
    assert scene.depths("AB") == {"w1": 2}


def test_a_workers_end_never_touches_a_pool(scene: Scene) -> None:
    scene.S("p", "AB")  # a worker of the pool's name
    scene.S("pool:p", "AB")
    scene.C("p")
    assert shared(scene, "AB", "w1") == [2]
    scene.index.reset("p")
    scene.index.clear()
    scene.index.remove_worker("p")
    assert shared(scene, "AB", "w1") == [2]
    assert len(scene.index) == 2


def test_a_removed_pool_is_gone(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "AB")
    assert scene.index.remove_pool("p") is True
    assert scene.index.remove_pool("p") is False
    assert answer(scene, "AB") == {"w1": (1, 0, 0, 0, 0)}
    assert scene.index.match(tokens("AB")).pools == {}
    assert scene.index.pools() == []
    assert len(scene.index) == 1


def test_a_reset_pool_is_empty_and_stays_registered(scene: Scene) -> None:
    epoch = scene.index.register_pool("p", media={"tape": "disk"})
    scene.S("pool:p", "AB", seq=9)
    assert scene.index.reset_pool("p") is True
    assert scene.index.reset_pool("p") is False
    assert scene.index.reset_pool("q") is False
    report = scene.S("pool:p", "A", medium="tape", seq=1, epoch=epoch)
    assert (report.status, report.stored) == ("ok", 1)
    assert scene.index.pools() == [kvindex.PoolState("p", disk=1, seq=1)]


def test_copies_of_pools_are_counted_as_their_profile_says(scene: Scene) -> None:
    scene.index.register_pool("p", copies=())
    for pool in ("p", "q"):
        scene.S(f"pool:{pool}", "A", tier="cpu")
        scene.S(f"pool:{pool}", "A", tier="cpu")
        scene.R(f"pool:{pool}", "A", tier="cpu")
    assert scene.index.match(tokens("A")).pools == {"p": 0, "q": 1}


def test_names_of_pools_follow_the_rules_of_others(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.P("pool:p", "AB")
    scene.S("pool:p", "C", "AB")
    scene.R("w1", "A", "AB")
    assert shared(scene, "ABC", "w1") == [0]
    assert scene.S("w2", "A").stored == 1
    assert answer(scene, "ABC") == {"w2": (1, 0, 0, 0, 2)}
    assert scene.R("w2", "AB", "ABC").reasons == {"unknown_block": 2}


def test_stores_of_pools_wait_for_their_parents(scene: Scene) -> None:
    report = scene.S("pool:p", "B", "A")
    assert report.reasons == {"orphan": 1}
    assert scene.index.pools() == [kvindex.PoolState("p", orphans=1)]
    assert scene.S("w1", "A").attached == 1
    assert answer(scene, "AB") == {"w1": (1, 0, 0, 0, 1)}


def test_own_names_of_a_pool_mean_nothing_to_or_from_others(scene: Scene) -> None:
    scene.index.register_pool("p", names="own")
    scene.S("w1", "A", names=[1])
    assert scene.P("pool:p", 1).reasons == {"unresolved": 1}


# Streams of pools.


def test_a_pool_has_no_ranks(scene: Scene) -> None:
    event = wire.stored_map([1], tokens("A"))
    for inside, given in ((3, 0), (None, 5)):
        payload = wire.batch([event], inside)
        report = scene.index.apply(payload, pool="p", dp_rank=given)
        assert (report.stored, report.dp_rank) == (1, 0)
    assert len(scene.index.pools()) == 1


def test_numbers_of_a_pools_batches_are_compared(scene: Scene) -> None:
    scene.S("pool:p", "A", seq=1)
    assert scene.S("pool:p", "AB", seq=1).status == "duplicate"
    assert scene.S("p", "A", seq=1).status == "ok"
    assert scene.S("pool:p", "AB", seq=4).gap == (2, 3)
    assert scene.index.pools() == [kvindex.PoolState("p", device=2, seq=4)]


def test_late_events_of_a_removed_pool_change_nothing(scene: Scene) -> None:
    old = scene.index.register_pool("p")
    assert scene.index.register_pool("p") == old
    assert scene.index.register("p") != old
    scene.index.remove_pool("p")
    assert scene.S("pool:p", "A", epoch=old).reasons == EPOCH
    new = scene.index.register_pool("p")
    assert new > old
    assert scene.S("pool:p", "A", epoch=old).reasons == EPOCH
    assert scene.S("pool:p", "A", epoch=new).stored == 1


def test_unregistered_pools_are_ignored_where_registration_is_asked_for() -> None:
    scene = Scene(registered_only=True)
    scene.index.register("p")
    assert scene.S("pool:p", "A").reasons == {"unregistered": 1}
    scene.index.register_pool("p")
    assert scene.S("pool:p", "A").stored == 1


def test_a_batch_is_of_a_worker_or_of_a_pool(scene: Scene) -> None:
    apply: Any = scene.index.apply
    for options in ({}, {"worker": "a", "pool": "b"}, {"pool": 5}):
        with pytest.raises(TypeError):
            apply([], **options)
    assert scene.index.pools() == scene.index.workers() == []


def test_wrong_settings_of_a_pool_are_refused(scene: Scene) -> None:
    for options in (
        {"profile": "tape"},
        {"names": "mine"},
        {"chunk_tokens": {"host": BLOCK + 1}},
        {"media": {"x": "moon"}},
    ):
        settings: dict[str, Any] = options
        with pytest.raises(kvindex.ConfigError):
            scene.index.register_pool("p", **settings)
    assert scene.index.pools() == []


def test_a_pools_odd_blocks_are_reported_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kvindex"):
        for who in ("pool:p", "pool:p", "p"):
            scene.S(who, "A", block_size=3, token_ids=[1, 2, 3])
    assert [record.message[:10] for record in caplog.records] == [
        "pool 'p', ",
        "worker 'p'",
    ]


# What is told of pools.


def test_pools_are_listed_beside_workers(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:p", "AB", tier="cpu", seq=7)
    scene.S("pool:p", "A", tier="disk", seq=7)
    assert [line.worker for line in scene.index.workers()] == ["w1"]
    expected = kvindex.PoolState("p", host=2, seq=7, duplicates=1)
    assert scene.index.pools() == [expected]
    assert repr(expected).startswith("PoolState(pool='p', device=0, host=2")
    assert pickle.loads(pickle.dumps(expected)) == expected  # noqa: S301
    assert hash(expected) == hash(scene.index.pools()[0])


def test_stats_and_len_know_pools(scene: Scene) -> None:
    scene.S("w1@1", "A")
    scene.S("pool:p", "AB")
    scene.index.register_pool("q")
    stats = scene.index.stats()
    sizes = ("blocks", "workers", "pools", "holders", "claims")
    assert [stats[size] for size in sizes] == [2, 1, 2, 3, 3]
    assert len(scene.index) == 2
    assert repr(scene.index) == "kvindex.Indexer(block_size=4, workers=1, blocks=2)"


def test_explain_shows_what_pools_add(scene: Scene) -> None:
    scene.S("w1", "AC")
    scene.S("pool:p", "AB")
    scene.S("pool:q", "ABD")
    scene.index.attach("w1", "p")
    told = scene.index.explain(tokens("ABD"), worker="w1")
    assert (told["depth"], told["device"], told["shared"]) == (2, 1, 1)
    assert told["score"] == 1.5
    assert told["tiers"] == [["device", "shared"], ["shared"], []]
    assert told["pools"] == {"p": 2}
    assert told["stop"] == (
        "block 2 is in the index, but neither this worker nor a pool that it"
        " reaches holds a copy"
    )
    told = scene.index.explain(tokens("ABD"), worker="w2")
    assert (told["depth"], told["shared"], told["known_worker"]) == (3, 3, False)
    assert told["pools"] == {"p": 2, "q": 3}


def test_a_pool_may_be_called_like_a_worker(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("pool:w1", "B")
    assert answer(scene, "A") == {"w1": (1, 0, 0, 0, 0)}
    assert scene.index.match(tokens("B")).pools == {"w1": 1}
    assert scene.R("w1", name("B")).reasons == {"unknown_block": 1}
    scene.index.remove_pool("w1")
    assert scene.depths("A") == {"w1": 1}

"""Cache groups of hybrid models, where all of them count: what a group needs."""

import pytest

import kvindex
from kvindex import BlockStored
from tests import wire
from tests.helpers import BLOCK, FORMS, Scene, names, raw, split, state, tokens
from tests.hybrid import FULL, STATE, WINDOW, depth, drop, full, prefixes

KINDS_THAT_NEED_ALL = [
    "full_attention",
    "chunked_local_attention",
    "sliding_window",  # of unknown length
    "unknown",
    "something new",
]


@pytest.fixture(params=FORMS)
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param, group_rules=True)


# What a group needs.


def test_without_group_rules_the_main_group_alone_counts(form: str) -> None:
    scene = Scene(form)
    assert scene.index.group_rules is False
    full(scene, "ABC")
    assert scene.S("w1", "ABC", **WINDOW).reasons == {"group": 3}
    assert depth(scene, "ABC") == 3


def test_a_window_needs_its_last_blocks(scene: Scene) -> None:
    assert scene.index.group_rules is True
    full(scene, "ABCDEF")
    scene.S("w1", "ABCDEF", **WINDOW)
    drop(scene, WINDOW, *prefixes("ABCD"))
    assert depth(scene, "ABCDEF") == 6
    assert depth(scene, "ABCDE") == 0
    drop(scene, WINDOW, "ABCDE")
    assert depth(scene, "ABCDEF") == 0


def test_a_window_goes_on_from_a_shorter_prefix_if_that_is_whole(scene: Scene) -> None:
    full(scene, "ABC")
    scene.S("w1", "ABC", **WINDOW)
    drop(scene, WINDOW, "AB")
    assert depth(scene, "ABC") == 1


def test_a_window_goes_on_from_the_deepest_point_that_has_one(scene: Scene) -> None:
    full(scene, "ABCDEFGH")
    scene.S("w1", "ABCDEFGH", **WINDOW)
    drop(scene, WINDOW, "ABCDEFG", "ABC", "AB")
    assert depth(scene, "ABCDEFGH") == 6
    assert depth(scene, "ABCDE") == 5
    assert depth(scene, "ABCD") == 1


@pytest.mark.parametrize(
    ("window", "blocks"), [(1, 0), (2, 1), (5, 1), (6, 2), (9, 2), (10, 3)]
)
def test_a_window_of_tokens_is_one_less_in_whole_blocks(
    form: str, window: int, blocks: int
) -> None:
    group = WINDOW | {"kv_cache_spec_sliding_window": window}
    scene = Scene(form, group_rules=True)
    full(scene, "ABCDEF")
    scene.S("w1", "ABCDEF", **group)
    drop(scene, group, *prefixes("ABCDEF")[: 6 - blocks])
    assert depth(scene, "ABCDEF") == 6
    if blocks:
        drop(scene, group, prefixes("ABCDEF")[6 - blocks])
        assert depth(scene, "ABCDEF") == 0


def test_a_state_is_needed_at_the_end_and_only_there(scene: Scene) -> None:
    full(scene, "ABCDE")
    scene.S("w1", "ABCDE", **STATE)
    drop(scene, STATE, "A", "ABC", "ABCDE")
    assert [depth(scene, "ABCDE"[:end]) for end in range(1, 6)] == [0, 2, 2, 4, 4]


@pytest.mark.parametrize("kind", KINDS_THAT_NEED_ALL)
def test_other_kinds_need_all_blocks(form: str, kind: str) -> None:
    scene = Scene(form, group_rules=True)
    full(scene, "ABCD")
    scene.S("w1", "ABCD", group_idx=3, kv_cache_spec_kind=kind)
    assert depth(scene, "ABCD") == 4
    scene.R("w1", "ABC", group_idx=3)
    assert depth(scene, "ABCD") == 2


def test_a_group_without_a_kind_needs_all_blocks(scene: Scene) -> None:
    scene.S("w1", "ABCD", group_idx=0)
    scene.S("w1", "ABCD", group_idx=1)
    scene.R("w1", "ABC", group_idx=1)
    assert depth(scene, "ABCD") == 2


def test_a_kind_that_comes_later_counts_from_then_on(scene: Scene) -> None:
    full(scene, "ABCD")
    scene.S("w1", "ABCD", group_idx=1)
    scene.R("w1", "AB", group_idx=1)
    assert depth(scene, "ABCD") == 1
    scene.S("w1", "X", **WINDOW)
    assert depth(scene, "ABCD") == 4


def test_the_deepest_point_is_one_for_all_groups(scene: Scene) -> None:
    full(scene, "ABCDEFG")
    for group in (WINDOW, STATE):
        scene.S("w1", "ABCDEFG", **group)
    drop(scene, WINDOW, "ABCDE", "ABCDEF")
    assert depth(scene, "ABCDEFG") == 4
    drop(scene, STATE, "ABCD", "ABC")
    assert depth(scene, "ABCDEFG") == 2
    drop(scene, WINDOW, "AB")
    assert depth(scene, "ABCDEFG") == 1


def test_several_groups_of_one_kind_count_each(scene: Scene) -> None:
    full(scene, "ABC")
    other = STATE | {"group_idx": 7}
    for group in (STATE, other):
        scene.S("w1", "ABC", **group)
    drop(scene, STATE, "ABC")
    drop(scene, other, "AB")
    assert depth(scene, "ABC") == 1


def test_of_several_full_groups_all_count(scene: Scene) -> None:
    other = FULL | {"group_idx": 4}
    full(scene, "ABC")
    scene.S("w1", "ABC", **other)
    drop(scene, other, "AB")
    assert depth(scene, "ABC") == 1
    drop(scene, FULL, "A")
    assert depth(scene, "ABC") == 0


# What a row is.


def test_a_row_is_that_of_the_main_group_up_to_the_point(scene: Scene) -> None:
    full(scene, "AB")
    scene.S("w1", "CD", "AB", tier="cpu", **FULL)
    scene.S("w1", "ABC", **STATE)
    row = scene.rows("ABCD")["w1"]
    assert (row.depth, split(row), row.score) == (3, (2, 1, 0, 0), 2.75)


def test_any_tier_counts_for_a_group(scene: Scene) -> None:
    full(scene, "ABC")
    scene.S("w1", "ABC", **WINDOW)
    scene.P("w1", "AB", **WINDOW)
    drop(scene, WINDOW, "AB")
    row = scene.rows("ABC")["w1"]
    assert (row.depth, split(row)) == (3, (3, 0, 0, 0))
    scene.R("w1", "AB", tier="cpu", group_idx=1)
    assert depth(scene, "ABC") == 1


def test_what_workers_hold_is_that_of_the_main_group(scene: Scene) -> None:
    full(scene, "ABC")
    for group in (WINDOW, STATE):
        scene.S("w1", "ABC", **group)
    assert state(scene.index, "w1").device == 3
    assert scene.index.stats()["claims"] == 3
    drop(scene, FULL, *prefixes("ABC"))
    assert state(scene.index, "w1").device == 0
    assert len(scene.index) == 3
    assert scene.depths("ABC") == {}


def test_names_and_candidates_are_answered_alike(scene: Scene) -> None:
    full(scene, "ABCD")
    scene.S("w1", "ABCD", **WINDOW)
    drop(scene, WINDOW, "ABCD", "AB")
    scene.S("w2", "AB")
    found = scene.index.match_names(names(*prefixes("ABCD")))
    assert {row.worker: row.depth for row in found} == {"w1": 1, "w2": 2}
    who = scene.index.candidates(["w2", "w1", "w3"])
    assert list(scene.index.match(tokens("ABCD"), workers=who).depths) == [2, 1, 0]
    keys = kvindex.block_keys(tokens("ABCD"), block_size=BLOCK)
    assert list(scene.index.match_keys(keys, workers=["w1"]).depths) == [1]


def test_a_walk_that_goes_one_way_knows_the_main_group_alone(scene: Scene) -> None:
    full(scene, "ABCD")
    scene.S("w1", "A", **WINDOW)
    assert scene.depths("ABCD", cascade=True) == {"w1": 4}
    assert depth(scene, "ABCD") == 1


# Which groups there are.


def test_a_holder_without_other_groups_is_answered_as_ever(scene: Scene) -> None:
    full(scene, "ABC")
    scene.S("w2", "ABC", group_idx=0)
    scene.S("w3", "ABC")
    scene.S("w1", "AB", **STATE)
    assert scene.depths("ABC") == {"w1": 2, "w2": 3, "w3": 3}


def test_each_rank_has_groups_of_its_own(scene: Scene) -> None:
    for who in ("w1", "w1@1"):
        scene.S(who, "ABC", **FULL)
    scene.S("w1@1", "AB", **STATE)
    assert scene.depths("ABC") == {"w1": 3, "w1@1": 2}


def test_a_group_that_holds_nothing_of_a_prompt_counts(scene: Scene) -> None:
    scene.S("w1", "X", **WINDOW)
    full(scene, "ABC")
    assert scene.depths("ABC") == {}
    drop(scene, WINDOW, "X")
    assert scene.depths("ABC") == {}


def test_a_removal_of_an_unknown_group_is_counted(scene: Scene) -> None:
    assert scene.R("w1", "A", group_idx=1).reasons == {"group": 1}
    full(scene, "A")
    assert scene.R("w1", "A", group_idx=1).reasons == {"group": 1}
    scene.S("w1", "B", **WINDOW)
    assert scene.R("w1", "A", group_idx=1).reasons == {"unknown_block": 1}
    assert state(scene.index, "w1").device == 1


def test_a_name_alone_does_not_make_a_group(scene: Scene) -> None:
    full(scene, "ABC")
    assert scene.P("w1", "A", group_idx=1).reasons == {"group": 1}
    assert depth(scene, "ABC") == 3
    assert scene.P("w1", "A", **WINDOW).stored == 1
    assert depth(scene, "ABC") == 1


def test_a_group_stays_what_it_was_first(scene: Scene) -> None:
    scene.S("w1", "A", **WINDOW)
    full(scene, "A")
    report = scene.S("w1", "AB", **(FULL | {"kv_cache_spec_kind": "mamba"}))
    assert report.reasons == {"group": 2}
    scene.S("w1", "AB", **(WINDOW | {"kv_cache_spec_kind": "full_attention"}))
    assert state(scene.index, "w1").device == 1


def test_a_clear_empties_all_groups_and_forgets_none(scene: Scene) -> None:
    full(scene, "ABC")
    scene.S("w1", "ABC", **WINDOW)
    scene.C("w1")
    full(scene, "ABC")
    assert scene.depths("ABC") == {}
    scene.S("w1", "ABC", **WINDOW)
    assert depth(scene, "ABC") == 3


def test_a_clear_empties_its_tiers_alone(scene: Scene) -> None:
    scene.index.register("w1", clears=("device",))
    scene.S("w1", "ABC", tier="cpu", **FULL)
    scene.S("w1", "ABC", **WINDOW)
    scene.P("w1", "A", **WINDOW)
    scene.C("w1")
    assert depth(scene, "ABC") == 1


@pytest.mark.parametrize("end", ["reset", "remove_worker", "clear"])
def test_who_begins_anew_has_no_groups(scene: Scene, end: str) -> None:
    full(scene, "A")
    scene.S("w1", "A", **WINDOW)
    if end == "clear":
        scene.index.clear()
    else:
        getattr(scene.index, end)("w1")
    assert len(scene.index) == 0
    full(scene, "ABC")
    assert depth(scene, "ABC") == 3


def test_a_number_that_is_given_out_again_brings_no_groups(scene: Scene) -> None:
    scene.S("w1", "A", **WINDOW)
    scene.index.remove_worker("w1")
    scene.index.stats()
    scene.S("w2", "ABC", **FULL)
    assert scene.depths("ABC") == {"w2": 3}


def test_copies_are_counted_for_each_group(scene: Scene) -> None:
    full(scene, "AB")
    for _ in range(2):
        scene.S("w1", "AB", **STATE)
    drop(scene, FULL, "AB")
    full(scene, "B", "A")
    drop(scene, STATE, "AB")
    assert depth(scene, "AB") == 2
    drop(scene, STATE, "AB")
    assert depth(scene, "AB") == 1


# Pools, predictions, pairs.


def test_a_pool_has_the_main_group_alone(scene: Scene) -> None:
    full(scene, "AB")
    scene.S("w1", "ABCD", **STATE)
    scene.S("pool:p", "ABCDE", **FULL)
    assert scene.S("pool:p", "ABCDE", **STATE).reasons == {"group": 5}
    row = scene.rows("ABCDE")["w1"]
    assert (row.depth, row.device, row.shared) == (4, 2, 2)
    drop(scene, STATE, "ABCD")
    row = scene.rows("ABCDE")["w1"]
    assert (row.depth, row.device, row.shared) == (3, 2, 1)
    assert scene.index.match(tokens("ABCDE")).pools == {"p": 5}


def test_a_pools_unit_counts_only_before_the_point(scene: Scene) -> None:
    full(scene, "A")
    scene.S("pool:p", "ABCD", names=names("AB", "ABCD"), block_size=2 * BLOCK)
    scene.S("w1", "ABC", **STATE)
    row = scene.rows("ABCD")["w1"]
    assert (row.depth, row.device, row.shared) == (2, 1, 1)


def test_what_is_predicted_is_predicted_of_every_group(scene: Scene) -> None:
    full(scene, "AB")
    scene.S("w1", "A", **STATE)
    scene.index.predict(tokens("ABC"), worker="w1", now=0.0, ttl=1.0)
    row = scene.rows("ABCD")["w1"]
    assert (row.depth, row.device, row.predicted) == (3, 2, 1)
    scene.index.expire(1.0)
    assert depth(scene, "ABCD") == 1


def test_pairs_have_groups_too() -> None:
    scene = Scene("objects", group_rules=True)
    text = tokens("ABCD")
    pairs = wire.pairs(text)[: 3 * BLOCK]
    scene.S("w1", "ABC", token_ids=pairs, **FULL)
    scene.S("w1", "ABC", token_ids=pairs, **STATE)
    assert depth(scene, "ABCD") == 3
    drop(scene, STATE, "ABC")
    assert depth(scene, "ABCD") == 2


# Reading, and why.


@pytest.mark.parametrize("window", ["9", -1, 2.5, True, [9], 2**64])
def test_a_window_that_is_no_length_makes_the_event_malformed(window: object) -> None:
    index = kvindex.Indexer(block_size=BLOCK, group_rules=True)
    event = wire.stored_map([1], tokens("A"), None, BLOCK)
    try:
        report = raw(index, event | WINDOW | {"kv_cache_spec_sliding_window": window})
    except OverflowError:
        assert window == 2**64  # msgpack ends there
        return
    assert report.reasons == {"malformed": 1}


@pytest.mark.parametrize("window", [None, 0])
def test_a_window_without_a_length_needs_all_blocks(
    scene: Scene, window: int | None
) -> None:
    group = WINDOW | {"kv_cache_spec_sliding_window": window}
    full(scene, "ABC")
    scene.S("w1", "ABC", **group)
    drop(scene, group, "AB")
    assert depth(scene, "ABC") == 1


def test_a_window_may_be_longer_than_any_prompt(scene: Scene) -> None:
    group = WINDOW | {"kv_cache_spec_sliding_window": 2**40}
    full(scene, "ABC")
    scene.S("w1", "ABC", **group)
    assert depth(scene, "ABC") == 3
    drop(scene, group, "A")
    assert depth(scene, "ABC") == 0


def test_explain_tells_the_groups_apart(scene: Scene) -> None:
    full(scene, "ABCDE")
    scene.S("w1", "ABCDE", **WINDOW)
    scene.S("w1", "ABCDE", **STATE)
    drop(scene, WINDOW, "ABCDE", "ABC")
    drop(scene, STATE, "AB")
    why = scene.index.explain(tokens("ABCDEF"), worker="w1")
    assert why["depth"] == 1
    assert why["stop"] == (
        "no later block is one from which all cache groups of the worker can go on"
    )
    assert why["tiers"] == [["device"]] * 5
    assert why["groups"] == [
        {"group": 0, "needs": None, "depth": 5},
        {"group": 1, "needs": 2, "depth": 2},
        {"group": 2, "needs": 1, "depth": 5},
    ]


def test_explain_has_no_groups_where_there_is_but_one(scene: Scene) -> None:
    full(scene, "AB")
    why = scene.index.explain(tokens("ABC"), worker="w1")
    assert why["groups"] == []
    assert why["stop"] == "nobody holds block 2 under this prefix"


def test_an_engines_own_objects_carry_the_window() -> None:
    index = kvindex.Indexer(block_size=BLOCK, group_rules=True)
    events = [
        BlockStored(names("A", "AB", "ABC"), tokens("ABC"), **group)
        for group in (FULL, WINDOW)
    ]
    index.apply(events, worker="w1")
    index.apply([kvindex.BlockRemoved(names("A"), group_idx=1)], worker="w1")
    assert index.match(tokens("ABC"))[0].depth == 3

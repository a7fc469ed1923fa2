"""Stores, copies, removals and clears: rules 1, 5, 6 and 7."""

from typing import Any

import pytest

from kvindex import AllBlocksCleared
from tests.helpers import TIERS, Scene, find_state, name, split

NEVER_COUNTING = ("disk", "external")
COUNTING = ("gpu", "cpu")


# Rule 1: what a store credits.


def test_each_block_of_an_event_is_the_child_of_the_one_before(scene: Scene) -> None:
    scene.S("w1", "ABC")
    assert scene.depths("ABC") == {"w1": 3}
    assert scene.depths("BC") == {}
    assert scene.depths("AC") == {"w1": 1}


def test_a_store_without_a_parent_starts_at_the_root(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("w1", "B")
    assert scene.depths("A") == scene.depths("B") == {"w1": 1}
    assert scene.depths("AB") == {"w1": 1}


def test_a_store_credits_no_ancestor(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2", "CD", "AB")
    assert scene.depths("ABCD") == {"w1": 2}
    assert scene.held("w2") == 2
    scene.S("w2", "A")
    assert scene.depths("ABCD") == {"w1": 2, "w2": 1}
    scene.S("w2", "B", "A")
    assert scene.depths("ABCD") == {"w1": 2, "w2": 4}


def test_branches_of_one_prefix_are_apart(scene: Scene) -> None:
    scene.S("w1", "ABC")
    scene.S("w1", "XY", "A")
    scene.S("w2", "AXZ")
    assert scene.depths("ABC") == {"w1": 3, "w2": 1}
    assert scene.depths("AXY") == {"w1": 3, "w2": 2}
    assert scene.depths("AXZ") == {"w1": 2, "w2": 3}
    assert len(scene.index) == 6


def test_a_trailing_partial_block_of_a_query_is_not_looked_up(scene: Scene) -> None:
    scene.S("w1", "A")
    assert scene.depths([65000, 65001, 65002]) == {}
    assert scene.depths([65000, 65001, 65002, 65003, 1]) == {"w1": 1}


def test_what_cannot_be_reached_is_held_all_the_same(scene: Scene) -> None:
    scene.S("w1", "ABC")
    scene.S("w2", "BC", "A")
    scene.R("w1", "A")
    assert scene.depths("ABC") == {}
    assert (scene.held("w1"), scene.held("w2")) == (2, 2)


def test_the_rank_is_told_in_the_batch_or_beside_it(scene: Scene) -> None:
    report = scene.S("w1@5", "A")
    assert report.dp_rank == 5
    assert scene.depths("A") == {"w1@5": 1}


# Rule 5: copies.


@pytest.mark.parametrize("tier", COUNTING)
@pytest.mark.parametrize("profile", ["none", "auto", "vllm", "sglang"])
def test_counting_tiers_take_as_many_removals_as_stores(
    scene: Scene, tier: str, profile: str
) -> None:
    if profile != "none":
        scene.index.register("w1", profile=profile)
    for _ in range(3):
        scene.S("w1", "A", tier=tier)
    assert scene.held("w1") == 1
    for kept in (1, 1, 0):
        assert scene.R("w1", "A", tier=tier).removed == 1
        assert scene.held("w1") == kept
    assert scene.R("w1", "A", tier=tier).reasons == {"unknown_block": 1}


@pytest.mark.parametrize("tier", NEVER_COUNTING)
@pytest.mark.parametrize("profile", ["none", "auto", "vllm", "sglang"])
def test_other_tiers_are_sets(scene: Scene, tier: str, profile: str) -> None:
    if profile != "none":
        scene.index.register("w1", profile=profile)
    for _ in range(3):
        assert scene.S("w1", "A", tier=tier).stored == 1
    assert scene.R("w1", "A", tier=tier).removed == 1
    assert scene.held("w1") == 0
    assert scene.R("w1", "A", tier=tier).reasons == {"unknown_block": 1}


@pytest.mark.parametrize(
    ("copies", "counted"),
    [
        ((), ()),
        (("device",), ("gpu",)),
        (("host",), ("cpu",)),
        (("disk", "external"), ("disk", "external")),
        (TIERS, ("gpu", "cpu", "disk", "external")),
    ],
    ids=str,
)
def test_a_profile_says_which_tiers_count(
    scene: Scene, copies: tuple[str, ...], counted: tuple[str, ...]
) -> None:
    scene.index.register("w1", copies=copies)
    for tier in ("gpu", "cpu", "disk", "external"):
        scene.S("w1", "A", tier=tier)
        scene.S("w1", "A", tier=tier)
        scene.R("w1", "A", tier=tier)
        assert (scene.held("w1") == 1) is (tier in counted)
        scene.R("w1", "A", tier=tier)
        assert scene.held("w1") == 0


def test_a_block_is_held_while_any_of_its_names_has_a_copy(scene: Scene) -> None:
    scene.S("w1", "A", names=[1])
    scene.S("w1", "A", names=[2])
    scene.R("w1", 1)
    assert scene.depths("A") == {"w1": 1}
    assert scene.R("w1", 1).reasons == {"unknown_block": 1}
    scene.R("w1", 2)
    assert scene.depths("A") == {}


def test_names_are_apart_in_a_set_too(scene: Scene) -> None:
    scene.S("w1", "A", names=[1], tier="disk")
    scene.S("w1", "A", names=[2], tier="disk")
    scene.R("w1", 1, tier="disk")
    assert scene.depths("A") == {"w1": 1}
    scene.R("w1", 2, tier="disk")
    assert scene.depths("A") == {}


def test_copies_of_tiers_are_apart(scene: Scene) -> None:
    for tier in ("gpu", "cpu", "disk", "external"):
        scene.S("w1", "A", tier=tier)
    assert scene.held("w1") == 4
    for tier, left in (
        ("gpu", (0, 1, 0, 0)),
        ("cpu", (0, 0, 1, 0)),
        ("disk", (0, 0, 0, 1)),
    ):
        scene.R("w1", "A", tier=tier)
        assert split(scene.rows("A")["w1"]) == left
    scene.R("w1", "A", tier="external")
    assert scene.depths("A") == {}


def test_copies_of_holders_are_apart(scene: Scene) -> None:
    for who in ("w1", "w1@1", "w2"):
        scene.S(who, "A")
    scene.R("w1", "A")
    assert scene.R("w1", "A").reasons == {"unknown_block": 1}
    assert scene.depths("A") == {"w1@1": 1, "w2": 1}


def test_one_name_spelled_as_integer_and_bytes_is_one_entry(scene: Scene) -> None:
    spelled = b"\xaa" * 24 + name("A").to_bytes(8, "big")
    scene.S("w1", "A", names=[name("A")])
    scene.S("w1", "A", names=[spelled])
    assert scene.R("w1", "A").removed == 1
    assert scene.depths("A") == {"w1": 1}
    assert scene.R("w1", spelled).removed == 1
    assert scene.depths("A") == {}


# Rule 6: removals.


def test_each_hash_of_a_removal_stands_alone(scene: Scene) -> None:
    scene.S("w1", "ABCD")
    report = scene.R("w1", "ABCD", "no", "AB", "such", "ABC")
    assert (report.removed, report.ignored) == (3, 2)
    assert report.reasons == {"unknown_block": 2}
    assert scene.depths("ABCD") == {"w1": 1}


def test_a_removal_may_name_a_hash_twice(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("w1", "A")
    report = scene.R("w1", "A", "A", "A")
    assert (report.removed, report.reasons) == (2, {"unknown_block": 1})
    assert scene.depths("A") == {}


@pytest.mark.parametrize("order", ["ABCDE", "EDCBA", "CADBE", "BDACE"])
def test_blocks_come_back_in_any_order(scene: Scene, order: str) -> None:
    scene.S("w1", "ABCDE")
    scene.S("w2", "AB")
    paths = {path[-1]: path for path in ("A", "AB", "ABC", "ABCD", "ABCDE")}
    for letter in order:
        scene.R("w1", paths[letter])
    assert scene.depths("ABCDE") == {"w2": 2}
    back: set[str] = set()
    for letter in sorted(order, key="ABCDE".index):
        scene.S("w1", letter, paths[letter][:-1])
        back.add(letter)
        assert scene.depths("ABCDE")["w1"] == len(back)


def test_holes_and_returns_are_exact_at_each_step(scene: Scene) -> None:
    path = "ABCDEFGHIJ"
    scene.S("w1", path)
    scene.S("w2", path)
    for hole, depth in ((7, 7), (3, 3), (5, 3), (0, 0)):
        scene.R("w1", path[: hole + 1])
        assert scene.depths(path).get("w1", 0) == depth
    for hole, depth in ((0, 3), (5, 3), (3, 7), (7, 10)):
        scene.S("w1", path[hole], path[:hole])
        assert scene.depths(path) == {"w1": depth, "w2": 10}


def test_a_removal_on_a_tier_without_a_copy_is_an_unknown_block(scene: Scene) -> None:
    scene.S("w1", "A")
    report = scene.R("w1", "A", tier="cpu")
    assert (report.removed, report.reasons) == (0, {"unknown_block": 1})
    assert scene.depths("A") == {"w1": 1}


def test_a_removal_of_an_unknown_worker_makes_no_state(scene: Scene) -> None:
    assert scene.R("w9", "A").reasons == {"unknown_block": 1}
    assert scene.held("w9") == 0


# Rule 7: clears.


def everywhere(scene: Scene, who: str) -> None:
    for tier in ("gpu", "cpu", "disk", "external"):
        scene.S(who, "A", tier=tier)


def tiers_of(scene: Scene, who: str) -> tuple[int, int, int, int]:
    line = find_state(scene.index, who)
    return (
        (0, 0, 0, 0)
        if line is None
        else (line.device, line.host, line.disk, line.external)
    )


@pytest.mark.parametrize(
    ("profile", "left"),
    [
        ({}, (0, 0, 1, 1)),
        ({"profile": "auto"}, (0, 0, 0, 0)),
        ({"profile": "vllm"}, (0, 0, 1, 1)),
        ({"profile": "sglang"}, (0, 0, 0, 0)),
        ({"clears": ("device",)}, (0, 1, 1, 1)),
        ({"clears": ("host", "external")}, (1, 0, 1, 0)),
        ({"clears": ()}, (1, 1, 1, 1)),
        ({"profile": "sglang", "clears": ("device", "host")}, (0, 0, 1, 1)),
    ],
    ids=str,
)
def test_a_profile_says_what_a_clear_clears(
    scene: Scene, profile: dict[str, Any], left: tuple[int, int, int, int]
) -> None:
    scene.index.register("w1", **profile)
    everywhere(scene, "w1")
    everywhere(scene, "w2")
    assert scene.C("w1").cleared == 1
    assert tiers_of(scene, "w1") == left
    assert tiers_of(scene, "w2") == (1, 1, 1, 1)


def test_an_unregistered_worker_is_cleared_on_all_tiers(scene: Scene) -> None:
    everywhere(scene, "w1")
    scene.C("w1")
    assert tiers_of(scene, "w1") == (0, 0, 0, 0)
    assert scene.depths("A") == {}


def test_a_clear_concerns_one_rank(scene: Scene) -> None:
    for who in ("w1", "w1@1"):
        everywhere(scene, who)
    scene.C("w1@1")
    assert tiers_of(scene, "w1") == (1, 1, 1, 1)
    assert tiers_of(scene, "w1@1") == (0, 0, 0, 0)


def test_two_clears_of_vllm_in_one_batch_are_the_pools_and_the_connectors(
    scene: Scene,
) -> None:
    scene.index.register("w1", profile="vllm")
    everywhere(scene, "w1")
    report = scene.apply("w1", [AllBlocksCleared(), AllBlocksCleared()])
    assert report.cleared == 2
    assert tiers_of(scene, "w1") == (0, 0, 0, 1)


def test_the_first_of_two_clears_of_vllm_leaves_the_host(scene: Scene) -> None:
    scene.index.register("w1", profile="vllm")
    scene.S("w1", "AB")
    batch = [
        AllBlocksCleared(),
        scene.stored("A", tier="cpu"),
        AllBlocksCleared(),
        scene.stored("B", tier="cpu"),
        scene.stored("C"),
    ]
    scene.apply("w1", batch)
    assert tiers_of(scene, "w1") == (1, 1, 0, 0)
    assert scene.depths("A") == {}
    assert scene.depths("B") == scene.depths("C") == {"w1": 1}


def test_two_clears_in_two_batches_are_alike(scene: Scene) -> None:
    scene.index.register("w1", profile="vllm")
    everywhere(scene, "w1")
    scene.C("w1")
    scene.C("w1")
    assert tiers_of(scene, "w1") == (0, 0, 1, 1)


def test_given_clears_hold_for_each_of_two_in_one_batch(scene: Scene) -> None:
    scene.index.register("w1", profile="vllm", clears=("device",))
    everywhere(scene, "w1")
    scene.apply("w1", [AllBlocksCleared(), AllBlocksCleared()])
    assert tiers_of(scene, "w1") == (0, 1, 1, 1)


def test_a_clear_forgets_all_copies(scene: Scene) -> None:
    for _ in range(3):
        scene.S("w1", "A")
    scene.C("w1")
    scene.S("w1", "A")
    scene.R("w1", "A")
    assert scene.depths("A") == {}


def test_a_clear_forgets_no_name_of_others(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2", "A")
    scene.C("w2")
    scene.S("w2", "C", "AB")
    scene.S("w2", "AB")
    assert scene.depths("ABC") == {"w1": 2, "w2": 3}


def test_names_of_a_cleared_worker_mean_nothing_when_nobody_holds_them(
    scene: Scene,
) -> None:
    scene.S("w1", "AB")
    scene.C("w1")
    assert scene.S("w1", "C", "AB").reasons == {"orphan": 1}
    assert scene.R("w1", "A").reasons == {"unknown_block": 1}
    assert scene.P("w1", "A").reasons == {"unresolved": 1}


def test_a_clear_of_an_empty_holder_counts(scene: Scene) -> None:
    report = scene.C("w1")
    assert (report.cleared, report.ignored, report.reasons) == (1, 0, {})


def test_stores_after_a_clear_are_exact(scene: Scene) -> None:
    scene.S("w1", "ABCD")
    scene.S("w2", "ABCD")
    for letters in ("AB", "ABC", "A"):
        scene.C("w1")
        assert scene.depths("ABCD") == {"w2": 4}
        scene.S("w1", letters)
        assert scene.depths("ABCD") == {"w1": len(letters), "w2": 4}
        assert scene.held("w1") == len(letters)


def test_removals_after_a_clear_find_nothing(scene: Scene) -> None:
    scene.S("w1", "ABC")
    scene.C("w1")
    report = scene.R("w1", "A", "AB", "ABC")
    assert report.reasons == {"unknown_block": 3}

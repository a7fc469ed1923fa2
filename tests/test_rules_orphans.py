"""Stores whose parent is unknown: rule 3."""

import pytest

from kvindex import AllBlocksCleared
from tests.helpers import Scene, name, names, state

X, Y, Z = names("x", "y", "z")


def test_a_store_with_an_unknown_parent_is_not_filed_at_the_root(scene: Scene) -> None:
    report = scene.S("w1", "BC", "A")
    assert (report.stored, report.ignored, report.attached) == (0, 0, 0)
    assert report.reasons == {"orphan": 2}
    assert scene.depths("BC") == {}
    assert (scene.held("w1"), scene.waiting("w1")) == (0, 2)


def test_a_waiting_store_is_attached_when_its_parent_is_announced(scene: Scene) -> None:
    scene.S("w1", "BC", "A")
    report = scene.S("w1", "A")
    assert (report.stored, report.attached, report.reasons) == (1, 2, {})
    assert scene.depths("ABC") == {"w1": 3}
    assert scene.waiting("w1") == 0


def test_anyone_may_announce_the_parent(scene: Scene) -> None:
    scene.S("w1", "BC", "A")
    assert scene.S("w2", "A").attached == 2
    assert scene.depths("ABC") == {"w2": 1}
    assert scene.held("w1") == 2
    scene.S("w1", "A")
    assert scene.depths("ABC") == {"w1": 3, "w2": 1}


def test_attaching_announces_names_that_others_wait_for(scene: Scene) -> None:
    scene.S("w1", "DE", "ABC")
    scene.S("w2", "C", "AB")
    scene.S("w1", "C", "AB")
    scene.S("w1", "B", "A")
    report = scene.S("w1", "A")
    assert (report.stored, report.attached) == (1, 5)
    assert scene.depths("ABCDE") == {"w1": 5}
    assert (scene.held("w2"), scene.waiting("w2")) == (1, 0)


def test_waiting_stores_attach_within_one_batch(scene: Scene) -> None:
    report = scene.apply(
        "w1",
        [scene.stored("C", "AB"), scene.stored("B", "A"), scene.stored("A")],
    )
    assert (report.stored, report.attached) == (1, 2)
    assert scene.depths("ABC") == {"w1": 3}


def test_a_profile_of_own_names_waits_for_its_own_parent(scene: Scene) -> None:
    scene.S("w2", "A", names=[X])
    scene.index.register("w1", names="own")
    assert scene.S("w1", "B", names=[Y], parent=X).reasons == {"orphan": 1}
    assert scene.S("w2", "C", names=[Z]).attached == 0
    assert scene.S("w1", "A", names=[X]).attached == 1
    assert scene.depths("AB") == {"w1": 2, "w2": 1}


def test_a_waiting_store_keeps_its_tier_and_namespace(scene: Scene) -> None:
    scene.S("w1", "B", names=[Y], parent=X, tier="cpu", lora="x")
    scene.S("w1", "A", names=[X], lora="x")
    row = scene.rows("AB", lora_name="x")["w1"]
    assert (row.device, row.host) == (1, 1)


def test_a_waiting_store_inherits_when_it_is_attached(scene: Scene) -> None:
    scene.S("w1", "B", names=[Y], parent=X)
    scene.S("w1", "A", names=[X], lora="x")
    assert scene.depths("AB", lora_name="x") == {"w1": 2}
    assert scene.depths("AB") == {}


def test_waiting_copies_are_counted(scene: Scene) -> None:
    scene.S("w1", "B", "A")
    scene.S("w1", "B", "A")
    assert scene.waiting("w1") == 2
    assert scene.S("w1", "A").attached == 2
    scene.R("w1", "AB")
    assert scene.depths("AB") == {"w1": 2}
    scene.R("w1", "AB")
    assert scene.depths("AB") == {"w1": 1}


# Removals.


def test_a_removal_takes_a_waiting_copy(scene: Scene) -> None:
    scene.S("w1", "B", "A")
    report = scene.R("w1", "AB")
    assert (report.removed, report.ignored, report.reasons) == (1, 0, {})
    assert scene.waiting("w1") == 0
    assert scene.S("w1", "A").attached == 0
    assert scene.depths("AB") == {"w1": 1}


def test_a_removal_takes_a_waiting_copy_before_a_live_one(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "B", names=[X], parent=Y)
    assert scene.R("w1", X).removed == 1
    assert (scene.depths("A"), scene.waiting("w1")) == ({"w1": 1}, 0)
    assert scene.R("w1", X).removed == 1
    assert scene.depths("A") == {}


def test_a_removal_takes_one_waiting_copy_at_a_time(scene: Scene) -> None:
    for _ in range(3):
        scene.S("w1", "B", "A")
    assert scene.R("w1", "AB", "AB").removed == 2
    assert scene.waiting("w1") == 1
    assert scene.S("w1", "A").attached == 1


def test_a_removal_takes_waiting_copies_of_its_own_tier_and_holder(
    scene: Scene,
) -> None:
    scene.S("w1", "B", "A")
    scene.S("w2", "B", "A", tier="cpu")
    assert scene.R("w1", "AB", tier="cpu").reasons == {"unknown_block": 1}
    assert scene.R("w2", "AB").reasons == {"unknown_block": 1}
    assert (scene.waiting("w1"), scene.waiting("w2")) == (1, 1)


def test_blocks_behind_a_taken_one_keep_their_position(scene: Scene) -> None:
    scene.S("w1", "BCD", "A")
    scene.R("w1", "ABC")
    assert scene.waiting("w1") == 2
    assert scene.S("w1", "A").attached == 2
    assert scene.depths("ABCD") == {"w1": 2}
    assert scene.held("w1") == 3
    assert scene.R("w1", "ABC").reasons == {"unknown_block": 1}
    scene.S("w1", "C", "AB")
    assert scene.depths("ABCD") == {"w1": 4}


# Clears and the end of a holder.


@pytest.mark.parametrize(("tier", "left"), [("gpu", 0), ("cpu", 0), ("disk", 1)])
def test_a_clear_drops_what_waits_on_its_tiers(
    scene: Scene, tier: str, left: int
) -> None:
    scene.index.register("w1", profile="vllm")
    scene.S("w1", "B", "A", tier=tier)
    scene.S("w2", "B", "A", tier=tier)
    scene.C("w1")
    assert (scene.waiting("w1"), scene.waiting("w2")) == (left, 1)
    assert scene.S("w3", "A").attached == 1 + left


def test_a_clear_within_the_batch_drops_what_waits(scene: Scene) -> None:
    scene.apply("w1", [scene.stored("B", "A"), AllBlocksCleared(), scene.stored("A")])
    assert scene.depths("AB") == {"w1": 1}


def test_reset_and_removal_drop_what_waits(scene: Scene) -> None:
    for who in ("w1", "w2", "w3"):
        scene.S(who, "B", "A")
    assert scene.index.reset("w1") is True
    assert scene.index.remove_worker("w2") is True
    assert scene.S("w4", "A").attached == 1
    assert [scene.held(who) for who in ("w1", "w2", "w3")] == [0, 0, 1]


def test_clearing_the_index_drops_what_waits(scene: Scene) -> None:
    scene.S("w1", "B", "A")
    scene.index.clear()
    assert scene.S("w1", "A").attached == 0


# The bound.


def test_the_oldest_goes_when_too_many_wait(form: str) -> None:
    scene = Scene(form, orphan_blocks=4)
    scene.S("w1", "BC", "A")
    scene.S("w1", "EF", "D")
    report = scene.S("w1", "HI", "G")
    assert report.reasons == {"orphan": 2, "orphan_dropped": 2}
    assert scene.waiting("w1") == 4
    assert scene.S("w1", "A").attached == 0
    assert scene.S("w1", "D").attached == 2
    assert scene.S("w1", "G").attached == 2


def test_the_bound_is_per_holder(form: str) -> None:
    scene = Scene(form, orphan_blocks=2)
    for who in ("w1", "w1@1", "w2"):
        assert scene.S(who, "BC", "A").reasons == {"orphan": 2}
    assert scene.S("w3", "A").attached == 6


def test_an_event_larger_than_the_bound_is_dropped_alone(form: str) -> None:
    scene = Scene(form, orphan_blocks=2)
    scene.S("w1", "B", "A")
    report = scene.S("w1", "EFG", "D")
    assert report.reasons == {"orphan_dropped": 3}
    assert (report.stored, report.ignored) == (0, 3)
    assert scene.waiting("w1") == 1
    assert scene.S("w1", "A").attached == 1
    assert scene.S("w1", "D").attached == 0


def test_no_room_means_no_waiting(form: str) -> None:
    scene = Scene(form, orphan_blocks=0)
    assert scene.S("w1", "B", "A").reasons == {"orphan_dropped": 1}
    assert scene.waiting("w1") == 0


def test_a_waiting_unit_counts_all_its_blocks(form: str) -> None:
    scene = Scene(form, orphan_blocks=4)
    scene.S("w1", "BC", "A", names=[X], block_size=8)
    scene.S("w1", "BCD", "A", names=[Y], block_size=12)
    assert scene.waiting("w1") == 3
    report = scene.S("w1", "A")
    assert report.attached == 1
    assert scene.depths("ABCD") == {"w1": 4}


def test_room_is_free_again_after_attaching(form: str) -> None:
    scene = Scene(form, orphan_blocks=2)
    for start in ("A", "D", "G", "J"):
        assert scene.S("w1", "YZ", start).reasons == {"orphan": 2}
        assert scene.S("w1", start).attached == 2
    assert scene.waiting("w1") == 0


def test_a_name_announced_again_attaches_later_stores_only_once(scene: Scene) -> None:
    scene.S("w1", "B", "A")
    assert scene.S("w2", "A").attached == 1
    assert scene.S("w3", "A").attached == 0
    assert state(scene.index, "w1").device == 1


def test_a_placeholder_never_waits(scene: Scene) -> None:
    report = scene.P("w1", "A")
    assert report.reasons == {"unresolved": 1}
    assert (report.ignored, scene.waiting("w1")) == (1, 0)
    scene.S("w2", "A")
    assert scene.held("w1") == 0


def test_a_waiting_parent_given_as_bytes_is_found_by_its_integer(scene: Scene) -> None:
    parent = b"\x07" * 24 + name("A").to_bytes(8, "big")
    scene.S("w1", "B", parent=parent)
    assert scene.S("w1", "A").attached == 1
    assert scene.depths("AB") == {"w1": 2}

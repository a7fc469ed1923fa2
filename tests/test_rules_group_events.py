"""Cache groups of hybrid models, where all of them count: what their events say."""

from typing import Any

import pytest

from tests.helpers import BLOCK, FORMS, Scene, name, names, tokens
from tests.hybrid import FULL, STATE, WINDOW, depth, drop, full


@pytest.fixture(params=FORMS)
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param, group_rules=True)


# K18: hashes and tokens do not line up, and their whole kind.


def test_k18_hashes_that_were_left_out_are_not_guessed(scene: Scene) -> None:
    full(scene, "ABCD")
    report = scene.S("w1", "ABCD", names=names("ABCD"), **STATE)
    assert (report.stored, report.reasons) == (1, {})
    assert depth(scene, "ABCD") == 4
    assert depth(scene, "ABC") == 0


def test_k18_a_window_may_lack_blocks_anywhere(scene: Scene) -> None:
    full(scene, "ABCDEF")
    there = names("A", "AB", "ABCDE", "ABCDEF")
    assert scene.S("w1", "ABCDEF", names=there, **WINDOW).stored == 4
    assert [depth(scene, "ABCDEF"[:end]) for end in (6, 5, 4, 2)] == [6, 2, 2, 2]


def test_k18_an_event_may_have_no_hashes_at_all(scene: Scene) -> None:
    full(scene, "AB")
    report = scene.S("w1", "AB", names=[], **STATE)
    assert (report.stored, report.ignored) == (0, 0)
    assert scene.depths("AB") == {}
    scene.S("w1", "B", "A", **STATE)
    assert depth(scene, "AB") == 2


def test_k18_the_parent_is_that_of_the_tokens(scene: Scene) -> None:
    full(scene, "ABCD")
    report = scene.S("w1", "BCD", "A", names=names("ABCD"), **STATE)
    assert report.stored == 1
    assert depth(scene, "ABCD") == 4
    assert scene.depths("AB") == {}


def test_k18_hashes_that_are_not_known_are_counted(scene: Scene) -> None:
    full(scene, "AB")
    report = scene.S("w1", "ABC", names=names("AB", "X"), **STATE)
    assert (report.stored, report.reasons) == (1, {"unresolved": 1})
    assert depth(scene, "AB") == 2
    assert scene.R("w1", name("X"), group_idx=2).reasons == {"unknown_block": 1}


def test_k18_the_main_group_is_never_guessed_at(scene: Scene) -> None:
    full(scene, "ABC")
    report = scene.S("w1", "BC", "A", names=names("ABC"), **FULL)
    assert report.reasons == {"tokens": 1}
    drop(scene, FULL, "ABC")
    assert depth(scene, "ABC") == 2


def test_k18_a_block_that_others_know_is_known(scene: Scene) -> None:
    scene.S("w2", "ABC")
    report = scene.S("w1", "ABC", names=names("ABC"), **STATE)
    assert report.stored == 1
    full(scene, "ABC")
    assert depth(scene, "ABC") == 3


def test_k18_strict_applying_finds_no_fault_in_it(scene: Scene) -> None:
    full(scene, "ABC")
    report = scene.S("w1", "ABC", names=names("ABC"), strict=True, **STATE)
    assert report.stored == 1


def test_the_last_block_of_a_group_has_to_be_full(scene: Scene) -> None:
    full(scene, "AB")
    report = scene.S("w1", "AB", token_ids=tokens("AB")[:-1], **STATE)
    assert (report.stored, report.reasons) == (1, {"partial": 1})
    assert depth(scene, "AB") == 1


def test_engines_that_number_their_blocks_are_read_by_tokens(scene: Scene) -> None:
    scene.index.register("w1", names="own")
    scene.S("w1", "AB", names=[1, 2], **FULL)
    assert scene.S("w1", "AB", names=[2, 1], **STATE).stored == 2
    scene.R("w1", 1, group_idx=2)
    assert depth(scene, "AB") == 1
    report = scene.S("w1", "AB", names=[2], **STATE)
    assert report.reasons == {"tokens": 1}


# Before the main group, and without it.


def test_groups_may_come_in_any_order(scene: Scene) -> None:
    for group in (STATE, WINDOW, FULL):
        assert scene.S("w1", "ABC", **group).stored == 3
    assert depth(scene, "ABC") == 3
    drop(scene, STATE, "ABC")
    assert depth(scene, "ABC") == 2


def test_a_group_without_the_main_one_is_no_row(scene: Scene) -> None:
    scene.S("w1", "ABC", **WINDOW)
    assert scene.depths("ABC") == {}
    assert scene.held("w1") == 0


def test_a_store_of_a_group_may_wait_for_its_parent(scene: Scene) -> None:
    full(scene, "AB")
    report = scene.S("w1", "D", "ABC", **STATE)
    assert report.reasons == {"orphan": 1}
    assert scene.waiting("w1") == 1
    report = scene.S("w1", "CD", "AB", **FULL)
    assert report.attached == 1
    assert depth(scene, "ABCD") == 4


def test_a_removal_takes_what_waits_of_its_own_group(scene: Scene) -> None:
    scene.S("w1", "D", "ABC", **STATE)
    assert scene.R("w1", "ABCD", group_idx=0).reasons == {"unknown_block": 1}
    assert scene.waiting("w1") == 1
    assert scene.R("w1", "ABCD", group_idx=2).removed == 1
    assert scene.waiting("w1") == 0


def test_what_waits_of_a_group_goes_with_a_clear(scene: Scene) -> None:
    scene.S("w1", "D", "ABC", **STATE)
    scene.C("w1")
    full(scene, "ABCD")
    assert scene.depths("ABCD") == {}


# Groups of different block sizes.

COARSE: dict[str, Any] = {"block_size": 2 * BLOCK}


def test_a_point_lies_where_the_main_groups_blocks_end(scene: Scene) -> None:
    ends = names("AB", "ABCD")
    scene.S("w1", "ABCD", names=ends, **FULL, **COARSE)
    scene.S("w1", "ABCD", **STATE)
    assert [depth(scene, "ABCD"[:end]) for end in (4, 3, 2, 1)] == [4, 2, 2, 0]
    drop(scene, STATE, "ABCD")
    assert depth(scene, "ABCD") == 2


def test_a_part_of_a_block_is_a_point_once_it_is_stored(scene: Scene) -> None:
    scene.S("w1", "ABCD", names=names("AB", "ABCD"), **FULL, **COARSE)
    scene.S("w1", "E", "ABCD", **FULL)
    scene.S("w1", "ABCDE", **WINDOW)
    assert depth(scene, "ABCDE") == 5
    removed = scene.removed("ABCDE", group_idx=0)
    event = scene.stored("EF", "ABCD", names=names("ABCDEF"), **FULL, **COARSE)
    report = scene.apply("w1", [removed, event])
    assert (report.removed, report.stored) == (1, 1)
    scene.S("w1", "F", "ABCDE", **WINDOW)
    assert [depth(scene, "ABCDEF"[:end]) for end in (6, 5)] == [6, 4]


def test_a_coarse_state_stands_at_its_blocks_end(scene: Scene) -> None:
    full(scene, "ABCD")
    scene.S("w1", "ABCD", names=names("AB", "ABCD"), **STATE, **COARSE)
    assert [depth(scene, "ABCD"[:end]) for end in (4, 3, 2, 1)] == [4, 2, 2, 0]


def test_a_coarse_state_needs_no_main_group_to_be_read(scene: Scene) -> None:
    scene.S("w1", "ABCD", names=names("AB", "ABCD"), **STATE, **COARSE)
    full(scene, "ABCD")
    assert [depth(scene, "ABCD"[:end]) for end in (4, 3, 2, 1)] == [4, 2, 2, 0]
    drop(scene, STATE, "AB", "ABCD")
    assert scene.depths("ABCD") == {}


def test_a_state_within_a_coarse_block_comes_by_its_name(scene: Scene) -> None:
    full(scene, "ABC")
    # Its parent was never a block of this group, and nobody needs it.
    assert scene.S("w1", "C", "AB", **STATE).stored == 1
    assert [depth(scene, "ABC"[:end]) for end in (3, 2)] == [3, 0]


def test_a_coarse_window_ends_where_its_blocks_do(scene: Scene) -> None:
    full(scene, "ABCDEF")
    ends = names("AB", "ABCD", "ABCDEF")
    scene.S("w1", "ABCDEF", names=ends, **WINDOW, **COARSE)
    drop(scene, WINDOW, "AB")
    assert [depth(scene, "ABCDEF"[:end]) for end in (6, 5, 4, 3)] == [6, 4, 4, 0]


def test_a_group_of_sizes_that_do_not_fit_holds_nothing(scene: Scene) -> None:
    full(scene, "AB")
    report = scene.S("w1", "AB", **STATE, block_size=BLOCK + 2, token_ids=range(12))
    assert report.reasons == {"block_size": 2}
    assert scene.depths("AB") == {}


def test_chunks_count_whole_in_every_group(scene: Scene) -> None:
    scene.index.register("w1", chunk_tokens={"host": 2 * BLOCK})
    full(scene, "ABCD")
    scene.S("w1", "X", **WINDOW)
    scene.S("w1", "X", **STATE)
    for group in (WINDOW, STATE):
        scene.P("w1", "ABCD", **group)
    assert [depth(scene, "ABCD"[:end]) for end in (4, 3, 2)] == [4, 0, 0]
    scene.R("w1", "ABCD", tier="cpu", group_idx=1)
    for group in (WINDOW, STATE):
        scene.P("w1", "AB", **group)
    assert [depth(scene, "ABCD"[:end]) for end in (4, 3, 2, 1)] == [2, 2, 2, 0]

"""Faults reported elsewhere, as inputs with expected answers: K01 to K11."""

import json
import math
from typing import Any

import pytest

import kvindex
from kvindex import AllBlocksCleared
from tests.helpers import BLOCK, Scene, name, names, state, tokens

# K01: a store whose parent is itself, and cycles.


def test_k01_bad_events_cost_only_themselves(scene: Scene) -> None:
    reports = [
        scene.S("w1", "A"),
        scene.S("w1", "B", names=[name("Z")], parent=name("Z")),
        scene.S("w1", "BC", "A", names=[name("AB")] * 2),
        scene.S("w1", "C", "A"),
        scene.S("w1", "A", names=[name("X")], parent=name("Y")),
        scene.S("w1", "B", names=[name("Y")], parent=name("X")),
    ]
    assert scene.depths("AC") == {"w1": 2}
    assert scene.depths("AB") == {"w1": 1}
    assert scene.depths("B") == {}
    assert [report.reasons for report in reports] == [
        {},
        {"parent": 1},
        {"duplicate_hash": 2},
        {},
        {"orphan": 1},
        {"orphan": 1},
    ]
    assert [report.ignored for report in reports] == [0, 1, 2, 0, 0, 0]
    assert scene.held("w1") == 2
    assert scene.waiting("w1") == 2


def test_k01_a_block_among_its_own_ancestors_in_one_event_is_refused(
    scene: Scene,
) -> None:
    report = scene.S("w1", "AB", names=names("A", "Z"), parent=name("Z"))
    assert report.reasons == {"parent": 2}
    assert scene.held("w1") == 0


def test_k01_a_cycle_of_waiting_stores_can_be_removed(scene: Scene) -> None:
    scene.S("w1", "A", names=[name("X")], parent=name("Y"))
    scene.S("w1", "B", names=[name("Y")], parent=name("X"))
    assert scene.R("w1", "X", "Y").removed == 2
    assert scene.waiting("w1") == 0


# K02: repeated token blocks collapse into one.


def test_k02_equal_content_at_another_position_is_another_block(scene: Scene) -> None:
    scene.S("w1", "AAA")
    assert scene.depths("AAAA") == {"w1": 3}
    scene.R("w1", "AAA")
    assert scene.depths("AAAA") == {"w1": 2}


def test_k02_sixty_four_equal_blocks(scene: Scene) -> None:
    path = "A" * 64
    scene.S("w1", path)
    assert scene.depths(path + "A") == {"w1": 64}
    assert scene.held("w1") == 64
    scene.R("w1", path)
    assert scene.depths(path) == {"w1": 63}


# K03: same content under another history.


def test_k03_second_half_of_a_prompt_is_not_anothers_first_half(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("w2", "B")
    assert scene.depths("BA") == {"w2": 1}


@pytest.mark.parametrize("others", [0, 1])
def test_k03_ancestry_is_checked_where_one_block_is_the_only_candidate(
    scene: Scene, others: int
) -> None:
    scene.S("w1", "AXC")
    if others:
        scene.S("w2", "Q")
    assert scene.depths("AYC") == {"w1": 1}
    assert scene.depths("BXC") == {}
    assert scene.depths("AXC") == {"w1": 3}


# K04: the event's parent is the parent of the first block only.


def test_k04_blocks_of_one_event_follow_each_other(scene: Scene) -> None:
    scene.S("w1", "ABCD")
    assert scene.depths("ABCD") == {"w1": 4}
    scene.S("w1", "EF", "ABCD")
    assert scene.depths("ABCDEF") == {"w1": 6}
    assert scene.depths("AE") == {"w1": 1}
    assert scene.depths("E") == {}


# K05: repeated stores and ratios.


def test_k05_repeated_stores_do_not_inflate_sizes(scene: Scene) -> None:
    for seq in (1, 2):
        assert scene.S("w1", "ABC", seq=seq).stored == 3
    assert scene.held("w1") == 3
    assert len(scene.index) == 3
    assert scene.depths("ABC") == {"w1": 3}


def test_k05_a_ratio_is_one_of_sums_and_never_nan(objects: Scene) -> None:
    assert "NaN" not in json.dumps(objects.index.stats())
    path = "".join(chr(ord("A") + i) for i in range(100))
    objects.S("w1", path[:99])
    queries = [tokens("z"), tokens(path)]
    found = objects.index.match_many(queries)
    hits = sum(max(rows.depths, default=0) for rows in found)
    blocks = sum(len(item) // BLOCK for item in queries)
    assert math.isclose(hits / blocks, 99 / 101)
    assert "NaN" not in json.dumps(objects.index.stats())


# K06: the first of two copies is evicted.


def test_k06_the_first_of_two_removals_keeps_the_block(scene: Scene) -> None:
    scene.S("w1", "ABC", seq=1)
    scene.S("w1", "C", "AB", seq=2)
    assert scene.R("w1", "ABC", seq=3).removed == 1
    assert scene.depths("ABC") == {"w1": 3}
    scene.R("w1", "ABC", seq=4)
    assert scene.depths("ABC") == {"w1": 2}


def test_k06_a_repeated_sequence_number_takes_no_copy(scene: Scene) -> None:
    scene.S("w1", "ABC", seq=1)
    scene.S("w1", "C", "AB", seq=2)
    for status in ("ok", "duplicate", "duplicate"):
        assert scene.R("w1", "ABC", seq=3).status == status
    assert scene.depths("ABC") == {"w1": 3}


def test_k06_a_source_that_announces_only_the_last_removal_is_a_set(
    scene: Scene,
) -> None:
    scene.index.register("w1", copies=())
    scene.S("w1", "ABC")
    scene.S("w1", "C", "AB")
    scene.R("w1", "ABC")
    assert scene.depths("ABC") == {"w1": 2}
    assert scene.R("w1", "ABC").reasons == {"unknown_block": 1}


# K07: one unknown hash among removals.


@pytest.mark.parametrize("tier", ["gpu", "cpu", "disk", "external"])
def test_k07_an_unknown_hash_does_not_stop_a_removal(scene: Scene, tier: str) -> None:
    scene.S("w1", "ABCD", tier=tier)
    scene.S("w2", "AB", tier=tier)
    report = scene.R("w1", "ZZZ", "ABCD", "ABC", tier=tier)
    assert scene.depths("ABCD") == {"w1": 2, "w2": 2}
    assert report.removed == 2
    assert report.ignored == 1
    assert report.reasons == {"unknown_block": 1}


# K08: a middle block leaves and comes back.


def test_k08_a_middle_block_that_comes_back_restores_the_whole_prefix(
    scene: Scene,
) -> None:
    scene.S("w1", "ABCD")
    scene.R("w1", "AB")
    assert scene.depths("ABCD") == {"w1": 1}
    scene.S("w1", "B", "A")
    assert scene.depths("ABCD") == {"w1": 4}
    for path in ("AB", "ABC", "ABCD"):
        assert scene.R("w1", path).reasons == {}
    assert scene.depths("ABCD") == {"w1": 1}
    assert scene.held("w1") == 1
    scene.R("w1", "A")
    assert scene.held("w1") == 0
    assert scene.depths("ABCD") == {}


# K09: all blocks cleared.


def test_k09_a_cleared_worker_holds_nothing(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w1", "A", tier="cpu")
    scene.S("w2", "A")
    report = scene.C("w1")
    assert (report.cleared, report.ignored) == (1, 0)
    assert scene.depths("AB") == {"w2": 1}
    assert scene.held("w1") == 0
    scene.S("w1", "C", "AB")
    assert scene.depths("ABC") == {"w2": 1}
    scene.S("w1", "A")
    assert scene.depths("AB") == {"w1": 1, "w2": 1}


def test_k09_a_clear_after_a_store_in_one_batch_wins(scene: Scene) -> None:
    scene.apply("w3", [scene.stored("A"), AllBlocksCleared()])
    assert scene.depths("A") == {}


def test_k09_a_store_after_a_clear_in_one_batch_stays(scene: Scene) -> None:
    scene.apply("w3", [AllBlocksCleared(), scene.stored("A")])
    assert scene.depths("A") == {"w3": 1}


# K10: two data-parallel ranks.


def test_k10_ranks_with_equal_hashes_are_apart(scene: Scene) -> None:
    scene.S("w1@0", "AB")
    scene.S("w1@1", "AB")
    scene.R("w1@1", "AB")
    assert scene.depths("AB") == {"w1": 2, "w1@1": 1}
    scene.C("w1@1")
    assert scene.depths("AB") == {"w1": 2}


# K11: adapter and salt are part of identity.


def namespaces(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w1", "A", names=[name("xA")], lora="x", lora_id=3)
    scene.S("w2", "A", names=[name("xA")], lora="x", lora_id=7)
    scene.S("w3", "A", salt="s1")


def test_k11_adapter_and_salt_keep_prefixes_apart(scene: Scene) -> None:
    namespaces(scene)
    assert scene.depths("AB") == {"w1": 2}
    assert scene.depths("AB", lora_name="x") == {"w1": 1, "w2": 1}
    assert scene.depths("AB", lora_name="y") == {}
    assert scene.depths("A", cache_salt="s1") == {"w3": 1}
    assert scene.depths("A", cache_salt="s2") == {}
    assert scene.depths("A", lora_name="x", cache_salt="s1") == {}


def test_k11_an_empty_adapter_is_none(scene: Scene) -> None:
    namespaces(scene)
    scene.S("w4", "A", lora="")
    assert scene.depths("A", lora_name="") == {"w1": 1, "w4": 1}
    assert scene.depths("A", cache_salt="") == {"w1": 1, "w4": 1}


def test_k11_a_removal_of_a_shared_hash_takes_one_copy_from_each_namespace(
    scene: Scene,
) -> None:
    for _ in range(2):
        scene.S("w1", "A")
        scene.S("w1", "A", salt="s1")
    scene.S("w2", "A", salt="s1")
    for kept in ({"w1": 1}, {}):
        scene.R("w1", "A")
        assert scene.depths("A") == kept
        assert scene.depths("A", cache_salt="s1") == kept | {"w2": 1}
    assert state(scene.index, "w2").device == 1


def test_k11_namespaces_are_the_same_by_keys(objects: Scene) -> None:
    namespaces(objects)
    spaces: list[dict[str, Any]] = [{}, {"lora_name": "x"}, {"cache_salt": "s1"}]
    for options in spaces:
        keys = kvindex.block_keys(tokens("AB"), block_size=BLOCK, **options)
        by_keys = {row.worker: row.depth for row in objects.index.match_keys(keys)}
        assert by_keys == objects.depths("AB", **options)

"""Cache groups and bad input: rules 11 and 12."""

from collections.abc import Callable
from typing import Any

import pytest

import kvindex
from kvindex import AllBlocksCleared
from tests import wire
from tests.helpers import BLOCK, Scene, depths, name, names, raw, tokens

X, Y, Z = names("x", "y", "z")
FULL = ["full_attention", "mla_attention", "sink_full_attention"]
OTHER = [
    "sliding_window",
    "sliding_window_mla",
    "mamba",
    "chunked_local_attention",
    "encoder_only_attention",
    "cross_attention",
    "unknown",
    "something new",
]


def stored(
    scene: Scene, letters: str, group: int | None, kind: str | None = None
) -> kvindex.ApplyReport:
    return scene.S("w1", letters, group_idx=group, kv_cache_spec_kind=kind)


# Rule 11: which group is indexed.


@pytest.mark.parametrize("group", [None, 0, 1, 5])
@pytest.mark.parametrize("kind", FULL)
def test_full_attention_is_indexed_in_any_group(
    scene: Scene, kind: str, group: int | None
) -> None:
    assert stored(scene, "A", group, kind).stored == 1
    assert scene.depths("A") == {"w1": 1}


@pytest.mark.parametrize("group", [None, 0, 1])
@pytest.mark.parametrize("kind", OTHER)
def test_other_kinds_are_ignored_and_counted(
    scene: Scene, kind: str, group: int | None
) -> None:
    report = stored(scene, "AB", group, kind)
    assert (report.stored, report.ignored) == (0, 2)
    assert report.reasons == {"group": 2}
    assert scene.held("w1") == 0


def test_without_a_kind_group_zero_and_no_group_are_indexed(scene: Scene) -> None:
    assert stored(scene, "A", None).stored == 1
    assert stored(scene, "B", 0).stored == 1
    assert stored(scene, "C", 1).reasons == {"group": 1}


def test_a_group_that_was_learned_needs_no_kind(scene: Scene) -> None:
    stored(scene, "A", 3, "full_attention")
    assert stored(scene, "B", 3).stored == 1


def test_of_several_full_groups_the_first_is_indexed(scene: Scene) -> None:
    stored(scene, "A", 2, "full_attention")
    assert stored(scene, "B", 1, "full_attention").reasons == {"group": 1}
    assert stored(scene, "C", 2, "full_attention").stored == 1
    assert scene.R("w1", "A", group_idx=1).reasons == {"group": 1}
    assert scene.R("w1", "A", group_idx=2).removed == 1


def test_an_event_that_names_no_group_belongs_to_the_indexed_one(scene: Scene) -> None:
    stored(scene, "A", 2, "full_attention")
    assert stored(scene, "B", None).stored == 1
    assert scene.R("w1", "A").removed == 1
    assert scene.R("w1", "B", group_idx=2).removed == 1
    assert scene.held("w1") == 0


def test_groups_are_learned_per_holder(scene: Scene) -> None:
    stored(scene, "A", 2, "full_attention")
    for who in ("w2", "w1@1"):
        report = scene.S(who, "A", group_idx=2)
        assert report.reasons == {"group": 1}


def test_a_removal_goes_by_what_was_learned(scene: Scene) -> None:
    stored(scene, "A", 0, "sliding_window")
    stored(scene, "A", 1, "full_attention")
    assert scene.R("w1", "A", group_idx=0).reasons == {"group": 1}
    assert scene.depths("A") == {"w1": 1}
    assert scene.R("w1", "A", group_idx=1).removed == 1


def test_what_was_indexed_is_removed_whatever_was_said_of_its_group(
    scene: Scene,
) -> None:
    stored(scene, "A", 0, "mamba")
    assert stored(scene, "B", 0).stored == 1
    assert scene.R("w1", "B", group_idx=0).removed == 1
    assert scene.held("w1") == 0


def test_a_removal_before_anything_was_learned_is_of_group_zero(scene: Scene) -> None:
    assert scene.R("w1", "A", group_idx=0).reasons == {"unknown_block": 1}
    assert scene.R("w1", "A", group_idx=1).reasons == {"group": 1}


def test_a_removal_that_names_a_kind_goes_by_it(form: str) -> None:
    if form == "arrays":
        pytest.skip("arrays of removals have no kind")
    scene = Scene(form)
    stored(scene, "A", 0, "full_attention")
    report = scene.R("w1", "A", group_idx=0, kv_cache_spec_kind="sliding_window")
    assert report.reasons == {"group": 1}
    report = scene.R("w1", "A", group_idx=0, kv_cache_spec_kind="full_attention")
    assert report.removed == 1


def test_one_event_for_each_group_stores_once(scene: Scene) -> None:
    for group, kind in ((0, "full_attention"), (1, "sliding_window"), (2, "mamba")):
        stored(scene, "AB", group, kind)
    for group in (1, 2):
        scene.R("w1", "AB", group_idx=group)
    assert scene.depths("AB") == {"w1": 2}
    scene.R("w1", "AB", group_idx=0)
    assert scene.depths("AB") == {"w1": 1}


def test_a_placeholder_belongs_to_a_group_too(scene: Scene) -> None:
    stored(scene, "A", 0, "full_attention")
    assert scene.P("w1", "A", group_idx=1).reasons == {"group": 1}
    assert scene.P("w1", "A", group_idx=0).stored == 1


def test_the_group_is_looked_at_before_the_tokens(scene: Scene) -> None:
    report = scene.S("w1", "ABC", names=[X], group_idx=1, kv_cache_spec_kind="mamba")
    assert report.reasons == {"group": 1}


# Rule 12: events that cannot be read, between two that can.

UNREADABLE: dict[str, dict[str, Any]] = {
    "hashes as a string": {"block_hashes": "x"},
    "hashes of nil": {"block_hashes": None},
    "hashes of floats": {"block_hashes": [1.5]},
    "hashes of strings": {"block_hashes": ["x"]},
    "hashes of lists": {"block_hashes": [[1]]},
    "tokens as a string": {"token_ids": "abcd"},
    "tokens as a number": {"token_ids": 4},
    "tokens of strings": {"token_ids": ["a", "b", "c", "d"]},
    "tokens of floats": {"token_ids": [1.0, 2.0, 3.0, 4.0]},
    "negative token": {"token_ids": [1, 2, 3, -1]},
    "token too large": {"token_ids": [1, 2, 3, 2**32]},
    "pairs that do not overlap": {"token_ids": [[1, 2], [3, 4], [4, 5], [5, 6]]},
    "pair of three": {"token_ids": [[1, 2, 3], [2, 3], [3, 4], [4, 5]]},
    "pairs and tokens": {"token_ids": [[1, 2], 2, 3, 4]},
    "parent as a float": {"parent_block_hash": 1.5},
    "parent as a string": {"parent_block_hash": "x"},
    "parent as a list": {"parent_block_hash": [1]},
    "size as a string": {"block_size": "4"},
    "negative size": {"block_size": -4},
    "size as a float": {"block_size": 4.0},
    "medium as a number": {"medium": 7},
    "adapter as a number": {"lora_name": 7},
    "group as a string": {"group_idx": "a"},
    "kind as a number": {"kv_cache_spec_kind": 3},
}


def good(letters: str) -> dict[str, Any]:
    return wire.stored_map([name(letters)], tokens(letters), None, BLOCK)


@pytest.mark.parametrize("write", [wire.stored_map, wire.stored_array])
@pytest.mark.parametrize("fields", list(UNREADABLE.values()), ids=list(UNREADABLE))
def test_an_unreadable_event_costs_only_itself(
    write: Callable[..., Any], fields: dict[str, Any]
) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    bad = write(**{"hashes": [X], "tokens": tokens("X"), "block_size": BLOCK} | fields)
    report = raw(index, good("A"), bad, good("B"))
    assert (report.stored, report.ignored) == (2, 1)
    assert report.reasons == {"malformed": 1}
    assert depths(index, "A") == depths(index, "B") == {"w1": 1}
    assert index.workers()[0].device == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "Nonsense", "block_hashes": [1]},
        ["Nonsense", [1]],
        ["Nonsense"],
        {"type": ""},
    ],
    ids=str,
)
def test_an_unknown_type_costs_only_itself(bad: object) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    report = raw(index, good("A"), bad, good("B"))
    assert (report.stored, report.ignored) == (2, 1)
    assert report.reasons == {"unknown_type": 1}


@pytest.mark.parametrize(
    "bad", [5, None, "BlockStored", [], {}, [5], {"type": 5}, [None, [1]]], ids=repr
)
def test_what_is_no_event_costs_only_itself(bad: object) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    report = raw(index, good("A"), bad, good("B"))
    assert (report.stored, report.ignored) == (2, 1)
    assert sum(report.reasons.values()) == 1
    assert set(report.reasons) <= {"malformed", "unknown_type"}


@pytest.mark.parametrize(
    "bad",
    [
        wire.removed_map("x"),
        wire.removed_map(None),
        wire.removed_map([1.5]),
        wire.removed_map([X], 7),
        wire.removed_array([["x"]]),
        {"type": "BlockRemoved"},
        {"type": "BlockStored"},
        ["BlockRemoved"],
        ["BlockStored"],
        ["BlockStored", [1]],
    ],
    ids=str,
)
def test_an_unreadable_removal_or_stump_costs_only_itself(bad: object) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    report = raw(index, good("A"), bad, good("B"))
    assert (report.stored, report.removed, report.ignored) == (2, 0, 1)
    assert report.reasons == {"malformed": 1}


def test_unknown_fields_are_ignored() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    fields = {"new": {"deep": [1, {"x": None}]}, "session_id": "s", "ownership": "o"}
    event = wire.stored_map([X], tokens("A"), None, BLOCK, **fields)
    assert raw(index, event).reasons == {}
    longer = [*wire.stored_array([Y], tokens("B"), None, BLOCK), "LOCAL", {"x": 1}, 7]
    assert raw(index, longer).stored == 1
    assert raw(index, wire.removed_map([X], new=[1])).removed == 1
    removal = [*wire.removed_array([Y]), "LOCAL", None, 7]
    assert raw(index, removal).removed == 1
    assert raw(index, wire.cleared_map(ownership="o")).cleared == 1


def test_fields_come_in_any_order() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    event = wire.stored_map([X], tokens("A"), None, BLOCK, extra_keys=[None])
    backwards = dict(reversed(event.items()))
    assert raw(index, backwards).stored == 1
    assert depths(index, "A") == {"w1": 1}


# Rule 12: tokens and hashes that do not fit.


@pytest.mark.parametrize(
    ("count", "length", "stored", "reasons"),
    [
        (1, 4, 1, {}),
        (2, 7, 1, {"partial": 1}),
        (2, 5, 1, {"partial": 1}),
        (1, 3, 0, {"partial": 1}),
        (1, 1, 0, {"partial": 1}),
        (2, 4, 0, {"tokens": 2}),
        (2, 9, 0, {"tokens": 2}),
        (3, 4, 0, {"tokens": 3}),
        (1, 8, 0, {"tokens": 1}),
    ],
)
def test_tokens_must_fit_the_hashes(
    scene: Scene, count: int, length: int, stored: int, reasons: dict[str, int]
) -> None:
    report = scene.S("w1", "A", names=[X, Y, Z][:count], token_ids=range(length))
    assert (report.stored, report.reasons) == (stored, reasons)
    assert report.ignored == sum(reasons.values())
    assert scene.held("w1") == stored


def test_a_size_of_zero_with_tokens_does_not_fit(scene: Scene) -> None:
    assert scene.S("w1", "A", block_size=0).reasons == {"tokens": 1}


def test_an_event_of_no_hashes_and_no_tokens_does_nothing(scene: Scene) -> None:
    report = scene.P("w1")
    assert (report.stored, report.ignored, report.reasons) == (0, 0, {})
    assert scene.R("w1").reasons == {}


def test_the_parent_must_not_be_among_the_hashes(scene: Scene) -> None:
    scene.S("w1", "A")
    report = scene.S("w1", "BC", names=[X, name("A")], parent=name("A"))
    assert report.reasons == {"parent": 2}
    report = scene.S("w1", "B", names=[-1], parent=2**64 - 1)
    assert report.reasons == {"parent": 1}
    assert scene.depths("AB") == {"w1": 1}


def test_one_hash_must_not_be_stored_twice(scene: Scene) -> None:
    report = scene.S("w1", "ABC", names=[X, Y, X])
    assert report.reasons == {"duplicate_hash": 3}
    report = scene.S("w1", "AB", names=[-1, 2**64 - 1])
    assert report.reasons == {"duplicate_hash": 2}
    assert scene.held("w1") == 0


def test_ranks_that_are_no_u32_are_absent() -> None:
    ranks: list[object] = [-1, 2**32, "1", 1.5, [], {}, True]
    for rank in ranks:
        index = kvindex.Indexer(block_size=BLOCK)
        report = index.apply(wire.batch([good("A")], rank), worker="w1", dp_rank=7)
        assert report.dp_rank == 7
        assert depths(index, "A") == {"w1@7": 1}


def test_a_batch_may_end_before_its_rank() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    payload = wire.batch([good("A")], with_rank=False)
    assert index.apply(payload, worker="w1", dp_rank=2).dp_rank == 2
    assert depths(index, "A") == {"w1@2": 1}


def test_the_rank_of_a_batch_wins_over_the_argument() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    report = index.apply(wire.batch([good("A")], 3), worker="w1", dp_rank=2)
    assert report.dp_rank == 3
    assert depths(index, "A") == {"w1@3": 1}


def test_the_time_of_a_batch_may_be_an_integer() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    payload = wire.batch([good("A")], ts=1_700_000_000_000)
    assert index.apply(payload, worker="w1").stored == 1


def test_an_undecodable_batch_changes_nothing_and_leaves_the_cursor() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    raw(index, good("A"), seq=1)
    before = index.workers()
    payload = wire.batch([good("B"), wire.cleared_map()])
    with pytest.raises(kvindex.DecodeError):
        index.apply(payload[:-2], worker="w1", seq=2)
    assert index.workers() == before
    assert depths(index, "B") == {}
    assert index.apply(payload, worker="w1", seq=2).status == "ok"


# strict=True.

STRUCTURAL: dict[str, Any] = {
    "unknown_type": {"type": "Nonsense"},
    "malformed": wire.stored_map([1.5], tokens("X"), None, BLOCK),
    "extra_keys": wire.stored_map([X], tokens("X"), None, BLOCK, extra_keys=[[5]]),
    "parent": wire.stored_map([X], tokens("X"), X, BLOCK),
    "duplicate_hash": wire.stored_map([X, X], tokens("XY"), None, BLOCK),
    "tokens": wire.stored_map([X], tokens("XY"), None, BLOCK),
    "partial": wire.stored_map([X, Y], [*tokens("X"), 1], None, BLOCK),
}
OF_STATE: dict[str, Any] = {
    "orphan": wire.stored_map([X], tokens("X"), Z, BLOCK),
    "unknown_block": wire.removed_map([X]),
    "unresolved": wire.stored_map([X], [], None, 0, medium="CPU"),
    "medium": wire.stored_map([X], tokens("X"), None, BLOCK, medium="tape"),
    "block_size": wire.stored_map([X], [1, 2, 3], None, 3),
    "group": wire.stored_map([X], tokens("X"), None, BLOCK, group_idx=4),
    "lora_id": wire.stored_map([X], tokens("X"), None, BLOCK, lora_id=4),
}


@pytest.mark.parametrize("reason", STRUCTURAL)
def test_strict_raises_for_structural_faults_before_anything_is_applied(
    reason: str,
) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    raw(index, good("A"), seq=1)
    before = index.workers()
    payload = wire.batch([good("B"), wire.cleared_map(), STRUCTURAL[reason], good("C")])
    with pytest.raises(kvindex.DecodeError) as caught:
        index.apply(payload, worker="w1", seq=2, strict=True)
    assert caught.value.event == 2
    assert reason.replace("_", " ") in str(caught.value).replace("_", " ")
    assert index.workers() == before
    report = index.apply(payload, worker="w1", seq=2)
    assert set(report.reasons) == {reason}
    assert (report.status, report.cleared) == ("ok", 1)


@pytest.mark.parametrize("reason", OF_STATE)
def test_strict_does_not_raise_for_state(reason: str) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    report = raw(index, good("A"), OF_STATE[reason], good("B"), strict=True)
    assert report.reasons == {reason: 1}
    assert report.stored == 2


def test_strict_names_the_first_faulty_event_of_objects(objects: Scene) -> None:
    events = [
        objects.stored("A"),
        AllBlocksCleared(),
        objects.stored("B", names=[X, Y]),
        objects.stored("C", names=[X, Y]),
    ]
    with pytest.raises(kvindex.DecodeError) as caught:
        objects.apply("w1", events, strict=True)
    assert caught.value.event == 2
    assert objects.depths("A") == {}


def test_strict_takes_what_has_no_fault(scene: Scene) -> None:
    assert scene.S("w1", "ABC", strict=True).stored == 3
    assert scene.R("w1", "ABC", strict=True).removed == 1
    assert scene.C("w1", strict=True).cleared == 1


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**62 + 1])
def test_a_huge_block_size_fits_no_tokens(size: int) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    for count in (3, 4, 5):
        event = wire.stored_map([X + i for i in range(count)], [1] * count, None, size)
        assert raw(index, event).reasons == {"tokens": count}

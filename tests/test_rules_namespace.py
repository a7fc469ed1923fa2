"""Namespaces and extra keys: the first half of rule 4."""

from typing import Any

import pytest

import kvindex
from tests import wire
from tests.helpers import BLOCK, HEX, Scene, depths, name, names, raw, tokens

X, Y, Z = names("x", "y", "z")
A, B = HEX["a"], HEX["b"]


# Given and inherited.


def test_a_block_inherits_the_adapter_of_its_parent(scene: Scene) -> None:
    scene.S("w1", "A", lora="x")
    scene.S("w1", "BC", "A")
    assert scene.depths("ABC", lora_name="x") == {"w1": 3}
    assert scene.depths("ABC") == {}


def test_a_block_inherits_the_salt_of_its_parent(scene: Scene) -> None:
    scene.S("w1", "A", salt="s")
    scene.S("w1", "BC", "A")
    assert scene.depths("ABC", cache_salt="s") == {"w1": 3}
    assert scene.depths("ABC") == {}


def test_an_adapter_that_is_given_wins_over_the_parents(scene: Scene) -> None:
    scene.S("w1", "A", lora="x")
    scene.S("w1", "B", "A", lora="y")
    for adapter in ("x", "y", None):
        assert scene.depths("AB", lora_name=adapter).get("w1", 0) < 2
    assert scene.depths("A", lora_name="x") == {"w1": 1}
    assert scene.held("w1") == 2


def test_adapter_and_salt_are_inherited_each_on_its_own(scene: Scene) -> None:
    scene.S("w1", "A", salt="s", lora="x")
    scene.S("w1", "B", "A", lora="x")
    assert scene.depths("AB", cache_salt="s", lora_name="x") == {"w1": 2}
    assert scene.depths("AB", lora_name="x") == {}
    assert scene.depths("AB", cache_salt="s") == {}


def test_a_salt_of_the_first_block_holds_for_the_whole_event(scene: Scene) -> None:
    scene.S("w1", "ABC", salt="s")
    assert scene.depths("ABC", cache_salt="s") == {"w1": 3}


def test_empty_names_are_absent(scene: Scene) -> None:
    scene.S("w1", "A", lora="", extra_keys=[None])
    assert scene.depths("A") == {"w1": 1}
    scene.S("w1", "A", lora="x", names=[X])
    scene.S("w1", "B", lora="", names=[Y], parent=X)
    assert scene.depths("AB", lora_name="x") == {"w1": 2}


def test_an_empty_salt_field_is_absent(objects: Scene) -> None:
    index = objects.index
    raw(index, wire.stored_map([X], tokens("A"), None, BLOCK, cache_salt=""))
    assert depths(index, "A") == {"w1": 1}


def test_an_integer_adapter_without_a_name_is_dropped(scene: Scene) -> None:
    report = scene.S("w1", "AB", lora_id=7)
    assert (report.stored, report.ignored) == (0, 2)
    assert report.reasons == {"lora_id": 2}
    assert scene.held("w1") == 0


def test_a_profile_may_map_integer_adapters_to_names(scene: Scene) -> None:
    scene.index.register("w1", lora_ids={7: "x"})
    assert scene.S("w1", "AB", lora_id=7).stored == 2
    assert scene.S("w1", "C", lora_id=8).reasons == {"lora_id": 1}
    assert scene.depths("AB", lora_name="x") == {"w1": 2}
    assert scene.depths("AB") == {}


def test_an_adapters_name_wins_over_its_integer(scene: Scene) -> None:
    scene.index.register("w1", lora_ids={7: "x"})
    scene.S("w1", "A", lora="y", lora_id=7)
    assert scene.depths("A", lora_name="y") == {"w1": 1}
    assert scene.depths("A", lora_name="x") == {}


# SGLang names its namespace in every event.


@pytest.mark.parametrize("adapter", [False, True])
def test_sglang_does_not_inherit(adapter: bool) -> None:  # noqa: FBT001
    index = kvindex.Indexer(block_size=BLOCK)
    index.register("w1", profile="sglang")
    space = {"lora_name": "x"} if adapter else {"cache_salt": "x"}
    raw(
        index,
        wire.stored_map([X], tokens("A"), None, BLOCK, **space),
        wire.stored_map([Y], tokens("B"), X, BLOCK),
        wire.stored_map([Z], tokens("C"), X, BLOCK, **space),
    )
    assert depths(index, "AB", **space) == {"w1": 1}
    assert depths(index, "AC", **space) == {"w1": 2}
    assert depths(index, "AB") == {}


@pytest.mark.parametrize("profile", ["sglang", "auto", "none"])
def test_an_eighth_item_of_sglangs_arrays_carries_the_salt(profile: str) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    if profile != "none":
        index.register("w1", profile=profile)
    event = wire.stored_sglang_array([X], tokens("A"), None, BLOCK, salt="s")
    assert raw(index, event).stored == 1
    assert depths(index, "A", cache_salt="s") == {"w1": 1}
    assert depths(index, "A") == {}


@pytest.mark.parametrize("length", [6, 7])
def test_older_sglang_arrays_are_read(length: int) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    event = wire.stored_sglang_array([X], tokens("A"), None, BLOCK, length=length)
    assert raw(index, event).stored == 1
    assert depths(index, "A") == {"w1": 1}
    assert raw(index, wire.removed_array([X], length=2)).removed == 1


# Extra keys that mean the same in every layout.


def mm(*identifiers: str, first: int = 0) -> list[tuple[str, int, int]]:
    return [(identifier, first, BLOCK) for identifier in identifiers]


def test_pairs_of_identifier_and_offset_are_images(scene: Scene) -> None:
    scene.S("w1", "A", extra_keys=[[[A, 0]]])
    assert scene.depths("A") == {}
    assert scene.depths("A", mm=mm(B)) == {}
    assert scene.depths("A", mm=mm(A)) == {"w1": 1}


@pytest.mark.parametrize("offset", [0, 3, -12, 1000])
def test_the_offset_of_an_image_is_ignored(scene: Scene, offset: int) -> None:
    scene.S("w1", "A", extra_keys=[[[A, offset]]])
    assert scene.depths("A", mm=[(A, 2, 1)]) == {"w1": 1}


def test_an_image_counts_once_per_occurrence(scene: Scene) -> None:
    scene.S("w1", "A", extra_keys=[[[A, 0], [A, 2]]])
    assert scene.depths("A", mm=mm(A)) == {}
    assert scene.depths("A", mm=mm(A, A)) == {"w1": 1}


def test_images_have_no_order(scene: Scene) -> None:
    scene.S("w1", "A", extra_keys=[[[B, 0], ["name", 1], [A, 2]]])
    assert scene.depths("A", mm=mm(A, B, "name")) == {"w1": 1}


def test_an_image_touches_only_the_blocks_that_name_it(scene: Scene) -> None:
    scene.S("w1", "ABC", extra_keys=[None, [[A, 2]], None])
    assert scene.depths("ABC", mm=mm(A, first=BLOCK)) == {"w1": 3}
    assert scene.depths("ABC") == {"w1": 1}
    assert scene.depths("ABC", mm=mm(A)) == {}


def test_an_image_is_not_inherited(scene: Scene) -> None:
    scene.S("w1", "A", extra_keys=[[[A, 0]]])
    scene.S("w1", "B", "A")
    assert scene.depths("AB", mm=mm(A)) == {"w1": 2}


def test_embeddings_never_match_as_text(scene: Scene) -> None:
    scene.S("w1", "A", names=[X], extra_keys=[[b"\x01" * 32]])
    scene.S("w2", "A", names=[Y], extra_keys=[[b"\x02" * 32]])
    scene.S("w3", "A", names=[Z], extra_keys=[[b"\x01" * 32]])
    assert scene.depths("A") == {}
    assert len(scene.index) == 2


def test_a_query_names_an_embedding_by_its_digest(scene: Scene) -> None:
    digest = bytes(range(32))
    scene.S("w1", "A", extra_keys=[[digest]])
    assert scene.depths("A", mm=[(digest, 0, BLOCK)]) == {"w1": 1}
    assert scene.depths("A", mm=[(digest[::-1], 0, BLOCK)]) == {}


def test_entries_of_nil_are_text(scene: Scene) -> None:
    scene.S("w1", "AB", extra_keys=[None, None])
    assert scene.depths("AB") == {"w1": 2}


def test_an_adapter_among_the_extra_keys_is_the_adapter(scene: Scene) -> None:
    scene.S("w1", "AB", lora="x", extra_keys=[["x"], ["x"]])
    assert scene.depths("AB", lora_name="x") == {"w1": 2}
    assert scene.depths("AB", lora_name="x", cache_salt="x") == {}


def test_a_string_after_the_adapter_is_the_salt(scene: Scene) -> None:
    scene.S("w1", "AB", lora="x", extra_keys=[["x", [A, 0], "s"], ["x"]])
    found = scene.depths("AB", lora_name="x", cache_salt="s", mm=mm(A))
    assert found == {"w1": 2}
    assert scene.depths("AB", lora_name="x", mm=mm(A)) == {}


def test_a_salt_may_be_spelled_as_the_adapter(scene: Scene) -> None:
    scene.S("w1", "A", lora="x", extra_keys=[["x", "x"]])
    assert scene.depths("A", lora_name="x", cache_salt="x") == {"w1": 1}
    assert scene.depths("A", lora_name="x") == {}


def test_a_string_without_an_adapter_is_the_salt(scene: Scene) -> None:
    scene.S("w1", "A", extra_keys=[["s"]])
    assert scene.depths("A", cache_salt="s") == {"w1": 1}


@pytest.mark.parametrize(
    "extra", [["dynamo-cache-salt:t", A], [A, "dynamo-cache-salt:t"]], ids=["1", "2"]
)
def test_dynamos_salt_is_known_by_its_prefix(scene: Scene, extra: list[str]) -> None:
    scene.S("w1", "A", extra_keys=[extra])
    assert scene.depths("A", cache_salt="t", mm=mm(A)) == {"w1": 1}


def test_else_the_last_string_is_the_salt(scene: Scene) -> None:
    scene.S("w1", "A", extra_keys=[["image", "s"]])
    assert scene.depths("A", cache_salt="s", mm=mm("image")) == {"w1": 1}


def test_a_salt_of_a_later_block_holds_from_there(scene: Scene) -> None:
    scene.S("w1", "ABC", extra_keys=[None, ["s"], None])
    assert scene.depths("ABC") == {"w1": 1}
    assert scene.depths("ABC", cache_salt="s") == {}
    assert scene.held("w1") == 3


def test_a_blocks_own_salt_wins_over_the_events(objects: Scene) -> None:
    event = wire.stored_map(
        [X], tokens("A"), None, BLOCK, cache_salt="t", extra_keys=[["s"]]
    )
    raw(objects.index, event)
    assert objects.depths("A", cache_salt="s") == {"w1": 1}
    assert objects.depths("A", cache_salt="t") == {}


def test_a_salt_is_not_applied_twice(objects: Scene) -> None:
    event = wire.stored_map(
        [X], tokens("A"), None, BLOCK, cache_salt="s", extra_keys=[["s"]]
    )
    raw(objects.index, event)
    assert objects.depths("A", cache_salt="s") == {"w1": 1}


# Bare strings in new and old layouts.

LAYOUTS: dict[str, tuple[Any, dict[str, int]]] = {
    "map": (wire.stored_map, {}),
    "array of 12": (wire.stored_array, {"length": 12}),
    "array of 10": (wire.stored_array, {"length": 10}),
    "array of 9": (wire.stored_array, {"length": 9}),
}
NEW = ["map", "array of 12"]
OLD = ["array of 10", "array of 9"]


def stored(layout: str, letters: str, extra: Any, parent: int | None = None) -> Any:  # noqa: ANN401
    write, options = LAYOUTS[layout]
    hashes = [name(f"{parent}{letter}") for letter in letters]
    return write(hashes, tokens(letters), parent, BLOCK, extra_keys=extra, **options)


@pytest.fixture(params=NEW)
def new(request: pytest.FixtureRequest) -> str:
    """Return the name of a layout whose bare strings are salts."""
    return str(request.param)


@pytest.fixture(params=OLD)
def old(request: pytest.FixtureRequest) -> str:
    """Return the name of a layout whose bare strings may be images."""
    return str(request.param)


def test_new_layouts_take_64_hex_digits_as_a_salt(new: str, objects: Scene) -> None:
    raw(objects.index, stored(new, "A", [[A]]))
    assert objects.depths("A", cache_salt=A) == {"w1": 1}
    assert objects.depths("A", mm=mm(A)) == {}


def test_old_layouts_take_64_hex_digits_as_an_image(old: str, objects: Scene) -> None:
    raw(objects.index, stored(old, "A", [[A]]))
    assert objects.depths("A", mm=mm(A)) == {"w1": 1}
    assert objects.depths("A", cache_salt=A) == objects.depths("A") == {}


def test_old_layouts_have_a_salt_in_a_chains_first_block(
    old: str, objects: Scene
) -> None:
    raw(objects.index, stored(old, "A", [[A, "s"]]))
    assert objects.depths("A", mm=mm(A), cache_salt="s") == {"w1": 1}


def test_old_layouts_take_strings_of_later_blocks_as_images(
    old: str, objects: Scene
) -> None:
    raw(objects.index, stored(old, "AB", [["s"], ["image"]]))
    image = mm("image", first=BLOCK)
    assert objects.depths("AB", cache_salt="s", mm=image) == {"w1": 2}


def test_old_layouts_take_strings_below_a_parent_as_images(
    old: str, objects: Scene
) -> None:
    objects.S("w1", "A", names=[X])
    raw(objects.index, stored(old, "B", [["image"]], parent=X))
    assert objects.depths("AB", mm=mm("image", first=BLOCK)) == {"w1": 2}
    assert objects.depths("AB") == {"w1": 1}


def test_new_layouts_take_strings_below_a_parent_as_salts(
    new: str, objects: Scene
) -> None:
    objects.S("w1", "A", names=[X])
    raw(objects.index, stored(new, "B", [["s"]], parent=X))
    assert objects.depths("AB", mm=mm("s", first=BLOCK)) == {"w1": 1}
    assert objects.held("w1") == 2


# K12: the shape of extra keys changed between versions.


@pytest.mark.parametrize("layout", OLD)
def test_k12_bare_and_paired_identifiers_are_the_same_image(
    layout: str, objects: Scene
) -> None:
    index = objects.index
    for worker, extra in (
        ("w1", [[A]]),
        ("w2", [[[A, 0]]]),
        ("w3", [[B]]),
        ("w4", None),
    ):
        raw(index, stored(layout, "Q", None), worker=worker)
        parent = name("NoneQ")
        raw(index, stored(layout, "P", extra, parent=parent), worker=worker)
    everyone = {"w1": 1, "w2": 1, "w3": 1, "w4": 1}
    assert depths(index, "QP", mm=mm(A, first=BLOCK)) == everyone | {"w1": 2, "w2": 2}
    assert depths(index, "QP", mm=mm(B, first=BLOCK)) == everyone | {"w3": 2}
    assert depths(index, "QP") == everyone | {"w4": 2}


# Faults.

FAULTY: dict[str, Any] = {
    "integer key": [[5]],
    "float key": [[1.5]],
    "nested map": [[{"mm": A}]],
    "boolean key": [[True]],
    "integer entry": [5],
    "string entry": [A],
    "pair without offset": [[[A]]],
    "pair of numbers": [[[1, 2]]],
    "too many": [[A], [A]],
    "too few": [],
    "no list": "abc",
}


@pytest.mark.parametrize("extra", list(FAULTY.values()), ids=list(FAULTY))
def test_extra_keys_that_cannot_be_read_make_the_event_faulty(
    scene: Scene,
    extra: Any,  # noqa: ANN401
) -> None:
    report = scene.S("w1", "A", extra_keys=extra)
    assert (report.stored, report.ignored) == (0, 1)
    assert report.reasons == {"extra_keys": 1}
    assert scene.held("w1") == 0


def test_one_bad_entry_skips_the_whole_event(scene: Scene) -> None:
    report = scene.S("w1", "ABC", extra_keys=[None, [5], None])
    assert report.reasons == {"extra_keys": 3}
    assert scene.depths("ABC") == {}


def test_one_list_too_few_skips_the_whole_event(scene: Scene) -> None:
    report = scene.S("w1", "AB", extra_keys=[[[A, 0]]])
    assert report.reasons == {"extra_keys": 2}
    assert scene.depths("AB", mm=mm(A)) == {}

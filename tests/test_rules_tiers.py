"""Known names, media, locality and placeholders: rules 4, 8 and 9."""

import pytest

import kvindex
from tests import wire
from tests.helpers import BLOCK, HEX, Scene, depths, name, names, raw, split, tokens

X, Y, Z = names("x", "y", "z")
A = HEX["a"]
LOWER = ["cpu", "disk", "external"]
MEDIA = [
    ("gpu", ["GPU", "DEVICE"]),
    ("cpu", ["CPU", "CPU_PINNED", "CPU_TIER1"]),
    ("disk", ["CPU_TIER2", "DISK", "NVME", "SSD", "STORAGE"]),
    ("external", ["EXTERNAL", "NETWORK", "REMOTE", "SHARED"]),
]
PLACES = {"gpu": (1, 0, 0, 0), "cpu": (0, 1, 0, 0), "disk": (0, 0, 1, 0)} | {
    "external": (0, 0, 0, 1)
}
WORDS = [(tier, word) for tier, words in MEDIA for word in words]


# Known names on lower tiers.


@pytest.mark.parametrize("tier", LOWER)
def test_a_known_name_keeps_its_salt_on_a_lower_tier(scene: Scene, tier: str) -> None:
    scene.S("w1", "AB", salt="s")
    scene.S("w1", "AB", tier=tier)
    scene.R("w1", "A", "AB")
    assert scene.depths("AB", cache_salt="s") == {"w1": 2}
    assert scene.depths("AB") == {}
    assert len(scene.index) == 2


def test_a_known_name_keeps_its_image_on_a_lower_tier(scene: Scene) -> None:
    scene.S("w1", "A", extra_keys=[[[A, 0]]])
    scene.S("w1", "A", tier="cpu")
    row = scene.rows("A", mm=[(A, 0, 4)])["w1"]
    assert split(row) == (1, 0, 0, 0)
    scene.R("w1", "A")
    assert scene.depths("A", mm=[(A, 0, 4)]) == {"w1": 1}
    assert scene.depths("A") == {}


def test_a_known_name_of_another_holder_is_known(scene: Scene) -> None:
    scene.S("w1", "AB", salt="s")
    scene.S("w2", "AB", tier="cpu")
    assert scene.depths("AB", cache_salt="s") == {"w1": 2, "w2": 2}


def test_extra_keys_of_nil_leave_a_name_known(scene: Scene) -> None:
    scene.S("w1", "AB", salt="s")
    scene.S("w1", "AB", tier="cpu", extra_keys=[None, None])
    assert scene.held("w1") == 4
    assert len(scene.index) == 2


def test_extra_keys_that_are_given_say_what_the_block_is(scene: Scene) -> None:
    scene.S("w1", "A", salt="s")
    scene.S("w1", "A", tier="cpu", extra_keys=[["t"]])
    assert scene.depths("A", cache_salt="s") == {"w1": 1}
    assert scene.depths("A", cache_salt="t") == {"w1": 1}


def test_on_the_device_tokens_say_what_the_block_is(scene: Scene) -> None:
    scene.S("w1", "A", salt="s")
    scene.S("w1", "A")
    assert scene.depths("A") == {"w1": 1}
    assert scene.depths("A", cache_salt="s") == {"w1": 1}


def test_a_known_name_is_known_whatever_its_parent_is(scene: Scene) -> None:
    scene.S("w1", "AB")
    report = scene.S("w1", "B", names=[name("AB")], parent=Z, tier="cpu")
    assert (report.stored, report.reasons) == (1, {})
    row = scene.rows("AB")["w1"]
    assert (row.depth, scene.held("w1")) == (2, 3)


def test_an_unknown_name_is_the_child_of_the_one_before(scene: Scene) -> None:
    scene.S("w1", "AB", salt="s")
    assert scene.S("w1", "ABC", tier="cpu").stored == 3
    assert scene.depths("ABC", cache_salt="s") == {"w1": 3}
    assert scene.depths("ABC") == {}


def test_a_leading_unknown_name_is_the_child_of_the_events_parent(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.S("w1", "BC", "A", tier="cpu")
    assert scene.depths("ABC") == {"w1": 3}


def test_leading_unknown_names_wait_for_an_unknown_parent(scene: Scene) -> None:
    scene.S("w1", "ABC")
    event = [Y, name("ABC"), name("ABCD")]
    report = scene.S("w1", "QCD", names=event, parent=Z, tier="cpu")
    assert (report.stored, report.reasons) == (2, {"orphan": 1})
    assert scene.depths("ABCD") == {"w1": 4}
    assert scene.waiting("w1") == 1
    scene.S("w2", "Z", names=[Z])
    assert scene.waiting("w1") == 0
    scene.S("w1", "Z", names=[Z])
    assert scene.depths("ZQ") == {"w1": 2, "w2": 1}


def test_unknown_names_behind_an_ambiguous_one_are_ambiguous(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "A", names=[X], lora="x")
    scene.S("w1", "Q", names=[Z])
    event = [X, Y, Z, name("new")]
    report = scene.S("w1", "ABQR", names=event, tier="cpu")
    assert (report.stored, report.ignored) == (2, 2)
    assert report.reasons == {"ambiguous": 2}
    assert scene.depths("QR") == {"w1": 2}


def test_a_given_adapter_decides_among_known_names(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "A", names=[X], lora="x")
    scene.S("w1", "A", names=[X], lora="x", tier="cpu")
    scene.R("w1", X)
    assert scene.depths("A", lora_name="x") == {"w1": 1}
    assert scene.depths("A") == {}


def test_lower_tiers_alone_are_filed_by_their_tokens(scene: Scene) -> None:
    scene.S("w1", "AB", tier="cpu")
    scene.S("w1", "C", "AB", tier="disk")
    assert split(scene.rows("ABC")["w1"]) == (0, 2, 1, 0)


def test_a_parent_is_found_on_any_tier(scene: Scene) -> None:
    scene.S("w1", "A", tier="disk")
    scene.S("w1", "B", "A")
    scene.S("w1", "C", "AB", tier="external")
    assert split(scene.rows("ABC")["w1"]) == (1, 0, 1, 1)


# Rule 8: media.


@pytest.mark.parametrize(("tier", "word"), WORDS)
def test_each_medium_is_its_tier_in_any_case(
    scene: Scene, tier: str, word: str
) -> None:
    for spelling in (word, word.lower(), word.title()):
        scene.S("w1", "A", medium=spelling)
        assert split(scene.rows("A")["w1"]) == PLACES[tier]
        assert scene.R("w1", "A", medium=spelling).removed == 1
        assert scene.depths("A") == {}


def test_no_medium_is_the_device(scene: Scene) -> None:
    scene.S("w1", "A", medium=None)
    assert split(scene.rows("A")["w1"]) == (1, 0, 0, 0)
    assert scene.R("w1", "A", medium=None).removed == 1


@pytest.mark.parametrize("medium", ["tape", "GPU0"])
def test_a_store_of_an_unknown_medium_is_dropped(scene: Scene, medium: str) -> None:
    report = scene.S("w1", "AB", medium=medium)
    assert (report.stored, report.ignored) == (0, 2)
    assert report.reasons == {"medium": 2}
    assert scene.held("w1") == 0


def test_a_placeholder_of_an_unknown_medium_is_dropped(scene: Scene) -> None:
    scene.S("w1", "A")
    assert scene.P("w1", "A", medium="tape").reasons == {"medium": 1}
    assert scene.held("w1") == 1


def test_a_removal_of_an_unknown_medium_takes_every_tier(scene: Scene) -> None:
    for tier in ("gpu", "cpu", "disk", "external"):
        scene.S("w1", "AB", tier=tier)
    report = scene.R("w1", "A", "ZZ", medium="tape")
    assert (report.removed, report.reasons) == (1, {"unknown_block": 1})
    assert scene.held("w1") == 4
    assert scene.depths("AB") == {}


def test_a_removal_of_an_unknown_medium_takes_one_copy_from_each(scene: Scene) -> None:
    for tier in ("gpu", "gpu", "cpu"):
        scene.S("w1", "A", tier=tier)
    scene.R("w1", "A", medium="tape")
    assert split(scene.rows("A")["w1"]) == (1, 0, 0, 0)
    scene.R("w1", "A", medium="tape")
    assert scene.depths("A") == {}


def test_a_profile_may_add_media(scene: Scene) -> None:
    scene.index.register("w1", media={"Tape": "disk", "l2": "host"})
    scene.S("w1", "A", medium="TAPE")
    scene.S("w1", "B", medium="L2")
    assert split(scene.rows("A")["w1"]) == (0, 0, 1, 0)
    assert split(scene.rows("B")["w1"]) == (0, 1, 0, 0)
    assert scene.S("w2", "A", medium="TAPE").reasons == {"medium": 1}
    assert scene.S("w1", "C", medium="cpu").stored == 1


# Rule 8: locality and ownership.


@pytest.mark.parametrize("medium", ["GPU", "CPU", "STORAGE", None])
def test_remote_lies_on_external_whatever_its_medium(
    objects: Scene, medium: str | None
) -> None:
    index = objects.index
    event = wire.stored_map(
        [X], tokens("A"), None, BLOCK, medium=medium, locality="REMOTE"
    )
    raw(index, event)
    assert split(objects.rows("A")["w1"]) == (0, 0, 0, 1)
    removal = wire.removed_map([X], medium, locality="REMOTE")
    assert raw(index, removal).removed == 1
    assert objects.depths("A") == {}


def test_an_event_object_may_be_remote(objects: Scene) -> None:
    objects.S("w1", "A", tier="disk", locality="REMOTE")
    assert split(objects.rows("A")["w1"]) == (0, 0, 0, 1)


@pytest.mark.parametrize(
    "fields",
    [{"locality": "LOCAL"}, {"ownership": "kvcr"}, {"locality": None}],
    ids=str,
)
def test_other_localities_and_owners_change_nothing(
    objects: Scene, fields: dict[str, str | None]
) -> None:
    event = wire.stored_map([X], tokens("A"), None, BLOCK, medium="CPU", **fields)
    raw(objects.index, event)
    assert split(objects.rows("A")["w1"]) == (0, 1, 0, 0)
    assert raw(objects.index, wire.removed_map([X], "CPU", **fields)).removed == 1


# Rule 9: placeholders.


def test_a_placeholder_puts_a_known_block_on_a_tier(scene: Scene) -> None:
    scene.S("w1", "ABC", salt="s")
    report = scene.P("w1", "ABC", "A")
    assert (report.stored, report.reasons) == (2, {})
    scene.R("w1", "A", "AB", "ABC")
    scene.S("w1", "B", "A", tier="disk")
    assert split(scene.rows("ABC", cache_salt="s")["w1"]) == (0, 2, 1, 0)


def test_a_placeholder_of_an_unknown_name_is_unresolved(scene: Scene) -> None:
    scene.S("w1", "A")
    report = scene.P("w1", "ZZ", "A", "YY")
    assert (report.stored, report.ignored) == (1, 2)
    assert report.reasons == {"unresolved": 2}


def test_a_placeholder_may_name_a_hash_twice(scene: Scene) -> None:
    scene.S("w1", "A")
    assert scene.P("w1", "A", "A").stored == 2
    scene.R("w1", "A")
    scene.R("w1", "A", tier="cpu")
    assert scene.depths("A") == {"w1": 1}
    scene.R("w1", "A", tier="cpu")
    assert scene.depths("A") == {}


def test_a_placeholder_on_the_device_counts_too(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.P("w2", "A", tier="gpu")
    assert split(scene.rows("A")["w2"]) == (1, 0, 0, 0)


@pytest.mark.parametrize("block_size", [None, 0, BLOCK])
def test_a_placeholder_needs_no_block_size(
    scene: Scene, block_size: int | None
) -> None:
    scene.S("w1", "AB")
    assert scene.P("w1", "AB", block_size=block_size).stored == 1
    assert scene.held("w1") == 3


def test_tokens_of_nil_make_a_placeholder() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    raw(index, wire.stored_map([X], tokens("A"), None, BLOCK))
    raw(index, wire.stored_map([X], None, None, None, medium="cpu"), worker="w2")
    assert depths(index, "A") == {"w1": 1, "w2": 1}


def test_the_parent_of_a_placeholder_does_not_matter(scene: Scene) -> None:
    scene.S("w1", "AB")
    assert scene.P("w1", "AB", parent=Z).stored == 1
    assert scene.waiting("w1") == 0

"""Names: rule 2."""

import pytest

from tests import wire
from tests.helpers import BLOCK, Scene, name, names, raw, state, tokens

X, Y, Z = names("x", "y", "z")
LONG = b"\x01" * 24


def spelled(value: int, head: bytes = LONG) -> bytes:
    """Return a name as bytes whose last eight are the integer."""
    return head + value.to_bytes(8, "big")


# Whose meaning counts.


def test_a_name_means_the_holders_own_block_first(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w2", "B", names=[X])
    scene.S("w1", "C", names=[Y], parent=X)
    scene.S("w2", "C", names=[Y], parent=X)
    assert scene.depths("AC") == {"w1": 2}
    assert scene.depths("BC") == {"w2": 2}


def test_another_rank_is_another_holder(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1@1", "B", names=[X])
    scene.S("w1@1", "C", names=[Y], parent=X)
    assert scene.depths("BC") == {"w1@1": 2}


def test_else_a_name_means_the_oldest_live_block_of_anybody(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w2", "B", names=[X])
    scene.P("w3", X)
    assert scene.depths("A") == {"w1": 1, "w3": 1}
    assert scene.depths("B") == {"w2": 1}


def test_after_the_oldest_meaning_the_next_one_counts(scene: Scene) -> None:
    for who, letter in (("w1", "A"), ("w2", "B"), ("w3", "C"), ("w4", "D")):
        scene.S(who, letter, names=[X])
    scene.R("w1", X)
    scene.P("w5", X)
    assert scene.depths("B") == {"w2": 1, "w5": 1}
    for letter in "ACD":
        assert "w5" not in scene.depths(letter)


def test_a_name_lives_as_long_as_anybody_holds_its_block(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w2", "A", names=[Y])
    scene.R("w1", X)
    scene.P("w3", X)
    assert scene.depths("A") == {"w2": 1, "w3": 1}
    scene.S("w2", "B", names=[Z], parent=X)
    assert scene.depths("AB") == {"w2": 2, "w3": 1}


def test_the_next_oldest_meaning_counts_when_the_oldest_is_gone(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w2", "B", names=[X])
    scene.R("w1", X)
    scene.P("w3", X)
    assert scene.depths("A") == {}
    assert scene.depths("B") == {"w2": 1, "w3": 1}


def test_a_name_of_a_block_that_nobody_holds_is_unknown(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.R("w1", X)
    assert scene.P("w2", X).reasons == {"unresolved": 1}
    assert scene.S("w1", "B", names=[Y], parent=X).reasons == {"orphan": 1}


def test_a_block_on_any_tier_keeps_its_name(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.P("w1", "A", tier="disk")
    scene.R("w1", "A")
    scene.S("w1", "B", "A")
    assert scene.depths("AB") == {"w1": 2}


def test_of_several_own_meanings_the_newest_counts(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "B", names=[X])
    scene.S("w1", "C", names=[Y], parent=X)
    assert scene.depths("BC") == {"w1": 2}
    assert scene.depths("AC") == {"w1": 1}


def test_of_several_own_meanings_the_given_adapter_decides(scene: Scene) -> None:
    scene.S("w1", "A", names=[X], lora="x")
    scene.S("w1", "A", names=[X], lora="y")
    scene.S("w1", "B", names=[Y], parent=X, lora="x")
    assert scene.depths("AB", lora_name="x") == {"w1": 2}
    assert scene.depths("AB", lora_name="y") == {"w1": 1}


def test_of_several_own_meanings_the_given_salt_decides(scene: Scene) -> None:
    scene.S("w1", "A", names=[X], salt="s")
    scene.S("w1", "A", names=[X], salt="t")
    raw(
        scene.index,
        wire.stored_map([Y], tokens("B"), X, BLOCK, cache_salt="s"),
    )
    assert scene.depths("AB", cache_salt="s") == {"w1": 2}
    assert scene.depths("AB", cache_salt="t") == {"w1": 1}


def test_own_meanings_in_two_namespaces_are_ambiguous_when_none_is_given(
    scene: Scene,
) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "A", names=[X], lora="x")
    report = scene.S("w1", "BC", names=[Y, Z], parent=X)
    assert (report.stored, report.ignored) == (0, 2)
    assert report.reasons == {"ambiguous": 2}
    assert scene.waiting("w1") == 0
    assert scene.depths("AB") == scene.depths("AB", lora_name="x") == {"w1": 1}


def test_a_placeholder_of_an_ambiguous_name_is_refused(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "A", names=[X], salt="s")
    assert scene.P("w1", X).reasons == {"ambiguous": 1}
    assert state(scene.index, "w1").host == 0


def test_it_is_not_ambiguous_any_more_when_one_meaning_is_left(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "A", names=[X], lora="x")
    scene.index.reset("w1")
    scene.S("w1", "A", names=[X], lora="x")
    scene.S("w1", "B", names=[Y], parent=X)
    assert scene.depths("AB", lora_name="x") == {"w1": 2}


def test_an_sglang_event_that_names_no_namespace_means_none(scene: Scene) -> None:
    scene.index.register("w1", profile="sglang")
    scene.S("w1", "A", names=[X])
    scene.S("w1", "A", names=[X], lora="x")
    scene.S("w1", "B", names=[Y], parent=X)
    assert scene.depths("AB") == {"w1": 2}
    assert scene.depths("AB", lora_name="x") == {"w1": 1}


def test_a_profile_of_own_names_never_looks_at_others(scene: Scene) -> None:
    scene.index.register("w2", names="own")
    scene.S("w1", "A", names=[1])
    assert scene.P("w2", 1).reasons == {"unresolved": 1}
    assert scene.S("w2", "B", names=[2], parent=1).reasons == {"orphan": 1}
    scene.S("w2", "C", names=[1])
    assert scene.depths("CB") == {"w2": 2}
    assert scene.depths("AB") == {"w1": 1}
    assert scene.P("w2", 1).stored == 1


@pytest.mark.parametrize("root", [0, 17, -1])
def test_a_profile_may_say_which_parent_is_the_root(scene: Scene, root: int) -> None:
    scene.index.register("w1", root_hash=root)
    assert scene.S("w1", "A", parent=root).stored == 1
    assert scene.S("w2", "B", names=[Y], parent=root).reasons == {"orphan": 1}
    assert scene.depths("A") == {"w1": 1}
    assert scene.depths("B") == {}


def test_without_a_root_hash_zero_is_a_name(scene: Scene) -> None:
    assert scene.S("w1", "B", parent=0).reasons == {"orphan": 1}
    scene.S("w1", "A", names=[0])
    assert scene.depths("AB") == {"w1": 2}


# Removals.


def test_a_removal_looks_only_at_names_that_its_holder_announced(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w2", "A", names=[Y])
    assert scene.R("w2", X).reasons == {"unknown_block": 1}
    assert scene.R("w1", Y).reasons == {"unknown_block": 1}
    assert scene.depths("A") == {"w1": 1, "w2": 1}


def test_a_placeholder_announces_its_name(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.P("w2", X)
    assert scene.R("w2", X, tier="cpu").removed == 1
    assert scene.depths("A") == {"w1": 1}


def test_a_removal_takes_one_copy_from_each_block_of_its_name(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.S("w1", "B", names=[X])
    scene.S("w1", "B", names=[X])
    assert scene.R("w1", X).removed == 1
    assert scene.depths("A") == {}
    assert scene.depths("B") == {"w1": 1}
    assert scene.R("w1", X).removed == 1
    assert scene.depths("B") == {}


def test_a_block_that_comes_back_under_another_name_is_removed_by_that(
    scene: Scene,
) -> None:
    scene.S("w1", "A", names=[X])
    scene.R("w1", X)
    scene.S("w1", "A", names=[Y])
    assert scene.R("w1", X).reasons == {"unknown_block": 1}
    assert scene.R("w1", Y).removed == 1


def test_a_name_that_comes_back_on_another_block_means_that(scene: Scene) -> None:
    scene.S("w1", "AC", names=[X, Z])
    scene.R("w1", X)
    scene.S("w1", "B", names=[X])
    scene.S("w1", "D", names=[Y], parent=X)
    assert scene.depths("BD") == {"w1": 2}
    scene.R("w1", X)
    assert scene.depths("B") == {}
    assert scene.held("w1") == 2


# Integers and byte strings.


def test_integers_compare_by_their_low_64_bits(scene: Scene) -> None:
    scene.S("w1", "A", names=[-5])
    scene.S("w1", "B", names=[Y], parent=2**64 - 5)
    assert scene.depths("AB") == {"w1": 2}
    assert scene.R("w1", 2**64 - 5).removed == 1


def test_bytes_and_integers_compare_by_the_last_eight_bytes(scene: Scene) -> None:
    scene.S("w1", "A", names=[X])
    scene.P("w1", spelled(X))
    assert scene.rows("A")["w1"].depth == 1
    assert state(scene.index, "w1").host == 1
    scene.S("w1", "B", names=[Y], parent=spelled(X))
    assert scene.depths("AB") == {"w1": 2}
    assert scene.R("w1", spelled(Y)).removed == 1
    assert scene.R("w1", X, tier="cpu").removed == 1
    assert scene.depths("AB") == {"w1": 1}


@pytest.mark.parametrize("length", [8, 16, 32])
def test_byte_strings_of_any_length_are_names(scene: Scene, length: int) -> None:
    first, second = (bytes([i + 1]) * length for i in range(2))
    scene.S("w1", "A", names=[first])
    scene.S("w1", "B", names=[second], parent=first)
    assert scene.depths("AB") == {"w1": 2}
    assert scene.R("w1", int.from_bytes(second[-8:], "big")).removed == 1
    assert scene.R("w1", first).removed == 1
    assert scene.held("w1") == 0


def test_byte_strings_with_equal_ends_are_two_names(scene: Scene) -> None:
    one, two = spelled(X), spelled(X, b"\x02" * 24)
    scene.S("w1", "A", names=[one])
    scene.S("w1", "B", names=[two])
    scene.S("w1", "C", names=[Y], parent=one)
    assert scene.depths("AC") == {"w1": 2}
    assert scene.R("w1", two).removed == 1
    assert scene.depths("A") == {"w1": 1}
    assert scene.depths("B") == {}


def test_an_integer_takes_every_byte_string_that_ends_in_it(scene: Scene) -> None:
    scene.S("w1", "A", names=[spelled(X)])
    scene.S("w1", "B", names=[spelled(X, b"\x02" * 24)])
    assert scene.R("w1", X).removed == 1
    assert scene.depths("A") == scene.depths("B") == {}


def test_a_byte_string_that_differs_in_front_is_unknown(scene: Scene) -> None:
    scene.S("w1", "A", names=[spelled(X)])
    assert scene.R("w1", spelled(X, b"\x02" * 24)).reasons == {"unknown_block": 1}
    assert scene.P("w2", spelled(X, b"\x03" * 24)).reasons == {"unresolved": 1}
    assert scene.depths("A") == {"w1": 1}


def test_engines_that_hash_differently_share_their_blocks(scene: Scene) -> None:
    for number in range(5):
        own = [name(f"{number}{path}") for path in ("A", "AB", "ABC")]
        scene.S(f"w{number}", "ABC", names=own)
    assert len(scene.index) == 3
    assert scene.depths("ABC") == {f"w{number}": 3 for number in range(5)}
    scene.R("w3", name("3AB"))
    scene.S("w4", "D", names=[X], parent=name("4ABC"))
    assert scene.depths("ABCD") == {"w0": 3, "w1": 3, "w2": 3, "w3": 1, "w4": 4}

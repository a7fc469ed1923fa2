"""The model against answers worked out by hand.

A letter is a block of four tokens, a word a path; `h("AB")` is the engine hash
of block B below A.
"""

from dataclasses import replace

import pytest

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.model import Model
from tests.model_read import Anything, Event, FaultyEventError, Fields, Name, Wire
from tests.model_state import Report

SIZE = 4
DIGEST = "0123456789abcdef" * 4
OTHER_DIGEST = "fedcba9876543210" * 4


def h(path: str) -> int:
    """Return the engine hash of a path."""
    return 10**6 + int.from_bytes(path.encode(), "big")


def toks(path: str) -> list[int]:
    """Return the tokens of a path."""
    return [1000 * ord(letter) + i for letter in path for i in range(SIZE)]


def stored(letters: str, after: str = "", **fields: Anything) -> BlockStored:
    """Return a store of letters below a path."""
    paths = [after + letters[: end + 1] for end in range(len(letters))]
    given: Fields = {
        "block_hashes": [h(path) for path in paths],
        "token_ids": toks(letters),
        "parent_block_hash": h(after) if after else None,
    }
    return BlockStored(**given | fields)


def removed(*names: str | Name, **fields: Anything) -> BlockRemoved:
    """Return a removal of paths or names."""
    hashes = [h(name) if isinstance(name, str) else name for name in names]
    return BlockRemoved(hashes, **fields)


class Story:
    """A model told in short words."""

    def __init__(self, **settings: Anything) -> None:
        """Make an empty model."""
        self.model = Model(block_size=SIZE, **settings)

    def say(self, who: str, *events: Event | Wire, **options: Anything) -> Report:
        """Apply events; `w1@2` is rank 2 of w1."""
        worker, _, rank = who.partition("@")
        wires = [event if isinstance(event, Wire) else Wire(event) for event in events]
        return self.model.apply(wires, worker=worker, dp_rank=int(rank or 0), **options)

    def depths(self, path: str | list[int], **options: Anything) -> dict[str, int]:
        """Return the depth of each holder."""
        tokens = toks(path) if isinstance(path, str) else path
        rows = self.model.match(tokens, **options)
        return {
            f"{row.worker}@{row.dp_rank}" if row.dp_rank else row.worker: row.depth
            for row in rows
        }

    def held(self, who: str) -> int:
        """Return how many (tier, block) a worker holds."""
        return sum(sum(row[2:6]) for row in self.model.workers() if row.worker == who)


@pytest.fixture
def story() -> Story:
    """Return an empty model."""
    return Story()


def test_faulty_parents_cost_only_themselves(story: Story) -> None:
    story.say("w1", stored("A"))
    own = story.say("w1", stored("B", block_hashes=[7], parent_block_hash=7))
    twice = story.say(
        "w1", stored("BC", "A", block_hashes=[h("AB"), h("AB")]), stored("C", "A")
    )
    story.say("w1", stored("A", block_hashes=[8], parent_block_hash=9))
    story.say("w1", stored("B", block_hashes=[9], parent_block_hash=8))
    assert own.reasons == {"parent": 1}
    assert twice.reasons == {"duplicate_hash": 2}
    assert story.depths("AC") == {"w1": 2}
    assert story.depths("AB") == {"w1": 1}
    assert story.depths("B") == {}


def test_equal_blocks_at_other_positions_are_other_blocks(story: Story) -> None:
    story.say("w1", stored("AAA"))
    assert story.depths("AAAA") == {"w1": 3}
    story.say("w1", removed("AAA"))
    assert story.depths("AAAA") == {"w1": 2}


def test_equal_content_below_another_prefix_does_not_match(story: Story) -> None:
    story.say("w1", stored("AXC"))
    assert story.depths("AYC") == {"w1": 1}
    assert story.depths("BXC") == {}


def test_copies_are_counted(story: Story) -> None:
    story.say("w1", stored("ABC"))
    story.say("w1", stored("C", "AB"))
    assert story.held("w1") == 3
    story.say("w1", removed("ABC"))
    assert story.depths("ABC") == {"w1": 3}
    story.say("w1", removed("ABC"))
    assert story.depths("ABC") == {"w1": 2}


@pytest.mark.parametrize("medium", ["GPU", "CPU", "STORAGE"])
def test_unknown_removals_do_not_stop_the_rest(story: Story, medium: str) -> None:
    story.say("w1", stored("ABCD", medium=medium))
    report = story.say("w1", removed(5, "ABCD", "ABC", medium=medium))
    assert report.reasons == {"unknown_block": 1}
    assert story.depths("ABCD") == {"w1": 2}


def test_a_block_that_comes_back_makes_the_rest_reachable(story: Story) -> None:
    story.say("w1", stored("ABCD"))
    story.say("w1", removed("AB"))
    assert story.depths("ABCD") == {"w1": 1}
    story.say("w1", stored("B", "A"))
    assert story.depths("ABCD") == {"w1": 4}


def test_clear_forgets_one_holder_in_order(story: Story) -> None:
    story.say("w1", stored("AB"), stored("A", medium="CPU"))
    story.say("w2", stored("A"))
    story.say("w1", AllBlocksCleared())
    assert story.depths("AB") == {"w2": 1}
    story.say("w1", stored("C", "AB"))
    assert story.depths("ABC") == {"w2": 1}
    story.say("w1", stored("A"))
    assert story.depths("AB") == {"w1": 1, "w2": 1}
    story.say("w3", AllBlocksCleared(), stored("A"))
    assert story.depths("A")["w3"] == 1


def test_ranks_are_holders(story: Story) -> None:
    story.say("w1", stored("AB"))
    story.say("w1", stored("AB"), rank_inside=1)
    story.say("w1@1", removed("AB"))
    assert story.depths("AB") == {"w1": 2, "w1@1": 1}
    story.say("w1@1", AllBlocksCleared(), rank_inside=2**32)
    assert story.depths("AB") == {"w1": 2}


def test_namespaces_are_apart_and_removed_together(story: Story) -> None:
    story.say("w1", stored("AB"), stored("A", lora_name="x", block_hashes=[h("A")]))
    story.say("w3", stored("A", cache_salt="s"))
    assert story.depths("AB", lora_name="") == {"w1": 2}
    assert story.depths("AB", lora_name="x") == {"w1": 1}
    assert story.depths("A", lora_name="y") == {}
    assert story.depths("A", cache_salt="s") == {"w3": 1}
    refused = story.say("w1", stored("C", "A"))
    assert refused.reasons == {"ambiguous": 1}
    story.say("w1", removed("A"))
    assert story.depths("AB") == {}
    assert story.depths("AB", lora_name="x") == {}


def test_the_parents_namespace_is_inherited_but_not_from_sglang(story: Story) -> None:
    story.model.register("s1", profile="sglang")
    for who in ("w1", "s1"):
        story.say(who, stored("A", cache_salt="s"), stored("B", "A"))
    assert story.depths("AB", cache_salt="s") == {"w1": 2, "s1": 1}


def test_extra_keys_keep_images_from_matching_as_text(story: Story) -> None:
    bare = stored("P", "A", extra_keys=[[DIGEST]])
    story.say("w1", stored("A"), Wire(bare, fields=9))
    story.say("w2", stored("A"), stored("P", "A", extra_keys=[[[DIGEST, 0]]]))
    story.say("w3", stored("A"), stored("P", "A", extra_keys=[[[OTHER_DIGEST, -4]]]))
    story.say("w4", stored("A"), stored("P", "A"))
    whole = {"w1": 1, "w2": 1, "w3": 1, "w4": 1}
    assert story.depths("AP", mm=[(DIGEST, 4, 4)]) == whole | {"w1": 2, "w2": 2}
    assert story.depths("AP", mm=[(OTHER_DIGEST, 6, 1)]) == whole | {"w3": 2}
    assert story.depths("AP") == whole | {"w4": 2}


def test_a_bare_string_is_the_salt_unless_it_is_the_adapter(story: Story) -> None:
    story.say("w1", stored("A", lora_name="x", extra_keys=[["x", "s"]]))
    story.say("w2", stored("A", lora_name="x", extra_keys=[["x"]]))
    story.say("w3", Wire(stored("A", extra_keys=[["dynamo-cache-salt:s"]]), fields=9))
    assert story.depths("A", lora_name="x", cache_salt="s") == {"w1": 1}
    assert story.depths("A", lora_name="x") == {"w2": 1}
    assert story.depths("A", cache_salt="s") == {"w3": 1}


def test_tokenless_stores_place_known_blocks(story: Story) -> None:
    story.say("w1", stored("AB"))
    placed = stored("", block_hashes=[h("A"), h("AB")], block_size=0, medium="Cpu")
    story.say("w1", placed)
    story.say("w1", removed("A", "AB", medium="gpu"))
    (row,) = story.model.match(toks("AB"))
    assert (row.depth, row.score, row.host) == (2, 1.5, 2)
    story.say("w1", removed("AB", medium="CPU"))
    assert story.depths("AB") == {"w1": 1}
    story.say("w1", removed("A", medium="CPU"))
    assert story.say("w1", placed).reasons == {"unresolved": 2}


def test_a_block_counts_once_at_its_nearest_tier(story: Story) -> None:
    story.say("w1", stored("AB"), stored("ABC", medium="CPU"))
    (row,) = story.model.match(toks("ABC"))
    assert (row.depth, row.score, row.device, row.host) == (3, 2.75, 2, 1)
    story.say("w2", stored("A", medium="CPU"), stored("B", "A"))
    rows = story.model.match(toks("AB"), cascade=True, workers=["w2", ("w1", 0)])
    assert [row.depth for row in rows] == [1, 2]


def test_a_unit_counts_only_where_it_is_covered(story: Story) -> None:
    unit = stored("ABCD", block_hashes=[4], block_size=4 * SIZE, medium="CPU")
    story.say("w1", unit)
    assert [story.depths("ABCD"[:end]) for end in (1, 3, 4)] == [{}, {}, {"w1": 4}]
    story.say("w1", stored("A"), stored("E", parent_block_hash=4, block_hashes=[5]))
    assert story.depths("ABC") == {"w1": 1}
    assert story.depths("ABCDE") == {"w1": 5}
    story.say("w1", removed(4, medium="CPU"))
    assert story.depths("ABCDE") == {"w1": 1}


def test_a_placeholder_stands_for_its_chunk(story: Story) -> None:
    story.model.register("w1", chunk_tokens={"host": 2 * SIZE})
    story.say("w1", stored("ABCD"))
    placed = stored("", block_hashes=[h("AB")], block_size=0, medium="CPU")
    story.say("w1", placed, removed("A", "AB"))
    assert story.depths("ABCD") == {"w1": 4}
    assert story.depths("A") == {}
    story.say("w1", removed("AB", medium="CPU"))
    assert story.depths("AB") == {}


def test_partial_blocks_are_dropped(story: Story) -> None:
    short = stored("AB", token_ids=toks("AB")[:-2])
    assert story.say("w1", short).reasons == {"partial": 1}
    assert story.say("w1", removed("AB")).reasons == {"unknown_block": 1}
    assert story.depths([*toks("A"), 1, 2]) == {"w1": 1}
    assert story.depths([1, 2]) == {}


def test_tokens_that_do_not_fit_skip_the_event(story: Story) -> None:
    story.say("w1", stored("A"))
    skipped = story.say("w1", stored("BC", "A", block_hashes=[7]))
    waiting = story.say("w1", stored("D", parent_block_hash=7, block_hashes=[8]))
    story.say("w1", stored("E", "A"))
    assert skipped.reasons == {"tokens": 1}
    assert waiting.reasons == {"orphan": 1}
    assert waiting.ignored == 0
    assert story.depths("ABCD") == {"w1": 1}
    assert story.depths("AE") == {"w1": 2}


def test_pairs_need_the_token_that_follows(story: Story) -> None:
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]
    story.say("w1", BlockStored([1], pairs, block_size=4))
    story.say("w2", BlockStored([1], [1, 2, 3, 4], block_size=4))
    assert story.depths([1, 2, 3, 4, 5]) == {"w1": 1, "w2": 1}
    assert story.depths([1, 2, 3, 4, 9]) == {"w2": 1}
    assert story.depths([1, 2, 3, 4]) == {"w2": 1}


def test_names_compare_by_their_low_bits_or_whole(story: Story) -> None:
    story.say("w1", stored("A", block_hashes=[-1]), removed(2**64 - 1))
    story.say("w2", stored("A", block_hashes=[2**53 + 1]), removed(2**53))
    one, two = b"1" * 24 + b"samesame", b"2" * 24 + b"samesame"
    story.say("w3", stored("A", block_hashes=[one]), stored("B", block_hashes=[two]))
    story.say("w3", removed(one))
    assert story.depths("A") == {"w2": 1}
    assert story.depths("B") == {"w3": 1}
    story.say("w3", removed(int.from_bytes(b"samesame", "big")))
    assert story.depths("B") == {}


def test_sequence_numbers_are_applied_once(story: Story) -> None:
    story.say("w1", stored("AB"), seq=1)
    late = story.say("w1", stored("C", "A"), seq=3)
    assert (late.status, late.gap) == ("gap", (2, 2))
    again = story.say("w1", removed("AB"), seq=2)
    assert (again.status, again.reasons) == ("duplicate", {"duplicate": 1})
    assert story.depths("AB") == {"w1": 2}
    assert story.depths("AC") == {"w1": 2}
    assert story.say("w1", removed("AB"), seq=1, source="other").status == "ok"


def test_late_events_of_a_removed_worker_are_stale(story: Story) -> None:
    first = story.model.register("w1")
    story.say("w1", stored("A"), epoch=first)
    assert story.model.remove_worker("w1")
    assert story.say("w1", stored("AB"), epoch=first).reasons == {"epoch": 2}
    second = story.model.register("w1")
    assert second > first
    assert story.model.register("w1") == second
    story.say("w1", stored("B"), epoch=second)
    story.say("w1", removed("B"), epoch=first)
    assert story.depths("B") == {"w1": 1}
    assert story.depths("A") == {}


def test_orphans_attach_in_any_order_and_can_be_taken(story: Story) -> None:
    story.say("w1", stored("D", "ABC"), stored("BC", "A"))
    assert story.model.workers()[0].orphans == 3
    assert story.say("w1", removed("AB")).removed == 1
    report = story.say("w2", stored("A"))
    assert (report.stored, report.attached) == (1, 2)
    story.say("w1", stored("AB"))
    assert story.depths("ABCD") == {"w1": 4, "w2": 1}


def test_the_waiting_room_is_bounded_per_holder() -> None:
    story = Story(orphan_blocks=2)
    story.say("w1", stored("C", "AB"), stored("D", "ABC"))
    report = story.say("w1", stored("E", "ABCD"))
    assert report.reasons == {"orphan_dropped": 1, "orphan": 1}
    assert story.say("w1", stored("CDE", "XY")).reasons == {"orphan_dropped": 3}


def test_known_names_outweigh_tokens_away_from_the_device(story: Story) -> None:
    story.say("w1", stored("AB"))
    story.say("w2", stored("XYZ", block_hashes=[7, h("AB"), 9], medium="CPU"))
    assert story.depths("AB") == {"w1": 2}
    assert story.depths("X") == {"w2": 1}
    story.say("w2", stored("A", medium="CPU"))
    assert story.depths("ABZ") == {"w1": 2, "w2": 3}


def test_own_names_mean_nothing_to_or_from_others(story: Story) -> None:
    story.model.register("w2", names="own", root_hash=0)
    story.say("w1", stored("A", block_hashes=[1]))
    waits = story.say("w2", stored("B", block_hashes=[2], parent_block_hash=1))
    assert waits.reasons == {"orphan": 1}
    report = story.say("w2", stored("A", block_hashes=[1], parent_block_hash=0))
    assert report.attached == 1
    assert story.depths("AB") == {"w1": 1, "w2": 2}


def test_groups_other_than_the_main_one_are_ignored(story: Story) -> None:
    window: Fields = {"group_idx": 0, "kv_cache_spec_kind": "sliding_window"}
    full: Fields = {"group_idx": 1, "kv_cache_spec_kind": "full_attention"}
    report = story.say("w1", stored("AB", **window), stored("AB", **full))
    assert (report.stored, report.reasons) == (2, {"group": 2})
    other = story.say("w1", removed("AB", group_idx=0))
    assert other.reasons == {"group": 1}
    assert story.say("w1", removed("AB")).removed == 1


def test_with_group_rules_all_groups_have_to_go_on() -> None:
    story = Story(group_rules=True)
    full: Fields = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    window: Fields = {
        "group_idx": 1,
        "kv_cache_spec_kind": "sliding_window",
        "kv_cache_spec_sliding_window": 2 * SIZE + 1,
    }
    state: Fields = {"group_idx": 2, "kv_cache_spec_kind": "mamba"}
    story.say("w1", stored("ABCDE", **full), stored("ABCDE", **window))
    assert story.depths("ABCDEF") == {"w1": 5}
    story.say("w1", removed("A", "AB", "ABC", group_idx=1))
    assert [story.depths("ABCDE"[:end]) for end in (5, 4)] == [{"w1": 5}, {}]
    masked = stored("ABCDE", block_hashes=[h("ABC"), h("ABCDE")], **state)
    assert story.say("w1", masked).stored == 2
    assert story.depths("ABCDEF") == {"w1": 5}
    story.say("w1", removed("ABCDE", group_idx=2))
    assert story.depths("ABCDEF") == {}
    story.say("w1", stored("BC", "A", **window))
    assert story.depths("ABCDEF") == {"w1": 3}
    assert story.held("w1") == 5


def test_two_clears_of_vllm_are_two_pools(story: Story) -> None:
    story.model.register("w1")
    everywhere = [stored("A", medium=each) for each in ("GPU", "CPU", "SSD", "REMOTE")]
    clear = AllBlocksCleared()
    story.say("w1", *everywhere, clear)
    assert story.held("w1") == 2
    story.say("w1", *everywhere, clear, clear)
    assert story.held("w1") == 1
    story.model.register("w1", clears=("disk",))
    story.say("w1", *everywhere, clear, clear)
    assert story.held("w1") == 3


def test_strict_raises_before_anything_is_applied(story: Story) -> None:
    with pytest.raises(FaultyEventError) as raised:
        story.say("w1", stored("A"), stored("BC", "A", block_hashes=[7]), strict=True)
    assert raised.value.event == 1
    assert len(story.model) == 0


def test_media_and_adapters_that_nobody_knows_are_counted(story: Story) -> None:
    tape = replace(stored("AB"), medium="TAPE")
    assert story.say("w1", tape).reasons == {"medium": 2}
    numbered = replace(stored("AB"), lora_id=3)
    assert story.say("w1", numbered).reasons == {"lora_id": 2}
    story.model.register("w1", media={"tape": "disk"}, lora_ids={3: "x"})
    story.say("w1", tape, numbered)
    (row,) = story.model.match(toks("AB"), lora_name="x")
    assert row.device == 2
    assert story.say("w1", removed("A", medium="VHS")).removed == 1
    assert story.held("w1") == 2


def test_candidates_get_a_row_each_and_the_best_rank() -> None:
    story = Story(weights={"host": 0.5})
    story.say("w1", stored("ABC", medium="CPU"))
    story.say("w1@1", stored("AB"))
    rows = story.model.match(toks("ABC"), workers=["w1", "nobody", ("w1", 0)])
    assert [row.dp_rank for row in rows] == [1, 0, 0]
    assert [row.score for row in rows] == [2.0, 0.0, 1.5]


def test_names_match_without_tokens(story: Story) -> None:
    story.say("w1", stored("ABC"), removed("AB"), stored("B", "A", medium="CPU"))
    (row,) = story.model.match_names([h("A"), h("AB"), h("ABC"), h("X")])
    assert (row.depth, row.device, row.host) == (3, 2, 1)


def test_only_registered_workers_count_where_asked() -> None:
    story = Story(registered_only=True)
    assert story.say("w1", stored("A")).reasons == {"unregistered": 1}
    story.model.register("w1", profile="auto")
    assert story.say("w1", stored("A")).stored == 1
    assert story.model.reset("w1") is True
    assert story.model.remove_worker("w1") is True
    assert story.model.remove_worker("w1") is False

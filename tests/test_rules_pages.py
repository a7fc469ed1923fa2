"""Pages smaller than the block: rule 11, and case K16."""

import pytest

import kvindex
from tests import wire
from tests.helpers import HEX, depths, raw

A, B = HEX["a"], HEX["b"]
PAGE = 4
BLOCK = 16  # four pages
TEXT = list(range(100, 100 + 3 * BLOCK))


@pytest.fixture
def index() -> kvindex.Indexer:
    """Return an index whose blocks are four pages of its workers."""
    return kvindex.Indexer(block_size=BLOCK)


def store(
    index: kvindex.Indexer,
    first: int,
    names: list[int],
    *,
    who: str = "w1",
    parent: int | None = None,
    size: int = PAGE,
    medium: str | None = "GPU",
    **more: object,
) -> kvindex.ApplyReport:
    """Store pages of the text, from page `first` on."""
    start = first * PAGE
    text = TEXT[start : start + size * len(names)]
    event = kvindex.BlockStored(
        names,
        text,
        parent,
        block_size=size,
        medium=medium,
        **more,  # type: ignore[arg-type]
    )
    return index.apply([event], worker=who)


def remove(
    index: kvindex.Indexer, *names: int, who: str = "w1", medium: str = "GPU"
) -> kvindex.ApplyReport:
    """Remove pages by name."""
    return index.apply([kvindex.BlockRemoved(list(names), medium)], worker=who)


def place(
    index: kvindex.Indexer, *names: int, medium: str = "CPU", size: int | None = 0
) -> kvindex.ApplyReport:
    """Put known pages on a tier by name."""
    event = kvindex.BlockStored(list(names), [], block_size=size, medium=medium)
    return index.apply([event], worker="w1")


def depth(index: kvindex.Indexer, blocks: int = 3, **options: object) -> int:
    """Return how many blocks of the text w1 holds."""
    return depths(index, TEXT[: blocks * BLOCK], **options).get("w1", 0)


@pytest.mark.parametrize("keys", [None, [[[A, 3]]]])
def test_k16_a_block_is_held_when_all_its_pages_are(keys: object) -> None:
    index = kvindex.Indexer(block_size=64)
    text = list(range(128))
    mm = [(A, 3, 1)] if keys else None
    seen = []

    def told(event: object) -> kvindex.ApplyReport:
        report = raw(index, event)
        seen.append(depths(index, text, mm=mm).get("w1", 0))
        return report

    more = {"extra_keys": keys} if keys else {}
    told(wire.stored_map([1], text[:16], None, 16, **more))
    told(wire.stored_map([2, 3, 4], text[16:64], 1, 16))
    told(wire.stored_map([5], text[64:], 4, 64))
    assert told(wire.removed_map([3])).reasons == {}
    assert seen == [0, 1, 2, 0]
    told(wire.stored_map([3], text[32:48], 2, 16))
    assert seen[-1] == 2
    (row,) = index.workers()
    assert row.device == 2
    if keys:
        assert depths(index, text) == {}


def test_blocks_without_all_pages_are_not_held(index: kvindex.Indexer) -> None:
    assert store(index, 0, [1, 2, 3]).stored == 3
    assert (len(index), depth(index)) == (0, 0)
    assert index.workers()[0].device == 0
    store(index, 3, [4], parent=3)
    assert (len(index), depth(index)) == (1, 1)


def test_pages_go_on_in_the_next_block(index: kvindex.Indexer) -> None:
    store(index, 0, list(range(1, 13)))
    assert depth(index) == 3
    remove(index, 6)
    assert [depth(index, blocks) for blocks in (1, 2, 3)] == [1, 1, 1]
    assert index.workers()[0].device == 2
    store(index, 5, [6], parent=5)
    assert depth(index) == 3


def test_a_whole_block_lies_below_pages(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2, 3, 4])
    store(index, 4, [5], parent=4, size=BLOCK)
    store(index, 8, [6, 7, 8, 9], parent=5)
    assert depth(index) == 3


def test_the_pages_of_a_block_lie_on_one_tier(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2], medium="GPU")
    store(index, 2, [3, 4], parent=2, medium="CPU")
    assert depth(index) == 0
    store(index, 0, [1, 2], medium="CPU")
    (row,) = index.match(TEXT)
    assert (row.device, row.host) == (0, 1)


def test_the_pages_of_a_block_are_one_holders(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2], who="w1")
    store(index, 2, [3, 4], who="w2", parent=2)
    assert len(index) == 0
    store(index, 0, [1, 2], who="w2")
    assert depths(index, TEXT) == {"w2": 1}


def test_copies_of_pages_are_counted(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2, 3, 4])
    store(index, 1, [2], parent=1)
    assert remove(index, 2).removed == 1
    assert depth(index) == 1
    assert remove(index, 2).removed == 1
    assert depth(index) == 0
    assert remove(index, 2).reasons == {"unknown_block": 1}


def test_pages_are_sets_where_copies_are_not_counted(index: kvindex.Indexer) -> None:
    for _ in range(2):
        store(index, 0, [1, 2, 3, 4], medium="DISK")
    remove(index, 1, medium="DISK")
    assert depth(index) == 0


def test_blocks_and_pages_are_held_beside_each_other(index: kvindex.Indexer) -> None:
    store(index, 0, [9], size=BLOCK)
    store(index, 0, [1, 2, 3, 4])
    assert index.workers()[0].device == 1
    remove(index, 1)
    assert depth(index) == 1
    store(index, 0, [1])
    remove(index, 9)
    assert depth(index) == 1
    remove(index, 3)
    assert (depth(index), len(index)) == (0, 0)


def test_a_page_that_nobody_holds_is_no_parent(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2])
    remove(index, 2)
    assert store(index, 2, [3], parent=2).reasons == {"orphan": 1}
    report = store(index, 1, [2], parent=1)
    assert (report.stored, report.attached) == (1, 1)
    store(index, 3, [4], parent=3)
    assert depth(index) == 1


def test_a_page_is_a_parent_while_its_block_is_not_held(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2, 3, 4])
    remove(index, 1)
    store(index, 4, [5, 6, 7, 8], parent=4)
    assert index.workers()[0].device == 1
    store(index, 0, [1])
    assert depth(index) == 2


def test_pages_wait_for_their_parent(index: kvindex.Indexer) -> None:
    assert store(index, 1, [2, 3, 4], parent=1).reasons == {"orphan": 3}
    assert index.workers()[0].orphans == 3
    assert remove(index, 3).removed == 1
    assert store(index, 0, [1]).attached == 2
    assert depth(index) == 0
    store(index, 2, [3], parent=2)
    assert depth(index) == 1


def test_no_whole_block_begins_inside_of_one(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2])
    report = store(index, 2, [5], parent=2, size=BLOCK)
    assert (report.stored, report.reasons) == (0, {"block_size": 1})
    assert len(index) == 0


def test_pages_of_other_sizes_fill_a_block_up(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2])
    assert store(index, 2, [3], parent=2, size=2 * PAGE).stored == 1
    assert depth(index) == 1
    store(index, 4, [4], parent=3)
    report = store(index, 5, [5, 6], parent=4, size=2 * PAGE)
    assert (report.stored, report.reasons) == (1, {"block_size": 1})


def test_a_clear_takes_pages(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2, 3, 4])
    store(index, 4, [5, 6], parent=4)
    index.apply([kvindex.AllBlocksCleared()], worker="w1")
    assert (depth(index), len(index)) == (0, 0)
    assert remove(index, 5).reasons == {"unknown_block": 1}
    store(index, 0, [1, 2, 3, 4])
    assert depth(index) == 1


def test_a_worker_that_holds_pages_alone_is_there(index: kvindex.Indexer) -> None:
    store(index, 0, [1])
    assert index.reset("w1")
    store(index, 0, [1])
    assert index.remove_worker("w1")
    assert not index.remove_worker("w1")
    assert store(index, 1, [2], parent=1).reasons == {"orphan": 1}


def test_placeholders_name_pages(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2, 3, 4])
    assert place(index, 1, 2, 3).stored == 3
    remove(index, 1, 2, 3, 4)
    assert depth(index) == 0
    store(index, 3, [4], parent=3)
    assert place(index, 4, size=PAGE).stored == 1
    (row,) = index.match(TEXT)
    assert (row.device, row.host) == (0, 1)
    remove(index, 2, medium="CPU")
    assert depth(index) == 0


def test_a_placeholder_of_a_chunk_names_the_page_at_its_end(
    index: kvindex.Indexer,
) -> None:
    index.register("w1", chunk_tokens={"host": 2 * BLOCK})
    store(index, 0, [1, 2, 3, 4, 5, 6, 7, 8])
    assert place(index, 8).stored == 1
    assert place(index, 7).reasons == {"block_size": 1}
    remove(index, 1, 2, 3, 4, 5, 6, 7, 8)
    assert [depth(index, blocks) for blocks in (1, 2, 3)] == [0, 2, 2]


def test_pages_on_a_chunked_tier_count_by_whole_chunks(index: kvindex.Indexer) -> None:
    index.register("w1", chunk_tokens={"host": 2 * BLOCK})
    store(index, 0, [1, 2, 3, 4, 5, 6, 7], medium="CPU")
    assert depth(index) == 0
    store(index, 7, [8], parent=7, medium="CPU")
    assert [depth(index, blocks) for blocks in (1, 2)] == [0, 2]


def test_known_pages_keep_their_salt_on_other_tiers(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2, 3, 4], cache_salt="s")
    store(index, 0, [1, 2, 3, 4], medium="CPU")
    remove(index, 1, 2, 3, 4)
    assert (depth(index), depth(index, cache_salt="s")) == (0, 1)


def test_pages_inherit_the_namespace_of_the_first(index: kvindex.Indexer) -> None:
    store(index, 0, [1], extra_keys=[["s"]])
    store(index, 1, [2, 3, 4, 5, 6, 7, 8], parent=1)
    assert (depth(index), depth(index, cache_salt="s")) == (0, 2)


def test_no_block_lies_in_two_namespaces(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2], cache_salt="s")
    report = store(index, 2, [3, 4], parent=2, cache_salt="t")
    assert (report.stored, report.reasons) == (0, {"ambiguous": 2})
    store(index, 2, [3, 4], parent=2)
    assert depth(index, cache_salt="s") == 1


def test_an_image_over_several_pages_is_one(index: kvindex.Indexer) -> None:
    keys = [[[A, 2]], [[A, -2]], [[B, 0], [B, 3]], None]
    store(index, 0, [1, 2, 3, 4], extra_keys=keys)
    images = [(A, 2, 4), (B, 8, 1), (B, 11, 1)]
    assert depth(index, 1, mm=images) == 1
    assert depth(index, 1, mm=images[:2]) == 0
    assert depth(index, 1, mm=[(A, 2, 1), *images]) == 0


def test_an_image_without_an_offset_goes_on_in_the_next_page(
    index: kvindex.Indexer,
) -> None:
    keys = [[b"clip"], [b"clip", b"clip"], [b"clip"], None]
    store(index, 0, [1, 2, 3, 4], extra_keys=keys)
    assert depth(index, 1, mm=[("clip", 0, 5), ("clip", 6, 4)]) == 1
    assert depth(index, 1, mm=[("clip", 0, 10)]) == 0


def test_pairs_come_in_pages(index: kvindex.Indexer) -> None:
    pairs = [[one, one + 1] for one in TEXT[:BLOCK]]
    event = kvindex.BlockStored([1, 2, 3, 4], pairs, block_size=PAGE)
    index.apply([event], worker="w1")
    assert depths(index, TEXT[: BLOCK + 1]) == {"w1": 1}
    assert depths(index, TEXT[:BLOCK]) == {}


def test_names_of_pages_are_matched(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2, 3])
    store(index, 0, [7], who="w2", size=BLOCK)
    (row,) = index.match_names([1, 2, 3, 4])
    assert (row.worker, row.depth, row.device) == ("w1", 3, 3)


def test_anyones_page_is_a_parent_unless_names_are_own(index: kvindex.Indexer) -> None:
    store(index, 0, [1, 2], who="w2")
    assert store(index, 2, [3], parent=2).stored == 1
    index.register("w3", names="own")
    assert store(index, 2, [3], who="w3", parent=2).reasons == {"orphan": 1}


def test_ones_own_page_is_meant_before_others_blocks(index: kvindex.Indexer) -> None:
    other = kvindex.BlockStored([2], TEXT[BLOCK : 2 * BLOCK], block_size=BLOCK)
    index.apply([other], worker="w2")
    store(index, 0, [1, 2])
    store(index, 2, [3, 4], parent=2)
    assert depth(index) == 1


def test_pages_leave_nothing_behind(index: kvindex.Indexer) -> None:
    for _ in range(3):
        store(index, 0, list(range(1, 13)))
        place(index, *range(1, 13))
        remove(index, *range(1, 13))
        remove(index, *range(12, 0, -1), medium="CPU")
        stats = index.stats()
        assert (len(index), stats["runs"], stats["names"]) == (0, 0, 0)


def test_blocks_of_pages_have_no_name_that_others_could_share(
    index: kvindex.Indexer,
) -> None:
    store(index, 0, [1, 2, 3, 4])
    index.apply([kvindex.BlockStored([9], TEXT[:BLOCK])], worker="w2")
    assert index.stats()["findings"] == {}
    assert index.explain(TEXT, worker="w1")["findings"] == []
    assert index.diagnose() == []


def test_a_reset_tells_of_pages_of_another_cache_group() -> None:
    index = kvindex.Indexer(block_size=BLOCK, group_rules=True)
    page = kvindex.BlockStored(
        [1],
        TEXT[:PAGE],
        block_size=PAGE,
        group_idx=1,
        kv_cache_spec_kind="sliding_window",
    )
    index.apply([page], worker="w1")
    assert index.reset("w1")
    assert not index.reset("w1")


def test_pools_hold_pages(index: kvindex.Indexer) -> None:
    index.register_pool("p")
    event = kvindex.BlockStored([1, 2, 3, 4], TEXT[:BLOCK], block_size=PAGE)
    index.apply([event], pool="p")
    assert index.match(TEXT).pools == {"p": 1}


def test_random_pages_agree_with_whole_blocks() -> None:
    text = list(range(64))
    coarse, fine = kvindex.Indexer(block_size=8), kvindex.Indexer(block_size=8)
    whole = kvindex.BlockStored(list(range(8)), text, block_size=8)
    pages = kvindex.BlockStored(list(range(64)), text, block_size=1)
    coarse.apply([whole], worker="w1")
    fine.apply([pages], worker="w1")
    for index, gone in ((coarse, 5), (fine, 43)):
        index.apply([kvindex.BlockRemoved([gone])], worker="w1")
    assert coarse.match(text).to_dict() == fine.match(text).to_dict()
    assert coarse.workers() == fine.workers()

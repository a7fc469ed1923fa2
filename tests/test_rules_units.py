"""Chunks and blocks of other sizes: rules 9 and 10."""

import pytest

import kvindex
from tests import wire
from tests.helpers import BLOCK, HEX, Scene, depths, name, names, raw, split, tokens

X, Y, Z = names("x", "y", "z")
A = HEX["a"]


def unit(
    scene: Scene, who: str, letters: str, after: str = "", **more: object
) -> kvindex.ApplyReport:
    """Store letters as one block on the host, named like the last of them."""
    more.setdefault("tier", "cpu")
    more.setdefault("names", [name("u" + after + letters)])
    return scene.S(who, letters, after, block_size=BLOCK * len(letters), **more)


# Rule 10: units.


def test_a_unit_is_credited_only_where_the_query_covers_it(scene: Scene) -> None:
    report = unit(scene, "w1", "ABCD")
    assert report.stored == 1
    for path in ("A", "AB", "ABC"):
        assert scene.depths(path) == {}
        assert scene.depths([*tokens(path), 1, 2, 3]) == {}
    assert split(scene.rows("ABCD")["w1"]) == (0, 4, 0, 0)
    assert split(scene.rows("ABCDE")["w1"]) == (0, 4, 0, 0)
    assert scene.depths("ABCX") == {}


def test_plain_claims_stand_beside_a_unit(scene: Scene) -> None:
    unit(scene, "w1", "ABCD")
    scene.S("w1", "A")
    assert [scene.depths(path) for path in ("A", "ABC", "ABCD")] == [
        {"w1": 1},
        {"w1": 1},
        {"w1": 4},
    ]
    assert split(scene.rows("ABCD")["w1"]) == (1, 3, 0, 0)


def test_the_name_of_a_unit_removes_all_of_it(scene: Scene) -> None:
    unit(scene, "w1", "ABCD")
    scene.S("w1", "A")
    report = scene.R("w1", "uABCD", tier="cpu")
    assert (report.removed, report.reasons) == (1, {})
    assert scene.depths("ABCD") == {"w1": 1}
    assert scene.held("w1") == 1


def test_a_blocks_own_name_takes_only_its_own_claim(scene: Scene) -> None:
    unit(scene, "w1", "ABCD")
    scene.S("w1", "ABCD", tier="cpu")
    scene.R("w1", "ABC", tier="cpu")
    assert scene.depths("ABCD") == {"w1": 4}
    assert scene.depths("ABC") == {"w1": 2}
    scene.R("w1", "uABCD", tier="cpu")
    assert scene.depths("ABCD") == {"w1": 2}


def test_as_a_parent_a_unit_means_its_last_block(scene: Scene) -> None:
    unit(scene, "w1", "AB")
    scene.S("w1", "C", names=[X], parent=name("uAB"))
    assert scene.depths("ABC") == {"w1": 3}
    unit(scene, "w1", "DE", names=[Y], parent=X)
    assert scene.depths("ABCDE") == {"w1": 5}
    assert scene.depths("ABCD") == {"w1": 3}


def test_a_unit_starts_anywhere(scene: Scene) -> None:
    scene.S("w1", "A")
    unit(scene, "w1", "BC", "A")
    assert scene.depths("AB") == {"w1": 1}
    assert scene.depths("ABC") == {"w1": 3}


def test_units_may_overlap(scene: Scene) -> None:
    unit(scene, "w1", "AB")
    unit(scene, "w1", "ABCD")
    scene.S("w1", "A", tier="disk")
    unit(scene, "w1", "BC", "A")
    assert [scene.depths(path)["w1"] for path in ("A", "AB", "ABC", "ABCD")] == [
        1,
        2,
        3,
        4,
    ]
    scene.R("w1", "uABCD", tier="cpu")
    assert scene.depths("ABCD") == {"w1": 3}
    scene.R("w1", "uAB", tier="cpu")
    assert scene.depths("ABC") == {"w1": 3}
    assert scene.depths("AB") == {"w1": 1}


def test_a_unit_may_begin_in_the_trunk_of_branches(scene: Scene) -> None:
    scene.S("w2", "ABCD")
    unit(scene, "w1", "ABXY")
    assert scene.depths("ABXY") == {"w1": 4, "w2": 2}
    for path in ("AB", "ABX", "ABC"):
        assert scene.depths(path) == {"w2": min(len(path), 2 + path.count("C"))}
    assert scene.depths("ABCD") == {"w2": 4}


def test_several_units_come_in_one_event(scene: Scene) -> None:
    event = scene.stored(
        "ABCD", names=[X, Y], block_size=2 * BLOCK, medium="CPU", tier="cpu"
    )
    assert scene.apply("w1", [event]).stored == 2
    assert scene.depths("ABC") == {"w1": 2}
    assert scene.depths("ABCD") == {"w1": 4}
    scene.R("w1", X, tier="cpu")
    assert scene.depths("ABCD") == {}
    assert scene.held("w1") == 2


def test_units_are_counted_on_counting_tiers(scene: Scene) -> None:
    for _ in range(2):
        unit(scene, "w1", "AB")
    assert scene.held("w1") == 2
    assert scene.R("w1", "uAB", tier="cpu").removed == 1
    assert scene.depths("AB") == {"w1": 2}
    assert scene.R("w1", "uAB", tier="cpu").removed == 1
    assert scene.depths("AB") == {}


def test_units_are_sets_on_other_tiers(scene: Scene) -> None:
    for _ in range(2):
        unit(scene, "w1", "AB", tier="disk")
    scene.R("w1", "uAB", tier="disk")
    assert scene.depths("AB") == {}


def test_a_unit_on_the_device_works_alike(scene: Scene) -> None:
    unit(scene, "w1", "AB", tier="gpu")
    assert scene.depths("A") == {}
    assert split(scene.rows("AB")["w1"]) == (2, 0, 0, 0)


def test_a_clear_takes_units(scene: Scene) -> None:
    unit(scene, "w1", "AB")
    unit(scene, "w2", "AB")
    scene.C("w1")
    assert scene.depths("AB") == {"w2": 2}
    assert scene.held("w1") == 0


def test_a_unit_keeps_names_of_its_blocks_alive(scene: Scene) -> None:
    scene.S("w1", "AB")
    unit(scene, "w1", "AB")
    scene.R("w1", "A", "AB")
    scene.S("w1", "C", "AB")
    assert scene.depths("ABC") == {"w1": 3}


def test_the_tail_of_a_unit_event_may_be_partial(scene: Scene) -> None:
    event = scene.stored(
        "ABC", names=[X, Y], block_size=2 * BLOCK, tier="cpu", token_ids=tokens("ABC")
    )
    report = scene.apply("w1", [event])
    assert (report.stored, report.reasons) == (1, {"partial": 1})
    assert scene.depths("ABC") == {"w1": 2}


@pytest.mark.parametrize("block_size", [3, 6, 10])
def test_a_size_that_does_not_fit_is_dropped(scene: Scene, block_size: int) -> None:
    event = scene.stored(
        "A", names=[X, Y], block_size=block_size, token_ids=range(2 * block_size)
    )
    report = scene.apply("w1", [event])
    assert (report.stored, report.ignored) == (0, 2)
    assert report.reasons == {"block_size": 2}
    assert scene.held("w1") == 0


def test_a_size_of_none_is_the_indexs(scene: Scene) -> None:
    scene.S("w1", "AB", block_size=None)
    assert scene.depths("AB") == {"w1": 2}


def test_a_waiting_unit_is_attached_whole(scene: Scene) -> None:
    report = unit(scene, "w1", "BC", "A")
    assert (report.stored, report.reasons) == (0, {"orphan": 1})
    report = scene.S("w1", "A")
    assert report.attached == 1
    assert scene.depths("AB") == {"w1": 1}
    assert scene.depths("ABC") == {"w1": 3}


def test_known_names_of_units_are_units(scene: Scene) -> None:
    scene.S("w1", "AB", salt="s")
    unit(scene, "w1", "AB", names=[name("AB")])
    scene.R("w1", "A", "AB")
    assert scene.depths("AB", cache_salt="s") == {"w1": 2}
    assert scene.depths("A", cache_salt="s") == {}
    assert scene.depths("AB") == {}


# K15: one retrievable unit of 64 tokens over an index of 16.


@pytest.mark.parametrize("with_device", [False, True])
def test_k15_a_unit_is_not_split_into_finer_credits(with_device: bool) -> None:  # noqa: FBT001
    index = kvindex.Indexer(block_size=16)
    text = list(range(64))
    raw(index, wire.stored_map([X], text, None, 64, medium="CPU"))
    if with_device:
        raw(index, wire.stored_map([Y], text[:16], None, 16))
    found = [depths(index, text[:length]).get("w1", 0) for length in (16, 48, 64)]
    assert found == ([1, 1, 4] if with_device else [0, 0, 4])
    assert raw(index, wire.removed_map([X], "CPU")).removed == 1
    assert depths(index, text) == ({"w1": 1} if with_device else {})


def test_k15_finer_hashes_of_one_chunk_count_by_themselves() -> None:
    index = kvindex.Indexer(block_size=16)
    text = list(range(64))
    raw(index, wire.stored_map([1, 2, 3, 4], text, None, 16, medium="CPU"))
    assert depths(index, text[:48]) == {"w1": 3}


def test_k15_a_chunk_size_in_the_profile_makes_them_one() -> None:
    index = kvindex.Indexer(block_size=16)
    index.register("w1", chunk_tokens={"host": 64})
    text = list(range(64))
    raw(index, wire.stored_map([1, 2, 3, 4], text, None, 16, medium="CPU"))
    assert depths(index, text[:48]) == {}
    assert depths(index, text) == {"w1": 4}


@pytest.mark.parametrize("by_name", [False, True])
def test_k15_a_device_block_stays_usable_in_front_of_a_chunk(by_name: bool) -> None:  # noqa: FBT001
    index = kvindex.Indexer(block_size=16)
    index.register("w1", chunk_tokens={"host": 64})
    text = list(range(64))
    raw(index, wire.stored_map([1, 2, 3, 4], text, None, 16))
    if by_name:
        raw(index, wire.stored_map([4], [], None, 0, medium="CPU"))
    else:
        raw(index, wire.stored_map([1, 2, 3, 4], text, None, 16, medium="CPU"))
    raw(index, wire.removed_map([2, 3, 4], "GPU"))
    found = [depths(index, text[:length]).get("w1", 0) for length in (16, 48, 63, 64)]
    assert found == [1, 1, 1, 4]
    removed = [4] if by_name else [2]
    assert raw(index, wire.removed_map(removed, "CPU")).removed == 1
    assert depths(index, text) == {"w1": 1}


# Images of units.


@pytest.mark.parametrize(
    ("offset", "first"), [(0, 0), (-5, 0), (3, 0), (4, 4), (7, 4), (8, 8), (11, 8)]
)
def test_an_image_of_a_unit_belongs_to_its_blocks_from_its_offset_on(
    scene: Scene, offset: int, first: int
) -> None:
    unit(scene, "w1", "ABC", extra_keys=[[[A, offset]]])
    assert scene.depths("ABC", mm=[(A, first, 12 - first)]) == {"w1": 3}
    assert scene.depths("ABC") == {}


# Rule 9: chunks that the profile knows of.


@pytest.fixture
def chunked(form: str) -> Scene:
    """Return a scene whose w1 offloads to the host in chunks of two blocks."""
    scene = Scene(form)
    scene.index.register("w1", chunk_tokens={"host": 2 * BLOCK})
    return scene


def test_a_placeholder_stands_for_the_chunk_that_ends_there(chunked: Scene) -> None:
    chunked.S("w1", "ABCD")
    assert chunked.P("w1", "AB").stored == 1
    chunked.R("w1", "A", "AB", "ABC", "ABCD")
    assert chunked.depths("A") == {}
    assert [chunked.depths(path) for path in ("AB", "ABC", "ABCD")] == [{"w1": 2}] * 3
    assert chunked.rows("ABCD")["w1"].host == 2


def test_a_placeholder_is_removed_whole(chunked: Scene) -> None:
    chunked.S("w1", "ABCD")
    chunked.P("w1", "AB", "ABCD")
    chunked.R("w1", "A", "AB", "ABC", "ABCD")
    assert chunked.depths("ABCD") == {"w1": 4}
    assert chunked.R("w1", "AB", tier="cpu").removed == 1
    assert chunked.depths("ABCD") == {}
    assert chunked.held("w1") == 2


def test_fine_hashes_count_by_whole_chunks(chunked: Scene) -> None:
    chunked.S("w1", "A", tier="cpu")
    assert chunked.depths("AB") == {}
    chunked.S("w1", "BC", "A", tier="cpu")
    assert chunked.depths("A") == {}
    assert chunked.depths("AB") == {"w1": 2}
    assert chunked.depths("ABCD") == {"w1": 2}
    chunked.S("w1", "D", "ABC", tier="cpu")
    assert chunked.depths("ABC") == {"w1": 2}
    assert chunked.depths("ABCD") == {"w1": 4}


def test_chunks_begin_at_multiples_of_their_size(chunked: Scene) -> None:
    chunked.S("w1", "A")
    chunked.S("w1", "BC", "A", tier="cpu")
    assert split(chunked.rows("ABCD")["w1"]) == (1, 0, 0, 0)
    chunked.S("w1", "D", "ABC", tier="cpu")
    chunked.S("w1", "B", "A")
    assert split(chunked.rows("ABCD")["w1"]) == (2, 2, 0, 0)


def test_a_fine_hash_completes_the_chunk_of_a_placeholder(chunked: Scene) -> None:
    chunked.S("w1", "ABCD")
    chunked.P("w1", "ABC")
    chunked.R("w1", "A", "AB", "ABC", "ABCD")
    assert chunked.depths("ABCD") == {}
    chunked.S("w1", "A", tier="cpu")
    assert chunked.depths("ABCD") == {"w1": 2}
    chunked.S("w1", "D", names=[X], parent=name("ABC"), tier="cpu")
    assert chunked.depths("ABCD") == {"w1": 4}


def test_a_chunk_is_cut_at_the_root(chunked: Scene) -> None:
    chunked.S("w1", "ABC")
    chunked.P("w1", "A")
    chunked.S("w1", "B", "A", tier="cpu")
    chunked.R("w1", "A", "AB", "ABC")
    assert chunked.depths("AB") == {"w1": 2}
    assert chunked.held("w1") == 2


def test_other_tiers_are_not_chunked(chunked: Scene) -> None:
    chunked.S("w1", "AB")
    chunked.P("w1", "AB")
    assert chunked.depths("A") == {"w1": 1}
    assert split(chunked.rows("AB")["w1"]) == (2, 0, 0, 0)
    chunked.R("w1", "AB")
    assert chunked.depths("A") == {"w1": 1}
    assert split(chunked.rows("AB")["w1"]) == (1, 1, 0, 0)
    chunked.P("w1", "A", tier="disk")
    chunked.R("w1", "A")
    assert split(chunked.rows("AB")["w1"]) == (0, 2, 0, 0)
    assert split(chunked.rows("A")["w1"]) == (0, 0, 1, 0)


def test_other_workers_are_not_chunked(chunked: Scene) -> None:
    for who in ("w1", "w2"):
        chunked.S(who, "A", tier="cpu")
    assert chunked.depths("AB") == {"w2": 1}


def test_a_chunk_may_begin_in_the_trunk_of_branches(chunked: Scene) -> None:
    chunked.index.register("w1", chunk_tokens={"host": 4 * BLOCK})
    chunked.S("w2", "ABCD")
    chunked.S("w1", "AB")
    chunked.S("w1", "XY", "AB")
    chunked.P("w1", "ABXY")
    chunked.R("w1", "A", "AB", "ABX", "ABXY")
    assert chunked.depths("ABXY") == {"w1": 4, "w2": 2}
    assert chunked.depths("ABCD") == {"w2": 4}


def test_a_chunk_begins_in_a_block_that_nobody_held_for_a_while(
    chunked: Scene,
) -> None:
    chunked.S("w2", "AB")
    chunked.S("w1", "X", "A")
    chunked.R("w2", "A", "AB")
    chunked.S("w2", "CD")
    assert len(chunked.index) == 3
    chunked.P("w1", "AX")
    assert len(chunked.index) == 4
    assert chunked.depths("AX") == {"w1": 2}
    chunked.R("w1", "AX")
    chunked.R("w1", "AX", tier="cpu")
    assert len(chunked.index) == 2
    assert chunked.depths("CD") == {"w2": 2}


def test_an_events_own_size_makes_a_unit_of_a_placeholder(scene: Scene) -> None:
    scene.S("w1", "ABC")
    assert scene.P("w1", "AB", "A", block_size=2 * BLOCK).stored == 2
    scene.R("w1", "A", "AB", "ABC")
    assert scene.depths("A") == {"w1": 1}
    assert scene.depths("AB") == {"w1": 2}
    scene.R("w1", "A", tier="cpu")
    assert scene.depths("A") == {}
    assert scene.depths("AB") == {"w1": 2}
    scene.R("w1", "AB", tier="cpu")
    assert scene.depths("AB") == {}


def test_each_source_whose_blocks_do_not_fit_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    event = kvindex.BlockStored([1], list(range(BLOCK + 1)), block_size=BLOCK + 1)
    for source in ("", "", "other", ""):
        report = index.apply([event], worker="w1", source=source)
        assert report.reasons == {"block_size": 1}
    assert [record.name for record in caplog.records] == ["kvindex", "kvindex"]
    assert "'w1'" in caplog.messages[0]
    assert "'other'" in caplog.messages[1]


def test_overlapping_units_across_a_fork_are_held_once(scene: Scene) -> None:
    scene.S("w0", "ABCDE", tier="cpu")
    unit(scene, "w1", "BCDX", "A")
    scene.S("w1", "ABCDEFGH")
    unit(scene, "w1", "ABCDEY")
    before = scene.index.workers()
    scene.S("w1", "ABCDE", tier="cpu")
    assert scene.index.workers() == before
    scene.R("w1", "A", "AB", "ABC", "ABCD", "ABCDE", tier="cpu")
    assert scene.index.workers() == before

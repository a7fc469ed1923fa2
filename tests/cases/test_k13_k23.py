"""Faults reported elsewhere, as inputs with expected answers: K13 to K23."""

import threading
from typing import Any

import numpy as np
import pytest

import kvindex
from tests import wire
from tests.helpers import Scene, name, raw, scores, split, tokens

# K13: a tier update without tokens, then the device evicts.


def test_k13_a_host_copy_outlives_the_device_copy(scene: Scene) -> None:
    scene.S("w1", "AB", medium="gpu")
    placed = scene.P("w1", "A", "AB", medium="CPU")
    assert (placed.stored, placed.reasons) == (2, {})
    scene.R("w1", "A", "AB", medium="GPU")
    assert scene.depths("AB") == {"w1": 2}
    assert scene.scores("AB") == {"w1": 1.5}
    scene.R("w1", "AB", medium="cpu")
    assert scene.depths("AB") == {"w1": 1}
    assert scene.scores("AB") == {"w1": 0.75}
    scene.R("w1", "A", medium="cpu")
    report = scene.P("w1", "A", medium="cpu")
    assert report.reasons == {"unresolved": 1}
    assert (report.stored, report.ignored) == (0, 1)
    assert scene.depths("AB") == {}


# K14: score and depth, tiers and weights.


def test_k14_each_block_counts_once_on_its_nearest_tier(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w1", "ABC", tier="cpu")
    row = scene.rows("ABC")["w1"]
    assert (row.depth, row.score) == (3, 2.75)
    assert split(row) == (2, 1, 0, 0)


def test_k14_depth_is_not_made_from_the_score(scene: Scene) -> None:
    scene.S("w1", "A", tier="disk")
    row = scene.rows("A")["w1"]
    assert (row.depth, row.score) == (1, 0.25)


def test_k14_a_tier_of_no_weight_counts_for_depth_only(form: str) -> None:
    by_query = Scene(form)
    by_query.S("w1", "A", tier="disk")
    row = by_query.rows("A", weights={"disk": 0})["w1"]
    assert (row.depth, row.score) == (1, 0.0)
    by_index = Scene(form, weights={"disk": 0})
    by_index.S("w1", "A", tier="disk")
    row = by_index.rows("A")["w1"]
    assert (row.depth, row.score) == (1, 0.0)


# K17: partial tails and short prompts.


def test_k17_a_partial_tail_is_dropped_and_its_removal_is_quiet(scene: Scene) -> None:
    report = scene.S(
        "w1", "A", names=[name("A"), name("t")], token_ids=[*tokens("A"), 1, 2]
    )
    assert report.reasons == {"partial": 1}
    assert (report.stored, report.ignored) == (1, 1)
    assert scene.R("w1", "t").reasons == {"unknown_block": 1}
    assert scene.depths([*tokens("A"), 1, 2]) == {"w1": 1}
    assert scene.depths([1, 2]) == {}
    assert scene.depths([]) == {}


# K18: hashes and tokens do not line up.


def test_k18_an_event_whose_tokens_do_not_fit_is_skipped(scene: Scene) -> None:
    scene.S("w1", "A")
    skipped = scene.S("w1", "BC", "A", names=[name("X")])
    waits = scene.S("w1", "D", names=[name("XD")], parent=name("X"))
    scene.S("w1", "E", "A")
    assert [scene.depths(path)["w1"] for path in ("AB", "AC", "ABC", "ABCD")] == [1] * 4
    assert scene.depths("AE") == {"w1": 2}
    assert skipped.reasons == {"tokens": 1}
    assert waits.reasons == {"orphan": 1}
    assert scene.held("w1") == 2
    report = scene.R("w1", "X")
    assert (report.removed, report.reasons) == (0, {"unknown_block": 1})


# K19: speculative decoding sends pairs.


@pytest.mark.parametrize("order", [("w1", "w2"), ("w2", "w1")])
def test_k19_pairs_and_tokens_live_in_one_index(
    scene: Scene, order: tuple[str, str]
) -> None:
    said = {"w1": wire.pairs([1, 2, 3, 4, 5]), "w2": [1, 2, 3, 4]}
    for worker in order:
        assert scene.S(worker, "A", token_ids=said[worker]).stored == 1
    assert scene.depths([1, 2, 3, 4, 5]) == {"w1": 1, "w2": 1}
    assert scene.depths([1, 2, 3, 4, 9]) == {"w2": 1}
    assert scene.depths([1, 2, 3, 4]) == {"w2": 1}


def test_k19_a_chain_of_pairs_needs_one_token_more(objects: Scene) -> None:
    text = list(range(1, 10))
    event = wire.stored_map([1, 2], wire.pairs(text), None, 4)
    raw(objects.index, event)
    assert objects.depths(text) == {"w1": 2}
    assert objects.depths(text[:8]) == {"w1": 1}
    assert objects.depths([*text[:8], 99]) == {"w1": 1}


def test_k19_the_mode_is_what_a_worker_sends_now(scene: Scene) -> None:
    text = list(range(1, 10))
    scene.S("w1", "AB", token_ids=wire.pairs(text))
    scene.S("w2", "AB", token_ids=text[:8])
    assert scene.depths(text) == {"w1": 2, "w2": 2}
    scene.C("w1")
    scene.S("w1", "A", token_ids=text[:4])
    assert scene.depths(text[:8]) == {"w1": 1, "w2": 2}
    scene.S("w1", "B", "A", token_ids=wire.pairs(text[4:]))
    # Behind single tokens a pair is of neither chain.
    assert scene.depths(text) == {"w1": 1, "w2": 2}


def test_k19_pairs_are_removed_and_put_on_other_tiers_by_name(scene: Scene) -> None:
    text = list(range(1, 10))
    scene.S("w1", "AB", token_ids=wire.pairs(text))
    assert scene.P("w1", "A").stored == 1
    scene.R("w1", "A")
    row = scene.rows(text)["w1"]
    assert (row.device, row.host) == (1, 1)
    scene.R("w1", "A", tier="cpu")
    assert scene.depths(text) == {}


# K20: kinds of hashes.


def test_k20_minus_one_is_the_largest_unsigned(scene: Scene) -> None:
    scene.S("w1", "A", names=[-1])
    assert scene.depths("A") == {"w1": 1}
    assert scene.R("w1", 18446744073709551615).removed == 1
    assert scene.depths("A") == {}


def test_k20_neighbours_above_two_to_the_53_differ(scene: Scene) -> None:
    scene.S("w2", "A", names=[9007199254740993])
    assert scene.R("w2", 9007199254740992).reasons == {"unknown_block": 1}
    assert scene.depths("A") == {"w2": 1}


@pytest.mark.parametrize(
    ("h1", "h2"),
    [
        (b"\x11" * 8 + b"\x22" * 24, b"\x11" * 8 + b"\x33" * 24),
        (b"\x22" * 24 + b"\x11" * 8, b"\x33" * 24 + b"\x11" * 8),
    ],
    ids=["equal first bytes", "equal last bytes"],
)
def test_k20_byte_strings_are_compared_whole(
    scene: Scene, h1: bytes, h2: bytes
) -> None:
    scene.S("w3", "A", names=[h1])
    scene.S("w3", "B", names=[h2])
    assert scene.R("w3", h1).removed == 1
    assert scene.depths("A") == {}
    assert scene.depths("B") == {"w3": 1}


# K21: a batch is lost.


@pytest.mark.parametrize("sender", ["w1", "pool:p"])
@pytest.mark.parametrize("again", [False, True])
def test_k21_a_gap_is_reported_and_keeps_the_state(
    scene: Scene,
    sender: str,
    again: bool,  # noqa: FBT001
) -> None:
    def depth(path: str) -> int:
        found = scene.index.match(tokens(path), workers=["w1"])
        return found[0].depth

    stored = scene.stored("B", "A") if again else scene.stored("C", "A")
    scene.apply(sender, [scene.stored("AB")], seq=1)
    report = scene.apply(sender, [stored], seq=3)
    assert (report.status, report.gap) == ("gap", (2, 2))
    assert depth("AB") == 2
    assert depth("AC") == (1 if again else 2)
    late = scene.apply(sender, [scene.removed("AB")], seq=2)
    assert (late.status, late.gap, late.removed) == ("duplicate", None, 0)
    assert depth("AB") == 2
    after = scene.apply(sender, [scene.removed("AB")], seq=4)
    assert (after.status, after.gap) == ("ok", None)
    assert depth("AB") == (2 if again else 1)


# K22: events in flight after a worker was removed.


def test_k22_late_events_of_a_removed_worker_leave_nothing(scene: Scene) -> None:
    first = scene.index.register("w1")
    scene.S("w1", "A", epoch=first)
    assert scene.index.remove_worker("w1") is True
    assert scene.index.workers() == []
    late = scene.S("w1", "AB", epoch=first)
    assert (late.stored, late.ignored, late.reasons) == (0, 2, {"epoch": 2})
    assert scene.depths("AB") == {}
    assert scene.held("w1") == 0
    second = scene.index.register("w1")
    assert second > first
    scene.S("w1", "B", epoch=second)
    late = scene.R("w1", "B", epoch=first)
    assert (late.removed, late.reasons) == (0, {"epoch": 1})
    assert scene.depths("B") == {"w1": 1}
    assert scene.depths("A") == {}


def test_k22_without_epochs_registered_only_keeps_ghosts_out(form: str) -> None:
    scene = Scene(form, registered_only=True)
    scene.index.register("w1")
    scene.S("w1", "A")
    scene.index.remove_worker("w1")
    assert scene.S("w1", "AB").reasons == {"unregistered": 2}
    assert scene.depths("AB") == {}
    assert scene.index.workers() == []


# K23: very deep chains.

DEEP = 200_000
STEP = 1_000


def deep_index(parts: int) -> tuple[kvindex.Indexer, memoryview]:
    """Return a chain of DEEP blocks of one token, stored in `parts` events."""
    index = kvindex.Indexer(block_size=1)
    text: Any = np.arange(DEEP, dtype=np.uint32)
    size = DEEP // parts
    ids = text.tolist()
    for start in range(0, DEEP, STEP * size):
        events = [
            wire.stored_map(
                [i + 1 for i in ids[at : at + size]], ids[at : at + size], at or None, 1
            )
            for at in range(start, min(start + STEP * size, DEEP), size)
        ]
        report = raw(index, *events)
        assert report.reasons == {}
    keys = kvindex.block_keys(text, block_size=1)
    return index, kvindex.chain_keys(keys)


@pytest.mark.parametrize("parts", [1, DEEP], ids=["one event", "an event a block"])
def test_k23_a_deep_chain_is_exact_at_every_step(parts: int) -> None:
    index, chain = deep_index(parts)
    assert list(index.match_chain(chain).depths) == [DEEP]
    assert scores(index, range(DEEP)) == {"w1": float(DEEP)}
    for depth in range(DEEP - STEP, -1, -STEP):
        leaves = range(depth + STEP, depth, -1)
        report = raw(index, *[wire.removed_map([leaf]) for leaf in leaves])
        assert report.removed == STEP
        if depth % (10 * STEP) == 0:
            assert sum(index.match_chain(chain).depths) == depth
    assert len(index) == 0


def test_k23_a_deep_chain_is_cut_at_any_point() -> None:
    index, chain = deep_index(1)
    for cut in (DEEP, DEEP // 2, 77_777, 2):
        assert raw(index, wire.removed_map([cut])).removed == 1
        assert list(index.match_chain(chain).depths) == [cut - 1]


def test_k23_a_deep_index_is_dropped_on_a_small_stack() -> None:
    boxes = [deep_index(1)[0]]
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=boxes.clear)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert boxes == []


def test_k23_a_deep_chain_of_waiting_stores_attaches_without_recursion() -> None:
    index = kvindex.Indexer(block_size=1, orphan_blocks=DEEP)
    for start in range(DEEP, 1, -STEP):
        events = [
            wire.stored_map([i], [i], i - 1, 1)
            for i in range(start, max(start - STEP, 1), -1)
        ]
        raw(index, *events)
    report = raw(index, wire.stored_map([1], [1], None, 1))
    assert (report.stored, report.attached) == (1, DEEP - 1)
    assert list(index.match(range(1, DEEP + 1)).depths) == [DEEP]

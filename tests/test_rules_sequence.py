"""Sequence numbers, epochs and counting: rules 13, 14 and 15."""

import json

import pytest

import kvindex
from kvindex import AllBlocksCleared
from tests import wire
from tests.helpers import BLOCK, Scene, depths, name, names, raw, state, tokens

X, Y, Z = names("x", "y", "z")


# Rule 13: the cursor.


def test_the_first_number_sets_the_cursor(scene: Scene) -> None:
    report = scene.S("w1", "A", seq=41)
    assert (report.status, report.gap) == ("ok", None)
    assert scene.S("w1", "B", "A", seq=42).status == "ok"
    assert state(scene.index, "w1").seq == 42


def test_without_a_number_nothing_is_checked(scene: Scene) -> None:
    for _ in range(2):
        report = scene.S("w1", "A")
        assert (report.status, report.gap, report.stored) == ("ok", None, 1)
    assert state(scene.index, "w1").seq is None


@pytest.mark.parametrize("seq", [0, 4, 5])
def test_an_older_or_equal_number_changes_nothing(scene: Scene, seq: int) -> None:
    scene.S("w1", "AB", seq=5)
    for batch in (
        [scene.stored("XYZ")],
        [scene.removed("A", "AB"), scene.stored("Q")],
        [AllBlocksCleared()],
    ):
        report = scene.apply("w1", batch, seq=seq)
        assert (report.status, report.gap) == ("duplicate", None)
        assert (report.stored, report.removed, report.cleared) == (0, 0, 0)
        assert set(report.reasons) <= {"duplicate"}
        assert report.ignored == report.reasons.get("duplicate", 0)
    assert scene.depths("AB") == {"w1": 2}
    assert scene.held("w1") == 2
    assert state(scene.index, "w1").seq == 5


def test_all_hashes_of_a_duplicate_are_counted(scene: Scene) -> None:
    scene.S("w1", "A", seq=5)
    batch = [scene.stored("BCD"), scene.removed("A", "X")]
    report = scene.apply("w1", batch, seq=5)
    assert report.reasons == {"duplicate": 5}
    assert report.ignored == 5


def test_a_jump_is_applied_and_reported_with_its_range(scene: Scene) -> None:
    scene.S("w1", "A", seq=1)
    report = scene.S("w1", "B", "A", seq=5)
    assert (report.status, report.gap, report.stored) == ("gap", (2, 4), 1)
    assert scene.depths("AB") == {"w1": 2}
    report = scene.S("w1", "C", "AB", seq=7)
    assert (report.status, report.gap) == ("gap", (6, 6))
    assert scene.S("w1", "D", "ABC", seq=8).status == "ok"


def test_a_late_batch_of_a_gap_is_a_duplicate(scene: Scene) -> None:
    scene.S("w1", "AB", seq=1)
    scene.S("w1", "C", "A", seq=3)
    assert scene.R("w1", "AB", seq=2).status == "duplicate"
    assert scene.depths("AB") == {"w1": 2}


def test_an_empty_batch_moves_the_cursor() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    for seq in (1, 2):
        assert index.apply([], worker="w1", seq=seq).status == "ok"
    assert index.apply(wire.batch([]), worker="w1", seq=3).status == "ok"
    assert index.apply([], worker="w1", seq=3).status == "duplicate"
    assert index.apply([], worker="w1", seq=5).gap == (4, 4)


def test_ranks_have_cursors_of_their_own(scene: Scene) -> None:
    for who in ("w1", "w1@1", "w2"):
        assert scene.S(who, "A", seq=7).status == "ok"
    assert scene.S("w1@1", "A", seq=7).status == "duplicate"
    assert scene.S("w1", "B", seq=8).status == "ok"


def test_sources_have_cursors_of_their_own(scene: Scene) -> None:
    assert scene.S("w1", "A", seq=7).status == "ok"
    assert scene.S("w1", "B", "A", seq=7, source="offload").status == "ok"
    assert scene.S("w1", "C", "AB", seq=7, source="offload").status == "duplicate"
    assert scene.S("w1", "C", "AB", seq=8).status == "ok"
    assert scene.depths("ABC") == {"w1": 3}


def test_epochs_have_cursors_of_their_own(scene: Scene) -> None:
    first = scene.index.register("w1")
    scene.S("w1", "A", seq=7, epoch=first)
    scene.index.remove_worker("w1")
    second = scene.index.register("w1")
    assert scene.S("w1", "A", seq=1, epoch=second).status == "ok"
    assert scene.S("w1", "B", "A", seq=2, epoch=second).status == "ok"


def test_duplicates_in_a_row_are_counted(scene: Scene) -> None:
    scene.S("w1", "A", seq=7)
    for count in (1, 2, 3):
        scene.S("w1", "A", seq=count)
        assert state(scene.index, "w1").duplicates == count
    scene.S("w1", "A", seq=8)
    assert state(scene.index, "w1").duplicates == 0


def test_explain_shows_duplicates_in_a_row(scene: Scene) -> None:
    scene.S("w1", "A", seq=7)
    for seq in range(3):
        scene.S("w1", "A", seq=seq)
    told = scene.index.explain(tokens("A"), worker="w1")
    assert told["duplicates"] == 3


def test_large_numbers_are_sequence_numbers(scene: Scene) -> None:
    assert scene.S("w1", "A", seq=2**63).status == "ok"
    assert scene.S("w1", "B", seq=2**63 + 1).status == "ok"
    assert scene.S("w1", "C", seq=2**63 + 3).gap == (2**63 + 2, 2**63 + 2)


# Rule 14: epochs.


def test_registering_again_gives_the_same_epoch(objects: Scene) -> None:
    index = objects.index
    epoch = index.register("w1")
    assert index.register("w1", profile="sglang") == epoch
    assert index.register("w2") != epoch


def test_epochs_grow(objects: Scene) -> None:
    epochs = []
    for _ in range(3):
        epochs += [objects.index.register("w1"), objects.index.register("w2")]
        objects.index.remove_worker("w1")
        objects.index.remove_worker("w2")
    assert epochs == sorted(set(epochs))


def test_events_of_an_older_epoch_are_ignored_and_counted(scene: Scene) -> None:
    old = scene.index.register("w1")
    scene.index.remove_worker("w1")
    new = scene.index.register("w1")
    scene.S("w1", "AB", epoch=new)
    batch = [scene.stored("CD"), scene.removed("A"), AllBlocksCleared()]
    report = scene.apply("w1", batch, epoch=old)
    assert (report.stored, report.removed, report.cleared) == (0, 0, 0)
    assert report.reasons["epoch"] >= 3
    assert report.ignored == report.reasons["epoch"]
    assert scene.depths("AB") == {"w1": 2}


@pytest.mark.parametrize("registered", [False, True])
def test_an_epoch_that_was_never_given_is_stale(
    scene: Scene,
    registered: bool,  # noqa: FBT001
) -> None:
    epoch = scene.index.register("w1") if registered else 0
    assert scene.S("w1", "A", epoch=epoch + 999).reasons == {"epoch": 1}
    assert scene.held("w1") == 0


def test_no_epoch_is_the_current_one(scene: Scene) -> None:
    scene.index.register("w1")
    scene.index.remove_worker("w1")
    scene.index.register("w1")
    assert scene.S("w1", "A").stored == 1


def test_an_epoch_of_another_worker_is_stale(scene: Scene) -> None:
    scene.index.register("w1")
    other = scene.index.register("w2")
    assert scene.S("w1", "A", epoch=other).reasons == {"epoch": 1}


def test_a_stale_batch_leaves_the_cursor(scene: Scene) -> None:
    old = scene.index.register("w1")
    scene.index.remove_worker("w1")
    scene.index.register("w1")
    scene.S("w1", "A", seq=1)
    scene.S("w1", "B", seq=2, epoch=old)
    assert scene.S("w1", "B", seq=2).status == "ok"


def test_registering_again_changes_only_how_later_events_are_read(scene: Scene) -> None:
    scene.S("w1", "AB", seq=3)
    scene.S("w1", "D", "ABC")
    scene.index.register("w1", profile="sglang", copies=())
    assert scene.depths("AB") == {"w1": 2}
    assert scene.waiting("w1") == 1
    assert state(scene.index, "w1").seq == 3
    for _ in range(2):
        scene.S("w1", "Q")
    scene.R("w1", "Q")
    assert scene.depths("Q") == {}


# Rule 14: the end of workers and holders.


def full(scene: Scene, who: str) -> None:
    scene.S(who, "AB", seq=5)
    scene.S(who, "A", tier="cpu")
    scene.S(who, "Z", "XY")


def test_removing_a_worker_drops_everything_of_all_its_ranks(scene: Scene) -> None:
    for who in ("w1", "w1@3", "w2"):
        full(scene, who)
    assert scene.index.remove_worker("w1") is True
    assert scene.depths("AB") == {"w2": 2}
    assert [line.worker for line in scene.index.workers()] == ["w2"]
    assert scene.R("w1", "A").reasons == {"unknown_block": 1}
    assert scene.S("w1", "Q", seq=1).status == "ok"
    assert scene.S("w1@3", "Q", seq=1).status == "ok"
    assert scene.index.remove_worker("w9") is False


def test_a_worker_is_removed_once(scene: Scene) -> None:
    full(scene, "w1")
    assert scene.index.remove_worker("w1") is True
    assert scene.index.remove_worker("w1") is False


def test_removing_a_worker_drops_its_profile(scene: Scene) -> None:
    scene.index.register("w1", copies=(), clears=("device",))
    scene.S("w1", "A")
    scene.index.remove_worker("w1")
    scene.S("w1", "A")
    scene.S("w1", "A")
    scene.R("w1", "A")
    assert scene.depths("A") == {"w1": 1}


def test_names_that_only_a_removed_worker_held_are_unknown(scene: Scene) -> None:
    scene.S("w1", "A")
    scene.index.remove_worker("w1")
    assert scene.S("w2", "B", "A").reasons == {"orphan": 1}
    assert scene.P("w2", "A").reasons == {"unresolved": 1}


def test_a_worker_that_comes_back_starts_empty(scene: Scene) -> None:
    for letters in ("ABCD", "AB", "ABC"):
        scene.S("w1", letters)
        assert scene.depths("ABCD") == {"w1": len(letters)}
        assert scene.held("w1") == len(letters)
        scene.index.remove_worker("w1")
        assert scene.depths("ABCD") == {}
        assert scene.held("w1") == 0


def test_reset_drops_one_holder(scene: Scene) -> None:
    for who in ("w1", "w1@3", "w2"):
        full(scene, who)
    assert scene.index.reset("w1", dp_rank=3) is True
    assert scene.depths("AB") == {"w1": 2, "w2": 2}
    assert (scene.held("w1@3"), scene.waiting("w1@3")) == (0, 0)
    assert scene.S("w1@3", "Q", seq=1).status == "ok"
    assert scene.S("w1", "Q", seq=1).status == "duplicate"
    assert scene.index.reset("w1") is True
    assert scene.depths("AB") == {"w2": 2}
    assert scene.index.reset("w9") is False


def test_reset_keeps_profile_and_epoch(scene: Scene) -> None:
    epoch = scene.index.register("w1", copies=())
    scene.S("w1", "A", epoch=epoch)
    scene.index.reset("w1")
    for _ in range(2):
        assert scene.S("w1", "A", epoch=epoch).stored == 1
    scene.R("w1", "A", epoch=epoch)
    assert scene.depths("A") == {}
    assert scene.index.register("w1") == epoch


def test_clear_drops_all_holders_and_keeps_profiles_and_epochs(scene: Scene) -> None:
    epoch = scene.index.register("w1", copies=())
    for who in ("w1", "w1@3", "w2"):
        full(scene, who)
    scene.index.clear()
    assert scene.depths("AB") == {}
    assert [scene.held(who) for who in ("w1", "w1@3", "w2")] == [0, 0, 0]
    assert [scene.waiting(who) for who in ("w1", "w1@3", "w2")] == [0, 0, 0]
    for seq in (1, 2):
        assert scene.S("w1", "A", seq=seq, epoch=epoch).status == "ok"
    scene.R("w1", "A")
    assert scene.depths("A") == {}


def test_registered_only_ignores_others_and_counts_them(form: str) -> None:
    scene = Scene(form, registered_only=True)
    report = scene.S("w1", "AB")
    assert (report.stored, report.ignored) == (0, 2)
    assert report.reasons == {"unregistered": 2}
    assert scene.index.workers() == []
    scene.index.register("w1")
    assert scene.S("w1", "AB").stored == 2
    assert scene.S("w1@1", "A").stored == 1
    assert scene.depths("AB") == {"w1": 2, "w1@1": 1}


def test_an_unregistered_workers_batch_sets_no_cursor(form: str) -> None:
    scene = Scene(form, registered_only=True)
    scene.S("w1", "A", seq=9)
    scene.index.register("w1")
    assert scene.S("w1", "A", seq=1).status == "ok"


# Rule 15: counting.


def test_a_report_counts_hashes(scene: Scene) -> None:
    report = scene.apply(
        "w1",
        [
            scene.stored("ABC"),
            scene.stored("ABC"),
            scene.stored("EF", "D"),
            scene.stored("Q", medium="tape"),
            scene.stored("XY", names=[X], block_size=2 * BLOCK),
            scene.removed("ABC", "DE", "ZZ"),
            scene.removed("AB", tier="cpu"),
            AllBlocksCleared(),
            AllBlocksCleared(),
            scene.stored("A"),
        ],
    )
    assert report.stored == 3 + 3 + 1 + 1
    assert report.removed == 2
    assert report.cleared == 2
    assert report.ignored == 3
    assert report.attached == 0
    assert report.reasons == {"orphan": 2, "medium": 1, "unknown_block": 2}


def test_a_report_of_nothing_is_zero() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    report = index.apply([], worker="w1", dp_rank=2)
    assert (report.stored, report.removed, report.cleared) == (0, 0, 0)
    assert (report.ignored, report.attached, report.reasons) == (0, 0, {})
    assert (report.status, report.gap, report.dp_rank) == ("ok", None, 2)


def test_reasons_add_up_in_the_statistics() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    bad = [
        {"type": "Nonsense"},
        wire.stored_map([X], tokens("A"), None, BLOCK, medium="tape"),
        wire.removed_map([name("nobody")]),
    ]
    before = json.dumps(index.stats())
    for _ in range(3):
        raw(index, *bad)
    after = json.dumps(index.stats())
    assert after != before
    for reason in ("unknown_type", "medium", "unknown_block"):
        assert reason in after


def test_a_query_changes_no_state(scene: Scene) -> None:
    scene.S("w1", "AB", seq=1)
    before = scene.index.workers()
    for path in ("", "A", "AB", "ABC", "XYZ"):
        scene.depths(path)
    scene.index.explain(tokens("AB"), worker="w1")
    assert scene.index.workers() == before
    assert depths(scene.index, "AB", workers=["nobody"]) == {"nobody": 0}
    assert scene.index.workers() == before

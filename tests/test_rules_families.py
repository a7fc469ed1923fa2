"""Blocks whose names can be computed from a prompt: FlexKV's."""

import base64
import json
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import xxhash

import kvindex
from tests import wire
from tests.helpers import BLOCK, HEX, MEDIA, Scene, depths, names, query, split, tokens

CAPTURE = Path(__file__).parent / "streams" / "flexkv" / "collector.jsonl"


def flexkv(prompt: list[int], block: int = BLOCK) -> list[int]:
    """Return FlexKV's name of every block: XXH64 over all tokens so far."""
    state = xxhash.xxh64(seed=0)
    found = []
    for start in range(0, len(prompt) - block + 1, block):
        state.update(pack(f"<{block}q", *prompt[start : start + block]))
        found.append(state.intdigest())
    return found


def inserted(path: str, tier: str = "cpu", **more: Any) -> kvindex.BlockStored:  # noqa: ANN401
    """Return what FlexKV tells when it has a prefix on a tier."""
    given: dict[str, Any] = {"block_size": BLOCK, "medium": MEDIA[tier]}
    return kvindex.BlockStored(flexkv(tokens(path)), [], **given | more)


def evicted(path: str, *ends: int, tier: str = "cpu") -> kvindex.BlockRemoved:
    """Return what it tells when blocks leave: signed numbers."""
    found = flexkv(tokens(path))
    signed = [(found[end - 1] + 2**63) % 2**64 - 2**63 for end in ends]
    return kvindex.BlockRemoved(signed, medium=MEDIA[tier])


@pytest.fixture
def scene() -> Scene:
    """Return a scene with a worker of that kind."""
    scene = Scene()
    scene.index.register("w1", profile="flexkv")
    return scene


def answer(scene: Scene, path: str, **options: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401
    """Return each row's blocks by tier."""
    return {who: split(row) for who, row in scene.rows(path, **options).items()}


def test_the_capture_is_exact() -> None:
    about = json.loads(CAPTURE.with_suffix(".meta.json").read_text())
    index = kvindex.Indexer(block_size=about["block_size"])
    index.register("w1", profile="flexkv")
    for line in filter(str.strip, CAPTURE.read_text().splitlines()):
        _, number, payload = map(base64.b64decode, json.loads(line)["frames"])
        seq = int.from_bytes(number, "big")
        report = index.apply(payload, worker="w1", seq=seq)
        assert (report.ignored, report.status) == (0, "ok")
    held = about["expected_final_u64"]
    (state,) = index.workers()
    assert (state.host, state.disk) == (len(held["CPU"]), len(held["SSD"]))
    for prompt in about["tokens"].values():
        tiers: list[str | None] = [
            next((tier for tier in ("CPU", "SSD") if name in held[tier]), None)
            for name in flexkv(prompt, about["block_size"])
        ]
        tiers = [*tiers, None]
        tiers = tiers[: tiers.index(None)]
        (row,) = index.match(prompt, workers=["w1"])
        assert (row.host, row.disk) == (tiers.count("CPU"), tiers.count("SSD"))


def test_a_prefix_is_found_by_its_tokens(scene: Scene) -> None:
    report = scene.apply("w1", [inserted("ABC")])
    assert (report.stored, report.ignored) == (3, 0)
    assert answer(scene, "ABCD") == {"w1": (0, 3, 0, 0)}
    assert answer(scene, "ABX") == {"w1": (0, 2, 0, 0)}
    assert answer(scene, "XBC") == {}
    assert len(scene.index) == 3


def test_both_kinds_of_names_count_together_block_by_block(scene: Scene) -> None:
    scene.apply("w1", [scene.stored("ABCDE"), inserted("ABCDEFG")])
    scene.R("w1", "B", "AB", "ABCD")
    scene.apply("w1", [evicted("ABCDEFG", 3, 7)])
    assert answer(scene, "ABCDEFGH") == {"w1": (3, 3, 0, 0)}
    assert answer(scene, "ABCDEFGH", cascade=True) == {"w1": (1, 1, 0, 0)}
    scene.R("w1", "ABC")
    assert answer(scene, "ABCDEFGH") == {"w1": (1, 1, 0, 0)}


def test_a_worker_goes_on_in_either_family_across_runs(scene: Scene) -> None:
    scene.S("w1", "AB")
    scene.S("w2", "ABX")
    scene.apply("w1", [inserted("ABCD"), inserted("ABCY"), evicted("ABCD", 1, 2)])
    scene.S("w1", "EF", "ABCD", parent=flexkv(tokens("ABCD"))[-1])
    # Blocks that are stored below a name of the other family are of neither.
    assert answer(scene, "ABCDEF") == {"w1": (2, 2, 0, 0), "w2": (2, 0, 0, 0)}
    assert answer(scene, "ABCY", workers=["w1"]) == {"w1": (2, 2, 0, 0)}


def test_blocks_on_the_device_go_on_behind_what_only_flexkv_has(scene: Scene) -> None:
    scene.S("w2", "ABX")
    scene.S("w1", "ABCD")
    scene.index.remove_worker("w2")
    scene.R("w1", "A", "AB")
    scene.apply("w1", [inserted("AB")])
    assert answer(scene, "ABCD") == {"w1": (2, 2, 0, 0)}


def test_insertions_are_sets(scene: Scene) -> None:
    scene.apply("w1", [inserted("AB"), inserted("ABC"), inserted("AB", "disk")])
    assert scene.apply("w1", [evicted("ABC", 2)]).removed == 1
    assert answer(scene, "ABC") == {"w1": (0, 2, 1, 0)}
    scene.apply("w1", [evicted("ABC", 2, tier="disk")])
    assert answer(scene, "ABC") == {"w1": (0, 1, 0, 0)}
    assert scene.apply("w1", [evicted("ABC", 2)]).reasons == {"unknown_block": 1}


def test_workers_share_what_they_name_alike(scene: Scene) -> None:
    scene.index.register("w2", profile="flexkv")
    scene.apply("w1", [inserted("ABC")])
    scene.apply("w2", [inserted("AB", "disk")])
    assert len(scene.index) == 3
    assert answer(scene, "ABC") == {"w1": (0, 3, 0, 0), "w2": (0, 0, 2, 0)}


def test_a_clear_leaves_what_flexkv_has(scene: Scene) -> None:
    scene.apply("w1", [scene.stored("ABC"), inserted("AB"), inserted("A", "disk")])
    scene.C("w1")
    assert answer(scene, "ABC") == {"w1": (0, 2, 0, 0)}
    scene.index.reset("w1")
    assert answer(scene, "ABC") == {}
    assert scene.index.stats()["runs"] == 0


def test_pools_of_that_kind_count_for_workers(scene: Scene) -> None:
    scene.index.register_pool("p", profile="flexkv")
    scene.S("w2", "A")
    scene.apply("pool:p", [inserted("ABC")])
    (row,) = scene.rows("ABC").values()
    assert (row.device, row.shared) == (1, 2)
    assert scene.index.match(tokens("ABC")).pools == {"p": 3}


def test_what_flexkv_does_not_know_of_is_not_its_own(scene: Scene) -> None:
    scene.apply("w1", [inserted("AB")])
    assert answer(scene, "AB", lora_name="x") == {}
    assert answer(scene, "AB", cache_salt="s") == {}
    assert answer(scene, "AB", mm=[(HEX["a"], 0, 4)]) == {}
    scene.S("w1", "ABC", salt="s")
    assert answer(scene, "ABC", cache_salt="s") == {"w1": (3, 0, 0, 0)}


def test_queries_by_keys_do_not_see_computed_names(scene: Scene) -> None:
    scene.apply("w1", [inserted("AB")])
    keys = kvindex.block_keys(tokens("AB"), block_size=BLOCK)
    assert len(scene.index.match_keys(keys)) == 0
    assert len(scene.index.match_chain(kvindex.chain_keys(keys))) == 0
    assert list(scene.index.match_names(flexkv(tokens("AB"))).host) == [2]
    assert len(scene.index.match_many([query("AB")])[0]) == 1


def test_a_match_with_keys_sees_every_family_as_a_match_by_tokens_does(
    scene: Scene,
) -> None:
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]
    scene.apply("w2", [kvindex.BlockStored([1], pairs)])
    scene.apply("w1", [inserted("AB")])
    for prompt, workers in (([1, 2, 3, 4, 5], ("w2",)), (tokens("AB"), ("w1",))):
        found, keys = scene.index.match_with_keys(prompt)
        assert found == scene.index.match(prompt)
        assert found.workers == workers
        assert len(keys) == len(prompt) // BLOCK


def test_explain_sees_both_families(scene: Scene) -> None:
    scene.apply("w1", [scene.stored("AB"), inserted("ABC")])
    told = scene.index.explain(tokens("ABCD"), worker="w1")
    assert (told["depth"], told["device"], told["host"]) == (3, 2, 1)
    assert told["tiers"] == [["device", "host"], ["device", "host"], ["host"]]
    scene.S("w1", "CDE", "AB")
    told = scene.index.explain(tokens("ABCDE"), worker="w1")
    assert (told["depth"], len(told["tiers"])) == (5, 5)


def test_pairs_are_a_family_of_their_own(scene: Scene) -> None:
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]
    scene.apply("w1", [kvindex.BlockStored([1], pairs)])
    names = flexkv([1, 2, 3, 4])
    event = kvindex.BlockStored(names, [], block_size=BLOCK, medium="CPU")
    scene.apply("w1", [event])
    assert scene.scores("", weights={"host": 2.0}) == {}
    assert depths(scene.index, [1, 2, 3, 4, 9]) == {"w1": 1}
    assert depths(scene.index, [1, 2, 3, 4, 5]) == {"w1": 1}


def test_the_gpus_names_and_other_tiers_are_as_with_vllm(scene: Scene) -> None:
    scene.S("w1", "AB")
    assert scene.P("w1", "A", "AB", tier="external").stored == 2
    scene.R("w1", "A", "AB")
    assert answer(scene, "AB") == {"w1": (0, 0, 0, 2)}
    unknown = kvindex.BlockStored(names("x"), [], medium="GPU")
    assert scene.apply("w1", [unknown]).reasons == {"unresolved": 1}
    below = inserted("C", parent_block_hash=names("A")[0])
    assert scene.apply("w1", [below]).reasons == {"unresolved": 1}


def test_blocks_of_another_size_are_counted(scene: Scene) -> None:
    report = scene.apply("w1", [inserted("AB", block_size=2 * BLOCK)])
    assert report.reasons == {"block_size": 2}
    report = scene.apply("w1", [inserted("AB", block_size=None)])
    assert report.stored == 2
    assert len(scene.index) == 2


def test_the_same_name_twice_in_a_prefix_does_no_harm(scene: Scene) -> None:
    event = wire.stored_map([5, 6, 5], [], None, BLOCK, medium="CPU")
    assert scene.index.apply(wire.batch([event]), worker="w1").stored == 3
    gone = wire.removed_map([5], "CPU")
    assert scene.index.apply(wire.batch([gone]), worker="w1").removed == 1
    assert len(scene.index) == 1
    gone = wire.removed_map([6], "CPU")
    assert scene.index.apply(wire.batch([gone]), worker="w1").removed == 1
    assert len(scene.index) == 0

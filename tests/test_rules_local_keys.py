"""Stores by local keys, from sources that send them instead of tokens.

They mean what the same blocks mean with tokens. The keys are computed with the
xxhash package.
"""

import random
from array import array
from typing import Any

import pytest

import kvindex
from kvindex import BlockRemoved, BlockStored
from tests import hashing, wire
from tests.helpers import BLOCK, HEX, depths, name, names, split, tokens


def keys(path: str, **space: Any) -> list[int]:  # noqa: ANN401
    return hashing.local_keys(tokens(path), block_size=BLOCK, **space)


def stored(
    path: str,
    above: str = "",
    space: dict[str, Any] | None = None,
    **fields: Any,  # noqa: ANN401
) -> BlockStored:
    """Store the blocks of a path below another by their local keys."""
    whole = keys(above + path, **space or {})
    hashes = names(*(above + path[: i + 1] for i in range(len(path))))
    parent = name(above) if above else None
    fields = {"local_keys": whole[len(above) :]} | fields
    return BlockStored(hashes, [], parent, **fields)


@pytest.fixture
def index() -> kvindex.Indexer:
    return kvindex.Indexer(block_size=BLOCK)


def test_keys_mean_the_blocks_that_tokens_mean(index: kvindex.Indexer) -> None:
    index.apply([stored("AB")], worker="w1")
    index.apply([BlockStored(names("A", "AB"), tokens("AB"))], worker="w2")
    index.apply([stored("C", "AB", medium="CPU")], worker="w1")
    assert depths(index, "ABCD") == {"w1": 3, "w2": 2}
    assert len(index) == 3
    assert index.apply([BlockRemoved(names("AB"))], worker="w1").removed == 1
    assert depths(index, "ABC") == {"w1": 1, "w2": 2}


def test_bytes_and_buffers_of_keys_are_read(index: kvindex.Indexer) -> None:
    event = wire.stored_map(names("A", "AB"), [], local_keys=keys("AB"))
    assert index.apply(wire.batch([event]), worker="w1").stored == 2
    event = wire.stored_map(names("A"), None, local_keys=keys("A"))
    assert index.apply(wire.batch([event]), worker="w2").stored == 1
    buffers: list[Any] = [array("Q", keys("AB")), memoryview(array("Q", keys("AB")))]
    for buffer in buffers:
        assert index.apply([stored("AB", local_keys=buffer)], worker="w3").stored == 2
    assert depths(index, "AB") == {"w1": 2, "w2": 1, "w3": 2}


@pytest.mark.parametrize(
    "space",
    [
        {"lora_name": "adapter"},
        {"cache_salt": "salt"},
        {"lora_name": "adapter", "cache_salt": "salt"},
        {"mm": [(HEX["a"], 1, 5)]},
    ],
    ids=str,
)
def test_keys_hold_namespace_and_images(
    index: kvindex.Indexer, space: dict[str, Any]
) -> None:
    index.apply([stored("AB", space=space)], worker="w1")
    index.apply([stored("C", "AB", space=space)], worker="w1")
    assert depths(index, "ABC") == {}
    assert depths(index, "ABC", **space) == {"w1": 3}


def test_keys_are_not_hashed_again_below_a_parent_with_a_namespace(
    index: kvindex.Indexer,
) -> None:
    salted = BlockStored(names("A"), tokens("A"), cache_salt="salt")
    index.apply([salted, stored("B", "A", {"cache_salt": "salt"})], worker="w1")
    assert depths(index, "AB", cache_salt="salt") == {"w1": 2}


def test_blocks_with_keys_wait_for_their_parent(index: kvindex.Indexer) -> None:
    waiting = stored("BCD", "A", {"cache_salt": "salt"})
    assert index.apply([waiting], worker="w1").reasons == {"orphan": 3}
    assert index.apply([BlockRemoved(names("ABC"))], worker="w1").removed == 1
    first = BlockStored(names("A"), tokens("A"), cache_salt="salt")
    assert index.apply([first], worker="w2").attached == 2
    index.apply([first], worker="w1")
    assert depths(index, "ABCD", cache_salt="salt") == {"w1": 2, "w2": 1}


def test_known_names_come_before_keys_on_other_tiers(index: kvindex.Indexer) -> None:
    index.apply([BlockStored(names("A"), tokens("A"), cache_salt="s")], worker="w1")
    index.apply([stored("A", medium="CPU")], worker="w1")
    assert depths(index, "A") == {}
    (row,) = index.match(tokens("A"), cache_salt="s")
    assert split(row) == (1, 0, 0, 0)
    assert index.workers()[0].host == 1


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (BlockStored([1, 2], [], local_keys=[1]), {"tokens": 2}),
        (BlockStored([1], [], local_keys=[1, 2]), {"tokens": 1}),
        (BlockStored([1], tokens("A"), local_keys=[1]), {"tokens": 1}),
        (BlockStored([1, 1], [], local_keys=[1, 2]), {"duplicate_hash": 2}),
        (BlockStored([1], [], 1, local_keys=[1]), {"parent": 1}),
        (BlockStored([1], [], block_size=BLOCK * 2, local_keys=[1]), {"block_size": 1}),
        (BlockStored([1], [], block_size=0, local_keys=[1]), {"block_size": 1}),
        (BlockStored([1], [], local_keys=[-1]), {"malformed": 1}),
        (BlockStored([1], [], local_keys=[2**64]), {"malformed": 1}),
        (BlockStored([1], [], local_keys=["1"]), {"malformed": 1}),  # type: ignore[list-item]
        (BlockStored([1], [], local_keys=1), {"malformed": 1}),  # type: ignore[arg-type]
        (BlockStored([1], [], local_keys=[]), {"unresolved": 1}),
    ],
    ids=str,
)
def test_keys_that_do_not_fit_cost_only_their_event(
    index: kvindex.Indexer, event: BlockStored, reason: dict[str, int]
) -> None:
    report = index.apply([event, stored("A"), stored("B", "A")], worker="w1")
    assert report.reasons == reason
    assert depths(index, "AB") == {"w1": 2}


def test_keys_of_other_groups_need_not_fit(index: kvindex.Indexer) -> None:
    other = stored("A", local_keys=[1, 2], group_idx=1, kv_cache_spec_kind="mamba")
    assert index.apply([other], worker="w1", strict=True).reasons == {"group": 1}


@pytest.mark.parametrize("seed", range(10))
def test_any_history_is_the_same_by_keys_and_by_tokens(seed: int) -> None:
    chance = random.Random(seed)
    by_tokens = kvindex.Indexer(block_size=BLOCK, orphan_blocks=8)
    by_keys = kvindex.Indexer(block_size=BLOCK, orphan_blocks=8)
    for _ in range(200):
        worker = chance.choice(["w1", "w2"])
        above = "".join(chance.choices("AB", k=chance.randrange(4)))
        path = "".join(chance.choices("AB", k=chance.randrange(1, 4)))
        medium = chance.choice(["GPU", "CPU", "STORAGE"])
        if chance.random() < 0.4:
            gone = [BlockRemoved(names(above + path), medium)]
            reports = [each.apply(gone, worker=worker) for each in (by_tokens, by_keys)]
        else:
            event = stored(path, above, medium=medium)
            plain = BlockStored(
                event.block_hashes, tokens(path), event.parent_block_hash, medium=medium
            )
            reports = [
                by_tokens.apply([plain], worker=worker),
                by_keys.apply([event], worker=worker),
            ]
        assert reports[0] == reports[1]
        query = "".join(chance.choices("AB", k=6))
        found = [each.match(tokens(query)) for each in (by_tokens, by_keys)]
        assert found[0] == found[1]
    assert by_tokens.workers() == by_keys.workers()

"""Mooncake's master: objects that make up blocks of a pool.

The capture is the master's own bytes, about objects whose keys were made up.
The keys of engines are made here after the published layouts.
"""

from __future__ import annotations

from base64 import b64decode
from hashlib import sha256
from struct import pack
from typing import Any

import pytest

import kvindex
from kvindex.engines.mooncake import Mooncake
from tests import wire
from tests.engines import lines
from tests.helpers import BLOCK, Scene, tokens

NUMBER, HEX, DIGEST = (
    12345678901234567890,
    0x0F46CAD26AF7D206,
    "4493778103393558480aabbccddeeff00112233445566778899aabbccddeeff0",
)
MODEL = "mooncake@org/model"


def frames() -> list[tuple[int, bytes]]:
    """Return the captured batches with their numbers."""
    found = []
    for line in lines("mooncake/master_publisher.jsonl"):
        _, number, payload = map(b64decode, line["frames"])
        found.append((int.from_bytes(number, "big"), payload))
    return found


def said(kind: str, key: object, medium: str = "cpu", **more: object) -> dict[str, Any]:
    """Return one event as the master writes it."""
    names = ("model_name", "block_size", "lora_name", "dp_rank", "group_id")
    nothing = dict.fromkeys(names)
    about = {"event_id": 1, "timestamp": 1795970379636, "event_type": kind}
    return about | nothing | {"medium": medium, "object_key": key} | more


def batch(*events: object) -> bytes:
    """Return a batch of the master."""
    return wire.pack([1795970379636, list(events), 0])


def digests(path: str) -> list[str]:
    """Return SGLang's digest of each page of a path."""
    found, above = [], b""
    for letter in path:
        above = sha256(above + pack(f"<{BLOCK}I", *tokens(letter))).digest()
        found.append(above.hex())
    return found


def parts(path: str, *ends: str, tag: str = "") -> list[str]:
    """Return the keys of the objects of a path's pages."""
    return [f"{tag}{digest}_{end}" for digest in digests(path) for end in ends]


def vllm(name: bytes, rank: int = 0, group: int = 0) -> str:
    """Return the key of an object of vLLM's."""
    ranks = f"tp_rank:{rank}@pcp0@dcp0@pp_rank:0"
    return f"{MODEL}@{ranks}@group:{group}@{name.hex()}"


class Store(Scene):
    """A scene with a store."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        """Register the store."""
        super().__init__()
        self.index.register_pool("store", profile="mooncake", **settings)

    def put(self, *keys: str, medium: str = "cpu") -> kvindex.ApplyReport:
        """Tell that objects were put."""
        events = [said("stored", key, medium) for key in keys]
        return self.index.apply(batch(*events), pool="store")

    def drop(self, *keys: str, medium: str = "cpu") -> kvindex.ApplyReport:
        """Tell that objects have gone."""
        events = [said("removed", key, medium) for key in keys]
        return self.index.apply(batch(*events), pool="store")

    def depth(self, path: str, **options: Any) -> int:  # noqa: ANN401
        """Return how many leading blocks of a path the store has."""
        return self.index.match(tokens(path), **options).pools["store"]


@pytest.fixture
def store() -> Store:
    return Store()


def test_the_capture_is_read() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    index.register_pool("store", profile="mooncake")
    chain = kvindex.BlockStored([NUMBER - 2**64, HEX], tokens("AB"))
    index.apply([chain], worker="w1")
    seen = []
    for seq, payload in frames():
        report = index.apply(payload, pool="store", seq=seq)
        assert (report.status, report.ignored) == ("ok", 0)
        pools = index.match(tokens("AB")).pools
        (state,) = index.pools()
        seen.append((pools.get("store", 0), state.external))
    # Two numbered blocks and a page of SGLang, whose tokens nobody knows.
    assert seen == [(1, 1), (2, 3), (0, 2), (0, 1)]


def test_a_prompts_pages_are_found_by_computing_their_digests(store: Store) -> None:
    assert store.put(*parts("ABC", "0_k", "0_v")).stored == 3 + 1
    assert [store.depth(path) for path in ("A", "ABC", "ABCD", "ABX", "BC")] == [
        *(1, 3, 3, 2),
        0,
    ]
    (row,) = store.index.match(tokens("ABCD"), workers=["w1"])
    assert (row.depth, row.shared) == (3, 3)


def test_pages_count_behind_what_is_only_predicted(store: Store) -> None:
    store.index.predict(tokens("ABCD"), worker="w1", ttl=60.0)
    store.put(*parts("ABCDEF", "0_k", "0_v"))
    store.drop(*parts("ABCDEF", "0_k", "0_v")[:8])
    (row,) = store.index.match(tokens("ABCDEFG"))
    assert (row.predicted, row.shared, row.depth) == (4, 2, 6)


def test_pages_count_where_the_worker_lacks_them(store: Store) -> None:
    store.S("w1", "ABCDE")
    store.R("w1", "AB", "ABCDE")
    store.put(*parts("ABCDEF", "0_k", "0_v"))
    store.drop(*parts("ABCDEF", "0_k", "0_v")[:2])
    row = store.rows("ABCDEFG")["w1"]
    assert (row.device, row.shared, row.depth) == (3, 3, 6)
    assert store.depth("ABCDEF") == 0
    store.R("w1", "A")
    assert store.rows("ABCDEFG") == {}


def test_keys_and_values_of_all_ranks_make_a_page(store: Store) -> None:
    store.put(*parts("AB", "0_k", "0_v", "1_k", "1_v"))
    assert store.depth("AB") == 2
    store.drop(parts("AB", "1_v")[1])
    assert store.depth("AB") == 1
    store.put(parts("AB", "1_v")[1])
    assert store.depth("AB") == 2
    store.put(*parts("ABC", "0_k", "0_v", "1_k")[-3:])
    assert store.depth("ABC") == 2


def test_a_further_part_takes_back_what_has_only_the_others(store: Store) -> None:
    store.put(*parts("AB", "0_k", "0_v"))
    report = store.put(parts("A", "1_k")[0])
    assert (report.removed, report.stored) == (2, 1)
    assert store.depth("AB") == 1


@pytest.mark.parametrize("end", ["_k", "0_k", "1_2_k"])
def test_other_layouts_of_pages(store: Store, end: str) -> None:
    store.put(*parts("AB", end, tag="model_a_"))
    assert store.depth("AB") == 2


def test_pages_of_a_worker_keep_names_of_their_own(store: Store) -> None:
    store.put(*parts("AB", "_k"))
    short = [int(digest[:16], 16) for digest in digests("AB")]
    store.S("w1", "AB", names=short, tier="cpu")
    store.S("w1", "C", names=[7], parent=short[-1])
    row = store.rows("ABC")["w1"]
    assert (row.device, row.host, row.shared) == (1, 2, 0)


def test_a_copy_on_another_medium_is_the_same_object(store: Store) -> None:
    store.put(*parts("A", "_k"))
    assert store.put(*parts("A", "_k"), medium="disk").stored == 0
    assert store.drop(*parts("A", "_k"), medium="disk").removed == 1
    assert store.drop(*parts("A", "_k")).removed == 0
    assert store.depth("A") == 0


def test_prompts_with_a_namespace_do_not_see_pages(store: Store) -> None:
    store.put(*parts("A", "_k"))
    assert store.index.match(tokens("A"), cache_salt="s").pools == {"store": 0}
    keys = kvindex.block_keys(tokens("A"), block_size=BLOCK)
    assert store.index.match_keys(keys).pools == {"store": 0}


@pytest.mark.parametrize("as_bytes", [False, True])
def test_vllms_keys_mean_what_a_worker_announced(store: Store, as_bytes: bool) -> None:  # noqa: FBT001
    hashes = [sha256(path.encode()).digest() for path in ("A", "AB")]
    announced: list[int | bytes] = [*hashes]
    if not as_bytes:
        announced = [int.from_bytes(one[-8:], "big") for one in hashes]
    store.S("w1", "AB", names=announced, salt="s")
    report = store.put(*(vllm(one, rank) for one in hashes for rank in (0, 1)))
    assert report.ignored == 0
    store.C("w1")
    (row,) = store.index.match(tokens("AB"), workers=["w1"], cache_salt="s")
    assert (row.depth, row.shared) == (2, 2)
    store.drop(vllm(hashes[0], 1))
    assert store.depth("AB", cache_salt="s") == 0


def test_chunks_of_several_blocks_are_told_by_the_profile() -> None:
    store = Store(chunk_tokens={"external": 2 * BLOCK})
    hashes = [sha256(path.encode()).digest() for path in ("A", "AB")]
    store.S("w1", "AB", names=hashes)
    store.put(vllm(hashes[1]))
    assert [store.depth(path) for path in ("A", "AB")] == [0, 2]


def test_the_first_group_of_layers_counts(store: Store) -> None:
    name = sha256(b"A").digest()
    store.S("w1", "A", names=[name])
    store.put(vllm(name, group=1))
    store.put(vllm(name, group=0))
    assert store.depth("A") == 1
    store.drop(vllm(name, group=1))
    assert store.depth("A") == 1
    store.drop(vllm(name, group=0))
    assert store.depth("A") == 0


def test_names_that_nobody_announced_are_counted(store: Store) -> None:
    report = store.put("7", "0x8", "my-object", vllm(b"12345678"))
    assert report.reasons == {"unresolved": 4}
    assert store.drop("my-object").reasons == {"unknown_block": 1}
    assert len(store.index) == 0


def test_lost_batches_are_a_gap(store: Store) -> None:
    for seq, expected in ((1, None), (4, (2, 3))):
        report = store.index.apply(batch(), pool="store", seq=seq)
        assert report.gap == expected


def test_a_reset_forgets_the_parts(store: Store) -> None:
    store.put(*parts("A", "0_k", "0_v"))
    store.index.reset_pool("store")
    store.put(*parts("A", "0_k"))
    assert store.depth("A") == 1


def test_a_clear_empties_the_store(store: Store) -> None:
    store.put(*parts("A", "0_k", "0_v"))
    report = store.index.apply(batch(said("cleared", None)), pool="store")
    assert report.cleared == 1
    assert store.depth("A") == 0
    assert store.put(*parts("A", "0_k", "0_v")).stored == 2


def test_what_cannot_be_read_is_counted(store: Store) -> None:
    report = store.index.apply(
        batch(7, said("stored", None), said("moved", "7"), said("removed", 7)),
        pool="store",
    )
    assert report.reasons == {"malformed": 3, "unknown_type": 1}
    for broken in (b"\x90", wire.pack([1]), wire.pack([1, 2]), b"{}", b"\x93\x01"):
        with pytest.raises(kvindex.DecodeError):
            store.index.apply(broken, pool="store")
    with pytest.raises(kvindex.DecodeError):
        Mooncake(BLOCK).decode({"events": []})


ODD: list[object] = [None, 7, 1.5, True, [], {}, [[]], {"a": []}, b"", "", "stored"]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_event_costs_only_itself(store: Store, odd: object) -> None:
    before, after = parts("AB", "_k")
    fine = said("stored", before), said("stored", after)
    for bad in (odd, {"event_type": odd}, said(odd, after), said("stored", odd)):  # type: ignore[arg-type]
        store.index.reset_pool("store")
        report = store.index.apply(batch(fine[0], bad, fine[1]), pool="store")
        assert (report.stored, store.depth("AB")) == (2, 2)


@pytest.mark.parametrize("kind", ["stored", "removed"])
def test_a_group_without_end_is_malformed(store: Store, kind: str) -> None:
    # Longer than what Python makes a number of.
    endless = vllm(b"12345678").replace("group:0", f"group:{'9' * 5_000}")
    report = store.index.apply(
        batch(said(kind, endless), said("stored", parts("A", "_k")[0])), pool="store"
    )
    assert (report.reasons, report.stored) == ({"malformed": 1}, 1)


def test_of_two_models_in_one_store_the_first_counts(store: Store) -> None:
    store.put(*parts("A", "_k", tag="model_a_"))
    report = store.put(*parts("AB", "_k", tag="model_b_"), *parts("AB", "_k"))
    assert (report.stored, report.reasons) == (0, {"medium": 4})
    assert store.depth("AB") == 1
    assert store.drop(*parts("A", "_k", tag="model_b_")).removed == 0
    assert store.depth("AB") == 1
    assert store.index.diagnose() == []
    # Keys of vLLM's are of a kind of their own.
    hashes = [sha256(path.encode()).digest() for path in ("C", "CD")]
    store.S("w1", "CD", names=hashes)
    store.put(vllm(hashes[0]), vllm(hashes[1]).replace("org", "other"))
    assert store.depth("CD") == 1


def test_whoever_is_first_after_a_reset_is_followed(store: Store) -> None:
    for again in (
        lambda: store.index.reset_pool("store"),
        lambda: store.index.apply(batch(said("cleared", None)), pool="store"),
    ):
        for tag in ("model_a_", "model_b_"):
            store.put(*parts("A", "_k", tag=tag))
            assert store.depth("A") == 1
            again()
            assert store.depth("A") == 0

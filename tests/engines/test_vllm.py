"""What vLLM's connectors say, after their layouts: those without a captured stream.

The captured ones are in `tests/test_streams.py`.
"""

import kvindex
from tests import wire
from tests.helpers import BLOCK, name, raw, tokens

A, AB, ABC = name("A"), name("AB"), name("ABC")
Tiers = tuple[int, int, int, int]  # device, host, disk, external


def index(max_age: dict[str, float] | None = None) -> kvindex.Indexer:
    """Return an index with one vLLM worker."""
    made = kvindex.Indexer(block_size=BLOCK)
    made.register("w1", profile="vllm", max_age=max_age or {})
    return made


def tiers(index: kvindex.Indexer, path: str) -> Tiers:
    """Return how many leading blocks of a prompt the worker has on each tier."""
    row = index.match(tokens(path), workers=["w1"])[0]
    assert row.depth == row.device + row.host + row.disk + row.external
    return row.device, row.host, row.disk, row.external


def of_gpu(hashes: list[int], path: str, parent: int | None = None) -> object:
    """Return a store of the GPU's pool."""
    return wire.stored_map(hashes, tokens(path), parent, BLOCK)


def chunk(hashes: list[int], path: str, parent: int | None = None) -> object:
    """Return a store of an offloading connector that describes itself."""
    return wire.stored_map(hashes, tokens(path), parent, BLOCK, medium="CPU")


# MultiConnector: the events of its parts one after the other, behind the GPU's. Nixl
# has none: what a decode worker received is announced by its GPU's pool.


def test_a_decode_worker_has_what_nixl_brought_it_and_what_it_offloaded() -> None:
    decode = index()
    raw(decode, of_gpu([A, AB], "AB"), chunk([A, AB], "AB"))
    raw(decode, of_gpu([ABC], "C", AB))
    assert tiers(decode, "ABCD") == (3, 0, 0, 0)
    raw(decode, wire.removed_map([A]), wire.removed_map([AB]))
    assert tiers(decode, "ABCD") == (1, 2, 0, 0)


def test_a_prefill_worker_may_announce_a_chunk_before_its_parent() -> None:
    prefill = index()
    report = raw(prefill, of_gpu([A, AB], "AB"), chunk([AB], "B", A), chunk([A], "A"))
    assert (report.stored, report.ignored) == (4, 0)
    raw(prefill, wire.removed_map([A, AB]))
    assert tiers(prefill, "AB") == (0, 2, 0, 0)


def test_both_roles_name_a_block_alike_and_lose_it_apart() -> None:
    both = index()
    both.register("w2", profile="vllm")
    for worker in ("w1", "w2"):
        raw(both, of_gpu([A, AB], "AB"), worker=worker)
    raw(both, wire.removed_map([A]), worker="w2")
    assert tiers(both, "AB") == (2, 0, 0, 0)
    assert [row.depth for row in both.match(tokens("AB"), workers=["w2"])] == [0]


# SimpleCPUOffloadConnector with its disk backend.


def test_the_disk_backend_says_storage_and_local() -> None:
    worker = index()
    fields = {"locality": "LOCAL", "kv_cache_spec_kind": "full_attention"}
    for hashes, path, parent in (([A], "A", None), ([AB], "B", A)):
        event = wire.stored_map(
            hashes, tokens(path), parent, BLOCK, medium="STORAGE", **fields
        )
        assert raw(worker, event).stored == 1
    assert tiers(worker, "ABC") == (0, 0, 2, 0)
    raw(worker, wire.removed_map([AB], "STORAGE", locality="LOCAL"))
    assert tiers(worker, "ABC") == (0, 0, 1, 0)


# MooncakeStoreConnector: "cpu" in lower case, and never a removal.


def test_what_mooncakes_connector_stored_ends_at_its_age() -> None:
    worker = index(max_age={"host": 60.0})
    raw(worker, of_gpu([A, AB], "AB"), now=0.0)
    event = wire.stored_map([A, AB], tokens("AB"), None, BLOCK, medium="cpu")
    raw(worker, event, now=10.0)
    raw(worker, wire.removed_map([A, AB]), now=20.0)
    assert tiers(worker, "AB") == (0, 2, 0, 0)
    assert worker.expire(now=69.0) == 0
    assert worker.expire(now=70.0) == 2
    assert tiers(worker, "AB") == (0, 0, 0, 0)


# The kvcr tier: CPU and STORAGE with an owner, and with removals.


def test_the_kvcr_tiers_owner_changes_nothing() -> None:
    worker = index()
    owner = {"ownership": "kvcr"}
    for medium in ("CPU", "STORAGE"):
        event = wire.stored_map([A], tokens("A"), None, BLOCK, medium=medium, **owner)
        assert raw(worker, event).stored == 1
    raw(worker, wire.removed_map([A], "CPU", **owner))
    assert tiers(worker, "A") == (0, 0, 1, 0)
    raw(worker, wire.removed_map([A], "STORAGE", **owner))
    assert tiers(worker, "A") == (0, 0, 0, 0)

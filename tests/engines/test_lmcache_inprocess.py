"""LMCache inside vLLM: stores through vLLM's stream, all else by the controller.

The messages to the controller are captured, but say nothing of tokens: what they
mean is tested on chunks that vLLM's stream explains.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
import pytest

import kvindex
from tests import wire
from tests.engines import lines
from tests.helpers import BLOCK, depths, name, names, split, tokens

WORKER = "lmcache"


def message(kind: str, worker: int = 0, **said: Any) -> bytes:  # noqa: ANN401
    said = {"instance_id": "vllm-0", "worker_id": worker} | said
    return wire.pack({"type": kind} | said)


def operations(
    *said: tuple[str, str], worker: int = 0, seq: int = 0, location: str = "CPU"
) -> bytes:
    each = [
        {"op_type": kind, "key": name(one), "seq_num": seq + at}
        for at, (kind, one) in enumerate(said)
    ]
    return message(
        "BatchedKVOperationMsg",
        worker,
        location=f"Local{location}Backend",
        operations=each,
    )


def inside_vllm() -> kvindex.Indexer:
    """Return an index to which vLLM's stream has explained the chunks AB and ABCD."""
    index = kvindex.Indexer(block_size=BLOCK)
    chunks = {"host": 2 * BLOCK, "disk": 2 * BLOCK}
    index.register(WORKER, profile="lmcache_inprocess", chunk_tokens=chunks)
    stored = wire.stored_map(
        names("AB", "ABCD"), tokens("ABCD"), block_size=2 * BLOCK, medium="cpu"
    )
    index.apply(wire.batch([stored]), worker=WORKER)
    return index


def test_stores_inside_vllm_lie_on_the_host_and_are_units() -> None:
    index = inside_vllm()
    assert depths(index, "ABCD") == {WORKER: 4}
    assert depths(index, "ABC") == {WORKER: 2}
    (row,) = index.match(tokens("ABCD"))
    assert split(row) == (0, 4, 0, 0)


def test_the_controller_tells_what_vllm_does_not() -> None:
    index = inside_vllm()
    apply = index.apply
    apply(operations(("admit", "AB"), ("admit", "ABCD")), worker=WORKER)
    apply(operations(("admit", "AB"), location="Disk"), worker=WORKER)
    (row,) = index.match(tokens("ABCD"))
    assert split(row) == (0, 4, 0, 0)
    gone = apply(operations(("evict", "AB"), ("evict", "ABCD"), seq=2), worker=WORKER)
    assert gone.removed == 2
    (row,) = index.match(tokens("ABCD"))
    assert split(row) == (0, 0, 2, 0)


def test_a_key_counts_when_all_workers_have_it() -> None:
    index = inside_vllm()
    index.apply(message("RegisterMsg", 1), worker=WORKER)
    disk = operations(("admit", "AB"), location="Disk")
    index.apply(operations(("evict", "X"), location="Disk", worker=1), worker=WORKER)
    index.apply(disk, worker=WORKER)
    assert index.workers()[0].disk == 0
    index.apply(
        operations(("admit", "AB"), location="Disk", worker=1, seq=1), worker=WORKER
    )
    assert index.workers()[0].disk == 2
    # A worker that begins holds nothing, and its numbers begin, too.
    index.apply(message("RegisterMsg", 1), worker=WORKER)
    assert index.workers()[0].disk == 0
    again = operations(("admit", "AB"), location="Disk", worker=1)
    assert index.apply(again, worker=WORKER).status == "ok"
    assert index.workers()[0].disk == 2
    # One that was not heard of before lacks it.
    index.apply(operations(("evict", "X"), worker=2, location="Disk"), worker=WORKER)
    assert index.workers()[0].disk == 0


def test_a_full_sync_takes_the_place_of_what_was_there() -> None:
    index = inside_vllm()
    where: dict[str, Any] = {"location": "LocalDiskBackend", "sync_id": "s"}
    index.apply(operations(("admit", "AB"), location="Disk"), worker=WORKER)
    index.apply(message("FullSyncStartMsg", **where), worker=WORKER)
    during = operations(("evict", "AB"), location="Disk", seq=1)
    assert index.apply(during, worker=WORKER).removed == 0
    keys: dict[str, Any] = {"keys": [name("ABCD"), name("unknown")]}
    index.apply(message("FullSyncBatchMsg", **where, **keys), worker=WORKER)
    assert index.workers()[0].disk == 2
    report = index.apply(message("FullSyncEndMsg", **where), worker=WORKER)
    assert (report.removed, report.stored) == (1, 1)
    assert report.reasons == {"unresolved": 1}
    # What it still has was neither gone nor is it new.
    index.apply(message("FullSyncStartMsg", **where), worker=WORKER)
    index.apply(message("FullSyncBatchMsg", **where, **keys), worker=WORKER)
    report = index.apply(message("FullSyncEndMsg", **where), worker=WORKER)
    assert (report.removed, report.stored, report.ignored) == (0, 0, 0)
    # Without a start an end means nothing.
    assert index.apply(message("FullSyncEndMsg", **where), worker=WORKER).removed == 0


def test_numbers_of_operations_are_those_of_a_workers_backend() -> None:
    index = inside_vllm()
    index.apply(operations(("admit", "AB"), seq=3), worker=WORKER)
    report = index.apply(operations(("admit", "ABCD"), seq=6), worker=WORKER)
    assert report.gap == (4, 5)
    late = index.apply(operations(("evict", "AB"), seq=4), worker=WORKER)
    assert (late.status, late.removed) == ("duplicate", 0)
    gone = index.apply(operations(("evict", "AB"), seq=7), worker=WORKER)
    assert gone.removed == 1
    other = operations(("admit", "AB"), location="Disk", seq=0)
    assert index.apply(other, worker=WORKER).status == "ok"


def test_the_captured_messages_are_read() -> None:
    index = inside_vllm()
    expected = {1: {"unresolved": 2}, 2: {"unresolved": 1}, 5: {"unresolved": 3}}
    for number, line in enumerate(lines("lmcache/controller_msgs.jsonl")):
        payload = b64decode(line["payload"])
        assert msgspec.msgpack.decode(payload) == line["decoded"]
        report = index.apply(payload, worker=WORKER)
        assert "malformed" not in report.reasons
        if number in expected:
            assert report.reasons.items() >= expected[number].items(), number


@pytest.mark.parametrize(
    "payload",
    [
        message("AnotherMsg", location="LocalCPUBackend"),
        message("BatchedKVOperationMsg", location="LocalCPUBackend", operations=5),
        message("BatchedKVOperationMsg", operations=[]),
        message("FullSyncBatchMsg", location="LocalCPUBackend", keys=["key"]),
        message("AnotherMsg", instance_id=[]),
        message("BatchedKVOperationMsg", location=[], operations=[{"op_type": []}]),
        wire.pack({"type": []}),
        wire.pack({}),
    ],
)
def test_a_message_that_cannot_be_read_is_counted(payload: bytes) -> None:
    index = inside_vllm()
    assert index.apply(payload, worker=WORKER).reasons == {"malformed": 1}
    assert index.apply(operations(("admit", "AB")), worker=WORKER).ignored == 0


def test_messages_of_another_instance_are_refused() -> None:
    index = inside_vllm()
    index.apply(message("HeartbeatMsg"), worker=WORKER)
    with pytest.raises(kvindex.DecodeError, match="expected messages of 'vllm-0'"):
        index.apply(message("HeartbeatMsg", instance_id="vllm-1"), worker=WORKER)


def test_chunks_have_the_default_size_unless_register_says_otherwise() -> None:
    index = kvindex.Indexer(block_size=512)
    with pytest.raises(kvindex.ConfigError, match="multiple of the block size 512"):
        index.register(WORKER, profile="lmcache_inprocess")

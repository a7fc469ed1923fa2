"""A simulated engine's bytes are what another writer and reader say they are."""

from __future__ import annotations

from typing import Any

import msgspec

import kvindex
from kvindex.replay import wire

BLOCK = 4


def name(block: int) -> int:
    """Return an engine hash."""
    return (block + 1) * 0x9E3779B97F4A7C15 % 2**64


def test_another_reader_finds_the_fields_of_vllm() -> None:
    payload = wire.batch(
        1.5,
        [
            wire.stored([7, 2**20], 3, BLOCK, "GPU"),
            wire.stored([9], None, BLOCK, "GPU"),
            *wire.placed([7, 9], "CPU"),
            wire.removed([7, 9], "GPU"),
            wire.removed([7], "STORAGE"),
        ],
    )
    plain: dict[str, Any] = {"lora_id": None, "lora_name": None, "type": "BlockStored"}
    placed: dict[str, Any] = {
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 0,
        "medium": "CPU",
        **plain,
    }
    assert msgspec.msgpack.decode(payload) == [
        1.5,
        [
            {
                "block_hashes": [name(7), name(2**20)],
                "parent_block_hash": name(3),
                "token_ids": [28, 29, 30, 31, *range(2**22, 2**22 + 4)],
                "block_size": BLOCK,
                "medium": "GPU",
                **plain,
            },
            {
                "block_hashes": [name(9)],
                "parent_block_hash": None,
                "token_ids": [36, 37, 38, 39],
                "block_size": BLOCK,
                "medium": "GPU",
                **plain,
            },
            {"block_hashes": [name(7)], **placed},
            {"block_hashes": [name(9)], **placed},
            {
                "type": "BlockRemoved",
                "block_hashes": [name(7), name(9)],
                "medium": "GPU",
            },
            {"type": "BlockRemoved", "block_hashes": [name(7)], "medium": "STORAGE"},
        ],
        0,
    ]


def test_the_index_takes_the_bytes_and_finds_the_tokens() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    payload = wire.batch(0.0, [wire.stored([4, 5], None, BLOCK, "GPU")])
    assert index.apply(payload, worker="w0", strict=True).stored == 2
    more = wire.batch(0.1, [*wire.placed([5], "CPU"), wire.removed([5], "GPU")])
    assert index.apply(more, worker="w0", strict=True).ignored == 0
    row = index.match(wire.tokens([4, 5, 6], BLOCK).data)[0]
    assert (row.depth, row.device, row.host) == (2, 1, 1)

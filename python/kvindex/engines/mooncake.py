"""Mooncake: what its master says of the objects in the store, which is a pool.

    index.register_pool("store", profile="mooncake")
    index.apply(payload, pool="store", seq=number)

An event names one object by its key, and says neither tokens nor parents. Engines
keep a block in several objects: of each rank, keys and values apart, each group of
layers. A block counts when there are objects of all parts that were heard of.

- SGLang (HiCache): the key has the SHA-256 of the prefix, so that the index finds
  a prompt's pages by computing it.
- vLLM (`MooncakeStoreConnector`): the key has the engine's hash, which means the
  block that a worker has announced under it.
- Keys that are numbers mean the block that is known under that number.

The master says on which medium an object was put, but not when it leaves one and
stays on another: blocks lie on the external tier while there is any copy.

What stands before the digest or the ranks says whose objects these are: another
model's blocks have the same names. Of each kind of key one is followed, the first
that was stored; the others' are left out.
"""

from __future__ import annotations

import re
from typing import Any

from kvindex._core import unpack
from kvindex.engines.engine import Batch, Engine, Event
from kvindex.engines.parts import Parts
from kvindex.engines.reading import (
    MALFORMED,
    MISSHAPEN,
    is_batch,
    left_out,
    unexpected,
    unknown,
)
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

EXPECTED = "a batch of Mooncake's master"
MEDIUM = "EXTERNAL"

SGLANG_KEY = re.compile(r"(?:(.+)_)?([0-9a-f]{64})_((?:\d+(?:_\d+)*)?_?[kv])", re.ASCII)
"""What stands before a digest, the digest, and which part of its page."""

VLLM_KEY = re.compile(
    r"(.+?)((?:@(?:tp_rank:|pcp|dcp|pp_rank:)\d+)+)"
    r"(?:@group:(\d+))?@((?:[0-9a-f]{2})+)",
    re.ASCII,
)
"""Cache and model, ranks, group of layers, and the block's hash."""

NUMBER_KEY = re.compile(r"0[xX][0-9a-fA-F]{1,16}|\d{1,20}", re.ASCII)

Name = int | bytes
Block = tuple[str, Name]
"""Which kind of key it has, and its name."""

Part = tuple[int, str]
"""The group of layers, and whatever else the key says."""


class Mooncake:
    """Reads what one master publishes."""

    def __init__(self, _: int) -> None:
        """Begin with an empty store; any block size will do."""
        self.reset(None)

    def reset(self, _: int | None) -> None:
        """Forget what the store held."""
        self._heard: dict[str, set[Part]] = {}
        self._followed: dict[str, str] = {}
        self._parts: Parts[Block] = Parts(self._expected)

    def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
        """Read a batch: `[time, events, rank]`."""
        if not is_batch(payload):
            raise unexpected(EXPECTED, payload)
        batch: Any = unpack(bytes(payload))
        match batch:
            case [_, [*events], *_]:
                return [Batch([told for said in events for told in self._event(said)])]
            case _:
                raise unexpected(EXPECTED, batch)

    def _event(self, said: Any) -> list[Event]:  # noqa: ANN401
        if not isinstance(said, dict):
            return [MALFORMED]
        kind, key = said.get("event_type"), said.get("object_key")
        if kind == "cleared":
            self.reset(None)
            return [AllBlocksCleared()]
        # A tuple: a list is no member of a set, but an error.
        if kind not in ("stored", "removed"):
            return [unknown(kind)]
        try:
            block, whose, part = _read(key)
        except MISSHAPEN:
            return [MALFORMED]
        if kind == "stored":
            return self._put(block, whose, part)
        ours = self._followed.get(block[0]) == whose
        gone = ours and self._parts.drop(block, part)
        return [BlockRemoved([block[1]], MEDIUM)] if gone else []

    def _put(self, block: Block, whose: str, part: Part) -> list[Event]:
        if self._followed.setdefault(block[0], whose) != whose:
            return [left_out([block[1]])]
        found: list[Event] = []
        heard = self._heard.setdefault(block[0], set())
        if part not in heard:
            heard.add(part)
            broken = self._parts.check()
            found += [BlockRemoved([name], MEDIUM) for _, name in broken]
        if self._parts.put(block, part):
            found.append(BlockStored([block[1]], [], medium=MEDIUM))
        return found

    def _expected(self, block: Block) -> list[Part]:
        """Return the parts of a block: those of the first group of layers."""
        heard = self._heard[block[0]]
        first = min(group for group, _ in heard)
        return [part for part in heard if part[0] == first]


def _read(key: Any) -> tuple[Block, str, Part]:  # noqa: ANN401
    """Return an object's block, whose it is, and which part; or raise `MISSHAPEN`."""
    if found := SGLANG_KEY.fullmatch(key):
        whose, digest, part = found.groups()
        # Not the first 8 bytes, which workers call the block by: those lie in
        # a chain, and this one does not.
        return ("sglang", int(digest[-16:], 16)), whose or "", (0, part)
    if found := VLLM_KEY.fullmatch(key):
        whose, ranks, group, name = found.groups()
        return ("vllm", bytes.fromhex(name)), whose, (int(group or 0), ranks)
    if NUMBER_KEY.fullmatch(key):
        number = int(key, 0) if key[:2] in {"0x", "0X"} else int(key)
        if number < 1 << 64:
            return ("", number.to_bytes(8, "big")), "", (0, "")
    # Nobody is known by that name, which is counted.
    return ("", key.encode()), "", (0, "")


MOONCAKE = Engine(
    name="mooncake",
    title="Mooncake store",
    kind="mooncake",
    copies=(),
    decoder=Mooncake,
)

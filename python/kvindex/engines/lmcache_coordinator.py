"""The cache events that an LMCache server posts to its coordinator.

    {"batches": [{"instance_id", "incarnation", "seq", "event_type", "tier",
                  "backend", "shared", "entries": [{"key": {...}, "token_ids",
                  "token_offset"}]}]}

An entry is one rank's part of a chunk, of one group of objects: a chunk counts
when all parts are there. Entries name no parent. In a batch of the first tier a
chunk follows the one before it where its tokens do: such a batch is what one
request wrote. Else the parent is the one that the chunk once had; a chunk whose
parent was never told means the block that is known under its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kvindex.engines.engine import Batch, Event
from kvindex.engines.parts import Parts
from kvindex.engines.reading import MALFORMED, MISSHAPEN, natural
from kvindex.errors import DecodeError
from kvindex.events import BlockRemoved, BlockStored

REMOTE = frozenset({"mooncake", "redis", "s3", "valkey"})
"""Backends of the second tier that are reached over a network."""

SHARED = "shared L2"
"""A medium that no index knows: what lies in a shared cache is no worker's."""

MAX_PARENTS = 1 << 17
"""How many parents are remembered; the oldest go first."""

Key = tuple[str, bytes]
"""Medium and name."""


@dataclass(slots=True)
class Entry:
    """One part of a chunk."""

    name: bytes
    part: tuple[int, int]
    world: int
    model: str
    salt: str
    tokens: list[int]
    offset: int

    @classmethod
    def of(cls, said: dict[str, Any]) -> Entry:
        """Read an entry; raises one of `MISSHAPEN`."""
        key = said["key"]
        rank = int(key["kv_rank"])
        salt = key.get("cache_salt") or ""
        # World size, rank, and both within the node: a byte each.
        return cls(
            name=_name(bytes.fromhex(key["chunk_hash_hex"]), salt),
            part=(rank >> 16 & 0xFF, int(key.get("object_group_id") or 0)),
            world=max(rank >> 24 & 0xFF, 1),
            model=key["model_name"],
            salt=salt,
            tokens=list(said.get("token_ids") or ()),
            offset=int(said.get("token_offset", -1)),
        )


class Coordinator:
    """Reads what one LMCache instance posts."""

    def __init__(self) -> None:
        """Begin before the first batch."""
        self._instance: str | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what the instance held."""
        self._incarnation = -1
        self._seq = -1
        self._model: str | None = None
        self._world = 1
        self._groups: set[int] = set()
        self._parts: Parts[Key] = Parts(self._expected)
        self._parents: dict[bytes, bytes | None] = {}

    def decode(self, said: dict[str, Any]) -> list[Batch]:
        """Read one body; raises DecodeError where it is none."""
        batches = said.get("batches")
        if not isinstance(batches, list) or not all(
            isinstance(batch, dict) for batch in batches
        ):
            message = "expected a list of batches in LMCache's cache events"
            raise DecodeError(message)
        names = {batch.get("instance_id") for batch in batches}
        if len(names | {self._instance} - {None}) > 1:
            known = sorted(map(str, names | {self._instance} - {None}))
            message = f"expected events of one instance, found {', '.join(known)}"
            raise DecodeError(message)
        self._instance = next(iter(names), self._instance)
        return [self._batch(batch) for batch in batches]

    def _batch(self, said: dict[str, Any]) -> Batch:
        incarnation = natural(said.get("incarnation"))
        seq = natural(said.get("seq"))
        if incarnation is None or seq is None:
            return Batch([MALFORMED])
        source = f"lmcache {incarnation}"
        if incarnation < self._incarnation:
            return Batch([])
        found: list[Event] = []
        if incarnation > self._incarnation:
            found = self._restart(incarnation)
        if seq <= self._seq:
            return Batch([], seq=seq, source=source)
        self._seq = seq
        try:
            entries = [Entry.of(entry) for entry in said["entries"]]
            tier, backend = str(said["tier"]).lower(), str(said["backend"])
        except MISSHAPEN:
            return Batch([*found, MALFORMED], seq=seq, source=source)
        kind = said.get("event_type")
        if said.get("shared"):
            if kind == "store":
                found += _left_out([entry.name for entry in entries])
        elif kind == "store":
            found += self._store(entries, tier, backend)
        elif kind == "delete":
            found += self._delete(entries, tier, backend)
        return Batch(found, seq=seq, source=source)

    def _restart(self, incarnation: int) -> list[Event]:
        """Begin with another process, which holds nothing of the last one's."""
        found = [_removed(key) for key in self._parts.clear()]
        self._incarnation = incarnation
        self._seq = -1
        return found

    def _store(self, entries: list[Entry], tier: str, backend: str) -> list[Event]:
        found: list[Event] = []
        last: dict[tuple[tuple[int, int], str], Entry] = {}
        for entry in entries:
            self._model = self._model or entry.model
            if entry.model != self._model:
                found += _left_out([entry.name])
                continue
            above = last.get((entry.part, entry.salt))
            last[entry.part, entry.salt] = entry
            self._learn(entry, above if tier == "l1" else None)
            found += self._expect(entry)
            medium = _medium(tier, backend)
            if self._parts.put((medium, entry.name), entry.part, backend):
                found.append(self._stored(entry, medium))
        return found

    def _delete(self, entries: list[Entry], tier: str, backend: str) -> list[Event]:
        medium = _medium(tier, backend)
        return [
            _removed((medium, entry.name))
            for entry in entries
            if self._parts.drop((medium, entry.name), entry.part, backend)
        ]

    def _learn(self, entry: Entry, above: Entry | None) -> None:
        if entry.offset == 0:
            self._remember(entry.name, None)
        elif above is not None and above.offset + len(above.tokens) == entry.offset:
            self._remember(entry.name, above.name)

    def _remember(self, name: bytes, parent: bytes | None) -> None:
        self._parents[name] = parent
        while len(self._parents) > MAX_PARENTS:
            del self._parents[next(iter(self._parents))]

    def _stored(self, entry: Entry, medium: str) -> Event:
        known = entry.name in self._parents and entry.tokens
        return BlockStored(
            [entry.name],
            entry.tokens if known else [],
            self._parents.get(entry.name),
            block_size=len(entry.tokens) or None,
            medium=medium,
            cache_salt=entry.salt,
        )

    def _expect(self, entry: Entry) -> list[Event]:
        """Expect the parts of all ranks and of each group that was heard of."""
        if entry.world <= self._world and entry.part[1] in self._groups:
            return []
        self._world = max(self._world, entry.world)
        self._groups.add(entry.part[1])
        return [_removed(key) for key in self._parts.check()]

    def _expected(self, _: Key) -> list[tuple[int, int]]:
        ranks = range(self._world)
        return [(rank, group) for rank in ranks for group in self._groups]


def _name(chunk: bytes, salt: str) -> bytes:
    """Return a chunk's name. Its hash leaves the salt out, the name must not."""
    if not salt:
        return chunk
    return blake2b(chunk + salt.encode(), digest_size=16).digest()


def _medium(tier: str, backend: str) -> str:
    if tier == "l1":
        return "CPU"
    return "EXTERNAL" if backend in REMOTE else "DISK"


def _removed(key: Key) -> Event:
    medium, name = key
    return BlockRemoved([name], medium)


def _left_out(names: list[bytes]) -> list[Event]:
    """Return a store that the index drops, and counts under `medium`."""
    return [BlockStored(names, [], medium=SHARED)]

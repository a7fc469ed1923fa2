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
from kvindex.engines.reading import MALFORMED, MISSHAPEN, left_out, natural
from kvindex.errors import DecodeError
from kvindex.events import BlockRemoved, BlockStored

REMOTE = frozenset({"mooncake", "redis", "s3", "valkey"})
"""Backends of the second tier that are reached over a network."""

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
    """Reads what LMCache instances post: one's own, or what all share."""

    def __init__(self, *, shared: bool = False) -> None:
        """Begin before the first batch; follow what is shared, or what is not."""
        self._shared = shared
        self._instance: str | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what was held."""
        # By instance, its incarnation and its last number.
        self._last: dict[str, tuple[int, int]] = {}
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
        if not self._shared:
            self._check([str(batch.get("instance_id")) for batch in batches])
        return [self._batch(batch) for batch in batches]

    def _check(self, instances: list[str]) -> None:
        """Refuse another instance than the one that was first."""
        first = self._instance or next(iter(instances), None)
        for instance in instances:
            if instance != first:
                message = f"expected events of one instance, {first}, found {instance}"
                raise DecodeError(message)
        self._instance = first

    def _batch(self, said: dict[str, Any]) -> Batch:
        instance = str(said.get("instance_id"))
        incarnation = natural(said.get("incarnation"))
        seq = natural(said.get("seq"))
        if incarnation is None or seq is None:
            return Batch([MALFORMED])
        source = f"{instance} {incarnation}"
        known, _ = self._last.get(instance, (-1, -1))
        if incarnation < known:
            return Batch([])
        found = self._begin(instance, incarnation) if incarnation > known else []
        if seq <= self._last[instance][1]:
            return Batch([], seq=seq, source=source)
        self._last[instance] = (incarnation, seq)
        try:
            entries = [Entry.of(entry) for entry in said["entries"]]
            tier, backend = str(said["tier"]).lower(), str(said["backend"])
        except MISSHAPEN:
            return Batch([*found, MALFORMED], seq=seq, source=source)
        is_ours = bool(said.get("shared")) == self._shared
        kind = said.get("event_type")
        if kind == "store" and is_ours:
            found += self._store(entries, tier, backend)
        elif kind == "store":
            found += self._leave_out(entries, tier)
        elif kind == "delete" and is_ours:
            found += self._delete(entries, tier, backend)
        return Batch(found, seq=seq, source=source)

    def _begin(self, instance: str, incarnation: int) -> list[Event]:
        """Begin with a process, which holds nothing of the last one's."""
        self._last[instance] = (incarnation, -1)
        # What is shared outlives whoever wrote it.
        gone = [] if self._shared else self._parts.clear()
        return [_removed(key) for key in gone]

    def _leave_out(self, entries: list[Entry], tier: str) -> list[Event]:
        """Learn from what is another's."""
        self._learn_all(entries, tier)
        return [left_out([entry.name for entry in entries])]

    def _store(self, entries: list[Entry], tier: str, backend: str) -> list[Event]:
        self._learn_all(entries, tier)
        found: list[Event] = []
        medium = _medium(tier, backend)
        for entry in entries:
            self._model = self._model or entry.model
            if entry.model != self._model:
                found.append(left_out([entry.name]))
                continue
            found += self._expect(entry)
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

    def _learn_all(self, entries: list[Entry], tier: str) -> None:
        """Learn the parents of a batch's chunks, as far as it tells them."""
        last: dict[tuple[tuple[int, int], str, str], Entry] = {}
        for entry in entries:
            line = (entry.part, entry.model, entry.salt)
            above, last[line] = last.get(line), entry
            if entry.offset == 0:
                self._remember(entry.name, None)
            elif (
                tier == "l1"
                and above is not None
                and above.offset + len(above.tokens) == entry.offset
            ):
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

"""What LMCache's workers tell their controller, as msgpack maps.

Each worker of an instance says which keys a backend of its own admits and evicts,
and now and then sends all of them (a full sync, during which increments do not
count). A key is the hash of a chunk, without tokens: it means the block that is
known under that name. It counts when all workers that were heard of have it.
"""

from __future__ import annotations

from typing import Any

from kvindex.engines.engine import Batch, Event
from kvindex.engines.parts import Parts
from kvindex.engines.reading import MALFORMED, MISSHAPEN, natural
from kvindex.errors import DecodeError
from kvindex.events import BlockRemoved, BlockStored

MEDIA = {"LocalCPUBackend": "CPU", "LocalDiskBackend": "DISK", "GdsBackend": "DISK"}
"""By backend, the medium; other backends lie elsewhere."""

Key = tuple[str, int]
"""Medium and name."""

Stream = tuple[int, str]
"""One worker's backend."""


class Controller:
    """Reads what the workers of one instance say."""

    def __init__(self) -> None:
        """Begin without a worker."""
        self._instance: str | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what the instance held."""
        # How often a worker began: its numbers begin anew.
        self._workers: dict[int, int] = {}
        self._locations: set[str] = set()
        self._last: dict[Stream, int] = {}
        self._syncs: dict[Stream, set[int]] = {}
        self._parts: Parts[Key] = Parts(lambda _: self._workers)

    def decode(self, said: dict[str, Any]) -> list[Batch]:
        """Read one message; raises DecodeError where it is another instance's."""
        kind, instance = said.get("type"), said.get("instance_id")
        if self._instance not in (None, instance):
            message = f"expected messages of {self._instance!r}, found {instance!r}"
            raise DecodeError(message)
        if isinstance(instance, str):
            self._instance = instance
        try:
            worker = int(said["worker_id"])
            if kind in {"RegisterMsg", "DeRegisterMsg"}:
                return [Batch(self._start(worker))]
            if kind == "HeartbeatMsg":
                return [Batch([])]
            stream = (worker, str(said["location"]))
            self._locations.add(stream[1])
            if kind == "BatchedKVOperationMsg":
                operations = [_operation(each) for each in said["operations"]]
                heard = self._hear(worker)
                batches = [self._operate(stream, *each) for each in operations]
                return [Batch(heard), *batches] if heard else batches
            if kind in {"FullSyncStartMsg", "FullSyncBatchMsg"}:
                keys = [_name(key) for key in said.get("keys", ())]
                heard = self._hear(worker)
                self._sync(stream, set(keys), starts=kind == "FullSyncStartMsg")
                return [Batch(heard)]
            if kind == "FullSyncEndMsg":
                return [Batch(self._replace(stream))]
        except MISSHAPEN:
            pass
        return [Batch([MALFORMED])]

    def _hear(self, worker: int) -> list[Event]:
        """Expect a worker's parts from now on."""
        if worker in self._workers:
            return []
        self._workers[worker] = 0
        return [_removed(key) for key in self._parts.check()]

    def _start(self, worker: int) -> list[Event]:
        """Forget what a worker held: it begins, or ends."""
        found = self._hear(worker)
        self._workers[worker] += 1
        for stream in [each for each in self._last if each[0] == worker]:
            del self._last[stream]
        for stream in [each for each in self._syncs if each[0] == worker]:
            del self._syncs[stream]
        for location in sorted(self._locations):
            found += self._drop_all((worker, location), set())
        return found

    def _operate(self, stream: Stream, kind: str, name: int, seq: int | None) -> Batch:
        worker, location = stream
        source = f"{worker}/{location} {self._workers[worker]}"
        if seq is not None and seq <= self._last.get(stream, -1):
            return Batch([], seq=seq, source=source)
        if seq is not None:
            self._last[stream] = seq
        found: list[Event] = []
        key = (_medium(location), name)
        if stream in self._syncs:
            pass
        elif kind == "admit":
            if self._parts.put(key, worker, location):
                found.append(_stored(key))
        elif self._parts.drop(key, worker, location):
            found.append(_removed(key))
        return Batch(found, seq=seq, source=source)

    def _sync(self, stream: Stream, keys: set[int], *, starts: bool) -> None:
        if starts:
            self._syncs[stream] = set()
        if stream in self._syncs:
            self._syncs[stream] |= keys

    def _replace(self, stream: Stream) -> list[Event]:
        """Take what a full sync gave for all that the backend holds."""
        names = self._syncs.pop(stream, None)
        if names is None:
            return []
        worker, location = stream
        found = self._drop_all(stream, names)
        for name in sorted(names):
            key = (_medium(location), name)
            if self._parts.put(key, worker, location):
                found.append(_stored(key))
        return found

    def _drop_all(self, stream: Stream, but: set[int]) -> list[Event]:
        worker, location = stream
        return [
            _removed(key)
            for key in self._parts.keys(worker, location)
            if key[1] not in but and self._parts.drop(key, worker, location)
        ]


def _operation(said: dict[str, Any]) -> tuple[str, int, int | None]:
    kind = said["op_type"]
    if kind not in {"admit", "evict"}:
        raise ValueError(kind)
    return kind, _name(said["key"]), natural(said.get("seq_num"))


def _name(key: object) -> int:
    if isinstance(key, int) and not isinstance(key, bool):
        return key & (2**64 - 1)
    raise TypeError(key)


def _medium(location: str) -> str:
    return MEDIA.get(location, "EXTERNAL")


def _stored(key: Key) -> Event:
    medium, name = key
    return BlockStored([name], [], medium=medium)


def _removed(key: Key) -> Event:
    medium, name = key
    return BlockRemoved([name], medium)

"""Load: what is running on which worker."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from kvindex._core import Chains
from kvindex.errors import ConfigError
from kvindex.policy.change import Change
from kvindex.policy.check import finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from kvindex.policy.filter import Candidate
    from kvindex.policy.view import Counts

    Slots: TypeAlias = NDArray[np.intp]
    Keys: TypeAlias = Buffer | Sequence[int]

EXPIRY_SECONDS = 300.0
# A change is sent for a request that produces at least so often in its expiry, so
# that it lives on where others track it.
TOUCHES_AN_EXPIRY = 4


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What is running on one candidate.

    Attributes:
        worker: The worker.
        dp_rank: The rank, None for the worker as a whole.
        prefill_tokens: Tokens that wait for their prefill.
        decode_blocks: Distinct blocks in use.
        requests: Running requests.
    """

    worker: str
    dp_rank: int | None
    prefill_tokens: int
    decode_blocks: int
    requests: int


class _Request:
    """One running request."""

    __slots__ = ("chain", "grown", "prefill_tokens", "sent", "slot", "touched")

    def __init__(self, slot: int, chain: int, prefill_tokens: int, now: float) -> None:
        self.slot = slot
        self.chain = chain
        self.prefill_tokens = prefill_tokens
        self.grown = 0
        self.touched = now
        self.sent = now


class Load:
    """Active prefill tokens, blocks in use and requests, by candidate.

    A candidate is a worker's name, or `(name, rank)`. A block that several of a
    candidate's requests share counts once, as an engine with prefix caching holds
    it once. Blocks are told apart by their chain keys.

    A request lives from `add` to `done`. One that was not touched for
    `expiry_seconds` is taken for lost by `expire`; `produced` and
    `prefill_complete` touch it, so a long answer does not lose its load.

    Routers exchange load by changes: `on_change` is called with one for each step,
    and another router's `Load` takes it with `apply`.

    Every method may be called from any thread. `on_change` is called in order,
    within a lock: it should put the change into a queue and return.

    Args:
        block_size: Tokens a block.
        expiry_seconds: More than 0.
        origin: A name for this object that no other has, random by default.
        on_change: Takes each change that is made here.

    Attributes:
        lock: Held while a decision reads the load and adds to it.

    Raises:
        ConfigError: If a number is out of its range.

    Example:
        >>> from kvindex.policy import Load
        >>> load = Load(block_size=16)
        >>> load.add("r1", "w0", chain_keys=[11, 12], prefill_tokens=32, now=0.0)
        >>> load.add("r2", "w0", chain_keys=[11, 13], prefill_tokens=16, now=0.0)
        >>> load.workers()[0].decode_blocks, load.workers()[0].prefill_tokens
        (3, 48)
    """

    def __init__(
        self,
        *,
        block_size: int,
        expiry_seconds: float = EXPIRY_SECONDS,
        origin: str | None = None,
        on_change: Callable[[Change], None] | None = None,
    ) -> None:
        """Start without requests."""
        if block_size < 1:
            msg = f"block_size is {block_size}: expected 1 or more"
            raise ConfigError(msg)
        finite("expiry_seconds", expiry_seconds)
        self.lock = threading.RLock()
        self._block_size = block_size
        self._expiry_seconds = float(expiry_seconds)
        self._origin = uuid.uuid4().hex if origin is None else origin
        self._on_change = on_change
        self._seq = 0
        self._seen: dict[str, int] = {}
        self._slots: dict[Candidate, int] = {}
        self._chains = Chains()
        # By origin and name, least recently touched first.
        self._requests: OrderedDict[tuple[str, str], _Request] = OrderedDict()
        self._prefill_tokens = np.zeros(16, dtype=np.int64)
        self._blocks = np.zeros(16, dtype=np.int64)
        self._running = np.zeros(16, dtype=np.int64)

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self._block_size

    @property
    def expiry_seconds(self) -> float:
        """After how many seconds an untouched request is taken for lost."""
        return self._expiry_seconds

    @property
    def origin(self) -> str:
        """The name of this object in its changes."""
        return self._origin

    def __len__(self) -> int:
        """Return the number of running requests, those of other routers included."""
        return len(self._requests)

    def __bool__(self) -> bool:
        """Return True: a load without requests is still one."""
        return True

    def add(
        self,
        request: str,
        candidate: Candidate,
        *,
        chain_keys: Keys = (),
        prefill_tokens: int = 0,
        now: float | None = None,
    ) -> None:
        """Add a request.

        Args:
            request: A name that no running request has.
            candidate: Where it runs.
            chain_keys: Of its full blocks; none where blocks are not tracked.
            prefill_tokens: Tokens that have to be computed first, 0 or more.
            now: Seconds, `time.monotonic()` if not given.

        Raises:
            ConfigError: If the request is running already, or the number negative.
        """
        if prefill_tokens < 0:
            msg = f"prefill_tokens is {prefill_tokens}: expected 0 or more"
            raise ConfigError(msg)
        with self.lock:
            if (self._origin, request) in self._requests:
                msg = f"request {request!r} is running already: finish it first"
                raise ConfigError(msg)
            self._add(
                (self._origin, request), candidate, chain_keys, prefill_tokens, now
            )
            if self._on_change is not None:
                worker, rank = parted(candidate)
                self._tell(
                    "add",
                    request,
                    worker=worker,
                    dp_rank=rank,
                    chain_keys=little_endian(chain_keys),
                    prefill_tokens=prefill_tokens,
                )

    def prefill_complete(self, request: str, now: float | None = None) -> bool:
        """Take away a request's prefill tokens; its first token is there.

        Returns:
            Whether the request is running.
        """
        with self.lock:
            found = self._prefill_complete((self._origin, request), moment(now))
            if found:
                self._tell("prefill_complete", request)
            return found

    def produced(self, request: str, tokens: int, now: float | None = None) -> bool:
        """Note how many tokens of the answer there are; its prefill is complete.

        Args:
            request: The request.
            tokens: All tokens so far, not those since the last call.
            now: Seconds, `time.monotonic()` if not given.

        Returns:
            Whether the request is running.
        """
        now = moment(now)
        with self.lock:
            key = (self._origin, request)
            entry = self._requests.get(key)
            if entry is None:
                return False
            first = bool(entry.prefill_tokens)
            grown = self._produced(key, tokens, now)
            every = self._expiry_seconds / TOUCHES_AN_EXPIRY
            if first or grown or now - entry.sent >= every:
                entry.sent = now
                self._tell("produced", request, tokens=tokens)
            return True

    def done(self, request: str) -> bool:
        """Take a request away, finished or not.

        Returns:
            Whether it was running; twice is no error.
        """
        with self.lock:
            found = self._done((self._origin, request))
            if found:
                self._tell("done", request)
            return found

    def expire(self, now: float | None = None) -> list[str]:
        """Take away requests that nobody touched for `expiry_seconds`.

        Returns:
            Their names, those of other routers' requests included.
        """
        limit = moment(now) - self._expiry_seconds
        names = []
        with self.lock:
            while self._requests:
                key, entry = next(iter(self._requests.items()))
                if entry.touched > limit:
                    break
                self._done(key)
                names.append(key[1])
                if key[0] == self._origin:
                    self._tell("done", key[1])
        return names

    def apply(self, change: Change, now: float | None = None) -> bool:
        """Take in another router's change.

        A change that was there before, or that comes from this object itself,
        changes nothing. A step of a request that is not known does neither.

        Returns:
            Whether anything changed.
        """
        now = moment(now)
        with self.lock:
            seen = self._seen.get(change.origin, 0)
            if change.origin == self._origin or change.seq <= seen:
                return False
            self._seen[change.origin] = change.seq
            key = (change.origin, change.request)
            if change.kind == "add":
                return self._apply_add(key, change, now)
            if change.kind == "produced" and key in self._requests:
                self._produced(key, change.tokens, now)
                return True
            if change.kind == "prefill_complete":
                return self._prefill_complete(key, now)
            return change.kind == "done" and self._done(key)

    def forget(self, origin: str) -> int:
        """Take away all requests of a router that is gone.

        Returns:
            How many there were.
        """
        with self.lock:
            keys = [key for key in self._requests if key[0] == origin]
            for key in keys:
                self._done(key)
            self._seen.pop(origin, None)
            return len(keys)

    def remove_worker(self, worker: str) -> list[str]:
        """Take away all requests of a worker that is gone, on all of its ranks.

        Returns:
            Their names, those of other routers' requests included.
        """
        with self.lock:
            slots = {
                slot
                for candidate, slot in self._slots.items()
                if parted(candidate)[0] == worker
            }
            keys = [key for key, entry in self._requests.items() if entry.slot in slots]
            for key in keys:
                self._done(key)
                if key[0] == self._origin:
                    self._tell("done", key[1])
            return [name for _, name in keys]

    def slots(self, candidates: Iterable[Candidate]) -> Slots:
        """Return the numbers by which `columns` knows candidates; they never change."""
        with self.lock:
            numbers = [self._slot(candidate) for candidate in candidates]
        return np.array(numbers, dtype=np.intp)

    def columns(
        self, slots: Slots, chain_keys: Keys = ()
    ) -> tuple[Counts, Counts, Counts]:
        """Return active prefill tokens, decode blocks and requests of candidates.

        Args:
            slots: From `slots`.
            chain_keys: Of a prompt; its blocks that are not in use at a candidate
                yet are added to the candidate's decode blocks.
        """
        with self.lock:
            blocks = self._blocks
            if length := len(cast("Sized", chain_keys)):
                in_use = self._chains.shared(chain_keys, len(blocks))
                blocks = blocks + length - np.asarray(in_use)
            return self._prefill_tokens[slots], blocks[slots], self._running[slots]

    def workers(self) -> list[WorkerLoad]:
        """Return a row for every candidate that was ever named."""
        with self.lock:
            return [
                WorkerLoad(
                    *parted(candidate),
                    int(self._prefill_tokens[slot]),
                    int(self._blocks[slot]),
                    int(self._running[slot]),
                )
                for candidate, slot in self._slots.items()
            ]

    def _tell(self, kind: Any, request: str, **fields: Any) -> None:  # noqa: ANN401 - Change checks them
        if self._on_change is not None:
            self._seq += 1
            self._on_change(Change(self._origin, self._seq, kind, request, **fields))

    def _slot(self, candidate: Candidate) -> int:
        slot = self._slots.setdefault(candidate, len(self._slots))
        if slot == len(self._running):
            self._prefill_tokens = np.append(self._prefill_tokens, [0] * slot)
            self._blocks = np.append(self._blocks, [0] * slot)
            self._running = np.append(self._running, [0] * slot)
        return slot

    def _apply_add(self, key: tuple[str, str], change: Change, now: float) -> bool:
        if key in self._requests:
            return False
        rank = change.dp_rank
        candidate = change.worker if rank is None else (change.worker, rank)
        keys = np.frombuffer(change.chain_keys, dtype="<u8").astype(np.uint64).data
        self._add(key, candidate, keys, change.prefill_tokens, now)
        return True

    def _add(
        self,
        key: tuple[str, str],
        candidate: Candidate,
        keys: Keys,
        prefill_tokens: int,
        now: float | None,
    ) -> None:
        slot = self._slot(candidate)
        chain, fresh = self._chains.add(keys, slot)
        self._blocks[slot] += fresh
        self._prefill_tokens[slot] += prefill_tokens
        self._running[slot] += 1
        self._requests[key] = _Request(slot, chain, prefill_tokens, moment(now))

    def _prefill_complete(self, key: tuple[str, str], now: float) -> bool:
        entry = self._requests.get(key)
        if entry is None:
            return False
        self._prefill_tokens[entry.slot] -= entry.prefill_tokens
        entry.prefill_tokens = 0
        entry.touched = now
        self._requests.move_to_end(key)
        return True

    def _produced(self, key: tuple[str, str], tokens: int, now: float) -> bool:
        self._prefill_complete(key, now)
        entry = self._requests[key]
        grown = max(entry.grown, tokens // self._block_size)
        self._blocks[entry.slot] += grown - entry.grown
        changed = grown > entry.grown
        entry.grown = grown
        return changed

    def _done(self, key: tuple[str, str]) -> bool:
        entry = self._requests.pop(key, None)
        if entry is None:
            return False
        slot = entry.slot
        self._blocks[slot] -= self._chains.remove(entry.chain) + entry.grown
        self._prefill_tokens[slot] -= entry.prefill_tokens
        self._running[slot] -= 1
        return True


def little_endian(keys: Keys) -> bytes:
    """Return chain keys as bytes."""
    return np.asarray(keys, dtype=np.uint64).astype("<u8").tobytes()


def parted(candidate: Candidate) -> tuple[str, int | None]:
    """Return a candidate's worker, and its rank where one is named."""
    return (candidate, None) if isinstance(candidate, str) else candidate


def moment(now: float | None) -> float:
    """Return the time that is given, else the clock's."""
    return time.monotonic() if now is None else now

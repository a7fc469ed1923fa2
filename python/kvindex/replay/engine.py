"""A simulated engine: what it holds, what it computes, and what it tells.

One prompt is computed at a time, answers are written beside each other. Blocks of
running requests stay on the device; others leave it, least recently used and
deepest first. Computed blocks are copied to host memory; what leaves that goes to
disk. A request that finds no room on the device waits, and those behind it, too.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from kvindex.replay import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvindex.replay.fleet import Fleet
    from kvindex.replay.trace import Request

DEVICE, HOST, DISK = "GPU", "CPU", "STORAGE"


@dataclass(slots=True)
class Job:
    """A request at an engine.

    Attributes:
        number: Its number in the trace.
        request: The request.
        cached: Blocks that were found on the device, in host memory, on disk.
        started: When its prefill began.
        fresh: Its blocks that were not on the device.
        own: Blocks of the device that only it uses: what is not full, and answers.
    """

    number: int
    request: Request
    cached: tuple[int, int, int] = (0, 0, 0)
    started: float = 0.0
    fresh: list[int] = field(default_factory=list)
    own: int = 0


class Cache:
    """Blocks of one tier in the order of their use, least recent first."""

    __slots__ = ("blocks", "capacity")

    def __init__(self, capacity: int) -> None:
        """Start empty."""
        self.capacity = capacity
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        """Return whether a block is here."""
        return block in self.blocks

    def use(self, blocks: Iterable[int]) -> None:
        """Make blocks the most recently used, the last of them most."""
        for block in blocks:
            self.blocks[block] = None
            self.blocks.move_to_end(block)

    def oldest(self, count: int) -> list[int]:
        """Take away the least recently used."""
        gone = list(islice(self.blocks, max(0, count)))
        for block in gone:
            del self.blocks[block]
        return gone

    def overflow(self) -> list[int]:
        """Take away what is beyond the capacity."""
        return self.oldest(len(self.blocks) - self.capacity)


class Engine:
    """One engine of a fleet.

    Args:
        fleet: How fast it is and how much it holds.
        block_tokens: Tokens a block.
        tells: Whether it publishes events.
    """

    def __init__(self, fleet: Fleet, block_tokens: int, *, tells: bool = True) -> None:
        """Start idle and empty."""
        self.fleet = fleet
        self.block_tokens = block_tokens
        self.tells = tells
        self.idle = True
        self.busy_seconds = 0.0
        self.waiting: deque[Job] = deque()
        # Blocks of running requests, and how many use each.
        self.in_use: dict[int, int] = {}
        self.own = 0
        self.device = Cache(fleet.device_blocks)
        self.host = Cache(fleet.host_blocks)
        self.disk = Cache(fleet.disk_blocks)

    def begin(self, now: float) -> tuple[Job, float, list[bytes]] | None:
        """Begin the next prompt, if the engine is idle and has room for it.

        Returns:
            The job, the time of its first token, and events; None if nothing began.
        """
        if not self.idle or not self.waiting:
            return None
        job = self.waiting[0]
        blocks = job.request.blocks
        total = self.blocks_of(job.request)
        fresh = [
            block
            for block in blocks
            if block not in self.in_use and block not in self.device
        ]
        own = total - len(blocks)
        free = self.fleet.device_blocks - len(self.in_use) - self.own
        kept = sum(block in self.device for block in blocks)
        if len(fresh) + own + kept > free:
            return None
        self.waiting.popleft()
        job.cached, job.started = self.found(blocks), now
        job.fresh, job.own = fresh, own
        for block in blocks:
            self.in_use[block] = self.in_use.get(block, 0) + 1
            self.device.blocks.pop(block, None)
        self.own += own
        gone = self.device.oldest(
            len(self.device.blocks)
            + len(self.in_use)
            + self.own
            - self.fleet.device_blocks
        )
        self.idle = False
        seconds = self.seconds(job)
        self.busy_seconds += seconds
        events = [wire.removed(gone, DEVICE)] if gone and self.tells else []
        return job, now + seconds, events

    def computed(self, job: Job) -> list[bytes]:
        """End a prefill; return the events of the blocks that it stored."""
        self.idle = True
        if not self.tells:
            return []
        parents = dict(zip(job.request.blocks[1:], job.request.blocks, strict=False))
        return [
            wire.stored(run, parents.get(run[0]), self.block_tokens, DEVICE)
            for run in stretches(job.fresh, parents)
        ]

    def offload(self, job: Job) -> list[bytes]:
        """Copy what a job computed to host memory; return the events."""
        blocks = job.request.blocks
        if not self.host.capacity or not blocks:
            return []
        new = [block for block in blocks if block not in self.host]
        self.host.use(reversed(blocks))
        gone = self.host.overflow()
        down = gone if self.disk.capacity else []
        self.disk.use(down)
        dropped = self.disk.overflow()
        if not self.tells:
            return []
        events = wire.placed(new, HOST) + wire.placed(down, DISK)
        if gone:
            events.append(wire.removed(gone, HOST))
        if dropped:
            events.append(wire.removed(dropped, DISK))
        return events

    def finish(self, job: Job) -> None:
        """End an answer: its blocks may leave the device from now on."""
        self.own -= job.own
        free = []
        for block in reversed(job.request.blocks):
            self.in_use[block] -= 1
            if not self.in_use[block]:
                del self.in_use[block]
                free.append(block)
        self.device.use(free)

    def blocks_of(self, request: Request) -> int:
        """Return how many blocks a request fills with its answer."""
        return -(-(request.input_length + request.output_length) // self.block_tokens)

    def found(self, blocks: Sequence[int]) -> tuple[int, int, int]:
        """Return how many leading blocks are cached, each on its nearest tier."""
        device = host = disk = 0
        for block in blocks:
            if block in self.in_use or block in self.device:
                device += 1
            elif block in self.host:
                host += 1
            elif block in self.disk:
                disk += 1
            else:
                break
        return device, host, disk

    def seconds(self, job: Job) -> float:
        """Return how long a job's prefill takes: what is loaded and what computed."""
        device, host, disk = job.cached
        size = self.block_tokens
        cached = (device + host + disk) * size
        # Even of a prompt that is cached as a whole one token is computed.
        rest = max(1, job.request.input_length - cached)
        return (
            rest / self.fleet.prefill_speed
            + host * size / self.fleet.host_speed
            + disk * size / self.fleet.disk_speed
        )


def stretches(blocks: Sequence[int], parents: dict[int, int]) -> Iterable[list[int]]:
    """Yield runs of blocks of which each is the parent of the next."""
    run: list[int] = []
    for block in blocks:
        if run and parents.get(block) != run[-1]:
            yield run
            run = []
        run.append(block)
    if run:
        yield run

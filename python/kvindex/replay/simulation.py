"""The simulation: a trace arrives at a router, and a fleet serves it."""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

import kvindex
from kvindex.errors import ConfigError
from kvindex.policy import Load, Router, Selection
from kvindex.replay import wire
from kvindex.replay.engine import Engine, Job
from kvindex.replay.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvindex.replay.fleet import Fleet
    from kvindex.replay.policies import Named
    from kvindex.replay.trace import Trace

# No request gets lost here, however long it waits.
NEVER = 1e12
STEPS = 100


def simulate(
    trace: Trace,
    fleet: Fleet,
    policy: Named,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Serve a trace by a fleet, routed by a policy.

    Args:
        trace: The requests.
        fleet: The engines.
        policy: Who chooses among them.
        seed: Equal seeds give equal results.
        progress: Called now and then with how many requests came, of how many.

    Raises:
        ConfigError: If a request does not fit on an engine's device.
    """
    run = Run(trace, fleet, policy, seed)
    run.go(progress)
    return run.result()


class Run:
    """One replay: a clock, a queue of what happens next, a router and engines."""

    def __init__(self, trace: Trace, fleet: Fleet, policy: Named, seed: int) -> None:
        """Start before the first request."""
        self.trace = trace
        self.fleet = fleet
        self.policy = policy
        self.random = random.Random(seed)  # noqa: S311 - reproducible
        self.index = kvindex.Indexer(block_size=trace.block_tokens)
        self.names = [f"w{number}" for number in range(fleet.workers)]
        for name in self.names:
            self.index.register(name, profile="vllm")
        self.router = Router(
            self.index,
            self.names,
            policy=policy.make(seed),
            selection=Selection(policy.temperature, seed),
            load=Load(block_size=trace.block_tokens, expiry_seconds=NEVER),
            predictions=policy.predictions,
        )
        self.engines = [
            Engine(fleet, trace.block_tokens, tells=policy.hears) for _ in self.names
        ]
        self.sent = [0] * fleet.workers
        # What happens, when: an ordinal keeps equal times in order.
        self.queue: list[tuple[float, int, Callable[..., None], Any]] = []
        self.ordinals = count()
        requests = len(trace.requests)
        self.workers = np.zeros(requests, dtype=np.int64)
        self.cached = np.zeros((requests, 3), dtype=np.int64)
        self.expected = np.zeros(requests, dtype=np.int64)
        self.ttft = np.zeros(requests, dtype=np.float64)
        for number, request in enumerate(trace.requests):
            if self.engines[0].blocks_of(request) > fleet.device_blocks:
                msg = (
                    f"request {number} needs {self.engines[0].blocks_of(request)} "
                    f"blocks: expected at most device_blocks, {fleet.device_blocks}"
                )
                raise ConfigError(msg)

    def go(self, progress: Callable[[int, int], None] | None) -> None:
        """Let everything happen in its order."""
        total = len(self.trace.requests)
        every = max(1, total // STEPS)
        for number, request in enumerate(self.trace.requests):
            self.until(request.arrival)
            self.arrive(request.arrival, number)
            if progress is not None and (number + 1) % every == 0:
                progress(number + 1, total)
        self.until(float("inf"))
        if progress is not None:
            progress(total, total)

    def until(self, end: float) -> None:
        """Let happen what comes before a time."""
        while self.queue and self.queue[0][0] <= end:
            now, _, what, given = heapq.heappop(self.queue)
            what(now, *given)

    def then(self, time: float, what: Callable[..., None], *given: object) -> None:
        """Let something happen later."""
        heapq.heappush(self.queue, (time, next(self.ordinals), what, given))

    def arrive(self, now: float, number: int) -> None:
        """Route a request."""
        request = self.trace.requests[number]
        tokens = np.zeros(request.input_length, dtype=np.uint32)
        written = wire.tokens(request.blocks, self.trace.block_tokens)
        tokens[: len(written)] = written
        decision = self.router.route(tokens.data, request=str(number), now=now)
        worker = int(decision.worker[1:])
        self.workers[number] = worker
        self.expected[number] = decision.row.depth
        self.engines[worker].waiting.append(Job(number, request))
        self.begin(now, worker)

    def begin(self, now: float, worker: int) -> None:
        """Let an engine begin its next prompt, if it can."""
        begun = self.engines[worker].begin(now)
        if begun is not None:
            job, first, events = begun
            self.cached[job.number] = job.cached
            self.tell(now, worker, events)
            self.then(first, self.first_token, worker, job)

    def first_token(self, now: float, worker: int, job: Job) -> None:
        """End a prefill, and let the next one begin."""
        self.ttft[job.number] = now - job.request.arrival
        self.router.prefill_complete(str(job.number), now)
        self.tell(now, worker, self.engines[worker].computed(job))
        self.then(now + self.fleet.offload_delay, self.offload, worker, job)
        answer = job.request.output_length / self.fleet.decode_speed
        self.then(now + answer, self.finish, worker, job)
        self.begin(now, worker)

    def offload(self, now: float, worker: int, job: Job) -> None:
        """Copy what was computed to host memory."""
        self.tell(now, worker, self.engines[worker].offload(job))

    def finish(self, now: float, worker: int, job: Job) -> None:
        """End an answer, which makes room."""
        self.engines[worker].finish(job)
        self.router.done(str(job.number))
        self.begin(now, worker)

    def tell(self, now: float, worker: int, events: list[bytes]) -> None:
        """Send events to the router, as one batch."""
        if not events:
            return
        sequence = self.sent[worker]
        self.sent[worker] += 1
        if self.fleet.event_loss and self.random.random() < self.fleet.event_loss:
            return
        payload = wire.batch(now, events)
        if self.fleet.event_delay:
            then = now + self.fleet.event_delay
            self.then(then, self.hear, worker, sequence, payload)
        else:
            self.hear(now, worker, sequence, payload)

    def hear(self, _: float, worker: int, sequence: int, payload: bytes) -> None:
        """Take a batch in."""
        self.index.apply(payload, worker=self.names[worker], seq=sequence)

    def result(self) -> Result:
        """Return what happened."""
        return Result(
            trace=self.trace.name,
            policy=self.policy.label,
            block_tokens=self.trace.block_tokens,
            input_lengths=np.array(
                [request.input_length for request in self.trace.requests],
                dtype=np.int64,
            ),
            workers=self.workers,
            cached=self.cached,
            expected=self.expected if self.policy.uses_index else None,
            ttft=self.ttft,
            busy_seconds=np.array([engine.busy_seconds for engine in self.engines]),
        )

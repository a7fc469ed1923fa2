"""How long does a match take while another thread applies batches flat out?

The main thread asks, as a router's does; the other stores chains and removes them
again, so that the index stays as large as it was. *Paced* means that the main
thread sleeps between its calls, and the writer has the interpreter meanwhile; *back
to back* that it does not, and the writer gets it every few milliseconds only. What
the writer got through stands beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from threading import Event, Thread
from time import perf_counter_ns, sleep

import pytest

from bench.duel import Call, Duel, timed
from bench.fleet import Fleet
from bench.peer import removed_event
from bench.sections import BACK_TO_BACK, PACED, WRITTEN, Section
from bench.workload import Batch, Chain, Maker, batches, removal

ROUNDS = 4
ROUND_NS = 400_000_000
PAUSE_SECONDS = 50e-6
# Blocks a batch, and batches a chain.
WRITERS = {
    "nobody writes": (0, 0),
    "8-block batches": (8, 64),
    "8,192-block batches": (8_192, 1),
}
CHAINS = 8


@dataclass(slots=True)
class Side:
    """What one side is asked and told, and what came of it."""

    reads: Sequence[Call]
    writes: Sequence[Sequence[Call]]
    times: list[int] = field(default_factory=list)
    written: int = 0
    nanoseconds: int = 0

    def rate(self, blocks: int) -> float | None:
        """Blocks that the writer got through in a second."""
        return blocks * self.written / self.nanoseconds * 1e9 if self.written else None

    def round(self, pause: Callable[[], object]) -> None:
        """Time one call after the other, beside the writer if there is one."""
        done = Event()
        writer = Thread(target=self._write, args=(done,)) if self.writes else None
        if writer:
            writer.start()
        end = perf_counter_ns() + ROUND_NS
        asked = cycle(self.reads)
        while perf_counter_ns() < end:
            pause()
            self.times.append(timed(next(asked)))
        done.set()
        if writer:
            writer.join()

    def _write(self, done: Event) -> None:
        """Store and remove one chain after the other; end with a whole one."""
        start = perf_counter_ns()
        for calls in cycle(self.writes):
            if done.is_set():
                break
            for call in calls:
                call()
            self.written += len(calls)
        self.nanoseconds += perf_counter_ns() - start


def below(asked: Sequence[Chain], step: int, count: int) -> list[list[Batch]]:
    """Return chains of batches, every other one below a prompt that is asked for."""
    maker = Maker(11)
    return [
        batches(
            maker.chain(step * count),
            step,
            asked[number].names[-1] if number % 2 else None,
        )
        for number in range(CHAINS if step else 0)
    ]


def our_writes(fleet: Fleet, chain: Sequence[Batch]) -> list[Call]:
    """Return calls that store a chain and remove it again, leaf to root."""
    payloads = [batch.payload for batch in chain]
    payloads += [removal(batch.names) for batch in reversed(chain)]
    return [partial(fleet.index.apply, payload, worker="w0") for payload in payloads]


def peer_writes(fleet: Fleet, chain: Sequence[Batch]) -> list[Call]:
    """Return the peer's calls that do the same."""
    if fleet.tree is None:
        return []
    events = [batch.event for batch in chain]
    events += [removed_event(batch.names) for batch in reversed(chain)]
    return [partial(fleet.tree.apply_event, 0, event) for event in events]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "section", [PACED, BACK_TO_BACK], ids=["paced", "back_to_back"]
)
def test_a_match_beside_a_writer(
    duel: Duel, fleet: Fleet, section: Section, writer: str
) -> None:
    step, count = WRITERS[writer]
    asked = fleet.held(64, 64)
    chains = below(asked, step, count)
    ours = Side(
        [partial(fleet.index.match, chain.tokens) for chain in asked],
        [our_writes(fleet, chain) for chain in chains],
    )
    peer = Side(
        fleet.hash_and_find(asked), [peer_writes(fleet, chain) for chain in chains]
    )
    pause = partial(sleep, PAUSE_SECONDS) if section is PACED else int

    def measure() -> None:
        for _ in range(ROUNDS):
            for side in (ours, peer):
                if side.reads:
                    side.round(pause)

    duel.once(measure)
    for chain in asked:
        fleet.check(chain, 64)
    duel.spread(section, writer, ours.times, peer.times)
    if step:
        how = "paced" if section is PACED else "back to back"
        duel.value(WRITTEN, f"{writer}, {how}", ours.rate(step), peer.rate(step))

"""How many calls do several threads get through?

CPython runs one thread at a time: a short call keeps the interpreter, so that more
threads get through no more of them. A call over many prompts lets go of it.
"""

from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from statistics import median
from threading import Barrier, Thread
from time import perf_counter_ns, sleep

import pytest

import kvindex
from bench.duel import Call, Duel
from bench.fleet import Fleet, label
from bench.sections import THREADS

ROUNDS = 3
ROUND_SECONDS = 0.3
# Prompts of 64 blocks: enough for the call to let go of the interpreter.
PROMPTS = 640


def calls_a_second(threads: int, calls: Sequence[Call]) -> float:
    """Let threads call for a while; return their calls a second in total."""
    barrier = Barrier(threads + 1)
    counts = [0] * threads
    running = True

    def work(number: int) -> None:
        mine = islice(cycle(calls), number, None)
        barrier.wait()
        while running:
            next(mine)()
            counts[number] += 1

    workers = [Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = perf_counter_ns()
    sleep(ROUND_SECONDS)
    running = False
    for worker in workers:
        worker.join()
    return sum(counts) / (perf_counter_ns() - start) * 1e9


def kind(by: str, blocks: int, holders: int) -> str:
    """Name what is asked."""
    return f"{' '.join(label(blocks, holders).split())} by {by}"


def compare(
    duel: Duel,
    name: str,
    threads: int,
    ours: Sequence[Call],
    peer: Sequence[Call],
    prompts: int = 1,
) -> None:
    """Let the sides take turns; report the median round of each, in prompts."""
    rates: tuple[list[float], list[float]] = ([], [])

    def measure() -> None:
        for _ in range(ROUNDS):
            for calls, found in zip((ours, peer), rates, strict=True):
                if calls:
                    found.append(prompts * calls_a_second(threads, calls))

    duel.once(measure)
    mine, its = rates
    line = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
    duel.value(THREADS, line, median(mine), median(its) if its else None)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("holders", [1, 64])
def test_match_keys(duel: Duel, fleet: Fleet, threads: int, holders: int) -> None:
    chains = fleet.held(256, holders)
    ours = [partial(fleet.index.match_keys, chain.keys) for chain in chains]
    compare(duel, kind("keys", 256, holders), threads, ours, fleet.find(chains))


@pytest.mark.parametrize("holders", [1, 64])
def test_match_chain(duel: Duel, fleet: Fleet, holders: int) -> None:
    # The peer has no such form.
    keys = [kvindex.chain_keys(chain.keys) for chain in fleet.held(256, holders)]
    ours = [partial(fleet.index.match_chain, chained) for chained in keys]
    compare(duel, kind("chained keys", 256, holders), 1, ours, [])


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_match(duel: Duel, fleet: Fleet, threads: int) -> None:
    chains = fleet.held(64, 64)
    ours = [partial(fleet.index.match, chain.tokens) for chain in chains]
    theirs = fleet.hash_and_find(chains)
    compare(duel, kind("tokens", 64, 64), threads, ours, theirs)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_match_many(duel: Duel, fleet: Fleet, threads: int) -> None:
    chains = fleet.held(64, 64)
    prompts = [chain.tokens for chain in islice(cycle(chains), PROMPTS)]
    single = fleet.hash_and_find(chains)

    def one_by_one() -> None:
        for call in islice(cycle(single), PROMPTS):
            call()

    ours = [partial(fleet.index.match_many, prompts)]
    theirs = [one_by_one] if single else []
    name = f"{kind('tokens', 64, 64)}, {PROMPTS} prompts a call"
    compare(duel, name, threads, ours, theirs, PROMPTS)

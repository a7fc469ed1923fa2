"""What does a routing decision cost, and how much of it is hashing?"""

import numpy as np
import pytest

import kvindex
from bench.duel import Duel
from bench.fleet import Fleet
from bench.sections import ROUTER
from bench.workload import BLOCK, HOLDERS, Chain
from kvindex.policy import Router

# Tokens of a prompt; the longest is a whole book.
LENGTHS = (1_024, 8_192, 100_000)
RUNNING = (0, 2_000)
WORKERS = [f"w{number}" for number in range(HOLDERS)]


@pytest.fixture(scope="module")
def prompts(fleet: Fleet) -> dict[int, Chain]:
    """Return a prompt of each length; all workers hold the first half of it."""
    found = {}
    for length in LENGTHS:
        chain = fleet.maker.chain(length // BLOCK)
        half = len(chain.names) // 2
        event = kvindex.BlockStored(chain.names[:half], chain.tokens[: half * BLOCK])
        for worker in WORKERS:
            fleet.index.apply([event], worker=worker)
        found[length] = chain
    return found


@pytest.fixture(scope="module", params=RUNNING)
def router(
    request: pytest.FixtureRequest, fleet: Fleet, prompts: dict[int, Chain]
) -> Router:
    """Return a router on which requests run, all with the longest prompt's start."""
    router = Router(fleet.index, WORKERS)
    random = np.random.default_rng(5)
    start = prompts[LENGTHS[-1]].tokens
    for number in range(request.param):
        shared = int(random.integers(1, 500)) * BLOCK
        own = np.full(4 * BLOCK, number, dtype=np.uint32)
        tokens = np.concatenate([np.asarray(start)[:shared], own])
        router.route(tokens.data)
    return router


@pytest.mark.parametrize("length", LENGTHS)
def test_a_decision(
    duel: Duel, router: Router, prompts: dict[int, Chain], length: int
) -> None:
    chain = prompts[length]
    running = len(router.load)

    def decide() -> None:
        router.done(router.route(chain.tokens))

    duel.latency(ROUTER, label(length, f"{running:5,} running"), [decide], [])
    assert len(router.load) == running


@pytest.mark.parametrize("length", LENGTHS)
def test_the_hashing_and_matching_in_it(
    duel: Duel, fleet: Fleet, prompts: dict[int, Chain], length: int
) -> None:
    chain = prompts[length]
    candidates = fleet.index.candidates(WORKERS)

    def hash_and_match() -> kvindex.Matches:
        kvindex.chain_keys(kvindex.block_keys(chain.tokens, block_size=BLOCK))
        return fleet.index.match(chain.tokens, workers=candidates)

    assert hash_and_match()[0].depth == length // BLOCK // 2
    duel.latency(ROUTER, label(length, "hash and match"), [hash_and_match], [])


def label(length: int, what: str) -> str:
    """Name a line."""
    return f"{length:7,} tokens, {len(WORKERS)} workers: {what}"

"""What does a routing decision cost, and how much of it is hashing?"""

from collections.abc import Iterator

import numpy as np
import pytest

import kvindex
from bench.duel import Call, Duel
from bench.fleet import Fleet
from bench.sections import ROUTER, SELECTOR
from bench.selector import Selector
from bench.workload import BLOCK, HOLDERS, Chain, batches
from kvindex.policy import Router

# Tokens of a prompt; the longest is a whole book.
LENGTHS = (1_024, 8_192, 100_000)
RUNNING = (0, 2_000)
# Blocks of a batch of events.
STEP = 64
WORKERS = [f"w{number}" for number in range(HOLDERS)]


@pytest.fixture(scope="module")
def prompts(fleet: Fleet) -> dict[int, Chain]:
    """Return a prompt of each length; all workers hold the first half of it."""
    found = {}
    for length in LENGTHS:
        chain = fleet.maker.chain(length // BLOCK)
        for batch in batches(first_half(chain), STEP):
            for worker in WORKERS:
                fleet.index.apply(batch.payload, worker=worker)
        found[length] = chain
    return found


@pytest.fixture(scope="module", params=RUNNING)
def running(
    request: pytest.FixtureRequest, prompts: dict[int, Chain]
) -> list[np.ndarray]:
    """Return the prompts of running requests, all with the longest one's start."""
    random = np.random.default_rng(5)
    start = np.asarray(prompts[LENGTHS[-1]].tokens)
    made = []
    for number in range(request.param):
        shared = int(random.integers(1, 500)) * BLOCK
        own = np.full(4 * BLOCK, number, dtype=np.uint32)
        made.append(np.concatenate([start[:shared], own]))
    return made


@pytest.fixture(scope="module")
def router(fleet: Fleet, running: list[np.ndarray]) -> Router:
    """Return a router on which requests run."""
    router = Router(fleet.index, WORKERS)
    for tokens in running:
        router.route(tokens.data)
    return router


@pytest.fixture(scope="module")
def selector(
    prompts: dict[int, Chain], running: list[np.ndarray]
) -> Iterator[Selector | None]:
    """Return the peer's selector, which knows the same; None without the peer."""
    try:
        selector = Selector(HOLDERS)
    except ImportError:
        yield None
        return
    for chain in prompts.values():
        selector.hold(chain.tokens.tolist(), batches(first_half(chain), STEP))
    for tokens in running:
        selector.begin(tokens.tolist())
    yield selector
    selector.close()


@pytest.mark.parametrize("length", LENGTHS)
def test_a_decision(
    duel: Duel, router: Router, prompts: dict[int, Chain], length: int
) -> None:
    running = len(router.load)
    what = label(length, f"{running:5,} running")
    duel.latency(ROUTER, what, [decision(router, prompts[length])], [])
    assert len(router.load) == running


@pytest.mark.parametrize("length", LENGTHS)
def test_a_decision_beside_the_peer(
    duel: Duel,
    router: Router,
    selector: Selector | None,
    prompts: dict[int, Chain],
    length: int,
) -> None:
    if selector is None:
        pytest.skip("the peer is not installed")
    tokens = prompts[length].tokens.tolist()

    def peer() -> None:
        selector.end(selector.begin(tokens))

    what = label(length, f"{len(router.load):5,} running")
    duel.latency(SELECTOR, what, [decision(router, prompts[length])], [peer])


@pytest.mark.parametrize("length", LENGTHS)
def test_the_hashing_and_matching_in_it(
    duel: Duel, fleet: Fleet, prompts: dict[int, Chain], length: int
) -> None:
    chain = prompts[length]
    candidates = fleet.index.candidates(WORKERS)

    def hash_and_match() -> kvindex.Matches:
        return fleet.index.match_with_keys(chain.tokens, workers=candidates)[0]

    assert hash_and_match()[0].depth == length // BLOCK // 2
    duel.latency(ROUTER, label(length, "hash and match"), [hash_and_match], [])


def decision(router: Router, chain: Chain) -> Call:
    """Return what decides for a prompt and ends it."""
    return lambda: router.done(router.route(chain.tokens))


def first_half(chain: Chain) -> Chain:
    """Return the blocks that workers hold of a prompt."""
    half = len(chain.names) // 2
    return Chain(chain.tokens[: half * BLOCK], chain.names[:half], chain.keys[:half])


def label(length: int, what: str) -> str:
    """Name a line."""
    return f"{length:7,} tokens: {what}"

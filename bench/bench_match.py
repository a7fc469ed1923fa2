"""How long does a match take?"""

from dataclasses import dataclass
from functools import partial
from typing import cast

import pytest

import kvindex
from bench.duel import Call, Duel, Section
from bench.peer import Peer, Scores, Tree
from bench.workload import BLOCK, Chain, Maker, Numbers, batches

KEYS = Section(
    "match by local keys, us p50 / p99, from a buffer; the peer from a list",
    more_is_better=False,
)
TOKENS = Section(
    "match by tokens, us p50 / p99, from a buffer; the peer from a list",
    more_is_better=False,
)
LISTS = Section("match from lists on both sides, us p50 / p99", more_is_better=False)
BEST = Section(
    "match by local keys and name the best worker, us p50 / p99", more_is_better=False
)

BLOCKS = (8, 64, 512, 8192)
HOLDERS = (1, 64, 256)
# Batches of this size fill the indexes.
STEP = 64


@dataclass(slots=True)
class Fleet:
    """Both sides, holding the same, and what they are asked for."""

    index: kvindex.Indexer
    tree: Tree | None
    chains: dict[tuple[int, int], list[Chain]]

    def store(self, chain: Chain, holders: int) -> None:
        """Let so many workers hold a chain."""
        for batch in batches(chain, STEP):
            for worker in range(holders):
                self.index.apply(batch.payload, worker=f"w{worker}")
                if self.tree:
                    self.tree.apply_event(worker, batch.event)

    def check(self) -> None:
        """Check that both sides give the answers that the figures are about."""
        for (blocks, holders), chains in self.chains.items():
            for chain in chains:
                found = self.index.match_keys(chain.keys)
                assert list(found.depths) == [blocks] * holders
                if self.tree:
                    scores = self.tree.find_matches(chain.keys.tolist()).scores
                    assert list(scores.values()) == [blocks] * holders


@pytest.fixture(scope="module")
def fleet(peer: Peer | None) -> Fleet:
    maker = Maker(3)
    index = kvindex.Indexer(block_size=BLOCK)
    made = Fleet(index, peer.tree() if peer else None, {})
    for holders in HOLDERS:
        for blocks in BLOCKS:
            count = max(1, min(32, 2048 // blocks))
            chains = [maker.chain(blocks) for _ in range(count)]
            made.chains[blocks, holders] = chains
            for chain in chains:
                made.store(chain, holders)
    made.check()
    return made


def label(blocks: int, holders: int) -> str:
    """Name a line."""
    return f"{blocks:5} blocks, {holders:3} holder{'s' if holders > 1 else ''}"


def find(fleet: Fleet, chains: list[Chain]) -> list[Call]:
    """Return the peer's calls by local keys."""
    if fleet.tree is None:
        return []
    return [partial(fleet.tree.find_matches, chain.keys.tolist()) for chain in chains]


def hash_and_find(fleet: Fleet, peer: Peer | None, chains: list[Chain]) -> list[Call]:
    """Return the peer's calls by tokens."""
    if fleet.tree is None or peer is None:
        return []
    hashed, found = peer.hash_tokens, fleet.tree.find_matches

    def match(tokens: list[int]) -> Scores:
        return found(hashed(tokens, BLOCK))

    return [partial(match, chain.tokens.tolist()) for chain in chains]


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("holders", HOLDERS)
def test_by_keys(duel: Duel, fleet: Fleet, blocks: int, holders: int) -> None:
    chains = fleet.chains[blocks, holders]
    ours = [partial(fleet.index.match_keys, chain.keys) for chain in chains]
    duel.latency(KEYS, label(blocks, holders), ours, find(fleet, chains))


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("holders", HOLDERS)
def test_by_tokens(
    duel: Duel, fleet: Fleet, peer: Peer | None, blocks: int, holders: int
) -> None:
    chains = fleet.chains[blocks, holders]
    ours = [partial(fleet.index.match, chain.tokens) for chain in chains]
    theirs = hash_and_find(fleet, peer, chains)
    duel.latency(TOKENS, label(blocks, holders), ours, theirs)


@pytest.mark.parametrize("blocks", BLOCKS)
def test_by_a_list_of_keys(duel: Duel, fleet: Fleet, blocks: int) -> None:
    chains = fleet.chains[blocks, 64]
    match = fleet.index.match_keys
    ours = [partial(match, chain.keys.tolist()) for chain in chains]
    name = f"keys:   {label(blocks, 64)}"
    duel.latency(LISTS, name, ours, find(fleet, chains))


@pytest.mark.parametrize("blocks", BLOCKS)
def test_by_a_list_of_tokens(
    duel: Duel, fleet: Fleet, peer: Peer | None, blocks: int
) -> None:
    chains = fleet.chains[blocks, 64]
    match = fleet.index.match
    ours = [partial(match, chain.tokens.tolist()) for chain in chains]
    theirs = hash_and_find(fleet, peer, chains)
    duel.latency(LISTS, f"tokens: {label(blocks, 64)}", ours, theirs)


@pytest.mark.parametrize("holders", HOLDERS)
def test_the_best_worker(duel: Duel, fleet: Fleet, holders: int) -> None:
    chains = fleet.chains[64, holders]

    def ours(keys: Numbers) -> kvindex.Match | None:
        return fleet.index.match_keys(keys).best()

    def theirs(call: Call) -> tuple[int, int]:
        scores = cast("Scores", call()).scores
        return max(scores, key=scores.__getitem__)

    duel.latency(
        BEST,
        label(64, holders),
        [partial(ours, chain.keys) for chain in chains],
        [partial(theirs, call) for call in find(fleet, chains)],
    )

"""Both sides, holding the same, and the calls that ask them."""

from collections.abc import Sequence
from functools import partial

import kvindex
from bench.duel import Call
from bench.peer import Peer, Scores
from bench.workload import BLOCK, Chain, Maker, batches

# Batches of this size fill the indexes.
STEP = 64
# Chains of one kind: as many blocks as this, at most so many chains.
BLOCKS_A_KIND = 2_048
CHAINS_A_KIND = 32


class Fleet:
    """An index, the peer's tree where there is one, and what both hold."""

    def __init__(self, peer: Peer | None) -> None:
        """Start empty."""
        self.maker = Maker(3)
        self.index = kvindex.Indexer(block_size=BLOCK)
        self.peer = peer
        self.tree = peer.tree() if peer else None
        self.chains: dict[tuple[int, int], list[Chain]] = {}

    def held(self, blocks: int, holders: int) -> list[Chain]:
        """Return chains of so many blocks that so many workers hold."""
        if (blocks, holders) not in self.chains:
            count = max(1, min(CHAINS_A_KIND, BLOCKS_A_KIND // blocks))
            chains = [self.maker.chain(blocks) for _ in range(count)]
            for chain in chains:
                self._store(chain, holders)
                self.check(chain, holders)
            self.chains[blocks, holders] = chains
        return self.chains[blocks, holders]

    def find(self, chains: Sequence[Chain]) -> list[Call]:
        """Return the peer's calls by local keys."""
        if self.tree is None:
            return []
        found = self.tree.find_matches
        return [partial(found, chain.keys.tolist()) for chain in chains]

    def hash_and_find(self, chains: Sequence[Chain]) -> list[Call]:
        """Return the peer's calls by tokens."""
        if self.tree is None or self.peer is None:
            return []
        hashed, found = self.peer.hash_tokens, self.tree.find_matches

        def match(tokens: list[int]) -> Scores:
            return found(hashed(tokens, BLOCK))

        return [partial(match, chain.tokens.tolist()) for chain in chains]

    def _store(self, chain: Chain, holders: int) -> None:
        for batch in batches(chain, STEP):
            for worker in range(holders):
                self.index.apply(batch.payload, worker=f"w{worker}")
                if self.tree:
                    self.tree.apply_event(worker, batch.event)

    def check(self, chain: Chain, holders: int) -> None:
        """Check that both sides give the answers that the figures are about."""
        blocks = len(chain.names)
        found = self.index.match_keys(chain.keys)
        assert list(found.depths) == [blocks] * holders
        if self.tree:
            scores = self.tree.find_matches(chain.keys.tolist()).scores
            assert list(scores.values()) == [blocks] * holders


def label(blocks: int, holders: int) -> str:
    """Name a line."""
    return f"{blocks:5} blocks, {holders:3} holder{'s' if holders > 1 else ''}"

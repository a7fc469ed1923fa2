"""How long does a match take?"""

from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

import kvindex
from bench.duel import Call, Duel
from bench.fleet import Fleet, label
from bench.sections import BEST, KEYS, LISTS, TOKENS
from bench.workload import Numbers

if TYPE_CHECKING:
    from bench.peer import Scores


BLOCKS = (8, 64, 512, 8192)
HOLDERS = (1, 64, 256)


@pytest.fixture(scope="module", autouse=True)
def _filled(fleet: Fleet) -> None:
    """Let both sides hold everything before the first line is measured."""
    for holders in HOLDERS:
        for blocks in BLOCKS:
            fleet.held(blocks, holders)


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("holders", HOLDERS)
def test_by_keys(duel: Duel, fleet: Fleet, blocks: int, holders: int) -> None:
    chains = fleet.held(blocks, holders)
    ours = [partial(fleet.index.match_keys, chain.keys) for chain in chains]
    duel.latency(KEYS, label(blocks, holders), ours, fleet.find(chains))


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("holders", HOLDERS)
def test_by_tokens(duel: Duel, fleet: Fleet, blocks: int, holders: int) -> None:
    chains = fleet.held(blocks, holders)
    ours = [partial(fleet.index.match, chain.tokens) for chain in chains]
    duel.latency(TOKENS, label(blocks, holders), ours, fleet.hash_and_find(chains))


@pytest.mark.parametrize("blocks", BLOCKS)
def test_by_a_list_of_keys(duel: Duel, fleet: Fleet, blocks: int) -> None:
    chains = fleet.held(blocks, 64)
    match = fleet.index.match_keys
    ours = [partial(match, chain.keys.tolist()) for chain in chains]
    duel.latency(LISTS, f"keys:   {label(blocks, 64)}", ours, fleet.find(chains))


@pytest.mark.parametrize("blocks", BLOCKS)
def test_by_a_list_of_tokens(duel: Duel, fleet: Fleet, blocks: int) -> None:
    chains = fleet.held(blocks, 64)
    match = fleet.index.match
    ours = [partial(match, chain.tokens.tolist()) for chain in chains]
    theirs = fleet.hash_and_find(chains)
    duel.latency(LISTS, f"tokens: {label(blocks, 64)}", ours, theirs)


@pytest.mark.parametrize("holders", HOLDERS)
def test_the_best_worker(duel: Duel, fleet: Fleet, holders: int) -> None:
    chains = fleet.held(64, holders)

    def ours(keys: Numbers) -> kvindex.Match | None:
        return fleet.index.match_keys(keys).best()

    def theirs(call: Call) -> tuple[int, int]:
        scores = cast("Scores", call()).scores
        return max(scores, key=scores.__getitem__)

    duel.latency(
        BEST,
        label(64, holders),
        [partial(ours, chain.keys) for chain in chains],
        [partial(theirs, call) for call in fleet.find(chains)],
    )

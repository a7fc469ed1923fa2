"""Where does a match's time go, and what does the form of its input cost?

Calls are timed in loops here: a clock that is read around each call takes about as
long as the shortest of them.
"""

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from typing import TypeAlias

import numpy as np
import pytest

import kvindex
from bench.duel import Call, Duel
from bench.fleet import Fleet, label
from bench.sections import CLOCK, INPUT, MANY, PARTS
from bench.workload import BLOCK, Numbers

LOOPS = 16
ROUNDS = 40


def loop(call: Callable[..., object], arguments: Sequence[object]) -> Call:
    """Return a call that goes over the arguments a few times."""

    def run() -> None:
        for _ in range(LOOPS):
            for argument in arguments:
                call(argument)

    return run


def nothing(_: object) -> None:
    """Do nothing: what the loop and a call of Python's own take."""


def rows(found: kvindex.Matches) -> list[kvindex.Match]:
    """Make every row an object."""
    return list(found)


def columns(found: kvindex.Matches) -> object:
    """Take what a vectorised score needs."""
    return np.asarray(found.depths), np.asarray(found.scores)


def keys_of(tokens: Numbers) -> Numbers:
    """Hash a prompt's tokens."""
    return kvindex.block_keys(tokens, block_size=BLOCK)


# What is asked with, and by which call.
Part: TypeAlias = tuple[str, Callable[[kvindex.Indexer], Callable[..., object]]]

PARTS_OF_IT: dict[str, Part] = {
    "an empty Python call": ("tokens", lambda _: nothing),
    "match of an empty array: the call alone": ("none", lambda index: index.match),
    "block_keys: hashing the tokens": ("tokens", lambda _: keys_of),
    "chain_keys: chaining the keys": ("keys", lambda _: kvindex.chain_keys),
    "match_chain: chained keys given": ("chained", lambda index: index.match_chain),
    "match_keys: local keys given": ("keys", lambda index: index.match_keys),
    "match: tokens given": ("tokens", lambda index: index.match),
    "match(...).best()": (
        "tokens",
        lambda index: lambda tokens: index.match(tokens).best(),
    ),
    "match(...), depths and scores as arrays": (
        "tokens",
        lambda index: lambda tokens: columns(index.match(tokens)),
    ),
    "list(match(...)): every row an object": (
        "tokens",
        lambda index: lambda tokens: rows(index.match(tokens)),
    ),
}


def test_the_clock(duel: Duel) -> None:
    duel.latency(CLOCK, "the clock and the call", [partial(nothing, None)], [])


@pytest.mark.parametrize("part", PARTS_OF_IT)
@pytest.mark.parametrize("holders", [1, 64])
def test_the_parts_of_a_match(
    duel: Duel, fleet: Fleet, part: str, holders: int
) -> None:
    chains = fleet.held(64, holders)
    asked, of = PARTS_OF_IT[part]
    arguments = [
        {
            "none": np.empty(0, np.uint32),
            "tokens": np.asarray(chain.tokens),
            "keys": np.asarray(chain.keys),
            "chained": np.asarray(kvindex.chain_keys(chain.keys)),
        }[asked]
        for chain in chains
    ]
    name = f"{holders:2} holder{'s' if holders > 1 else ''}: {part}"
    ours = loop(of(fleet.index), arguments)
    duel.span(PARTS, name, LOOPS * len(arguments), ours, None)


FORMS: dict[str, Callable[[Numbers], object]] = {
    "numpy, 32 bits": np.asarray,
    "numpy, 64 bits": lambda tokens: np.asarray(tokens).astype(np.int64),
    "array, 32 bits": lambda tokens: array("I", tokens),
    "memoryview, 32 bits": memoryview,
    "list": list,
    "tuple": tuple,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("blocks", [64, 512])
def test_the_form_of_the_input(
    duel: Duel, fleet: Fleet, form: str, blocks: int
) -> None:
    chains = fleet.held(blocks, 64)
    arguments = [FORMS[form](chain.tokens) for chain in chains]
    ours = loop(fleet.index.match, arguments)
    name = f"{label(blocks, 64)}: {form}"
    duel.span(INPUT, name, LOOPS * len(arguments), ours, None)


@pytest.mark.parametrize("prompts", [1, 8, 64, 512])
def test_many_prompts_in_one_call(duel: Duel, fleet: Fleet, prompts: int) -> None:
    chains = list(islice(cycle(fleet.held(64, 64)), max(prompts, 64)))
    asked = [chain.tokens for chain in chains]
    single = [partial(fleet.index.match, tokens) for tokens in asked]
    ours, name = one_by_one(single), "match of each"
    if prompts > 1:
        many = [asked[at : at + prompts] for at in range(0, len(asked), prompts)]
        ours = one_by_one([partial(fleet.index.match_many, part) for part in many])
        name = f"match_many of {prompts}; the peer's one by one"
    theirs = fleet.hash_and_find(chains)
    peer = [one_by_one(theirs)] * ROUNDS if theirs else []
    duel.rate(MANY, name, len(asked), [ours] * ROUNDS, peer)


def one_by_one(calls: Sequence[Call]) -> Call:
    """Return a call that makes all of them."""

    def run() -> None:
        for call in calls:
            call()

    return run

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

LOOPS = 4
PROMPTS = 512
EACH = "match of each"


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


@pytest.mark.parametrize("holders", [1, 64])
def test_the_parts_of_a_match(duel: Duel, fleet: Fleet, holders: int) -> None:
    chains = fleet.held(64, holders)
    given = {
        "none": [np.empty(0, np.uint32) for _ in chains],
        "tokens": [np.asarray(chain.tokens) for chain in chains],
        "keys": [np.asarray(chain.keys) for chain in chains],
        "chained": [np.asarray(kvindex.chain_keys(chain.keys)) for chain in chains],
    }
    which = f"{holders:2} holder{'s' if holders > 1 else ''}"
    calls = {
        f"{which}: {part}": loop(of(fleet.index), given[asked])
        for part, (asked, of) in PARTS_OF_IT.items()
    }
    duel.turns(PARTS, LOOPS * len(chains), calls, {})


FORMS: dict[str, Callable[[Numbers], object]] = {
    "numpy, 32 bits": np.asarray,
    "numpy, 64 bits": lambda tokens: np.asarray(tokens).astype(np.int64),
    "array, 32 bits": lambda tokens: array("I", tokens),
    "memoryview, 32 bits": memoryview,
    "list": list,
    "tuple": tuple,
}


@pytest.mark.parametrize("blocks", [64, 512])
def test_the_form_of_the_input(duel: Duel, fleet: Fleet, blocks: int) -> None:
    chains = fleet.held(blocks, 64)
    calls = {
        f"{label(blocks, 64)}: {name}": loop(
            fleet.index.match, [form(chain.tokens) for chain in chains]
        )
        for name, form in FORMS.items()
    }
    duel.turns(INPUT, LOOPS * len(chains), calls, {})


def test_many_prompts_in_one_call(duel: Duel, fleet: Fleet) -> None:
    chains = list(islice(cycle(fleet.held(64, 64)), PROMPTS))
    asked = [chain.tokens for chain in chains]
    index = fleet.index
    ours = {EACH: one_by_one([partial(index.match, tokens) for tokens in asked])}
    for size in (8, 64, PROMPTS):
        parts = [asked[at : at + size] for at in range(0, PROMPTS, size)]
        calls = [partial(index.match_many, part) for part in parts]
        ours[f"match_many of {size}"] = one_by_one(calls)
    theirs = fleet.hash_and_find(chains)
    peer = {name: one_by_one(theirs) for name in ours} if theirs else {}
    duel.turns(MANY, PROMPTS, ours, peer)


def one_by_one(calls: Sequence[Call]) -> Call:
    """Return a call that makes all of them."""

    def run() -> None:
        for call in calls:
            call()

    return run

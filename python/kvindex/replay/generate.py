"""Traces that are made up: the shapes of work that fleets see."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from kvindex.errors import ConfigError
from kvindex.replay.trace import BLOCK_TOKENS, Request, Trace, ordered

# A system prompt, a document or an answer of this many tokens, by a factor.
SPREAD = (0.5, 1.0, 2.0)


@dataclass(slots=True)
class _Maker:
    """Chance, and identifiers of blocks that nobody has used yet."""

    random: random.Random
    block_tokens: int
    numbers: Iterator[int] = field(default_factory=count)

    def tokens(self, mean: int) -> int:
        """Return a length about this."""
        return max(1, round(mean * self.random.choice(SPREAD)))

    def text(self, tokens: int) -> _Text:
        """Return a text that shares nothing with others."""
        full = tokens // self.block_tokens
        return _Text(tokens, [next(self.numbers) for _ in range(full)])

    def longer(self, text: _Text, tokens: int) -> _Text:
        """Return a text that begins like another."""
        length = text.tokens + tokens
        more = length // self.block_tokens - len(text.blocks)
        return _Text(length, text.blocks + [next(self.numbers) for _ in range(more)])


@dataclass(slots=True)
class _Text:
    """Some tokens, and identifiers of their full blocks."""

    tokens: int
    blocks: list[int]


# Requests, given how many there should be and the seconds that they take.
Shape: TypeAlias = Callable[[_Maker, int, float], Iterator[Request]]


def _asked(text: _Text, arrival: float, answer: int) -> Request:
    return Request(arrival, text.tokens, answer, tuple(text.blocks))


def _talks(
    make: _Maker, requests: int, seconds: float, *, turns: int, words: int, pause: float
) -> Iterator[Request]:
    """Yield talks: each turn repeats all before it. Some share a system prompt."""
    systems = [make.text(make.tokens(2_048)) for _ in range(8)]
    made = 0
    while made < requests:
        arrival = make.random.uniform(0, seconds)
        text = make.random.choice(systems)
        for _ in range(make.random.randint(1, 2 * turns - 1)):
            text = make.longer(text, make.tokens(words))
            answer = make.tokens(256)
            yield _asked(text, arrival, answer)
            made += 1
            text = make.longer(text, answer)
            arrival += answer / 50 + make.random.expovariate(1 / pause)


def chat(make: _Maker, requests: int, seconds: float) -> Iterator[Request]:
    """Yield talks of people: short turns, long pauses."""
    return _talks(make, requests, seconds, turns=5, words=512, pause=30.0)


def agent(make: _Maker, requests: int, seconds: float) -> Iterator[Request]:
    """Yield talks of agents: many turns, long results of tools, no pauses."""
    return _talks(make, requests, seconds, turns=12, words=1_536, pause=1.0)


def rag(make: _Maker, requests: int, seconds: float) -> Iterator[Request]:
    """Yield questions about documents, of which few are asked for often."""
    documents = [make.text(make.tokens(8_192)) for _ in range(max(1, requests // 10))]
    for _ in range(requests):
        at = int(len(documents) * make.random.random() ** 3)
        text = make.longer(documents[at], make.tokens(256))
        yield _asked(text, make.random.uniform(0, seconds), make.tokens(128))


def batch(make: _Maker, requests: int, seconds: float) -> Iterator[Request]:
    """Yield jobs: many prompts with one long beginning, all at once."""
    made = 0
    while made < requests:
        start = make.text(make.tokens(4_096))
        arrival = make.random.uniform(0, seconds)
        for _ in range(make.random.randint(50, 200)):
            text = make.longer(start, make.tokens(1_024))
            yield _asked(text, arrival, make.tokens(64))
            made += 1


SHAPES: dict[str, Shape] = {"chat": chat, "agent": agent, "rag": rag, "batch": batch}


def generate(
    shape: str,
    *,
    requests: int = 10_000,
    rate: float = 4.0,
    seed: int = 0,
    block_tokens: int = BLOCK_TOKENS,
) -> Trace:
    """Make up a trace.

    Args:
        shape: `chat`, `agent`, `rag` or `batch`.
        requests: How many.
        rate: About how many arrive a second.
        seed: Equal seeds give equal traces.
        block_tokens: Tokens a block.

    Raises:
        ConfigError: If the shape is unknown or a number not above zero.
    """
    if shape not in SHAPES:
        msg = f"shape is {shape!r}: expected one of {', '.join(SHAPES)}"
        raise ConfigError(msg)
    for name, value in (("requests", requests), ("rate", rate)):
        if not value > 0:
            msg = f"{name} is {value}: expected more than 0"
            raise ConfigError(msg)
    make = _Maker(random.Random(seed), block_tokens)  # noqa: S311 - reproducible
    made = ordered(SHAPES[shape](make, requests, requests / rate))
    return Trace(f"{shape}-{seed}", made[:requests], block_tokens)

"""Traces: which requests came when, and what their prompts share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvindex.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        arrival: Seconds from the start of the trace.
        input_length: Tokens of the prompt.
        output_length: Tokens of the answer.
        blocks: An identifier for each full block of the prompt. It stands for the
            block and all before it: prompts with one in common begin alike.
    """

    arrival: float
    input_length: int
    output_length: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order in which they arrive.

    Attributes:
        name: What to call it.
        requests: The requests.
        block_tokens: Tokens a block.
    """

    name: str
    requests: tuple[Request, ...]
    block_tokens: int = BLOCK_TOKENS

    @property
    def input_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(request.input_length for request in self.requests)

    @property
    def seconds(self) -> float:
        """Seconds from the first arrival to the last."""
        if not self.requests:
            return 0.0
        return self.requests[-1].arrival - self.requests[0].arrival

    def faster(self, speed: float) -> Trace:
        """Return the same requests, arriving so many times as fast."""
        if not speed > 0:
            msg = f"speed is {speed}: expected more than 0"
            raise ConfigError(msg)
        requests = tuple(
            Request(
                request.arrival / speed,
                request.input_length,
                request.output_length,
                request.blocks,
            )
            for request in self.requests
        )
        return Trace(self.name, requests, self.block_tokens)

    def first(self, count: int) -> Trace:
        """Return the trace's first requests."""
        return Trace(self.name, self.requests[:count], self.block_tokens)


def read(path: str | Path, *, block_tokens: int = BLOCK_TOKENS) -> Trace:
    """Read a trace: a line of JSON for each request.

    A line has `timestamp` (milliseconds), `input_length` and `output_length`
    (tokens), and `hash_ids`, a non-negative integer for each block of the prompt,
    the partial one at its end included or not. These are the public traces of
    Mooncake, in blocks of 512 tokens. Other fields are ignored.

    Raises:
        ConfigError: If a line is no such object; it names the line and the rule.
        OSError: If the file cannot be read.
    """
    path = Path(path)
    numbers: dict[int, int] = {}
    with path.open(encoding="utf-8") as lines:
        requests = [
            parsed(f"{path.name}, line {number}", line, block_tokens, numbers)
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    return Trace(path.stem, ordered(requests), block_tokens)


def ordered(requests: Iterable[Request]) -> tuple[Request, ...]:
    """Return requests in the order in which they arrive."""
    return tuple(sorted(requests, key=lambda request: request.arrival))


def parsed(
    place: str, line: str, block_tokens: int, numbers: dict[int, int]
) -> Request:
    """Return the request of one line; blocks get small numbers of their own."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        msg = f"{place}: {error}"
        raise ConfigError(msg) from error
    if not isinstance(fields, dict):
        msg = f"{place}: expected an object, got {line.strip()[:40]}"
        raise ConfigError(msg)
    timestamp = fields.get("timestamp")
    if not isinstance(timestamp, int | float) or not timestamp >= 0:
        msg = f"{place}: timestamp is {timestamp!r}: expected milliseconds, 0 or more"
        raise ConfigError(msg)
    length = counted(place, fields, "input_length")
    blocks = fields.get("hash_ids")
    if (
        not isinstance(blocks, list)
        or not all(map(identifies, blocks))
        or len(set(blocks)) < len(blocks)
    ):
        msg = f"{place}: hash_ids is not a list of different integers, 0 or more"
        raise ConfigError(msg)
    full = length // block_tokens
    if len(blocks) not in {full, -(-length // block_tokens)}:
        msg = (
            f"{place}: {len(blocks)} hash_ids for {length} tokens: "
            f"expected one for each {block_tokens} tokens"
        )
        raise ConfigError(msg)
    answer = counted(place, fields, "output_length")
    known = tuple(numbers.setdefault(block, len(numbers)) for block in blocks[:full])
    return Request(timestamp / 1000, length, answer, known)


def identifies(value: object) -> bool:
    """Return whether a value can name a block."""
    return isinstance(value, int) and value >= 0


def counted(place: str, fields: dict[str, Any], name: str) -> int:
    """Return a number of tokens."""
    value = fields.get(name)
    if not isinstance(value, int) or value < 0:
        msg = f"{place}: {name} is {value!r}: expected an integer, 0 or more"
        raise ConfigError(msg)
    return value

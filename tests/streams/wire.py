"""What the bytes of a stream say, read with msgspec and nothing of kvindex.

Used for two things: to count what a faultless reader must count, and to find the
few places where the wire says less than the engine knows (`content`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from tests.streams import load, low64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.streams import Name, Request, Stream

STORED = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
)
REMOVED = ("block_hashes", "medium", "group_idx")

Block = tuple[tuple[Any, ...], tuple[str, ...]]
"""The tokens (or token pairs) of one block and its images."""

Content = tuple[str, str, tuple[Block, ...]]
"""All that the wire tells of a block: LoRA name, salt, and its whole prefix."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many hashes of the main group a stream stores, removes and skips."""

    stored: int
    removed: int
    cleared: int
    other_groups: int


def events(payload: bytes) -> list[dict[str, Any]]:
    """Decode one batch; positional events become maps."""
    batch = msgspec.msgpack.decode(payload)
    return [_as_map(event) for event in batch[1]]


def _as_map(event: dict[str, Any] | list[Any]) -> dict[str, Any]:
    if isinstance(event, dict):
        return event
    fields = STORED if event[0] == "BlockStored" else REMOVED
    return {"type": event[0], **dict(zip(fields, event[1:], strict=False))}


def is_main(event: dict[str, Any]) -> bool:
    """Tell whether an event concerns the full-attention group of its model."""
    return event.get("group_idx") in (None, 0)


def counts(stream: Stream, after: int) -> Counts:
    """Count the hashes of a stream's first `after` batches."""
    total: Counter[str] = Counter()
    for message in stream.messages[:after]:
        for event in events(message.payload):
            if event["type"] == "AllBlocksCleared":
                total["cleared"] += 1
            elif not is_main(event):
                total["other"] += len(event["block_hashes"])
            else:
                total[event["type"]] += len(event["block_hashes"])
    return Counts(
        stored=total["BlockStored"],
        removed=total["BlockRemoved"],
        cleared=total["cleared"],
        other_groups=total["other"],
    )


@cache
def contents(family: str, name: str) -> dict[int, Content]:
    """Map every name that a stream explains with tokens to its content."""
    found: dict[int, Content] = {}
    for message in load(family, name).messages:
        for event in events(message.payload):
            if event["type"] == "BlockStored" and event["token_ids"] and is_main(event):
                for block, content in _blocks(event, found, family):
                    found.setdefault(low64(block), content)
    return found


def _blocks(
    event: dict[str, Any], known: dict[int, Content], family: str
) -> Iterator[tuple[Name, Content]]:
    parent = event["parent_block_hash"]
    lora, salt, prefix = ("", "", ()) if parent is None else known[low64(parent)]
    lora = event.get("lora_name") or (lora if family == "vllm" else "")
    salt = event.get("cache_salt") or (salt if family == "vllm" else "")
    tokens, size = event["token_ids"], event["block_size"]
    extra = event.get("extra_keys") or [None] * len(event["block_hashes"])
    for i, block in enumerate(event["block_hashes"]):
        keys = list(extra[i] or [])
        if lora in keys:
            keys.remove(lora)
        salt = next((key for key in keys if isinstance(key, str)), salt)
        images = sorted(key[0] for key in keys if isinstance(key, list))
        units = tuple(map(_unit, tokens[i * size : (i + 1) * size]))
        prefix = (*prefix, (units, tuple(images)))
        yield block, (lora, salt, prefix)


def _unit(token: Any) -> Any:  # noqa: ANN401 - a number, or a pair of them
    return tuple(token) if isinstance(token, list) else token


def request_contents(stream: Stream, request: Request) -> list[Content]:
    """Return the content of every full block of a request, as the wire names it."""
    units: list[Any] = request.tokens
    if stream.meta.get("is_eagle"):
        units = list(zip(request.tokens, request.tokens[1:], strict=False))
    size = stream.block_size
    prefix: tuple[Block, ...] = ()
    found: list[Content] = []
    for start in range(0, len(units) - size + 1, size):
        images = sorted(
            identifier
            for identifier, first, length in request.mm
            if first < start + size and start < first + length
        )
        prefix = (*prefix, (tuple(units[start : start + size]), tuple(images)))
        found.append((request.lora_name or "", request.cache_salt or "", prefix))
    return found

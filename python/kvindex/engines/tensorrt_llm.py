"""TensorRT-LLM: the events of its pull API, and those of its publisher.

The pull API (`get_kv_cache_events`, or what the server returns for it) gives one
dict an event, numbered for each attention-DP rank. A block is a node of the
engine's tree and lies on one cache level: 0 is the device, 1 the host. Its copies
are not counted. The publisher sends batches of vLLM's wire, numbered by its
frames and without levels.

    created   which windows there are; the largest one is followed
    stored    blocks below a parent, the last one perhaps not full
    updated   a block moved to another level
    removed   blocks that are gone, and all below them
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvindex.engines.engine import Batch, Engine, Event
from kvindex.engines.reading import (
    MALFORMED,
    MISSHAPEN,
    is_batch,
    left_out,
    natural,
    records,
    stream,
    unknown,
)
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

Name = int | bytes
MEDIA = ("GPU", "CPU", "DISK")
"""What a cache level is called here; deeper ones are disks, too."""


@dataclass(slots=True)
class Node:
    """A block of the tree."""

    level: int
    parent: Name | None
    children: set[Name] = field(default_factory=set)


@dataclass(slots=True)
class Block:
    """One block of a stored event."""

    name: Name
    tokens: list[Any]
    level: int
    salt: str | None
    images: list[list[str | int]]


@dataclass(slots=True)
class Said:
    """What one event says."""

    kind: str
    window: tuple[int, int]
    names: list[Name]
    parent: Name | None = None
    blocks: list[Block] = field(default_factory=list)
    level: int | None = None

    @classmethod
    def of(cls, event: dict[str, Any]) -> Said:
        """Read an event; raises one of `MISSHAPEN`."""
        data = event["data"]
        # Of groups with equal windows the first is followed.
        size = natural(event.get("window_size")) or 0
        group = natural(event.get("layer_group_id")) or 0
        said = cls(data["type"], (size, -group), [])
        if said.kind == "stored":
            parent = data["parent_hash"]
            said.parent = None if parent is None else _name(parent)
            said.blocks = [_block(block) for block in data["blocks"]]
            said.names = [block.name for block in said.blocks]
        elif said.kind == "updated":
            said.names = [_name(data["block_hash"])]
            change = data.get("cache_level")
            said.level = None if change is None else _level(change["new_value"])
        elif said.kind == "removed":
            said.names = [_name(name) for name in data["block_hashes"]]
        return said


class TensorRtLlm:
    """Reads one worker's events, and knows each rank's tree."""

    def __init__(self, block_size: int) -> None:
        """Expect blocks of the index's size until larger ones come."""
        self._block_size = block_size
        self._trees: dict[int | None, Tree] = {}

    def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
        """Read dicts, JSON of them, or a batch of the publisher's."""
        if is_batch(payload):
            return [stream(bytes(payload))]
        events = records(payload, "events of TensorRT-LLM")
        return [self._one(event) for event in events]

    def reset(self, dp_rank: int | None) -> None:
        """Forget the tree of a rank, or all."""
        if dp_rank is None:
            self._trees.clear()
        for rank in (dp_rank, None):
            self._trees.pop(rank, None)

    def _one(self, event: dict[str, Any]) -> Batch:
        rank = natural(event.get("attention_dp_rank"), bits=32)
        number = natural(event.get("event_id"))
        tree = self._trees.get(rank)
        if tree is None:
            tree = self._trees[rank] = Tree(self._block_size)
        if not tree.is_new(number):
            return Batch([], rank, number)
        try:
            said = Said.of(event)
        except MISSHAPEN:
            return Batch([MALFORMED], rank, number)
        return Batch(tree.take(said), rank, number)


class Tree:
    """What is known of one rank's blocks."""

    def __init__(self, size: int) -> None:
        """Begin without a block, `size` tokens in each that comes."""
        self._size = size
        self._nodes: dict[Name, Node] = {}
        self._partial: set[Name] = set()
        self._window: tuple[int, int] | None = None
        self._last: int | None = None

    def is_new(self, number: int | None) -> bool:
        """Tell whether an event with this number was not there before."""
        if number is None:
            return True
        if self._last is not None and number <= self._last:
            return False
        self._last = number
        return True

    def take(self, said: Said) -> list[Event]:
        """Return what an event means."""
        if self._window is not None and said.window < self._window:
            names = list(dict.fromkeys(said.names))
            return [left_out(names)] if names else []
        found = self._follow(said.window)
        if said.kind == "stored":
            found += self._store(said.parent, said.blocks)
        elif said.kind == "updated":
            found += self._update(said.names[0], said.level)
        elif said.kind == "removed":
            found += self._remove(said.names)
        elif said.kind != "created":
            found.append(unknown(said.kind))
        return found

    def _follow(self, window: tuple[int, int]) -> list[Event]:
        """Follow a window; what is known of a smaller one is of no use."""
        if window == self._window:
            return []
        found: list[Event] = [AllBlocksCleared()] if self._nodes else []
        self._nodes.clear()
        self._partial.clear()
        self._window = window
        return found

    def _store(self, parent: Name | None, blocks: list[Block]) -> list[Event]:
        for place, block in enumerate(blocks):
            # Only a last block may be short.
            if len(block.tokens) > self._size or place < len(blocks) - 1:
                self._size = len(block.tokens)
        found: list[Event] = []
        runs: list[list[Block]] = []
        for block in blocks:
            if runs and _alike(runs[-1][-1], block):
                runs[-1].append(block)
            else:
                runs.append([block])
        for run in runs:
            found.append(self._stored(parent, run))
            for block in run:
                found += self._grow(parent, block)
                parent = block.name
        return found

    def _stored(self, parent: Name | None, run: list[Block]) -> BlockStored:
        return BlockStored(
            [block.name for block in run],
            [token for block in run for token in block.tokens],
            parent,
            block_size=self._size,
            medium=_medium(run[0].level),
            cache_salt=run[0].salt,
            extra_keys=(
                [block.images for block in run]
                if any(block.images for block in run)
                else None
            ),
        )

    def _grow(self, parent: Name | None, block: Block) -> list[Event]:
        """Put a block into the tree; one that moves leaves its old level."""
        if len(block.tokens) < self._size:
            # The index drops and counts it.
            self._partial.add(block.name)
            return []
        known = self._nodes.get(block.name)
        if known is None:
            self._nodes[block.name] = Node(block.level, parent)
            if parent in self._nodes:
                self._nodes[parent].children.add(block.name)
            return []
        old, known.level = known.level, block.level
        if old == block.level:
            return []
        return [BlockRemoved([block.name], _medium(old))]

    def _update(self, name: Name, level: int | None) -> list[Event]:
        if level is None or name in self._partial:
            return []
        moved = BlockStored([name], [], block_size=self._size, medium=_medium(level))
        node = self._nodes.get(name)
        if node is None:
            self._nodes[name] = Node(level, None)
            return [moved]
        old, node.level = node.level, level
        # Stored before it is removed: a block that nobody holds is forgotten.
        return [] if old == level else [moved, BlockRemoved([name], _medium(old))]

    def _remove(self, names: list[Name]) -> list[Event]:
        levels: dict[int, list[Name]] = {}
        gone: set[Name] = set()
        for name in names:
            if name in self._partial:
                self._partial.discard(name)
            elif name in self._nodes:
                for below, node in self._cut(name):
                    levels.setdefault(node.level, []).append(below)
                    gone.add(below)
            elif name not in gone:
                levels.setdefault(0, []).append(name)
        return [BlockRemoved(gone, _medium(level)) for level, gone in levels.items()]

    def _cut(self, name: Name) -> list[tuple[Name, Node]]:
        """Take a block out of the tree with all below it, the deepest first."""
        top = self._nodes[name]
        if top.parent in self._nodes:
            self._nodes[top.parent].children.discard(name)
        cut = []
        names = [name]
        while names:
            name = names.pop()
            node = self._nodes.pop(name)
            cut.append((name, node))
            names.extend(node.children)
        return cut[::-1]


def _block(block: dict[str, Any]) -> Block:
    units = block["tokens"]
    images: list[list[str | int]] = [
        [str(key["hash"]), int(key["start_offset"])]
        for key in block.get("mm_keys") or ()
    ]
    # Extra ids stand for what the tokens do not say: not a block of plain text.
    images += [
        [f"token_extra_id:{unit['token_extra_id']}", place]
        for place, unit in enumerate(units)
        if unit.get("token_extra_id")
    ]
    return Block(
        name=_name(block["block_hash"]),
        tokens=[unit["token_id"] for unit in units],
        level=_level(block.get("cache_level") or 0),
        salt=block.get("cache_salt"),
        images=images,
    )


def _name(value: object) -> Name:
    if isinstance(value, str):
        return bytes.fromhex(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value & (2**64 - 1)
    raise TypeError


def _level(value: object) -> int:
    level = natural(value)
    if level is None:
        raise TypeError
    return level


def _medium(level: int) -> str:
    return MEDIA[min(level, len(MEDIA) - 1)]


def _alike(one: Block, other: Block) -> bool:
    """Tell whether two blocks in a row fit into one event."""
    text = [all(isinstance(token, int) for token in b.tokens) for b in (one, other)]
    same = (one.level, one.salt) == (other.level, other.salt)
    return same and text[0] == text[1]


TENSORRT_LLM = Engine(
    name="tensorrt_llm",
    title="TensorRT-LLM",
    kind="auto",
    copies=(),
    decoder=TensorRtLlm,
)

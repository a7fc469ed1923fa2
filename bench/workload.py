"""The work of both sides, made from seeds: chains, batches, streams."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np

import kvindex
from bench.peer import stored_event

BLOCK = 16
VOCABULARY = 128_000
HOLDERS = 256


# Subscriptable from CPython 3.14 on.
Numbers: TypeAlias = "memoryview[int]"


@dataclass(frozen=True, slots=True)
class Chain:
    """Consecutive blocks: their tokens, engine hashes and local keys."""

    tokens: Numbers
    names: list[int]
    keys: Numbers


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that stores a stretch of a chain, as either side takes it."""

    tokens: list[int]
    names: list[int]
    keys: list[int]
    parent: int | None
    payload: bytes
    event: bytes

    def stored(self) -> kvindex.BlockStored:
        """Return the batch as an event object."""
        return kvindex.BlockStored(
            self.names, self.tokens, self.parent, BLOCK, medium="GPU"
        )


# A batch and the number of the worker that sends it.
Sent: TypeAlias = tuple[int, Batch]


@dataclass(frozen=True, slots=True)
class Stream:
    """Batches of many workers in the order in which they arrive."""

    sent: list[Sent]
    claims: int

    def chunks(self, size: int) -> Iterator[Sequence[Sent]]:
        """Yield whole chunks of batches; what is left over is dropped."""
        for start in range(0, len(self.sent) - size + 1, size):
            yield self.sent[start : start + size]


def payload(
    names: Sequence[int], tokens: Sequence[int], parent: int | None, block: int = BLOCK
) -> bytes:
    """Write one store as vLLM sends it since 0.24."""
    event = {
        "type": "BlockStored",
        "block_hashes": names,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": block,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(names),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    return msgspec.msgpack.encode((1.7e9, [event], 0))


def removal(names: Sequence[int]) -> bytes:
    """Write one removal as vLLM sends it."""
    event = {
        "type": "BlockRemoved",
        "block_hashes": names,
        "medium": "GPU",
        "group_idx": 0,
    }
    return msgspec.msgpack.encode((1.7e9, [event], 0))


def batches(chain: Chain, step: int, parent: int | None = None) -> list[Batch]:
    """Cut a chain into batches of `step` blocks, the first below `parent`."""
    made = []
    keys = chain.keys.tolist()
    for start in range(0, len(chain.names), step):
        names = chain.names[start : start + step]
        tokens = chain.tokens[start * BLOCK : (start + step) * BLOCK].tolist()
        cut = keys[start : start + step]
        made.append(
            Batch(
                tokens=tokens,
                names=names,
                keys=cut,
                parent=parent,
                payload=payload(names, tokens, parent),
                event=stored_event(parent, names, cut),
            )
        )
        parent = names[-1]
    return made


class Maker:
    """Makes chains and streams; the same from the same seed."""

    def __init__(self, seed: int) -> None:
        """Start from a seed."""
        self.numbers = np.random.default_rng(seed)
        self.choices = random.Random(seed)

    def tokens(self, count: int) -> Numbers:
        """Return random tokens, 32 bits each."""
        return self.numbers.integers(0, VOCABULARY, count, dtype=np.uint32).data

    def names(self, count: int) -> list[int]:
        """Return engine hashes: 64 bits that say nothing."""
        return self.numbers.integers(0, 2**64, count, dtype=np.uint64).data.tolist()

    def chain(self, blocks: int) -> Chain:
        """Return a chain that shares nothing with any other."""
        tokens = self.tokens(blocks * BLOCK)
        keys = kvindex.block_keys(tokens, block_size=BLOCK)
        return Chain(tokens, self.names(blocks), keys)

    def mixed(self, claims: int, step: int, *, own_names: bool = False) -> Stream:
        """Return a fleet's stream of stores, `step` blocks each.

        Prefixes are shared by 1 (50 %), 8 (35 %) or 64 (15 %) of 256 workers, log
        uniformly 8 to 512 blocks deep, and each worker goes on with 4 to 64
        blocks of its own; lengths are rounded up to whole batches. The workers'
        stores come interleaved and 5 % of them twice. With `own_names` every
        worker has its own engine hash for a block.
        """
        made = 0
        streams: list[list[Sent]] = []
        while made < claims:
            for stream in self._family(step, own_names=own_names):
                made += step * len(stream)
                streams.append(stream)
        return Stream(list(self._interleaved(streams)), made)

    def _family(self, step: int, *, own_names: bool) -> Iterator[list[Sent]]:
        (degree,) = self.choices.choices((1, 8, 64), (50, 35, 15))
        depth = round_up(8 * 64 ** self.choices.random(), step)
        shared = self.chain(depth)
        common = batches(shared, step)
        first = self.choices.randrange(HOLDERS)
        for member in range(degree):
            if own_names and member:
                renamed = Chain(shared.tokens, self.names(depth), shared.keys)
                common = batches(renamed, step)
            tail = self.chain(round_up(self.choices.randint(4, 64), step))
            own = batches(tail, step, common[-1].names[-1])
            worker = (first + member * 3) % HOLDERS
            yield [(worker, batch) for batch in common + own]

    def _interleaved(self, streams: Iterable[list[Sent]]) -> Iterator[Sent]:
        """Merge the streams, 2,000 at a time, each in its order."""
        waiting = iter(streams)
        active = [iter(stream) for stream in itertools.islice(waiting, 2_000)]
        while active:
            place = self.choices.randrange(len(active))
            sent = next(active[place], None)
            if sent is not None:
                yield from (sent,) * (2 if self.choices.random() < 0.05 else 1)
                continue
            last = active.pop()
            if place < len(active):
                active[place] = last
            active.extend(iter(stream) for stream in itertools.islice(waiting, 1))


def round_up(blocks: float, step: int) -> int:
    """Round a number of blocks up to whole batches."""
    return max(1, -int(-blocks // step)) * step

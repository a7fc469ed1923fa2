"""Captured streams of hybrid models, read with group rules.

The truth is what every cache group of the engine held (the streams' descriptions)
and what each group needs, by its configuration: not by its events.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TYPE_CHECKING, Any

import pytest

import kvindex
from tests.streams import load, low64, names_of, wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.streams import Message, Request, Stream

WORKER = "engine"
Held = dict[int, Counter[int]]
"""Cache group -> low 64 bits of a name -> copies."""

STREAMS = [
    name
    for name in names_of("vllm")
    if len(load("vllm", name).meta.get("groups", [])) > 1
]
each_stream = pytest.mark.parametrize("name", STREAMS)


@dataclass(frozen=True)
class Needs:
    """How many blocks a cache group needs before the point; `inf` = all."""

    blocks: float

    @classmethod
    def of(cls, group: dict[str, Any], block_size: int) -> Needs:
        """Read what the engine's configuration says of a group."""
        if group["spec"] == "SlidingWindowSpec":
            return cls(ceil((group["sliding_window"] - 1) / block_size))
        return cls({"FullAttentionSpec": inf, "MambaSpec": 1}[group["spec"]])

    def are_met(self, names: list[int], held: Counter[int]) -> bool:
        """Tell whether a group can go on behind the last of some blocks."""
        needed = min(self.blocks, len(names))
        return all(held[name] for name in names[len(names) - int(needed) :])


def needs_of(stream: Stream) -> list[Needs]:
    return [Needs.of(group, stream.block_size) for group in stream.meta["groups"]]


def truth(stream: Stream) -> Held:
    """Return what the engine's pools held at the end."""
    (pools,) = stream.meta["expected"].values()
    held: Held = {group: Counter() for group in range(len(stream.meta["groups"]))}
    for entry in pools["GPU"]:
        held[entry["group_idx"]][low64(entry["hash"])] = entry["copies"]
    return held


def prompts(stream: Stream) -> list[Request]:
    """Return all whole-block beginnings of what the engine was asked."""
    size = stream.block_size
    return [
        replace(request, tokens=request.tokens[: end * size], names=request.names[:end])
        for request in stream.requests
        for end in range(1, len(request.names) + 1)
    ]


def usable(prompt: Request, held: Held, needs: list[Needs]) -> int:
    """Return the deepest point at which every group has what it needs."""
    names = [low64(name) for name in prompt.names]
    depths = range(len(names), -1, -1)
    return next(
        depth
        for depth in depths
        if all(
            need.are_met(names[:depth], held[group]) for group, need in enumerate(needs)
        )
    )


def tell(index: kvindex.Indexer, message: Message) -> kvindex.ApplyReport:
    return index.apply(message.payload, worker=WORKER, seq=message.seq)


def indexed(stream: Stream, *, group_rules: bool) -> kvindex.Indexer:
    index = kvindex.Indexer(block_size=stream.block_size, group_rules=group_rules)
    index.register(WORKER, profile="vllm")
    return index


def depth(index: kvindex.Indexer, prompt: Request) -> int:
    (row,) = index.match(prompt.tokens, workers=[WORKER])
    assert row.device == row.depth
    return row.depth


def test_there_are_streams_with_windows_and_with_states() -> None:
    specs = {
        group["spec"] for name in STREAMS for group in load("vllm", name).meta["groups"]
    }
    assert specs == {"FullAttentionSpec", "SlidingWindowSpec", "MambaSpec"}


@each_stream
def test_every_prompt_goes_on_as_deep_as_the_engines_groups_can(name: str) -> None:
    stream = load("vllm", name)
    held, needs = truth(stream), needs_of(stream)
    index = indexed(stream, group_rules=True)
    for message in stream.messages:
        tell(index, message)
    for prompt in prompts(stream):
        expected = usable(prompt, held, needs)
        assert depth(index, prompt) == expected, prompt.label
        (row,) = index.match_names(prompt.names, workers=[WORKER])
        assert row.depth == expected, prompt.label


@each_stream
def test_every_batch_on_the_way_is_exact(name: str) -> None:
    """On the way the truth is counted, which gives the pools at the end."""
    stream = load("vllm", name)
    needs = needs_of(stream)
    index = indexed(stream, group_rules=True)
    held: Held = {group: Counter() for group in range(len(needs))}
    asked = prompts(stream)
    for message in stream.messages:
        tell(index, message)
        for event in wire.events(message.payload):
            copies = {"BlockStored": 1, "BlockRemoved": -1}[event["type"]]
            for block in event["block_hashes"]:
                held[event["group_idx"]][low64(block)] += copies
        for prompt in asked:
            assert depth(index, prompt) == usable(prompt, held, needs)
    assert {group: +counted for group, counted in held.items()} == truth(stream)


@each_stream
def test_group_rules_leave_nothing_of_a_stream_out(name: str) -> None:
    stream = load("vllm", name)
    index = indexed(stream, group_rules=True)
    told: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for message in stream.messages:
        report = tell(index, message)
        assert not report.reasons
        told.update(BlockStored=report.stored, BlockRemoved=report.removed)
        for event in wire.events(message.payload):
            expected[event["type"]] += len(event["block_hashes"])
    assert +told == +expected
    (line,) = index.workers()
    assert line.device == len(truth(stream)[0])


@each_stream
def test_without_group_rules_some_depths_are_too_large(name: str) -> None:
    stream = load("vllm", name)
    held, needs = truth(stream), needs_of(stream)
    index = indexed(stream, group_rules=False)
    for message in stream.messages:
        tell(index, message)
    surplus = [
        depth(index, prompt) - usable(prompt, held, needs) for prompt in prompts(stream)
    ]
    assert min(surplus) == 0 < max(surplus)


# Streams with the engine's own answers, of groups of every kind and size.

FAMILY = "vllm_groups"
BETWEEN = {"f2_full32_swa16": 2}
"""Answers at points that are multiples of no block of a group: the engine goes on from
none of these, and no event says so."""
NEED_ALL = {"f8_full_chunked_local"}
"""Streams of groups whose rule is not known: never too much, often too little."""

each_answered = pytest.mark.parametrize("name", names_of(FAMILY))


def compared(name: str, *, group_rules: bool) -> Iterator[tuple[int, int]]:
    """Yield each answer, and that of the engine, on the way and at the end."""
    stream = load(FAMILY, name)
    index = indexed(stream, group_rules=group_rules)
    requests = {request.label: request for request in stream.requests}
    size, told = stream.block_size, 0
    for point in stream.meta["answers"]:
        for message in stream.messages[told : point["after_n_batches"]]:
            assert not tell(index, message).reasons.keys() - {"group"}
        told = point["after_n_batches"]
        for label, hits in point["hits"].items():
            tokens = requests[label].tokens
            for end, hit in enumerate(hits, 1):
                (row,) = index.match(tokens[: end * size], workers=[WORKER])
                yield row.depth, hit


@each_answered
def test_every_prompt_goes_on_as_deep_as_the_engine_says(name: str) -> None:
    answers = list(compared(name, group_rules=True))
    stream = load(FAMILY, name)
    wrong = [(depth, hit) for depth, hit in answers if depth != hit]
    if name in NEED_ALL:
        assert all(depth < hit for depth, hit in wrong)
        return
    step = stream.meta["scheduler_block_size"] // stream.block_size
    assert all(depth > hit and depth % step for depth, hit in wrong)
    at_the_end = sum(map(len, stream.meta["answers"][-1]["hits"].values()))
    wrong_at_the_end = [pair for pair in answers[-at_the_end:] if pair in wrong]
    assert len(wrong_at_the_end) == BETWEEN.get(name, 0)


@each_answered
def test_without_group_rules_the_engine_often_says_less(name: str) -> None:
    answers = list(compared(name, group_rules=False))
    assert all(depth >= hit for depth, hit in answers)
    assert sum(depth > hit for depth, hit in answers) > len(answers) / 20


@each_answered
def test_every_group_holds_at_the_end_what_its_pool_does(name: str) -> None:
    stream = load(FAMILY, name)
    index = indexed(stream, group_rules=True)
    for message in stream.messages:
        tell(index, message)
    for group, copies in truth(stream).items():
        removal = kvindex.BlockRemoved(list(copies.elements()), group_idx=group)
        assert index.apply([removal], worker=WORKER).removed == copies.total()
    assert len(index) == 0


def test_the_streams_have_blocks_of_every_shape() -> None:
    seen: Counter[str] = Counter()
    for name in names_of(FAMILY):
        stream = load(FAMILY, name)
        for message in stream.messages:
            for event in wire.events(message.payload):
                if event["type"] != "BlockStored":
                    continue
                hashes, tokens = event["block_hashes"], event["token_ids"]
                size = stream.meta["groups"][event["group_idx"]]["block_size"]
                seen["no hashes"] += not hashes
                seen["masked"] += len(tokens) > len(hashes) * event["block_size"]
                seen["a part of a block"] += event["block_size"] < size
                seen["coarse"] += event["block_size"] > stream.block_size
    assert min(seen.values()) > 1, seen
    assert len(seen) == 4

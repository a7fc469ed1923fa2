"""Route real prompts over real engines' event streams, and check every answer.

Four engines' captured streams are published over ZMQ on loopback. A feed applies
them while they run, the first third by a replay, since nobody listened yet. Then
every prompt that belongs to the streams is matched against every engine, and each
answer is compared with what the engine itself said that it holds.

    python -m examples.demo            about ten seconds
    python -m examples.demo --fast     as fast as the batches can be read
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import kvindex
from examples.publisher import Publisher
from kvindex.feeds import Feed, Source
from tests.streams import Message, Request, State, Stream, load, low64

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIERS = ("device", "host", "disk")
SECONDS = 6.0
DEADLINE = 40.0
SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Engine:
    """One worker of the demo: a captured stream up to a known state."""

    worker: str
    what: str
    stream: Stream
    state: State
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        """The engine's data-parallel ranks."""
        return sorted(self.state.resident)

    def messages(self, rank: int) -> list[Message]:
        """Return what one rank publishes; each has a socket and numbers of its own."""
        messages = self.stream.messages[: self.state.after]
        if len(self.ranks) == 1:
            return messages
        return [m for m in messages if rank_of(m) == rank]


def rank_of(message: Message) -> int:
    """Return the rank that ends a batch: one small number, one byte of msgpack."""
    return message.payload[-1]


def fleet() -> list[Engine]:
    """Return the engines, each up to the state in which its host tier is full."""
    offload = load("vllm", "c2_offload_sd_chunk256")
    ranks = load("vllm", "b_dp2")
    tiers = load("vllm", "c4_tiering_fs_local")
    hicache = load("sglang", "hicache_write_back")
    device = {"clears": ("device",)}
    return [
        Engine(
            "vllm-offload",
            "vLLM, CPU offloading in 256-token chunks",
            offload,
            offload.checkpoints[0],
            device,
        ),
        Engine(
            "vllm-dp2",
            "vLLM, two data-parallel ranks",
            ranks,
            ranks.checkpoints[0],
            device,
        ),
        Engine("vllm-disk", "vLLM, CPU and disk tiers", tiers, tiers.final),
        Engine("sglang", "SGLang HiCache, write-back", hicache, hicache.final),
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt's row for one holder, beside the engine's own truth."""

    worker: str
    rank: int
    home: str
    """The worker whose stream the prompt belongs to."""
    request: Request
    blocks: int
    ours: tuple[int, ...]
    score: float
    truth: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether every tier agrees."""
        return self.ours == self.truth


def truth_of(engine: Engine, rank: int, request: Request, blocks: int) -> list[str]:
    """Return the nearest tier of each leading block that the engine really holds."""
    resident = engine.state.resident[rank]

    def nearest(name: int | bytes) -> str:
        held = (tier for tier in TIERS if low64(name) in resident.get(tier, ()))
        return next(held, "")

    return list(takewhile(bool, map(nearest, request.names[:blocks])))


class Group:
    """The engines of one block size: one index, one feed."""

    def __init__(self, block_size: int, engines: list[Engine]) -> None:
        """Register the engines with an index of their block size."""
        self.engines = engines
        self.index = kvindex.Indexer(block_size=block_size)
        for engine in engines:
            family = engine.stream.family
            self.index.register(engine.worker, profile=family, **engine.options)

    def prompts(self) -> Iterator[tuple[str, Request]]:
        """Yield every prompt that belongs to the streams, with its worker."""
        for engine in self.engines:
            for request in engine.stream.requests:
                yield engine.worker, request

    def answers(self) -> Iterator[tuple[list[Answer], str]]:
        """Yield each prompt's answers for all holders, and the worker to route to."""
        for home, request in self.prompts():
            blocks = request.prompt_tokens // self.index.block_size
            prompt = request.tokens[: request.prompt_tokens]
            found = self.index.match(prompt, **request.options)
            rows = {(row.worker, row.dp_rank): row for row in found}
            answers = []
            for engine in self.engines:
                for rank in engine.ranks:
                    row = rows.get((engine.worker, rank))
                    counts = Counter(truth_of(engine, rank, request, blocks))
                    answers.append(
                        Answer(
                            worker=engine.worker,
                            rank=rank,
                            home=home,
                            request=request,
                            blocks=blocks,
                            ours=(row.device, row.host, row.disk) if row else (0, 0, 0),
                            score=row.score if row else 0.0,
                            truth=tuple(counts[tier] for tier in TIERS),
                        )
                    )
            best = found.best(seed=0)
            yield answers, best.worker if best else "nobody"


def follow(groups: list[Group], console: Console, *, fast: bool) -> None:
    """Publish all streams and wait until the feeds have applied every batch."""
    with ExitStack() as stack:
        last: dict[tuple[str, int], int] = {}
        publishers = []
        wanted: list[tuple[Group, list[Source]]] = []
        for group in groups:
            sources = []
            for engine in group.engines:
                for rank in engine.ranks:
                    messages = engine.messages(rank)
                    rate = 1e6 if fast else len(messages) / SECONDS
                    publisher = Publisher(messages, rate=rate)
                    stack.callback(publisher.close)
                    publisher.start(early=len(messages) // 3)
                    publishers.append(publisher)
                    last[engine.worker, rank] = messages[-1].seq
                    sources.append(
                        Source(
                            engine.worker,
                            publisher.endpoint,
                            dp_rank=rank,
                            replay=publisher.replay,
                        )
                    )
            wanted.append((group, sources))
        feeds = [
            stack.enter_context(Feed(group.index, sources=sources))
            for group, sources in wanted
        ]
        for publisher in publishers:
            publisher.go_on()
        watch([group.index for group in groups], last, console)
        states = [state for feed in feeds for state in feed.sources()]
        console.print(
            f"{sum(state.applied for state in states)} batches applied, "
            f"{sum(state.replayed for state in states)} of them out of a replay, "
            f"{sum(state.lost for state in states)} lost"
        )


def watch(
    indexes: list[kvindex.Indexer],
    last: dict[tuple[str, int], int],
    console: Console,
) -> None:
    """Show the cursors until each has reached its last batch."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches"),
    )
    deadline = time.monotonic() + DEADLINE
    with Progress(*columns, console=console) as progress:
        tasks = {
            holder: progress.add_task(f"{holder[0]} rank {holder[1]}", total=seq + 1)
            for holder, seq in last.items()
        }
        while not progress.finished:
            for row in (row for index in indexes for row in index.workers()):
                if row.seq is not None and (row.worker, row.dp_rank) in tasks:
                    task = tasks[row.worker, row.dp_rank]
                    progress.update(task, completed=row.seq + 1)
            if time.monotonic() > deadline:
                late = [t.description for t in progress.tasks if not t.finished]
                sys.exit(f"not all batches arrived within {DEADLINE:.0f} s: {late}")
            time.sleep(0.02)


def sample(answers: list[Answer]) -> list[Answer]:
    """Choose the rows worth reading: wrong ones first, then the deepest of each kind.

    Rows are of one kind if their blocks lie on the same tiers.
    """
    chosen: dict[tuple[bool, ...], Answer] = {}
    for answer in sorted(answers, key=lambda a: (a.exact, -sum(a.truth))):
        kind = (answer.exact, *map(bool, answer.truth))
        chosen.setdefault(kind, answer)
    rest = (a for a in answers if a not in chosen.values())
    return [*chosen.values(), *rest][:SAMPLES]


def split(counts: tuple[int, ...]) -> str:
    """Show the blocks of a prompt by tier."""
    return " ".join(f"{number or '.':>3}" for number in counts)


def show_samples(engines: list[Engine], answers: list[Answer]) -> Table:
    """Make the table of a few prompts per holder."""
    table = Table(title="Some of the prompts: blocks held as GPU, host, disk")
    for name in ("worker", "prompt"):
        table.add_column(name)
    for name in ("blocks", "depth", "score", "kvindex", "engine holds"):
        table.add_column(name, justify="right")
    table.add_column("exact")
    for engine in engines:
        for rank in engine.ranks:
            mine = [
                a
                for a in answers
                if (a.worker, a.rank, a.home) == (engine.worker, rank, engine.worker)
            ]
            for answer in sample(mine):
                table.add_row(
                    f"{engine.worker}@{rank}",
                    answer.request.label,
                    str(answer.blocks),
                    str(sum(answer.ours)),
                    f"{answer.score:.2f}",
                    split(answer.ours),
                    split(answer.truth),
                    "yes" if answer.exact else "NO",
                )
            table.add_section()
    return table


def show_totals(
    groups: list[Group], answers: list[Answer], routed: Counter[str]
) -> Table:
    """Make the table of all prompts and of the blocks that each holder holds."""
    table = Table(title="All prompts")
    for name in ("worker", "what"):
        table.add_column(name)
    names = ("held: GPU host disk", "engine holds", "with a hit", "routed to", "exact")
    for name in names:
        table.add_column(name, justify="right")
    for group in groups:
        held = {(row.worker, row.dp_rank): row for row in group.index.workers()}
        for engine in group.engines:
            for rank in engine.ranks:
                row = held[engine.worker, rank]
                pools = engine.state.resident[rank]
                mine = [
                    a for a in answers if (a.worker, a.rank) == (engine.worker, rank)
                ]
                first = rank == engine.ranks[0]
                table.add_row(
                    f"{engine.worker}@{rank}",
                    engine.what if first else "",
                    split((row.device, row.host, row.disk)),
                    split(tuple(len(pools.get(tier, ())) for tier in TIERS)),
                    str(sum(any(answer.truth) for answer in mine)),
                    str(routed[engine.worker]) if first else "",
                    f"{sum(a.exact for a in mine)} of {len(mine)}",
                )
    return table


def pools_agree(groups: list[Group]) -> bool:
    """Tell whether every holder holds as many blocks per tier as the engine."""
    return all(
        getattr(row, tier) == len(engine.state.resident[row.dp_rank].get(tier, ()))
        for group in groups
        for engine in group.engines
        for row in group.index.workers()
        if row.worker == engine.worker
        for tier in TIERS
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 only if every answer is exact."""
    parser = argparse.ArgumentParser(description="route real prompts, check answers")
    parser.add_argument("--fast", action="store_true", help="publish without pauses")
    fast: bool = parser.parse_args(arguments).fast
    console = Console(width=None if sys.stdout.isatty() else 120)

    engines = fleet()
    sizes = sorted({engine.stream.block_size for engine in engines}, reverse=True)
    groups = [
        Group(size, [e for e in engines if e.stream.block_size == size])
        for size in sizes
    ]
    follow(groups, console, fast=fast)

    answers: list[Answer] = []
    routed: Counter[str] = Counter()
    for group in groups:
        for found, best in group.answers():
            answers.extend(found)
            routed[best] += 1
    console.print(show_samples(engines, answers))
    console.print(show_totals(groups, answers, routed))
    exact = sum(answer.exact for answer in answers)
    console.print(
        f"{routed.total()} prompts, {routed['nobody']} held by nobody; "
        f"{exact} of {len(answers)} exact"
    )
    return 0 if exact == len(answers) and pools_agree(groups) else 1


if __name__ == "__main__":
    sys.exit(main())

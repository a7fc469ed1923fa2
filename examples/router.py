"""A router in ten lines, over engines that are made up: who answers which turn?"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import kvindex
from kvindex.policy import Router, Selection

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 16
TURNS = 3
USERS = 4


class Engine:
    """An engine that tells the index what it stores, and answers with numbers."""

    def __init__(self, name: str) -> None:
        """Start with an empty cache."""
        self.name = name
        self.names = count(1)
        self.known: dict[tuple[int, ...], int] = {}

    def generate(self, tokens: list[int]) -> Iterator[int]:
        """Store the prompt's blocks that are new, and yield an answer."""
        parent = None
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            prefix = tuple(tokens[:end])
            if prefix not in self.known:
                self.known[prefix] = next(self.names)
                event = kvindex.BlockStored(
                    [self.known[prefix]], prefix[-BLOCK:], parent_block_hash=parent
                )
                index.apply([event], worker=self.name)
            parent = self.known[prefix]
        yield from range(tokens[-1], tokens[-1] + 2 * BLOCK)


index = kvindex.Indexer(block_size=BLOCK)
engines = {name: Engine(name) for name in ("w0", "w1")}
router = Router(index, list(engines), selection=Selection(seed=1))


def serve(tokens: list[int]) -> Iterator[int]:
    """Send a prompt to the best worker, and pass its answer on."""
    decision = router.route(tokens)
    print(f"{decision.worker}: {decision.row.depth} of {len(tokens) // BLOCK} blocks")
    try:
        for number, token in enumerate(engines[decision.worker].generate(tokens), 1):
            router.produced(decision, number)  # the first one ends the prefill
            yield token
    finally:
        router.done(decision)


def main() -> None:
    """Let users talk at the same time, each turn with all that was said before."""
    system = list(range(4 * BLOCK))
    talks = [
        [*system, *range(1000 * user, 1000 * user + 8 * BLOCK)]
        for user in range(1, USERS + 1)
    ]
    for turn in range(1, TURNS + 1):
        print(f"turn {turn}")
        answers = zip(*map(serve, talks), strict=True)
        for talk, answer in zip(talks, zip(*answers, strict=True), strict=True):
            talk.extend(answer)


if __name__ == "__main__":
    main()

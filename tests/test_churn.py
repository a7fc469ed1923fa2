"""What comes and goes leaves nothing behind, and hides nothing that stays."""

from collections.abc import Callable
from random import Random

import pytest

import kvindex
from kvindex import AllBlocksCleared, BlockRemoved, BlockStored
from tests.helpers import Scene, name

ROOTS = "".join(chr(0x100 + i) for i in range(40))
TAIL = "ABCDEF"
WORKERS = ("w1", "w2", "w2@1")


def fill(scene: Scene) -> None:
    """Store branching prompts of several kinds, whole and in part."""
    for who in WORKERS:
        for number, root in enumerate(ROOTS):
            scene.S(who, root + TAIL[: 1 + number % 6])
            scene.S(who, "XYZ", root)
            scene.S(who, "AB", salt="s", names=[number, number + 1000])
            scene.S(who, "CD", root + "A", tier="cpu", block_size=8, names=[number])
        scene.P(who, *ROOTS, tier="disk")
        scene.S(who, "E", "nothing that is known", names=[1])


def empty_by_removals(scene: Scene) -> None:
    """Remove every name on every tier as often as it may be held."""
    paths = [root + TAIL[:end] for root in ROOTS for end in range(7)]
    paths += [root + "XYZ"[:end] for root in ROOTS for end in range(1, 4)]
    hashes = [*map(name, paths), *range(1200)]
    for who in WORKERS:
        for tier in ("gpu", "cpu", "disk"):
            for _ in range(2):
                Random(1).shuffle(hashes)
                scene.R(who, *hashes, tier=tier)


def empty_by_clears(scene: Scene) -> None:
    """Clear every holder."""
    for who in WORKERS:
        scene.apply(who, [AllBlocksCleared()])


def empty_by_resets(scene: Scene) -> None:
    """Reset every holder."""
    scene.index.clear()


def empty_by_leaving(scene: Scene) -> None:
    """Remove every worker."""
    for worker in ("w1", "w2"):
        scene.index.remove_worker(worker)


@pytest.mark.parametrize(
    "empty", [empty_by_removals, empty_by_clears, empty_by_resets, empty_by_leaving]
)
def test_what_nobody_holds_any_more_takes_nothing(
    empty: Callable[[Scene], None],
) -> None:
    scene = Scene()
    sizes = []
    for _ in range(4):
        fill(scene)
        full = scene.index.stats()
        assert min(full[key] for key in ("blocks", "runs", "names", "orphans")) > 0
        empty(scene)
        left = scene.index.stats()
        for key in ("blocks", "claims", "runs", "names", "orphans"):
            assert left[key] == 0, key
        sizes.append(left["bytes"] + left["reserve"])
    assert sizes[-1] <= sizes[1], "memory grows"


def test_thousands_of_prompts_are_found_while_others_come_and_go() -> None:
    index = kvindex.Indexer(block_size=1)
    prompts = range(1, 20_001)
    held: set[int] = set()
    random = Random(7)
    for _ in range(3):
        added = [prompt for prompt in prompts if random.random() < 0.6]
        events = [BlockStored([p], [p], block_size=1) for p in added if p not in held]
        index.apply(events, worker="w1")
        held |= set(added)
        removed = random.sample(sorted(held), len(held) // 2)
        index.apply([BlockRemoved(removed)], worker="w1")
        held -= set(removed)
        answers = index.match_many([[prompt] for prompt in prompts])
        found = {p for p, rows in zip(prompts, answers, strict=True) if len(rows)}
        assert found == held
        assert len(index) == len(held)

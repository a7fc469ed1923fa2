"""Seeded random episodes: the index against the model.

    python -m tests.episodes --count 10000 --seed 1

plays that many episodes and prints how long it took and what they contained.
The first that fails is cut down to what matters and printed.
"""

import argparse
import sys
import time
from collections import Counter

from tests.episodes_duel import play
from tests.episodes_shrink import failure, readable, shrink
from tests.episodes_world import episode


class EpisodeError(AssertionError):
    """An episode failed; the text holds it whole and cut down."""


def run(seeds: range, *, cut: bool = True) -> Counter[str]:
    """Play the episodes of some seeds; return what happened in them.

    The one that fails is cut down to what matters unless `cut` is false.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        story = episode(seed)
        try:
            seen += play(story)
        except Exception as error:
            raise EpisodeError(explained(seed, error, cut=cut)) from error
    return seen


def explained(seed: int, error: Exception, *, cut: bool) -> str:
    """Describe a failing episode: as it was played, and cut down."""
    story = episode(seed)
    small = shrink(story) if cut and failure(story) is not None else story
    return "\n".join(
        (
            f"episode {seed} failed: {type(error).__name__}: {error}",
            f"cut down from {len(story.steps)} to {len(small.steps)} steps:",
            readable(small),
            f"  => {failure(small)}",
            f"play it again: python -m tests.episodes --count 1 --seed {seed}",
        )
    )


def summary(seeds: range, seen: Counter[str], seconds: float) -> str:
    """Describe a run: seeds, time, and how often each thing happened."""
    counts = ", ".join(f"{name} {count}" for name, count in sorted(seen.items()))
    return (
        f"{len(seeds)} episodes, seeds {seeds.start} to {seeds.stop - 1}, "
        f"{seconds:.1f} s, all equal\n{counts}"
    )


def main() -> int:
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--show", action="store_true", help="print the episodes")
    parser.add_argument(
        "--as-played", action="store_true", help="do not cut down one that fails"
    )
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    started = time.perf_counter()
    write = sys.stdout.write
    if options.show:
        for seed in seeds:
            write(readable(episode(seed)) + "\n")
    try:
        seen = run(seeds, cut=not options.as_played)
    except EpisodeError as error:
        write(f"{error}\n")
        return 1
    write(summary(seeds, seen, time.perf_counter() - started) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

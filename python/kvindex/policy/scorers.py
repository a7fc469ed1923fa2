"""Policies that gateways already have, for migration and for comparison.

All of them are lowest cost wins, then fewest running requests, then chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from kvindex.errors import ConfigError
from kvindex.policy.check import finite
from kvindex.policy.weights import LLM_D

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvindex.policy.view import Floats, View


@dataclass(frozen=True, slots=True)
class LongestPrefix:
    """The deepest prefix on any tier; without one, the least loaded.

    Attributes:
        weights: Not looked at; they reach the row of the decision.
    """

    weights: Mapping[str, float] | None = None

    def costs(self, view: View) -> Floats:
        """Return minus the depth, in blocks."""
        return -view.depths.astype(np.float64)


@dataclass(frozen=True, slots=True)
class HighestScore:
    """The prefix worth most, each block by its tier; else the least loaded.

    With `VLLM_ROUTER` or `LLM_D` as weights this is the tiered scorer of these.

    Attributes:
        weights: A block's worth on each tier, None for the index's weights.
    """

    weights: Mapping[str, float] | None = field(default_factory=lambda: LLM_D)

    def costs(self, view: View) -> Floats:
        """Return minus the score, in weighted blocks."""
        return -view.scores


@dataclass(frozen=True, slots=True)
class CacheThreshold:
    """The deepest prefix if it covers enough, unless the fleet is out of balance.

    Out of balance means that the numbers of running requests, from `least` to
    `most`, have both `most - least > balance_abs_threshold` and
    `most > balance_rel_threshold * least`: then the least loaded is chosen.
    Otherwise a worker is chosen for its prefix if that covers more than
    `cache_threshold` of the prompt, else the least loaded.

    Source: the policy `cache_aware` of SGLang's and the vLLM router, whose names
    and defaults these are. There the last choice is the worker with the smallest
    tree, which stood in for an unknown cache.

    Attributes:
        cache_threshold: Share of the prompt, 0 to 1.
        balance_abs_threshold: Requests, 0 or more.
        balance_rel_threshold: A factor, 0 or more.
        weights: Not looked at; they reach the row of the decision.

    Raises:
        ConfigError: If a threshold is out of its range.
    """

    cache_threshold: float = 0.3
    balance_abs_threshold: float = 64
    balance_rel_threshold: float = 1.5
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        """Refuse thresholds without a meaning."""
        if not 0 <= self.cache_threshold <= 1:
            msg = f"cache_threshold is {self.cache_threshold}: expected 0 to 1"
            raise ConfigError(msg)
        finite("balance_abs_threshold", self.balance_abs_threshold)
        finite("balance_rel_threshold", self.balance_rel_threshold)

    def costs(self, view: View) -> Floats:
        """Return minus the depth in blocks, or the requests."""
        least, most = int(view.requests.min()), int(view.requests.max())
        unbalanced = (
            most - least > self.balance_abs_threshold
            and most > self.balance_rel_threshold * least
        )
        covered = int(view.depths.max()) * view.block_size
        enough = covered > self.cache_threshold * view.prompt_tokens
        if unbalanced or not enough:
            return view.requests.astype(np.float64)
        return -view.depths.astype(np.float64)


@dataclass(frozen=True, slots=True)
class LeastLoaded:
    """The fewest running requests.

    Attributes:
        weights: Not looked at; they reach the row of the decision.
    """

    weights: Mapping[str, float] | None = None

    def costs(self, view: View) -> Floats:
        """Return the number of running requests."""
        return view.requests.astype(np.float64)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each eligible candidate in its turn.

    Attributes:
        weights: Not looked at; they reach the row of the decision.
    """

    weights: Mapping[str, float] | None = None
    _turns: Iterator[int] = field(default_factory=count, repr=False, compare=False)

    def costs(self, view: View) -> Floats:
        """Return how many turns each candidate has to wait."""
        turns = np.arange(len(view)) - next(self._turns)
        return np.asarray(turns % len(view), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Random:
    """Any candidate, whatever it holds.

    Attributes:
        seed: Makes the choices reproducible; None for chance.
        weights: Not looked at; they reach the row of the decision.
    """

    seed: int | None = None
    weights: Mapping[str, float] | None = None
    _random: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Start the generator."""
        object.__setattr__(self, "_random", np.random.default_rng(self.seed))

    def costs(self, view: View) -> Floats:
        """Return random numbers."""
        return self._random.random(len(view))

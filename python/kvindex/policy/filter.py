"""Filters: which candidates may serve a prompt at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kvindex.errors import NoEligibleWorkerError
from kvindex.policy.check import finite

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import kvindex
    from kvindex.policy.view import Mask, View

Candidate: TypeAlias = str | tuple[str, int]
"""A worker by its name, or one of its data-parallel ranks."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A candidate with more load than this is busy; None means no limit.

    Attributes:
        prefill_tokens: Tokens that wait for their prefill there.
        decode_blocks: Distinct blocks in use, the prompt's own included.
        requests: Running requests.

    Raises:
        ConfigError: If a limit is negative or not finite.
    """

    prefill_tokens: float | None = None
    decode_blocks: float | None = None
    requests: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits without a meaning."""
        for name in ("prefill_tokens", "decode_blocks", "requests"):
            value = getattr(self, name)
            if value is not None:
                finite(name, value)

    def busy(self, view: View) -> Mask:
        """Return which candidates have more load than a limit."""
        busy = np.zeros(len(view), dtype=np.bool_)
        if self.prefill_tokens is not None:
            busy |= view.prefill_tokens > self.prefill_tokens
        if self.decode_blocks is not None:
            busy |= view.decode_blocks > self.decode_blocks
        if self.requests is not None:
            busy |= view.requests > self.requests
        return busy


@dataclass(frozen=True, slots=True)
class Filter:
    """Leaves candidates out.

    A worker's name stands for all of its ranks that are candidates.

    Attributes:
        allowed: Only these; None means all.
        pinned: Only this one; None means any.
        ranks: Only these data-parallel ranks; None means all.
        limits: No candidate that is busy; None means the router's own limits.

    Example:
        >>> from kvindex.policy import Filter, Limits
        >>> Filter(allowed={"w0", ("w1", 3)}, limits=Limits(requests=32)).pinned
    """

    allowed: Collection[Candidate] | None = None
    pinned: Candidate | None = None
    ranks: Collection[int] | None = None
    limits: Limits | None = None

    def eligible(
        self,
        view: View,
        names: Sequence[Candidate],
        found: kvindex.Matches,
        limits: Limits | None = None,
    ) -> Mask | None:
        """Return which candidates the rules leave, None for all of them.

        Args:
            view: What is known of the candidates.
            names: The candidates.
            found: Their rows in the index, with the rank at which each would serve.
            limits: From which load on they are busy.

        Raises:
            NoEligibleWorkerError: If none is left.
        """
        rules: list[tuple[str, Mask | list[bool]]] = []
        if self.allowed is not None:
            rules.append(("allowed", [among(name, self.allowed) for name in names]))
        if self.pinned is not None:
            rules.append(("pinned", [among(name, (self.pinned,)) for name in names]))
        if self.ranks is not None:
            rules.append(("ranks", [rank in self.ranks for rank in found.dp_ranks]))
        if limits is not None:
            rules.append(("busy", ~limits.busy(view)))
        if names and not rules:
            return None
        mask = np.ones(len(names), dtype=np.bool_)
        reasons: dict[str, int] = {}
        for rule, good in rules:
            before = int(mask.sum())
            mask &= np.asarray(good, dtype=np.bool_)
            reasons[rule] = before - int(mask.sum())
        if not mask.any():
            raise nobody(reasons)
        return mask


def among(name: Candidate, names: Collection[Candidate]) -> bool:
    """Return whether a candidate, or its worker, is named."""
    return name in names or (not isinstance(name, str) and name[0] in names)


def nobody(reasons: dict[str, int]) -> NoEligibleWorkerError:
    """Return the error that says that no candidate is left, and why."""
    counts = {rule: number for rule, number in reasons.items() if number}
    why = ", ".join(f"{number} by {rule}" for rule, number in counts.items())
    message = f"no worker is eligible: {why or 'there is no candidate'}"
    return NoEligibleWorkerError(message, counts)

"""Decisions: whom a prompt goes to, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import kvindex
    from kvindex.policy.filter import Candidate
    from kvindex.policy.router import Integers
    from kvindex.policy.view import Counts, Floats, View


class Alternative(NamedTuple):
    """A candidate that could have been chosen.

    Attributes:
        worker: The worker.
        dp_rank: The rank.
        cost: Its cost.
    """

    worker: str
    dp_rank: int
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One candidate, chosen for one prompt.

    Attributes:
        request: The name under which the load knows the request.
        candidate: The candidate as the router was given it.
        worker: The worker to send the prompt to.
        dp_rank: The data-parallel rank to name there.
        cost: The chosen candidate's cost, in the policy's unit.
        row: What the index knows of the chosen candidate.
        prefill_tokens: Tokens that it has to compute, by the weights; 0 in a pool
            that only decodes.
        prompt_tokens: The prompt's length in tokens.
    """

    request: str
    candidate: Candidate
    worker: str
    dp_rank: int
    cost: float
    row: kvindex.Match
    prefill_tokens: int
    prompt_tokens: int
    _keys: Integers = field(repr=False)
    _found: kvindex.Matches = field(repr=False)
    _rows: Counts | None = field(repr=False)
    _view: View = field(repr=False)
    _costs: Floats = field(repr=False)
    _chosen: int = field(repr=False)

    @property
    def alternatives(self) -> list[Alternative]:
        """The other eligible candidates, the best first."""
        workers, ranks = self._found.workers, self._found.dp_ranks
        rows = range(len(workers)) if self._rows is None else self._rows.tolist()
        order = np.argsort(self._costs, kind="stable")
        return [
            Alternative(workers[rows[at]], ranks[rows[at]], float(self._costs[at]))
            for at in order.tolist()
            if at != self._chosen
        ]

    @property
    def why(self) -> dict[str, float]:
        """What the policy saw of the chosen candidate.

        `depth`, `score`, `device` and `decode_blocks` in blocks (the last with the
        prompt's own), `prefill_tokens` of what ran there before, `requests`, how
        many candidates were `eligible`, and the `rank` of the choice among the
        costs, 0 for the lowest.
        """
        at, view = self._chosen, self._view
        return {
            "cost": self.cost,
            "depth": int(view.depths[at]),
            "score": float(view.scores[at]),
            "device": int(view.device[at]),
            "prefill_tokens": int(view.prefill_tokens[at]),
            "decode_blocks": int(view.decode_blocks[at]),
            "requests": int(view.requests[at]),
            "eligible": len(view),
            "rank": int((self._costs < self._costs[at]).sum()),
        }

"""Router policies: who holds what, and who is busy, become a choice.

    from kvindex.policy import Router

    router = Router(index, ["w0", "w1"])
    decision = router.route(tokens)          # worker, dp_rank, cost, row, why
    router.prefill_complete(decision)        # at the first token
    router.done(decision)                    # when the answer ends

Needs numpy (`pip install 'kvindex[policy]'`). Each part works without the rest:
`Load` counts what is running where, policies such as `Cost` turn a `View` into
costs, `Selection` picks one. Nothing here starts a thread or reads a clock unless
a call leaves `now` out.
"""

from kvindex.errors import NoEligibleWorkerError
from kvindex.policy.change import Change
from kvindex.policy.cost import Cost
from kvindex.policy.decision import Decision
from kvindex.policy.disaggregated import Bypass, Disaggregated, Split
from kvindex.policy.filter import Filter, Limits
from kvindex.policy.load import Load, WorkerLoad
from kvindex.policy.predictions import Predictions
from kvindex.policy.router import Override, Router
from kvindex.policy.scorers import (
    CacheThreshold,
    HighestScore,
    LeastLoaded,
    LongestPrefix,
    Random,
    RoundRobin,
)
from kvindex.policy.selection import Selection
from kvindex.policy.view import Policy, View
from kvindex.policy.weights import DYNAMO, LLM_D, VLLM_ROUTER

__all__ = [
    "DYNAMO",
    "LLM_D",
    "VLLM_ROUTER",
    "Bypass",
    "CacheThreshold",
    "Change",
    "Cost",
    "Decision",
    "Disaggregated",
    "Filter",
    "HighestScore",
    "LeastLoaded",
    "Limits",
    "Load",
    "LongestPrefix",
    "NoEligibleWorkerError",
    "Override",
    "Policy",
    "Predictions",
    "Random",
    "RoundRobin",
    "Router",
    "Selection",
    "Split",
    "View",
    "WorkerLoad",
]

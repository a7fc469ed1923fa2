"""Replay: what would a policy be worth on this trace?

    from kvindex.replay import Fleet, generate, policy, read, simulate

    trace = read("conversation_trace.jsonl")         # or generate("chat", seed=1)
    result = simulate(trace, Fleet(workers=8), policy("cost:host=0.75"))
    result.summary()

A fleet of made-up engines serves the trace. What they store and drop reaches the
router as the bytes that vLLM would send, late or not at all if the fleet says so.
Needs numpy (`pip install 'kvindex[policy]'`). `python -m kvindex replay` does the
same for several policies, side by side.
"""

from kvindex.replay.fleet import Fleet
from kvindex.replay.generate import SHAPES, generate
from kvindex.replay.policies import DEFAULT_POLICIES, Named, policy
from kvindex.replay.result import Result, Summary
from kvindex.replay.simulation import simulate
from kvindex.replay.trace import Request, Trace, read

__all__ = [
    "DEFAULT_POLICIES",
    "SHAPES",
    "Fleet",
    "Named",
    "Request",
    "Result",
    "Summary",
    "Trace",
    "generate",
    "policy",
    "read",
    "simulate",
]

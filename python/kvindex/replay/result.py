"""What came of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Summary:
    """A replay in one line.

    Attributes:
        policy: The policy's label.
        requests: How many were served.
        device: Share of the prompts' tokens that were cached on the device.
        host: The same in host memory.
        disk: The same on disk.
        expected: Share of the prompts' tokens that the router took for cached when
            it decided, on any tier; None for policies that do not look.
        ttft_p50: Median time to the first token, in seconds.
        ttft_p99: Its 99th percentile.
        imbalance: The busiest engine's prefill time over the mean; 1 is even.
    """

    policy: str
    requests: int
    device: float
    host: float
    disk: float
    expected: float | None
    ttft_p50: float
    ttft_p99: float
    imbalance: float

    @property
    def cached(self) -> float:
        """Share of the prompts' tokens that were cached on any tier."""
        return self.device + self.host + self.disk


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What happened to each request, and how busy each engine was.

    Attributes:
        trace: The trace's name.
        policy: The policy's label.
        block_tokens: Tokens a block.
        input_lengths: Tokens of each prompt.
        workers: The number of the engine that served each request.
        cached: A row for each request: its blocks that were found on the device, in
            host memory, on disk when its prefill began.
        expected: Blocks of each that the router took for cached, None for policies
            that do not look.
        ttft: Seconds from each request's arrival to its first token.
        busy_seconds: Of each engine, with prompts.
    """

    trace: str
    policy: str
    block_tokens: int
    input_lengths: Counts
    workers: Counts
    cached: Counts
    expected: Counts | None
    ttft: Floats
    busy_seconds: Floats

    def summary(self) -> Summary:
        """Return the replay in one line."""
        tokens = max(1, int(self.input_lengths.sum()))
        shares = self.cached.sum(axis=0) * self.block_tokens / tokens
        mean = float(self.busy_seconds.mean())
        median, late = (
            np.percentile(self.ttft, (50, 99)) if len(self.ttft) else (0.0, 0.0)
        )
        return Summary(
            policy=self.policy,
            requests=len(self.ttft),
            device=float(shares[0]),
            host=float(shares[1]),
            disk=float(shares[2]),
            expected=None
            if self.expected is None
            else float(self.expected.sum() * self.block_tokens / tokens),
            ttft_p50=float(median),
            ttft_p99=float(late),
            imbalance=float(self.busy_seconds.max()) / mean if mean else 1.0,
        )

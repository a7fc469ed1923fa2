"""The table of a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvindex.replay.fleet import Fleet
    from kvindex.replay.result import Result, Summary
    from kvindex.replay.trace import Trace

HEADS = (
    "policy",
    "cached",
    "device",
    "host",
    "disk",
    "expected",
    "TTFT p50",
    "p99",
    "imbalance",
)
FOOT = """\
cached: share of the prompts' tokens that the engines found cached, by tier. expected:
the share that the router took for cached. TTFT: seconds to the first token. imbalance:
the busiest engine's prefill time over the mean."""


def render(trace: Trace, fleet: Fleet, results: Sequence[Result]) -> str:
    """Return a table with a line for each policy."""
    rows = [HEADS, *(cells(result.summary()) for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join((about(trace, fleet), "", *lines, "", FOOT))


def about(trace: Trace, fleet: Fleet) -> str:
    """Return what was served by whom."""
    tokens = f"{trace.input_tokens / 1e6:,.1f} M prompt tokens"
    tiers = (fleet.device_blocks, fleet.host_blocks, fleet.disk_blocks)
    blocks = " + ".join(f"{number:,}" for number in tiers)
    return (
        f"{trace.name}: {len(trace.requests):,} requests in {trace.seconds:,.0f} s, "
        f"{tokens}; {fleet.workers} engines of {blocks} blocks of "
        f"{trace.block_tokens} tokens (device + host + disk)"
    )


def cells(summary: Summary) -> tuple[str, ...]:
    """Return the line of one policy."""
    return (
        summary.policy,
        *(
            f"{share:.1%}"
            for share in (summary.cached, summary.device, summary.host, summary.disk)
        ),
        "-" if summary.expected is None else f"{summary.expected:.1%}",
        f"{summary.ttft_p50:.2f}",
        f"{summary.ttft_p99:.2f}",
        f"{summary.imbalance:.2f}",
    )

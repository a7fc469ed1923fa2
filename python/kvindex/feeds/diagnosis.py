"""What is wrong with how events arrive? Findings about a feed's sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvindex.diagnosis import found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvindex.diagnosis import Finding, Kind
    from kvindex.feeds.state import SourceState

ADVICE: dict[Kind, str] = {
    "unreachable": (
        "{endpoint}: no publisher there ({status}). Is the engine up, with "
        "its events switched on (--kv-events-config), and the address reachable?"
    ),
    "silent": (
        "{endpoint}: connected, but nothing came for {quiet} s while other sources "
        "talk. It may be idle; or is the topic another?"
    ),
    "lost": (
        "{endpoint}: batches are missing that no replay brought. Give the source a "
        "replay endpoint, the engine larger buffer_steps, the feed a larger hwm."
    ),
    "replay": (
        "{endpoint}: a replay was asked for and did not come to its end in time. Is "
        "replay= the engine's replay_endpoint, and replay_timeout long enough?"
    ),
    "unreadable": (
        "{endpoint}: messages could not be read ({error}). Is it a stream of KV events?"
    ),
    "rank": (
        "{endpoint}: batches name rank {ranks} where the source says {rank}. Theirs "
        "counts: set dp_rank= accordingly."
    ),
}
"""What each kind means and what to set, in the order in which they are told."""


def of_sources(
    states: Sequence[SourceState], *, now: float, silence: float
) -> list[Finding]:
    """Return what is found of each source; `now` is in Unix seconds."""
    latest = max((state.last_activity or 0.0 for state in states), default=0.0)
    talking = now - latest < silence
    findings = []
    for state in states:
        # Who has only just been reached had no time to say anything.
        times = (state.last_activity, state.last_connect)
        quiet = int(now - max((time for time in times if time), default=now))
        others = [rank for rank in state.ranks if rank != state.dp_rank]
        counts: dict[Kind, int] = {
            "unreachable": int(state.status in {"connecting", "failed"}),
            "silent": quiet
            * (talking and state.status == "live" and quiet >= int(silence)),
            "lost": state.lost,
            "replay": state.replay_failures,
            "unreadable": state.undecodable + state.malformed,
            "rank": len(others),
        }
        words = {
            "endpoint": state.endpoint,
            "status": "; ".join(filter(None, (state.status, state.last_error))),
            "error": state.last_error,
            "quiet": quiet,
            "ranks": ", ".join(map(str, others)),
            "rank": state.dp_rank,
        }
        name = (None, state.worker) if state.pool else (state.worker, None)
        findings += found(ADVICE, counts, words, (*name, state.dp_rank))
    return findings

"""What is wrong with a source of events? Findings, each with what to do about it.

    for finding in index.diagnose(tiers=("host",)):
        print(finding)

`Indexer.diagnose` looks at what the events said, `Feed.diagnose` at how they
arrived. `docs/engines.md` has a table of all kinds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from kvindex.engines.reading import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Kind = Literal[
    # what the events said
    "sizeless",
    "unresolved",
    "tier",
    "block_size",
    "names",
    "orphan",
    "silent",
    "gap",
    "restart",
    "lora_id",
    "medium",
    "group",
    "ambiguous",
    "faulty",
    # how they arrived
    "unreachable",
    "lost",
    "replay",
    "unreadable",
    "rank",
]

ADVICE: dict[Kind, str] = {
    "silent": (
        "Nothing came while the others sent {silence} batches. It may be idle; or its "
        "events are not switched on (--kv-events-config), or come under another name "
        "or rank."
    ),
    "tier": (
        "Nothing was ever stored on {tiers}: is offloading switched on, and are its "
        'events ("enable_kv_events" of a secondary tier; write-through in SGLang)?'
    ),
    "orphan": (
        "Blocks wait for a parent that nobody has announced, or were dropped. Batches "
        "were missed at the start or in between (use a replay endpoint), or a stream "
        "that announces parents is not followed."
    ),
    "gap": (
        "Batches are missing from the numbers: use a feed, a replay endpoint, and "
        "larger buffer_steps and hwm."
    ),
    "restart": (
        "Only old numbers come, as from an engine that restarted: call reset, or let a "
        "feed follow it."
    ),
    "sizeless": (
        "Offloaded chunks come by name alone, with neither tokens nor a size. With "
        'vLLM 0.24 and later set "self_describing_kv_events": true in '
        "kv_connector_extra_config; else say how large a chunk is: "
        "register(..., chunk_tokens={{tier: tokens}})."
    ),
    "unresolved": (
        "Stores without tokens name blocks that nobody has announced. The events that "
        "announce them are switched off or were missed: make them self-describing, or "
        "follow the stream from its start (a replay endpoint)."
    ),
    "block_size": (
        "Blocks of {size} tokens do not fit an index of {index_size}: make the Indexer "
        "with the engine's block size."
    ),
    "names": (
        "This worker calls no block by the name that others give it: hashes are seeded "
        "at random. Matching does without, but caches that are shared by hash never "
        "hit: set the same PYTHONHASHSEED for all workers (vLLM before 0.29, and its "
        "xxhash algorithms), and the same hash algorithm for prefix caching."
    ),
    "lora_id": (
        "Adapter {lora_id} comes by number and without a name: "
        "register(..., lora_ids={{number: name}})."
    ),
    "medium": (
        "Nobody knows the medium {medium!r}: register(..., media={{medium: tier}})."
    ),
    "group": (
        "A hybrid model: cache groups besides the one with full attention are not "
        "indexed, so depths are those of that group alone. "
        "Indexer(group_rules=True) asks every group."
    ),
    "ambiguous": (
        "Hashes mean blocks of several tenants or adapters, and were refused: SGLang "
        'needs "format": "dynamo" in --kv-events-config.'
    ),
    "faulty": (
        "Events could not be read, by reason {faults}. Is the profile right? "
        "apply(..., strict=True) says what is wrong with the first."
    ),
}
"""What each kind means and what to set, in the order in which they are told."""

FAULTS = (
    *("unknown_type", "malformed", "extra_keys", "parent", "duplicate_hash"),
    "tokens",
)
SILENCE = 100
"""Batches that each of the others has sent, on average, when one is called silent."""
DUPLICATES = 8
"""Old numbers in a row that look like a restarted engine."""
COMPARED = 3
"""Blocks that have to differ in name before all are said to differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that looks wrong with one source.

    Attributes:
        kind: What it is, one word.
        count: How often: hashes; blocks that wait for "orphan"; batches for "gap",
            "restart", "lost", "replay" and "unreadable"; for "silent" what the others
            sent meanwhile, or seconds where a feed says so; prefixes compared for
            "names"; tiers, ranks, and 1 for "unreachable".
        advice: What it means and what to set, in one or two sentences.
        worker: The worker's name, None for a pool.
        pool: The pool's name, None for a worker.
        dp_rank: The worker's rank, 0 for a pool.
    """

    kind: Kind
    count: int
    advice: str
    worker: str | None = None
    pool: str | None = None
    dp_rank: int = 0

    def __str__(self) -> str:
        """Say whose it is, what it is, and what to do."""
        whose = f"pool {self.pool!r}" if self.pool else f"worker {self.worker!r}"
        rank = f", rank {self.dp_rank}" if self.dp_rank else ""
        return f"{whose}{rank}: {self.kind} ({self.count}): {self.advice}"


class Case(TypedDict, total=False):
    """What the index knows of one holder; see `Symptoms` of the core."""

    worker: str
    pool: str
    dp_rank: int
    reasons: dict[str, int]
    silent_tiers: list[str]
    stored: int
    sizeless: int
    batches: int
    missed: int
    silence: int
    waiting: int
    duplicates: int
    compared: int
    agreeing: int
    medium: str | None
    block_size: int | None
    lora_id: int | None


def of_index(
    cases: Sequence[Case],
    block_size: int,
    group_rules: bool,  # noqa: FBT001 - called from Rust
) -> list[Finding]:
    """Return what is found of each holder of an index."""
    talking = sum(case["batches"] > 0 for case in cases)
    findings = []
    for case in cases:
        counts = _counts(case, talking)
        # Of pools the main group alone counts, whatever is set.
        if group_rules or "pool" in case:
            counts["group"] = 0
        reasons = case["reasons"]
        words: dict[str, object] = {
            **case,
            "index_size": block_size,
            "size": case["block_size"] or "some other number of",
            "tiers": ", ".join(case["silent_tiers"]),
            "faults": ", ".join(f"{each} {reasons[each]}" for each in FAULTS),
        }
        whose = (case.get("worker"), case.get("pool"), case["dp_rank"])
        findings += found(ADVICE, counts, words, whose)
    return findings


def found(
    advice: Mapping[Kind, str],
    counts: Mapping[Kind, int],
    words: Mapping[str, object],
    whose: tuple[str | None, str | None, int],
) -> list[Finding]:
    """Return a finding for each kind that was counted, in the order of the advice.

    Args:
        advice: A text for each kind, with the names of words in braces.
        counts: How often each kind was found.
        words: What stands in the texts.
        whose: The worker or None, the pool or None, and the rank.
    """
    worker, pool, dp_rank = whose
    return [
        Finding(
            kind=kind,
            count=counts[kind],
            advice=text.format_map(words),
            worker=worker,
            pool=pool,
            dp_rank=dp_rank,
        )
        for kind, text in advice.items()
        if counts[kind]
    ]


def kinds(
    findings: Iterable[Finding], worker: tuple[str, int] | None = None
) -> dict[str, int] | list[str]:
    """Count findings by kind; or list the kinds of one worker's rank."""
    if worker is None:
        return dict(Counter(finding.kind for finding in findings))
    return [each.kind for each in findings if (each.worker, each.dp_rank) == worker]


def _counts(case: Case, talking: int) -> dict[Kind, int]:
    """Return how often each kind is found of a holder."""
    reasons = case["reasons"]
    others = max(1, talking - (case["batches"] > 0))
    silent = "worker" in case and case["silence"] >= SILENCE * others
    restarted = case["duplicates"] >= DUPLICATES
    differs = case["compared"] >= COMPARED and not case["agreeing"]
    return {
        "silent": case["silence"] * silent,
        "tier": len(case["silent_tiers"]) * (case["stored"] > 0),
        "orphan": case["waiting"] + reasons["orphan_dropped"],
        "gap": case["missed"],
        "restart": case["duplicates"] * restarted,
        "sizeless": case["sizeless"],
        "unresolved": reasons["unresolved"],
        "block_size": reasons["block_size"],
        "names": case["compared"] * differs,
        "lora_id": reasons["lora_id"],
        "medium": reasons["medium"] * (case["medium"] != LEFT_OUT),
        "group": reasons["group"],
        "ambiguous": reasons["ambiguous"],
        "faulty": sum(reasons[fault] for fault in FAULTS),
    }

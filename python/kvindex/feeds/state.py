"""What a feed shows of itself: a frozen row per source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvindex.feeds.source import Key, Source

Range = tuple[int, int]
Status = Literal["new", "connecting", "replaying", "live", "failed", "closed"]

LAST_RANGES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """One source of a feed as it was at one moment.

    Attributes:
        worker: The worker's name, or the pool's.
        dp_rank: The rank that the source was given.
        endpoint: The address of its events.
        source: The index's name for the stream.
        pool: Whether it is a pool.
        status: `new` (the feed is not open), `connecting` (no publisher on the
            other side), `replaying` (live batches wait for a replay), `live`,
            `failed` (given up, see `last_error`) or `closed`.
        seq: The number of the last batch applied, None before the first.
        applied: Batches applied, replayed ones included.
        duplicates: Batches that came again and were dropped.
        gaps: Times that the live numbers jumped.
        last_gap: The last such jump as (first missing, last missing).
        lost: Batches that neither came nor were replayed, those before the
            first contact included.
        lost_ranges: The latest 16 ranges of lost batches, oldest first.
        held: Live batches that wait for a replay now.
        replays: Replays asked for.
        replayed: Batches applied out of a replay.
        replay_failures: Replays that did not end in time.
        undecodable: Batches that the index could not read; skipped.
        malformed: Messages with a wrong number of frames, or with a number that
            is not 8 bytes long; dropped.
        restarts: Times that another engine was recognised. Each reset the
            holder.
        resets: Times that lost batches reset the holder (`on_gap="reset"`).
        connects: Connections made, repeated ones included.
        ranks: The ranks that were fed: those that batches named, else `dp_rank`.
        last_error: The last thing that went wrong, None if nothing did.
        last_activity: When the last message came, in Unix seconds, None before
            the first.
        last_connect: When the last connection was made, in Unix seconds, None
            before the first.
    """

    worker: str
    dp_rank: int
    endpoint: str
    source: str
    pool: bool
    status: Status
    seq: int | None
    applied: int
    duplicates: int
    gaps: int
    last_gap: Range | None
    lost: int
    lost_ranges: tuple[Range, ...]
    held: int
    replays: int
    replayed: int
    replay_failures: int
    undecodable: int
    malformed: int
    restarts: int
    resets: int
    connects: int
    ranks: tuple[int, ...]
    last_error: str | None
    last_activity: float | None
    last_connect: float | None

    @property
    def key(self) -> Key:
        """What tells this source from the others of a feed."""
        return (self.worker, self.dp_rank, self.source, self.pool)


@dataclass
class Tally:
    """The part of a `SourceState` that runs, field by field the same."""

    seq: int | None = None
    applied: int = 0
    duplicates: int = 0
    gaps: int = 0
    last_gap: Range | None = None
    lost: int = 0
    lost_ranges: tuple[Range, ...] = ()
    held: int = 0
    replays: int = 0
    replayed: int = 0
    replay_failures: int = 0
    undecodable: int = 0
    malformed: int = 0
    restarts: int = 0
    resets: int = 0
    connects: int = 0
    ranks: tuple[int, ...] = ()
    last_error: str | None = None
    last_activity: float | None = None
    last_connect: float | None = None

    def lose(self, first: int, last: int) -> None:
        """Count a range of batches that will never come."""
        self.lost += last - first + 1
        self.lost_ranges = (*self.lost_ranges, (first, last))[-LAST_RANGES:]


def resting(source: Source, status: Status) -> SourceState:
    """Return the row of a source that has no sockets yet."""
    return row(source, status, Tally())


def row(source: Source, status: Status, tally: Tally) -> SourceState:
    """Return the row of a source."""
    return SourceState(
        worker=source.worker,
        dp_rank=source.dp_rank,
        endpoint=source.endpoint,
        source=source.source,
        pool=source.pool,
        status=status,
        **vars(tally),
    )

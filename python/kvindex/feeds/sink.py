"""The way into the index: batches of one source, in order, one at a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kvindex.errors import DecodeError

if TYPE_CHECKING:
    from kvindex import ApplyReport, BlockStored, Indexer
    from kvindex.feeds.source import Source
    from kvindex.feeds.state import Tally

log = logging.getLogger("kvindex.feeds")


class Sink:
    """One source's way into the index. Not thread-safe: one thread feeds it."""

    def __init__(self, index: Indexer, source: Source, tally: Tally) -> None:
        """Lead the batches of `source` to `index` and count them in `tally`."""
        self._index = index
        self._source = source
        self._tally = tally
        self._rank = source.dp_rank
        self._ended = False

    def apply(self, seq: int, payload: bytes) -> bool:
        """Apply a batch, or step over it if it cannot be decoded.

        Returns:
            Whether its number was new to the index.

        Raises:
            Exception: Whatever the index raises other than `DecodeError`.
        """
        try:
            report = self._send(seq, payload, self._source.dp_rank)
        except DecodeError as error:
            return self._skip(seq, error)
        tally = self._tally
        new = report.status != "duplicate"
        if new:
            tally.applied += 1
        else:
            # Somebody else, an earlier feed most likely, has applied it.
            tally.duplicates += 1
        tally.seq = seq
        if self._source.epoch is not None:
            self._ended = "epoch" in report.reasons
        self._rank = report.dp_rank
        if self._rank not in tally.ranks:
            self._new_rank(self._rank)
        return new

    def reset(self) -> None:
        """Forget every holder that this source has fed.

        Nothing is forgotten once the source's epoch has ended: the holder is
        somebody else's by then.
        """
        if self._ended:
            return
        if self._source.pool:
            self._index.reset_pool(self._source.worker)
            return
        for rank in self._tally.ranks or (self._rank,):
            self._index.reset(self._source.worker, dp_rank=rank)

    def _send(
        self, seq: int, payload: bytes | list[BlockStored], rank: int
    ) -> ApplyReport:
        source = self._source
        if source.pool:
            return self._index.apply(
                payload,
                pool=source.worker,
                source=source.source,
                seq=seq,
                epoch=source.epoch,
            )
        return self._index.apply(
            payload,
            worker=source.worker,
            dp_rank=rank,
            source=source.source,
            seq=seq,
            epoch=source.epoch,
        )

    def _skip(self, seq: int, error: DecodeError) -> bool:
        # An empty batch moves the cursor on, so that the next one is no gap.
        # It names no rank; the stream's own is the one that it named last.
        report = self._send(seq, [], self._rank)
        tally = self._tally
        tally.undecodable += 1
        tally.seq = seq
        tally.last_error = f"batch {seq} skipped: {error}"
        if tally.undecodable & (tally.undecodable - 1) == 0:
            # At 1, 2, 4, 8, ...: a source that sends nothing else is told
            # about without filling the log.
            log.warning(
                "%s: batch %d skipped, %d so far: %s",
                self._source.endpoint,
                seq,
                tally.undecodable,
                error,
            )
        return report.status != "duplicate"

    def _new_rank(self, rank: int) -> None:
        self._tally.ranks = (*self._tally.ranks, rank)
        if rank != self._source.dp_rank:
            log.warning(
                "%s: batches name rank %d where the source says %d; theirs counts",
                self._source.endpoint,
                rank,
                self._source.dp_rank,
            )

"""Order: which batch of a source comes next, and is it still the same engine?

The tracker is told what happened and when; it opens no socket, reads no clock
and waits for nothing. It applies batches in the order of their numbers:

- A live batch with the next number is applied at once.
- A live batch that jumps is held back while a replay is asked for, so that an
  older batch is never applied after a newer one. What no replay brings is lost
  and reported.
- Every replay begins with a batch that is known, the one at the cursor: a
  different one under that number was published by another engine.

Another engine, that is a restart, is recognised

- by a live number that goes back, unless the payload is the one remembered
  under that number (then it was delivered twice), or if the index has that
  number already though nothing was applied here;
- by a replay that has a different batch under a known number or, after a
  reconnect, none under the number that was the cursor then.

The holder is then reset and the new engine's batches are asked for from 0.
As long as no replay has answered after a reconnect, what was applied since is
in doubt, and each replay begins where the doubt does.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING

from kvindex.feeds.digests import Digests
from kvindex.feeds.exchange import Exchange

if TYPE_CHECKING:
    from kvindex.feeds.settings import Settings
    from kvindex.feeds.sink import Sink
    from kvindex.feeds.source import Source
    from kvindex.feeds.state import Range, Status, Tally

log = logging.getLogger("kvindex.feeds")

# Far more than a live batch can be late by: the messages that ZMQ still holds
# when a replay overtakes them.
REMEMBERED = 1024
# A replay may take this many times its longest silence in all.
REPLAY_LIMIT = 10
# A source whose replays fail is asked less and less often, down to every
# check_interval * 2**SLOWEST seconds.
SLOWEST = 6


class Tracker:
    """Puts one source's batches in order. Not thread-safe."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        sink: Sink,
        tally: Tally,
    ) -> None:
        """Follow `source` from the beginning."""
        self._source = source
        self._settings = settings
        self._sink = sink
        self._tally = tally
        self._cursor: int | None = None
        self._news = False
        self._exchange: Exchange | None = None
        self._connected = False
        self._held: dict[int, bytes] = {}
        self._digests = Digests(max(REMEMBERED, settings.hold_back))
        self._newest: int | None = None
        self._holes: deque[Range] = deque(maxlen=REMEMBERED)
        self._suspect: tuple[int, bytes] | None = None
        self._failures = 0
        self._doubt: int | None = None
        self._check_at = math.inf

    @property
    def exchange(self) -> Exchange | None:
        """The replay to be had now; a new object asks for a new one."""
        return self._exchange

    @property
    def status(self) -> Status:
        """How the source stands."""
        if not self._connected:
            return "connecting"
        waits = self._exchange is not None and not self._exchange.check
        return "replaying" if waits else "live"

    @property
    def deadline(self) -> float:
        """When `tick` has something to do, infinity if never."""
        return self._check_at if self._exchange is None else self._exchange.deadline

    # What happens to a source.

    def connected(self, now: float) -> None:
        """A publisher is there, for the first time or again."""
        self._connected = True
        self._tally.connects += 1
        if self._source.replay is not None:
            # Whatever is held may be another engine's, and is replayed if not.
            self._drop_held()
            if self._doubt is None:
                self._doubt = self._cursor
            self._ask(now)

    def disconnected(self) -> None:
        """No publisher is there; ZMQ goes on trying."""
        self._connected = False
        self._check_at = math.inf

    def live(self, seq: int, payload: bytes, now: float) -> None:
        """Take a batch that was published just now."""
        same = self._known(seq, payload)
        if same or (same is None and self._overtaken(seq)):
            self._repeated(seq, now, known=same is True)
        elif same is None and self._advances(seq):
            self._advance(seq, payload, now)
        elif same is None and self._doubtful(seq):
            self._tally.duplicates += 1
            self._suspect = (seq, payload)
        else:
            self._restarted(seq, payload, now)

    def replayed(self, seq: int, payload: bytes, now: float) -> None:
        """Take a batch out of the replay that was asked for."""
        exchange = self._exchange
        if exchange is None:
            return
        exchange.answers += 1
        exchange.deadline = min(now + self._settings.replay_timeout, exchange.limit)
        if exchange.awaited is not None and seq > exchange.awaited:
            self._another_engine(now, f"no batch under number {exchange.awaited}")
            return
        if self._cursor is not None and seq <= self._cursor:
            self._recognise(exchange, seq, payload, now)
            return
        # Replays are in order: what is below this number comes no more, unless
        # it is held already.
        self._flush(before=seq)
        if self._held.pop(seq, None) is not None:
            self._tally.duplicates += 1
        self._take(seq, payload)
        self._tally.replayed += 1
        self._follow()

    def replay_ended(self, now: float) -> None:
        """The replay's end marker came."""
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.awaited is not None:
            self._another_engine(now, f"no batch under number {exchange.awaited}")
            return
        self._failures = 0
        self._doubt = None
        self._settle(exchange, now)

    def replay_failed(self, why: str, now: float) -> None:
        """The replay cannot be had; go on with what there is."""
        exchange = self._exchange
        if exchange is None:
            return
        self._failures = min(self._failures + 1, SLOWEST)
        self._tally.replay_failures += 1
        self._tally.last_error = f"replay from {exchange.start}: {why}"
        log.warning("%s: replay from %d: %s", self._source.replay, exchange.start, why)
        self._rest(now)
        self._flush()

    def tick(self, now: float) -> None:
        """Do what `deadline` asked to be woken for."""
        exchange = self._exchange
        if exchange is not None and now >= exchange.deadline:
            self.replay_failed("no end in time", now)
        elif exchange is None and now >= self._check_at:
            self._ask(now, check=self._doubt is None)

    # What a live number means.

    @property
    def _next(self) -> int:
        return 0 if self._cursor is None else self._cursor + 1

    def _known(self, seq: int, payload: bytes) -> bool | None:
        held = self._held.get(seq)
        if held is not None:
            return held == payload
        return self._digests.same(seq, payload)

    def _advances(self, seq: int) -> bool:
        if self._cursor is None:
            return not self._held or seq > max(self._held)
        return seq > self._cursor

    def _overtaken(self, seq: int) -> bool:
        # It does not go back on the live stream: a replay was faster.
        if self._cursor is None or seq > self._cursor:
            return False
        if self._newest is None:
            return self._source.replay is not None
        return seq > self._newest

    def _doubtful(self, seq: int) -> bool:
        # A lost batch after all, or a new engine that has come as far as that?
        # ZMQ never delivers late, a relay might: one batch proves nothing, a
        # second one that follows it does.
        return any(first <= seq <= last for first, last in self._holes) and (
            self._suspect is None or seq <= self._suspect[0]
        )

    # What follows from it.

    def _repeated(self, seq: int, now: float, *, known: bool) -> None:
        self._tally.duplicates += 1
        first = self._newest is None
        self._newest = max(seq, self._newest or 0)
        if first and not known and self._exchange is None:
            # The first live batch is one that only a replay can have brought.
            self._ask(now, check=True)

    def _advance(self, seq: int, payload: bytes, now: float) -> None:
        self._suspect = None
        self._newest = seq
        if self._exchange is not None and self._exchange.check:
            # News is better than asking for news.
            self._rest(now)
        if self._exchange is None and seq == self._next:
            self._take_news(seq, payload, now)
            return
        if self._exchange is None and self._cursor is not None:
            self._jumped(seq)
        if self._source.replay is None:
            self._take_news(seq, payload, now)
            return
        self._hold(seq, payload, now)
        if self._exchange is None and self._held:
            self._ask(now)

    def _jumped(self, seq: int) -> None:
        gap = (self._next, seq - 1)
        self._tally.gaps += 1
        self._tally.last_gap = gap
        log.info("%s: batches %d to %d are missing", self._source.endpoint, *gap)

    def _hold(self, seq: int, payload: bytes, now: float) -> None:
        self._held[seq] = payload
        exchange = self._exchange
        if len(self._held) > self._settings.hold_back and exchange is not None:
            if exchange.answers:
                # The publisher has them too, and is answering.
                self._held.clear()
                exchange.again = True
            else:
                self.replay_failed("no answer before the hold-back was full", now)
        self._tally.held = len(self._held)

    def _restarted(self, seq: int, payload: bytes, now: float) -> None:
        first = self._suspect
        self._forget(f"number {seq} came again with another batch")
        if first is not None and first[0] < seq:
            self._tally.duplicates -= 1
            self._held[first[0]] = first[1]
        self._held[seq] = payload
        self._newest = seq
        if self._source.replay is None:
            self._flush()
            return
        self._tally.held = len(self._held)
        self._ask(now)

    def _another_engine(self, now: float, why: str) -> None:
        self._forget(why)
        self._ask(now)

    def _forget(self, why: str) -> None:
        log.warning("%s: another engine: %s", self._source.endpoint, why)
        self._tally.restarts += 1
        self._tally.seq = None
        self._sink.reset()
        self._cursor = self._newest = self._doubt = None
        self._suspect = self._exchange = None
        self._digests.clear()
        self._holes.clear()
        self._drop_held()

    # How a replay is begun and ended.

    def _ask(self, now: float, *, check: bool = False) -> None:
        self._tally.replays += 1
        doubt = self._doubt
        known = doubt is not None and self._digests.knows(doubt)
        self._exchange = Exchange(
            start=(self._cursor or 0) if doubt is None else doubt,
            awaited=doubt if known else None,
            check=check,
            newest=self._newest,
            deadline=now + self._settings.replay_timeout,
            limit=now + REPLAY_LIMIT * self._settings.replay_timeout,
        )

    def _recognise(
        self, exchange: Exchange, seq: int, payload: bytes, now: float
    ) -> None:
        """Look at a batch that was applied before."""
        if self._digests.same(seq, payload) is False:
            self._another_engine(now, f"another batch under number {seq}")
            return
        if seq == exchange.awaited:
            exchange.awaited = None

    def _settle(self, exchange: Exchange, now: float) -> None:
        """Apply what was held, or ask again for what was published meanwhile."""
        self._follow()
        newest = exchange.newest
        while self._held and newest is not None and min(self._held) <= newest:
            self._flush(before=min(self._held) + 1)
            self._follow()
        if self._held or exchange.again:
            self._ask(now)
        else:
            self._rest(now)

    def _rest(self, now: float) -> None:
        self._exchange = None
        interval = self._settings.check_interval
        if interval is None or self._source.replay is None or not self._connected:
            self._check_at = math.inf
        else:
            self._check_at = now + interval * 2**self._failures

    # How batches get into the index.

    def _take_news(self, seq: int, payload: bytes, now: float) -> None:
        """Apply a batch that was published just now."""
        if not self._take(seq, payload) and not self._news:
            # An earlier feed has brought the index further than this engine
            # ever was.
            self._restarted(seq, payload, now)
        elif self._doubt is None:
            self._rest(now)

    def _take(self, seq: int, payload: bytes) -> bool:
        """Apply a batch; False if the index had its number already."""
        if seq > self._next:
            self._lose(self._next, seq - 1)
        news = self._sink.apply(seq, payload)
        self._news = self._news or news
        self._cursor = seq
        self._digests.put(seq, payload)
        return news

    def _follow(self) -> None:
        """Apply the held batches that are next."""
        while (payload := self._held.pop(self._next, None)) is not None:
            self._take(self._next, payload)
        self._tally.held = len(self._held)

    def _flush(self, before: int | None = None) -> None:
        """Apply the held batches below a number, or all, with their gaps."""
        for seq in sorted(self._held):
            if before is not None and seq >= before:
                break
            self._take(seq, self._held.pop(seq))
        self._tally.held = len(self._held)

    def _drop_held(self) -> None:
        self._held.clear()
        self._tally.held = 0

    def _lose(self, first: int, last: int) -> None:
        self._tally.lose(first, last)
        log.warning("%s: batches %d to %d are lost", self._source.endpoint, first, last)
        if self._cursor is None:
            # Nothing was built on what came before the first contact, and a
            # restarted engine begins there again.
            return
        self._holes.append((first, last))
        if self._settings.on_gap == "reset":
            self._tally.resets += 1
            self._sink.reset()

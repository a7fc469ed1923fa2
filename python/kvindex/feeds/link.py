"""Links: a source's sockets and its tracker, joined."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import zmq

from kvindex.errors import ConfigError
from kvindex.feeds import wire
from kvindex.feeds.sink import Sink
from kvindex.feeds.state import Tally, row
from kvindex.feeds.tracker import Tracker
from kvindex.feeds.zmq import Replay, Subscription

if TYPE_CHECKING:
    from kvindex import Indexer
    from kvindex.feeds.exchange import Exchange
    from kvindex.feeds.settings import Settings
    from kvindex.feeds.source import Source
    from kvindex.feeds.state import SourceState, Status
    from kvindex.feeds.zmq import Context, Socket

# Messages that one link takes before the others have their turn.
TURN = 64


class Watch(Protocol):
    """Who must be told which sockets to wait for."""

    def watch(self, socket: Socket, link: Link) -> None:
        """Wake the link when the socket has something to read."""

    def unwatch(self, socket: Socket) -> None:
        """Do not look at the socket any more."""


class Link:
    """One source's sockets, and the tracker that decides about what they bring.

    Made on any thread, used afterwards on the feed's alone.
    """

    def __init__(
        self,
        context: Context,
        index: Indexer,
        source: Source,
        settings: Settings,
    ) -> None:
        """Open the subscription; the replay is opened when it is needed.

        Raises:
            ConfigError: If the endpoint cannot be used.
        """
        self.source = source
        self._context = context
        self._tally = Tally()
        self._tracker = Tracker(
            source, settings, Sink(index, source, self._tally), self._tally
        )
        self._subscription = Subscription(context, source, settings.hwm)
        self._replay: Replay | None = None
        self._exchange: Exchange | None = None
        self._failed = False

    @property
    def deadline(self) -> float:
        """When `turn` must be called though nothing came, monotonic seconds."""
        return self._tracker.deadline

    def state(self, status: Status | None = None) -> SourceState:
        """Return how the source stands, under another status if one is given."""
        if status is None:
            status = "failed" if self._failed else self._tracker.status
        return row(self.source, status, self._tally)

    def open(self, watch: Watch) -> None:
        """Begin to listen."""
        watch.watch(self._subscription.socket, self)
        watch.watch(self._subscription.monitor, self)
        if self.source.endpoint.startswith("inproc:"):
            # ZMQ has no connections to monitor inside a process.
            self._connected(time.monotonic())
            self._follow_exchange(watch)

    def turn(self, watch: Watch) -> None:
        """Take what has arrived, up to a bound, and what is due."""
        now = time.monotonic()
        messages = self._subscription.receive(TURN)
        # Only now: a message of a new connection is never older than the news
        # of it, so the news must be read after the message and heeded first.
        for made in self._subscription.changes():
            if made:
                self._connected(now)
            else:
                self._tracker.disconnected()
        self._follow_exchange(watch)
        self._take_answers(now)
        for frames in messages:
            self._take_message(frames, now)
        self._tracker.tick(now)
        self._follow_exchange(watch)

    def fail(self, watch: Watch, error: BaseException) -> None:
        """Give the source up."""
        self._failed = True
        self._tally.last_error = f"{type(error).__name__}: {error}"
        self.close(watch)

    def close(self, watch: Watch) -> None:
        """Close the sockets. What is held back is dropped."""
        self._close_replay(watch)
        watch.unwatch(self._subscription.socket)
        watch.unwatch(self._subscription.monitor)
        self._subscription.close()

    def _connected(self, now: float) -> None:
        self._tally.last_connect = time.time()
        self._tracker.connected(now)

    def _take_message(self, frames: list[bytes], now: float) -> None:
        self._tally.last_activity = time.time()
        batch = wire.parse_live(frames)
        if batch is None:
            self._malformed("event message", frames)
        else:
            self._tracker.live(*batch, now)

    def _take_answers(self, now: float) -> None:
        if self._replay is None:
            return
        for frames in self._replay.receive(TURN):
            self._tally.last_activity = time.time()
            batch = wire.parse_reply(frames)
            if batch is None:
                self._malformed("replay answer", frames)
            elif batch[0] == wire.END:
                self._tracker.replay_ended(now)
            else:
                self._tracker.replayed(*batch, now)
            if self._tracker.exchange is not self._exchange:
                # What else has arrived answers a question that is settled.
                return

    def _malformed(self, what: str, frames: list[bytes]) -> None:
        self._tally.malformed += 1
        sizes = ", ".join(str(len(frame)) for frame in frames)
        self._tally.last_error = f"{what} dropped: frames of {sizes} bytes"

    def _follow_exchange(self, watch: Watch) -> None:
        """Open and close the replay socket as the tracker wants it."""
        while self._tracker.exchange is not self._exchange:
            self._close_replay(watch)
            self._exchange = self._tracker.exchange
            if self._exchange is None or self.source.replay is None:
                return
            try:
                self._replay = Replay(
                    self._context, self.source.replay, self._exchange.start
                )
            except (ConfigError, OSError, zmq.ZMQError) as error:
                self._tracker.replay_failed(str(error), time.monotonic())
            else:
                watch.watch(self._replay.socket, self)

    def _close_replay(self, watch: Watch) -> None:
        if self._replay is not None:
            watch.unwatch(self._replay.socket)
            self._replay.close()
            self._replay = None

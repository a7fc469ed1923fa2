"""A publisher without sockets or time: what happens when is the test's choice.

It drives a `Tracker` as a link would, and records what is applied. Live
messages and replay answers wait in queues of their own, so that a test can
interleave them in every order that ZMQ allows.
"""

from collections import deque

from kvindex.feeds.exchange import Exchange
from kvindex.feeds.settings import Settings
from kvindex.feeds.source import Source
from kvindex.feeds.state import Tally
from kvindex.feeds.tracker import Tracker

REPLAY = "tcp://engine:5657"


class Recorder:
    """A sink that keeps what it was given since the last reset."""

    def __init__(self, tally: Tally, had: int) -> None:
        """Start empty; numbers below `had` are known from an earlier feed."""
        self.had = had
        self.applied: list[tuple[int, bytes]] = []
        self.resets = 0
        self._tally = tally

    def apply(self, seq: int, payload: bytes) -> bool:
        """Keep a batch, unless its number is known; whether it was not."""
        self._tally.seq = seq
        if seq < self.had:
            return False
        assert not self.applied or seq > self.applied[-1][0], "older after newer"
        self.applied.append((seq, payload))
        self._tally.applied += 1
        return True

    def reset(self) -> None:
        """Forget the batches."""
        self.applied.clear()
        self.had = 0
        self.resets += 1


class Simulation:
    """One engine after another, the network, and the tracker under test."""

    def __init__(
        self,
        *,
        replay: bool = True,
        buffer_steps: int | None = None,
        had: int = 0,
        **settings: object,
    ) -> None:
        """Make a tracker that is not connected yet."""
        self.tally = Tally()
        self.sink = Recorder(self.tally, had)
        source = Source("w0", "tcp://engine:5557", replay=REPLAY if replay else None)
        self.tracker = Tracker(
            source,
            Settings(**settings),  # type: ignore[arg-type]
            self.sink,  # type: ignore[arg-type]
            self.tally,
        )
        self.now = 100.0
        self.engine = 0
        self.connected = False
        self.live: deque[tuple[int, bytes]] = deque()
        self.answers: deque[tuple[int, bytes] | None] = deque()
        self.delivered: list[tuple[int, bytes]] = []
        self._buffer_steps = buffer_steps
        self._served: Exchange | None = None
        self._boot()

    @property
    def exchange(self) -> Exchange | None:
        """The replay that the tracker wants."""
        return self.tracker.exchange

    @property
    def seqs(self) -> list[int]:
        """The numbers applied since the last reset."""
        return [seq for seq, _ in self.sink.applied]

    def status(self) -> str:
        """Return how the tracker says the source stands."""
        return self.tracker.status

    def asked(self) -> int | None:
        """Return where the replay that is wanted begins, None if none is."""
        exchange = self.exchange
        return None if exchange is None else exchange.start

    def _boot(self) -> None:
        self.engine += 1
        self.next = 0
        self.stream: list[tuple[int, bytes]] = []
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=self._buffer_steps)

    # What an engine does.

    def publish(
        self, *, lost: bool = False, unsent: bool = False, text: str = ""
    ) -> int:
        """Publish a batch; `unsent` uses its number up without one."""
        seq = self.next
        self.next += 1
        if unsent:
            return seq
        batch = (seq, f"{self.engine}:{seq}{text}".encode())
        self.stream.append(batch)
        self.buffer.append(batch)
        if self.connected and not lost:
            self.live.append(batch)
        return seq

    def restart(self) -> None:
        """Another engine takes the place of this one."""
        self.disconnect()
        self._boot()

    # What the network does.

    def connect(self) -> None:
        """Connect, for the first time or again."""
        self.connected = True
        self.tracker.connected(self.now)

    def disconnect(self) -> None:
        """Lose the connection; an answer that is under way goes with it."""
        self.connected = False
        self.answers.clear()
        self._served = self.exchange
        self.tracker.disconnected()

    def deliver(self) -> bool:
        """Deliver the next live message; False if there is none."""
        if not self.live:
            return False
        batch = self.live.popleft()
        self.delivered.append(batch)
        self.tracker.live(*batch, self.now)
        return True

    def deliver_all(self) -> None:
        """Deliver every live message that is under way."""
        while self.deliver():
            pass

    def again(self, which: int) -> None:
        """Deliver one of the latest messages once more."""
        latest = [batch for batch in self.delivered[-5:] if batch in self.stream]
        if latest:
            self.tracker.live(*latest[which % len(latest)], self.now)

    def serve(self) -> bool:
        """Let the publisher answer the request, if there is one."""
        exchange = self.exchange
        if exchange is None or exchange is self._served or not self.connected:
            return False
        self._served = exchange
        self.answers.clear()
        self.answers.extend(
            batch for batch in self.buffer if batch[0] >= exchange.start
        )
        self.answers.append(None)
        return True

    def answer(self) -> bool:
        """Deliver the next replay answer; False if there is none."""
        if self.exchange is not self._served or not self.answers:
            return False
        batch = self.answers.popleft()
        if batch is None:
            self.tracker.replay_ended(self.now)
        else:
            self.tracker.replayed(*batch, self.now)
        return True

    def replay(self) -> None:
        """Serve and deliver the replay that is asked for, to its end."""
        assert self.serve(), "no replay is asked for"
        exchange = self.exchange
        while self.exchange is exchange and self.answer():
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        if self.now >= self.tracker.deadline:
            self.tracker.tick(self.now)

    def settle(self) -> None:
        """Deliver everything that is under way, in no special order."""
        for _ in range(10_000):
            if not (self.deliver() or self.answer() or self.serve()):
                return
        msg = "the exchange never comes to an end"
        raise AssertionError(msg)

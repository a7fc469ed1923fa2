"""The feed: keeps an index up to date from any number of live sources."""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Self

from kvindex.errors import ConfigError, KvIndexError
from kvindex.feeds.board import Board, all_live, reached
from kvindex.feeds.diagnosis import of_sources
from kvindex.feeds.settings import OnGap, Settings
from kvindex.feeds.state import SourceState, resting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from kvindex import Indexer
    from kvindex.diagnosis import Finding
    from kvindex.feeds.loop import Loop
    from kvindex.feeds.source import Key, Source
    from kvindex.feeds.zmq import Context

log = logging.getLogger("kvindex.feeds")

# Seconds. Far longer than one turn of the thread, which is all that is waited
# for.
CLOSE_TIMEOUT = 5.0


class Feed:
    """Feeds an index from live ZMQ sources, on one background thread.

    The thread runs from `open` to `close`, or inside `with` and `async with`.
    It subscribes to every source, asks for a replay after connecting and at a
    gap, applies each source's batches in the order of their numbers, each
    once, and recognises a restarted engine, whose holder it resets. A source
    that fails, connects late or never connects holds up no other.

    A restart without a replay endpoint is recognised when a number goes back;
    with one also after a reconnect, when the batch at the cursor is asked for
    again: a different or a missing one means another engine. A new feed on an
    index that an earlier one has fed asks for everything; the index drops what
    it has had.

    All methods are thread-safe, and none waits without a bound. A source takes
    four to six file descriptors.

    Args:
        index: The index to feed.
        sources: The sources to begin with.
        on_gap: `keep` leaves the state as it is when batches are lost for good
            (stale blocks may stay, lost ones are missing), `reset` makes the
            index forget the holder first. Both are reported.
        replay_timeout: Longest silence within a replay, in seconds; live
            batches wait as long. A replay ends after ten times that anyhow.
        hold_back: Most live batches of a source that wait for a replay.
        check_interval: Silence, in seconds, after which a source with a replay
            endpoint is asked whether anything was missed; None never asks.
        hwm: Most messages that ZMQ queues for a source; 0 means no bound. What
            is beyond is dropped, and found missing.
        expire_interval: Seconds between two calls of the index's `expire`, which
            ends predictions and what is older than a `max_age`, by the clock
            `time.monotonic()`; None leaves that to the caller.
        context: A ZMQ context to use, which stays the caller's to close; needed
            for inproc addresses. By default the feed has one of its own.

    Raises:
        ConfigError: If a setting is out of range or two sources are the same.
        ImportError: If pyzmq is not installed.

    Example:
        >>> import kvindex
        >>> from kvindex.feeds import Feed, Source
        >>> index = kvindex.Indexer(block_size=16)
        >>> source = Source("w0", "tcp://127.0.0.1:5557")
        >>> with Feed(index, [source]) as feed:
        ...     [state.endpoint for state in feed.sources()]
        ['tcp://127.0.0.1:5557']
    """

    def __init__(
        self,
        index: Indexer,
        /,
        sources: Iterable[Source] = (),
        *,
        on_gap: OnGap = "keep",
        replay_timeout: float = 2.0,
        hold_back: int = 1024,
        check_interval: float | None = 10.0,
        hwm: int = 100_000,
        expire_interval: float | None = 1.0,
        context: Context | None = None,
    ) -> None:
        """Check settings and sources; nothing is opened yet."""
        require_zmq()
        self._index = index
        self._settings = Settings(
            on_gap, replay_timeout, hold_back, check_interval, hwm, expire_interval
        )
        self._context = context
        self._board = Board()
        self._sources: dict[Key, Source] = {}
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        for source in sources:
            self.add(source)

    @property
    def on_gap(self) -> OnGap:
        """What happens to the state when batches are lost for good."""
        return self._settings.on_gap

    @property
    def replay_timeout(self) -> float:
        """Longest silence within a replay, in seconds."""
        return self._settings.replay_timeout

    @property
    def hold_back(self) -> int:
        """Most live batches of a source that wait for a replay."""
        return self._settings.hold_back

    @property
    def check_interval(self) -> float | None:
        """Silence after which a source is asked what was missed, in seconds."""
        return self._settings.check_interval

    @property
    def hwm(self) -> int:
        """Most messages that ZMQ queues for a source."""
        return self._settings.hwm

    @property
    def expire_interval(self) -> float | None:
        """Seconds between two calls of the index's `expire`."""
        return self._settings.expire_interval

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __repr__(self) -> str:
        """Show settings first, then size and state."""
        stage = "new" if self._loop is None else "open"
        return (
            f"kvindex.feeds.Feed(on_gap={self.on_gap!r}, "
            f"replay_timeout={self.replay_timeout}, sources={len(self._sources)}, "
            f"{'closed' if self._closed else stage})"
        )

    def open(self) -> None:
        """Open all sources and start the thread. Does not wait for connections.

        Raises:
            ConfigError: If an endpoint cannot be used; nothing stays open.
            KvIndexError: If the feed is open or was closed.
            OSError: If sockets or file descriptors run out; nothing stays open.
        """
        with self._lock:
            if self._closed or self._loop is not None:
                stage = "closed" if self._closed else "open"
                msg = f"the feed is {stage} already: make a new one"
                raise KvIndexError(msg)
            # Both import zmq, which `import kvindex.feeds` does without.
            from kvindex.feeds.loop import Loop  # noqa: PLC0415

            loop = Loop(self._board, self._context, self._index, self._settings)
            try:
                for source in self._sources.values():
                    self._link(loop, source)
                self._loop = loop
            finally:
                if self._loop is None:
                    self._closed = True
                    loop.close()
            self._thread = threading.Thread(
                target=loop.run, name="kvindex-feed", daemon=True
            )
            self._thread.start()
        # A daemon thread must not be inside ZMQ when the interpreter goes.
        atexit.register(self.close)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Stop the thread and close all sockets. Closing again does nothing.

        Batches that are held back are dropped; a new feed on the same index
        asks for them again. In a process forked from the feed's own there is
        no thread, and nothing to wait for.

        Args:
            timeout: Longest to wait for the turn that is on, in seconds.
        """
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            for source in self._sources.values():
                self._board.show(resting(source, "closed"))
            self._board.end()
            return
        loop.stop()
        if thread is not threading.current_thread():
            thread.join(timeout)
        if thread.is_alive():
            log.warning("the feed's thread is still busy after %g s", timeout)

    def __enter__(self) -> Self:
        """Open the feed."""
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Close the feed."""
        self.close()

    async def __aenter__(self) -> Self:
        """Open the feed without holding up the event loop."""
        await asyncio.to_thread(self.open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Close the feed without holding up the event loop."""
        await asyncio.to_thread(self.close)

    def add(self, source: Source) -> None:
        """Follow one more source, from now on if the feed is open.

        Raises:
            ConfigError: If there is a source of that worker or pool, rank and stream
                already, or if its endpoint cannot be used.
            KvIndexError: If the feed is closed.
            OSError: If sockets or file descriptors run out.
        """
        with self._lock:
            if self._closed or self._board.ended:
                stage = "closed" if self._closed else "failed"
                msg = f"the feed has {stage}: make a new one"
                raise KvIndexError(msg)
            if not self._board.put(resting(source, "new")):
                whose = (
                    f"pool {source.worker!r}"
                    if source.pool
                    else f"worker {source.worker!r} rank {source.dp_rank}"
                )
                msg = f"{whose} has a source {source.source!r} already"
                raise ConfigError(msg)
            self._sources[source.key] = source
            if self._loop is None:
                return
            try:
                self._link(self._loop, source)
            except (ConfigError, OSError):
                del self._sources[source.key]
                self._board.take(source.key)
                raise

    def remove(
        self, worker: str, *, dp_rank: int | None = None, pool: bool = False
    ) -> bool:
        """Follow a worker's, or a pool's, sources no more; the index keeps its state.

        When it returns, no batch of them is applied any more, so that
        `Indexer.remove_worker` leaves nothing behind. (Unless the thread is
        held up for more than five seconds; that is logged.)

        Args:
            worker: The worker's name, or the pool's.
            dp_rank: The rank, None for all.
            pool: Whether it is a pool.

        Returns:
            Whether there was such a source.
        """
        with self._lock:
            keys = [
                key
                for key in self._sources
                if (key[0], key[3]) == (worker, pool) and dp_rank in (None, key[1])
            ]
            gone = threading.Semaphore(0)
            running = self._loop is not None and not self._closed
            for key in keys:
                del self._sources[key]
                self._board.take(key)
                if running and self._loop is not None:
                    self._loop.remove(key, gone.release)
        if running and not self._board.ended:
            for key in keys:
                if not gone.acquire(timeout=CLOSE_TIMEOUT):
                    log.warning("%s rank %d: still busy, removed later", *key[:2])
        return bool(keys)

    def sources(self) -> list[SourceState]:
        """Return a row for each source, in the order in which they were added."""
        return self._board.states()

    def diagnose(self, *, silence: float = 60.0) -> list[Finding]:
        """Return what looks wrong with how events arrive, and what to do about it.

        What the events themselves show is found by `Indexer.diagnose`.

        Args:
            silence: Seconds without a message, from its last connection on, after
                which a source is called silent, if another one was heard of since.
        """
        return of_sources(self.sources(), now=time.time(), silence=silence)

    def wait(
        self,
        timeout: float = 10.0,
        *,
        until: (
            Callable[[list[SourceState]], object]
            | Mapping[str | tuple[str, int], int]
            | None
        ) = None,
    ) -> bool:
        """Wait until the sources have come as far as is asked for.

        Blocks the calling thread; under asyncio call it with
        `asyncio.to_thread`.

        Args:
            timeout: Longest to wait, in seconds.
            until: Either a condition on the rows that `sources` returns, called
                on this thread at each change; or the number that a worker, a
                pool, or a (worker, rank) must have reached, for each named; or
                None for all sources being `live`.

        Returns:
            Whether it came to that; False when the time was up or the feed
            was closed.

        Raises:
            ConfigError: If the timeout is not a finite number of seconds.
        """
        if not math.isfinite(timeout):
            msg = f"timeout is {timeout}: expected a finite number of seconds"
            raise ConfigError(msg)
        if until is None:
            return self._board.wait(all_live, timeout)
        if callable(until):
            return self._board.wait(until, timeout)
        wanted = dict(until)
        return self._board.wait(lambda states: reached(states, wanted), timeout)

    def _link(self, loop: Loop, source: Source) -> None:
        from kvindex.feeds.link import Link  # noqa: PLC0415 - it imports zmq

        link = Link(loop.context, self._index, source, self._settings)
        self._board.show(link.state())
        loop.add(link)


def require_zmq() -> None:
    """Raise ImportError with the way out unless pyzmq is installed."""
    try:
        import_module("zmq")
    except ImportError as error:
        msg = "kvindex.feeds needs pyzmq: pip install 'kvindex[zmq]'"
        raise ImportError(msg, name="zmq") from error

"""The feed's thread: waits for all sources at once and gives each its turn."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from collections import deque
from typing import TYPE_CHECKING

import zmq

from kvindex.feeds.zmq import new_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvindex import Indexer
    from kvindex.feeds.board import Board
    from kvindex.feeds.link import Link
    from kvindex.feeds.settings import Settings
    from kvindex.feeds.source import Key
    from kvindex.feeds.zmq import Context, Socket

log = logging.getLogger("kvindex.feeds")

# Seconds; only a safeguard, every wait has an end of its own.
LONGEST_WAIT = 1.0


class Loop:
    """Owns the links and their sockets, on whichever thread calls `run`.

    `add`, `remove` and `stop` may be called from any thread.
    """

    def __init__(
        self, board: Board, context: Context | None, index: Indexer, settings: Settings
    ) -> None:
        """Make a loop without links; `context` stays its owner's."""
        self._index = index
        self._expire_interval = settings.expire_interval or math.inf
        self._expire_at = time.monotonic() + self._expire_interval
        self.context = new_context() if context is None else context
        self._owns_context = context is None
        self._board = board
        self._links: dict[Key, Link] = {}
        self._owners: dict[Socket, Link] = {}
        self._poller = zmq.Poller()
        self._commands: deque[Callable[[], None]] = deque()
        self._ear, self._mouth = socket.socketpair()
        self._ear.settimeout(0)
        self._mouth.settimeout(0)
        self._poller.register(self._ear.fileno(), zmq.POLLIN)
        self._wake_at = math.inf
        self._stopping = False

    # From any thread.

    def add(self, link: Link) -> None:
        """Listen to one more source."""
        self._command(lambda: self._open(link))

    def remove(self, key: Key, done: Callable[[], None]) -> None:
        """Forget a source, then call `done` on the loop's thread."""

        def forget() -> None:
            link = self._links.pop(key, None)
            if link is not None:
                link.close(self)
            done()

        self._command(forget)

    def stop(self) -> None:
        """Make `run` return after the turn that is on."""
        self._stopping = True
        self._wake()

    # On the loop's thread.

    def run(self) -> None:
        """Serve the sources until `stop`, then close everything."""
        try:
            while not self._stopping:
                self._round()
        except BaseException as error:
            log.exception("the feed failed")
            for link in self._links.values():
                link.fail(self, error)
                self._board.show(link.state())
            self._links.clear()
        finally:
            self.close()

    def close(self) -> None:
        """Close all sockets and report every source as closed."""
        while self._commands:
            self._commands.popleft()()
        for link in self._links.values():
            link.close(self)
            self._board.show(link.state("closed"))
        self._links.clear()
        self._ear.close()
        self._mouth.close()
        if self._owns_context:
            self.context.destroy(linger=0)
        self._board.end()

    def watch(self, socket: Socket, link: Link) -> None:
        """Wake the link when the socket has something to read."""
        self._owners[socket] = link
        self._poller.register(socket, zmq.POLLIN)

    def unwatch(self, socket: Socket) -> None:
        """Do not look at the socket any more."""
        if self._owners.pop(socket, None) is not None:
            self._poller.unregister(socket)

    def _round(self) -> None:
        ready = self._poller.poll(self._patience())
        # A link with several ready sockets has one turn.
        links = dict.fromkeys(
            self._owners[found] for found, _ in ready if found in self._owners
        )
        self._obey()
        for link in links:
            self._give_turn(link)
            if self._stopping:
                break
        if time.monotonic() >= self._wake_at:
            self._give_due_turns()
        if time.monotonic() >= self._expire_at:
            self._index.expire()
            self._expire_at = time.monotonic() + self._expire_interval
        self._board.tell()

    def _patience(self) -> int:
        """Return how long to wait, in milliseconds."""
        wake_at = min(self._wake_at, self._expire_at)
        wait = min(wake_at - time.monotonic(), LONGEST_WAIT)
        return max(0, math.ceil(wait * 1000))

    def _obey(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ear.recv(4096):
                pass
        while self._commands:
            self._commands.popleft()()

    def _give_due_turns(self) -> None:
        now = time.monotonic()
        for link in list(self._links.values()):
            if link.deadline <= now:
                self._give_turn(link)
        self._wake_at = min(
            (link.deadline for link in self._links.values()), default=math.inf
        )

    def _give_turn(self, link: Link) -> None:
        if self._links.get(link.source.key) is not link:
            return
        try:
            link.turn(self)
        except BaseException as error:  # a panic of the index is no Exception
            log.exception("%s: given up", link.source.endpoint)
            del self._links[link.source.key]
            link.fail(self, error)
        else:
            self._wake_at = min(self._wake_at, link.deadline)
        self._board.show(link.state())

    def _open(self, link: Link) -> None:
        self._links[link.source.key] = link
        link.open(self)
        self._wake_at = min(self._wake_at, link.deadline)
        self._board.show(link.state())

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake()

    def _wake(self) -> None:
        # A full pipe wakes as well as one more byte; a closed one has no
        # thread left to wake.
        with contextlib.suppress(OSError):
            self._mouth.send(b"\0")

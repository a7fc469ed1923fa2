"""Sockets: how the frames of vLLM and SGLang arrive over ZMQ."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import recv_monitor_message

from kvindex.errors import ConfigError
from kvindex.feeds import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvindex.feeds.source import Source

# Milliseconds. A host that vanishes without closing its connections is noticed
# within HEARTBEAT + HEARTBEAT_TIMEOUT.
RECONNECT = 100
RECONNECT_MAX = 2_000
HEARTBEAT = 5_000
HEARTBEAT_TIMEOUT = 10_000

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]


def new_context() -> Context:
    """Return a context that holds as many sockets as ZMQ can."""
    context: Context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
    return context


class Subscription:
    """The SUB socket of a source and the monitor that tells of connections."""

    def __init__(self, context: Context, source: Source, hwm: int) -> None:
        """Connect, or bind, without waiting for the other side.

        Raises:
            ConfigError: If the address cannot be used.
            OSError: If there can be no more sockets.
        """
        self._peers = 0
        with contextlib.ExitStack() as undo:
            self.socket = opened(context, zmq.SUB, source.endpoint)
            undo.callback(self.socket.close, 0)
            self.socket.rcvhwm = hwm
            self.socket.subscribe(source.topic)
            try:
                self.monitor = self.socket.get_monitor_socket(
                    zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
                )
            except zmq.ZMQError as error:
                raise no_more(source.endpoint, error) from error
            undo.callback(self._close_monitor)
            attach(self.socket, source.endpoint, bind=source.bind)
            undo.pop_all()

    def receive(self, most: int) -> list[list[bytes]]:
        """Return up to `most` messages that are here already."""
        return list(arrived(self.socket, most))

    def changes(self) -> Iterator[bool]:
        """Tell what became of the connection: True for made, False for lost."""
        while True:
            try:
                event = recv_monitor_message(self.monitor, zmq.NOBLOCK)
            except zmq.Again:
                return
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._peers += 1
                yield True
            elif self._peers:
                # A bound socket has lost its publisher with the last of its
                # peers; a connected one has just one.
                self._peers -= 1
                if self._peers == 0:
                    yield False

    def close(self) -> None:
        """Close both sockets; nothing is left to send."""
        self._close_monitor()
        self.socket.close(0)

    def _close_monitor(self) -> None:
        # A context that is being terminated refuses this; closing works always.
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        self.monitor.close(0)


class Replay:
    """A DEALER socket for one replay: late answers go down with it."""

    def __init__(self, context: Context, endpoint: str, start: int) -> None:
        """Ask for every batch from `start` on, without waiting.

        Raises:
            ConfigError: If the address cannot be used.
            OSError: If there can be no more sockets.
            zmq.ZMQError: If the request cannot be queued.
        """
        with contextlib.ExitStack() as undo:
            self.socket = opened(context, zmq.DEALER, endpoint)
            undo.callback(self.socket.close, 0)
            # The publisher sends its whole buffer at once and would drop the
            # rest if this side had a bound.
            self.socket.rcvhwm = 0
            attach(self.socket, endpoint, bind=False)
            self.socket.send_multipart(wire.replay_request(start), zmq.NOBLOCK)
            undo.pop_all()

    def receive(self, most: int) -> list[list[bytes]]:
        """Return up to `most` answers that are here already."""
        return list(arrived(self.socket, most))

    def close(self) -> None:
        """Close the socket; an unsent request is dropped."""
        self.socket.close(0)


def opened(context: Context, kind: int, endpoint: str) -> Socket:
    """Return a socket with the settings that both kinds need."""
    try:
        socket = context.socket(kind)
    except zmq.ZMQError as error:
        raise no_more(endpoint, error) from error
    socket.linger = 0
    socket.set(zmq.RECONNECT_IVL, RECONNECT)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX)
    socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT)
    socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT)
    if "[" in endpoint:
        socket.set(zmq.IPV6, 1)
    return socket


def no_more(endpoint: str, error: zmq.ZMQError) -> OSError:
    """Say that sockets or file descriptors have run out, and for what."""
    number = error.errno or errno.EMFILE
    reason = zmq.strerror(number)
    return OSError(number, f"no socket for {endpoint}: {reason}")


def attach(socket: Socket, endpoint: str, *, bind: bool) -> None:
    """Bind or connect, and say which address could not be used."""
    try:
        if bind:
            socket.bind(endpoint)
        else:
            socket.connect(endpoint)
    except zmq.ZMQError as error:
        verb = "bind" if bind else "connect to"
        msg = f"cannot {verb} {endpoint}: {zmq.strerror(error.errno or 0)}"
        raise ConfigError(msg) from error


def arrived(socket: Socket, most: int) -> Iterator[list[bytes]]:
    """Yield up to `most` messages that have arrived, and do not wait for more."""
    for _ in range(most):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return

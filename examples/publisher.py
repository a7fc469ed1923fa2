"""A publisher as engines have it: recorded batches on a PUB socket, and a replay."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.streams import Message

END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
ANSWER_WITHIN = 5  # milliseconds


class Publisher:
    """Publishes recorded batches over loopback and replays those it has sent.

    The frames are vLLM's since 0.26: `[topic, sequence, payload]` live,
    `["", topic, sequence, payload]` for a replay, which ends with sequence -1.
    """

    def __init__(self, messages: Sequence[Message], *, rate: float) -> None:
        """Bind both sockets to free ports.

        Args:
            messages: What to publish, in order.
            rate: Batches per second.
        """
        self._messages = messages
        self._pause = 1 / rate
        self._sent = 0
        self._go_on = threading.Event()
        self._closing = threading.Event()
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.PUB)
        self._replay = self._context.socket(zmq.ROUTER)
        for socket in (self._live, self._replay):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.bind("tcp://127.0.0.1:*")
        self.endpoint = self._live.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay = self._replay.getsockopt_string(zmq.LAST_ENDPOINT)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, *, early: int) -> None:
        """Publish the first `early` batches at once, the others after `go_on`."""
        for _ in range(min(early, len(self._messages))):
            self._publish()
        self._thread.start()

    def go_on(self) -> None:
        """Publish the rest at the given rate."""
        self._go_on.set()

    def close(self) -> None:
        """Stop, and close the sockets."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._closing.is_set():
            if self._replay.poll(ANSWER_WITHIN):
                self._answer()
            waiting = self._sent == len(self._messages) or not self._go_on.is_set()
            if waiting:
                due = time.monotonic()
            while not waiting and due <= time.monotonic():
                self._publish()
                due += self._pause
                waiting = self._sent == len(self._messages)

    def _publish(self) -> None:
        message = self._messages[self._sent]
        self._live.send_multipart(
            [message.topic, message.seq.to_bytes(8, "big"), message.payload]
        )
        self._sent += 1

    def _answer(self) -> None:
        client, _, start = self._replay.recv_multipart()
        first = int.from_bytes(start, "big")
        for message in self._messages[: self._sent]:
            if message.seq >= first:
                seq = message.seq.to_bytes(8, "big")
                self._replay.send_multipart(
                    [client, b"", message.topic, seq, message.payload]
                )
        self._replay.send_multipart([client, b"", b"", END_OF_REPLAY, b""])

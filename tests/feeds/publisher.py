"""A publisher of KV events as vLLM and SGLang have one, written anew.

PUB for the events, ROUTER for replays, a buffer of the latest batches. Nothing
here knows kvindex. The publishing socket is an XPUB, which is the same on the
wire and lets a test wait until somebody has subscribed.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Self

import zmq

LOOPBACK = "tcp://127.0.0.1"
MINUS_ONE = b"\xff" * 8
PATIENCE = 5.0


def number(seq: int) -> bytes:
    """Write a sequence number as the engines do."""
    return seq.to_bytes(8, "big")


class Publisher:
    """One engine's publisher.

    Args:
        endpoint: Where to publish; a free port by default.
        replay: Where to answer replays, True for a free port, False for
            nowhere.
        frames: The length of an answer: 3 (vLLM up to 0.25, SGLang up to
            0.5.21) or 4.
        buffer_steps: How many batches are kept for replays.
        topic: The topic of every message.
        connects: Whether the publisher connects, as vLLM's does to an endpoint
            without a wildcard.
        silent: Whether requests are read and never answered.
        cut: Answers after which a replay breaks off without its end marker.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        replay: str | bool = True,
        frames: int = 4,
        buffer_steps: int = 10_000,
        topic: str = "kv-events",
        connects: bool = False,
        silent: bool = False,
        cut: int | None = None,
    ) -> None:
        """Open the sockets."""
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.XPUB)
        self._pub.linger = 0
        self._pub.set(zmq.XPUB_VERBOSE, 1)
        if connects:
            assert endpoint is not None
            self._pub.connect(endpoint)
            self.endpoint = endpoint
        else:
            self.endpoint = bind(self._pub, endpoint)
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self.next = 0
        self.topic = topic.encode()
        self.requests: list[int] = []
        self.refused = 0
        # Answers to give instead of those that belong to the buffer.
        self.script: list[list[bytes]] | None = None
        # Closed, it lets a replay answer only once the test opens it.
        self.gate = threading.Event()
        self.gate.set()
        self._frames = frames
        self._silent = silent
        self._cut = cut
        self._lock = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.replay: str | None = None
        if replay:
            self._router = self._context.socket(zmq.ROUTER)
            self._router.linger = 0
            self._router.sndhwm = 0
            self.replay = bind(self._router, None if replay is True else replay)
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        """Return the publisher."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def stop(self) -> None:
        """Close everything, as the end of the process would."""
        self._stopping.set()
        self.gate.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive()
            self._thread = None
        self._context.destroy(linger=0)

    def successor(self, *, same_engine: bool = False) -> "Publisher":
        """Return a publisher at the same addresses, this one having stopped.

        The same engine goes on with its numbers and its buffer, as after a
        broken connection; another one begins anew.
        """
        self.stop()
        other = Publisher(
            self.endpoint,
            replay=self.replay or False,
            frames=self._frames,
            buffer_steps=self.buffer.maxlen or 0,
            topic=self.topic.decode(),
        )
        if same_engine:
            with other._lock:
                other.buffer.extend(self.buffer)
                other.next = self.next
        return other

    def publish(self, payload: bytes, *, lost: bool = False, kept: bool = True) -> int:
        """Publish a batch and return its number.

        `lost` batches are kept for replays and never sent. A batch that is lost
        and not `kept` only uses up its number, as one that cannot be encoded.
        """
        with self._lock:
            seq = self.next
            self.next += 1
            if kept:
                self.buffer.append((seq, payload))
            if not lost:
                self.send(seq, payload)
            return seq

    def send(self, seq: int, payload: bytes) -> None:
        """Send an event message, whatever its number."""
        self.send_frames([self.topic, number(seq), payload])

    def send_frames(self, frames: Sequence[bytes]) -> None:
        """Send any message to the subscribers."""
        self._pub.send_multipart(frames)

    def subscribed(self) -> bytes:
        """Wait for the next subscription and return its topic."""
        assert self._pub.poll(int(PATIENCE * 1000)), "nobody has subscribed"
        message = self._pub.recv()
        assert message[:1] == b"\x01", "not a subscription"
        return message[1:]

    def asked(self, times: int) -> list[int]:
        """Wait for so many replay requests in all and return their starts."""
        with self._lock:
            came = self._lock.wait_for(lambda: len(self.requests) >= times, PATIENCE)
            assert came, f"asked only for {self.requests}"
            return list(self.requests)

    def answers(self, start: int) -> list[list[bytes]]:
        """Return what a client sees of the replay from `start`, marker and all."""
        if self.script is not None:
            return self.script
        with self._lock:
            kept = [batch for batch in self.buffer if batch[0] >= start]
        head = [b""] if self._frames == 3 else [b"", self.topic]
        found = [[*head, number(seq), payload] for seq, payload in kept]
        if self._cut is not None:
            return found[: self._cut]
        return [*found, [b""] * (self._frames - 2) + [MINUS_ONE, b""]]

    def _serve(self) -> None:
        while not self._stopping.is_set():
            if not self._router.poll(5):
                continue
            identity, *request = self._router.recv_multipart()
            if len(request) != 2 or request[0]:
                self.refused += 1
                continue
            start = int.from_bytes(request[1], "big")
            with self._lock:
                self.requests.append(start)
                self._lock.notify_all()
            if self._silent or not self.gate.wait(PATIENCE):
                continue
            for frames in self.answers(start):
                self._router.send_multipart([identity, *frames])


def bind(socket: zmq.Socket[bytes], endpoint: str | None) -> str:
    """Bind to an address, once whoever had it has let it go."""
    if endpoint is None:
        return f"{LOOPBACK}:{socket.bind_to_random_port(LOOPBACK)}"
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return endpoint

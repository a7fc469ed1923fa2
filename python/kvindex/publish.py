"""A publisher of KV events, for engines that have none.

    with Publisher("tcp://*:5557", replay="tcp://*:5657", block_size=16) as publisher:
        publisher.store(hashes, tokens, parent)           # on the device
        publisher.store(hashes, tokens, parent, medium="CPU")
        publisher.remove(hashes)
        publisher.publish()                               # one batch, after a step

It speaks vLLM's wire (maps, since 0.24): a PUB socket with frames of topic, number
and payload, and a ROUTER socket that answers replays out of a buffer. kvindex's own
feed reads it, and so do other routers. Needs pyzmq (`pip install 'kvindex[zmq]'`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Self

from kvindex._core import pack_batch
from kvindex.errors import ConfigError
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zmq

    from kvindex.events import EngineHash, ExtraKey

END = b"\xff" * 8
"""The number of the answer that ends a replay."""

REPLAY_FRAMES = 3
NUMBER_BYTES = 8
POLL_MS = 50


class Publisher:
    """One rank's events: what it says, one batch a step, and its replays.

    An endpoint with a wildcard (`*`, `::`), `ipc://` or `inproc://` is bound, any
    other connected to, as vLLM does; the replay's endpoint is always bound.

    Thread safety: every method may be called from any thread. A thread of its own
    answers replays until `close`.

    Args:
        endpoint: Where to publish.
        block_size: Tokens a block.
        replay: Where to answer replays; None means nowhere.
        topic: The topic of every message.
        dp_rank: The rank that every batch names.
        buffer_batches: How many batches are kept for replays.
        hwm: How many messages may wait for a slow reader; more are dropped.

    Raises:
        ConfigError: A setting is out of range.
        zmq.ZMQError: An endpoint cannot be used.
    """

    def __init__(
        self,
        endpoint: str = "tcp://*:5557",
        *,
        block_size: int,
        replay: str | None = None,
        topic: str = "",
        dp_rank: int = 0,
        buffer_batches: int = 10_000,
        hwm: int = 100_000,
    ) -> None:
        """Open the sockets."""
        if block_size < 1:
            message = f"block_size must be 1 or more, not {block_size}"
            raise ConfigError(message)
        if buffer_batches < 1:
            message = f"buffer_batches must be 1 or more, not {buffer_batches}"
            raise ConfigError(message)
        import zmq  # noqa: PLC0415 - an extra, imported where it is used

        self._block_size = block_size
        self._dp_rank = dp_rank
        self._topic = topic.encode()
        self._lock = threading.Lock()
        self._events: list[BlockStored | BlockRemoved | AllBlocksCleared] = []
        self._held: dict[str, Counter[EngineHash]] = {}
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_batches)
        self._next = 0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._context = zmq.Context()
        try:
            self._pub = self._context.socket(zmq.PUB)
            self._pub.sndhwm = hwm
            self.endpoint = _open(self._pub, endpoint)
            self.replay = None if replay is None else self._answer_at(replay)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    endpoint: str
    """Where it publishes; with the port that the system gave for `*`."""

    replay: str | None
    """Where it answers replays."""

    def store(
        self,
        block_hashes: Sequence[EngineHash],
        token_ids: Sequence[int],
        parent_block_hash: EngineHash | None = None,
        *,
        medium: str = "GPU",
        lora_name: str | None = None,
        extra_keys: Sequence[Sequence[ExtraKey] | None] | None = None,
    ) -> None:
        """Say that consecutive blocks now lie on a tier.

        Args:
            block_hashes: The engine's hashes of the blocks, 64 bits or bytes each:
                equal hashes mean equal prefixes, namespace included.
            token_ids: Their tokens, `block_size` for each.
            parent_block_hash: The block before the first; None at the start.
            medium: The tier: "GPU", "CPU", "STORAGE", ...
            lora_name: The adapter's name.
            extra_keys: For each block None or what is hashed besides its tokens:
                the adapter's name, [identifier, offset] of images, the cache salt.

        Raises:
            ConfigError: The tokens do not fit the hashes.
            DecodeError: A value is none that a reader could take.
        """
        hashes, tokens = list(block_hashes), list(token_ids)
        if len(tokens) != len(hashes) * self._block_size:
            message = (
                f"expected {self._block_size} tokens for each of {len(hashes)} "
                f"hashes, not {len(tokens)}"
            )
            raise ConfigError(message)
        event = BlockStored(
            hashes,
            tokens,
            parent_block_hash,
            block_size=self._block_size,
            medium=medium,
            lora_name=lora_name,
            extra_keys=extra_keys,
        )
        _check(event)
        with self._lock:
            self._events.append(event)
            self._held.setdefault(medium, Counter()).update(hashes)

    def remove(self, block_hashes: Sequence[EngineHash], medium: str = "GPU") -> None:
        """Say that a copy of each of these blocks is gone from a tier.

        Raises:
            DecodeError: A value is none that a reader could take.
        """
        hashes = list(block_hashes)
        event = BlockRemoved(hashes, medium)
        _check(event)
        with self._lock:
            self._events.append(event)
            held = self._held.get(medium, Counter())
            held.subtract(hashes)
            self._held[medium] = +held

    def clear(self, medium: str | None = None) -> None:
        """Say that all tiers are empty, or that one is.

        The wire has no clear of one tier: it becomes the removal of every copy
        that was stored there.
        """
        with self._lock:
            if medium is None:
                self._held.clear()
                self._events.append(AllBlocksCleared())
                return
            hashes = list(self._held.pop(medium, Counter()).elements())
            if hashes:
                self._events.append(BlockRemoved(hashes, medium))

    def publish(self) -> int | None:
        """Send what was said since the last time, as one batch.

        Returns:
            The batch's number; None where there was nothing to say.
        """
        with self._lock:
            events, self._events = self._events, []
            if not events:
                return None
            payload = pack_batch(events, timestamp=time.time(), dp_rank=self._dp_rank)
            seq = self._next
            self._next += 1
            self._buffer.append((seq, payload))
            self._pub.send_multipart([self._topic, _number(seq), payload])
            return seq

    def close(self) -> None:
        """Close the sockets, once what was sent is on its way. Idempotent."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            self._context.destroy(linger=1000)

    def __enter__(self) -> Self:
        """Return the publisher."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _answer_at(self, endpoint: str) -> str:
        import zmq  # noqa: PLC0415

        router = self._context.socket(zmq.ROUTER)
        # A replay is one answer a batch, and none may be dropped.
        router.sndhwm = 0
        router.bind(endpoint)
        bound = _where(router)
        name = "kvindex-publisher-replay"
        self._thread = threading.Thread(
            target=self._answer, args=(router,), name=name, daemon=True
        )
        self._thread.start()
        return bound

    def _answer(self, router: zmq.Socket[bytes]) -> None:
        """Answer replays until the publisher closes."""
        while not self._closing.is_set():
            if not router.poll(POLL_MS):
                continue
            frames = router.recv_multipart()
            if len(frames) != REPLAY_FRAMES or len(frames[2]) != NUMBER_BYTES:
                continue
            start = int.from_bytes(frames[2], "big")
            with self._lock:
                kept = [batch for batch in self._buffer if batch[0] >= start]
            for seq, payload in kept:
                answer = [frames[0], b"", self._topic, _number(seq), payload]
                router.send_multipart(answer)
            router.send_multipart([frames[0], b"", b"", END, b""])
        router.close(linger=1000)


def _check(event: BlockStored | BlockRemoved) -> None:
    """Refuse an event here that every reader would refuse."""
    pack_batch([event], timestamp=0.0)


def _open(socket: zmq.Socket[Any], endpoint: str) -> str:
    is_bound = "*" in endpoint or "::" in endpoint
    if is_bound or endpoint.startswith(("ipc://", "inproc://")):
        socket.bind(endpoint)
        return _where(socket)
    socket.connect(endpoint)
    return endpoint


def _where(socket: zmq.Socket[Any]) -> str:
    import zmq  # noqa: PLC0415

    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    return bytes(endpoint).rstrip(b"\0").decode()


def _number(seq: int) -> bytes:
    return seq.to_bytes(NUMBER_BYTES, "big")

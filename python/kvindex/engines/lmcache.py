"""LMCache: through vLLM, by its server's own stream, coordinator or controller.

With its server in a process of its own (`LMCacheMPConnector`) the server's first
tier comes through vLLM's stream, in chunks of 256 tokens, with removals: a clear
in that stream is the GPU pool's. Inside vLLM (`LMCacheConnectorV1`) stores come
through vLLM's stream and never a removal, which only the controller's messages
tell; what these call by name alone is a chunk.

One decoder reads all of it: batches of vLLM's wire, which the core takes, the
server's own batches, the bodies that are posted to the coordinator, and the messages
to the controller.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kvindex.engines.engine import Batch, Engine
from kvindex.engines.lmcache_controller import Controller
from kvindex.engines.lmcache_coordinator import Coordinator
from kvindex.engines.lmcache_server import Server
from kvindex.engines.reading import is_batch, load, unexpected

CHUNK_TOKENS = 256
"""LMCache's own default."""


class LmCache:
    """Reads what comes from, and through, one LMCache instance."""

    def __init__(self, _: int, *, shared: bool = False) -> None:
        """Begin before the first payload; any block size will do."""
        self._coordinator = Coordinator(shared=shared)
        self._controller = Controller()
        self._server = Server()

    def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
        """Read a batch of vLLM's wire, a body of events, or a message."""
        if is_batch(payload):
            return [Batch(payload)]
        expected = "events of LMCache"
        said = load(payload, expected)
        if not isinstance(said, dict):
            raise unexpected(expected, said)
        if "batches" in said:
            return self._coordinator.decode(said)
        if "events" in said:
            return self._server.decode(said)
        return self._controller.decode(said)

    def reset(self, _: int | None) -> None:
        """Forget what the instance held."""
        self._coordinator.reset()
        self._controller.reset()
        self._server.reset()


LMCACHE = Engine(
    name="lmcache",
    title="LMCache server",
    kind="vllm",
    clears=("device",),
    copies=("device",),
    decoder=LmCache,
)

LMCACHE_SHARED = Engine(
    name="lmcache_shared",
    title="LMCache, the second tier that its instances share",
    kind="vllm",
    copies=(),
    decoder=partial(LmCache, shared=True),
)

LMCACHE_INPROCESS = Engine(
    name="lmcache_inprocess",
    title="LMCache inside vLLM",
    kind="vllm",
    copies=("device",),
    chunk_tokens={
        "host": CHUNK_TOKENS,
        "disk": CHUNK_TOKENS,
        "external": CHUNK_TOKENS,
    },
    decoder=LmCache,
)

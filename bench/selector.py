"""The peer's selector: `SelectionService` of ai-dynamo-runtime, in this process.

It subscribes to what workers publish over ZMQ, and is asked by coroutines that take
and return what JSON has. So a decision of it has what an embedding in Python pays:
a list of tokens that is read item by item, and an answer with all hashes.
"""

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import zmq

from bench.workload import BLOCK, Batch

PATIENCE_SECONDS = 60.0


class Selector:
    """The service, with workers that all publish the same."""

    def __init__(self, workers: int) -> None:
        """Start the service and let it subscribe.

        Raises:
            ImportError: If the package is not installed.
        """
        self.service: Any = importlib.import_module("dynamo._core").SelectionService(
            indexer_threads=1
        )
        self.loop = asyncio.new_event_loop()
        self.numbers = count()
        self.context = zmq.Context()
        self.events = self.context.socket(zmq.PUB)
        self.events.set_hwm(0)
        port = self.events.bind_to_random_port("tcp://127.0.0.1")
        for worker in range(workers):
            told = {
                "worker_id": worker,
                "endpoint": f"http://127.0.0.1/{worker}",
                "block_size": BLOCK,
                "kv_events_endpoint": f"tcp://127.0.0.1:{port}",
                "data_parallel_start_rank": 0,
                "data_parallel_size": 1,
                "total_kv_blocks": 1_000_000,
            }
            self._wait(self.service.upsert_worker, told)
        self.workers = workers

    def hold(self, tokens: Sequence[int], batches: Sequence[Batch]) -> None:
        """Let all workers store batches of a prompt; wait until they are known.

        What is published before a worker listens is lost: it is sent again.
        """
        blocks = sum(len(batch.names) for batch in batches)
        end = time.monotonic() + PATIENCE_SECONDS
        while self.depths(tokens) != [blocks] * self.workers:
            assert time.monotonic() < end, "the selector does not take the events in"
            for batch in batches:
                number = next(self.numbers).to_bytes(8, "big")
                self.events.send_multipart([b"", number, batch.payload])
            time.sleep(2)

    def depths(self, tokens: Sequence[int]) -> list[int]:
        """Return how many blocks of a prompt each worker holds."""
        asked = {"model_name": "default", "token_ids": tokens}
        found = self._wait(self.service.overlap_scores, asked)
        return [row["device_blocks"] for row in found["workers"]]

    def begin(self, tokens: Sequence[int]) -> str:
        """Choose a worker for a prompt, and count its load."""
        name = f"r{next(self.numbers)}"
        asked = {"model_name": "default", "token_ids": tokens, "selection_id": name}
        self._wait(self.service.select_and_reserve, asked)
        return name

    def end(self, name: str) -> None:
        """Take that load away."""
        self._wait(self.service.free_reservation, name)

    def close(self) -> None:
        """Stop the service."""
        self.service.shutdown()
        self.events.close(0)
        self.context.term()
        self.loop.close()

    def _wait(self, ask: Callable[[Any], Awaitable[Any]], asked: object) -> Any:  # noqa: ANN401
        async def awaited() -> object:
            return await ask(asked)

        return self.loop.run_until_complete(awaited())

"""A gateway: one OpenAI-compatible endpoint before engines, routed by their caches.

    pip install 'kvindex[policy,zmq]' starlette uvicorn httpx
    python -m examples.gateway --block-size 16 --engine ENGINE --engine ENGINE

where an engine is w0=http://10.0.0.1:8000,tcp://10.0.0.1:5557,tcp://10.0.0.1:5657: its
name, its HTTP address, where it publishes KV events, and where it answers replays,
if it does. Prompts become tokens by an engine's own `/tokenize`
(vLLM has it), so that the gateway needs neither tokenizer nor chat template. With
`--busy-tokens` an engine with more tokens than that to compute gets no more requests;
where all have, requests wait in line.
Answers are passed on as they come, streamed or whole; two headers say who answered
and how many blocks of the prompt were cached there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import kvindex
from kvindex.feeds import Feed, Source
from kvindex.policy import (
    Decision,
    Limits,
    NoEligibleWorkerError,
    Predictions,
    Router,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request

PATHS = ("/v1/chat/completions", "/v1/completions")
# Until events arrive, a worker is expected to hold what it was sent.
PREDICTIONS = Predictions(ttl=5.0)
# An answer may take as long as it takes.
TIMEOUT = httpx.Timeout(10.0, read=None)
# Who waits looks again after this: requests that were lost free an engine, too.
LOOK_SECONDS = 1.0
# Headers of one connection, which the next one makes anew.
HOP_BY_HOP = {"connection", "content-length", "host", "transfer-encoding"}


@dataclass(frozen=True, slots=True)
class Engine:
    """One backend: its name, and where it listens, publishes, and replays."""

    name: str
    url: str
    events: str
    replay: str | None = None

    @classmethod
    def of(cls, text: str) -> Engine:
        """Read `name=url,events[,replay]`."""
        name, _, places = text.partition("=")
        match places.split(","):
            case [url, events]:
                return cls(name, url, events)
            case [url, events, replay]:
                return cls(name, url, events, replay)
        message = f"expected name=url,events[,replay], not {text!r}"
        raise argparse.ArgumentTypeError(message)


class Gateway:
    """Proxies requests to the engine that is best for each."""

    def __init__(
        self,
        engines: Sequence[Engine],
        block_size: int,
        busy_tokens: float | None = None,
    ) -> None:
        """Know the engines; nothing is opened before the application starts."""
        self.engines = {engine.name: engine for engine in engines}
        self.index = kvindex.Indexer(block_size=block_size)
        self.router = Router(
            self.index,
            list(self.engines),
            limits=Limits(prefill_tokens=busy_tokens),
            predictions=PREDICTIONS,
        )
        self.line = asyncio.Lock()
        self.freed = asyncio.Event()
        self.feed = Feed(
            self.index,
            [
                Source(engine.name, engine.events, replay=engine.replay)
                for engine in engines
            ],
        )
        self.turns = cycle(engines)
        self.app = Starlette(
            routes=[
                *(Route(path, self.complete, methods=["POST"]) for path in PATHS),
                Route("/health", self.health),
            ],
            lifespan=self.lifespan,
        )

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Listen to the engines' events while the application runs."""
        async with httpx.AsyncClient(timeout=TIMEOUT) as self.client, self.feed:
            yield

    async def health(self, _: Request) -> Response:
        """Say how the engines' event streams are."""
        return JSONResponse({row.worker: row.status for row in self.feed.sources()})

    async def complete(self, request: Request) -> Response:
        """Answer one request by the engine that is best for its prompt."""
        body = await request.body()
        try:
            said = json.loads(body)
            tokens = await self.tokens(said)
            decision = await self.decide(tokens)
        except NoEligibleWorkerError as error:
            return problem(503, str(error))
        except httpx.HTTPError as error:
            return problem(502, f"no engine makes tokens of the prompt: {error}")
        except (ValueError, KeyError, TypeError) as error:
            return problem(400, f"no completion can be made of this request: {error}")
        headers = passed_on(request.headers)
        url = self.engines[decision.worker].url + request.url.path
        upstream = self.client.build_request("POST", url, content=body, headers=headers)
        try:
            answer = await self.client.send(upstream, stream=True)
        except httpx.HTTPError as error:
            self.done(decision)
            return problem(502, f"{decision.worker} does not answer: {error}")
        told = {
            "x-kvindex-worker": decision.worker,
            "x-kvindex-depth": str(decision.row.depth),
        }
        return StreamingResponse(
            self.pass_on(decision, answer),
            status_code=answer.status_code,
            headers=passed_on(answer.headers) | told,
        )

    async def decide(self, tokens: memoryview) -> Decision:
        """Choose an engine; while all are busy, wait in line for the first that is not.

        Whoever waits is matched anew each time: caches change meanwhile.
        """
        async with self.line:
            while True:
                try:
                    return self.router.route(tokens)
                except NoEligibleWorkerError as error:
                    if "busy" not in error.reasons:
                        raise
                self.freed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.freed.wait(), LOOK_SECONDS)

    def done(self, decision: Decision) -> None:
        """End a request, and wake up who waits."""
        self.router.done(decision)
        self.freed.set()

    async def tokens(self, said: Any) -> memoryview:  # noqa: ANN401 - any JSON
        """Let an engine make tokens of a prompt; the engines take turns."""
        if not isinstance(said, dict) or not said.keys() & {"prompt", "messages"}:
            message = "it has neither a prompt nor messages"
            raise ValueError(message)
        prompt = {
            name: said[name] for name in ("model", "prompt", "messages") if name in said
        }
        url = next(self.turns).url + "/tokenize"
        answer = await self.client.post(url, json=prompt)
        answer.raise_for_status()
        return np.array(answer.json()["tokens"], dtype=np.uint32).data

    async def pass_on(
        self, decision: Decision, answer: httpx.Response
    ) -> AsyncIterator[bytes]:
        """Pass an answer on, and keep count of what the engine is busy with."""
        tokens = 0
        try:
            async for chunk in answer.aiter_raw():
                # A streamed answer has an event for each token.
                tokens += max(1, chunk.count(b"data:"))
                self.router.produced(decision, tokens)
                self.freed.set()
                yield chunk
        finally:
            self.done(decision)
            await answer.aclose()


def passed_on(headers: Any) -> dict[str, str]:  # noqa: ANN401 - of either library
    """Return the headers that are not of one connection alone."""
    return {
        name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP
    }


def problem(status: int, message: str) -> Response:
    """Return an error as OpenAI's clients read it."""
    return JSONResponse({"error": {"message": message}}, status_code=status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m examples.gateway")
    parser.add_argument("--engine", action="append", type=Engine.of, required=True)
    parser.add_argument("--block-size", type=int, required=True)
    parser.add_argument("--busy-tokens", type=float)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args(arguments)
    gateway = Gateway(given.engine, given.block_size, given.busy_tokens)
    uvicorn.run(gateway.app, host=given.host, port=given.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())

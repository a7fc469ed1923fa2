"""The gateway over real HTTP: engines are made up, but publish what they store."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import kvindex
from examples import gateway
from examples.gateway import Engine, Gateway
from kvindex.policy import Limits, Load, Router
from kvindex.publish import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

BLOCK = 4
SYSTEM = "a system prompt that all talks begin with. "


def text_of(said: dict[str, Any]) -> str:
    """Return a request's prompt as text."""
    if "messages" in said:
        return "".join(message["content"] for message in said["messages"])
    return str(said["prompt"])


class Backend:
    """An engine that caches all it is sent, and says so."""

    def __init__(self, publisher: Publisher) -> None:
        """Hold nothing."""
        self.publisher = publisher
        # Answers wait for this.
        self.free = threading.Event()
        self.free.set()
        self.held: set[int] = set()
        self.asked: list[dict[str, Any]] = []
        self.app = Starlette(
            routes=[
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
                Route("/v1/completions", self.complete, methods=["POST"]),
            ]
        )

    async def tokenize(self, request: Request) -> Response:
        """Make a token of each byte."""
        text = text_of(await request.json())
        return JSONResponse({"tokens": list(text.encode())})

    async def complete(self, request: Request) -> Response:
        """Store the prompt's blocks, and answer with a stream or whole."""
        said = await request.json()
        self.asked.append(said)
        if said.get("model") == "unknown":
            return JSONResponse({"error": "no such model"}, status_code=404)
        await asyncio.to_thread(self.free.wait)
        self.store(list(text_of(said).encode()))
        if not said.get("stream"):
            return JSONResponse({"choices": [{"text": "yes"}]})
        events = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"]
        return StreamingResponse(iter(events), media_type="text/event-stream")

    def store(self, tokens: list[int]) -> None:
        """Tell of each block that is new."""
        keys = kvindex.block_keys(tokens, block_size=BLOCK)
        parent = None
        for number, name in enumerate(kvindex.chain_keys(keys)):
            if name not in self.held:
                block = tokens[number * BLOCK : (number + 1) * BLOCK]
                self.publisher.store([name], block, parent)
                self.held.add(name)
            parent = name
        self.publisher.publish()


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Serve an application on a port of the system's choice; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    with closing(listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


class Fleet:
    """Two engines behind a gateway."""

    def __init__(self, stack: ExitStack, busy_tokens: float | None = None) -> None:
        """Start all three."""
        self.backends: dict[str, Backend] = {}
        engines = []
        for name in ("w0", "w1"):
            endpoint = "tcp://127.0.0.1:*"
            publisher = Publisher(endpoint, replay=endpoint, block_size=BLOCK)
            backend = Backend(stack.enter_context(publisher))
            url = stack.enter_context(serving(backend.app))
            engines.append(Engine(name, url, publisher.endpoint, publisher.replay))
            self.backends[name] = backend
        self.gateway = Gateway(engines, BLOCK, busy_tokens)
        url = stack.enter_context(serving(self.gateway.app))
        self.client = stack.enter_context(httpx.Client(base_url=url, timeout=10.0))
        assert self.gateway.feed.wait()

    def chat(self, text: str, **options: object) -> httpx.Response:
        """Send a chat of one message."""
        said = {"messages": [{"role": "user", "content": text}], **options}
        return self.client.post("/v1/chat/completions", json=said)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Run two engines and a gateway."""
    with ExitStack() as stack:
        yield Fleet(stack)


def test_a_talk_goes_back_to_where_its_prefix_is(fleet: Fleet) -> None:
    first = fleet.chat(SYSTEM)
    worker = first.headers["x-kvindex-worker"]
    assert (first.status_code, first.headers["x-kvindex-depth"]) == (200, "0")
    backend = fleet.backends[worker]
    blocks = len(SYSTEM) // BLOCK
    assert fleet.gateway.feed.wait(until={worker: 0})
    # Events have come: from now on the index knows, and need not expect.
    fleet.gateway.index.expire(1e12)
    for turn in ("tell me more", "and more", "and yet more"):
        answer = fleet.chat(SYSTEM + turn)
        assert answer.headers["x-kvindex-worker"] == worker
        assert int(answer.headers["x-kvindex-depth"]) >= blocks
    assert len(backend.asked) == 4
    (row,) = fleet.gateway.index.match(list(SYSTEM.encode()), workers=[worker])
    assert row.device == blocks


def test_who_finds_all_engines_busy_waits_in_line() -> None:
    with ExitStack() as stack:
        fleet = Fleet(stack, busy_tokens=0)
        for backend in fleet.backends.values():
            backend.free.clear()
        threads = stack.enter_context(ThreadPoolExecutor(4))
        texts = [f"{SYSTEM}{number}" for number in range(4)]
        answers = []
        for number, text in enumerate(texts):
            answers.append(threads.submit(fleet.chat, text))
            while len(fleet.gateway.router.load) < min(2, number + 1):
                time.sleep(0.01)
        time.sleep(0.2)
        asked = [len(backend.asked) for backend in fleet.backends.values()]
        assert asked == [1, 1]
        for backend in fleet.backends.values():
            backend.free.set()
        assert [answer.result().status_code for answer in answers] == [200] * 4
        assert len(fleet.gateway.router.load) == 0


def test_who_waits_finds_what_a_lost_request_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "LOOK_SECONDS", 0.05)
    ours = Gateway([Engine("w0", "http://nowhere", "tcp://127.0.0.1:1")], BLOCK, 0)
    load = Load(block_size=BLOCK, expiry_seconds=0.2)
    ours.router = Router(ours.index, ["w0"], limits=Limits(prefill_tokens=0), load=load)
    tokens = np.arange(8, dtype=np.uint32).data
    # Nobody will say that it is done.
    lost = ours.router.route(tokens)
    found = asyncio.run(asyncio.wait_for(ours.decide(tokens), 5.0))
    assert found.worker == "w0"
    assert not ours.router.done(lost)


def test_answers_are_passed_on_as_they_are(fleet: Fleet) -> None:
    whole = fleet.client.post("/v1/completions", json={"prompt": "hello", "seed": 7})
    assert whole.json() == {"choices": [{"text": "yes"}]}
    (asked,) = [said for each in fleet.backends.values() for said in each.asked]
    assert asked == {"prompt": "hello", "seed": 7}
    streamed = fleet.chat("hello", stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text == "data: one\n\ndata: two\n\ndata: [DONE]\n\n"
    refused = fleet.chat("hello", model="unknown")
    assert (refused.status_code, refused.json()) == (404, {"error": "no such model"})
    assert len(fleet.gateway.router.load) == 0


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b"\xff"])
def test_a_request_that_is_none_is_refused(fleet: Fleet, body: bytes) -> None:
    answer = fleet.client.post("/v1/completions", content=body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message.startswith("no completion can be made of this request: ")
    assert len(fleet.gateway.router.load) == 0


def test_an_engine_that_is_gone_is_named() -> None:
    with ExitStack() as stack:
        fleet = Fleet(stack)
        taken = socket.create_server(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
        taken.close()
        tokens_at = fleet.gateway.engines["w0"].url
        for name, engine in list(fleet.gateway.engines.items()):
            gone = Engine(name, nowhere, engine.events, engine.replay)
            fleet.gateway.engines[name] = gone
        answer = fleet.chat("hello")
        assert answer.status_code == 502
        assert "does not answer" in answer.json()["error"]["message"]
        assert len(fleet.gateway.router.load) == 0
        assert tokens_at != nowhere


def test_health_tells_how_the_streams_are(fleet: Fleet) -> None:
    assert json.loads(fleet.client.get("/health").text) == {"w0": "live", "w1": "live"}


def test_an_engine_is_a_name_and_its_places() -> None:
    assert Engine.of("w0=http://a,tcp://b") == Engine("w0", "http://a", "tcp://b")
    with_replay = Engine("w0", "http://a", "tcp://b", "tcp://c")
    assert Engine.of("w0=http://a,tcp://b,tcp://c") == with_replay
    with pytest.raises(Exception, match="expected name=url,events"):
        Engine.of("w0")

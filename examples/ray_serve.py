"""Ray Serve with kvindex inside: a request router that goes by the replicas' caches.

    pip install 'kvindex[policy,zmq]' 'ray[serve]'
    python -m examples.ray_serve

`CacheRouter` is the part to take along. Wherever a deployment is called from, it
listens to what the replicas publish, and decides by that and by what is running.
A replica tells where it publishes by Serve's hook `record_replica_metadata`; vLLM
publishes there with `--kv-events-config`. Prompts are the first argument of a call,
as tokens.

The engines here are made up: they cache what they are sent, and say so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import RequestRouter

import kvindex
from kvindex.feeds import Feed, Source
from kvindex.policy import Change, Cost, Filter, Load, Predictions, Router
from kvindex.publish import Publisher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.serve.handle import DeploymentHandle
    from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica
    from starlette.requests import Request

BLOCK = 16
REPLICAS = 3
USERS = 3
TURNS = 3
# The first token matters most: a cached prefix is worth a short queue.
POLICY = Cost(prefill_load_scale=10.0)
# Until events arrive, a replica is expected to hold what it was sent.
EXPECTED = Predictions(ttl=1.0)
# What users need to think: after it nothing is expected any more.
PAUSE_SECONDS = 1.5
# How long an answer takes.
ANSWER_SECONDS = 0.5
# Replicas that wait need no processor of their own here.
LIGHT = {"num_cpus": 0}


class CacheRouter(RequestRouter):
    """Sends each request to the replica that is best for its prompt.

    Serve tells when a request is over, and not when its first token is there: until
    then its prompt counts as load.
    """

    def initialize_state(self, *, block_size: int) -> None:
        """Start with no replica; Serve passes what is in `request_router_kwargs`."""
        self.index = kvindex.Indexer(block_size=block_size)
        # Where each request runs, as long as the load counts it: also one that is
        # lost, or whose replica is gone, ends there.
        self.sent: dict[str, str] = {}
        load = Load(block_size=block_size, on_change=self.follow)
        self.router = Router(self.index, policy=POLICY, load=load, predictions=EXPECTED)
        self.feed = Feed(self.index)
        self.feed.open()

    def follow(self, change: Change) -> None:
        """Note where a request runs, or that it runs no more."""
        if change.kind == "add":
            self.sent[change.request] = change.worker
        elif change.kind == "done":
            self.sent.pop(change.request, None)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Follow the replicas that there are now."""
        super().update_replicas(replicas)
        here = {replica.replica_id.unique_id: replica for replica in replicas}
        before = {str(worker) for worker in self.router.workers}
        for name in before - here.keys():
            self.feed.remove(name)
            self.index.remove_worker(name)
            self.router.load.remove_worker(name)
        for name in here.keys() - before:
            told = here[name].replica_metadata
            self.feed.add(Source(name, told["events"], replay=told["replay"]))
        self.router.set_workers(list(here))

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the candidates, the best one first."""
        if pending_request is None:
            return [candidate_replicas]
        # If none has room, Serve is to wait a little before it asks again.
        pending_request.routing_context.should_backoff = True
        replicas = {
            replica.replica_id.unique_id: replica for replica in candidate_replicas
        }
        name = pending_request.metadata.internal_request_id
        self.router.done(name)
        decision = self.router.route(
            pending_request.args[0], request=name, only=Filter(allowed=replicas)
        )
        others = (other.worker for other in decision.alternatives)
        return [[replicas[worker]] for worker in (decision.worker, *others)]

    def on_request_routed(
        self,
        pending_request: PendingRequest,
        replica_id: ReplicaID,
        result: object,  # noqa: ARG002 - Serve passes it
    ) -> None:
        """Count a request where it runs, if the best replica had no room."""
        name, worker = (
            pending_request.metadata.internal_request_id,
            replica_id.unique_id,
        )
        if self.sent.get(name) not in {None, worker}:
            self.router.done(name)
            only = Filter(pinned=worker)
            self.router.route(pending_request.args[0], request=name, only=only)

    def on_request_completed(
        self, replica_id: ReplicaID, internal_request_id: str
    ) -> None:
        """Count a request no more."""
        if self.sent.get(internal_request_id) == replica_id.unique_id:
            self.router.done(internal_request_id)


class Engine:
    """An engine that caches what it is sent, and publishes that."""

    def __init__(self) -> None:
        """Publish on ports of the system's choice."""
        endpoint = "tcp://127.0.0.1:*"
        self.publisher = Publisher(endpoint, replay=endpoint, block_size=BLOCK)
        self.held: set[int] = set()

    def record_replica_metadata(self) -> dict[str, str | None]:
        """Tell routers where to listen."""
        return {"events": self.publisher.endpoint, "replay": self.publisher.replay}

    async def __call__(self, tokens: list[int]) -> dict[str, Any]:
        """Cache a prompt, and say how much of it was cached before."""
        local_keys = kvindex.block_keys(tokens, block_size=BLOCK)
        parent, cached = None, 0
        for number, key in enumerate(kvindex.chain_keys(local_keys)):
            if key in self.held:
                cached += 1
            else:
                block = tokens[number * BLOCK : (number + 1) * BLOCK]
                self.publisher.store([key], block, parent)
                self.held.add(key)
            parent = key
        self.publisher.publish()
        await asyncio.sleep(ANSWER_SECONDS)
        replica = serve.get_replica_context().replica_id.unique_id
        return {"replica": replica, "cached": cached, "blocks": len(local_keys)}


class Frontend:
    """Makes tokens of text, and sends them to the engines."""

    def __init__(self, engines: DeploymentHandle) -> None:
        """Know the engines; the handle's calls go through their router."""
        self.engines = engines

    async def __call__(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        """Answer one prompt; each byte of it is a token."""
        said = await request.json()
        return await self.engines.remote(list(said["prompt"].encode()))


def application(replicas: int) -> serve.Application:
    """Return a frontend before engines that are routed by their caches."""
    config = RequestRouterConfig(
        request_router_class=CacheRouter, request_router_kwargs={"block_size": BLOCK}
    )
    engines = serve.deployment(
        Engine,
        num_replicas=replicas,
        ray_actor_options=LIGHT,
        request_router_config=config,
    )
    frontend = serve.deployment(Frontend, ray_actor_options=LIGHT)
    return frontend.bind(engines.bind())


def ask(port: int, prompt: str) -> dict[str, Any]:
    """Send a prompt to the frontend."""
    url = f"http://127.0.0.1:{port}/"
    body = json.dumps({"prompt": prompt}).encode()
    with urllib.request.urlopen(url, body, timeout=60) as answer:
        said: dict[str, Any] = json.load(answer)
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    """Let users talk at the same time, each turn with all that was said before."""
    parser = argparse.ArgumentParser(prog="python -m examples.ray_serve")
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args(arguments)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    serve.start(http_options={"host": "127.0.0.1", "port": given.port})
    serve.run(application(given.replicas))
    talks = [f"user {user} says: " + "so much to tell " * 20 for user in range(USERS)]
    with ThreadPoolExecutor(USERS) as threads:
        for turn in range(1, TURNS + 1):
            print(f"turn {turn}")
            answers = threads.map(lambda talk: ask(given.port, talk), talks)
            for user, told in enumerate(answers):
                cached = f"{told['cached']} of {told['blocks']} blocks"
                print(f"user {user}: replica {told['replica']}, {cached}")
                talks[user] += f"and then, in turn {turn}, " * 8
            time.sleep(PAUSE_SECONDS)
    serve.shutdown()
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

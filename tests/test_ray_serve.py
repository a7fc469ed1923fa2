"""Ray Serve routes by the replicas' caches, with real replicas and events."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kvindex.policy import Filter

ROOT = Path(__file__).parents[1]
TURNS, USERS = 3, 3


needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray Serve is not installed: make ray",
)


@needs_ray
def test_nothing_is_kept_of_requests_that_the_load_does_not_run() -> None:
    from examples.ray_serve import CacheRouter  # noqa: PLC0415 - it imports ray

    # Serve's own part is not asked.
    ours = CacheRouter.__new__(CacheRouter)
    ours.initialize_state(block_size=4)
    try:
        ours.router.set_workers(["w0", "w1"])
        load = ours.router.load
        for name in ("done", "gone", "lost"):
            ours.router.route(range(8), request=name, only=Filter(pinned="w0"), now=0.0)
        assert ours.sent == dict.fromkeys(("done", "gone", "lost"), "w0")
        ours.router.done("done")
        assert set(ours.sent) == {"gone", "lost"}
        load.expire(now=1e6)
        assert ours.sent == {}
        ours.router.route(range(8), request="gone", only=Filter(pinned="w1"))
        load.remove_worker("w1")
        assert ours.sent == {}
    finally:
        ours.feed.close()


@needs_ray
def test_talks_go_back_to_the_replica_that_has_their_prefix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-m", "examples.ray_serve", "--port", str(port)],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("user")]
    assert len(lines) == TURNS * USERS
    turns = [lines[at : at + USERS] for at in range(0, len(lines), USERS)]
    replicas = [[line.split()[3] for line in turn] for turn in turns]
    # At first nothing is cached: who comes at the same time is spread by load.
    assert len(set(replicas[0])) > 1
    assert replicas == [replicas[0]] * TURNS
    cached = [[int(line.split()[4]) for line in turn] for turn in turns]
    blocks = [[int(line.split()[6]) for line in turn] for turn in turns]
    assert cached[0] == [0] * USERS
    assert cached[1:] == blocks[:-1]

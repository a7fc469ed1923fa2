"""Faults of other packages at run time: P1 to P5, P8, P9."""

import asyncio
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kvindex
from tests import wire
from tests.helpers import Scene, tokens

EXITS = 20
ENDLESS = """
import signal, kvindex
# What a shell starts in the background ignores interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
index = kvindex.Indexer(block_size=16)
event = kvindex.BlockStored(list(range(4096)), list(range(65536)))
try:
    print("ready", flush=True)
    while True:
        index.apply([event], worker="w")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
CLASSES = (
    kvindex.Indexer,
    kvindex.Match,
    kvindex.Matches,
    kvindex.ApplyReport,
    kvindex.WorkerState,
    kvindex.Candidates,
    kvindex.BlockStored,
    kvindex.BlockRemoved,
    kvindex.AllBlocksCleared,
    kvindex.KvIndexError,
    kvindex.ConfigError,
    kvindex.DecodeError,
    kvindex.UnknownWorkerError,
)


def python(*lines: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run lines in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent("\n".join(lines))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
    )


def large_payload(blocks: int = 1_000_000) -> bytes:
    """Return one store of many blocks of one token."""
    ids = list(range(1, blocks + 1))
    return wire.batch([wire.stored_map(ids, ids, None, 1)])


# P1 and P2: nothing holds the interpreter for long.


def test_p1_a_ticker_ticks_while_a_large_batch_is_applied() -> None:
    payload = large_payload()
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        index = kvindex.Indexer(block_size=1)
        start = time.perf_counter()
        index.apply(payload, worker="w1")
        end = time.perf_counter()
    finally:
        stop.set()
        thread.join()
    quiet = [start, *(at for at in ticks if start < at < end), end]
    longest = max(later - at for at, later in pairwise(quiet))
    assert longest < max(0.1, 0.5 * (end - start))


def test_p1_sixteen_threads_share_one_index(objects: Scene) -> None:
    index = objects.index

    def work(number: int) -> bool:
        worker = f"w{number}"
        for _ in range(50):
            objects.S(worker, "ABCD")
            if objects.depths("ABCD").get(worker) != 4:
                return False
            objects.R(worker, "ABCD", "ABC")
            if objects.depths("ABCD").get(worker) != 2:
                return False
            objects.C(worker)
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))
    assert len(index) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_p2_construction_does_not_wait_or_start_threads() -> None:
    result = python(
        "import os, kvindex",
        "before = len(os.listdir('/proc/self/task'))",
        "indexes = [kvindex.Indexer(block_size=16) for _ in range(100)]",
        "indexes[0].apply([kvindex.BlockStored([1], list(range(16)))], worker='w')",
        "assert len(indexes[0].match(list(range(16)))) == 1",
        "assert len(os.listdir('/proc/self/task')) == before == 1",
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_p2_an_interrupt_ends_a_loop_of_applies() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert output == "interrupted\n"
    assert process.returncode == 0


# P3: asyncio users run it in a thread or at once; there is no hidden runtime.


def test_p3_an_event_loop_goes_on_while_a_batch_is_applied() -> None:
    payload = large_payload(500_000)
    index = kvindex.Indexer(block_size=1)

    async def main() -> tuple[kvindex.ApplyReport, int]:
        task = asyncio.create_task(asyncio.to_thread(index.apply, payload, worker="w1"))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
        return await task, turns

    report, turns = asyncio.run(main())
    assert report.stored == 500_000
    assert turns >= 2


# P4: an interpreter that ends while threads are at work.


def test_p4_an_interpreter_ends_quietly_under_load() -> None:
    lines = """
        import threading, kvindex
        index = kvindex.Indexer(block_size=4)
        text = list(range(4096))
        event = kvindex.BlockStored(list(range(1024)), text)
        go = threading.Barrier(4)
        def work(worker):
            go.wait()
            while True:
                index.apply([event], worker=worker)
                found = index.match(text)
                columns = found.depths, found.scores, found.workers
        for number in range(3):
            threading.Thread(target=work, args=(f"w{number}",), daemon=True).start()
        go.wait()
    """
    for _ in range(EXITS):
        result = python(textwrap.dedent(lines))
        assert (result.returncode, result.stderr) == (0, "")


def test_p4_columns_outlive_their_index() -> None:
    scene = Scene()
    scene.S("w1", "AB")
    found = scene.index.match(tokens("AB"))
    columns = found.depths, found.scores
    del scene, found
    assert [list(column) for column in columns] == [[2], [2.0]]


# P5: fork, spawn and forkserver.


def use_in_child(connection: multiprocessing.connection.Connection) -> None:
    index = kvindex.Indexer(block_size=4)
    index.apply([kvindex.BlockStored([1], [1, 2, 3, 4])], worker="child")
    connection.send(index.match([1, 2, 3, 4]).to_dict())
    connection.close()


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_p5_every_start_method_can_use_the_package(method: str) -> None:
    Scene().S("w1", "AB")
    context: Any = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=use_in_child, args=(sender,))
    process.start()
    sender.close()
    assert receiver.poll(30)
    assert receiver.recv()["worker"] == ["child"]
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_p5_a_forked_index_goes_on_in_both_processes(objects: Scene) -> None:
    objects.S("w1", "AB")
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        seen = objects.depths("ABC")
        objects.S("w1", "C", "AB")
        sender.send((seen, objects.depths("ABC")))

    process = context.Process(target=child)
    process.start()
    sender.close()
    assert receiver.poll(30)
    assert receiver.recv() == ({"w1": 2}, {"w1": 3})
    process.join(30)
    assert process.exitcode == 0
    assert objects.depths("ABC") == {"w1": 2}
    objects.R("w1", "AB")
    assert objects.depths("ABC") == {"w1": 1}


# P8: what an import brings.


def test_p8_import_needs_the_standard_library_only() -> None:
    result = python(
        "import sys",
        "before = set(sys.modules)",
        "import kvindex",
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}",
        "print(sorted(new - set(sys.stdlib_module_names)))",
        "print('kvindex.feeds' in sys.modules)",
    )
    assert result.stdout == "['kvindex']\nFalse\n", result.stderr


def test_p8_the_package_is_used_from_another_folder(tmp_path: Path) -> None:
    result = python(
        "import kvindex", "print(kvindex.Indexer(block_size=16))", cwd=tmp_path
    )
    assert result.stdout == "kvindex.Indexer(block_size=16, workers=0, blocks=0)\n"


# P9: classes name their module, results are pickled.


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_p9_every_class_is_found_under_its_own_name(cls: type) -> None:
    assert cls.__module__.partition(".")[0] == "kvindex"
    assert getattr(importlib.import_module(cls.__module__), cls.__name__) is cls
    assert getattr(kvindex, cls.__name__) is cls


def test_p9_an_indexer_refuses_pickling_with_a_hint() -> None:
    with pytest.raises(TypeError, match="Indexer"):
        pickle.dumps(kvindex.Indexer(block_size=16))

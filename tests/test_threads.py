"""Many threads apply and match at once; what they may see does not change.

A reader sees each run as it was before a write or after it. Everything here
follows from that and from the order of events: a prefix that nobody removes is
always matched, a chain that only grows is never seen to shrink, a block that
moves between tiers is never seen on none.
"""

import array
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import kvindex
from tests import wire
from tests.helpers import BLOCK, Event, Scene, as_map, name, tokens

SECONDS = 0.4
READERS = 3
PATH = "".join(chr(ord("A") + i) for i in range(48))


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Let threads take turns often, so that calls interleave."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@contextmanager
def running(*loops: Callable[[], object]) -> Iterator[None]:
    """Run each loop's body again and again beside the block of the `with`."""
    stop = threading.Event()

    def repeat(body: Callable[[], object]) -> None:
        while not stop.is_set():
            body()

    with ThreadPoolExecutor(len(loops)) as pool:
        futures = [pool.submit(repeat, body) for body in loops]
        try:
            yield
        finally:
            stop.set()
    for future in futures:
        future.result()


def run(*loops: Callable[[], object], seconds: float = SECONDS) -> None:
    """Run loops beside each other for a while; raise what any of them raised."""
    with running(*loops):
        time.sleep(seconds)


def whole(row: kvindex.Match, blocks: int) -> None:
    """Check that a row belongs together."""
    assert 0 < row.depth <= blocks
    assert row.device + row.host + row.disk + row.external == row.depth
    score = row.device + 0.75 * row.host + 0.25 * (row.disk + row.external)
    assert row.score == score


def test_a_permanent_prefix_is_always_matched_fully() -> None:
    scene = Scene()
    scene.S("keep", PATH)
    text = tokens(PATH)

    def churn(number: int) -> Callable[[], object]:
        rng = random.Random(number)
        who = f"w{number}"

        def body() -> None:
            cut = rng.randrange(1, len(PATH))
            scene.S(who, PATH[:cut])
            scene.S(who, "xyz", PATH[:cut])
            scene.R(who, *(PATH[: i + 1] for i in range(rng.randrange(cut))))
            if rng.random() < 0.5:
                scene.index.remove_worker(who)
            else:
                scene.C(who)

        return body

    def read() -> None:
        rows = {row.worker: row for row in scene.index.match(text)}
        assert rows["keep"].depth == len(PATH)
        for row in rows.values():
            whole(row, len(PATH))

    run(churn(1), churn(2), *[read] * READERS)
    assert scene.depths(PATH)["keep"] == len(PATH)


def test_a_pools_blocks_count_while_workers_come_and_go() -> None:
    scene = Scene()
    scene.S("pool:p", PATH, tier="cpu")
    text = tokens(PATH)

    def churn(number: int) -> Callable[[], object]:
        rng = random.Random(number)
        who = f"w{number}"

        def body() -> None:
            cut = rng.randrange(1, len(PATH))
            scene.S(who, PATH[:cut])
            scene.R(who, *(PATH[: i + 1] for i in range(rng.randrange(cut))))
            if rng.random() < 0.5:
                scene.index.remove_worker(who)
            else:
                scene.C(who)

        return body

    def read() -> None:
        for workers in (None, ["w1", "w2", "nobody"]):
            found = scene.index.match(text, workers=workers)
            assert {row.depth for row in found} <= {len(PATH)}
            assert found.pools == {"p": len(PATH)}

    run(churn(1), churn(2), *[read] * READERS)


def test_a_pools_blocks_are_not_taken_for_those_of_the_next_owner_of_its_number() -> (
    None
):
    scene = Scene()
    scene.S("keep", "AB")
    text = tokens(PATH)

    def write() -> None:
        scene.S("pool:p", PATH)
        scene.index.remove_pool("p")
        scene.S("w1", PATH[:4])
        scene.index.remove_worker("w1")

    def read() -> None:
        for workers in (None, ["keep", "w1"]):
            found = scene.index.match(text, workers=workers)
            for row in found:
                own = row.depth - row.shared
                assert own <= {"keep": 2, "w1": 4}[row.worker]
                assert row.depth in (0, 2, 4, len(PATH))

    run(write, *[read] * READERS)


def test_a_holder_stays_in_sight_while_many_others_are_moved_in_its_run() -> None:
    scene = Scene()
    path = PATH[:3]
    # Whoever came first stands first in the run and moves all others; there are
    # so many that a reader is likely to be among them.
    moving, staying = ["w1", "w2"], [f"other{number}" for number in range(1500)]
    for who in [*moving, *staying]:
        scene.S(who, path)
    for who in moving:
        scene.R(who, *(path[: i + 1] for i in range(len(path))))
    events: list[Event] = [scene.stored("A"), scene.removed("A")] * 200
    for end in (1, 2, 4, 8, 16, 32):
        paths = [path + "z" * (i + 1) for i in range(end)]
        events += [scene.stored("z" * end, path), scene.removed(*paths)]
    payload = wire.batch(map(as_map, events))
    # So many that they are answered while the writers go on.
    questions = [array.array("I", tokens(path))] * 1024

    def write(who: str) -> Callable[[], object]:
        return lambda: scene.index.apply(payload, worker=who)

    def read() -> None:
        answers = scene.index.match_many(questions, workers=staying[-1:])
        assert {found.depths[0] for found in answers} == {len(path)}

    run(*map(write, moving), *[read] * READERS)
    assert scene.depths(path) == dict.fromkeys(staying, len(path))


def test_a_long_query_is_not_answered_for_the_next_owner_of_a_number() -> None:
    index = kvindex.Indexer(block_size=16)
    text = array.array("I", range(1 << 20))
    ids = list(range(1, len(text) // 16 + 1))
    index.apply([kvindex.BlockStored(ids, text, block_size=16)], worker="keep")
    depths = {"many": 40, "one": 1}

    def write() -> None:
        for _ in range(10):
            for who, depth in depths.items():
                stored = kvindex.BlockStored(ids[:depth], text[: 16 * depth])
                index.apply([stored], worker=who)
                time.sleep(0.001)
                index.remove_worker(who)
        # A query is answered once numbers are left alone for as long as it takes.
        time.sleep(0.05)

    def read() -> None:
        (found,) = index.match_many([text])  # so long that others go on meanwhile
        for row in found:
            assert row.depth == depths.get(row.worker, len(ids))

    run(write, *[read] * READERS)


def test_a_growing_chain_is_never_seen_to_shrink() -> None:
    index = kvindex.Indexer(block_size=1)
    text = array.array("I", range(4000))
    done = threading.Event()

    def read() -> int:
        seen = 0
        while not done.is_set():
            depth = sum(index.match(text).depths)
            assert depth >= seen
            seen = depth
        return seen

    with ThreadPoolExecutor(READERS) as pool:
        futures = [pool.submit(read) for _ in range(READERS)]
        try:
            for at in text:
                event = wire.stored_map([at + 1], [at], at or None, 1)
                index.apply(wire.batch([event]), worker="w1")
        finally:
            done.set()
        assert all(future.result() <= len(text) for future in futures)
    assert list(index.match(text).depths) == [len(text)]


def test_a_shrinking_chain_is_never_seen_to_grow() -> None:
    index = kvindex.Indexer(block_size=1)
    text = array.array("I", range(3000))
    ids = [i + 1 for i in text]
    for worker in ("w1", "w2"):
        event = wire.stored_map(ids, list(text), None, 1)
        index.apply(wire.batch([event]), worker=worker)
    done = threading.Event()

    def read() -> None:
        seen = len(text)
        while not done.is_set():
            found = {row.worker: row.depth for row in index.match(text)}
            assert found["w2"] == len(text)
            assert found.get("w1", 0) <= seen
            seen = found.get("w1", 0)

    with ThreadPoolExecutor(READERS) as pool:
        futures = [pool.submit(read) for _ in range(READERS)]
        try:
            for item in reversed(ids):
                index.apply(wire.batch([wire.removed_map([item])]), worker="w1")
        finally:
            done.set()
        for future in futures:
            future.result()
    assert [(row.worker, row.depth) for row in index.match(text)] == [("w2", 3000)]


def test_a_block_that_moves_between_tiers_is_always_on_one() -> None:
    scene = Scene()
    path = PATH[:12]
    text = tokens(path)
    scene.S("w1", path)
    paths = [path[: i + 1] for i in range(len(path))]

    def move() -> None:
        scene.P("w1", *paths, tier="cpu")
        scene.R("w1", *paths)
        scene.P("w1", *paths, tier="gpu")
        scene.R("w1", *paths, tier="cpu")

    def read() -> None:
        (row,) = scene.index.match(text)
        assert row.depth == len(path)
        whole(row, len(path))

    run(move, *[read] * READERS)


def test_branches_that_come_and_go_never_lend_their_blocks() -> None:
    scene = Scene()
    trunk = PATH[:8]
    scene.S("w1", trunk)

    def churn(number: int) -> Callable[[], object]:
        letters = "xyz"[number] * 4

        def body() -> None:
            scene.S(f"b{number}", trunk + letters)
            paths = [(trunk + letters)[: i + 1] for i in range(12)]
            scene.R(f"b{number}", *reversed(paths))

        return body

    def read(number: int) -> Callable[[], object]:
        text = tokens(trunk + "xyz"[number] * 4)

        def body() -> None:
            depths = {row.worker: row.depth for row in scene.index.match(text)}
            assert depths["w1"] == 8
            for worker, depth in depths.items():
                assert depth <= (12 if worker == f"b{number}" else 8)

        return body

    run(*map(churn, range(3)), *map(read, range(3)))
    assert len(scene.index) == 8


def test_a_removed_worker_is_never_seen_again() -> None:
    scene = Scene(registered_only=True)
    text = tokens("ABCD")

    def cycle() -> None:
        epoch = scene.index.register("w1")
        scene.S("w1", "ABCD", epoch=epoch)
        assert scene.depths("ABCD") == {"w1": 4}
        scene.index.remove_worker("w1")
        scene.S("w1", "ABCD", epoch=epoch)
        assert scene.depths("ABCD") == {}

    def read() -> None:
        for row in scene.index.match(text):
            whole(row, 4)

    run(cycle, *[read] * READERS)
    assert scene.index.workers() == []


def test_threads_that_write_for_different_workers_leave_what_each_wrote() -> None:
    scene = Scene()
    expected: dict[str, int] = {}

    def work(number: int) -> tuple[str, int]:
        rng = random.Random(number)
        who, depth = f"w{number}", 0
        for _ in range(150):
            if depth and rng.random() < 0.4:
                scene.R(who, PATH[:depth])
                depth -= 1
            elif depth < len(PATH):
                scene.S(who, PATH[depth], PATH[:depth])
                depth += 1
        return who, depth

    scene.S("root", PATH)
    with ThreadPoolExecutor(16) as pool:
        expected |= dict(pool.map(work, range(16)))
    expected = {who: depth for who, depth in expected.items() if depth}
    assert scene.depths(PATH) == expected | {"root": len(PATH)}
    for who, depth in expected.items():
        assert scene.held(who) == depth


def test_waiting_stores_of_many_threads_are_all_attached() -> None:
    scene = Scene()

    def work(number: int) -> None:
        order = list(range(len(PATH)))
        random.Random(number).shuffle(order)
        for at in order:
            scene.S(f"w{number}", PATH[at], PATH[:at])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert scene.depths(PATH) == {f"w{number}": len(PATH) for number in range(8)}
    assert sum(line.orphans for line in scene.index.workers()) == 0


def test_every_kind_of_call_may_meet_every_other() -> None:
    scene = Scene()
    index = scene.index
    text = tokens(PATH)
    local = kvindex.block_keys(text, block_size=BLOCK)
    chain = kvindex.chain_keys(local)
    who = index.candidates(["w1", ("w2", 1), "nobody"])
    hashes = [name(PATH[: i + 1]) for i in range(len(PATH))]

    def write() -> None:
        for worker in ("w1", "w2@1"):
            scene.S(worker, PATH, tier="cpu")
        index.register("w1", chunk_tokens={"host": 2 * BLOCK})
        scene.C("w2@1")
        index.reset("w1")
        index.clear()

    def read() -> None:
        for found in (
            index.match(text, workers=who),
            index.match_keys(local, workers=who),
            index.match_chain(chain, workers=who),
            index.match_names(hashes, workers=who),
            *index.match_many([text, text[:40]], workers=who),
        ):
            assert list(found.workers) == ["w1", "w2", "nobody"]
            assert len(found.depths) == len(found.scores) == 3
            assert found.depths[2] == 0
            assert found.to_dict()["depth"] == found.depths.tolist()

    def look() -> None:
        assert len(index.workers()) <= 3
        assert isinstance(index.stats(), dict)
        assert index.explain(text, worker="w1")["depth"] <= len(PATH)
        assert repr(index).startswith("kvindex.Indexer(block_size=4, workers=")
        assert 0 <= len(index) <= len(PATH)

    run(write, read, read, look)


def test_one_result_is_read_by_many_threads() -> None:
    scene = Scene()
    for number in range(20):
        scene.S(f"w{number}", PATH[: number + 1])
    found = scene.index.match(tokens(PATH))
    expected = found.to_dict()

    def read() -> None:
        assert found.to_dict() == expected
        assert list(found.depths) == expected["depth"]
        assert [row.score for row in found] == expected["score"]
        assert found.best(seed=1) == found.best(seed=1)

    run(*[read] * 4, seconds=0.2)


def test_a_ticker_goes_on_while_large_batches_are_applied() -> None:
    ids = list(range(1, 300_001))
    payload = wire.batch([wire.stored_map(ids, ids, None, 1)])
    index = kvindex.Indexer(block_size=1)
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        time.sleep(0.001)
        ticks += 1

    with running(tick):
        start = time.perf_counter()
        for worker in ("w1", "w2", "w3"):
            index.apply(payload, worker=worker)
        spent = time.perf_counter() - start
        seen = ticks
    assert seen >= min(3, int(spent / 0.02))
    assert list(index.match(ids).depths) == [300_000] * 3

"""Opening, closing, adding, removing, waiting, failing."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
import zmq

import kvindex
from kvindex.feeds import Feed, Source, SourceState
from tests.feeds.batches import batch, chain, stores
from tests.feeds.conftest import Start
from tests.feeds.publisher import Publisher
from tests.helpers import depths

NOBODY = "tcp://127.0.0.1:1"


def source(publisher: Publisher, worker: str = "w1", **options: object) -> Source:
    """Return the source of a publisher."""
    return Source(
        worker,
        publisher.endpoint,
        replay=publisher.replay,
        **options,  # type: ignore[arg-type]
    )


def feed_threads() -> list[threading.Thread]:
    """Return the threads of feeds that run."""
    return [t for t in threading.enumerate() if t.name == "kvindex-feed"]


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter of its own, which must end in time."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={**os.environ, **environment},
    )


def test_closing_ends_the_thread_at_once_and_can_be_repeated(
    index: kvindex.Indexer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    engine = start(silent=True)
    feed = Feed(index, [source(engine), Source("w2", NOBODY)], replay_timeout=60.0)
    feed.open()
    engine.asked(1)
    assert len(feed_threads()) == 1
    feed.close()
    assert "still busy" not in caplog.text
    assert feed_threads() == []
    assert feed.closed
    assert [row.status for row in feed.sources()] == ["closed", "closed"]
    feed.close()


def test_a_feed_that_was_never_opened_can_be_closed(index: kvindex.Indexer) -> None:
    feed = Feed(index, [Source("w1", NOBODY)])
    assert [row.status for row in feed.sources()] == ["new"]
    feed.close()
    assert [row.status for row in feed.sources()] == ["closed"]
    with pytest.raises(kvindex.KvIndexError, match="closed already"):
        feed.open()
    with pytest.raises(kvindex.KvIndexError, match="has closed"):
        feed.add(Source("w2", NOBODY))


def test_a_feed_opens_once(index: kvindex.Indexer) -> None:
    with Feed(index) as feed, pytest.raises(kvindex.KvIndexError, match="open already"):
        feed.open()


def test_a_closed_feed_is_collected(index: kvindex.Indexer, start: Start) -> None:
    with Feed(index, [source(start())]) as feed:
        assert feed.wait()
    gone = weakref.ref(feed)
    del feed
    gc.collect()
    assert gone() is None


def test_entering_and_leaving_hold_up_no_event_loop(
    index: kvindex.Indexer, start: Start
) -> None:
    passed: list[bool] = []

    class Watched(Feed):
        """A feed that opens and closes only while the loop answers."""

        loop: asyncio.AbstractEventLoop

        def pass_the_loop(self) -> None:
            answered = threading.Event()
            self.loop.call_soon_threadsafe(answered.set)
            passed.append(answered.wait(5.0))

        def open(self) -> None:
            self.pass_the_loop()
            super().open()

        def close(self, timeout: float = 5.0) -> None:
            self.pass_the_loop()
            super().close(timeout)

    async def main() -> None:
        feed = Watched(index, [source(engine)])
        feed.loop = asyncio.get_running_loop()
        async with feed:
            assert await asyncio.to_thread(feed.wait)
            assert depths(index, "AB") == {"w1": 2}

    engine = start()
    engine.publish(batch(stores("AB")))
    asyncio.run(main())
    assert passed == [True, True]
    assert feed_threads() == []


def test_an_error_inside_the_block_closes_the_feed(index: kvindex.Indexer) -> None:
    with pytest.raises(RuntimeError, match="mine"), Feed(index):
        raise RuntimeError("mine")  # noqa: EM101
    assert feed_threads() == []


def test_sources_come_and_go_while_the_feed_runs(
    index: kvindex.Indexer, start: Start
) -> None:
    first, second = start(), start()
    first.publish(batch(stores("A")))
    second.publish(batch(stores("AB")))
    with Feed(index) as feed:
        feed.add(source(first, "w1"))
        feed.add(source(second, "w2"))
        assert feed.wait(until={"w1": 0, "w2": 0})
        assert depths(index, "AB") == {"w1": 1, "w2": 2}
        assert feed.remove("w1")
        assert not feed.remove("w1")
        assert [row.worker for row in feed.sources()] == ["w2"]
        # What it holds stays until the index is told.
        assert depths(index, "AB") == {"w1": 1, "w2": 2}
        feed.add(source(first, "w1"))
        assert feed.wait()
        assert [row.worker for row in feed.sources()] == ["w2", "w1"]


def test_one_rank_can_be_removed(index: kvindex.Indexer) -> None:
    with Feed(index, Source.ranks("w1", NOBODY, 3)) as feed:
        assert feed.remove("w1", dp_rank=1)
        assert [row.dp_rank for row in feed.sources()] == [0, 2]
        assert not feed.remove("w1", dp_rank=1)
        assert feed.remove("w1")
        assert feed.sources() == []


def test_nothing_of_a_removed_worker_comes_back(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start()
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.0005):
            engine.publish(batch(stores("A")))

    with Feed(index, [source(engine, "w1"), source(engine, "w2", source="b")]) as feed:
        assert feed.wait()
        thread = threading.Thread(target=publish)
        thread.start()
        try:
            assert feed.wait(until={"w1": 5})
            feed.remove("w1")
            index.remove_worker("w1")
            reached = feed.sources()[0].seq or 0
            assert feed.wait(until={"w2": reached + 20})
        finally:
            stop.set()
            thread.join()
        assert [row.worker for row in index.workers()] == ["w2"]


def test_removing_waits_for_the_batch_that_is_being_applied(
    index: kvindex.Indexer, start: Start
) -> None:
    inside, gate, removed = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        """An index that applies when the test says so."""

        def apply(self, payload: bytes, /, **options: object) -> object:
            inside.set()
            assert gate.wait(5.0)
            return index.apply(payload, **options)  # type: ignore[arg-type]

    def remove() -> None:
        feed.remove("w1")
        index.remove_worker("w1")
        removed.set()

    engine = start()
    engine.publish(batch(stores("A")))
    with Feed(Slow(), [source(engine)]) as feed:  # type: ignore[arg-type]
        assert inside.wait(5.0)
        remover = threading.Thread(target=remove)
        remover.start()
        assert not removed.wait(0.1)
        gate.set()
        assert removed.wait(5.0)
        remover.join()
    assert index.workers() == []


def test_closing_does_not_wait_longer_than_it_is_told(
    index: kvindex.Indexer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    inside, gate = threading.Event(), threading.Event()

    class Stuck:
        """An index that does not come back for a while."""

        def apply(self, payload: bytes, /, **options: object) -> object:
            inside.set()
            assert gate.wait(5.0)
            return index.apply(payload, **options)  # type: ignore[arg-type]

    engine = start()
    engine.publish(batch(stores("A")))
    feed = Feed(Stuck(), [source(engine)])  # type: ignore[arg-type]
    feed.open()
    try:
        assert inside.wait(5.0)
        began = time.monotonic()
        feed.close(timeout=0.1)
        assert time.monotonic() - began >= 0.1
        assert not gate.is_set()
        assert "still busy" in caplog.text
    finally:
        gate.set()
        feed.close()
    assert feed_threads() == []


def test_batches_of_an_ended_epoch_are_ignored(
    index: kvindex.Indexer, start: Start
) -> None:
    old, new = start(), start()
    first = index.register("w1")
    with Feed(index, [source(old, epoch=first)]) as feed:
        old.subscribed()
        old.publish(batch(stores("A")))
        assert feed.wait(until={"w1": 0})
        index.remove_worker("w1")
        second = index.register("w1")
        old.publish(batch(stores("AB")))
        assert feed.wait(until={"w1": 1})
        assert depths(index, "AB") == {}
        index.apply(batch(stores("X")), worker="w1", epoch=second)
        # The old engine's restart is no longer the worker's.
        old.send(0, batch(stores("Y")))
        assert feed.wait(until=lambda rows: rows[0].restarts == 1)
        assert feed.wait(until={"w1": 0})
        assert depths(index, "X") == {"w1": 1}
        feed.remove("w1")
        feed.add(source(new, epoch=second))
        new.publish(batch(stores("XZ")))
        assert feed.wait(until={"w1": 0})
        assert depths(index, "XZ") == {"w1": 2}


def test_a_source_may_be_given_once(index: kvindex.Indexer) -> None:
    with pytest.raises(kvindex.ConfigError, match="'w1' rank 0 has a source"):
        Feed(index, [Source("w1", NOBODY), Source("w1", "tcp://127.0.0.1:2")])
    with Feed(index, [Source("w1", NOBODY)]) as feed:
        with pytest.raises(kvindex.ConfigError, match="'w1' rank 0 has a source"):
            feed.add(Source("w1", NOBODY))
        feed.add(Source("w1", NOBODY, source="offload"))


@pytest.mark.parametrize("bad", ["tcp://no host:1", "ipc:///nowhere/at/all"])
def test_an_address_that_cannot_be_used_is_told_at_once(
    index: kvindex.Indexer, start: Start, bad: str
) -> None:
    engine = start(replay=False)
    wrong = Source("w2", bad, bind=True)
    feed = Feed(index, [source(engine), wrong])
    with pytest.raises(kvindex.ConfigError, match=f"cannot bind {bad}"):
        feed.open()
    assert feed_threads() == []
    assert feed.closed
    with Feed(index, [source(engine)]) as other:
        with pytest.raises(kvindex.ConfigError, match=f"cannot bind {bad}"):
            other.add(wrong)
        assert [row.worker for row in other.sources()] == ["w1"]
        assert other.wait()


def test_an_address_in_use_is_told_at_once(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    with pytest.raises(kvindex.ConfigError, match="Address already in use"):
        Feed(index, [Source("w1", engine.endpoint, bind=True)]).open()


def test_sockets_that_run_out_are_told_at_once(
    index: kvindex.Indexer, start: Start
) -> None:
    engine = start(replay=False)
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 4)
        with Feed(index, [source(engine)], context=context) as feed:
            with pytest.raises(OSError, match="no socket for tcp:"):
                feed.add(Source("w2", NOBODY))
            assert [row.worker for row in feed.sources()] == ["w1"]
            assert feed.wait()


def test_two_streams_of_a_holder_keep_their_own_numbers(
    index: kvindex.Indexer, start: Start
) -> None:
    engines = [start(), start()]
    sources = [source(engines[0]), source(engines[1], source="offload")]
    for payload in chain(3):
        engines[0].publish(payload)
    engines[1].publish(batch(stores("X")))
    for single in reversed(sources):
        with Feed(index, [single]) as feed:
            assert feed.wait()
    engines[1].publish(batch(stores("Y", "X")))
    with Feed(index, sources) as feed:
        assert feed.wait()
        assert all(row.restarts == 0 for row in feed.sources())
    assert depths(index, "ABC") == {"w1": 3}
    assert depths(index, "XY") == {"w1": 2}


class Panic(BaseException):
    """What an index raises that should not be there."""


@pytest.mark.parametrize("error", [RuntimeError, Panic])
def test_a_source_that_fails_stops_alone(
    index: kvindex.Indexer,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
) -> None:
    class Failing:
        """An index that refuses one worker in a way that no index should."""

        def __getattr__(self, name: str) -> object:
            return getattr(index, name)

        def apply(self, payload: bytes, /, *, worker: str, **options: object) -> object:
            if worker == "bad":
                msg = "out of order"
                raise error(msg)
            return index.apply(payload, worker=worker, **options)  # type: ignore[arg-type]

    engine = start()
    engine.publish(batch(stores("A")))
    both = [source(engine, "bad"), source(engine, "good")]
    with Feed(Failing(), both) as feed, caplog.at_level(logging.CRITICAL):  # type: ignore[arg-type]
        assert feed.wait(until={"good": 0})
        assert feed.wait(until=lambda rows: rows[0].status == "failed")
        assert feed.sources()[0].last_error == f"{error.__name__}: out of order"
        engine.publish(batch(stores("B", "A")))
        assert feed.wait(until={"good": 1})
    assert [row.status for row in feed.sources()] == ["failed", "closed"]
    assert depths(index, "AB") == {"good": 2}


def test_a_context_that_is_taken_away_ends_the_feed(
    index: kvindex.Indexer, caplog: pytest.LogCaptureFixture
) -> None:
    context = zmq.Context()
    with (
        caplog.at_level(logging.CRITICAL),
        Feed(index, [Source("w1", NOBODY)], context=context) as feed,
    ):
        assert feed.wait(until=lambda rows: rows[0].status == "connecting")
        context.term()
        assert not feed.wait(until=lambda _: False, timeout=5.0)
        assert feed.sources()[0].status == "failed"
        with pytest.raises(kvindex.KvIndexError, match="has failed"):
            feed.add(Source("w2", NOBODY))


def test_a_context_of_the_caller_stays_open(index: kvindex.Indexer) -> None:
    with zmq.Context() as context:
        endpoint = "inproc://events"
        with context.socket(zmq.PUB) as engine:
            engine.bind(endpoint)
            with Feed(index, [Source("w1", endpoint)], context=context) as feed:
                assert feed.wait()
            assert not context.closed


def test_waiting_ends_in_time(index: kvindex.Indexer) -> None:
    with Feed(index, [Source("w1", NOBODY)]) as feed:
        began = time.monotonic()
        assert not feed.wait(timeout=0.1)
        assert not feed.wait(timeout=0.0, until={"w1": 0})
        assert not feed.wait(timeout=-1.0, until={"unknown": 0})
        assert time.monotonic() - began >= 0.1
        assert feed.wait(timeout=0.0, until=lambda rows: len(rows) == 1)
        for endless in (float("inf"), float("nan")):
            with pytest.raises(kvindex.ConfigError, match="finite"):
                feed.wait(timeout=endless)


def test_waiting_ends_when_the_feed_is_closed(index: kvindex.Indexer) -> None:
    feed = Feed(index, [Source("w1", NOBODY)])
    feed.open()
    asked = threading.Event()

    def never(_: list[SourceState]) -> bool:
        asked.set()
        return False

    answers: list[bool] = []
    waiter = threading.Thread(
        target=lambda: answers.append(feed.wait(timeout=60.0, until=never))
    )
    waiter.start()
    assert asked.wait(5.0)
    feed.close()
    waiter.join(5.0)
    assert answers == [False]


def test_a_rank_can_be_waited_for(index: kvindex.Indexer, start: Start) -> None:
    engine = start()
    engine.publish(batch(stores("A"), rank=None))
    sources = [source(engine, dp_rank=2), Source("w1", NOBODY)]
    with Feed(index, sources) as feed:
        assert feed.wait(until={("w1", 2): 0})
        assert not feed.wait(timeout=0.0, until={"w1": 0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_gap": "panic"}, "on_gap is 'panic'"),
        ({"replay_timeout": 0.0}, "replay_timeout is 0.0"),
        ({"replay_timeout": float("inf")}, "replay_timeout is inf"),
        ({"check_interval": -1.0}, "check_interval is -1.0"),
        ({"expire_interval": 0.0}, "expire_interval is 0.0"),
        ({"hold_back": 0}, "hold_back is 0"),
        ({"hwm": -1}, "hwm is -1"),
    ],
)
def test_settings_out_of_range_are_refused(
    index: kvindex.Indexer, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(kvindex.ConfigError, match=message):
        Feed(index, **settings)  # type: ignore[arg-type]


def test_settings_can_be_read_back(index: kvindex.Indexer) -> None:
    feed = Feed(
        index,
        on_gap="reset",
        replay_timeout=1.5,
        hold_back=7,
        check_interval=None,
        hwm=0,
        expire_interval=None,
    )
    assert feed.expire_interval is None
    assert (feed.on_gap, feed.replay_timeout, feed.hold_back) == ("reset", 1.5, 7)
    assert (feed.check_interval, feed.hwm) == (None, 0)
    assert repr(feed) == (
        "kvindex.feeds.Feed(on_gap='reset', replay_timeout=1.5, sources=0, new)"
    )


def test_a_feed_ends_what_is_too_old(index: kvindex.Indexer, start: Start) -> None:
    engine = start()
    engine.publish(batch(stores("AB")))
    index.register("w1", max_age={"device": 0.2})
    with Feed(index, [source(engine)], expire_interval=0.05) as feed:
        assert feed.wait(until={"w1": 0})
        until = time.monotonic() + 10.0
        while len(index) and time.monotonic() < until:
            time.sleep(0.01)
    assert len(index) == 0


def test_importing_the_package_imports_no_zmq() -> None:
    done = run(
        "import sys, kvindex; assert 'zmq' not in sys.modules\n"
        "import kvindex.feeds; assert 'zmq' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_pyzmq_is_named_with_the_extra() -> None:
    done = run(
        "import sys; sys.modules['zmq'] = None\n"
        "import kvindex; from kvindex.feeds import Feed\n"
        "try: Feed(kvindex.Indexer(block_size=16))\n"
        "except ImportError as error: print(error)"
    )
    assert done.stdout.strip() == (
        "kvindex.feeds needs pyzmq: pip install 'kvindex[zmq]'"
    ), done.stderr


def test_a_feed_that_is_never_closed_lets_the_interpreter_go(start: Start) -> None:
    engine = start()
    for payload in chain(20):
        engine.publish(payload)
    done = run(
        "import atexit, kvindex\n"
        "from kvindex.feeds import Feed, Source\n"
        f"source = Source('w1', '{engine.endpoint}', replay='{engine.replay}')\n"
        "feed = Feed(kvindex.Indexer(block_size=4), [source])\n"
        "atexit.register(lambda: print('closed', feed.closed))\n"
        "feed.open()\n"
        "print(feed.wait(until={'w1': 19}))"
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "True\nclosed True\n",
        "",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_close_the_feed(start: Start) -> None:
    engine = start()
    done = run(
        "import os, warnings, kvindex\n"
        "from kvindex.feeds import Feed, Source\n"
        "warnings.simplefilter('ignore')\n"
        f"source = Source('w1', '{engine.endpoint}', replay='{engine.replay}')\n"
        "with Feed(kvindex.Indexer(block_size=4), [source]) as feed:\n"
        "    assert feed.wait()\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        feed.close()\n"
        "        os._exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "    assert [row.status for row in feed.sources()] == ['live']\n"
    )
    assert (done.returncode, done.stderr) == (0, "")

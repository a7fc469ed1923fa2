"""A replay's figures follow from the fleet, and the router knows what engines hold."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import kvindex
from kvindex.replay import (
    Fleet,
    Request,
    Result,
    Summary,
    Trace,
    generate,
    policy,
    simulate,
    wire,
)
from kvindex.replay.engine import Cache, Engine, Job
from kvindex.replay.simulation import Run

BLOCK = 512
# Engines that hold little, so that all tiers overflow.
SMALL = Fleet(
    workers=3,
    device_blocks=120,
    host_blocks=150,
    disk_blocks=200,
    event_delay=0.0,
    offload_delay=0.0,
)


def trace(*requests: tuple[float, list[int], int]) -> Trace:
    """Return a trace of requests: arrival, blocks, and tokens behind them."""
    made = [
        Request(arrival, len(blocks) * BLOCK + more, 50, tuple(blocks))
        for arrival, blocks, more in requests
    ]
    return Trace("made", tuple(made))


@pytest.mark.parametrize("shape", ["chat", "agent", "rag", "batch"])
def test_the_index_knows_what_every_engine_holds_at_any_time(shape: str) -> None:
    requests = generate(shape, requests=300, rate=3.0, seed=2)
    run = Run(requests, SMALL, policy("cost"), seed=1)
    checked = itertools.count()
    tiers = {"device": 0, "host": 0, "disk": 0}

    def check(done: int, _: int) -> None:
        for engine in run.engines:
            used = len(engine.in_use) + engine.own + len(engine.device.blocks)
            assert used <= SMALL.device_blocks
            assert len(engine.host.blocks) <= SMALL.host_blocks
            assert len(engine.disk.blocks) <= SMALL.disk_blocks
        for request in requests.requests[max(0, done - 5) : done]:
            tokens = wire.tokens(request.blocks, BLOCK).data
            found = run.index.match(tokens, workers=run.names)
            for row, engine in zip(found, run.engines, strict=True):
                if not engine.idle:
                    # What is being computed is on the device, and not told yet.
                    continue
                assert (row.device, row.host, row.disk) == engine.found(request.blocks)
                for tier in tiers:
                    tiers[tier] += getattr(row, tier)
                next(checked)

    run.go(check)
    check(300, 300)
    assert next(checked) > 30
    # All of a batch of jobs is still on the device when the next one comes.
    assert all(tiers.values()) or shape == "batch"
    # Every batch was applied whole.
    held = {row.worker: row for row in run.index.workers()}
    for name, engine in zip(run.names, run.engines, strict=True):
        row = held[name]
        assert (row.device, row.host, row.disk) == (
            len(engine.device.blocks),
            len(engine.host.blocks),
            len(engine.disk.blocks),
        )
        assert (row.orphans, row.duplicates) == (0, 0)
    assert len(run.router.load) == 0


def test_the_first_token_comes_when_the_rest_is_computed() -> None:
    fleet = Fleet(workers=1, prefill_speed=1_000.0)
    blocks = list(range(4))
    result = simulate(
        trace((0.0, blocks, 100), (60.0, blocks, 200), (120.0, [*blocks, 9], 0)),
        fleet,
        policy("cost"),
    )
    assert result.ttft.tolist() == pytest.approx([2.148, 0.2, 0.512])
    assert result.cached.tolist() == [[0, 0, 0], [4, 0, 0], [4, 0, 0]]
    assert result.busy_seconds.tolist() == pytest.approx([2.86])


def test_a_prompt_that_is_cached_as_a_whole_still_takes_a_token() -> None:
    requests = trace((0.0, [1], 0), (9.0, [1], 0))
    result = simulate(requests, Fleet(workers=1, prefill_speed=100.0), policy("cost"))
    assert result.ttft.tolist() == pytest.approx([5.12, 0.01])


def test_what_left_the_device_is_loaded_from_host_memory_or_disk() -> None:
    fleet = Fleet(
        workers=1,
        device_blocks=10,
        host_blocks=10,
        disk_blocks=10,
        prefill_speed=512.0,
        host_speed=5_120.0,
        disk_speed=2_560.0,
    )
    many = [list(range(start, start + 8)) for start in (0, 10)]
    requests = trace(
        (0.0, many[0], 0),
        (100.0, many[1], 0),
        # Eight blocks on the device; of the first prompt two are in host memory.
        (200.0, many[0], 0),
    )
    result = simulate(requests, fleet, policy("cost"))
    assert result.cached[2].tolist() == [1, 1, 6]
    assert result.ttft[2] == pytest.approx(1 / 512 + 0.1 + 6 * 0.2)


def test_blocks_are_in_host_memory_after_their_delay() -> None:
    first, second = [1, 2, 3], [4, 5, 6]
    requests = trace((0.0, first, 0), (100.0, second, 0), (200.0, first, 0))
    # One block of the first prompt is left on the device when it comes again.
    for delay, cached in ((0.0, [1, 2, 0]), (500.0, [1, 0, 0])):
        fleet = Fleet(workers=1, device_blocks=5, offload_delay=delay)
        result = simulate(requests, fleet, policy("cost"))
        assert result.cached[2].tolist() == cached


def test_the_router_hears_of_first_tokens_and_of_ends() -> None:
    fleet = Fleet(workers=1, prefill_speed=512.0, decode_speed=5.0)
    # The first prompt takes two seconds, its answer ten more.
    requests = trace((0.0, [1, 2], 0), (5.0, [3], 0), (60.0, [4], 0))
    run = Run(requests, fleet, policy("cost"), seed=1)
    loads = []

    def look(_done: int, _total: int) -> None:
        (load,) = run.router.load.workers()
        loads.append((load.prefill_tokens, load.decode_blocks, load.requests))

    run.go(look)
    assert loads == [(1024, 2, 1), (512, 3, 2), (512, 1, 1), (0, 0, 0)]


def test_what_was_used_last_stays_longest() -> None:
    cache = Cache(3)
    for blocks in ([1, 2, 3], [1], [4]):
        cache.use(blocks)
    assert cache.overflow() == [2]
    assert cache.oldest(2) == [3, 1]


def test_what_lies_behind_a_gap_is_not_cached_and_what_fills_it_is_told_apart() -> None:
    engine = Engine(Fleet(host_blocks=5), BLOCK)
    engine.device.use([1, 4])
    engine.host.use([2])
    assert engine.found([1, 2, 3, 4]) == (1, 1, 0)
    engine.waiting.append(Job(0, trace((0.0, [1, 2, 3, 4, 5], 0)).requests[0]))
    begun = engine.begin(0.0)
    assert begun is not None
    index = kvindex.Indexer(block_size=BLOCK)
    first = [wire.stored([1], None, BLOCK, "GPU"), wire.stored([4], 3, BLOCK, "GPU")]
    index.apply(wire.batch(0.0, first), worker="w0")
    told = wire.batch(1.0, engine.computed(begun[0]))
    assert index.apply(told, worker="w0", strict=True).stored == 3
    # Blocks 2 and 3 fill the gap, block 5 hangs below block 4, not below 3.
    prompt = wire.tokens([1, 2, 3, 4, 5], BLOCK).data
    assert index.match(prompt)[0].device == 5


def test_a_prompt_waits_for_the_one_before_it() -> None:
    fleet = Fleet(workers=1, prefill_speed=512.0)
    result = simulate(trace((0.0, [1, 2], 0), (1.0, [3], 0)), fleet, policy("cost"))
    assert result.ttft.tolist() == pytest.approx([2.0, 2.0])


def test_a_prompt_waits_for_room() -> None:
    fleet = Fleet(workers=1, device_blocks=6, prefill_speed=512.0, decode_speed=5.0)
    requests = trace((0.0, [1, 2, 3], 0), (0.0, [4, 5, 6], 0))
    result = simulate(requests, fleet, policy("cost"))
    # The first one's answer takes ten seconds more.
    assert result.ttft.tolist() == pytest.approx([3.0, 16.0])


def test_events_that_come_late_are_not_known_before() -> None:
    requests = trace((0.0, [1, 2], 0), (5.0, [1, 2], 9))
    for delay, depth in ((0.5, 2), (9.0, 0)):
        fleet = Fleet(workers=1, event_delay=delay)
        result = simulate(requests, fleet, policy("cost"))
        assert result.expected is not None
        assert result.expected.tolist() == [0, depth]
        assert result.cached[1].tolist() == [2, 0, 0]


def test_events_that_are_lost_are_never_known() -> None:
    requests = generate("chat", requests=400, seed=1)
    known = []
    for loss in (0.0, 0.5, 1.0):
        fleet = Fleet(workers=2, event_loss=loss)
        summary = simulate(requests, fleet, policy("cost"), seed=1).summary()
        known.append(summary.expected)
    assert known[0] is not None
    assert known[1] is not None
    assert known[0] > 1.2 * known[1] > 0
    assert known[2] == 0


def test_a_summary_has_shares_of_tokens_percentiles_and_the_busiest_engine() -> None:
    result = Result(
        trace="made",
        policy="cost",
        block_tokens=10,
        input_lengths=np.array([100, 300]),
        workers=np.array([0, 1]),
        cached=np.array([[1, 2, 3], [4, 0, 1]]),
        expected=np.array([6, 4]),
        ttft=np.arange(101.0),
        busy_seconds=np.array([1.0, 2.0, 6.0]),
    )
    assert result.summary() == Summary(
        policy="cost",
        requests=101,
        device=50 / 400,
        host=20 / 400,
        disk=40 / 400,
        expected=100 / 400,
        ttft_p50=50.0,
        ttft_p99=99.0,
        imbalance=2.0,
    )


def test_equal_seeds_give_equal_results() -> None:
    requests = generate("chat", requests=200, seed=1)
    for text, fleet in (
        ("cost:temperature=0.5", Fleet(workers=4)),
        ("random", Fleet(workers=4)),
        ("cost", Fleet(workers=4, event_loss=0.1)),
    ):
        first, again, other = (
            simulate(requests, fleet, policy(text), seed=seed) for seed in (1, 1, 2)
        )
        assert (first.workers == again.workers).all()
        assert first.summary() == again.summary()
        assert (first.workers != other.workers).any()


def test_a_temperature_reaches_the_choice() -> None:
    requests = generate("agent", requests=300, rate=2.0, seed=1)
    cold, hot = (
        simulate(requests, Fleet(workers=4), policy(text), seed=1).summary().cached
        for text in ("longest-prefix", "longest-prefix:temperature=100")
    )
    assert cold > 1.1 * hot


def test_prefixes_are_found_again_more_often_by_who_looks_for_them() -> None:
    requests = generate("agent", requests=600, rate=2.0, seed=1)
    fleet = Fleet(workers=4)
    cached = {
        text: simulate(requests, fleet, policy(text)).summary().cached
        for text in ("cost:scale=10", "longest-prefix", "round-robin", "random")
    }
    assert cached["cost:scale=10"] > 1.2 * cached["round-robin"]
    assert cached["longest-prefix"] > 1.2 * cached["random"]


def test_a_policy_that_does_not_look_gets_no_events_and_the_same_engines() -> None:
    requests = generate("chat", requests=200, seed=1)
    run = Run(requests, Fleet(workers=2), policy("round-robin"), seed=1)
    run.go(None)
    assert len(run.index) == 0
    assert run.result().summary().expected is None
    assert np.bincount(run.workers).tolist() == [100, 100]
    assert run.result().summary().cached > 0.1


def test_no_requests_are_no_error() -> None:
    summary = simulate(Trace("none", ()), Fleet(), policy("cost")).summary()
    assert (summary.requests, summary.cached, summary.imbalance) == (0, 0, 1)


def test_a_request_that_fits_nowhere_is_refused_by_its_number() -> None:
    with pytest.raises(kvindex.ConfigError, match="request 1 needs 4 blocks"):
        simulate(
            trace((0.0, [1], 0), (1.0, [1, 2, 3], 0)),
            Fleet(device_blocks=3),
            policy("cost"),
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 0),
        ("device_blocks", 0),
        ("host_blocks", -1),
        ("prefill_speed", 0.0),
        ("decode_speed", float("inf")),
        ("event_delay", -0.1),
        ("event_loss", 1.1),
    ],
)
def test_what_no_fleet_can_be_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(kvindex.ConfigError, match=name):
        Fleet(**{name: value})  # type: ignore[arg-type]


def test_without_events_the_router_knows_what_it_decided() -> None:
    talk = [1, 2, 3, 4]
    turns = trace((0.0, talk, 0), (100.0, [*talk, 5], 0), (300.0, [*talk, 6], 0))
    run = Run(turns, SMALL, policy("approximate:ttl=120"), seed=1)
    run.go(None)
    assert list(run.expected) == [0, 4, 0]  # the last one comes too late
    assert run.index.stats()["blocks"] == 0
    assert run.workers[0] == run.workers[1]


def test_predictions_bridge_the_delay_of_events() -> None:
    late = dataclasses.replace(SMALL, event_delay=50.0)
    turns = trace((0.0, [1, 2, 3], 0), (30.0, [1, 2, 3, 4], 0))
    for name, expected in (("cost", 0), ("cost:ttl=60", 3)):
        run = Run(turns, late, policy(name), seed=1)
        run.go(None)
        assert run.expected[1] == expected

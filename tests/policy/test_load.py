"""Load is what a plain account of the running requests says, here and elsewhere."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvindex
from kvindex.policy import Change, Load, WorkerLoad

if TYPE_CHECKING:
    import random

BLOCK = 4
CANDIDATES = ("w0", ("w1", 0), ("w1", 1))
NAMES = ("a", "b", "c", "d")
paths = st.lists(st.integers(0, 1), max_size=4).map(tuple)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.sampled_from(NAMES),
            st.sampled_from(CANDIDATES),
            paths,
            st.integers(0, 50),
        ),
        st.tuples(st.just("prefill_complete"), st.sampled_from(NAMES)),
        st.tuples(st.just("produced"), st.sampled_from(NAMES), st.integers(0, 20)),
        st.tuples(st.just("done"), st.sampled_from(NAMES)),
        st.tuples(st.just("wait"), st.integers(1, 6)),
    ),
    max_size=40,
)


def chain(path: tuple[int, ...]) -> list[int]:
    """Return a key for each prefix of a path."""
    return [hash((path[: end + 1], "key")) % 2**64 for end in range(len(path))]


Step = tuple[Any, ...]
Rows = dict[Any, tuple[int, int, int]]


@dataclass
class Account:
    """A plain account: what runs, and sums over it."""

    EXPIRY = 10.0
    running: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, step: Step, now: float) -> bool:
        """Take a step; return whether it was about something that runs."""
        kind, name, *rest = step
        entry = self.running.get(name)
        if kind == "add":
            where, path, prefill = rest
            self.running[name] = {
                "where": where,
                "keys": chain(path),
                "prefill": prefill,
                "grown": 0,
                "touched": now,
            }
        if entry is None:
            return bool(kind == "add")
        if kind == "done":
            del self.running[name]
        elif kind != "add":
            entry["prefill"], entry["touched"] = 0, now
            if kind == "produced":
                entry["grown"] = max(entry["grown"], rest[0] // BLOCK)
        return True

    def expire(self, now: float) -> set[str]:
        """Drop and return what nobody touched."""
        late = {
            name
            for name, entry in self.running.items()
            if now - entry["touched"] >= self.EXPIRY
        }
        for name in late:
            del self.running[name]
        return late

    def rows(self) -> Rows:
        """Return prefill tokens, blocks and requests by candidate."""
        rows: Rows = {}
        for where in CANDIDATES:
            mine = [e for e in self.running.values() if e["where"] == where]
            distinct = {key for e in mine for key in e["keys"]}
            rows[where] = (
                sum(e["prefill"] for e in mine),
                len(distinct) + sum(e["grown"] for e in mine),
                len(mine),
            )
        return rows


def rows(load: Load) -> Rows:
    """Return the same of a load."""
    found: Rows = dict.fromkeys(CANDIDATES, (0, 0, 0))
    for row in load.workers():
        where = row.worker if row.dp_rank is None else (row.worker, row.dp_rank)
        found[where] = (row.prefill_tokens, row.decode_blocks, row.requests)
    return found


@settings(deadline=None)
@given(steps, st.randoms(use_true_random=False))
def test_load_is_that_of_a_plain_account_here_and_at_another_router(
    steps: list[Step], chance: random.Random
) -> None:
    changes: list[Change] = []
    load = Load(block_size=BLOCK, expiry_seconds=10.0, on_change=changes.append)
    other = Load(block_size=BLOCK, expiry_seconds=10.0)
    account = Account()
    now = 0.0
    for step in steps:
        if step[0] == "wait":
            now += step[1]
            assert set(load.expire(now)) == account.expire(now)
        elif step[0] == "add":
            _, name, where, path, prefill = step
            given = {"chain_keys": chain(path), "prefill_tokens": prefill, "now": now}
            if name in account.running:
                with pytest.raises(kvindex.ConfigError, match="running already"):
                    load.add(name, where, **given)
                continue
            load.add(name, where, **given)
            account.take(step, now)
        else:
            times = () if step[0] == "done" else (now,)
            known = getattr(load, step[0])(*step[1:], *times)
            assert known == account.take(step, now)
        assert rows(load) == account.rows()
        # Changes arrive late, and any of them more than once.
        if chance.random() < 0.5:
            for change in changes:
                other.apply(change, now)
                if chance.random() < 0.3:
                    assert not other.apply(change, now)
            if chance.random() < 0.5:
                changes.clear()
            assert rows(other) == account.rows()


def test_a_prompts_own_blocks_count_where_they_are_not_in_use() -> None:
    load = Load(block_size=BLOCK)
    load.add("a", "w0", chain_keys=[1, 2, 3])
    load.add("b", "w1", chain_keys=[1, 9], prefill_tokens=7)
    columns = load.columns(load.slots(["w0", "w1", "w2"]), [1, 2, 4, 5])
    assert [column.tolist() for column in columns] == [[0, 7, 0], [5, 5, 4], [1, 1, 0]]


def test_a_late_count_of_tokens_takes_nothing_back() -> None:
    load = Load(block_size=BLOCK)
    load.add("a", "w0", chain_keys=[1])
    for tokens, blocks in ((9, 3), (3, 3), (12, 4)):
        load.produced("a", tokens)
        assert load.workers() == [WorkerLoad("w0", None, 0, blocks, 1)]


def test_a_request_that_produces_is_never_lost() -> None:
    load = Load(block_size=BLOCK, expiry_seconds=300)
    load.add("long", "w0", chain_keys=[1, 2], now=0.0)
    load.add("lost", "w0", chain_keys=[1, 3], now=0.0)
    for now in range(100, 3600, 100):
        assert load.produced("long", now // 100, now=float(now))
        expired = load.expire(now=float(now))
        assert expired == (["lost"] if now == 300 else [])
    assert load.workers() == [WorkerLoad("w0", None, 0, 10, 1)]


def test_a_request_that_produces_lives_on_at_other_routers() -> None:
    changes: list[Change] = []
    load = Load(block_size=1_000_000, expiry_seconds=300, on_change=changes.append)
    other = Load(block_size=1_000_000, expiry_seconds=300)
    load.add("long", "w0", now=0.0)
    for now in range(1, 3600):
        load.produced("long", now, now=float(now))
        for change in changes:
            other.apply(change, now=float(now))
        changes.clear()
        assert other.expire(now=float(now)) == []
    assert len(other) == 1


def test_not_every_token_is_told() -> None:
    changes: list[Change] = []
    load = Load(block_size=100, expiry_seconds=300, on_change=changes.append)
    load.add("a", "w0", prefill_tokens=10, now=0.0)
    for tokens in range(1, 251):
        load.produced("a", tokens, now=tokens / 100)
    assert Counter(change.kind for change in changes) == {"add": 1, "produced": 3}
    assert [change.seq for change in changes] == [1, 2, 3, 4]


def test_a_late_copy_of_a_change_brings_nothing_back() -> None:
    changes: list[Change] = []
    load = Load(block_size=BLOCK, on_change=changes.append)
    load.add("a", "w0", chain_keys=[1])
    load.done("a")
    other = Load(block_size=BLOCK)
    assert [other.apply(change) for change in changes * 2] == [True, True, False, False]
    assert len(other) == 0


def test_a_load_takes_no_change_of_its_own() -> None:
    changes: list[Change] = []
    load = Load(block_size=BLOCK, on_change=changes.append)
    load.add("a", "w0")
    load.done("a")
    assert not load.apply(changes[0])
    assert len(load) == 0


def test_two_routers_may_use_the_same_names() -> None:
    changes: list[Change] = []
    first = Load(block_size=BLOCK, on_change=changes.append)
    second = Load(block_size=BLOCK)
    first.add("r1", "w0", chain_keys=[1])
    second.add("r1", "w0", chain_keys=[1])
    second.apply(changes[0])
    assert second.workers() == [WorkerLoad("w0", None, 0, 1, 2)]
    second.done("r1")
    assert second.workers() == [WorkerLoad("w0", None, 0, 1, 1)]


def test_what_a_lost_router_ran_is_forgotten_and_it_may_begin_again() -> None:
    changes: list[Change] = []
    load = Load(block_size=BLOCK, origin="router-1", on_change=changes.append)
    other = Load(block_size=BLOCK)
    load.add("a", "w0", prefill_tokens=5)
    other.add("mine", "w0", prefill_tokens=3)
    other.apply(changes[0])
    assert other.forget("router-1") == 1
    assert other.workers() == [WorkerLoad("w0", None, 3, 0, 1)]
    assert other.apply(changes[0])


def test_a_worker_that_is_gone_takes_its_requests_along_on_all_ranks() -> None:
    changes: list[Change] = []
    load = Load(block_size=BLOCK, on_change=changes.append)
    for name, where in (("a", "w0"), ("b", ("w0", 3)), ("c", "w1")):
        load.add(name, where, chain_keys=[1], prefill_tokens=2)
    assert sorted(load.remove_worker("w0")) == ["a", "b"]
    assert [row.requests for row in load.workers()] == [0, 0, 1]
    assert sorted(c.request for c in changes if c.kind == "done") == ["a", "b"]
    assert not load.done("a")


def test_more_candidates_than_at_the_start_are_counted_apart() -> None:
    load = Load(block_size=BLOCK)
    names = [f"w{i}" for i in range(100)]
    slots = load.slots(names)
    for number, name in enumerate(names):
        load.add(name, name, chain_keys=range(1, number + 1), prefill_tokens=number)
    prefill, blocks, requests = load.columns(slots)
    assert prefill.tolist() == blocks.tolist() == list(range(100))
    assert requests.tolist() == [1] * 100


@pytest.mark.parametrize(
    "keys", [[1, 2**64 - 1], np.array([1, 2**64 - 1], dtype=np.uint64)]
)
def test_chain_keys_come_in_any_form_and_arrive_whole(
    keys: list[int],
) -> None:
    changes: list[Change] = []
    load = Load(block_size=BLOCK, on_change=changes.append)
    load.add("a", ("w0", 2), chain_keys=keys)
    assert np.frombuffer(changes[0].chain_keys, dtype="<u8").tolist() == [1, 2**64 - 1]
    assert (changes[0].worker, changes[0].dp_rank) == ("w0", 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("block_size", 0), ("expiry_seconds", -1.0), ("expiry_seconds", float("nan"))],
)
def test_a_setting_without_a_meaning_is_refused_by_name(
    name: str, value: float
) -> None:
    given = {"block_size": BLOCK, name: value}
    with pytest.raises(kvindex.ConfigError, match=name):
        Load(**given)  # type: ignore[arg-type]


def test_negative_prefill_tokens_are_refused_and_nothing_is_added() -> None:
    load = Load(block_size=BLOCK)
    with pytest.raises(kvindex.ConfigError, match="prefill_tokens is -1"):
        load.add("a", "w0", prefill_tokens=-1)
    assert len(load) == 0


def test_threads_leave_nothing_behind() -> None:
    load = Load(block_size=BLOCK)

    def work(number: int) -> None:
        for turn in range(200):
            name = f"{number}-{turn}"
            load.add(name, f"w{turn % 3}", chain_keys=[1, 2, turn], prefill_tokens=3)
            load.columns(load.slots(["w0", "w1"]), [1, 2, 3])
            load.produced(name, 9)
            load.done(name)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {
        (row.prefill_tokens, row.decode_blocks, row.requests) for row in load.workers()
    } == {(0, 0, 0)}

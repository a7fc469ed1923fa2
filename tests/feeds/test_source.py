"""Sources: addresses, ranks and what is refused."""

import re
from dataclasses import FrozenInstanceError

import pytest

import kvindex
from kvindex.feeds import Source


def test_ranks_share_a_host_and_count_up_the_ports() -> None:
    sources = Source.ranks(
        "w1",
        "tcp://10.0.0.7:5557",
        3,
        replay="tcp://10.0.0.7:5657",
        topic="kv",
        source="gpu",
        epoch=4,
    )
    assert [s.endpoint for s in sources] == [
        f"tcp://10.0.0.7:{port}" for port in (5557, 5558, 5559)
    ]
    assert [s.replay for s in sources] == [
        f"tcp://10.0.0.7:{port}" for port in (5657, 5658, 5659)
    ]
    assert [s.dp_rank for s in sources] == [0, 1, 2]
    assert {(s.worker, s.topic, s.source, s.epoch) for s in sources} == {
        ("w1", "kv", "gpu", 4)
    }


def test_ranks_can_be_named() -> None:
    sources = Source.ranks("w1", "tcp://[::1]:5557", (2, 5))
    assert [s.endpoint for s in sources] == ["tcp://[::1]:5559", "tcp://[::1]:5562"]
    assert [s.dp_rank for s in sources] == [2, 5]
    assert [s.replay for s in sources] == [None, None]


def test_a_single_rank_may_have_any_address() -> None:
    (only,) = Source.ranks("w1", "ipc:///run/events", 1, bind=True)
    assert (only.endpoint, only.bind) == ("ipc:///run/events", True)
    with pytest.raises(kvindex.ConfigError, match="ranks share only tcp addresses"):
        Source.ranks("w1", "ipc:///run/events", 2)


@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize(
    "address",
    [
        "",
        "10.0.0.7:5557",
        "udp://10.0.0.7:5557",
        "tcp://",
        "tcp://10.0.0.7",
        "tcp://:5557",
        "tcp://10.0.0.7:port",
        "tcp://10.0.0.7:65536",
        "ipc://",
    ],
)
def test_what_is_no_address_is_refused(address: str, *, bind: bool) -> None:
    with pytest.raises(
        kvindex.ConfigError, match=re.escape(f"endpoint is {address!r}")
    ):
        Source("w1", address, bind=bind)
    with pytest.raises(kvindex.ConfigError, match=re.escape(f"replay is {address!r}")):
        Source("w1", "tcp://10.0.0.7:5557", replay=address)


@pytest.mark.parametrize(
    "address", ["tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557", "tcp://h:0"]
)
def test_what_an_engine_binds_cannot_be_connected_to(address: str) -> None:
    with pytest.raises(kvindex.ConfigError, match="name the worker's host and port"):
        Source("w1", address)
    assert Source("w1", address, bind=True).endpoint == address


def test_a_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(kvindex.ConfigError, match="65536"):
        Source.ranks("w1", "tcp://10.0.0.7:65535", 2)


@pytest.mark.parametrize("rank", [-1, 2**32])
def test_a_rank_out_of_range_is_refused(rank: int) -> None:
    with pytest.raises(kvindex.ConfigError, match="dp_rank is"):
        Source("w1", "tcp://10.0.0.7:5557", dp_rank=rank)


def test_a_pool_has_no_ranks() -> None:
    with pytest.raises(kvindex.ConfigError, match="a pool has no ranks"):
        Source("store", "tcp://10.0.0.7:5557", dp_rank=1, pool=True)


def test_a_worker_needs_a_name() -> None:
    with pytest.raises(kvindex.ConfigError, match="worker is empty"):
        Source("", "tcp://10.0.0.7:5557")


def test_a_source_is_a_value() -> None:
    first = Source("w1", "tcp://10.0.0.7:5557")
    assert first == Source("w1", "tcp://10.0.0.7:5557")
    assert len({first, Source("w1", "tcp://10.0.0.7:5557")}) == 1
    with pytest.raises(FrozenInstanceError):
        first.worker = "w2"  # type: ignore[misc]

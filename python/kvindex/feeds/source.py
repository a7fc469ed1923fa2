"""Sources: where one engine's or one pool's batches come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvindex.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMES = ("tcp", "ipc", "inproc")
WILDCARDS = ("*", "0.0.0.0", "[::]", "::")  # noqa: S104 - compared, not bound
PORTS = 1 << 16
RANKS = 1 << 32

Key = tuple[str, int, str, bool]
"""Worker or pool, rank, stream, and whether it is a pool."""


@dataclass(frozen=True, slots=True)
class Source:
    """One publisher of KV events: a worker's data-parallel rank, or a pool.

    Every rank of a worker publishes on a socket of its own with sequence
    numbers of its own, so each is a source of its own; `ranks` makes them all.

    Attributes:
        worker: The name under which the index knows the worker, or the pool.
        endpoint: The ZMQ address of the events: `tcp://host:port`, `ipc://path`
            or `inproc://name`.
        dp_rank: The rank for batches that carry none; a rank inside a batch
            wins.
        replay: The ZMQ address that answers replay requests, None if the
            engine has none. Without it no gap can be filled.
        topic: The prefix of the topics to subscribe to; empty means all.
        bind: Whether this side binds the endpoint. vLLM's publisher connects
            unless its own endpoint names a wildcard host or is ipc or inproc.
        source: The index's name for this stream, for a worker that several
            streams describe.
        epoch: What `Indexer.register` returned, None for whatever is current.
        pool: Whether it is a pool, as `Indexer.register_pool` made it: a cache
            that belongs to no worker. Pools have no ranks.

    Raises:
        ConfigError: If an address or the rank is not usable, or the worker empty.

    Example:
        >>> from kvindex.feeds import Source
        >>> Source("w0", "tcp://10.0.0.7:5557", replay="tcp://10.0.0.7:5657").dp_rank
        0
    """

    worker: str
    endpoint: str
    dp_rank: int = 0
    replay: str | None = None
    topic: str = ""
    bind: bool = False
    source: str = ""
    epoch: int | None = None
    pool: bool = False

    def __post_init__(self) -> None:
        """Refuse what no socket could use."""
        if not self.worker:
            msg = "worker is empty: give the name that the index knows"
            raise ConfigError(msg)
        if not 0 <= self.dp_rank < RANKS:
            msg = f"dp_rank is {self.dp_rank}: expected 0 to {RANKS - 1}"
            raise ConfigError(msg)
        if self.pool and self.dp_rank:
            msg = f"dp_rank is {self.dp_rank}, but a pool has no ranks"
            raise ConfigError(msg)
        check_address("endpoint", self.endpoint, bind=self.bind)
        if self.replay is not None:
            check_address("replay", self.replay, bind=False)

    @property
    def key(self) -> Key:
        """What tells this source from the others of a feed."""
        return (self.worker, self.dp_rank, self.source, self.pool)

    @classmethod
    def ranks(
        cls,
        worker: str,
        endpoint: str,
        ranks: int | Iterable[int],
        replay: str | None = None,
        *,
        topic: str = "",
        bind: bool = False,
        source: str = "",
        epoch: int | None = None,
    ) -> tuple[Source, ...]:
        """Return a source for each data-parallel rank of a worker.

        vLLM and SGLang add the rank to the port of both addresses, so those
        given here are rank 0's.

        Args:
            worker: The name under which the index knows the worker.
            endpoint: The address of rank 0's events.
            ranks: The number of ranks, or the ranks themselves.
            replay: The address of rank 0's replay, None if there is none.
            topic: As in `Source`; all ranks share it.
            bind: As in `Source`.
            source: As in `Source`.
            epoch: As in `Source`.

        Returns:
            The sources in the order of the ranks.

        Raises:
            ConfigError: If a rank other than 0 is asked for on an address that
                is not tcp with a port, or if a port leaves its range.

        Example:
            >>> from kvindex.feeds import Source
            >>> [s.endpoint for s in Source.ranks("w0", "tcp://10.0.0.7:5557", 2)]
            ['tcp://10.0.0.7:5557', 'tcp://10.0.0.7:5558']
        """
        numbers = range(ranks) if isinstance(ranks, int) else ranks
        return tuple(
            cls(
                worker,
                shifted("endpoint", endpoint, rank),
                dp_rank=rank,
                replay=None if replay is None else shifted("replay", replay, rank),
                topic=topic,
                bind=bind,
                source=source,
                epoch=epoch,
            )
            for rank in numbers
        )


def check_address(field: str, address: str, *, bind: bool) -> None:
    """Raise ConfigError unless a socket can use the address."""
    scheme, colon, rest = address.partition("://")
    if not colon or scheme not in SCHEMES or not rest:
        msg = f"{field} is {address!r}: expected tcp://, ipc:// or inproc://"
        raise ConfigError(msg)
    if scheme != "tcp":
        return
    host, port = split_port(field, address)
    if not bind and (host in WILDCARDS or port == 0):
        msg = (
            f"{field} is {address!r}, which is what an engine binds: "
            "name the worker's host and port"
        )
        raise ConfigError(msg)


def split_port(field: str, address: str) -> tuple[str, int]:
    """Split a tcp address into its host and port."""
    host, colon, port = address.removeprefix("tcp://").rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) >= PORTS:
        msg = f"{field} is {address!r}: expected tcp://host:port"
        raise ConfigError(msg)
    return host, int(port)


def shifted(field: str, address: str, rank: int) -> str:
    """Return the address that a rank uses where rank 0 uses this one."""
    if rank == 0:
        return address
    if not address.startswith("tcp://"):
        msg = f"{field} is {address!r}: ranks share only tcp addresses, port by port"
        raise ConfigError(msg)
    host, port = split_port(field, address)
    return f"tcp://{host}:{port + rank}"

"""NVIDIA Dynamo: the events of its routers, in and out.

    {"worker_id", "storage_tier", "residency_domain", "event": {"event_id", "data",
     "dp_rank"}}, and data one of
    {"stored": {"parent_hash", "blocks": [{"block_hash", "tokens_hash"}]}}
    {"removed": {"block_hashes"}}
    "cleared"

A block's `tokens_hash` is its local key: what it holds, namespace and images
included. Dynamo's publisher counts copies before it sends, so here each tier is a
set. A clear empties every tier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvindex.engines.engine import Batch, Engine, Event
from kvindex.engines.reading import (
    LEFT_OUT,
    MALFORMED,
    MISSHAPEN,
    is_batch,
    natural,
    records,
    stream,
)
from kvindex.errors import DecodeError
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

if TYPE_CHECKING:
    from collections.abc import Iterable

MEDIA = {"device": "GPU", "host_pinned": "CPU", "disk": "DISK", "external": "EXTERNAL"}
"""The medium of each storage tier."""

EXPECTED = "router events of Dynamo"


class Dynamo:
    """Reads the router events of one worker."""

    def __init__(self, _: int) -> None:
        """Begin; the block size must be the router's."""

    def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
        """Read one event or several, or a batch of an engine's wire."""
        if is_batch(payload):
            return [stream(bytes(payload))]
        events = records(payload, EXPECTED)
        workers = {str(event.get("worker_id")) for event in events}
        if len(workers) > 1:
            known = ", ".join(sorted(workers))
            message = f"expected events of one worker, found those of {known}"
            raise DecodeError(message)
        return [_batch(event) for event in events]

    def reset(self, _: int | None) -> None:
        """Forget nothing: there is nothing to forget."""


def _batch(said: dict[str, Any]) -> Batch:
    event = said.get("event")
    if not isinstance(event, dict):
        return Batch([MALFORMED])
    rank, seq = natural(event.get("dp_rank"), bits=32), natural(event.get("event_id"))
    medium = MEDIA.get(str(said.get("storage_tier")), "unknown")
    if said.get("residency_domain", "worker") != "worker":
        # What survives its engine is no worker's.
        medium = LEFT_OUT
    try:
        return Batch([_event(event["data"], medium)], rank, seq)
    except MISSHAPEN:
        return Batch([MALFORMED], rank, seq)


def _event(data: Any, medium: str) -> Event:  # noqa: ANN401
    if data == "cleared" or "cleared" in data:
        return AllBlocksCleared()
    if "removed" in data:
        return BlockRemoved(data["removed"]["block_hashes"], medium)
    stored = data["stored"]
    return BlockStored(
        [block["block_hash"] for block in stored["blocks"]],
        [],
        stored.get("parent_hash"),
        medium=medium,
        local_keys=[block["tokens_hash"] for block in stored["blocks"]],
    )


def holdings(dump: Iterable[Any]) -> dict[tuple[int, int], list[Event]]:
    """Read a dump of Dynamo's index: what each of its workers' ranks holds.

    The numbers in a dump are its own, so its events are no stream of a worker.

    Args:
        dump: Router events, each a dict or JSON.

    Returns:
        By `worker_id` and rank the events to apply, each with `dp_rank=`.

    Raises:
        DecodeError: An event is something else.

    Examples:
        >>> block = {"block_hash": 1, "tokens_hash": 2}
        >>> data = {"stored": {"parent_hash": None, "blocks": [block]}}
        >>> event = {"event_id": 0, "data": data, "dp_rank": 0}
        >>> dump = [{"worker_id": 7, "storage_tier": "device", "event": event}]
        >>> held = holdings(dump)
        >>> [(key, events[0].local_keys) for key, events in held.items()]
        [((7, 0), [2])]
    """
    found: dict[tuple[int, int], list[Event]] = {}
    for text in dump:
        for said in records(text, EXPECTED):
            worker, batch = natural(said.get("worker_id")), _batch(said)
            if worker is None or isinstance(batch.events, bytes):
                message = f"expected a worker_id, found {said.get('worker_id')!r}"
                raise DecodeError(message)
            found.setdefault((worker, batch.dp_rank or 0), []).extend(batch.events)
    return found


DYNAMO = Engine(
    name="dynamo",
    title="NVIDIA Dynamo's router events",
    kind="auto",
    copies=(),
    decoder=Dynamo,
)

"""Episodes as bytes: a `Wire` in the layout that it names."""

from dataclasses import fields
from random import Random

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.episodes_steps import Batch
from tests.model_read import Fields, Unreadable, Wire
from tests.wire import STORED_FIELDS, batch, removed_array

REQUIRED = {
    BlockStored: (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
    ),
    BlockRemoved: ("block_hashes",),
    AllBlocksCleared: (),
}


def payload(step: Batch) -> bytes:
    """Write a batch as an engine does."""
    events = [written(wire) for wire in step.events]
    return batch(events, step.rank_inside, with_rank=step.with_rank)


def written(wire: Wire) -> object:
    """Write one event, by position or as a map."""
    event = wire.event
    if isinstance(event, Unreadable):
        return event.value
    if wire.fields is None:
        return as_map(wire)
    if isinstance(event, AllBlocksCleared):
        return ["AllBlocksCleared"]
    if isinstance(event, BlockRemoved):
        return removed_array(
            event.block_hashes, event.medium, event.group_idx, length=wire.fields
        )
    given = [getattr(event, name, None) for name in STORED_FIELDS]
    items = ["BlockStored", *given][: wire.fields]
    if event.cache_salt is not None:  # SGLang 0.5.19 sends it in place of the adapter
        items[7] = {"cache_salt": event.cache_salt}
    return items


def as_map(wire: Wire) -> Fields:
    """Write an event by name, in one of the ways in which maps differ."""
    random = Random(wire.spelling)
    event = wire.event
    required = REQUIRED[type(event)]
    items: list[tuple[str, object]] = [("type", type(event).__name__)]
    for each in fields(event):
        value = getattr(event, each.name)
        spelled_out = each.name in required or random.random() < 0.2
        if value is not None or spelled_out:
            items.append((each.name, value))
    items += wire.extra.items()
    if random.random() < 0.3:
        items.append(("session_id", "s-1"))
        items.append(("lookahead_token_ids", [[1, 2], []]))
    if random.random() < 0.3:
        random.shuffle(items)
    return dict(items)

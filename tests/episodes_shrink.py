"""From a failing episode to the few events that matter, in readable form."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TypeVar

from kvindex.events import BlockRemoved, BlockStored
from tests.episodes_duel import play
from tests.episodes_steps import Batch, Episode
from tests.model_read import Fields, Unreadable, Wire, tokens_of

Item = TypeVar("Item")
Test = Callable[[Episode], bool]


def failure(episode: Episode) -> str | None:
    """Play an episode thoroughly; return what went wrong, None if nothing did."""
    try:
        play(episode, thorough=True)
    except Exception as error:  # noqa: BLE001 - whatever the index raises is a finding
        return f"{type(error).__name__}: {error}"
    return None


def shrink(episode: Episode) -> Episode:
    """Take out queries, steps, events and hashes for as long as it still fails."""

    def fails(candidate: Episode) -> bool:
        return failure(candidate) is not None

    while True:
        before = episode
        for cut in (cut_queries, cut_steps, cut_events, cut_hashes, cut_options):
            episode = cut(episode, fails)
        if episode == before:
            return episode


def shorter(
    items: tuple[Item, ...], fails: Callable[[tuple[Item, ...]], bool]
) -> tuple[Item, ...]:
    """Take out stretches of a sequence, long ones first."""
    kept = items
    length = max(1, len(kept) // 2)
    while length:
        start = 0
        while start < len(kept):
            candidate = kept[:start] + kept[start + length :]
            if fails(candidate):
                kept = candidate
            else:
                start += length
        length //= 2
    return kept


def cut_queries(episode: Episode, fails: Test) -> Episode:
    """Leave out queries."""
    return replace(
        episode,
        queries=shorter(
            episode.queries, lambda kept: fails(replace(episode, queries=kept))
        ),
    )


def cut_steps(episode: Episode, fails: Test) -> Episode:
    """Leave out steps."""
    return replace(
        episode,
        steps=shorter(episode.steps, lambda kept: fails(replace(episode, steps=kept))),
    )


def with_step(episode: Episode, number: int, step: Batch) -> Episode:
    """Return the episode with one step replaced."""
    steps = list(episode.steps)
    steps[number] = step
    return replace(episode, steps=tuple(steps))


def cut_events(episode: Episode, fails: Test) -> Episode:
    """Leave out events of batches."""
    for number, step in enumerate(episode.steps):
        if isinstance(step, Batch):
            episode = cut_batch(episode, number, step, fails)
    return episode


def cut_batch(episode: Episode, number: int, step: Batch, fails: Test) -> Episode:
    """Leave out events of one batch."""

    def without(kept: tuple[Wire, ...]) -> Episode:
        return with_step(episode, number, replace(step, events=kept))

    return without(shorter(step.events, lambda kept: fails(without(kept))))


def cut_hashes(episode: Episode, fails: Test) -> Episode:
    """Leave out hashes at the end of events, with their tokens."""
    for number, step in enumerate(episode.steps):
        if not isinstance(step, Batch):
            continue
        for position in range(len(step.events)):
            for smaller in smaller_events(step.events[position]):
                events = list(step.events)
                events[position] = smaller
                candidate = replace(step, events=tuple(events))
                if fails(with_step(episode, number, candidate)):
                    step = candidate  # noqa: PLW2901 - the step as it is now
                    episode = with_step(episode, number, step)
                    break
    return episode


def smaller_events(wire: Wire) -> Iterator[Wire]:
    """Yield an event with fewer hashes, or with fewer fields set."""
    event = wire.event
    if isinstance(event, Unreadable) or not hasattr(event, "block_hashes"):
        return
    hashes = event.block_hashes
    for kept in range(len(hashes)):
        given = {"block_hashes": hashes[:kept]}
        if isinstance(event, BlockStored):
            tokens = tokens_of(event)
            given["token_ids"] = tokens[: len(tokens) // len(hashes) * kept]
            if isinstance(event.extra_keys, list):
                given["extra_keys"] = event.extra_keys[:kept]
        yield replace(wire, event=rebuilt(event, given))
    optional = (
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window",
        "lora_name",
        "locality",
    )
    for name in (*optional, "cache_salt", "lora_id"):
        if getattr(event, name, None) is not None:
            yield replace(wire, event=rebuilt(event, {name: None}))
    if wire.extra:
        yield replace(wire, extra={})


def rebuilt(
    event: BlockStored | BlockRemoved, given: Fields
) -> BlockStored | BlockRemoved:
    """Return an event with some fields replaced."""
    known = {each.name: getattr(event, each.name) for each in fields(event)}
    return type(event)(**known | given)


def cut_options(episode: Episode, fails: Test) -> Episode:
    """Drop what a batch says besides its events, and settings."""
    for number, step in enumerate(episode.steps):
        if not isinstance(step, Batch):
            continue
        for change in simplifications(step):
            simpler = replace(step, **change)
            if simpler != step and fails(with_step(episode, number, simpler)):
                step = simpler  # noqa: PLW2901 - the step as it is now
                episode = with_step(episode, number, step)
    default = replace(episode.settings, weights=None, orphan_blocks=16384)
    simpler_settings = replace(episode, settings=default)
    if default != episode.settings and fails(simpler_settings):
        episode = simpler_settings
    return episode


def simplifications(step: Batch) -> Iterator[Fields]:
    """Yield what may be left out of a batch besides its events."""
    yield {"strict": False}
    yield {"epoch": None}
    yield {"seq": None}
    yield {"source": ""}
    if all(is_plain(wire) for wire in step.events):
        yield {"as_bytes": False, "rank_inside": None, "with_rank": True}


def is_plain(wire: Wire) -> bool:
    """Return whether an event means the same as an object."""
    readable_event = not isinstance(wire.event, Unreadable)
    return readable_event and wire.fields is None and not wire.extra


def readable(episode: Episode) -> str:
    """Return an episode as text, one line for each event."""
    lines = [f"seed {episode.seed}", f"  {episode.settings}"]
    for number, step in enumerate(episode.steps):
        if not isinstance(step, Batch):
            lines.append(f"  {number:3} {step}")
            continue
        said = [
            f"{each.name}={getattr(step, each.name)!r}"
            for each in fields(step)
            if each.name not in ("worker", "pool", "events")
            and getattr(step, each.name) != each.default
        ]
        who = f"pool {step.worker}" if step.pool else step.worker
        lines.append(f"  {number:3} apply {who} {' '.join(said)}")
        lines += [f"        {described(wire)}" for wire in step.events]
    lines += [f"  ask {query}" for query in episode.queries]
    return "\n".join(lines)


def described(wire: Wire) -> str:
    """Return an event as text, without the fields that are not set."""
    event = wire.event
    said = [
        f"{each.name}={getattr(event, each.name)!r}"
        for each in fields(event)
        if getattr(event, each.name) is not None
    ]
    layout = "" if wire.fields is None else f" as an array of {wire.fields}"
    extra = f" with {wire.extra}" if wire.extra else ""
    return f"{type(event).__name__}({', '.join(said)}){layout}{extra}"

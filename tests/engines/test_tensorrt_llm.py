"""TensorRT-LLM: the pull API's events (layout only) and its publisher's batches.

The judge of the pull API is a plain model of the engine's tree, which knows where
every block lies; the events are what the engine would say of it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pytest

import kvindex
from kvindex.feeds import Feed, Source
from tests import wire
from tests.engines import meta, payloads
from tests.feeds.publisher import Publisher
from tests.helpers import HEX, depths, name, split, tokens

SIZE = 4
WORKER = "trt"


def registered(block_size: int = SIZE) -> kvindex.Indexer:
    index = kvindex.Indexer(block_size=block_size)
    index.register(WORKER, profile="tensorrt_llm")
    return index


def row(index: kvindex.Indexer, prompt: Any, **options: Any) -> tuple[int, ...]:  # noqa: ANN401
    (found,) = index.match(prompt, workers=[WORKER], **options)
    return split(found)


def block(path: str, size: int = SIZE, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Write the last block of a path as the serializer does."""
    units = [
        {"token_id": token, "token_extra_id": 0} for token in tokens(path[-1], size)
    ]
    said = {"type": "stored_block", "block_hash": name(path), "tokens": units}
    return said | {"cache_level": 0, "mm_keys": [], "cache_salt": None} | fields


@dataclass
class Said:
    """Numbers events as one rank of an engine does."""

    rank: int | None = None
    window: int | None = 4096
    number: int = 0

    def event(self, **data: Any) -> dict[str, Any]:  # noqa: ANN401
        """Write any event."""
        event: dict[str, Any] = {"event_id": self.number, "data": data}
        self.number += 1
        if self.window is not None:
            event["window_size"] = self.window
        if self.rank is not None:
            event["attention_dp_rank"] = self.rank
        return event

    def created(self) -> dict[str, Any]:
        """Write what a manager says first."""
        return self.event(type="created", num_blocks_per_cache_level=[64, 32])

    def stored(self, path: str, above: str = "", **fields: Any) -> dict[str, Any]:  # noqa: ANN401
        """Write a chain of blocks below a path."""
        blocks = [block(above + path[: i + 1], **fields) for i in range(len(path))]
        parent = name(above) if above else None
        return self.event(type="stored", parent_hash=parent, blocks=blocks)

    def updated(self, path: str, old: int, new: int) -> dict[str, Any]:
        """Write that a block changed its level."""
        change = {"type": "event_diff", "new_value": new, "old_value": old}
        return self.event(type="updated", block_hash=name(path), cache_level=change)

    def removed(self, *paths: str) -> dict[str, Any]:
        """Write that blocks are gone."""
        return self.event(type="removed", block_hashes=[name(path) for path in paths])


def test_the_published_example_is_read() -> None:
    events = meta("trtllm/v1_pull_events.json")["events"]
    index = registered()
    reports = [index.apply([event], worker=WORKER) for event in events]
    assert [report.status for report in reports] == ["ok"] * len(events)
    prompt = [
        unit["token_id"]
        for one in events[2]["data"]["blocks"]
        for unit in one["tokens"]
    ]
    child = [unit["token_id"] for unit in events[4]["data"]["blocks"][0]["tokens"]]
    # The third block went to the host and back, and was removed.
    assert row(index, prompt) == (2, 0, 0, 0)
    assert row(index, prompt[:SIZE] + child) == (2, 0, 0, 0)
    assert row(index, child) == (0, 0, 0, 0)
    assert row(index, child, cache_salt="tenant-x") == (1, 0, 0, 0)
    # The last block is not full; the small window is left out.
    assert reports[2].reasons == {"partial": 1}
    assert reports[3].reasons == {"medium": 3}
    assert reports[8].removed == reports[8].ignored == 0
    assert reports[9].removed == 1


@pytest.mark.parametrize("form", ["list", "text", "bytes", "one by one"])
def test_every_form_of_a_payload_means_the_same(form: str) -> None:
    events = meta("trtllm/v1_pull_events.json")["events"][:6]
    index = registered()
    given: list[Any] = {
        "list": [events],
        "text": [json.dumps(events)],
        "bytes": [json.dumps(events).encode()],
        "one by one": events,
    }[form]
    stored = sum(index.apply(payload, worker=WORKER).stored for payload in given)
    # Three whole blocks, a child, one that moved.
    assert stored == 5
    (state,) = index.workers()
    assert (state.device, state.host, state.seq) == (3, 1, 5)


def test_dynamos_frames_of_the_example_mean_the_same_on_one_tier() -> None:
    events = meta("trtllm/v1_pull_events.json")["events"]
    pulled, framed = registered(), registered()
    pulled.apply(events, worker=WORKER)
    for payload in payloads("trtllm/dynamo_1.6.1_trtllm_zmq.jsonl")[:4]:
        framed.apply(payload, worker=WORKER)
    units = [
        one["tokens"] for event in events[2:5:2] for one in event["data"]["blocks"]
    ]
    blocks = [[unit["token_id"] for unit in each] for each in units]
    for prompt in (
        [*blocks[0], *blocks[1], *blocks[2]],
        blocks[0] + blocks[4],
        blocks[4],
    ):
        for salt in (None, "tenant-x"):
            expected = row(pulled, prompt, cache_salt=salt)
            assert row(framed, prompt, cache_salt=salt) == expected


def test_a_level_is_a_tier() -> None:
    said, index = Said(), registered()
    index.apply([said.created(), said.stored("ABC")], worker=WORKER)
    index.apply([said.updated("ABC", 0, 1)], worker=WORKER)
    assert row(index, tokens("ABC")) == (2, 1, 0, 0)
    index.apply([said.stored("D", "ABC", cache_level=1)], worker=WORKER)
    index.apply([said.updated("ABCD", 1, 2)], worker=WORKER)
    assert row(index, tokens("ABCD")) == (2, 1, 1, 0)
    index.apply([said.updated("ABC", 1, 0)], worker=WORKER)
    assert row(index, tokens("ABCD")) == (3, 0, 1, 0)
    # Announced again elsewhere: it moved.
    index.apply([said.stored("A", cache_level=1)], worker=WORKER)
    assert row(index, tokens("ABCD")) == (2, 1, 1, 0)
    (state,) = index.workers()
    assert (state.device, state.host, state.disk) == (2, 1, 1)


def test_levels_and_salts_may_change_within_an_event() -> None:
    said, index = Said(), registered()
    stored = said.stored("ABCD")
    for place, level in enumerate((0, 1, 1, 0)):
        stored["data"]["blocks"][place]["cache_level"] = level
    assert index.apply([stored], worker=WORKER).stored == 4
    assert row(index, tokens("ABCD")) == (2, 2, 0, 0)
    salted = said.stored("XY")
    salted["data"]["blocks"][0]["cache_salt"] = "one"
    salted["data"]["blocks"][1]["cache_salt"] = "two"
    index.apply([salted], worker=WORKER)
    assert row(index, tokens("XY"), cache_salt="one") == (1, 0, 0, 0)


def test_a_block_of_the_tree_has_one_copy() -> None:
    said, index = Said(), registered()
    events = [said.stored("A"), said.stored("A"), said.removed("A")]
    index.apply(events, worker=WORKER)
    assert len(index) == 0


def test_one_removal_takes_all_that_lies_below() -> None:
    said, index = Said(), registered()
    first = [said.created(), said.stored("ABC"), said.stored("XY", "A")]
    index.apply([*first, said.updated("AXY", 0, 1)], worker=WORKER)
    assert index.apply([said.removed("AB")], worker=WORKER).removed == 2
    assert depths(index, "ABC") == {WORKER: 1}
    # What was cut off does not come back with the block above it.
    index.apply([said.stored("B", "A")], worker=WORKER)
    assert depths(index, "ABC") == {WORKER: 2}
    # An older manager names each block.
    report = index.apply([said.removed("A", "AX", "AXY", "AB")], worker=WORKER)
    assert (report.removed, report.ignored) == (4, 0)
    assert len(index) == 0


def test_a_partial_block_and_its_removal_are_ignored() -> None:
    said, index = Said(), registered()
    short = said.stored("AB")
    del short["data"]["blocks"][1]["tokens"][2:]
    report = index.apply([short], worker=WORKER)
    assert (report.stored, report.reasons) == (1, {"partial": 1})
    alone = said.stored("C", "A")
    del alone["data"]["blocks"][0]["tokens"][1:]
    assert index.apply([alone], worker=WORKER).reasons == {"partial": 1}
    gone = index.apply(
        [said.updated("AC", 0, 1), said.removed("AC", "AB")], worker=WORKER
    )
    assert (gone.stored, gone.removed, gone.ignored) == (0, 0, 0)
    assert depths(index, "AB") == {WORKER: 1}


def test_larger_blocks_are_units() -> None:
    said, index = Said(), registered(2)
    alone = said.stored("A")
    index.apply([alone, said.stored("BC", "A")], worker=WORKER)
    assert row(index, tokens("ABC")) == (6, 0, 0, 0)
    assert row(index, tokens("AB")[:-2]) == (2, 0, 0, 0)
    index.apply([said.updated("AB", 0, 1)], worker=WORKER)
    assert row(index, tokens("ABC")) == (4, 2, 0, 0)


def test_smaller_blocks_are_pages() -> None:
    said, index = Said(), registered(16)
    assert index.apply([said.stored("ABCDE")], worker=WORKER).stored == 5
    assert depths(index, "ABCDEFGH") == {WORKER: 1}
    assert registered(18).apply([Said().stored("ABC")], worker=WORKER).reasons == {
        "block_size": 3
    }


def test_only_the_largest_window_is_followed() -> None:
    small, large = Said(window=128), Said(window=4096)
    index = registered()
    index.apply([small.stored("AB")], worker=WORKER)
    large.number = 1
    report = index.apply([large.stored("XY")], worker=WORKER)
    assert (report.cleared, report.stored) == (1, 2)
    assert depths(index, "AB") == {}
    small.number = 2
    ignored = index.apply([small.stored("AB"), small.removed("AB", "A")], worker=WORKER)
    assert ignored.reasons == {"medium": 4}
    assert depths(index, "XY") == {WORKER: 2}


def test_of_groups_with_one_window_the_first_is_followed() -> None:
    said, index = Said(), registered()
    events = [said.stored("A"), said.stored("A"), said.removed("A")]
    for event, group in zip(events, (0, 1, 1), strict=True):
        event["layer_group_id"] = group
    assert index.apply(events, worker=WORKER).reasons == {"medium": 2}
    assert index.diagnose() == []
    assert depths(index, "A") == {WORKER: 1}


def test_older_releases_name_no_window() -> None:
    said, index = Said(window=None), registered()
    index.apply([said.created(), said.stored("AB")], worker=WORKER)
    assert depths(index, "AB") == {WORKER: 2}


def test_each_rank_has_numbers_and_a_tree_of_its_own() -> None:
    one, other = Said(rank=0), Said(rank=3)
    index = registered()
    index.apply([one.stored("AB"), other.stored("AB"), one.removed("A")], worker=WORKER)
    assert depths(index, "AB") == {f"{WORKER}@3": 2}
    other.number += 2
    report = index.apply([one.stored("X"), other.stored("C", "AB")], worker=WORKER)
    assert (report.status, report.gap) == ("gap", (1, 2))
    assert depths(index, "ABC") == {f"{WORKER}@3": 3}


def test_events_that_come_twice_change_nothing() -> None:
    said, index = Said(), registered()
    events = [said.stored("AB"), said.updated("A", 0, 1)]
    index.apply(events, worker=WORKER)
    report = index.apply(events[:1], worker=WORKER)
    assert (report.status, report.stored, report.removed) == ("duplicate", 0, 0)
    assert row(index, tokens("AB")) == (1, 1, 0, 0)
    # Nor does the decoder take the block for one of the device.
    assert index.apply([said.removed("A")], worker=WORKER).removed == 2


def test_a_reset_forgets_tree_and_numbers() -> None:
    said, index = Said(rank=1), registered()
    index.apply([said.stored("AB")], worker=WORKER)
    index.reset(WORKER, dp_rank=1)
    again = Said(rank=1)
    assert index.apply([again.stored("A")], worker=WORKER).stored == 1
    assert index.apply([again.removed("A")], worker=WORKER).removed == 1


def test_images_and_extra_ids_are_no_plain_text() -> None:
    said, index = Said(), registered()
    image = [{"type": "mm_key", "hash": HEX["a"], "start_offset": 1}]
    index.apply([said.stored("A", mm_keys=image)], worker=WORKER)
    extra = said.stored("B")
    extra["data"]["blocks"][0]["tokens"][0]["token_extra_id"] = 5
    index.apply([extra], worker=WORKER)
    assert row(index, tokens("A")) == (0, 0, 0, 0)
    assert row(index, tokens("A"), mm=[(HEX["a"], 1, 2)]) == (1, 0, 0, 0)
    assert row(index, tokens("B")) == (0, 0, 0, 0)


def test_hashes_may_be_hexadecimal_and_tokens_digests() -> None:
    said, index = Said(), registered()
    stored = said.stored("ABC")
    for one, letter in zip(stored["data"]["blocks"], "abc", strict=True):
        one["block_hash"] = HEX[letter]
    stored["data"]["blocks"][1]["tokens"][0]["token_id"] = HEX["d"]
    report = index.apply([stored], worker=WORKER)
    # The tokens of the second are not known; the third waits for it.
    assert (report.stored, report.reasons) == (1, {"malformed": 1, "orphan": 1})
    assert index.match_names([bytes.fromhex(HEX["a"])]).depths[0] == 1
    gone = said.event(type="removed", block_hashes=[HEX["a"]])
    index.apply([gone], worker=WORKER)
    assert len(index) == 0


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"data": None},
        {"data": {"type": "stored", "parent_hash": None, "blocks": [{}]}},
        {"data": {"type": "stored", "parent_hash": None, "blocks": 5}},
        {"data": {"type": "removed", "block_hashes": ["no hexadecimal digits"]}},
        {"data": {"type": "removed", "block_hashes": [True]}},
        {
            "data": {
                "type": "updated",
                "block_hash": 1,
                "cache_level": {"new_value": -1},
            }
        },
    ],
    ids=str,
)
def test_a_faulty_event_costs_only_itself(event: dict[str, Any]) -> None:
    said, index = Said(), registered()
    before, after = said.stored("A"), said.stored("B", "A")
    report = index.apply([before, event, after], worker=WORKER)
    assert (report.stored, report.reasons) == (2, {"malformed": 1})
    with pytest.raises(kvindex.DecodeError):
        index.apply([event], worker=WORKER, strict=True)


def test_an_unknown_event_is_counted() -> None:
    index = registered()
    report = index.apply([Said().event(type="moved")], worker=WORKER)
    assert report.reasons == {"unknown_type": 1}


@pytest.mark.parametrize(
    "payload",
    [
        *(
            5,
            None,
            1.5,
            [1],
            "no JSON",
            '"text"',
            b"[1]",
            b"{",
            b"\xff",
            b"",
            b"{\xff}",
        ),
        "[" * 100_000,
        '{"event_id": ' + "9" * 5000 + "}",
    ],
    ids=lambda payload: repr(payload)[:12],
)
def test_what_is_no_list_of_events_is_a_decode_error(payload: Any) -> None:  # noqa: ANN401
    index = registered()
    said = Said()
    index.apply([said.stored("A")], worker=WORKER)
    with pytest.raises(kvindex.DecodeError) as caught:
        index.apply(payload, worker=WORKER)
    assert "\n" not in str(caught.value)
    assert depths(index, "A") == {WORKER: 1}


def test_the_publishers_batches_are_vllms() -> None:
    index = registered()
    stored = wire.stored_map([name("A")], tokens("A"), block_size=SIZE)
    payload = wire.batch([stored], 2)
    for seq, form in enumerate((bytes, bytearray, memoryview)):
        report = index.apply(form(payload), worker=WORKER, seq=5 + seq)
        assert (report.stored, report.dp_rank) == (1, 2)
    cleared = wire.batch([wire.cleared_map()], 2)
    assert index.apply(cleared, worker=WORKER, seq=8).cleared == 1
    with pytest.raises(kvindex.DecodeError):
        index.apply(b"\x93\xc1", worker=WORKER)


def test_the_publishers_images_are_no_plain_text() -> None:
    index = registered()
    image = [[{"type": "mm_key", "hash": HEX["a"], "start_offset": 0}], None]
    stored = wire.stored_map(
        [name("A"), name("AB")], tokens("AB"), block_size=SIZE, mm_keys=image
    )
    report = index.apply(wire.batch([stored], 2), worker=WORKER)
    assert (report.stored, report.dp_rank) == (2, 2)
    assert depths(index, "AB") == {}
    assert depths(index, "AB", mm=[(HEX["a"], 0, 2)]) == {f"{WORKER}@2": 2}
    odds: list[Any] = [[[]], 5, [[{}], []], "mm_keys"]
    for odd in odds:
        stored["mm_keys"] = odd
        for keys in (None, [["text"], None]):
            stored["extra_keys"] = keys
            report = index.apply(wire.batch([stored], 2), worker=WORKER)
            assert report.reasons == {"extra_keys": 2}, odd


@dataclass
class Tree:
    """The engine's tree: where each whole block lies, by its path."""

    said: Said
    levels: dict[str, int] = field(default_factory=dict)
    partial: list[str] = field(default_factory=list)

    def step(self, chance: random.Random) -> dict[str, Any]:
        """Do anything, and return what the engine says of it."""
        action = chance.choice(["store", "store", "move", "cut", "cut", "short"])
        above = chance.choice(["", *self.levels])
        known = list(self.levels)
        if action == "move" and known:
            path = chance.choice(known)
            old, new = self.levels[path], chance.randrange(2)
            self.levels[path] = new
            return self.said.updated(path, old, new)
        if action == "cut" and known:
            path = chance.choice(known)
            gone = [other for other in known if other.startswith(path)]
            for other in gone:
                del self.levels[other]
            short = self.partial.pop() if self.partial else None
            named = gone[::-1] if chance.random() < 0.5 else [path]
            return self.said.removed(*named, *([short] if short else []))
        path = "".join(chance.choices("AB", k=chance.randrange(1, 4)))
        while path and above + path[0] in self.levels:
            above, path = above + path[0], path[1:]
        if not path:
            return self.said.event(type="updated", block_hash=1, cache_level=None)
        stored = self.said.stored(path, above)
        if action == "short" and not self.partial:
            last = stored["data"]["blocks"][-1]
            del last["tokens"][1:]
            last["block_hash"] = name(above + path + "/short")
            self.partial.append(above + path + "/short")
            path = path[:-1]
        for end in range(1, len(path) + 1):
            self.levels[above + path[:end]] = 0
        return stored

    def row(self, query: str) -> tuple[int, ...]:
        """Return the blocks on device and host that lead a query."""
        paths = (query[:end] for end in range(1, len(query) + 1))
        held = [
            self.levels[path] for path in takewhile(self.levels.__contains__, paths)
        ]
        return (held.count(0), held.count(1), 0, 0)


@pytest.mark.parametrize("seed", range(8))
def test_any_history_leaves_what_the_tree_holds(seed: int) -> None:
    chance = random.Random(seed)
    tree, index = Tree(Said()), registered()
    for _ in range(150):
        report = index.apply([tree.step(chance)], worker=WORKER)
        assert set(report.reasons) <= {"partial"}
        for _ in range(3):
            query = "".join(chance.choices("AB", k=6))
            assert row(index, tokens(query)) == tree.row(query)
    (state,) = index.workers()
    levels = list(tree.levels.values())
    assert (state.device, state.host) == (levels.count(0), levels.count(1))


def test_a_feed_hands_payloads_to_the_decoder() -> None:
    said, index = Said(), registered()
    batches = [
        json.dumps(said.stored("A")).encode(),
        b"{",
        json.dumps([said.stored("B", "A"), said.removed("B")]).encode(),
    ]
    with Publisher() as engine:
        for batch in batches:
            engine.publish(batch)
        source = Source(WORKER, engine.endpoint, replay=engine.replay)
        with Feed(index, [source]) as feed:
            assert feed.wait(until={WORKER: 2})
            assert feed.sources()[0].undecodable == 1
    assert depths(index, "AB") == {WORKER: 2}

"""Payloads that are cut or damaged: refused whole or applied, never half."""

import base64
import json
import random
from pathlib import Path

import pytest

import kvindex
from tests import wire
from tests.helpers import tokens

FOLDER = Path(__file__).parent / "streams"
STREAMS = sorted(
    path
    for family in ("vllm", "sglang")
    for path in (FOLDER / family).glob("*.jsonl")
    if not path.name.endswith(".replay.jsonl")
)
BLOCK = 16
LONGEST = 3_000
PREFIXES = 20_000


def payloads(path: Path) -> list[bytes]:
    """Return the batches of a captured stream."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    encoded = (
        line["payload"] if "payload" in line else line["frames"][2] for line in lines
    )
    return [base64.b64decode(item) for item in encoded]


def chosen(path: Path) -> list[bytes]:
    """Return some batches of a stream, of every kind, that are not too long."""
    seen: set[bytes] = set()
    total = 0
    picked = []
    for payload in payloads(path):
        kind = payload[10:28]
        if len(payload) > LONGEST or (kind in seen and total > PREFIXES // 2):
            continue
        seen.add(kind)
        picked.append(payload)
        total += len(payload)
        if total > PREFIXES:
            break
    return picked


def snapshot(index: kvindex.Indexer) -> tuple[object, ...]:
    """Return what a refused batch must not change."""
    lines = sorted(index.workers(), key=lambda line: (line.worker, line.dp_rank))
    return lines, len(index), index.match(tokens("AB", BLOCK)).to_dict()


def attempt(
    index: kvindex.Indexer,
    payload: bytes | memoryview,
    *,
    seq: int | None = None,
    strict: bool = False,
) -> kvindex.ApplyReport | kvindex.DecodeError:
    """Apply a payload as worker w1; return the report or why it was refused."""
    try:
        return index.apply(payload, worker="w1", seq=seq, strict=strict)
    except kvindex.DecodeError as error:
        return error


def filled() -> kvindex.Indexer:
    """Return an index in which a clear, a removal or a store would be seen."""
    index = kvindex.Indexer(block_size=BLOCK)
    event = wire.stored_map([1, 2], tokens("AB", BLOCK), None, BLOCK)
    for rank in (0, 1):
        index.apply(wire.batch([event], rank), worker="w1", seq=5)
    return index


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_every_prefix_of_a_real_payload_is_refused_whole(path: Path) -> None:
    index = filled()
    before = snapshot(index)
    for payload in chosen(path):
        view = memoryview(payload)
        for length in range(len(payload)):
            error = attempt(index, view[:length], seq=6)
            assert isinstance(error, kvindex.DecodeError), length
            assert error.offset is not None
            assert 0 <= error.offset <= length
            assert error.event is None
        assert snapshot(index) == before
        assert index.apply(payload, worker="other").status == "ok"
        index.remove_worker("other")
        assert snapshot(index) == before


def damage(rng: random.Random, payload: bytes) -> bytes:
    """Change, drop or insert a few bytes."""
    data = bytearray(payload)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(data))
        kind = rng.random()
        if kind < 0.4:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 0.7:
            data[at] = rng.choice(
                [0xC1, 0xC0, 0xDD, 0xDF, 0xFF, 0x90, 0x80, 0xC4, 0xD3]
            )
        elif kind < 0.85 and len(data) > 1:
            del data[at]
        else:
            data.insert(at, rng.randrange(256))
    return bytes(data)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_a_damaged_payload_is_refused_whole_or_applied(path: Path) -> None:
    rng = random.Random(path.name)
    batches = payloads(path)
    for _ in range(10):
        index = filled()
        before = snapshot(index)
        for _ in range(40):
            payload = damage(rng, rng.choice(batches))
            outcome = attempt(index, payload)
            if isinstance(outcome, kvindex.DecodeError):
                assert outcome.offset is not None
                assert 0 <= outcome.offset <= len(payload)
                assert snapshot(index) == before
            else:
                counts = (outcome.stored, outcome.removed, outcome.ignored)
                assert min(counts) >= 0
                assert 0 <= outcome.dp_rank < 2**32
                before = snapshot(index)
        check(index)


def check(index: kvindex.Indexer) -> None:
    """Check that an index still answers, counts and can be emptied."""
    for row in index.match(tokens("AB", BLOCK)):
        assert row.device + row.host + row.disk + row.external == row.depth <= 2
    assert len(index) >= 0
    index.remove_worker("w1")
    assert index.workers() == []
    assert len(index) == 0
    event = wire.stored_map([1, 2], tokens("AB", BLOCK), None, BLOCK)
    index.apply(wire.batch([event]), worker="w1")
    assert list(index.match(tokens("AB", BLOCK)).depths) == [2]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_a_damaged_payload_is_refused_whole_when_strict(path: Path) -> None:
    rng = random.Random(path.name + "strict")
    batches = payloads(path)
    index = filled()
    before = snapshot(index)
    for _ in range(200):
        payload = damage(rng, rng.choice(batches))
        outcome = attempt(index, payload, strict=True)
        if isinstance(outcome, kvindex.DecodeError):
            assert (outcome.offset is None) is (outcome.event is not None)
            assert snapshot(index) == before
        else:
            before = snapshot(index)


def test_random_bytes_store_and_remove_nothing() -> None:
    rng = random.Random(11)
    index = filled()
    before = snapshot(index)
    for _ in range(20_000):
        outcome = attempt(index, rng.randbytes(rng.randrange(64)))
        if not isinstance(outcome, kvindex.DecodeError):
            assert (outcome.stored, outcome.removed) == (0, 0)
    assert snapshot(index) == before


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01"])
@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
def test_deep_nesting_overflows_no_stack(opening: bytes, depth: int) -> None:
    head = b"\x93\xcb" + bytes(8) + b"\x91\x82\xa4type\xabBlockStored\xa1x"
    index = filled()
    before = snapshot(index)
    with pytest.raises(kvindex.DecodeError):
        index.apply(head + opening * depth, worker="w1")
    assert snapshot(index) == before


@pytest.mark.parametrize(
    "length",
    [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"],
)
def test_lengths_beyond_the_payload_reserve_no_memory(length: bytes) -> None:
    index = filled()
    start = b"\x93\xcb" + bytes(8)
    event = b"\x91\x93\xacBlockRemoved"
    for payload in (length, start + length, start + event + length):
        with pytest.raises(kvindex.DecodeError):
            index.apply(payload, worker="w1")

"""Batches: letters and captured streams as the bytes that engines send."""

import base64
import itertools
import json
from pathlib import Path
from typing import Any

from tests import wire
from tests.helpers import BLOCK, name, tokens

STREAMS = Path(__file__).parent.parent / "streams"

clock = itertools.count(1)


def batch(*events: dict[str, object], rank: int | None = 0) -> bytes:
    """Encode events as one batch of its own time, like every real one."""
    return wire.batch(events, rank, float(next(clock)))


def stores(letters: str, after: str = "") -> dict[str, object]:
    """Store `letters`, a block each, below the path `after`."""
    paths = [after + letters[: i + 1] for i in range(len(letters))]
    return wire.stored_map(
        [name(path) for path in paths],
        tokens(letters),
        name(after) if after else None,
        BLOCK,
    )


def removes(*paths: str) -> dict[str, object]:
    """Remove the last block of each path."""
    return wire.removed_map([name(path) for path in paths])


def chain(count: int, start: int = 0) -> list[bytes]:
    """Return batches that lengthen one chain by a block each."""
    letters = "".join(chr(ord("A") + i) for i in range(start + count))
    return [batch(stores(letters[i], letters[:i])) for i in range(start, start + count)]


def captured(stream: str) -> list[tuple[int, bytes]]:
    """Return the numbers and payloads of a captured stream, in order."""
    path = STREAMS / f"{stream}.jsonl"
    messages = map(json.loads, path.read_text().splitlines())
    if stream.startswith("vllm"):
        return [(m["seq"], base64.b64decode(m["payload"])) for m in messages]
    frames = [[base64.b64decode(part) for part in m["frames"]] for m in messages]
    return [(int.from_bytes(seq, "big"), payload) for _, seq, payload in frames]


def facts(stream: str) -> dict[str, Any]:
    """Return what the engine really held, and what it was asked."""
    found: dict[str, Any] = json.loads((STREAMS / f"{stream}.meta.json").read_text())
    return found


def captured_replay(stream: str) -> tuple[int, list[list[bytes]]]:
    """Return the start and the answers of a captured replay, as a DEALER saw them."""
    if stream.startswith("sglang"):
        lines = (STREAMS / f"{stream}.replay.jsonl").read_text().splitlines()
        return 0, [decoded(json.loads(line)["frames"]) for line in lines]
    kept = json.loads((STREAMS / f"{stream}.replay.json").read_text())
    for exchange in kept["exchanges"]:
        if "reply_frames" in exchange and len(exchange["reply_frames"]) > 1:
            answers = exchange["reply_frames"]
            return exchange["start_seq"], [decoded(frames) for frames in answers]
    raise AssertionError(stream)


def decoded(frames: list[str]) -> list[bytes]:
    """Undo base64, frame by frame."""
    return [base64.b64decode(frame) for frame in frames]

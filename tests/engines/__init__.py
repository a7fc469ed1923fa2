"""Engines and cache backends: one test file each."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

STREAMS = Path(__file__).parents[1] / "streams"


def lines(path: str) -> list[Any]:
    """Read a captured stream of JSON lines, below `tests/streams`."""
    text = (STREAMS / path).read_text()
    return [json.loads(line) for line in text.splitlines()]


def meta(path: str) -> Any:  # noqa: ANN401 - any description
    """Read the description of a captured stream."""
    return json.loads((STREAMS / path).read_text())


def payloads(path: str) -> list[bytes]:
    """Read the payloads of a captured stream of ZMQ frames."""
    return [b64decode(line["frames"][2]) for line in lines(path)]

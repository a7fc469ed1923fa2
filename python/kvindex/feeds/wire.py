"""Frames: what vLLM and SGLang put on their event and replay sockets.

A live message is `[topic, number, payload]`. A replay request is
`["", first number]`, and its answers, as a DEALER sees them, are
`["", number, payload]` up to vLLM 0.25 and SGLang 0.5.21 and
`["", topic, number, payload]` since; read from the end they are alike. The
last answer carries no batch: its number is -1 and its payload empty. Numbers
are 8 bytes, big-endian, unsigned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LIVE_FRAMES = 3
REPLAY_FRAMES = (3, 4)
NUMBER_BYTES = 8
END = (1 << 64) - 1


def parse_live(frames: Sequence[bytes]) -> tuple[int, bytes] | None:
    """Return number and payload of a live message, None if it is none."""
    if len(frames) != LIVE_FRAMES or len(frames[1]) != NUMBER_BYTES:
        return None
    seq = int.from_bytes(frames[1], "big")
    return None if seq == END else (seq, frames[2])


def parse_reply(frames: Sequence[bytes]) -> tuple[int, bytes] | None:
    """Return number and payload of a replay's answer, None if it is none.

    The end marker is returned as `(END, b"")`.
    """
    if len(frames) not in REPLAY_FRAMES or len(frames[-2]) != NUMBER_BYTES:
        return None
    seq = int.from_bytes(frames[-2], "big")
    payload = frames[-1]
    return (END, b"") if seq == END or not payload else (seq, payload)


def replay_request(start: int) -> tuple[bytes, bytes]:
    """Return the frames that ask for every batch from `start` on."""
    return (b"", start.to_bytes(NUMBER_BYTES, "big"))

"""How do payloads become Python values? What the decoders share."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kvindex._core import unpack
from kvindex.engines.engine import Batch, Event
from kvindex.errors import DecodeError
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

if TYPE_CHECKING:
    from collections.abc import Sequence

MALFORMED = BlockRemoved(None)  # type: ignore[arg-type]
"""Stands for an event that cannot be read: the index counts it as `malformed`."""

MISSHAPEN = (AttributeError, KeyError, TypeError, ValueError)
"""What reading an event raises that has not the shape that it should have."""

LEFT_OUT = "left out"
"""A medium that no index knows, for what is none of the holder's: another model's, a
shared cache's for a worker, or a window's that is not followed. It is counted, and no
finding of a diagnosis."""

JSON_STARTS = b'{[ \t\r\n"'
"""The first bytes of JSON; a msgpack batch begins with another byte."""


def natural(value: object, bits: int = 64) -> int | None:
    """Return a number of that many bits that is not negative; None for all else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**bits:
        return value
    return None


def left_out(names: Sequence[int | bytes]) -> Event:
    """Return a store that the index drops, and counts under `medium`."""
    return BlockStored(names, [], medium=LEFT_OUT)


def unexpected(expected: str, found: object) -> DecodeError:
    """Return the error for a value of another kind than expected."""
    return DecodeError(f"expected {expected}, found {type(found).__name__}")


def is_msgpack(payload: object) -> bool:
    """Tell whether a payload is bytes and no JSON."""
    return isinstance(payload, bytes) and payload[:1] not in {
        bytes([byte]) for byte in JSON_STARTS
    }


def is_batch(payload: object) -> bool:
    """Tell whether a payload is bytes of an array in msgpack, as a batch is."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        return False
    first = bytes(payload[:1])
    return first in {b"\xdc", b"\xdd"} or b"\x90" <= first <= b"\x9f"


def load(payload: Any, expected: str) -> Any:  # noqa: ANN401 - any value
    """Return the value that a payload stands for.

    Args:
        payload: JSON as str or bytes, msgpack as bytes; a dict or list is itself.
        expected: What it should be, for the error.

    Raises:
        DecodeError: It is none of these, or broken.
    """
    if isinstance(payload, dict | list):
        return payload
    if isinstance(payload, bytearray | memoryview):
        payload = bytes(payload)
    if is_msgpack(payload):
        return unpack(payload)
    if not isinstance(payload, str | bytes):
        raise unexpected(expected, payload)
    try:
        return json.loads(payload)
    except json.JSONDecodeError as error:
        message = f"expected {expected}, found JSON with a fault: {error.msg}"
        raise DecodeError(message, error.pos) from None
    except (ValueError, RecursionError) as error:
        message = f"expected {expected}: {error}"
        raise DecodeError(message) from None


def records(payload: Any, expected: str) -> list[Any]:  # noqa: ANN401 - any value
    """Return the records of a payload that is one record or a list of them.

    Raises:
        DecodeError: It is neither, or broken.
    """
    value = load(payload, expected)
    found = value if isinstance(value, list) else [value]
    for record in found:
        if not isinstance(record, dict):
            raise unexpected(expected, record)
    return found


IMAGES = (b"mm_keys", b"block_mm_infos")
"""Fields of images that other engines' events have beside those of vLLM's wire."""


def stream(payload: bytes) -> Batch:
    """Read a batch of vLLM's wire, which may have images in fields of its own.

    The core reads it, unless there are such fields: it would skip what it does not
    know, and a block whose image was lost must not match as text.

    Raises:
        DecodeError: The payload is no msgpack.
    """
    if not any(name in payload for name in IMAGES):
        return Batch(payload)
    batch: Any = unpack(payload)
    match batch:
        case [_, [*events], *rest] if all(isinstance(event, dict) for event in events):
            rank = natural(rest[0], bits=32) if rest else None
            return Batch([from_map(event) for event in events], rank)
        case _:
            return Batch(payload)


def from_map(event: dict[str, Any]) -> Event:
    """Return an event of vLLM's wire that came as a map."""
    kind = event.get("type")
    for known in (BlockStored, BlockRemoved, AllBlocksCleared):
        if kind == known.__name__:
            given: dict[str, Any] = {
                field.name: event.get(field.name) for field in fields(known)
            }
            if known is BlockStored:
                given["extra_keys"] = _extra_keys(event)
            return known(**given)
    return unknown(kind)


def unknown(kind: object) -> Event:
    """Return an event that the index counts as one of an unknown type."""
    name = kind if isinstance(kind, str) and kind.isidentifier() else "Unknown"
    stranger: Event = type(name, (), {})()
    return stranger


def _extra_keys(event: dict[str, Any]) -> Any:  # noqa: ANN401 - the core judges it
    """Return the extra keys of a store's blocks, its images among them."""
    given = [event.get("extra_keys"), event.get("mm_keys"), event.get("block_mm_infos")]
    given = [blocks for blocks in given if blocks]
    if not given:
        return None
    try:
        return [
            [key for keys in block for key in _keys(keys)]
            for block in zip(*given, strict=True)
        ]
    except MISSHAPEN:
        # What is no list of keys is counted as that.
        return [None] * (len(event["block_hashes"]) + 1)


def _keys(keys: Any) -> list[Any]:  # noqa: ANN401
    """Return one block's keys, whichever field they stood in."""
    if isinstance(keys, dict):
        return [dynamo_image(image) for image in keys["mm_objects"]]
    return [
        [str(key["hash"]), int(key["start_offset"])] if isinstance(key, dict) else key
        for key in keys or ()
    ]


def dynamo_image(image: dict[str, Any]) -> list[str | int]:
    """Return the extra key that has the multimodal hash of Dynamo's object."""
    digits = f"{image['mm_hash']:016x}"
    offsets = image.get("offsets") or [[0, 0]]
    # 64 hexadecimal digits mean their first 16.
    return [f"{digits:0<64}", int(offsets[0][0])]

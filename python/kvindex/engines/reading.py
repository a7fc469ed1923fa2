"""How do payloads become Python values? What the decoders share."""

from __future__ import annotations

import json
from typing import Any

from kvindex._core import unpack
from kvindex.errors import DecodeError
from kvindex.events import BlockRemoved

MALFORMED = BlockRemoved(None)  # type: ignore[arg-type]
"""Stands for an event that cannot be read: the index counts it as `malformed`."""

JSON_STARTS = b'{[ \t\r\n"'
"""The first bytes of JSON; a msgpack batch begins with another byte."""


def unexpected(expected: str, found: object) -> DecodeError:
    """Return the error for a value of another kind than expected."""
    return DecodeError(f"expected {expected}, found {type(found).__name__}")


def is_msgpack(payload: object) -> bool:
    """Tell whether a payload is bytes and no JSON."""
    return isinstance(payload, bytes) and payload[:1] not in {
        bytes([byte]) for byte in JSON_STARTS
    }


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
    except (UnicodeDecodeError, RecursionError) as error:
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

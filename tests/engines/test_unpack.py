"""The msgpack reader that decoders in Python use, judged by msgspec."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvindex import DecodeError
from kvindex.engines import unpack

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_every_value_comes_back(value: Any) -> None:  # noqa: ANN401
    # Integers beyond 64 bits cannot be written.
    try:
        payload = msgspec.msgpack.encode(value)
    except OverflowError:
        return
    found = unpack(payload)
    assert found == value
    assert repr(found) == repr(msgspec.msgpack.decode(payload))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_a_decode_error(payload: bytes) -> None:
    try:
        found = unpack(payload)
    except DecodeError:
        return
    # What it takes is what msgspec takes, too.
    assert repr(found) == repr(msgspec.msgpack.decode(payload, strict=False))


def test_floats_of_four_bytes_are_read() -> None:
    assert unpack(bytes.fromhex("ca3fc00000")) == 1.5
    assert str(unpack(bytes.fromhex("cb7ff8000000000000"))) == "nan"


@pytest.mark.parametrize(
    ("payload", "offset"),
    [
        ("", 0),
        ("93c0c0", 0),
        ("92c0", 0),
        ("c0c0", 1),
        ("c1", 0),
        ("81c0c0", 1),
        ("8190c0", 1),
        ("81c400c0", 1),
        ("a1ff", 0),
        ("d400ff", 0),
        ("ddffffffff00", 0),
        ("dfffffffff00", 0),
    ],
)
def test_what_is_no_plain_value_is_refused(payload: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        unpack(bytes.fromhex(payload))
    assert caught.value.offset == offset


def test_depth_is_bounded() -> None:
    assert unpack(b"\x91" * 32 + b"\xc0")
    with pytest.raises(DecodeError, match="more than 32 containers"):
        unpack(b"\x91" * 33 + b"\xc0")
    with pytest.raises(DecodeError, match="more than 32 containers"):
        unpack(b"\x91" * 32 + b"\x90")

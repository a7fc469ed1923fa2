"""What goes in: every kind of input that is taken, every fault and its message."""

import array
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import kvindex
from kvindex import BlockRemoved, BlockStored
from tests import wire
from tests.helpers import BLOCK, Scene, name, tokens

TEXT = tokens("AB")
LOCAL = list(kvindex.block_keys(TEXT, block_size=BLOCK))
CHAIN = list(kvindex.chain_keys(LOCAL))
NAMES = [name("A"), name("AB")]

Make = Callable[[Sequence[int]], Any]

SEQUENCES: dict[str, Make] = {
    "list": list,
    "tuple": tuple,
    "list of numpy integers": lambda items: [np.uint64(item) for item in items],
}
BUFFERS_OF_32: dict[str, Make] = {
    "numpy u4": lambda items: np.array(items, dtype=np.uint32),
    "numpy i4": lambda items: np.array(items, dtype=np.int32),
    "array I": lambda items: array.array("I", items),
    "array i": lambda items: array.array("i", items),
    "memoryview I": lambda items: memoryview(array.array("I", items)),
    "read-only u4": lambda items: memoryview(
        np.array(items, dtype=np.uint32).tobytes()
    ).cast("I"),
}
BUFFERS_OF_64: dict[str, Make] = {
    "numpy u8": lambda items: np.array(items, dtype=np.uint64),
    "array Q": lambda items: array.array("Q", items),
    "array L": lambda items: array.array("L", items),
    "memoryview Q": lambda items: memoryview(array.array("Q", items)),
    "read-only u8": lambda items: memoryview(
        np.array(items, dtype=np.uint64).tobytes()
    ).cast("Q"),
}
SIGNED_64: dict[str, Make] = {
    "numpy i8": lambda items: np.array(items, dtype=np.int64),
    "array q": lambda items: array.array("q", items),
    "array l": lambda items: array.array("l", items),
}
FOR_TOKENS = SEQUENCES | BUFFERS_OF_32 | BUFFERS_OF_64 | SIGNED_64
FOR_KEYS = SEQUENCES | BUFFERS_OF_64

Call = Callable[[kvindex.Indexer, Any], Any]

TOKEN_CALLS: dict[str, Call] = {
    "match": lambda index, data: index.match(data),
    "match_many": lambda index, data: index.match_many([data]),
    "match_with_keys": lambda index, data: index.match_with_keys(data),
    "explain": lambda index, data: index.explain(data, worker="w1"),
    "block_keys": lambda _, data: kvindex.block_keys(data, block_size=BLOCK),
}
KEY_CALLS: dict[str, Call] = {
    "match_keys": lambda index, data: index.match_keys(data),
    "match_chain": lambda index, data: index.match_chain(data),
    "predict_chain": lambda index, data: index.predict_chain(data, worker="w1"),
    "chain_keys": lambda _, data: kvindex.chain_keys(data),
}
NAME_CALLS: dict[str, Call] = {
    "match_names": lambda index, data: index.match_names(data),
}
CALLS = TOKEN_CALLS | KEY_CALLS | NAME_CALLS

NOT_ARRAYS: dict[str, Any] = {
    "None": None,
    "int": 7,
    "str": "1234",
    "bytes": b"1234",
    "bytearray": bytearray(b"1234"),
    "list of str": ["1", "2", "3", "4"],
    "list of float": [1.0, 2.0, 3.0, 4.0],
    "list of None": [None] * 4,
    "set": {1, 2, 3, 4},
    "iterator": iter([1, 2, 3, 4]),
}
WRONG_ARRAYS: dict[str, Any] = {
    "float64": np.ones(8),
    "float32": np.ones(8, dtype=np.float32),
    "array d": array.array("d", [1.0] * 8),
    "bool": np.ones(8, dtype=np.bool_),
    "u1": np.ones(8, dtype=np.uint8),
    "2-D u8": np.ones((2, 8), dtype=np.uint64),
    "0-D u8": np.array(1, dtype=np.uint64),
    "strided u8": np.ones(16, dtype=np.uint64)[::2],
    "reversed u8": np.ones(8, dtype=np.uint64)[::-1],
    "big-endian u8": np.ones(8, dtype=">u8"),
}


def filled() -> kvindex.Indexer:
    scene = Scene()
    scene.S("w1", "AB")
    return scene.index


def ids(table: dict[str, Any]) -> dict[str, Any]:
    return {"argvalues": list(table.values()), "ids": list(table)}


# What is taken.


@pytest.mark.parametrize("make", **ids(FOR_TOKENS))
def test_tokens_come_in_any_integer_buffer_or_sequence(make: Make) -> None:
    assert list(filled().match(make(TEXT)).depths) == [2]
    assert list(filled().match_many([make(TEXT)])[0].depths) == [2]
    assert list(kvindex.block_keys(make(TEXT), block_size=BLOCK)) == LOCAL


def test_a_range_is_a_prompt() -> None:
    index = kvindex.Indexer(block_size=2)
    index.apply([BlockStored([1, 2], range(4), block_size=2)], worker="w1")
    assert list(index.match(range(5)).depths) == [2]


@pytest.mark.parametrize("make", **ids(FOR_KEYS))
def test_keys_come_in_u64_buffers_or_sequences(make: Make) -> None:
    assert list(filled().match_keys(make(LOCAL)).depths) == [2]
    assert list(filled().match_chain(make(CHAIN)).depths) == [2]
    assert list(kvindex.chain_keys(make(LOCAL))) == CHAIN


@pytest.mark.parametrize("make", **ids(FOR_KEYS))
def test_names_come_in_u64_buffers_or_sequences(make: Make) -> None:
    assert list(filled().match_names(make(NAMES)).depths) == [2]


def test_names_may_be_signed_bytes_or_mixed() -> None:
    index = filled()
    signed = [item - 2**64 if item >= 2**63 else item for item in NAMES]
    as_bytes = [item.to_bytes(8, "big") for item in NAMES]
    kinds: tuple[Any, ...] = (
        signed,
        np.array(signed, dtype=np.int64),
        as_bytes,
        [NAMES[0], b"\xee" * 24 + as_bytes[1]],
    )
    for given in kinds:
        assert list(index.match_names(given).depths) == [2]


def test_names_wider_than_64_bits_count_by_their_low_bits(objects: Scene) -> None:
    wide = [item + 2**64 for item in NAMES]
    objects.S("w1", "AB", names=wide)
    assert list(objects.index.match_names(NAMES).depths) == [2]
    assert list(objects.index.match_names(wide).depths) == [2]
    assert objects.R("w1", NAMES[1]).removed == 1


@pytest.mark.parametrize("call", **ids(CALLS))
@pytest.mark.parametrize(
    "empty", [[], (), np.empty(0, dtype=np.uint64), array.array("Q")], ids=repr
)
def test_nothing_is_an_empty_query(call: Call, empty: Any) -> None:  # noqa: ANN401
    call(filled(), empty)
    assert len(filled().match(empty)) == 0
    assert len(filled().match_names(empty)) == 0


def test_the_callers_buffer_is_not_kept() -> None:
    text = array.array("I", TEXT)
    found = filled().match(text)
    text.append(1)  # raises BufferError while a view of it is alive
    assert list(found.depths) == [2]


def test_event_objects_take_the_same_kinds_of_tokens() -> None:
    for make in FOR_TOKENS.values():
        index = kvindex.Indexer(block_size=BLOCK)
        index.apply([BlockStored(NAMES, make(TEXT))], worker="w1")
        assert list(index.match(TEXT).depths) == [2]


@pytest.mark.parametrize(
    "make", [bytes, bytearray, memoryview], ids=lambda x: x.__name__
)
def test_payloads_come_in_any_buffer_of_bytes(make: Callable[[bytes], Any]) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    payload = wire.batch([wire.stored_map(NAMES, TEXT, None, BLOCK)])
    assert index.apply(make(payload), worker="w1").stored == 2


@pytest.mark.parametrize("make", [list, tuple], ids=lambda x: x.__name__)
def test_payloads_of_events_come_in_any_sequence(make: Callable[[Any], Any]) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    assert index.apply(make([BlockStored(NAMES, TEXT)]), worker="w1").stored == 2


# Values out of range: OverflowError, with the position.


def at(position: int, value: int, count: int = 48) -> list[int]:
    """Return small items with one value at a position that is in no item."""
    items = [3] * count
    items[position] = value
    return items


def overflow(call: Call, data: object, position: int) -> None:
    with pytest.raises(OverflowError) as caught:
        call(filled(), data)
    assert re.search(rf"\b{position}\b", str(caught.value)), str(caught.value)


@pytest.mark.parametrize("call", **ids(TOKEN_CALLS))
@pytest.mark.parametrize("position", [0, 29, 47])
@pytest.mark.parametrize("value", [-1, 2**32, 2**63 - 1, -(2**63)])
def test_tokens_out_of_range_are_named_by_position(
    call: Call, position: int, value: int
) -> None:
    items = at(position, value)
    for make in (list, tuple, SIGNED_64["numpy i8"], SIGNED_64["array q"]):
        overflow(call, make(items), position)
    if value > 0:
        overflow(call, BUFFERS_OF_64["numpy u8"](items), position)
    elif value == -1:
        overflow(call, BUFFERS_OF_32["numpy i4"](items), position)
        overflow(call, BUFFERS_OF_32["array i"](items), position)


@pytest.mark.parametrize("call", **ids(TOKEN_CALLS))
@pytest.mark.parametrize("value", [2**64, -(2**70)])
def test_tokens_of_any_size_are_named_by_position(call: Call, value: int) -> None:
    overflow(call, at(29, value), 29)


def test_the_last_token_may_be_out_of_any_block() -> None:
    overflow(TOKEN_CALLS["match"], [3] * 9 + [-1], 9)


@pytest.mark.parametrize("call", **ids(KEY_CALLS))
@pytest.mark.parametrize("value", [-1, 2**64, -(2**63)])
def test_keys_out_of_range_are_named_by_position(call: Call, value: int) -> None:
    overflow(call, at(29, value), 29)


@pytest.mark.parametrize("call", **ids(KEY_CALLS))
def test_negative_keys_in_a_signed_buffer_are_named_by_position(call: Call) -> None:
    overflow(call, np.array(at(29, -1), dtype=np.int64), 29)


# Other shapes and types: TypeError or BufferError, with what was expected.


@pytest.mark.parametrize("call", **ids(CALLS))
@pytest.mark.parametrize("data", **ids(NOT_ARRAYS))
def test_what_is_no_sequence_of_integers_is_refused(call: Call, data: object) -> None:
    with pytest.raises(TypeError):
        call(filled(), data)


@pytest.mark.parametrize("call", **ids(CALLS))
@pytest.mark.parametrize("data", **ids(WRONG_ARRAYS))
def test_arrays_of_another_shape_or_type_are_refused(call: Call, data: object) -> None:
    with pytest.raises((TypeError, BufferError), match="expected"):
        call(filled(), data)


@pytest.mark.parametrize(
    ("data", "came"),
    [
        (np.ones(8), r"float|double|'d'|\bd\b"),
        (np.ones((2, 8), dtype=np.uint32), r"2|two"),
        (np.ones(16, dtype=np.uint32)[::2], r"contiguous|strid"),
    ],
    ids=["float", "2-D", "strided"],
)
@pytest.mark.parametrize("call", **ids(CALLS))
def test_the_message_says_what_was_expected_and_what_came(
    call: Call, data: object, came: str
) -> None:
    with pytest.raises((TypeError, BufferError)) as caught:
        call(filled(), data)
    assert "expected" in str(caught.value)
    assert re.search(came, str(caught.value)), str(caught.value)


def test_the_position_of_a_wrong_item_is_named() -> None:
    with pytest.raises(TypeError, match=r"\b29\b"):
        filled().match([3] * 29 + ["x"])  # type: ignore[list-item]


def test_match_many_takes_a_sequence_of_prompts_only() -> None:
    for data in (5, None, [5], [TEXT, None], TEXT):
        with pytest.raises(TypeError):
            filled().match_many(data)  # type: ignore[arg-type]
    assert filled().match_many([]) == []


# Settings.


@pytest.mark.parametrize("size", [0, -1, -16, 2**20 + 1, 2**31, 2**40, 2**70, -(2**70)])
def test_a_block_size_out_of_range_is_a_config_error(size: int) -> None:
    with pytest.raises(kvindex.ConfigError, match="block_size") as caught:
        kvindex.Indexer(block_size=size)
    assert str(size) in str(caught.value)
    with pytest.raises(kvindex.ConfigError):
        kvindex.block_keys([1], block_size=size)


def test_the_ends_of_the_range_of_block_sizes_are_taken() -> None:
    for size in (1, 2**20):
        assert kvindex.Indexer(block_size=size).block_size == size


@pytest.mark.parametrize("size", ["16", 16.0, None, [16]])
def test_a_block_size_that_is_no_integer_is_a_type_error(size: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError):
        kvindex.Indexer(block_size=size)
    with pytest.raises(TypeError):
        kvindex.block_keys([1], block_size=size)


def test_the_block_size_has_no_default() -> None:
    with pytest.raises(TypeError):
        kvindex.Indexer()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        kvindex.Indexer(16)  # type: ignore[call-arg]


BAD_WEIGHTS: list[dict[str, float]] = [
    {"device": math.nan},
    {"host": math.inf},
    {"disk": -math.inf},
    {"external": -0.5},
    {"gpu": 1.0},
    {"": 1.0},
    {"device": 1.0, "tape": 0.5},
]


@pytest.mark.parametrize("weights", BAD_WEIGHTS, ids=str)
def test_weights_must_be_finite_and_of_known_tiers(weights: dict[str, float]) -> None:
    index = filled()
    with pytest.raises(kvindex.ConfigError):
        kvindex.Indexer(block_size=BLOCK, weights=weights)
    with pytest.raises(kvindex.ConfigError):
        index.match(TEXT, weights=weights)
    with pytest.raises(kvindex.ConfigError):
        index.match_many([TEXT], weights=weights)
    with pytest.raises(kvindex.ConfigError):
        index.match_keys(LOCAL, weights=weights)
    with pytest.raises(kvindex.ConfigError):
        index.match_chain(CHAIN, weights=weights)
    with pytest.raises(kvindex.ConfigError):
        index.match_names(NAMES, weights=weights)


def test_a_bad_weight_is_named_with_its_value() -> None:
    with pytest.raises(kvindex.ConfigError, match=r"host.*-2|-2.*host"):
        filled().match(TEXT, weights={"host": -2.0})
    with pytest.raises(kvindex.ConfigError, match="tape"):
        filled().match(TEXT, weights={"tape": 1.0})


def test_bad_weights_are_refused_when_nothing_matches() -> None:
    with pytest.raises(kvindex.ConfigError):
        filled().match([], weights={"host": math.nan})


@pytest.mark.parametrize("weights", [1.0, [("device", 1.0)], {"device": "1"}, {1: 1.0}])
def test_weights_of_another_type_are_a_type_error(weights: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError):
        filled().match(TEXT, weights=weights)


@pytest.mark.parametrize(
    "profile",
    [
        {"profile": "unknown"},
        {"profile": ""},
        {"clears": ("gpu",)},
        {"copies": ("device", "tape")},
        {"chunk_tokens": {"tape": 256}},
        {"chunk_tokens": {"host": 0}},
        {"media": {"L2": "tape"}},
        {"names": "theirs"},
    ],
    ids=str,
)
def test_an_unknown_word_in_a_profile_is_a_config_error(profile: Any) -> None:  # noqa: ANN401
    index = kvindex.Indexer(block_size=BLOCK)
    with pytest.raises(kvindex.ConfigError):
        index.register("w1", **profile)
    assert index.workers() == []


# Workers and payloads.


def test_an_unknown_worker_is_a_row_of_zeros() -> None:
    found = filled().match(TEXT, workers=["nobody", ("nobody", 3)])
    assert found.to_dict() == {
        "worker": ["nobody", "nobody"],
        "dp_rank": [0, 3],
        "depth": [0, 0],
        "score": [0.0, 0.0],
        "device": [0, 0],
        "host": [0, 0],
        "disk": [0, 0],
        "external": [0, 0],
        "shared": [0, 0],
        "predicted": [0, 0],
    }


@pytest.mark.parametrize("workers", [5, "w1", [5], [("w1",)], [("w1", "0")], [None]])
def test_workers_are_names_or_pairs_of_name_and_rank(workers: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError):
        filled().match(TEXT, workers=workers)


@pytest.mark.parametrize("worker", [None, 1, b"w1"])
def test_a_worker_is_named_by_a_string(worker: Any) -> None:  # noqa: ANN401
    index = kvindex.Indexer(block_size=BLOCK)
    with pytest.raises(TypeError):
        index.apply([], worker=worker)
    with pytest.raises(TypeError):
        index.register(worker)


@pytest.mark.parametrize("payload", [None, 5, "text", 1.5, [5], [None], ["x"]])
def test_a_payload_is_bytes_or_events(payload: Any) -> None:  # noqa: ANN401
    index = kvindex.Indexer(block_size=BLOCK)
    with pytest.raises(TypeError):
        index.apply(payload, worker="w1")
    assert index.workers() == []


def test_one_object_that_is_no_event_stops_the_whole_batch() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    with pytest.raises(TypeError):
        index.apply([BlockStored(NAMES, TEXT), object()], worker="w1")  # type: ignore[list-item]
    assert len(index) == 0


def test_an_event_is_not_a_batch() -> None:
    with pytest.raises(TypeError):
        filled().apply(BlockRemoved(NAMES), worker="w1")  # type: ignore[arg-type]


TIME = b"\xcb" + bytes(8)
NOT_BATCHES: dict[str, tuple[bytes, int | None]] = {
    "empty": (b"", 0),
    "reserved byte": (b"\xc1", 0),
    "nil": (wire.pack(None), 0),
    "map": (wire.pack({"type": "AllBlocksCleared"}), 0),
    "string": (wire.pack("batch"), 0),
    "empty array": (wire.pack([]), None),
    "time only": (wire.pack([0.0]), None),
    "events missing": (wire.pack([0.0, 5, None]), 10),
    "events as a map": (wire.pack([0.0, {}, None]), 10),
    "reserved byte in an event": (
        b"\x93" + TIME + b"\x91\x93\xacBlockRemoved\xc1\xc0\xc0",
        25,
    ),
    "array longer than the bytes": (
        b"\x93" + TIME + b"\x91\x93\xacBlockRemoved\xdd\xff\xff\xff\xff",
        None,
    ),
    "string longer than the bytes": (
        b"\x93" + TIME + b"\x91\x93\xdb\xff\xff\xff\xff",
        None,
    ),
}


@pytest.mark.parametrize(("payload", "offset"), **ids(NOT_BATCHES))
def test_bytes_that_are_no_batch_raise_with_their_offset(
    payload: bytes, offset: int | None
) -> None:
    index = filled()
    before = index.workers()
    with pytest.raises(kvindex.DecodeError) as caught:
        index.apply(payload, worker="w1", seq=1)
    error = caught.value
    assert error.event is None
    assert error.offset is not None
    assert 0 <= error.offset <= len(payload)
    assert offset is None or error.offset == offset
    assert str(error.offset) in str(error)
    assert index.workers() == before


def test_decode_errors_are_value_errors_and_index_errors() -> None:
    for base in (kvindex.DecodeError, kvindex.KvIndexError, ValueError):
        with pytest.raises(base):
            filled().apply(b"\xc1", worker="w1")


def test_unknown_things_are_counted_and_the_rest_is_applied() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    text = tokens("A")
    report = index.apply(
        wire.batch(
            [
                wire.stored_map([1], text, None, BLOCK, medium="tape"),
                wire.stored_map([2], text, None, BLOCK, group_idx=7),
                {"type": "Nonsense", "block_hashes": [3]},
                wire.stored_map([4], text + text, None, BLOCK),
                wire.stored_map([5], text, None, BLOCK),
            ]
        ),
        worker="w1",
    )
    assert report.stored == 1
    assert report.ignored == 4
    assert report.reasons == {"medium": 1, "group": 1, "unknown_type": 1, "tokens": 1}
    assert list(index.match(text).depths) == [1]

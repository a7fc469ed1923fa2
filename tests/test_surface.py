"""Names, signatures, properties and behaviour that users rely on."""

import copy
import dataclasses
import inspect
import logging
import pickle
import sys
from typing import Any

import numpy as np
import pytest

import kvindex
from kvindex import AllBlocksCleared, BlockRemoved, BlockStored
from tests import wire
from tests.helpers import BLOCK, Scene, label, tokens

PUBLIC = {
    "AllBlocksCleared",
    "ApplyReport",
    "BlockRemoved",
    "BlockStored",
    "Candidates",
    "ConfigError",
    "DecodeError",
    "Indexer",
    "KvIndexError",
    "Match",
    "Matches",
    "PoolState",
    "UnknownWorkerError",
    "WorkerState",
    "__version__",
    "block_keys",
    "chain_keys",
}
QUERY = "workers=None, weights=None, cascade=False"
SPACE = "lora_name=None, cache_salt=None, mm=None"
HABITS = (
    "clears=None, copies=None, chunk_tokens=None, media=None, names=None,"
    " root_hash=None, lora_ids=None, max_age=None"
)
SIGNATURES = {
    "apply": "(payload, /, *, worker=None, pool=None, dp_rank=0, source='', seq=None,"
    " epoch=None, strict=False, now=None)",
    "match": f"(tokens, /, *, {SPACE}, {QUERY})",
    "match_many": f"(*, {SPACE}, {QUERY})",
    "match_with_keys": f"(tokens, /, *, {SPACE}, {QUERY})",
    "match_keys": f"(local_keys, /, *, {QUERY})",
    "match_chain": f"(chain_keys, /, *, {QUERY})",
    "match_names": f"(engine_hashes, /, *, {QUERY})",
    "register": f"(worker, *, profile='vllm', {HABITS})",
    "register_pool": f"(pool, *, profile='auto', {HABITS})",
    "attach": "(worker, pool)",
    "detach": "(worker, pool)",
    "reset_pool": "(pool)",
    "remove_pool": "(pool)",
    "pools": "()",
    "reset": "(worker, *, dp_rank=0)",
    "remove_worker": "(worker)",
    "clear": "()",
    "workers": "()",
    "stats": "()",
    "diagnose": "(*, tiers=None)",
    "explain": f"(tokens, /, *, worker, dp_rank=0, {SPACE})",
    "candidates": "(names)",
}
FUNCTIONS = {
    "block_keys": f"(tokens, /, *, block_size, {SPACE}, pairs=False)",
    "chain_keys": "(local_keys, /)",
}
COLUMNS = (
    "worker",
    "dp_rank",
    "depth",
    "score",
    "device",
    "host",
    "disk",
    "external",
    "shared",
    "predicted",
)
COUNTS = ("depths", *COLUMNS[4:], "dp_ranks")
STATE = (
    "worker",
    "dp_rank",
    "device",
    "host",
    "disk",
    "external",
    "seq",
    "orphans",
    "duplicates",
)
REPORT = (
    "stored",
    "removed",
    "cleared",
    "ignored",
    "attached",
    "reasons",
    "status",
    "gap",
    "dp_rank",
)


def filled() -> kvindex.Indexer:
    """Return an index with three holders of ABC."""
    scene = Scene()
    scene.S("w1", "ABC")
    scene.S("w2@7", "A")
    scene.S("w2@7", "B", "A", tier="cpu")
    scene.S("w3", "A", tier="disk")
    return scene.index


def matches(**options: Any) -> kvindex.Matches:  # noqa: ANN401
    options.setdefault("workers", ["w1", ("w2", 7), "w3", "w9"])
    return filled().match(tokens("ABC"), **options)


def keywords(text: str) -> dict[str, object]:
    """Return the keyword-only and plain parameters of a signature's text."""
    names: dict[str, Any] = {}
    source = f"def function{text}: pass"
    exec(source, names)  # noqa: S102 - the text is a literal of this file
    return shape(inspect.signature(names["function"]))


def shape(signature: inspect.Signature) -> dict[str, object]:
    """Return {name: (may be given by name, default)} without annotations."""
    return {
        item.name: (item.kind is not item.POSITIONAL_ONLY, item.default)
        for item in signature.parameters.values()
    }


# Names and signatures.


def test_the_public_names_are_these() -> None:
    assert set(kvindex.__all__) == PUBLIC
    assert len(kvindex.__all__) == len(PUBLIC)
    assert all(hasattr(kvindex, name) for name in PUBLIC)


def test_the_version_is_a_version() -> None:
    assert kvindex.__version__.split(".")[0].isdigit()


@pytest.mark.parametrize("method", SIGNATURES)
def test_methods_have_these_parameters(method: str) -> None:
    found = shape(inspect.signature(getattr(kvindex.Indexer(block_size=1), method)))
    if method == "match_many":
        del found[next(iter(found))]
    assert found == keywords(SIGNATURES[method])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_have_these_parameters(function: str) -> None:
    found = shape(inspect.signature(getattr(kvindex, function)))
    assert found == keywords(FUNCTIONS[function])


def test_the_constructor_has_these_parameters() -> None:
    parameters = inspect.signature(kvindex.Indexer).parameters.values()
    assert {item.kind for item in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert {item.name: item.default for item in parameters} == {
        "block_size": inspect.Parameter.empty,
        "weights": None,
        "registered_only": False,
        "group_rules": False,
        "orphan_blocks": 16384,
    }


def test_public_names_are_documented() -> None:
    for name in PUBLIC - {"__version__"}:
        assert inspect.getdoc(getattr(kvindex, name)), name
    for method in SIGNATURES:
        assert inspect.getdoc(getattr(kvindex.Indexer, method)), method


# Settings.


def test_settings_are_read_back() -> None:
    index = kvindex.Indexer(
        block_size=32, weights={"host": 0.5}, registered_only=True, orphan_blocks=7
    )
    assert index.block_size == 32
    assert index.weights["host"] == 0.5
    assert index.registered_only is True
    assert index.orphan_blocks == 7
    index = kvindex.Indexer(block_size=16)
    assert (index.registered_only, index.orphan_blocks) == (False, 16384)


@pytest.mark.parametrize(
    "name", ["block_size", "weights", "registered_only", "orphan_blocks", "other"]
)
def test_settings_do_not_change(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(kvindex.Indexer(block_size=16), name, 1)


# The index as an object.


def test_the_repr_tells_settings_and_sizes() -> None:
    index = kvindex.Indexer(block_size=16)
    assert repr(index) == "kvindex.Indexer(block_size=16, workers=0, blocks=0)"
    assert repr(filled()) == "kvindex.Indexer(block_size=4, workers=3, blocks=3)"
    assert str(index) == repr(index)


def test_ranks_are_one_worker_in_the_repr() -> None:
    scene = Scene()
    scene.S("w1@0", "A")
    scene.S("w1@1", "AB")
    assert repr(scene.index) == "kvindex.Indexer(block_size=4, workers=1, blocks=2)"


def test_an_index_has_a_length_and_is_no_container() -> None:
    index = filled()
    assert len(index) == 3
    assert not hasattr(index, "__iter__")
    assert not hasattr(index, "__getitem__")


def test_an_index_is_equal_to_itself_only() -> None:
    index = filled()
    assert index == index  # noqa: PLR0124
    assert index != filled()
    assert hash(index) == hash(index)


def test_pickling_or_copying_an_index_is_a_type_error_with_a_hint() -> None:
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="Indexer") as caught:
            call(filled())
        assert len(str(caught.value)) > len("cannot pickle 'Indexer' object")


@pytest.mark.skipif(
    not hasattr(sys, "_is_gil_enabled"), reason="no builds without the lock"
)
def test_the_interpreters_lock_is_left_as_it_is() -> None:
    enabled: bool = sys._is_gil_enabled()  # type: ignore[attr-defined] # noqa: SLF001
    filled()
    assert sys._is_gil_enabled() is enabled  # type: ignore[attr-defined] # noqa: SLF001


def test_the_logger_is_silent() -> None:
    logger = logging.getLogger("kvindex")
    assert any(isinstance(item, logging.NullHandler) for item in logger.handlers)


# Matches.


def test_matches_are_a_sequence_of_rows() -> None:
    found = matches()
    assert len(found) == 4
    rows = list(found)
    assert [row.worker for row in rows] == ["w1", "w2", "w3", "w9"]
    assert found[0] == rows[0]
    assert found[-1] == found[3] == rows[3]
    assert rows[1] in found
    assert list(reversed(found)) == rows[::-1]
    with pytest.raises(IndexError):
        found[4]
    with pytest.raises(IndexError):
        found[-5]
    with pytest.raises(TypeError):
        found["w1"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "part",
    [
        slice(None),
        slice(1, 3),
        slice(-2, None),
        slice(None, None, -1),
        slice(3, None, -2),
        slice(2, 2),
        slice(0, 99),
    ],
    ids=str,
)
def test_slices_are_slices_of_the_rows(part: slice) -> None:
    found = matches()
    assert list(found[part]) == list(found)[part]


def test_a_row_tells_everything() -> None:
    row = matches()[1]
    expected = ["w2", 7, 2, 1.75, 1, 1, 0, 0, 0, 0]
    assert [getattr(row, name) for name in COLUMNS] == expected
    assert [type(getattr(row, name)) for name in COLUMNS] == [
        str,
        int,
        int,
        float,
        int,
        int,
        int,
        int,
        int,
        int,
    ]


def test_columns_are_buffers() -> None:
    found = matches()
    for name in COUNTS:
        column = getattr(found, name)
        assert isinstance(column, memoryview)
        assert (column.format, column.itemsize, column.ndim) == ("I", 4, 1)
        assert np.asarray(column).dtype == np.uint32
        field = {"depths": "depth", "dp_ranks": "dp_rank"}.get(name, name)
        assert column.tolist() == [getattr(row, field) for row in found]
    assert (found.scores.format, found.scores.itemsize) == ("d", 8)
    assert np.asarray(found.scores).tolist() == [3.0, 1.75, 0.25, 0.0]
    assert found.workers == ("w1", "w2", "w3", "w9")
    assert isinstance(found.workers, tuple)


def test_columns_of_nothing_are_empty_buffers() -> None:
    found = filled().match(tokens("Z"))
    for name in (*COUNTS, "scores"):
        assert getattr(found, name).tolist() == []
        assert len(np.asarray(getattr(found, name))) == 0
    assert found.workers == ()
    assert found.to_dict() == {name: [] for name in COLUMNS}


def test_columns_are_made_for_scoring_with_numpy() -> None:
    found = matches()
    load = np.array([2.0, 0.0, 0.0, 0.0])
    cost = load - np.asarray(found.depths)
    assert found.workers[int(np.argmin(cost))] == "w2"
    rescored = np.asarray(found.device) * 1.0 + np.asarray(found.host) * 0.5
    assert rescored.tolist() == [3.0, 1.5, 0.0, 0.0]


def test_changing_a_column_changes_no_match() -> None:
    found = matches()
    column = found.depths
    if not column.readonly:
        column[0] = 99
    assert found.depths[0] == found[0].depth == 3


def test_to_dict_is_plain_columns() -> None:
    assert matches().to_dict() == {
        "worker": ["w1", "w2", "w3", "w9"],
        "dp_rank": [0, 7, 0, 0],
        "depth": [3, 2, 1, 0],
        "score": [3.0, 1.75, 0.25, 0.0],
        "device": [3, 1, 0, 0],
        "host": [0, 1, 0, 0],
        "disk": [0, 0, 1, 0],
        "external": [0, 0, 0, 0],
        "shared": [0, 0, 0, 0],
        "predicted": [0, 0, 0, 0],
    }
    assert tuple(matches().to_dict()) == COLUMNS


def test_matches_do_not_follow_the_index() -> None:
    index = filled()
    found = index.match(tokens("ABC"), workers=["w1", "w3"])
    index.remove_worker("w1")
    index.apply([AllBlocksCleared()], worker="w3")
    assert list(found.depths) == [3, 1]
    assert found.workers == ("w1", "w3")
    best = found.best()
    assert best is not None
    assert best.worker == "w1"


def test_best_is_one_of_the_rows_and_reproducible() -> None:
    found = matches(weights={"device": 0.0, "host": 0.0, "disk": 0.0})
    assert found.best() == found[0]
    tied = filled().match(tokens("A"), weights={"disk": 1.0})
    first = [tied.best(seed=seed) for seed in range(20)]
    assert first == [tied.best(seed=seed) for seed in range(20)]
    assert all(row in list(tied) for row in first)
    assert len({label(row.worker, row.dp_rank) for row in first if row}) > 1


def test_reprs_are_readable_and_short() -> None:
    row = matches()[1]
    assert repr(row).startswith("Match(worker='w2', dp_rank=7, depth=2, score=1.75")
    index = kvindex.Indexer(block_size=1)
    for number in range(500):
        index.apply([BlockStored([1], [1])], worker=f"worker-{number}")
    for value in (
        index.match([1]),
        matches(),
        index.apply([], worker="w1"),
        index.workers()[0],
        index.candidates(["w1"] * 500),
    ):
        assert type(value).__name__ in repr(value)
        assert " object at 0x" not in repr(value)
        assert len(repr(value)) < 500


# Values.


def values() -> list[object]:
    """Return one value of every class of results and events."""
    index = filled()
    report = index.apply(
        [BlockStored([1], tokens("A"), parent_block_hash=9), BlockRemoved([5])],
        worker="w5",
        seq=1,
    )
    gap = index.apply([], worker="w5", seq=7)
    return [
        index.match(tokens("ABC"), workers=["w1", "w9"]),
        index.match(tokens("Z")),
        index.match(tokens("ABC"), workers=["w1"])[0],
        report,
        gap,
        min(index.workers(), key=lambda line: line.worker),
        BlockStored([1, b"x"], [1, 2], extra_keys=[None, ["s"]], medium="CPU"),
        BlockRemoved([1], medium="GPU", group_idx=1),
        AllBlocksCleared(),
    ]


@pytest.mark.parametrize("at", range(9))
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values_are_pickled_and_copied_equal(at: int, protocol: int) -> None:
    value = values()[at]
    for twin in (
        pickle.loads(pickle.dumps(value, protocol)),  # noqa: S301
        copy.copy(value),
        copy.deepcopy(value),
        values()[at],
    ):
        assert type(twin) is type(value)
        assert twin == value
        assert repr(twin) == repr(value)


def test_pickled_matches_keep_their_columns_and_best() -> None:
    found = matches()
    twin = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert twin.to_dict() == found.to_dict()
    assert twin.depths.tolist() == found.depths.tolist()
    assert twin.best(seed=3) == found.best(seed=3)


def test_different_values_are_not_equal() -> None:
    found = matches()
    assert found != matches(weights={"host": 0.5})
    assert found[0] != found[1]
    assert found != list(found)
    assert found[0] != found[0].worker
    report = filled().apply([], worker="w1")
    assert report != filled().apply([BlockRemoved([5])], worker="w1")


def test_reports_and_states_have_these_fields() -> None:
    index = filled()
    report = index.apply(wire.batch([wire.removed_map([5])]), worker="w1", seq=3)
    assert {name: getattr(report, name) for name in REPORT} == {
        "stored": 0,
        "removed": 0,
        "cleared": 0,
        "ignored": 1,
        "attached": 0,
        "reasons": {"unknown_block": 1},
        "status": "ok",
        "gap": None,
        "dp_rank": 0,
    }
    (line,) = (line for line in index.workers() if line.worker == "w1")
    found = [getattr(line, name) for name in STATE]
    assert found == ["w1", 0, 3, 0, 0, 0, 3, 0, 0]
    for value in (report, line, matches()[0], matches()):
        with pytest.raises(AttributeError):
            value.dp_rank = 1  # type: ignore[union-attr, misc]


def test_results_hold_plain_values() -> None:
    report = filled().apply([], worker="w1", seq=1)
    assert isinstance(report.reasons, dict)
    assert isinstance(report.status, str)
    gap = filled()
    gap.apply([], worker="w1", seq=1)
    assert gap.apply([], worker="w1", seq=4).gap == (2, 3)
    assert isinstance(filled().workers(), list)
    assert isinstance(filled().match_many([tokens("A")]), list)
    assert isinstance(filled().register("w1"), int)


# Events.


def fields(cls: type) -> dict[str, object]:
    return {
        field.name: None if field.default is dataclasses.MISSING else [field.default]
        for field in dataclasses.fields(cls)
    }


def test_events_have_these_fields_in_this_order() -> None:
    expected: dict[str, object] = {"block_hashes": None, "token_ids": None}
    for name in (
        "parent_block_hash",
        "block_size",
        "medium",
        "lora_name",
        "cache_salt",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
        "locality",
        "lora_id",
        "local_keys",
        "kv_cache_spec_sliding_window",
    ):
        expected[name] = [None]
    assert list(fields(BlockStored).items()) == list(expected.items())
    assert list(fields(BlockRemoved).items()) == [
        ("block_hashes", None),
        ("medium", [None]),
        ("group_idx", [None]),
        ("kv_cache_spec_kind", [None]),
    ]
    assert fields(AllBlocksCleared) == {}


def test_events_are_frozen_and_slotted() -> None:
    for event in (BlockStored([1], [1]), BlockRemoved([1])):
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.medium = "CPU"  # type: ignore[misc]
        assert not hasattr(event, "__dict__")


# Errors.


def test_errors_have_builtin_bases_and_data() -> None:
    assert issubclass(kvindex.KvIndexError, Exception)
    assert issubclass(kvindex.ConfigError, (kvindex.KvIndexError, ValueError))
    assert issubclass(kvindex.ConfigError, ValueError)
    assert issubclass(kvindex.DecodeError, ValueError)
    assert issubclass(kvindex.UnknownWorkerError, LookupError)
    for error in (kvindex.ConfigError, kvindex.DecodeError, kvindex.UnknownWorkerError):
        assert issubclass(error, kvindex.KvIndexError)


def test_errors_are_pickled_with_their_data() -> None:
    with pytest.raises(kvindex.DecodeError) as caught:
        filled().apply(b"\x93\xc1", worker="w1")
    twin = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert type(twin) is kvindex.DecodeError
    assert (twin.offset, twin.event) == (caught.value.offset, None)
    assert str(twin) == str(caught.value)


def test_messages_are_lower_case_without_a_full_stop() -> None:
    index = filled()
    floats: Any = np.ones(4)
    calls: list[Any] = [
        lambda: kvindex.Indexer(block_size=0),
        lambda: index.match([], weights={"tape": 1.0}),
        lambda: index.match([-1]),
        lambda: index.match(floats),
        lambda: index.apply(b"\xc1", worker="w1"),
        lambda: index.register("w1", profile="unknown"),
    ]
    for call in calls:
        with pytest.raises((kvindex.KvIndexError, OverflowError, TypeError)) as caught:
            call()
        message = str(caught.value)
        assert not message.endswith(".")
        assert message[0] == message[0].lower()
        assert "\n" not in message


def test_blocks_are_counted_by_the_index_size() -> None:
    index = kvindex.Indexer(block_size=2 * BLOCK)
    index.apply([BlockStored([1], tokens("AB"))], worker="w1")
    assert list(index.match(tokens("AB")).depths) == [1]

"""What all engines share: how they are found, and how their decoders are used."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

import kvindex
from kvindex import AllBlocksCleared, BlockRemoved, BlockStored, DecodeError, engines
from kvindex.engines import Batch, Engine
from tests import wire
from tests.helpers import BLOCK, depths, name, names, tokens

BUILT_IN = {"auto", "vllm", "sglang"}


@dataclass
class Letters:
    """Reads a word: each letter is a block below the one before it.

    "-" in front removes the word's last block instead, "!" is no word, and a
    digit is a number of the stream's own.
    """

    block_size: int
    words: list[str] = field(default_factory=list)
    resets: list[int | None] = field(default_factory=list)

    def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
        """Read words, separated by blanks."""
        if "!" in payload:
            message = f"{payload!r} is no word"
            raise DecodeError(message)
        batches = [self._batch(word) for word in payload.split()]
        self.words.extend(payload.split())
        return batches

    def _batch(self, word: str) -> Batch:
        if word == "raw":
            return Batch(wire.batch([wire.stored_map([name("R")], tokens("R"))], 7))
        seq = int(word[0]) if word[0].isdigit() else None
        word = word.lstrip("0123456789")
        if word.startswith("-"):
            return Batch([BlockRemoved([name(word[1:])])], dp_rank=2, seq=seq)
        hashes = names(*(word[: i + 1] for i in range(len(word))))
        stored = BlockStored(hashes, tokens(word), block_size=self.block_size)
        return Batch([stored], dp_rank=2, seq=seq, source="letters")

    def reset(self, dp_rank: int | None) -> None:
        """Note the call."""
        self.resets.append(dp_rank)
        self.words.clear()


made: list[Letters] = []


def make(block_size: int) -> Letters:
    made.append(Letters(block_size))
    return made[-1]


LETTERS = Engine(name="test-letters", title="letters", decoder=make)
OTHERS = Engine(name="test-others", title="others", decoder=make)
HABITS = Engine(
    name="test-habits",
    title="habits",
    kind="vllm",
    clears=("host",),
    copies=(),
    media={"tape": "disk"},
    names="own",
    root_hash=7,
    lora_ids={1: "adapter"},
    chunk_tokens={"host": 2 * BLOCK},
)
for engine in (LETTERS, OTHERS, HABITS):
    engines.add(engine)


@pytest.fixture
def index() -> kvindex.Indexer:
    made.clear()
    return kvindex.Indexer(block_size=BLOCK)


def test_engines_are_found_by_name() -> None:
    for known in engines.names():
        assert engines.find(known).name == known
    assert set(engines.names()) >= BUILT_IN
    assert list(engines.names()) == sorted(engines.names())


def test_an_unknown_profile_is_an_error_that_lists_the_known_ones(
    index: kvindex.Indexer,
) -> None:
    with pytest.raises(kvindex.ConfigError) as caught:
        index.register("w1", profile="vlm")
    for known in engines.names():
        assert known in str(caught.value)
    assert "'vlm'" in str(caught.value)


def test_a_name_is_given_once() -> None:
    engines.add(LETTERS)
    with pytest.raises(kvindex.ConfigError, match="'vllm' is known already"):
        engines.add(Engine(name="vllm", title="another"))
    with pytest.raises(kvindex.ConfigError, match="must not be empty"):
        engines.add(Engine(name="", title="nobody"))
    assert engines.find("vllm").title == "vLLM"


@pytest.mark.parametrize(
    ("engine", "error"),
    [
        (Engine(name="test-kind", title="", kind="trt"), kvindex.ConfigError),  # type: ignore[arg-type]
        (Engine(name="test-tier", title="", clears=("gpu",)), kvindex.ConfigError),  # type: ignore[arg-type]
        (Engine(name="test-names", title="", names="his"), kvindex.ConfigError),  # type: ignore[arg-type]
        (Engine(name="test-text", title="", copies="host"), TypeError),  # type: ignore[arg-type]
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_setting_that_is_none_is_refused_by_register(
    index: kvindex.Indexer, engine: Engine, error: type[Exception]
) -> None:
    engines.add(engine)
    with pytest.raises(error):
        index.register("w1", profile=engine.name)
    assert index.remove_worker("w1") is False


def test_all_habits_of_an_engine_are_its_workers(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-habits")
    store = [
        BlockStored([1], tokens("A"), 7, medium="tape"),
        BlockStored([2], tokens("B"), medium="GPU", lora_id=1),
        BlockStored([2], tokens("B"), medium="GPU", lora_id=1),
        BlockStored([3], tokens("C"), medium="CPU"),
    ]
    report = index.apply(store, worker="w1")
    assert (report.stored, report.ignored) == (4, 0)
    assert index.match(tokens("A")).to_dict()["disk"] == [1]
    assert len(index.match(tokens("B"), lora_name="adapter")) == 1
    # A set: the first removal takes it.
    index.apply([BlockRemoved([2], "GPU")], worker="w1")
    assert len(index.match(tokens("B"), lora_name="adapter")) == 0
    index.apply([AllBlocksCleared()], worker="w1")
    assert depths(index, "A") == {"w1": 1}
    assert depths(index, "C") == {}
    # A name without tokens is a chunk of two blocks, and only its own.
    index.apply([BlockStored(names("D", "DE"), tokens("DE"))], worker="w1")
    index.apply([BlockStored([name("DE")], [], medium="CPU")], worker="w1")
    index.apply([BlockRemoved(names("D", "DE"))], worker="w1")
    assert depths(index, "DE") == {"w1": 2}
    assert depths(index, "D") == {}
    index.register("w2", profile="test-habits")
    unknown = index.apply([BlockStored([1], [], medium="GPU")], worker="w2")
    assert unknown.reasons == {"unresolved": 1}


def test_what_register_is_given_wins_over_the_engine(index: kvindex.Indexer) -> None:
    index.register(
        "w1",
        profile="test-habits",
        clears=("disk",),
        copies=("device",),
        media={"tape": "host"},
        names="shared",
        root_hash=8,
        lora_ids={1: "another"},
        chunk_tokens={"host": BLOCK},
    )
    index.apply([BlockStored([1], tokens("A"), 8, medium="tape")], worker="w1")
    assert index.match(tokens("A")).to_dict()["host"] == [1]
    index.apply([AllBlocksCleared()], worker="w1")
    assert depths(index, "A") == {"w1": 1}
    twice = BlockStored([2], tokens("B"), lora_id=1)
    index.apply([twice, twice, BlockRemoved([2])], worker="w1")
    assert len(index.match(tokens("B"), lora_name="another")) == 1


def test_payloads_go_through_the_decoder(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    report = index.apply("AB X", worker="w1", dp_rank=5)
    assert (report.stored, report.dp_rank, report.status) == (3, 2, "ok")
    assert depths(index, "ABC") == {"w1@2": 2}
    assert index.apply("-AB", worker="w1").removed == 1
    assert depths(index, "AB") == {"w1@2": 1}
    assert [decoder.block_size for decoder in made] == [BLOCK]


def test_bytes_of_a_decoder_are_read_by_the_core(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    assert index.apply("raw", worker="w1").dp_rank == 7
    assert depths(index, "R") == {"w1@7": 1}


def test_event_objects_pass_the_decoder_by(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    index.apply([BlockStored(names("A"), tokens("A"))], worker="w1")
    index.apply((), worker="w1", seq=1)
    assert depths(index, "A") == {"w1": 1}
    assert made[0].words == []


def test_other_workers_have_no_decoder(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    with pytest.raises(TypeError, match="a payload must be a bytes-like object"):
        index.apply("AB", worker="w2")


def test_numbers_of_the_source_make_gaps_and_duplicates(
    index: kvindex.Indexer,
) -> None:
    index.register("w1", profile="test-letters")
    assert index.apply("1A 2AB", worker="w1").status == "ok"
    report = index.apply("5ABC 8X 9Y", worker="w1")
    assert (report.status, report.gap) == ("gap", (3, 7))
    again = index.apply("8XY", worker="w1")
    assert (again.status, again.stored) == ("duplicate", 0)
    partly = index.apply("9Z", worker="w1", seq=77)
    assert partly.status == "duplicate"
    assert index.apply("9Z 0Q", worker="w1").status == "duplicate"


def test_numbers_of_source_and_call_are_not_mixed(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    index.apply([], worker="w1", dp_rank=2, seq=7)
    index.apply("-X", worker="w1", seq=8)
    assert index.apply("1-X", worker="w1", seq=9).status == "ok"
    assert index.apply("2-X", worker="w1", seq=9).status == "ok"
    assert index.apply("1-X", worker="w1", seq=10).status == "duplicate"
    assert index.apply("-X", worker="w1", seq=9).status == "ok"


def test_the_calls_number_is_that_of_payloads_without(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    assert index.apply("A", worker="w1", seq=4).status == "ok"
    assert index.apply("X", worker="w1", seq=4).status == "duplicate"
    assert index.apply("X", worker="w1", seq=7).gap == (5, 6)


def test_a_payload_without_batches_moves_the_calls_number_on(
    index: kvindex.Indexer,
) -> None:
    index.register("w1", profile="test-letters")
    for seq in (4, 5):
        report = index.apply("", worker="w1", dp_rank=3, seq=seq)
        assert (report.status, report.dp_rank) == ("ok", 3)
    assert index.apply("", worker="w1", dp_rank=3, seq=7).gap == (6, 6)


def test_an_undecodable_payload_changes_nothing(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    index.apply("A", worker="w1", seq=1)
    with pytest.raises(kvindex.DecodeError, match="'AB !' is no word"):
        index.apply("AB !", worker="w1", seq=2)
    assert depths(index, "AB") == {"w1@2": 1}
    assert index.apply("X", worker="w1", seq=2).status == "ok"
    assert index.stats()["batches"]["undecodable"] == 1


def test_strict_applying_leaves_no_trace_of_what_it_refuses(
    index: kvindex.Indexer,
) -> None:
    class Doubtful(Letters):
        def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
            faulty = BlockStored([1, 1], tokens("ZZ"))
            return [*super().decode(payload), Batch([faulty])]

    doubtful = Engine(name="test-doubtful", title="", decoder=Doubtful)
    engines.add(doubtful)
    index.register("w1", profile="test-doubtful")
    with pytest.raises(kvindex.DecodeError, match="duplicate_hash"):
        index.apply("AB", worker="w1", strict=True)
    assert index.workers() == []
    index.register("w2", profile="test-letters")
    index.apply("AB", worker="w2", strict=True)
    index.apply("C", worker="w2")
    assert depths(index, "AB") == {"w2@2": 2}


def test_a_decoder_is_where_it_was_after_a_strict_refusal(
    index: kvindex.Indexer,
) -> None:
    @dataclass
    class Counting:
        seen: int = 0

        def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
            self.seen += 1
            hashes = [self.seen, self.seen] if payload == "bad" else [self.seen]
            return [Batch([BlockStored(hashes, tokens("AB"[: len(hashes)]))])]

        def reset(self, dp_rank: int | None) -> None:
            raise NotImplementedError(dp_rank)

    engines.add(Engine(name="test-counting", title="", decoder=lambda _: Counting()))
    index.register("w1", profile="test-counting")
    with pytest.raises(kvindex.DecodeError):
        index.apply("bad", worker="w1", strict=True)
    index.apply("good", worker="w1", strict=True)
    index.apply("good", worker="w1")
    assert list(index.match_names([1]).depths) == [1]
    assert list(index.match_names([2]).depths) == [1]
    assert len(index.match_names([3])) == 0


def test_a_removed_worker_has_no_decoder(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    index.remove_worker("w1")
    with pytest.raises(TypeError):
        index.apply("AB", worker="w1")
    index.register("w1", profile="test-letters")
    index.apply("AB", worker="w1")
    assert [decoder.words for decoder in made] == [[], ["AB"]]


def test_registering_again_keeps_the_decoder_of_the_same_engine(
    index: kvindex.Indexer,
) -> None:
    index.register("w1", profile="test-letters")
    index.apply("AB", worker="w1")
    index.register("w1", profile="test-letters", clears=("host",))
    index.apply("C", worker="w1")
    assert made[0].words == ["AB", "C"]
    index.register("w1", profile="test-others")
    index.apply("D", worker="w1")
    assert made[0].words == ["AB", "C"]
    assert made[-1].words == ["D"]
    index.register("w1", profile="vllm")
    with pytest.raises(TypeError):
        index.apply("E", worker="w1")


def test_a_payload_of_an_ended_epoch_is_counted_and_leaves_no_trace(
    index: kvindex.Indexer,
) -> None:
    old = index.register("w1", profile="test-letters")
    index.remove_worker("w1")
    new = index.register("w1", profile="test-letters")
    report = index.apply("AB", worker="w1", epoch=old)
    assert report.reasons == {"epoch": 2}
    assert made[1].words == []
    assert index.apply("AB", worker="w1", epoch=new).stored == 2
    assert made[1].words == ["AB"]


def test_the_decoder_forgets_what_the_index_forgets(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    index.register("w2", profile="test-letters")
    index.reset("w1", dp_rank=2)
    assert [decoder.resets for decoder in made] == [[2], []]
    index.clear()
    assert [decoder.resets for decoder in made] == [[2, None], [None]]


def test_errors_of_a_decoder_reach_the_caller(index: kvindex.Indexer) -> None:
    index.register("w1", profile="test-letters")
    with pytest.raises(TypeError):
        index.apply(None, worker="w1")  # type: ignore[arg-type]
    assert index.apply("A", worker="w1").stored == 1


def test_a_decoder_that_cannot_be_made_registers_nobody(
    index: kvindex.Indexer,
) -> None:
    def refuse(block_size: int) -> Letters:
        message = f"blocks of {block_size} tokens are not for me"
        raise kvindex.ConfigError(message)

    engines.add(Engine(name="test-refusing", title="", decoder=refuse))
    with pytest.raises(kvindex.ConfigError, match="blocks of 4 tokens"):
        index.register("w1", profile="test-refusing")
    assert index.remove_worker("w1") is False


def test_a_decoder_reads_one_payload_at_a_time(index: kvindex.Indexer) -> None:
    inside: list[int] = []
    most: list[int] = []

    class Watched(Letters):
        def decode(self, payload: Any) -> list[Batch]:  # noqa: ANN401
            inside.append(1)
            # Lets the other threads run.
            threading.Event().wait(0.001)
            most.append(len(inside))
            inside.pop()
            return super().decode(payload)

    engines.add(Engine(name="test-watched", title="", decoder=Watched))
    index.register("w1", profile="test-watched")
    threads = [
        threading.Thread(target=index.apply, args=(word,), kwargs={"worker": "w1"})
        for word in "ABCDEFGH"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8
    assert len(index) == 8

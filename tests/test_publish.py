"""The publisher for engines: read by the feed, and by a decoder of vLLM's wire.

The decoder is made of msgspec structs, written after the description of the format;
nothing of kvindex reads here what kvindex wrote.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import zmq

import kvindex
from kvindex.engines import pack_batch
from kvindex.feeds import Feed, Source
from kvindex.publish import Publisher
from tests.helpers import BLOCK, HEX, depths, name, names, split, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

ANY = "tcp://127.0.0.1:*"
END = b"\xff" * 8
PATIENCE_MS = 20_000


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True):  # noqa: D101
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True):  # noqa: D101
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, omit_defaults=True):  # noqa: D101
    pass


class KVEventBatch(msgspec.Struct, array_like=True):  # noqa: D101
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


DECODER = msgspec.msgpack.Decoder(KVEventBatch)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(ANY, replay=ANY, block_size=BLOCK, dp_rank=3, topic="kv") as open_:
        yield open_


def replayed(publisher: Publisher, start: int = 0) -> list[list[bytes]]:
    """Ask for a replay; return its answers without the end marker."""
    assert publisher.replay is not None
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(publisher.replay)
        dealer.send_multipart([b"", start.to_bytes(8, "big")])
        answers: list[list[bytes]] = []
        while True:
            assert dealer.poll(PATIENCE_MS)
            frames = dealer.recv_multipart()
            if frames[-2] == END:
                assert frames == [b"", b"", END, b""]
                return answers
            answers.append(frames)


def decoded(publisher: Publisher) -> list[KVEventBatch]:
    return [DECODER.decode(frames[-1]) for frames in replayed(publisher)]


def test_a_decoder_of_the_wire_reads_every_event(publisher: Publisher) -> None:
    keys: list[Any] = [["adapter", [HEX["a"], 0], "salt"], None]
    publisher.store(
        names("A", "AB"), tokens("AB"), lora_name="adapter", extra_keys=keys
    )
    publisher.store([b"x" * 32], tokens("C"), name("AB"), medium="CPU")
    assert publisher.publish() == 0
    publisher.remove([name("AB"), -1])
    publisher.clear()
    assert publisher.publish() == 1
    first, second = decoded(publisher)
    assert first.data_parallel_rank == 3
    assert first.ts > 0
    assert first.events == [
        BlockStored(
            block_hashes=list(names("A", "AB")),
            parent_block_hash=None,
            token_ids=tokens("AB"),
            block_size=BLOCK,
            lora_id=None,
            medium="GPU",
            lora_name="adapter",
            extra_keys=keys,
        ),
        BlockStored(
            block_hashes=[b"x" * 32],
            parent_block_hash=name("AB"),
            token_ids=tokens("C"),
            block_size=BLOCK,
            lora_id=None,
            medium="CPU",
            lora_name=None,
        ),
    ]
    assert second.events == [
        BlockRemoved(block_hashes=[name("AB"), 2**64 - 1], medium="GPU"),
        AllBlocksCleared(),
    ]


def test_frames_are_topic_number_and_payload() -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.subscribe(b"kv")
        port = subscriber.bind_to_random_port("tcp://127.0.0.1")
        # An endpoint without a wildcard is connected to.
        endpoint = f"tcp://127.0.0.1:{port}"
        with Publisher(endpoint, block_size=BLOCK, topic="kv@1") as publisher:
            assert publisher.endpoint == endpoint
            assert publisher.replay is None
            last: int | None = None
            while not subscriber.poll(20):
                publisher.clear()
                last = publisher.publish()
            topic, number, payload = subscriber.recv_multipart()
    assert topic == b"kv@1"
    assert last is not None
    assert int.from_bytes(number, "big") <= last
    assert DECODER.decode(payload).events == [AllBlocksCleared()]


def test_a_feed_keeps_an_index_up_to_date(publisher: Publisher) -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    publisher.store(names("A", "AB"), tokens("AB"))
    publisher.publish()
    source = Source("w1", publisher.endpoint, replay=publisher.replay, topic="kv")
    with Feed(index, [source]) as feed:
        assert feed.wait(until={"w1": 0})
        assert depths(index, "AB") == {"w1@3": 2}
        publisher.store(names("A", "AB"), tokens("AB"), medium="CPU")
        publisher.store(names("ABC"), tokens("C"), name("AB"), medium="CPU")
        publisher.remove(names("AB"))
        seq = publisher.publish()
        assert seq is not None
        assert feed.wait(until={"w1": seq})
        (row,) = index.match(tokens("ABC"))
        assert split(row) == (1, 2, 0, 0)
        publisher.clear("CPU")
        seq = publisher.publish()
        assert seq is not None
        assert feed.wait(until={"w1": seq})
        (row,) = index.match(tokens("ABC"))
        assert split(row) == (1, 0, 0, 0)
        publisher.clear()
        seq = publisher.publish()
        assert seq is not None
        assert feed.wait(until={"w1": seq})
        assert len(index) == 0
        (state,) = feed.sources()
        assert state.lost == 0


def test_a_replay_begins_where_it_is_asked_to(publisher: Publisher) -> None:
    for letter in "ABC":
        publisher.store(names(letter), tokens(letter))
        publisher.publish()
    answers = replayed(publisher, 1)
    assert [frames[:-1] for frames in answers] == [
        [b"", b"kv", (1).to_bytes(8, "big")],
        [b"", b"kv", (2).to_bytes(8, "big")],
    ]
    assert replayed(publisher, 9) == []


def test_a_replay_keeps_the_latest_batches() -> None:
    with Publisher(ANY, replay=ANY, block_size=BLOCK, buffer_batches=2) as publisher:
        for _ in range(5):
            publisher.clear()
            publisher.publish()
        numbers = [int.from_bytes(each[-2], "big") for each in replayed(publisher)]
    assert numbers == [3, 4]


def test_a_request_of_another_shape_is_not_answered(publisher: Publisher) -> None:
    assert publisher.replay is not None
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(publisher.replay)
        dealer.send_multipart([b""])
        dealer.send_multipart([b"", b"1"])
        dealer.send_multipart([b"", END, b""])
        dealer.send_multipart([b"", (0).to_bytes(8, "big")])
        assert dealer.poll(PATIENCE_MS)
        assert dealer.recv_multipart() == [b"", b"", END, b""]
        assert not dealer.poll(50)


def test_nothing_said_is_nothing_sent(publisher: Publisher) -> None:
    assert publisher.publish() is None
    publisher.clear("CPU")
    assert publisher.publish() is None
    publisher.clear()
    assert publisher.publish() == 0


def test_a_tiers_clear_removes_every_copy_that_is_left(publisher: Publisher) -> None:
    publisher.store(names("A"), tokens("A"))
    publisher.store(names("A", "AB"), tokens("AB"))
    publisher.store(names("A"), tokens("A"), medium="CPU")
    publisher.remove(names("AB", "X"))
    # A removal of what was not there owes nothing.
    publisher.store(names("X"), tokens("X"))
    publisher.publish()
    publisher.clear("GPU")
    publisher.publish()
    gone = BlockRemoved(block_hashes=list(names("A", "A", "X")), medium="GPU")
    assert decoded(publisher)[-1].events == [gone]
    # Once cleared, there is nothing left to clear.
    publisher.clear("GPU")
    assert publisher.publish() is None
    publisher.clear()
    publisher.clear("CPU")
    publisher.publish()
    assert decoded(publisher)[-1].events == [AllBlocksCleared()]


@pytest.mark.parametrize(
    ("hashes", "text", "options", "error"),
    [
        ([1], tokens("AB"), {}, kvindex.ConfigError),
        ([1, 2], tokens("A"), {}, kvindex.ConfigError),
        ([1], [-1, 2, 3, 4], {}, kvindex.DecodeError),
        (["1"], tokens("A"), {}, kvindex.DecodeError),
        ([1], tokens("A"), {"extra_keys": []}, kvindex.DecodeError),
        ([1], tokens("A"), {"lora_name": 5}, kvindex.DecodeError),
    ],
    ids=str,
)
def test_what_nobody_could_read_is_refused_at_once(
    publisher: Publisher,
    hashes: Any,  # noqa: ANN401
    text: Any,  # noqa: ANN401
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        publisher.store(hashes, text, **options)
    assert publisher.publish() is None
    publisher.clear("GPU")
    assert publisher.publish() is None


def test_a_removal_that_nobody_could_read_is_refused(publisher: Publisher) -> None:
    with pytest.raises(kvindex.DecodeError):
        publisher.remove(["1"])  # type: ignore[list-item]
    assert publisher.publish() is None


@pytest.mark.parametrize("setting", [{"block_size": 0}, {"buffer_batches": 0}], ids=str)
def test_settings_out_of_range_are_config_errors(setting: dict[str, int]) -> None:
    settings: dict[str, Any] = {"block_size": BLOCK} | setting
    with pytest.raises(kvindex.ConfigError, match="must be 1 or more, not 0"):
        Publisher(ANY, **settings)


def test_an_endpoint_that_is_taken_is_an_error(publisher: Publisher) -> None:
    assert publisher.replay is not None
    with pytest.raises(zmq.ZMQError):
        Publisher(ANY, block_size=BLOCK, replay=publisher.replay)


def test_closing_twice_is_harmless() -> None:
    publisher = Publisher(ANY, replay=ANY, block_size=BLOCK)
    before = threading.active_count()
    publisher.close()
    publisher.close()
    assert threading.active_count() < before


def test_threads_may_publish_together(publisher: Publisher) -> None:
    def say(letter: str) -> None:
        for _ in range(50):
            publisher.store(names(letter), tokens(letter))
            publisher.publish()

    threads = [threading.Thread(target=say, args=(letter,)) for letter in "ABCD"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    publisher.publish()
    answers = replayed(publisher)
    numbers = [int.from_bytes(frames[-2], "big") for frames in answers]
    assert numbers == list(range(len(answers)))
    said = [event for batch in decoded(publisher) for event in batch.events]
    assert len(said) == 200


def test_a_batch_that_is_packed_is_checked() -> None:
    events: list[Any] = [kvindex.AllBlocksCleared(), kvindex.BlockRemoved(None)]  # type: ignore[arg-type]
    with pytest.raises(kvindex.DecodeError) as caught:
        pack_batch(events, timestamp=0.0)
    assert caught.value.event == 1
    with pytest.raises(TypeError):
        pack_batch([5], timestamp=0.0)  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        pack_batch([], timestamp=0.0, dp_rank=-1)

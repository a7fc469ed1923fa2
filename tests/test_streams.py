"""Every captured vLLM and SGLang stream is exact, tier by tier.

The truth comes from the engines' pools (the streams' descriptions), joined with
prompts by hashes that the engine or hashlib computed. Nothing expected here was
ever taken from an answer of the index.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import kvindex
from tests.streams import TIERS, Request, State, Stream, load, low64, names_of, wire

WORKER = "engine"
WEIGHTS = {"device": 1.0, "host": 0.75, "disk": 0.25, "external": 0.25}
DEVICE_ONLY = {"clears": ("device",)}


@dataclass(frozen=True)
class Row:
    """How one stream is read, and why."""

    name: str
    why: str
    end: dict[str, Any] = field(default_factory=dict)
    """Options of `register` for the state at the end; none = the profile's own."""
    checkpoints: dict[str, Any] = field(default_factory=dict)
    """Options for the states on the way."""
    restart: bool = False
    """The engine restarted on the way; its feed has to notice."""
    untold: int = 0
    """Rows that the wire cannot tell, since it leaves the namespace out."""
    phantoms: bool = False
    """Blocks may be credited longer than they live, within a bound."""


VLLM = [
    Row(
        "a_gpu_only",
        "Repeated prompts make second copies of a block: copies are counted.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "a2_gpu_report_full",
        "Not exact, bounded: the engine announces prefix hits again, and nothing on "
        "the wire tells that from a second copy. Never too few blocks; too many only "
        "among those announced again.",
        phantoms=True,
    ),
    Row(
        "b_dp2",
        "Two ranks count their sequence numbers from 0 each; the rank in the batch "
        "keeps them apart.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "c1_offload_sd",
        "The checkpoints follow a reset of the GPU alone, the end one of both tiers; "
        "both send the same clear.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "c2_offload_sd_chunk256",
        "As c1. Chunks of 256 tokens name all their 16 blocks, so no chunk size is "
        "needed; a block in two chunks has two copies.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "c4_tiering_fs_local",
        "Three tiers, no reset. Nothing is ever removed from the disk tier.",
    ),
    Row(
        "c6_simple_cpu_offload",
        "The end follows two clears in one batch: GPU first, then the connector's.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "c8_tiering_obj",
        "As c4 with an object store: 71 blocks are the objects that its bucket lists. "
        "The engine's own pools and tiers, driven without its scheduler and a model.",
    ),
    Row(
        "d1_offload_placeholder",
        "Host stores carry no tokens: they mean the block known under their name. A "
        "chunk is one block here, so no chunk size is needed. Resets as c1.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "e_lora_salt_mm",
        "LoRA, salt and images apart. 65 names are 60 blocks: one adapter was loaded "
        "from two paths, and the path is not on the wire.",
    ),
    Row(
        "f1_hybrid_full_swa",
        "The sliding-window group is skipped and counted (group): depths are those of "
        "the full-attention group. With group rules: see below.",
    ),
    Row(
        "f3_hybrid_full_mamba",
        "As f1 with a Mamba group, and blocks of 64 tokens.",
    ),
    Row(
        "g_sha256_bytes",
        "Names of 32 bytes.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "g_sha256_cbor_int64",
        "Names of 64 bits of another hash function.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "g_xxhash_cbor_bytes",
        "Names of 16 bytes.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "h_vllm_0.11.0",
        "Positional events without extra keys: the salt is not on the wire, so a "
        "salted prompt is filed as a plain one. By names it is exact.",
        checkpoints=DEVICE_ONLY,
        untold=1,
    ),
    Row(
        "h_vllm_0.19.1",
        "Positional events; the salt stands in the first block's extra keys.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "h_vllm_0.22.1_offload",
        "The reset before the end kept the host tier, so the end needs the option "
        "too. Host names are bytes, GPU names integers: joined by their last 8 bytes. "
        "The checkpoint recorded the GPU only.",
        end=DEVICE_ONLY,
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "h_vllm_0.25.1",
        "Events as maps.",
        checkpoints=DEVICE_ONLY,
    ),
    Row(
        "i_replay_small_buffer",
        "Plain; its replay exchange, with a buffer of 8 batches, is the feed's case.",
    ),
    Row(
        "j_publisher_restart",
        "The engine restarts without a word. Exact when the feed notices the sequence "
        "going back and resets the worker; without a feed the new engine's batches "
        "look like duplicates.",
        checkpoints=DEVICE_ONLY,
        restart=True,
    ),
]

SGLANG = [
    Row("gpu_dp_rank3", "The rank in the batches is 3."),
    Row("gpu_eagle_bigram", "Blocks are keyed by pairs of tokens (EAGLE)."),
    Row(
        "gpu_lora_dynamo",
        "Adapters by name; the query gives the name.",
    ),
    Row(
        "gpu_namespaces_default",
        "Tenants share names and copies; counting keeps a block until the last one "
        "leaves. The salt is on the wire.",
    ),
    Row(
        "gpu_namespaces_dynamo",
        "Tenants have names of their own but are not on the wire: a prompt matches "
        "what any tenant holds of it. By names it is exact.",
        untold=12,
    ),
    Row("gpu_ps16", "Pages of 16 tokens."),
    Row("gpu_ps4", "Pages of 4 tokens; a flush clears every tier."),
    Row(
        "hicache_l3_file_storage",
        "Nothing is announced for the storage behind the host tier: what lies only "
        "there is not resident.",
    ),
    Row(
        "hicache_write_back",
        "Host blocks arrive when their parent is on the GPU only: parents are looked "
        "for on every tier.",
    ),
    Row("hicache_write_through", "Two tiers with a flush in between."),
    Row("old_v0.5.19_radix_ps4", "Positional events, several blocks each."),
    Row("old_v0.5.9_radix_ps4", "Positional events, one block each."),
    Row("rustcore_hi_wt", "Two tiers, from the engine's Rust tree."),
]

TABLE = {"vllm": VLLM, "sglang": SGLANG}
ROWS = [(family, row) for family, rows in TABLE.items() for row in rows]
STATES = [
    (family, row, state)
    for family, row in ROWS
    for state in load(family, row.name).states
]


def fully_recorded(stream: Stream, state: State) -> bool:
    """Tell whether a state gives all the tiers that the stream has."""
    return all(
        state.resident[rank].keys() == tiers.keys()
        for rank, tiers in stream.final.resident.items()
    )


def states(chosen: list[tuple[str, Row, State]]) -> pytest.MarkDecorator:
    cases = [
        pytest.param(*case, id=f"{case[1].name}@{case[2].after}") for case in chosen
    ]
    return pytest.mark.parametrize(("family", "row", "state"), cases)


EXACT = [case for case in STATES if not case[1].phantoms]
each_state = states(STATES)
each_exact_state = states(EXACT)
each_exact_state_on_every_tier = states(
    [case for case in EXACT if fully_recorded(load(case[0], case[1].name), case[2])]
)
each_stream = pytest.mark.parametrize(
    ("family", "row"), [pytest.param(*pair, id=pair[1].name) for pair in ROWS]
)


def options(row: Row, state: State, stream: Stream) -> dict[str, Any]:
    return row.end if state is stream.final else row.checkpoints


def replay(
    stream: Stream,
    row: Row,
    state: State,
    **registered: Any,  # noqa: ANN401 - the options of `register`
) -> tuple[kvindex.Indexer, Counter[str]]:
    """Apply a stream up to a state; return the index and the sum of the reports."""
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register(WORKER, profile=stream.family, **registered)
    total: Counter[str] = Counter()
    for number, message in enumerate(stream.messages[: state.after]):
        if row.restart and number == stream.meta["restart_at_batch_index"]:
            for rank in state.resident:
                index.reset(WORKER, dp_rank=rank)
        report = index.apply(message.payload, worker=WORKER, seq=message.seq)
        assert report.status == "ok"
        total.update(
            stored=report.stored,
            removed=report.removed,
            cleared=report.cleared,
            ignored=report.ignored,
        )
        total.update(report.reasons)
    return index, total


def nearest(keys: list[Any], held: dict[str, Any]) -> list[str]:
    """Return the nearest tier of each leading key that is held."""
    tiers = (next((t for t in TIERS if key in held.get(t, ())), "") for key in keys)
    return list(takewhile(bool, tiers))


def by_name(request: Request, state: State, rank: int) -> list[str]:
    return nearest([low64(name) for name in request.names], state.resident[rank])


def by_content(stream: Stream, request: Request, state: State, rank: int) -> list[str]:
    """As `by_name`, with no more distinctions than the wire makes."""
    known = wire.contents(stream.family, stream.name)
    held = {
        tier: {known[name] for name in names}
        for tier, names in state.resident[rank].items()
    }
    return nearest(wire.request_contents(stream, request), held)


def row_of(tiers: list[str]) -> tuple[float, ...]:
    counts = Counter(tiers)
    score = sum(WEIGHTS[tier] * number for tier, number in counts.items())
    return (len(tiers), *(counts[tier] for tier in TIERS), score)


def answer(found: kvindex.Matches) -> tuple[float, ...]:
    (row,) = found
    assert row.worker == WORKER
    return (row.depth, row.device, row.host, row.disk, row.external, row.score)


def test_every_captured_stream_has_its_row() -> None:
    for family, rows in TABLE.items():
        assert sorted(row.name for row in rows) == names_of(family)


@each_stream
def test_the_descriptions_agree_with_the_engines_own_tree_walk(
    family: str, row: Row
) -> None:
    stream = load(family, row.name)
    for request in stream.requests:
        if request.walked is None:
            continue
        tiers = by_name(request, stream.final, request.rank)
        on_device = len(list(takewhile(lambda tier: tier == "device", tiers)))
        assert (on_device, len(tiers)) == request.walked


@each_stream
def test_the_wire_leaves_out_only_what_the_table_says(family: str, row: Row) -> None:
    stream = load(family, row.name)
    untold = sum(
        by_name(request, state, rank) != by_content(stream, request, state, rank)
        for state in stream.states
        for rank in state.resident
        for request in stream.requests
    )
    assert untold == row.untold


@each_exact_state
def test_workers_counts_the_distinct_blocks_of_every_pool(
    family: str, row: Row, state: State
) -> None:
    stream = load(family, row.name)
    index, _ = replay(stream, row, state, **options(row, state, stream))
    known = wire.contents(family, row.name)
    counted = {held.dp_rank: held for held in index.workers()}
    assert counted.keys() >= state.resident.keys()
    for rank, held in counted.items():
        for tier, names in state.resident.get(rank, {}).items():
            assert getattr(held, tier) == len({known[name] for name in names}), tier
        assert held.worker == WORKER
        assert held.orphans == 0


@each_exact_state_on_every_tier
def test_every_request_matches_what_the_engine_holds(
    family: str, row: Row, state: State
) -> None:
    stream = load(family, row.name)
    index, _ = replay(stream, row, state, **options(row, state, stream))
    for rank in state.resident:
        for request in stream.requests:
            who = [(WORKER, rank)]
            found = index.match(request.tokens, workers=who, **request.options)
            expected = row_of(by_content(stream, request, state, rank))
            assert answer(found) == pytest.approx(expected), request.label


@each_exact_state_on_every_tier
def test_every_request_matches_by_the_engines_own_names(
    family: str, row: Row, state: State
) -> None:
    stream = load(family, row.name)
    index, _ = replay(stream, row, state, **options(row, state, stream))
    for rank in state.resident:
        for request in stream.requests:
            found = index.match_names(request.names, workers=[(WORKER, rank)])
            expected = row_of(by_name(request, state, rank))
            assert answer(found) == pytest.approx(expected), request.label


@each_state
def test_every_hash_on_the_wire_is_applied_or_counted(
    family: str, row: Row, state: State
) -> None:
    stream = load(family, row.name)
    _, total = replay(stream, row, state, **options(row, state, stream))
    expected = wire.counts(stream, state.after)
    assert total["stored"] == expected.stored
    assert total["removed"] == expected.removed
    assert total["cleared"] == expected.cleared
    assert total["ignored"] == total["group"] == expected.other_groups
    reasons = total.keys() - {"stored", "removed", "cleared", "ignored", "group"}
    assert not reasons


def test_announcing_again_credits_too_much_within_a_bound() -> None:
    row = next(row for row in VLLM if row.phantoms)
    stream = load("vllm", row.name)
    index, _ = replay(stream, row, stream.final)
    stored: Counter[int] = Counter()
    for message in stream.messages:
        for event in wire.events(message.payload):
            if event["type"] == "BlockStored":
                stored.update(map(low64, event["block_hashes"]))
    truth = stream.final.resident[0]["device"]
    again = {name for name, times in stored.items() if times > 1}
    (held,) = index.workers()
    assert len(truth) <= held.device <= len(truth | dict.fromkeys(again, 1))
    for request in stream.requests:
        names = [low64(name) for name in request.names]
        (found,) = index.match(request.tokens, workers=[WORKER])
        least = len(nearest(names, {"device": truth}))
        most = len(nearest(names, {"device": truth.keys() | again}))
        assert least <= found.depth <= most


def test_without_a_feed_a_restarted_engine_looks_like_duplicates() -> None:
    stream = load("vllm", "j_publisher_restart")
    restart = stream.meta["restart_at_batch_index"]
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register(WORKER, profile="vllm")
    for message in stream.messages[:restart]:
        index.apply(message.payload, worker=WORKER, seq=message.seq)
    (before,) = index.workers()
    for message in stream.messages[restart : 2 * restart]:
        report = index.apply(message.payload, worker=WORKER, seq=message.seq)
        assert report.status == "duplicate"
        assert report.stored == report.removed == 0
    (after,) = index.workers()
    assert after.duplicates == restart
    assert after.device == before.device


@pytest.mark.parametrize("name", ["c1_offload_sd", "d1_offload_placeholder"])
def test_the_two_kinds_of_reset_need_the_option_that_the_table_gives(
    name: str,
) -> None:
    row = next(row for row in VLLM if row.name == name)
    stream = load("vllm", name)
    _, device_only = stream.checkpoints
    cleared, _ = replay(stream, row, device_only)
    kept, _ = replay(stream, row, stream.final, **DEVICE_ONLY)
    assert cleared.workers()[0].host < len(device_only.resident[0]["host"])
    assert kept.workers()[0].host > len(stream.final.resident[0]["host"])


@pytest.mark.parametrize("number", [0, 1])
def test_a_chunk_counts_only_where_all_of_it_is_held_and_asked_for(
    number: int,
) -> None:
    row = next(row for row in VLLM if row.name == "c2_offload_sd_chunk256")
    stream = load("vllm", row.name)
    state = stream.checkpoints[number]
    index, _ = replay(stream, row, state, chunk_tokens={"host": 256}, **DEVICE_ONLY)
    pools = stream.meta["checkpoints"][number]["engines"]["0"]
    chunks = {entry["hash"] for entry in pools["CPU_chunks"]}
    blocks = 256 // stream.block_size
    for request in stream.requests:
        names = [low64(name) for name in request.names]
        host = {
            name
            for start in range(0, len(names) - blocks + 1, blocks)
            for name in names[start : start + blocks]
            if names[start + blocks - 1] in chunks
        }
        held = {"device": state.resident[0]["device"], "host": host}
        found = index.match(request.tokens, workers=[WORKER])
        assert answer(found) == pytest.approx(row_of(nearest(names, held)))


def rendered(rows: list[Row]) -> str:
    """Render one family's part of the table for the documentation."""
    lines = [
        "| stream | block | at the end | at checkpoints | why |",
        "|---|---|---|---|---|",
    ]
    for family, row in ROWS:
        if row in rows:
            stream = load(family, row.name)
            on_the_way = _shown(row.checkpoints) if stream.checkpoints else "-"
            lines.append(
                f"| {row.name} | {stream.block_size} | {_shown(row.end)} | "
                f"{on_the_way} | {row.why} |"
            )
    return "\n".join(lines)


def _shown(chosen: dict[str, Any]) -> str:
    if not chosen:
        return "defaults"
    return ", ".join(f"`{key}={value!r}`" for key, value in chosen.items())


@pytest.mark.parametrize("family", TABLE)
def test_the_documented_table_is_this_one(family: str) -> None:
    docs = Path(__file__).parents[1] / "docs" / "fixtures.md"
    assert rendered(TABLE[family]) in docs.read_text()

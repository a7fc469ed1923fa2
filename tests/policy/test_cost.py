"""The cost of a candidate is what the formula says, one candidate at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvindex
from kvindex.policy import Cost
from tests.policy.views import view

counts = st.integers(0, 100_000)
# Seldom more than a prompt and a queue have, or all that is computed would be zero.
held = st.integers(0, 200)
numbers = st.floats(0, 20, allow_nan=False)


@dataclass(frozen=True)
class Row:
    """One candidate's blocks by tier, and its load."""

    device: int
    host: int
    disk: int
    external: int
    prefill_tokens: int
    decode_blocks: int
    requests: int
    preference: float


rows = st.builds(Row, held, held, held, held, counts, counts, counts, st.floats(-3, 3))


def plain(
    row: Row,
    everybody: list[Row],
    cost: Cost,
    weights: dict[str, float],
    prompt_tokens: int,
    block_size: int,
    *,
    decodes_only: bool,
) -> float:
    """Compute one candidate's cost with plain numbers, term by term."""
    decay = 1.0
    if not decodes_only and cost.overlap_credit_decay > 0:
        floor = min(other.prefill_tokens for other in everybody)
        excess = (row.prefill_tokens - floor) / block_size
        blocks = max(1, math.ceil(prompt_tokens / block_size))
        decay = 1 / (1 + cost.overlap_credit_decay * excess / blocks)
    overlap = (
        weights["device"] * decay * row.device
        + weights["host"] * row.host
        + weights["disk"] * row.disk
        + weights["external"] * row.external
    )
    requests = cost.decode_active_request_weight * row.requests
    if decodes_only:
        credit = overlap if weights["device"] > 0 else 0.0
        total = max(0.0, row.decode_blocks - credit) + requests
    else:
        raw = (row.prefill_tokens + prompt_tokens) / block_size
        prefill = cost.prefill_load_scale * max(0.0, raw - overlap)
        total = prefill + row.decode_blocks + requests
    return total * math.exp(-math.tanh(row.preference))


@settings(deadline=None)
@given(
    st.lists(rows, min_size=1, max_size=6),
    st.builds(Cost, numbers, st.just(0.0) | numbers, numbers),
    st.fixed_dictionaries(
        dict.fromkeys(("device", "host", "disk", "external"), st.floats(0, 2))
    ),
    st.integers(0, 20_000),
    st.integers(1, 64),
    st.booleans(),
)
def test_costs_are_those_of_a_plain_computation(
    rows: list[Row],
    cost: Cost,
    weights: dict[str, float],
    prompt_tokens: int,
    block_size: int,
    decodes_only: bool,  # noqa: FBT001 - hypothesis passes them in order
) -> None:
    tiers = ("device", "host", "disk", "external")
    seen = view(
        scores=[
            sum(weights[tier] * getattr(row, tier) for tier in tiers) for row in rows
        ],
        device=[row.device for row in rows],
        prefill_tokens=[row.prefill_tokens for row in rows],
        decode_blocks=[row.decode_blocks for row in rows],
        requests=[row.requests for row in rows],
        prompt_tokens=prompt_tokens,
        block_size=block_size,
        device_weight=weights["device"],
        tracks_prefill=not decodes_only,
        preference=np.array([row.preference for row in rows]),
    )
    expected = [
        plain(
            row,
            rows,
            cost,
            weights,
            prompt_tokens,
            block_size,
            decodes_only=decodes_only,
        )
        for row in rows
    ]
    assert cost.costs(seen) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_a_cached_block_is_worth_one_block_of_prefill() -> None:
    seen = view(scores=[0.0, 4.0, 10.0, 99.0], device=[0, 4, 10, 99])
    assert Cost().costs(seen).tolist() == [10, 6, 0, 0]


def test_a_pool_that_decodes_looks_at_no_prefix_without_a_device_weight() -> None:
    seen = view(scores=[0.0, 3.0], decode_blocks=[5, 6], tracks_prefill=False)
    assert Cost().costs(seen).tolist() == [5, 3]
    without = replace(seen, device_weight=0.0)
    assert Cost().costs(without).tolist() == [5, 6]


def test_load_outweighs_a_prefix_that_is_shorter_than_the_queue() -> None:
    seen = view(scores=[8.0, 0.0], device=[8, 0], prefill_tokens=[16 * 9, 0])
    assert Cost().costs(seen).tolist() == [11, 10]


def test_a_decaying_credit_gives_way_to_a_queue() -> None:
    seen = view(scores=[8.0, 8.0], device=[8, 8], prefill_tokens=[160, 0])
    # The queue is as long as the prompt: half the credit is left.
    cost = Cost(overlap_credit_decay=1.0)
    assert cost.costs(seen).tolist() == [16, 2]
    # What all have to wait for takes no credit, nor does credit of other tiers fade.
    busy = replace(seen, prefill_tokens=np.array([320, 160]))
    assert cost.costs(busy).tolist() == [26, 12]
    host = replace(seen, device=np.array([0, 0]))
    assert cost.costs(host).tolist() == [12, 2]
    # A partial block of the prompt is one: ten blocks behind a queue of ten.
    partial = replace(seen, prompt_tokens=145)
    assert cost.costs(partial).tolist() == [145 / 16 + 10 - 4, 145 / 16 - 8]


@pytest.mark.parametrize(
    "name",
    ["prefill_load_scale", "overlap_credit_decay", "decode_active_request_weight"],
)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_number_without_a_meaning_is_refused_by_name(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(kvindex.ConfigError, match=name):
        replace(Cost(), **changes)

"""What running requests share is what sets of blocks say they share."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvindex.policy.chains import Chain, Chains

SLOTS = 4
# Few symbols, so that much is shared; more chains come than go.
paths = st.lists(st.integers(0, 1), max_size=5)
steps = st.lists(
    st.tuples(st.sampled_from((True, True, False)), st.integers(0, SLOTS - 1), paths),
    max_size=40,
)


def keys(path: list[int]) -> memoryview:
    """Return a key for each prefix of a path, in no order that means anything."""
    prefixes = [tuple(path[: end + 1]) for end in range(len(path))]
    numbers = [hash((prefix, "key")) & (2**64 - 1) for prefix in prefixes]
    return np.array(numbers, dtype=np.uint64).data


@settings(deadline=None, max_examples=200)
@given(steps, paths)
def test_shared_blocks_are_those_of_plain_sets(
    steps: list[tuple[bool, int, list[int]]], asked: list[int]
) -> None:
    chains = Chains()
    running: list[tuple[Chain, set[int]]] = []
    asked_keys = keys(asked)
    for adds, slot, path in steps:
        if adds or not running:
            chain = Chain(keys(path), slot)
            used = set().union(*(s for c, s in running if c.slot == slot))
            assert chains.add(chain) == len(set(chain.keys) - used)
            running.append((chain, set(chain.keys)))
        else:
            chain, mine = running.pop(slot % len(running))
            others = (s for c, s in running if c.slot == chain.slot)
            assert chains.discard(chain) == len(mine - set().union(*others))
        # The very same object is asked about before and behind each step, too.
        others_keys = (chain.keys for chain, _ in running)
        for question in (asked_keys, *others_keys, asked_keys):
            expected = [
                len(
                    set(question)
                    & set().union(*(s for c, s in running if c.slot == at))
                )
                for at in range(SLOTS)
            ]
            assert chains.shared(question, SLOTS).tolist() == expected


def test_a_chain_that_is_gone_is_not_found_by_its_own_keys() -> None:
    for gone in (0, 1):
        chains = Chains()
        added = [Chain(keys([1, last]), slot) for slot, last in enumerate((2, 3))]
        for chain in added:
            chains.add(chain)
        chains.discard(added[gone])
        expected = [1, 1]
        expected[gone] = 0
        assert chains.shared(added[gone].keys, 2).tolist() == expected


def test_nothing_stays_when_all_are_gone() -> None:
    chains = Chains()
    added = [Chain(keys(path), 0) for path in ([1], [1, 2], [1], [2])]
    for chain in added:
        chains.add(chain)
    for chain in added:
        chains.discard(chain)
    assert chains.shared(keys([1, 2]), 1).tolist() == [0]
    assert not chains._families  # noqa: SLF001 - nothing may grow with time

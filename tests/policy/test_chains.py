"""What running requests share is what sets of blocks say they share."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvindex._core import Chains

SLOTS = 4
# Few symbols, so that much is shared; more chains come than go.
paths = st.lists(st.integers(0, 1), max_size=5)
steps = st.lists(
    st.tuples(st.sampled_from((True, True, False)), st.integers(0, SLOTS - 1), paths),
    max_size=40,
)


def keys(path: list[int], times: int = 1) -> memoryview:
    """Return a key for each prefix of a path, in no order that means anything.

    Each step of the path is so many blocks.
    """
    blocks = [step for step in path for _ in range(times)]
    prefixes = [tuple(blocks[: end + 1]) for end in range(len(blocks))]
    numbers = [hash((prefix, "key")) & (2**64 - 1) for prefix in prefixes]
    return np.array(numbers, dtype=np.uint64).data


@settings(deadline=None, max_examples=200)
@given(steps, paths, st.sampled_from((1, 7)))
def test_shared_blocks_are_those_of_plain_sets(
    steps: list[tuple[bool, int, list[int]]], asked: list[int], times: int
) -> None:
    chains = Chains()
    # Number, slot, keys of each.
    running: list[tuple[int, int, memoryview]] = []

    def used(slot: int) -> set[int]:
        return set().union(*(keys for _, at, keys in running if at == slot))

    for adds, slot, path in steps:
        if adds or not running:
            before = used(slot)
            mine = keys(path, times)
            number, fresh = chains.add(mine, slot)
            assert number not in {other for other, _, _ in running}
            assert fresh == len(set(mine) - before)
            running.append((number, slot, mine))
        else:
            number, at, mine = running.pop(slot % len(running))
            assert chains.remove(number) == len(set(mine) - used(at))
            assert chains.remove(number) == 0
        assert len(chains) == len(running)
        for question in (keys(asked, times), *(mine for _, _, mine in running)):
            expected = [len(set(question) & used(at)) for at in range(SLOTS)]
            assert chains.shared(question, SLOTS).tolist() == expected
            # Slots beyond those that are asked about are passed over.
            assert chains.shared(question, 1).tolist() == expected[:1]


def test_a_chain_that_is_gone_is_not_found_by_its_own_keys() -> None:
    for gone in (0, 1):
        chains = Chains()
        paths = [keys([1, last]) for last in (2, 3)]
        numbers = [chains.add(path, slot)[0] for slot, path in enumerate(paths)]
        chains.remove(numbers[gone])
        expected = [1, 1]
        expected[gone] = 0
        assert chains.shared(paths[gone], 2).tolist() == expected


def test_numbers_are_given_out_again() -> None:
    chains = Chains()
    for _ in range(3):
        paths: list[list[int]] = [[1], [1, 2], [1], [2], []]
        numbers = [chains.add(keys(path), 0)[0] for path in paths]
        assert sorted(numbers) == [0, 1, 2, 3, 4]
        for number in numbers:
            chains.remove(number)
        assert len(chains) == 0
        assert chains.shared(keys([1, 2]), 1).tolist() == [0]

"""Chains of blocks in use: how much of a prompt running requests already share.

# The idea

Requests are kept in the order of their chain keys, beside the number of leading
blocks that each shares with the one before. Two facts follow, and no set of blocks
is kept at all:

- How much any two chains share is the least of the numbers between them. So one
  search for a prompt's place, and a running minimum to both sides, says how much
  every worker's requests share with it.
- A request adds to its worker's distinct blocks what it shares with no other
  request there, and takes the same away when it ends.

Equal chain keys mean equal prefixes, so how far two chains agree is found by
bisection. A search costs the logarithm of the requests times that of the blocks,
the running minimum a pass over the requests that share the prompt's first block.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kvindex.policy.view import Counts


class Chain:
    """The chain keys of one running request, and where it runs.

    Attributes:
        keys: The chain keys of its full blocks, format Q.
        slot: The number of its worker.
    """

    __slots__ = ("keys", "slot")

    def __init__(self, keys: memoryview, slot: int) -> None:
        """Keep the keys as they are."""
        self.keys = keys
        self.slot = slot


class Chains:
    """The chains of all running requests. Not thread safe."""

    def __init__(self) -> None:
        """Start empty."""
        self._families: dict[int, _Family] = {}

    def add(self, chain: Chain) -> int:
        """Add a chain, and return how many blocks its worker did not use before."""
        if not len(chain.keys):
            return 0
        family = self._families.setdefault(chain.keys[0], _Family())
        return family.add(chain)

    def discard(self, chain: Chain) -> int:
        """Take a chain away, and return how many blocks its worker uses no more."""
        if not len(chain.keys):
            return 0
        family = self._families[chain.keys[0]]
        freed = family.discard(chain)
        if not family.chains:
            del self._families[chain.keys[0]]
        return freed

    def shared(self, keys: memoryview, slots: int) -> Counts:
        """Return how many leading blocks of a prompt are in use, by slot.

        Args:
            keys: The prompt's chain keys.
            slots: How many slots there are.
        """
        counts = np.zeros(slots, dtype=np.int64)
        family = self._families.get(keys[0]) if len(keys) else None
        if family is not None:
            family.shared(keys, counts)
        return counts


class _Family:
    """Chains with the same first block, in order."""

    __slots__ = ("_last", "chains", "common", "slots")

    def __init__(self) -> None:
        self.chains: list[Chain] = []
        # The last keys that were placed: a prompt that is asked about is added next.
        self._last: tuple[memoryview, int, int, int] | None = None
        # What each shares with the one before it; 0 for the first.
        self.common = array("q")
        self.slots = array("q")

    def add(self, chain: Chain) -> int:
        at, before, after = self._placed(chain.keys)
        own = len(chain.keys) - self._used(at, chain.slot, before, after)
        if at < len(self.chains):
            self.common[at] = after
        self._last = None
        self.chains.insert(at, chain)
        self.common.insert(at, before)
        self.slots.insert(at, chain.slot)
        return own

    def discard(self, chain: Chain) -> int:
        at, _, _ = self._placed(chain.keys)
        while self.chains[at] is not chain:
            at += 1
        before = self.common[at]
        after = self.common[at + 1] if at + 1 < len(self.chains) else 0
        self._last = None
        del self.chains[at], self.common[at], self.slots[at]
        if at < len(self.chains):
            self.common[at] = min(before, after)
        return len(chain.keys) - self._used(at, chain.slot, before, after)

    def shared(self, keys: memoryview, counts: Counts) -> None:
        at, before, after = self._placed(keys)
        common = np.frombuffer(self.common, dtype=np.int64)
        slots = np.frombuffer(self.slots, dtype=np.int64)
        # Of a slot that is assigned several times the last value stays: the
        # nearest, which shares most.
        if at:
            down = np.minimum.accumulate(common[at - 1 : 0 : -1])
            counts[slots[: at - 1]] = np.minimum(down, before)[::-1]
            counts[slots[at - 1]] = before
        if at < len(self.chains):
            up = np.minimum.accumulate(common[at + 1 :])
            above = np.zeros_like(counts)
            above[slots[:at:-1]] = np.minimum(up, after)[::-1]
            above[slots[at]] = after
            np.maximum(counts, above, out=counts)

    def _placed(self, keys: memoryview) -> tuple[int, int, int]:
        if self._last is None or self._last[0] is not keys:
            self._last = (keys, *self._place(keys))
        return self._last[1:]

    def _place(self, keys: memoryview) -> tuple[int, int, int]:
        """Return where keys belong, and what they share with the chains beside.

        A prefix comes before what extends it, equal chains in any order behind.
        """
        low, high = 0, len(self.chains)
        before = after = 0
        while low < high:
            middle = (low + high) // 2
            other = self.chains[middle].keys
            # All chains between two that share so much share it, too.
            at = shared(keys, other, min(before, after))
            if at < len(keys) and (at == len(other) or other[at] < keys[at]):
                low, before = middle + 1, at
            else:
                high, after = middle, at
        return low, before, after

    def _used(self, at: int, slot: int, before: int, after: int) -> int:
        """Return how much of a chain that belongs here is in use at a slot."""
        common = np.frombuffer(self.common, dtype=np.int64)
        mine = np.frombuffer(self.slots, dtype=np.int64) == slot
        below, above = mine[:at].nonzero()[0], mine[at:].nonzero()[0]
        used = 0
        if len(below):
            used = int(common[below[-1] + 1 : at].min(initial=before))
        if len(above):
            nearest = common[at + 1 : at + 1 + above[0]].min(initial=after)
            used = max(used, int(nearest))
        return used


def shared(one: memoryview, other: memoryview, low: int = 0) -> int:
    """Return how many leading keys two chains have in common, at least `low`."""
    high = min(len(one), len(other))
    # Most chains part where they are known to agree up to, or one extends the other.
    if low == high or one[low] != other[low]:
        return low
    if one[high - 1] == other[high - 1]:
        return high
    low += 1
    while low < high:
        middle = (low + high) // 2
        if one[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    return low

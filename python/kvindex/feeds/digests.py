"""Digests: which payload came under which of the latest numbers?"""

from __future__ import annotations

from array import array

# No batch has this number: on the wire it marks the end of a replay.
NEVER = (1 << 64) - 1


class Digests:
    """A ring of the latest numbers and a 64-bit digest of each payload.

    Sixteen bytes a number, whatever the size of the payloads. The digest is
    Python's own `hash`, which is only good inside one process.
    """

    __slots__ = ("_digests", "_seqs")

    def __init__(self, size: int) -> None:
        """Make a ring for the latest `size` numbers."""
        self._digests = array("q", [0]) * size
        self._seqs = array("Q", [NEVER]) * size

    def clear(self) -> None:
        """Forget everything."""
        self._seqs = array("Q", [NEVER]) * len(self._seqs)

    def put(self, seq: int, payload: bytes) -> None:
        """Remember a payload under its number."""
        slot = seq % len(self._seqs)
        self._seqs[slot] = seq
        self._digests[slot] = hash(payload)

    def knows(self, seq: int) -> bool:
        """Tell whether a payload is remembered under this number."""
        return self._seqs[seq % len(self._seqs)] == seq

    def same(self, seq: int, payload: bytes) -> bool | None:
        """Tell whether this payload had that number, None if not remembered."""
        if not self.knows(seq):
            return None
        return self._digests[seq % len(self._seqs)] == hash(payload)

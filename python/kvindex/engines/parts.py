"""Which blocks are whole? Those of which all parts are there.

A cache that several ranks fill holds a block only when each rank, and each group
of objects, has put its part of it there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Part = Hashable
Place = Hashable


class Parts(Generic[Key]):
    """The parts of blocks that are there, and which blocks are whole."""

    def __init__(self, expected: Callable[[Key], Iterable[Part]]) -> None:
        """Take a block for whole when all parts that `expected` gives are there."""
        self._expected = expected
        self._there: dict[Key, dict[Part, set[Place]]] = {}
        self._whole: dict[Key, None] = {}

    def put(self, key: Key, part: Part, place: Place = None) -> bool:
        """Add a part; return whether it makes the block whole."""
        self._there.setdefault(key, {}).setdefault(part, set()).add(place)
        if key in self._whole or not self._is_whole(key):
            return False
        self._whole[key] = None
        return True

    def drop(self, key: Key, part: Part, place: Place = None) -> bool:
        """Take a part away; return whether the block is whole no more."""
        parts = self._there.get(key, {})
        places = parts.get(part, set())
        places.discard(place)
        if not places:
            parts.pop(part, None)
        if not parts:
            self._there.pop(key, None)
        return self._broken(key)

    def keys(self, part: Part, place: Place = None) -> list[Key]:
        """Return the blocks of which a place has a part."""
        return [
            key for key, parts in self._there.items() if place in parts.get(part, ())
        ]

    def check(self) -> list[Key]:
        """Return the blocks that are whole no more since others are expected."""
        return [key for key in list(self._whole) if self._broken(key)]

    def clear(self) -> list[Key]:
        """Forget everything; return the blocks that were whole."""
        whole = list(self._whole)
        self._there.clear()
        self._whole.clear()
        return whole

    def _broken(self, key: Key) -> bool:
        if key not in self._whole or self._is_whole(key):
            return False
        del self._whole[key]
        return True

    def _is_whole(self, key: Key) -> bool:
        parts = self._there.get(key, {})
        return all(part in parts for part in self._expected(key))

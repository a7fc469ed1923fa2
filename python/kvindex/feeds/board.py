"""The board: the latest state of every source, for any thread to read."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvindex.feeds.source import Key
    from kvindex.feeds.state import SourceState

# Seconds. A condition may look at more than the feed's own state.
LOOK_AGAIN = 0.1


class Board:
    """Frozen states by source, and a way to wait for them to change."""

    def __init__(self) -> None:
        """Make an empty board."""
        self._changed = threading.Condition()
        self._states: dict[Key, SourceState] = {}
        self._version = 0
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self._ended

    def put(self, state: SourceState) -> bool:
        """Add a source; False if there is one of that key."""
        with self._changed:
            if state.key in self._states:
                return False
            self._states[state.key] = state
            self._version += 1
            return True

    def show(self, state: SourceState) -> None:
        """Replace a source's state, unless it was taken off the board."""
        with self._changed:
            if self._states.get(state.key, state) != state:
                self._states[state.key] = state
                self._version += 1

    def take(self, key: Key) -> None:
        """Take a source off the board."""
        with self._changed:
            if self._states.pop(key, None) is not None:
                self._version += 1
                self._changed.notify_all()

    def tell(self) -> None:
        """Wake those who wait."""
        with self._changed:
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing will change any more: wake those who wait for good."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def states(self) -> list[SourceState]:
        """Return all states in the order in which the sources were added."""
        with self._changed:
            return list(self._states.values())

    def wait(
        self, condition: Callable[[list[SourceState]], object], timeout: float
    ) -> bool:
        """Wait until the condition holds, the time is up or the feed ends."""
        deadline = time.monotonic() + timeout
        while True:
            with self._changed:
                version, ended = self._version, self._ended
                states = list(self._states.values())
            # Outside the lock: the condition is the caller's and may take long.
            if condition(states):
                return True
            left = deadline - time.monotonic()
            if ended or left <= 0:
                return False
            with self._changed:
                if version == self._version and not self._ended:
                    self._changed.wait(min(left, LOOK_AGAIN))


def all_live(states: list[SourceState]) -> bool:
    """Tell whether every source is live."""
    return all(state.status == "live" for state in states)


def reached(
    states: list[SourceState], wanted: Mapping[str | tuple[str, int], int]
) -> bool:
    """Tell whether every worker, pool, or (worker, rank) has come that far."""
    return all(
        any(state_of(state, who) for state in states)
        and all(
            state.seq is not None and state.seq >= seq
            for state in states
            if state_of(state, who)
        )
        for who, seq in wanted.items()
    )


def state_of(state: SourceState, who: str | tuple[str, int]) -> bool:
    """Tell whether the row belongs to that worker, pool, or (worker, rank)."""
    return who in (state.worker, (state.worker, state.dp_rank))

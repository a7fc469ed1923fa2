"""What a decision says of its worker's cache, before any event does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvindex.errors import ConfigError

if TYPE_CHECKING:
    import kvindex
    from kvindex.policy.decision import Decision
    from kvindex.policy.router import Integers

# How often a time to live is looked at: what is due stays a hundredth longer.
LOOKS = 100


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predicts that whoever is chosen for a prompt holds its blocks afterwards.

    Without events this is all that the index knows (approximate mode): the
    defaults are Dynamo's. Beside events, a few seconds bridge the time until they
    arrive; a block that an event has confirmed is not counted twice. Predictions
    are of the device alone: whether a block moves to host memory only events tell.

    One clock counts for predictions, for the index's `max_age` and for what a feed
    ends: the router's `now`, `time.monotonic()` by default. With another one, as
    `time.time()`, all that has an age ends at the next decision.

    Attributes:
        ttl: Seconds until a prediction ends, above 0. Predicting a block again
            begins anew.
        capacity: Blocks of each worker's rank that may be predicted at once, the
            size of its cache; None for any number. The least recently predicted
            go first, the deepest of a prompt before the others.

    Raises:
        ConfigError: If a number is out of its range.

    Example:
        >>> import kvindex
        >>> from kvindex.policy import Predictions, Router
        >>> index = kvindex.Indexer(block_size=4)
        >>> router = Router(index, ["w0", "w1"], predictions=Predictions(ttl=60.0))
        >>> first = router.route(range(12))
        >>> router.done(first)
        True
        >>> again = router.route(range(12))
        >>> again.worker == first.worker, again.row.predicted
        (True, 3)
    """

    ttl: float = 120.0
    capacity: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that predict nothing."""
        if math.isnan(self.ttl) or self.ttl <= 0:
            msg = f"ttl is {self.ttl}: expected more than 0"
            raise ConfigError(msg)
        if self.capacity is not None and self.capacity < 1:
            msg = f"capacity is {self.capacity}: expected 1 or more, or None"
            raise ConfigError(msg)

    @property
    def seconds_between_looks(self) -> float:
        """How often what is due should be ended."""
        return self.ttl / LOOKS

    def add(
        self, index: kvindex.Indexer, decision: Decision, keys: Integers, now: float
    ) -> None:
        """Predict the blocks of a prompt, by their chain keys, where it was sent."""
        index.predict_chain(
            keys,
            worker=decision.worker,
            dp_rank=decision.dp_rank,
            ttl=self.ttl,
            now=now,
            capacity=self.capacity,
        )

"""Settings of a feed, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from kvindex.errors import ConfigError

OnGap = Literal["keep", "reset"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What all sources of a feed have in common.

    Attributes:
        on_gap: What happens to the state when batches are lost for good.
        replay_timeout: Longest silence within a replay, in seconds.
        hold_back: Most batches of a source that wait for a replay.
        check_interval: Silence, in seconds, after which a source is asked
            whether anything was missed; None never asks.
        hwm: Most messages that ZMQ queues for a source; 0 means no bound.
        expire_interval: Seconds between two calls of the index's `expire`; None
            never calls it.
    """

    on_gap: OnGap = "keep"
    replay_timeout: float = 2.0
    hold_back: int = 1024
    check_interval: float | None = 10.0
    hwm: int = 100_000
    expire_interval: float | None = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that would wait for ever or hold without a bound."""
        if self.on_gap not in get_args(OnGap):
            msg = f"on_gap is {self.on_gap!r}: expected 'keep' or 'reset'"
            raise ConfigError(msg)
        positive("replay_timeout", self.replay_timeout)
        if self.check_interval is not None:
            positive("check_interval", self.check_interval)
        if self.expire_interval is not None:
            positive("expire_interval", self.expire_interval)
        if self.hold_back < 1:
            msg = f"hold_back is {self.hold_back}: expected 1 or more"
            raise ConfigError(msg)
        if self.hwm < 0:
            msg = f"hwm is {self.hwm}: expected 0 or more"
            raise ConfigError(msg)


def positive(name: str, seconds: float) -> None:
    """Raise ConfigError unless this is a finite time above zero."""
    if not (math.isfinite(seconds) and seconds > 0):
        msg = f"{name} is {seconds}: expected a finite number of seconds above 0"
        raise ConfigError(msg)

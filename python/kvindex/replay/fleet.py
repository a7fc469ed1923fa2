"""Fleets: how many engines, how fast, and how much they hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from kvindex.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Fleet:
    """Engines that are all alike.

    Attributes:
        workers: How many.
        device_blocks: Blocks in an engine's GPU cache.
        host_blocks: Blocks in its host memory; 0 for none.
        disk_blocks: Blocks on its disk; 0 for none.
        prefill_speed: Tokens a second that an engine computes.
        host_speed: Tokens a second that it loads from host memory.
        disk_speed: Tokens a second that it loads from disk.
        decode_speed: Tokens a second of one answer.
        offload_delay: Seconds from a block's computation to its copy in host memory.
        event_delay: Seconds that a batch of events takes to the router.
        event_loss: Share of the batches that never arrive, 0 to 1.

    Raises:
        ConfigError: If a number is out of its range.
    """

    workers: int = 8
    device_blocks: int = 1_000
    host_blocks: int = 4_000
    disk_blocks: int = 0
    prefill_speed: float = 10_000.0
    host_speed: float = 100_000.0
    disk_speed: float = 25_000.0
    decode_speed: float = 50.0
    offload_delay: float = 0.1
    event_delay: float = 0.005
    event_loss: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no fleet can be."""
        for given in fields(self):
            value = getattr(self, given.name)
            least = 1 if given.name in {"workers", "device_blocks"} else 0
            if not math.isfinite(value) or value < least:
                msg = f"{given.name} is {value}: expected {least} or more"
                raise ConfigError(msg)
            if given.name.endswith("_speed") and not value:
                msg = f"{given.name} is {value}: expected more than 0"
                raise ConfigError(msg)
        if self.event_loss > 1:
            msg = f"event_loss is {self.event_loss}: expected 0 to 1"
            raise ConfigError(msg)

"""Checks of settings."""

import math

from kvindex.errors import ConfigError


def finite(name: str, value: float, *, least: float = 0.0) -> None:
    """Raise ConfigError unless a number is finite and not too small."""
    if not (math.isfinite(value) and value >= least):
        msg = f"{name} is {value}: expected a finite number, {least:g} or more"
        raise ConfigError(msg)

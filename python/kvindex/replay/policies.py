"""Policies by name, as the command line and a report know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kvindex.errors import ConfigError
from kvindex.policy import (
    CacheThreshold,
    Cost,
    HighestScore,
    LeastLoaded,
    LongestPrefix,
    Predictions,
    Random,
    RoundRobin,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvindex.policy import Policy

    Make: TypeAlias = Callable[[int, dict[str, float]], Policy]

APPROXIMATE = "approximate"
BLIND = ("least-loaded", "round-robin", "random")
PREDICTIONS = ("ttl", "capacity")
TIERS = ("device", "host", "disk", "external")

DEFAULT_POLICIES = (
    "cost:host=0",
    "cost:host=0.75",
    "cost:host=1",
    "cost:scale=10",
    "longest-prefix",
    "cache-threshold",
    "approximate",
    "approximate:scale=10",
    *BLIND,
)


@dataclass(frozen=True, slots=True)
class Named:
    """A policy that can be made anew for each run.

    Attributes:
        label: What to call it.
        make: Makes it, given a seed.
        uses_index: Whether what is cached matters to it.
        temperature: Of its selection.
        predictions: What the router expects after each decision.
        hears: Whether it is told of events.
    """

    label: str
    make: Callable[[int], Policy]
    uses_index: bool = True
    temperature: float = 0.0
    predictions: Predictions | None = None
    hears: bool = True


def policy(text: str) -> Named:
    """Return the policy of a text: a name, and settings behind a colon.

    `cost` takes `scale`, `decay` and `active` (the prefill load scale, the decay of
    the overlap credit and the weight of an active request); `cost` and
    `highest-score` take a weight for each tier. `cache-threshold` takes `cache`,
    `abs` and `rel`. `longest-prefix`, `least-loaded`, `round-robin` and `random`
    take none of their own. `approximate` is the cost without events: it takes what
    the cost takes, `ttl` and `capacity`. Every policy takes `temperature`, and those
    that look at prefixes take `ttl` to expect what they have just decided.

    Raises:
        ConfigError: If the name or a setting is unknown, or a value no number.

    Example:
        >>> from kvindex.replay import policy
        >>> policy("cost:host=0.5,scale=10").make(0).prefill_load_scale
        10.0
    """
    name, _, rest = text.partition(":")
    if name not in MAKERS:
        msg = f"policy is {name!r}: expected one of {', '.join(MAKERS)}"
        raise ConfigError(msg)
    make, known = MAKERS[name]
    settings = dict(setting(name, part, known) for part in rest.split(",") if part)
    temperature = settings.pop("temperature", 0.0)
    blind = name in BLIND
    expected = predictions(settings, approximate=name == APPROXIMATE)
    make(0, settings)
    return Named(
        text,
        lambda seed: make(seed, settings),
        uses_index=not blind,
        temperature=temperature,
        predictions=expected,
        hears=not blind and name != APPROXIMATE,
    )


def predictions(settings: dict[str, float], *, approximate: bool) -> Predictions | None:
    """Take what settings say of predictions out of them."""
    given: dict[str, Any] = {
        name: settings.pop(name) for name in PREDICTIONS if name in settings
    }
    if "capacity" in given:
        given["capacity"] = int(given["capacity"])
    return Predictions(**given) if given or approximate else None


def setting(policy: str, part: str, known: tuple[str, ...]) -> tuple[str, float]:
    """Return one setting of a policy."""
    name, _, value = part.partition("=")
    if name not in known and name != "temperature":
        choices = ", ".join((*known, "temperature"))
        msg = f"{policy} has no setting {name!r}: expected one of {choices}"
        raise ConfigError(msg)
    try:
        return name, float(value)
    except ValueError as error:
        msg = f"{name} of {policy} is {value!r}: expected a number"
        raise ConfigError(msg) from error


def weights(settings: dict[str, float]) -> dict[str, float] | None:
    """Return the tiers' weights among settings."""
    return {tier: settings[tier] for tier in TIERS if tier in settings} or None


def cost(_: int, settings: dict[str, float]) -> Policy:
    """Make the cost function."""
    return Cost(
        settings.get("scale", 1.0),
        settings.get("decay", 0.0),
        settings.get("active", 0.0),
        weights(settings),
    )


def highest_score(_: int, settings: dict[str, float]) -> Policy:
    """Make the tiered scorer."""
    return HighestScore(weights(settings))


def cache_threshold(_: int, settings: dict[str, float]) -> Policy:
    """Make the switch between prefix and load."""
    names = {
        "cache": "cache_threshold",
        "abs": "balance_abs_threshold",
        "rel": "balance_rel_threshold",
    }
    given = {names[name]: value for name, value in settings.items()}
    return CacheThreshold(**given)  # type: ignore[arg-type]


COST = ("scale", "decay", "active", *TIERS)
MAKERS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "cost": (cost, (*COST, *PREDICTIONS)),
    APPROXIMATE: (cost, (*COST, *PREDICTIONS)),
    "highest-score": (highest_score, (*TIERS, *PREDICTIONS)),
    "longest-prefix": (lambda _, __: LongestPrefix(), PREDICTIONS),
    "cache-threshold": (cache_threshold, ("cache", "abs", "rel", *PREDICTIONS)),
    "least-loaded": (lambda _, __: LeastLoaded(), ()),
    "round-robin": (lambda _, __: RoundRobin(), ()),
    "random": (lambda seed, _: Random(seed), ()),
}

"""Selection: one candidate out of many, by their costs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from kvindex.errors import ConfigError
from kvindex.policy.check import finite

if TYPE_CHECKING:
    from kvindex.policy.view import Counts, Floats


class Selection:
    """Picks the lowest cost, or by a softmax over the costs.

    With a temperature T above zero a candidate's weight is
    `exp(-(cost - min) / ((max - min) * T))`: costs are scaled to 0 to 1 first, so T
    does not depend on their size. Equal costs are equally likely.

    At temperature zero the lowest cost wins, of equal ones the candidate with the
    fewest running requests, of those a random one.

    Args:
        temperature: 0 or more; about 0.1 spreads over near ties, 1 over most.
        seed: Makes the choices reproducible; None for chance.

    Raises:
        ConfigError: If the temperature is negative or not finite.

    Example:
        >>> import numpy as np
        >>> from kvindex.policy import Selection
        >>> Selection().pick(np.array([3.0, 1.0, 2.0]))
        1
    """

    def __init__(self, temperature: float = 0.0, seed: int | None = None) -> None:
        """Start the generator."""
        finite("temperature", temperature)
        self._temperature = float(temperature)
        self._random = random.Random(seed)  # noqa: S311 - chance, not secrets

    @property
    def temperature(self) -> float:
        """The temperature of a pick that names none."""
        return self._temperature

    def pick(
        self,
        costs: Floats,
        requests: Counts | None = None,
        temperature: float | None = None,
    ) -> int:
        """Return the position of the chosen candidate.

        Args:
            costs: A finite cost for each candidate, at least one.
            requests: Running requests of each, which decide between equal costs.
            temperature: Instead of the selection's own.

        Raises:
            ConfigError: If there is no candidate, or the temperature is negative
                or not finite.
        """
        if not len(costs):
            msg = "there is no candidate to pick from"
            raise ConfigError(msg)
        if temperature is None:
            temperature = self._temperature
        else:
            finite("temperature", temperature)
        least = costs.min()
        if temperature > 0 and (spread := costs.max() - least) > 0:
            return self._softmax((costs - least) / (spread * temperature))
        best = (costs == least).nonzero()[0]
        if requests is not None and temperature == 0 and len(best) > 1:
            running = requests[best]
            best = best[running == running.min()]
        return int(best[0] if len(best) == 1 else self._random.choice(best))

    def _softmax(self, scaled: Floats) -> int:
        sums = np.exp(-scaled).cumsum()
        # Rounding may bring the drawn number up to the sum itself.
        drawn = int(sums.searchsorted(self._random.random() * sums[-1], side="right"))
        return min(drawn, len(sums) - 1)

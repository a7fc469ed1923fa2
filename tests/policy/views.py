"""Views for tests: columns by name, the rest zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvindex.policy import View

COLUMNS = (
    "depths",
    "scores",
    "device",
    "prefill_tokens",
    "decode_blocks",
    "requests",
)


def view(**given: Any) -> View:  # noqa: ANN401 - View checks them
    """Return a view; what is not given is zero, 16 tokens a block."""
    length = max(len(given[name]) for name in COLUMNS if name in given)
    columns: dict[str, Any] = {
        name: np.array(
            given.pop(name, [0] * length),
            dtype=np.float64 if name == "scores" else np.int64,
        )
        for name in COLUMNS
    }
    return View(**columns, **{"prompt_tokens": 160, "block_size": 16, **given})

"""Changes: what one router tells others about its load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Change:
    """One step in the life of a request, for the `Load` of another router.

    Plain fields, for whatever encoder and transport there is. Changes of one
    origin have to arrive in order; those that come twice are recognised.

    Attributes:
        origin: Which `Load` it comes from.
        seq: Its number there, from 1.
        kind: `add`, `prefill_complete`, `produced`, `done`.
        request: The request.
        worker: `add`: where it runs.
        dp_rank: `add`: the rank, None for the worker as a whole.
        chain_keys: `add`: of its full blocks, 8 bytes each in little endian.
        prefill_tokens: `add`: tokens that have to be computed first.
        tokens: `produced`: tokens of the answer so far.
    """

    origin: str
    seq: int
    kind: Literal["add", "prefill_complete", "produced", "done"]
    request: str
    worker: str = ""
    dp_rank: int | None = None
    chain_keys: bytes = b""
    prefill_tokens: int = 0
    tokens: int = 0

"""Views: what is known of the candidates when one prompt is to be routed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Counts: TypeAlias = NDArray[np.int64]
    Mask: TypeAlias = NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class View:
    """Columns over the eligible candidates, and what all of them share.

    Not to be changed: a decision says from it why it was made.

    Attributes:
        depths: Leading blocks of the prompt that each candidate holds.
        scores: The same, each block times its tier's weight.
        device: Those of them that lie on the device, in blocks.
        prefill_tokens: Tokens of running requests that wait for their prefill.
        decode_blocks: Distinct blocks in use, were the prompt to run there too.
        requests: Running requests.
        prompt_tokens: The prompt's length in tokens.
        block_size: Tokens a block.
        device_weight: The weight of a block on the device within `scores`.
        tracks_prefill: False in a pool that only decodes, where prompts arrive
            computed and `prefill_tokens` is zero.
        preference: How much each candidate is preferred, None for not at all.
    """

    depths: Counts
    scores: Floats
    device: Counts
    prefill_tokens: Counts
    decode_blocks: Counts
    requests: Counts
    prompt_tokens: int
    block_size: int
    device_weight: float = 1.0
    tracks_prefill: bool = True
    preference: Floats | None = None

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.depths)

    def where(self, mask: Mask) -> View:
        """Return the candidates that a mask names."""
        return View(
            self.depths[mask],
            self.scores[mask],
            self.device[mask],
            self.prefill_tokens[mask],
            self.decode_blocks[mask],
            self.requests[mask],
            self.prompt_tokens,
            self.block_size,
            self.device_weight,
            self.tracks_prefill,
            None if self.preference is None else self.preference[mask],
        )


class Policy(Protocol):
    """What tells good candidates from bad ones.

    Any object with these two members is a policy.
    """

    @property
    def weights(self) -> Mapping[str, float] | None:
        """What a block is worth on each tier; None means the index's weights."""

    def costs(self, view: View) -> Floats:
        """Return a finite cost for each candidate; the lowest is the best."""

"""The cost of a candidate, as NVIDIA Dynamo computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvindex.policy.check import finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvindex.policy.view import Floats, View


@dataclass(frozen=True, slots=True)
class Cost:
    """Blocks to be computed plus blocks in use. All terms are in blocks.

        prefill  = (prefill_tokens + prompt_tokens) / block_size
        excess   = (prefill_tokens - min(prefill_tokens)) / block_size
        decay    = 1 / (1 + overlap_credit_decay * excess / ceil(prompt_blocks))
        overlap  = decay * device_weight * device + weights * the other tiers
        cost     = prefill_load_scale * max(0, prefill - overlap)
                   + decode_blocks + decode_active_request_weight * requests

    In a pool that only decodes (`View.tracks_prefill` is False):

        cost     = max(0, decode_blocks - overlap)
                   + decode_active_request_weight * requests

    where the overlap counts only with a device weight above zero. Either is
    multiplied by `exp(-tanh(preference))` where candidates are preferred.

    Source: `worker_logit` in `lib/kv-router/src/scheduling/selector.rs` of
    ai-dynamo/dynamo, 1.6. Other names there: the device's weight is
    `overlap_score_credit`, host's and disk's are `host_cache_hit_weight` and
    `disk_cache_hit_weight`, a preference is the sum of a worker's taint weights.

    Attributes:
        prefill_load_scale: How much a block to be computed weighs against one in
            use. 0 or more; more favours the time to the first token.
        overlap_credit_decay: How fast the credit for the device's blocks fades
            where prefills queue up. 0 or more; 0 means never.
        decode_active_request_weight: Blocks that a running request counts for.
            0 or more.
        weights: A block's worth on each tier, None for the index's weights.

    Raises:
        ConfigError: If a number is negative or not finite.

    Example:
        >>> from kvindex.policy import Cost
        >>> Cost(prefill_load_scale=10.0).prefill_load_scale
        10.0
    """

    prefill_load_scale: float = 1.0
    overlap_credit_decay: float = 0.0
    decode_active_request_weight: float = 0.0
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that give no order."""
        finite("prefill_load_scale", self.prefill_load_scale)
        finite("overlap_credit_decay", self.overlap_credit_decay)
        finite("decode_active_request_weight", self.decode_active_request_weight)

    def costs(self, view: View) -> Floats:
        """Return the cost of each candidate in blocks."""
        # In place, and without terms that are zero: this is done for each prompt.
        if view.tracks_prefill:
            costs = (view.prefill_tokens + view.prompt_tokens) / view.block_size
            costs -= self.overlap(view)
            np.maximum(costs, 0.0, out=costs)
            costs *= self.prefill_load_scale
            costs += view.decode_blocks
        else:
            overlap = view.scores if view.device_weight > 0 else 0.0
            costs = np.maximum(view.decode_blocks - overlap, 0.0)
        if self.decode_active_request_weight:
            costs += self.decode_active_request_weight * view.requests
        if view.preference is not None:
            costs *= np.exp(-np.tanh(view.preference))
        return costs

    def overlap(self, view: View) -> Floats:
        """Return the credit for cached blocks, in blocks."""
        if self.overlap_credit_decay == 0 or not len(view):
            return view.scores
        excess = (view.prefill_tokens - view.prefill_tokens.min()) / view.block_size
        prompt_blocks = max(1, -(-view.prompt_tokens // view.block_size))
        decay = 1.0 / (1.0 + self.overlap_credit_decay * excess / prompt_blocks)
        faded = view.device_weight * view.device * (1.0 - decay)
        return np.asarray(view.scores - faded, dtype=np.float64)

"""What a cached block is worth on each tier, as others have it.

A policy passes its weights to the index, key by key over the index's own: a tier
that is not named keeps the weight that it has there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DYNAMO: Final[Mapping[str, float]] = MappingProxyType(
    {"device": 1.0, "host": 0.75, "disk": 0.25, "external": 0.25}
)
"""NVIDIA Dynamo's defaults, and those of an `Indexer`."""

VLLM_ROUTER: Final[Mapping[str, float]] = MappingProxyType(
    {"device": 1.0, "host": 0.8, "disk": 0.6, "external": 0.3}
)
"""The tier penalties of the vLLM router."""

LLM_D: Final[Mapping[str, float]] = MappingProxyType({"device": 1.0, "host": 0.8})
"""Those of llm-d, which names two tiers."""

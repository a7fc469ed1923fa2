"""Engine events as Python objects, for sources that send no bytes.

Fields mean what the engines' own fields of these names mean, and None means
absent. An object of another class is read alike if its class, or a base of it,
has one of these names: vLLM's own event objects can be passed as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

EngineHash: TypeAlias = int | bytes
ExtraKey: TypeAlias = str | bytes | Sequence[str | int]


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks that a worker now holds.

    Attributes:
        block_hashes: The engine's own hashes of consecutive blocks.
        token_ids: The tokens of all these blocks; empty where the source sends
            none and the hashes are known already. Pairs of tokens from sources
            with speculative decoding.
        parent_block_hash: The hash of the block before the first; None at the
            start of a prompt.
        block_size: Tokens a hash; None means the index's.
        medium: What the source calls the tier ("GPU", "CPU", ...); None means
            the device.
        lora_name: The adapter's name.
        cache_salt: The cache salt.
        extra_keys: For each hash None or what is hashed besides the tokens.
        group_idx: The cache group of a hybrid model.
        kv_cache_spec_kind: The cache group's kind ("full_attention", "mamba", ...).
        locality: "REMOTE" where the copy lies elsewhere, whatever the medium.
        lora_id: The adapter's number, where there is no name.
        local_keys: The blocks' local keys, one for each hash, from sources that
            send them and no tokens (see `block_keys`): what they hold, namespace
            and images included. The block size is the index's then.
        kv_cache_spec_sliding_window: Tokens of the cache group's sliding window.
    """

    block_hashes: "Sequence[EngineHash] | Buffer"
    token_ids: "Sequence[int] | Sequence[Sequence[int]] | Buffer"
    parent_block_hash: EngineHash | None = None
    block_size: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    extra_keys: Sequence[Sequence[ExtraKey] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality: str | None = None
    lora_id: int | None = None
    local_keys: "Sequence[int] | Buffer | None" = None
    kv_cache_spec_sliding_window: int | None = None


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Blocks of which a worker gave up a copy.

    Attributes:
        block_hashes: The engine's own hashes of the blocks, in any order.
        medium: What the source calls the tier; None means the device.
        group_idx: The cache group of a hybrid model.
        kv_cache_spec_kind: The cache group's kind.
    """

    block_hashes: "Sequence[EngineHash] | Buffer"
    medium: str | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """A worker's rank emptied its cache."""

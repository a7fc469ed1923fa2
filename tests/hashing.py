"""The contract's hashes, computed with the independent xxhash package."""

import struct
from collections.abc import Iterable, Sequence

import xxhash

SEED = 1337
MASK = 2**64 - 1


def namespace_seed(lora_name: str = "", cache_salt: str = "") -> int:
    """Return the seed of local keys: a term only for a name that is not empty."""
    seed = SEED
    if lora_name:
        seed += xxhash.xxh3_64_intdigest(lora_name.encode(), 0)
    if cache_salt:
        seed += xxhash.xxh3_64_intdigest(cache_salt.encode(), 1)
    return seed & MASK


def image_hash(identifier: str) -> int:
    """Return the u64 of a multimodal identifier."""
    if len(identifier) == 64 and not set(identifier) - set("0123456789abcdefABCDEF"):
        return int(identifier[:16], 16)
    return xxhash.xxh3_64_intdigest(identifier.encode(), 0)


def local_key(
    tokens: Sequence[int], images: Iterable[int] = (), seed: int = SEED
) -> int:
    """Hash a block's tokens, then its images in ascending order."""
    data = struct.pack(f"<{len(tokens)}I", *tokens)
    for image in sorted(images):
        data += struct.pack("<Q", image)
    return xxhash.xxh3_64_intdigest(data, seed)


def local_keys(
    tokens: Sequence[int],
    *,
    block_size: int,
    lora_name: str = "",
    cache_salt: str = "",
    mm: Iterable[tuple[str, int, int]] = (),
    pairs: bool = False,
) -> list[int]:
    """Hash every full block of a prompt."""
    seed = namespace_seed(lora_name, cache_salt)
    width = block_size + pairs
    keys = []
    for start in range(0, len(tokens) - width + 1, block_size):
        end = start + block_size
        images = [
            image_hash(identifier)
            for identifier, first, length in mm
            if first < end and first + length > start
        ]
        keys.append(local_key(tokens[start : start + width], images, seed))
    return keys


def chain(local: Sequence[int]) -> list[int]:
    """Hash each block with all that came before it."""
    keys = list(local[:1])
    for key in local[1:]:
        keys.append(xxhash.xxh3_64_intdigest(struct.pack("<QQ", keys[-1], key), SEED))
    return keys

"""SGLang, with HiCache.

Its events always name their LoRA adapter and salt, and a clear empties every
tier. Its hashes have no secret, so a router can compute those of a prompt, and
find with `match_names` what a tenant holds whom no event names.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from struct import pack
from typing import TYPE_CHECKING

from kvindex.engines.engine import Engine
from kvindex.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Buffer

SALT = b"sglang-cache-salt-v1\0"
NAMESPACE = b"sglang-kv-event-namespace-v1"
WIDE = b"\xff"
"""Stands before a page with a token that does not fit into 32 bits."""

SGLANG = Engine(name="sglang", title="SGLang", kind="sglang")


def page_hashes(
    tokens: Sequence[int] | Buffer,
    /,
    *,
    page_size: int,
    cache_salt: str | None = None,
    extra_key: str | None = None,
    folded: bool = False,
    pairs: bool = False,
) -> list[int]:
    """Return SGLang's own hashes of a prompt's full pages, for `match_names`.

    A page's digest is SHA-256 over the digest of the page before it and its
    tokens as little-endian u32; the hash is its first 8 bytes, a signed 64-bit
    integer as on the wire (SGLang since 0.5.9; checked against captures up to
    0.5.23). A salt is the digest before the first page.

    Args:
        tokens: The prompt's tokens, 0 to 2^64-1 each: a sequence or a buffer.
        page_size: Tokens a page, 1 or more.
        cache_salt: The request's salt; None and "" mean none.
        extra_key: The request's extra key (a tenant, or the id of its LoRA
            adapter); None and "" mean none. It only matters where hashes are folded.
        folded: Whether the namespace is folded into each hash, as it is in the
            event format "dynamo".
        pairs: Whether pages are of pairs of tokens (EAGLE).

    Returns:
        One hash for each full page, in order.

    Raises:
        ConfigError: The page size is below 1.
        OverflowError: A token is negative or has more than 64 bits.

    Examples:
        >>> page_hashes(range(8), page_size=4)
        [-4977211910723114241, 90435953025800507]
    """
    if page_size < 1:
        message = f"page_size must be 1 or more, not {page_size}"
        raise ConfigError(message)
    found = digests(tokens, page_size=page_size, above=salted(cache_salt), pairs=pairs)
    hashes = [short(digest) for digest in found]
    if not folded:
        return hashes
    return [folded_hash(each, extra_key, cache_salt) for each in hashes]


def salted(cache_salt: str | None) -> bytes:
    """Return the digest before the first page."""
    return sha256(SALT + cache_salt.encode()).digest() if cache_salt else b""


def digests(
    tokens: Sequence[int] | Buffer, *, page_size: int, above: bytes, pairs: bool
) -> list[bytes]:
    """Return the digest of each full page, given that of the page before."""
    plain = tokens if isinstance(tokens, Sequence) else memoryview(tokens).tolist()
    found = []
    for start in range(0, len(plain) - page_size + 1 - pairs, page_size):
        page = plain[start : start + page_size + pairs]
        if pairs:
            page = [token for pair in pairwise(page) for token in pair]
        above = sha256(above + _packed(page)).digest()
        found.append(above)
    return found


def short(digest: bytes) -> int:
    """Return the hash that stands for a digest on the wire."""
    return int.from_bytes(digest[:8], "big", signed=True)


def folded_hash(plain: int, extra_key: str | None, cache_salt: str | None) -> int:
    """Fold a namespace into a hash; without one it stays what it is."""
    if not (cache_salt or extra_key):
        return plain
    fields = _field(extra_key) + _field(cache_salt)
    seed = sha256(NAMESPACE + fields).digest()
    return short(sha256(seed + pack(">q", plain)).digest())


def _packed(page: Sequence[int]) -> bytes:
    if min(page) < 0 or max(page) >= 1 << 64:
        bad = next(token for token in page if not 0 <= token < 1 << 64)
        message = f"a token must be 0 to {(1 << 64) - 1}, not {bad}"
        raise OverflowError(message)
    if max(page) < 1 << 32:
        return pack(f"<{len(page)}I", *page)
    return WIDE + pack(f"<{len(page)}Q", *page)


def _field(text: str | None) -> bytes:
    """Write a part of the namespace: whether it is there, its length, itself."""
    if not text:
        return b"\0"
    raw = text.encode()
    return b"\1" + pack("<Q", len(raw)) + raw

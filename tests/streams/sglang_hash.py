"""SGLang's block hashes, computed with hashlib alone.

The descriptions of the SGLang streams give prompts and resident hashes; this
joins the two without looking at an event.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from struct import pack


def names(
    tokens: list[int],
    *,
    page_size: int,
    cache_salt: str | None = None,
    extra_key: str | None = None,
    folded: bool = False,
    pairs: bool = False,
) -> list[int]:
    """Return the signed 64-bit hash of every full page of a prompt."""
    units = [pack("<II", *pair) for pair in pairwise(tokens)] if pairs else None
    if units is None:
        units = [pack("<I", token) for token in tokens]
    digest = b""
    if cache_salt:
        digest = sha256(b"sglang-cache-salt-v1\0" + cache_salt.encode()).digest()
    found = []
    for start in range(0, len(units) - page_size + 1, page_size):
        page = b"".join(units[start : start + page_size])
        digest = sha256(digest + page).digest()
        found.append(_signed(digest))
    if folded and (cache_salt or extra_key):
        found = _fold(found, extra_key, cache_salt)
    return found


def _fold(found: list[int], extra_key: str | None, cache_salt: str | None) -> list[int]:
    """Fold the namespace in, as the `dynamo` event format does."""
    parts = b"".join(_field(text) for text in (extra_key, cache_salt))
    seed = sha256(b"sglang-kv-event-namespace-v1" + parts).digest()
    return [_signed(sha256(seed + pack(">q", name)).digest()) for name in found]


def _field(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return b"\1" + pack("<Q", len(raw)) + raw


def _signed(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)

"""SGLang's hashes of a prompt, computed: equal to every hash that was captured."""

from __future__ import annotations

from array import array
from hashlib import sha256
from struct import pack
from typing import Any

import numpy as np
import pytest

import kvindex
from kvindex.engines.sglang import page_hashes
from tests.streams import load, low64, names_of, sglang_hash, wire

STREAMS = names_of("sglang")


def spaces(stream_name: str) -> list[dict[str, Any]]:
    """Return the namespace of each query of a stream, as `page_hashes` takes it."""
    meta = load("sglang", stream_name).meta
    folded = meta.get("format") == "dynamo"
    return [
        {
            "page_size": meta["page_size"],
            "cache_salt": query.get("cache_salt"),
            "extra_key": query.get("extra_key"),
            "folded": folded,
            "pairs": meta.get("is_eagle", False),
        }
        for query in meta.get("queries", [])
    ]


@pytest.mark.parametrize("stream_name", STREAMS)
def test_every_hash_on_the_wire_is_computed(stream_name: str) -> None:
    stream = load("sglang", stream_name)
    known = wire.contents("sglang", stream_name)
    folded = stream.meta.get("format") == "dynamo"
    tenants = {query.get("extra_key") for query in stream.meta.get("queries", [])}
    for name, (_, salt, blocks) in known.items():
        units = [unit for tokens, _ in blocks for unit in tokens]
        pairs = isinstance(units[0], tuple)
        tokens = [unit[0] for unit in units] + [units[-1][1]] if pairs else units
        hashes = {
            low64(
                page_hashes(
                    tokens,
                    page_size=stream.block_size,
                    cache_salt=salt,
                    extra_key=tenant,
                    folded=folded,
                    pairs=pairs,
                )[-1]
            )
            for tenant in (tenants or {None})
        }
        assert name in hashes


@pytest.mark.parametrize("stream_name", STREAMS)
def test_a_prompt_is_found_by_its_hashes_whoever_the_tenant_is(
    stream_name: str,
) -> None:
    stream = load("sglang", stream_name)
    index = kvindex.Indexer(block_size=stream.block_size)
    index.register("w", profile="sglang")
    for message in stream.messages:
        index.apply(message.payload, worker="w")
    (rank,) = stream.final.resident
    held = stream.final.resident[rank]
    for request, space in zip(stream.requests, spaces(stream_name), strict=False):
        found = index.match_names(
            page_hashes(request.tokens, **space), workers=[("w", rank)]
        )
        depth = 0
        for name in map(low64, request.names):
            if not any(name in names for names in held.values()):
                break
            depth += 1
        assert list(found.depths) == [depth], request.label


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("folded", [False, True])
def test_every_namespace_is_the_judges(folded: bool, pairs: bool) -> None:  # noqa: FBT001
    tokens = list(range(1000, 1023))
    for salt in (None, "salt", "s\u00e4lt"):
        for tenant in (None, "tenant"):
            for size in (1, 2, 4, 22, 23, 24):
                options: dict[str, Any] = {
                    "page_size": size,
                    "cache_salt": salt,
                    "extra_key": tenant,
                    "folded": folded,
                    "pairs": pairs,
                }
                judged = sglang_hash.names(tokens, **options)
                assert page_hashes(tokens, **options) == judged


def test_empty_names_are_none() -> None:
    plain = page_hashes(range(8), page_size=4, folded=True)
    empty = page_hashes(range(8), page_size=4, folded=True, cache_salt="", extra_key="")
    assert plain == empty == page_hashes(range(8), page_size=4)


def test_a_page_with_a_wide_token_is_hashed_wide() -> None:
    tokens = [1, 2**32, 3, 2**64 - 1]
    digest = sha256(b"\xff" + pack("<2Q", 1, 2**32)).digest()
    first = int.from_bytes(digest[:8], "big", signed=True)
    digest = sha256(digest + b"\xff" + pack("<2Q", 3, 2**64 - 1)).digest()
    second = int.from_bytes(digest[:8], "big", signed=True)
    assert page_hashes(tokens, page_size=2) == [first, second]


@pytest.mark.parametrize("make", [tuple, np.array, lambda t: array("I", t)])
def test_sequences_and_buffers_are_taken(make: Any) -> None:  # noqa: ANN401
    tokens = list(range(9))
    assert page_hashes(make(tokens), page_size=4) == page_hashes(tokens, page_size=4)


def test_what_cannot_be_hashed_is_an_error() -> None:
    with pytest.raises(kvindex.ConfigError, match="page_size must be 1 or more, not 0"):
        page_hashes([1], page_size=0)
    for bad in (-1, 2**64):
        with pytest.raises(OverflowError, match=f"not {bad}"):
            page_hashes([1, bad], page_size=2)
    assert page_hashes([], page_size=4) == page_hashes([1], page_size=4) == []

"""FlexKV's collector: names without tokens, unsigned when stored, signed when removed.

The names in the capture were computed from its tokens with xxhash; here somebody
else explains them, since FlexKV does not.
"""

from collections import Counter
from struct import pack

import msgspec
import xxhash

import kvindex
from kvindex import BlockStored
from tests.engines import meta, payloads

STREAM = "flexkv/collector"
BLOCK = 16
TIERS = {"CPU": "host", "SSD": "disk"}


def names(tokens: list[int]) -> list[int]:
    """Return FlexKV's hash of every block: XXH64 over all tokens so far."""
    state = xxhash.xxh64(seed=0)
    found = []
    for start in range(0, len(tokens), BLOCK):
        block = tokens[start : start + BLOCK]
        state.update(pack(f"<{BLOCK}q", *block))
        found.append(state.intdigest())
    return found


def test_the_capture_is_exact_once_its_names_are_explained() -> None:
    about = meta(f"{STREAM}.meta.json")
    index = kvindex.Indexer(block_size=BLOCK)
    index.register("flexkv", profile="flexkv")
    for prompt in about["tokens"].values():
        taught = BlockStored(names(prompt), prompt)
        index.apply([taught], worker="teacher")
    for payload in payloads(f"{STREAM}.jsonl"):
        report = index.apply(payload, worker="flexkv")
        assert report.ignored == 0
    held = {
        TIERS[medium]: set(resident)
        for medium, resident in about["expected_final_u64"].items()
    }
    (state,) = [row for row in index.workers() if row.worker == "flexkv"]
    assert (state.host, state.disk) == (len(held["host"]), len(held["disk"]))
    for prompt in about["tokens"].values():
        tiers = [
            next((tier for tier in ("host", "disk") if name in held[tier]), None)
            for name in names(prompt)
        ]
        tiers = tiers[: tiers.index(None)] if None in tiers else tiers
        (row,) = index.match(prompt, workers=["flexkv"])
        assert (row.host, row.disk) == (tiers.count("host"), tiers.count("disk"))


def test_names_that_nobody_explains_are_counted() -> None:
    index = kvindex.Indexer(block_size=BLOCK)
    index.register("flexkv", profile="flexkv")
    for payload in payloads(f"{STREAM}.jsonl"):
        said: Counter[str] = Counter()
        for event in msgspec.msgpack.decode(payload)[1]:
            is_store = event["type"] == "BlockStored"
            reason = "unresolved" if is_store else "unknown_block"
            said[reason] += len(event["block_hashes"])
        assert index.apply(payload, worker="flexkv").reasons == said
    assert len(index) == 0

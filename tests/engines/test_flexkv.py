"""FlexKV's collector: names without tokens, unsigned when stored, signed when removed.

The names in the capture were computed from its tokens with xxhash.
"""

from struct import pack

import xxhash

import kvindex
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


def test_the_capture_is_exact() -> None:
    about = meta(f"{STREAM}.meta.json")
    index = kvindex.Indexer(block_size=BLOCK)
    index.register("flexkv", profile="flexkv")
    for payload in payloads(f"{STREAM}.jsonl"):
        report = index.apply(payload, worker="flexkv")
        assert report.ignored == 0
    held = {
        TIERS[medium]: set(resident)
        for medium, resident in about["expected_final_u64"].items()
    }
    (state,) = index.workers()
    assert (state.host, state.disk) == (len(held["host"]), len(held["disk"]))
    for prompt in about["tokens"].values():
        tiers = [
            next((tier for tier in ("host", "disk") if name in held[tier]), None)
            for name in names(prompt)
        ]
        tiers = tiers[: tiers.index(None)] if None in tiers else tiers
        (row,) = index.match(prompt, workers=["flexkv"])
        assert (row.host, row.disk) == (tiers.count("host"), tiers.count("disk"))

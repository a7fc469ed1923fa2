"""Captured event streams of real engines, and what was really resident.

Each stream is the exact bytes that an engine's own code put on its socket, with
a description (`NAME.meta.json`) that was read from the engine's pools and not
from its events. `README.md` beside this file describes the folders.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.streams import sglang_hash

FOLDER = Path(__file__).parent
TIERS = ("device", "host", "disk", "external")
MEDIUM_TIER = {
    "GPU": "device",
    "CPU": "host",
    "CPU_PINNED": "host",
    "STORAGE": "disk",
}

Name = int | bytes
"""An engine hash as it stands on the wire."""

Residency = dict[int, dict[str, Counter[int]]]
"""Rank -> tier -> low 64 bits of a name -> copies."""


def low64(name: Name) -> int:
    """Return what two spellings of one engine hash have in common."""
    if isinstance(name, bytes):
        return int.from_bytes(name[-8:], "big")
    return name & (2**64 - 1)


@dataclass(frozen=True, slots=True)
class Message:
    """One batch as it came off the wire."""

    topic: bytes
    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that the engine saw (with its output), or a query of its tree."""

    label: str
    tokens: list[int]
    prompt_tokens: int
    names: tuple[Name, ...]
    rank: int = 0
    lora_name: str | None = None
    cache_salt: str | None = None
    mm: tuple[tuple[str, int, int], ...] = ()
    walked: tuple[int, int] | None = None
    """Depth on the GPU and on any tier, as the engine's own tree was walked."""

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of a match that belong to this request."""
        return {
            "lora_name": self.lora_name,
            "cache_salt": self.cache_salt,
            "mm": list(self.mm) or None,
        }


@dataclass(frozen=True, slots=True)
class State:
    """What the engine really held after its first `after` batches."""

    after: int
    resident: Residency
    what: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """One captured stream: its batches, its requests and its true states."""

    family: str
    name: str
    block_size: int
    messages: list[Message]
    requests: list[Request]
    checkpoints: list[State]
    final: State
    meta: dict[str, Any] = field(repr=False)

    @property
    def states(self) -> list[State]:
        """All states whose truth is known, the last one at the end."""
        return [*self.checkpoints, self.final]


def names_of(family: str) -> list[str]:
    """Return the names of a family's streams."""
    suffix = ".meta.json"
    return sorted(p.name[: -len(suffix)] for p in (FOLDER / family).glob("*" + suffix))


@cache
def load(family: str, name: str) -> Stream:
    """Read one stream; `family` is "vllm", "vllm_groups" or "sglang"."""
    meta = json.loads((FOLDER / family / f"{name}.meta.json").read_text())
    if family == "sglang":
        return _sglang(name, meta)
    return _vllm(family, name, meta)


def _lines(family: str, name: str) -> list[dict[str, Any]]:
    path = FOLDER / family / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _vllm(family: str, name: str, meta: dict[str, Any]) -> Stream:
    messages = [
        Message(b64decode(line["topic"]), line["seq"], b64decode(line["payload"]))
        for line in _lines(family, name)
    ]
    checkpoints = [
        State(
            point["after_n_batches"],
            _vllm_residency(point["engines"]),
            point.get("what", ""),
        )
        for point in meta.get("checkpoints", [])
    ]
    return Stream(
        family=family,
        name=name,
        block_size=meta.get("block_size") or meta["hash_block_size"],
        messages=messages,
        requests=[_vllm_request(request) for request in meta["requests"]],
        checkpoints=checkpoints,
        final=State(len(messages), _vllm_residency(meta["expected"])),
        meta=meta,
    )


def _vllm_request(request: dict[str, Any]) -> Request:
    prompt = request["prompt_token_ids"]
    return Request(
        label=request["request_id"],
        tokens=prompt + request["output_token_ids"],
        prompt_tokens=len(prompt),
        names=tuple(
            bytes.fromhex(name) if isinstance(name, str) else name
            for name in request["block_hashes"]
        ),
        rank=request.get("engine", 0),
        lora_name=request["lora_name"],
        cache_salt=request["cache_salt"],
        mm=tuple((image[0], image[1], image[2]) for image in request["mm"]),
    )


def _vllm_residency(ranks: dict[str, dict[str, list[dict[str, Any]]]]) -> Residency:
    """Read the pools of the main group; the others are not indexed."""
    return {
        int(rank): {
            MEDIUM_TIER[medium]: Counter(
                {
                    _vllm_hash(entry): entry["copies"]
                    for entry in entries
                    if _main(entry)
                }
            )
            for medium, entries in pools.items()
            if medium in MEDIUM_TIER
        }
        for rank, pools in ranks.items()
    }


def _main(entry: dict[str, Any]) -> bool:
    return entry.get("group_idx") in (None, 0)


def _vllm_hash(entry: dict[str, Any]) -> int:
    name = entry["hash_int64"] if "hash_int64" in entry else entry["hash"]
    return low64(bytes.fromhex(name) if isinstance(name, str) else name)


def _sglang(name: str, meta: dict[str, Any]) -> Stream:
    messages = []
    for line in _lines("sglang", name):
        topic, seq, payload = (b64decode(frame) for frame in line["frames"])
        messages.append(Message(topic, int.from_bytes(seq, "big"), payload))
    rank = meta.get("dp_rank", 0)
    pools = meta.get("expected_final") or {"GPU": meta["expected_final_chain_hashes"]}
    final = {MEDIUM_TIER[medium]: _once(names) for medium, names in pools.items()}
    requests = _sglang_requests(meta, rank)
    return Stream(
        family="sglang",
        name=name,
        block_size=meta["page_size"],
        messages=messages,
        requests=requests,
        checkpoints=_phases(meta, requests, rank),
        final=State(len(messages), {rank: final}),
        meta=meta,
    )


def _once(names: list[int]) -> Counter[int]:
    return Counter({low64(name): 1 for name in names})


def _sglang_requests(meta: dict[str, Any], rank: int) -> list[Request]:
    """Take the queries of a stream, or the prompts that it was made from."""
    queries = meta.get("queries")
    if queries is None:
        prompts = meta.get("docs") or meta["tree_paths"]
        queries = [{"tokens": tokens} for tokens in prompts]
    requests = []
    for number, query in enumerate(queries):
        tenant, salt = query.get("extra_key"), query.get("cache_salt")
        names = sglang_hash.names(
            query["tokens"],
            page_size=meta["page_size"],
            cache_salt=salt,
            extra_key=tenant,
            folded=meta.get("format") == "dynamo",
            pairs=meta.get("is_eagle", False),
        )
        walked = None
        if "gpu_prefix_blocks" in query:
            walked = (query["gpu_prefix_blocks"], query["gpu_or_cpu_prefix_blocks"])
        requests.append(
            Request(
                label=f"query-{number}",
                tokens=query["tokens"],
                prompt_tokens=len(query["tokens"]),
                names=tuple(names),
                rank=rank,
                lora_name=meta.get("lora_names", {}).get(tenant),
                cache_salt=salt,
                walked=walked,
            )
        )
    return requests


def _phases(meta: dict[str, Any], requests: list[Request], rank: int) -> list[State]:
    """Turn the phases that concern every prompt alike into checkpoints.

    The L3 capture moved all its prompts together through its first phases, so
    the text of a phase says what each tier held.
    """
    everything = _once([low64(n) for r in requests for n in r.names])
    held = {
        "inserted (GPU)": ("device",),
        "write-through acked (CPU) + L3 file backup done (no event)": (
            "device",
            "host",
        ),
        "GPU evicted": ("host",),
        "host evicted (still in L3, invisible)": (),
    }
    return [
        State(
            phase["after_batch"],
            {
                rank: {
                    tier: everything if tier in held[phase["phase"]] else Counter()
                    for tier in ("device", "host")
                }
            },
            phase["phase"],
        )
        for phase in meta.get("phases", [])
        if phase["phase"] in held
    ]

"""Simulated engines: what a worker holds, and the events it tells of it.

An engine keeps its own account of what it stored, so most of what it says is
what a real one would say: prefills, copies, offloads, evictions, resets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from itertools import pairwise
from random import Random

import xxhash

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.model_match import Region
from tests.model_read import SALT_MARK, TIERS, Anything, Fields, Name, Wire

MEDIA = {
    "device": (None, "GPU", "GPU", "gpu", "Device"),
    "host": ("CPU", "CPU", "cpu", "CPU_PINNED", "CPU_TIER1"),
    "disk": ("STORAGE", "disk", "SSD", "NVMe", "CPU_TIER2"),
    "external": ("EXTERNAL", "Remote", "NETWORK", "shared"),
}
NAMINGS = (
    "path",
    "path",
    "path",
    "seeded",
    "tokens",
    "tokens",
    "content",
    "numbers",
    "few",
)
FORMS = ("int", "int", "signed", "bytes32", "bytes16", "by_tier")
LAYOUTS = (
    "vllm",
    "vllm",
    "vllm",
    "vllm-12",
    "vllm-10",
    "vllm-9",
    "vllm-8",
    "vllm-7",
    "sglang",
    "sglang",
    "sglang-array",
    "sglang-6",
)


FLEXKV_TIERS = ("host", "disk")

NO_TOKENS: tuple[Anything, ...] = ([], [], None)


@dataclass(frozen=True)
class Chain:
    """A prompt in its namespace: whole blocks, and one token more for pairs."""

    tokens: tuple[int, ...]
    lora: str = ""
    salt: str = ""
    mm: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Group:
    """A cache group of a hybrid model besides the main one."""

    number: int
    kind: str
    window: int | None = None
    unit: int = 1


@dataclass(frozen=True)
class Resident:
    """A copy that an engine believes it has: `depth` blocks deep in a chain."""

    tier: str
    chain: Chain
    depth: int
    name: Name
    group: Group | None = None


@dataclass
class Engine:
    """One (worker, rank), or a pool, and its habits."""

    worker: str
    rank: int
    block_size: int
    naming: str
    form: str
    layout: str
    pairs: bool = False
    unit: int = 1
    coarse: bool = False
    offload: str = "tokens"
    main: int = 0
    groups: tuple[Group, ...] = ()
    root: Name | None = None
    as_objects: bool = False
    marks_salt: bool = False
    seq: int | None = None
    source: str = ""
    pool: bool = False
    residents: list[Resident] = field(default_factory=list)
    numbers: dict[object, int] = field(default_factory=dict)

    # ---- names ----

    def name(self, chain: Chain, depth: int, tier: str = "device") -> Name:
        """Return what the engine calls a chain's block number `depth`."""
        end = depth * self.block_size
        if self.offload == "flexkv" and tier in FLEXKV_TIERS:
            return flexkv_name(chain.tokens[:end], self.form)
        if self.offload == "mooncake" and tier != "device":
            return digest_name(chain.tokens[:end], self.block_size, self.form)
        tokens = chain.tokens[: end + self.pairs]
        images = tuple(region for region in chain.mm if region[1] < end)
        key: object = (chain.lora, chain.salt, tokens, images, self.pairs)
        if self.naming == "seeded":
            key = (self.worker, key)
        elif self.naming == "tokens":
            key = tokens
        elif self.naming == "content":
            key = tokens[end - self.block_size :]
        elif self.naming == "numbers":
            return self.numbers.setdefault(key, len(self.numbers) % 9 + 1)
        digest = blake2b(repr(key).encode(), digest_size=32).digest()
        if self.naming == "few":
            digest = bytes([digest[0] % 2]) * 31 + bytes([digest[1] % 9])
        return shaped(digest, self.form, tier)

    # ---- events ----

    def stored(
        self,
        random: Random,
        chain: Chain,
        first: int,
        last: int,
        tier: str,
        *,
        unit: int = 1,
    ) -> Wire:
        """Tell that blocks `first` + 1 to `last` of a chain are on a tier."""
        size = self.block_size
        tokens: list[object] = list(chain.tokens[first * size : last * size])
        if self.pairs:
            ahead = chain.tokens[first * size + 1 : last * size + 1]
            tokens = [list(pair) for pair in zip(tokens, ahead, strict=True)]
        parent = self.name(chain, first, tier) if first else self.root
        ends = range(first + unit, last + 1, unit)
        given: Fields = {
            "block_hashes": [self.name(chain, end, tier) for end in ends],
            "token_ids": tokens,
            "parent_block_hash": parent,
            "block_size": size * unit,
            "medium": random.choice(MEDIA[tier]),
        }
        given |= self.namespace_fields(random, chain, first, ends, tier)
        for end in ends:
            self.residents.append(
                Resident(tier, chain, end, self.name(chain, end, tier))
            )
        return self.laid_out(random, BlockStored(**given))

    def namespace_fields(
        self,
        random: Random,
        chain: Chain,
        first: int,
        ends: range,
        tier: str,
    ) -> Fields:
        """Return the fields that carry adapter, salt and images."""
        if self.layout.startswith("sglang"):
            return {
                "lora_name": chain.lora or None,
                "cache_salt": chain.salt or random.choice((None, None, "")),
            }
        given: Fields = {"lora_name": chain.lora or random.choice((None, None, ""))}
        if self.layout == "vllm-7" and chain.lora:
            given = {"lora_id": 1 if chain.lora == "x" else 2}
        if tier == "device" or random.random() < 0.4:
            start = first
            keys = []
            for end in ends:
                keys.append(self.extra_keys(chain, start, end))
                start = end
            given["extra_keys"] = keys
        if self.groups or random.random() < 0.05:
            given["kv_cache_spec_kind"] = "full_attention"
        if self.groups:
            given["group_idx"] = self.main
        return given

    def extra_keys(self, chain: Chain, start: int, end: int) -> list[object] | None:
        """Return a block's extra keys in the order in which vLLM writes them."""
        bare = self.layout in ("vllm-9", "vllm-10")
        first_token, end_token = start * self.block_size, end * self.block_size
        keys: list[object] = [chain.lora] if chain.lora else []
        for identifier, at, length in chain.mm:
            if at < end_token and at + length > first_token:
                offset = at - first_token
                keys.append(identifier if bare else [identifier, offset])
        if chain.salt and start == 0:
            keys.append(SALT_MARK + chain.salt if self.marks_salt else chain.salt)
        return keys or None

    def laid_out(self, random: Random, event: BlockStored) -> Wire:
        """Write a store in the engine's layout, and lose what it cannot carry."""
        fields, given = layout_of(self.layout, event)
        wire = Wire(BlockStored(**given), fields, {}, random.randrange(1000))
        if self.layout == "vllm" and not self.as_objects and random.random() < 0.05:
            given["locality"] = "REMOTE" if random.random() < 0.3 else "LOCAL"
            wire = Wire(BlockStored(**given), None, {}, wire.spelling)
        return wire

    def in_group(
        self, random: Random, group: Group, chain: Chain, first: int, last: int
    ) -> list[Wire]:
        """Tell what another group holds of blocks that the main one computed."""
        unit, start = group.unit, first - first % group.unit
        if start + unit > last:  # a boundary within its block
            unit, start = 1, last - 1
        last -= (last - start) % unit
        residents = len(self.residents)
        wire = self.stored(random, chain, start, last, "device", unit=unit)
        given = {
            name: getattr(wire.event, name) for name in BlockStored.__dataclass_fields__
        }
        given |= {
            "group_idx": group.number,
            "kv_cache_spec_kind": group.kind,
            "kv_cache_spec_sliding_window": group.window,
        }
        ends = range(len(given["block_hashes"]))
        kept = set(ends)
        if random.random() < 0.35:  # masked blocks: hashes are left out, tokens are not
            some = {end for end in ends if random.random() < 0.5}
            kept = {max(ends)} if group.kind == "mamba" else some
            for name in ("block_hashes", "extra_keys"):
                if given[name] is not None:
                    given[name] = [given[name][end] for end in sorted(kept)]
        self.residents[residents:] = [
            replace(item, group=group)
            for end, item in enumerate(self.residents[residents:])
            if end in kept
        ]
        return [self.laid_out(random, BlockStored(**given))]

    def placed(
        self,
        random: Random,
        names: Iterable[Name],
        tier: str,
        group: Group | None = None,
    ) -> Wire:
        """Tell of known blocks on a tier, without tokens."""
        event = BlockStored(
            list(names),
            random.choice(NO_TOKENS),
            block_size=random.choice((0, 0, self.block_size * self.unit)),
            medium=random.choice(MEDIA[tier]),
        )
        if self.groups:
            event = replace(event, group_idx=self.main)
        if group is not None:
            event = replace(
                event,
                group_idx=group.number,
                kv_cache_spec_kind=random.choice((None, group.kind)),
                kv_cache_spec_sliding_window=group.window,
            )
        fields, given = layout_of(self.layout, event)
        return Wire(BlockStored(**given), fields, {}, random.randrange(1000))

    def inserted(self, random: Random, chain: Chain, depth: int, tier: str) -> Wire:
        """Tell of a whole prefix on a tier by the names that FlexKV computes."""
        names = [self.name(chain, end, tier) for end in range(1, depth + 1)]
        self.residents += [
            Resident(tier, chain, end, name) for end, name in enumerate(names, 1)
        ]
        event = BlockStored(
            [name % 2**64 if isinstance(name, int) else name for name in names],
            [],
            block_size=random.choice((self.block_size,) * 5 + (2 * self.block_size,)),
            medium=random.choice(MEDIA[tier]),
        )
        fields, given = layout_of(self.layout, event)
        return Wire(BlockStored(**given), fields, {}, random.randrange(1000))

    def removed(
        self,
        random: Random,
        names: Iterable[Name],
        tier: str,
        group: int | None = None,
    ) -> Wire:
        """Tell that blocks left a tier."""
        medium = random.choice(MEDIA[tier])
        fields = None
        if self.layout not in ("vllm", "sglang"):
            fields = {"sglang-6": 2, "vllm-10": 4, "vllm-12": 4}.get(self.layout, 3)
        if fields == 2:
            medium = None
        if fields in (2, 3):
            group = None
        event = BlockRemoved(list(names), medium, group)
        return Wire(event, fields, {}, random.randrange(1000))

    # ---- what a real engine does ----

    def prefill(self, random: Random, chain: Chain) -> list[Wire]:
        """Compute a prompt's missing blocks; sometimes its last one again."""
        unit = self.unit if self.coarse else 1
        pages = (len(chain.tokens) - 1) // (self.block_size * unit)
        if not pages:
            return []
        last = random.randint(1, pages)
        first = self.cached(chain, last, unit)
        if first == last:
            first -= random.random() < 0.5
        elif random.random() < 0.05:
            first = 0
        cuts = [first, last]
        if last - first > 1 and random.random() < 0.3:
            cuts.insert(1, random.randint(first + 1, last - 1))
        wires = [
            self.stored(random, chain, start * unit, end * unit, "device", unit=unit)
            for start, end in pairwise(cuts)
            if start < end
        ]
        for group in self.groups:
            first, last = cuts[0] * unit, cuts[-1] * unit
            wires += self.in_group(random, group, chain, first, last)
        if self.groups and random.random() < 0.3:
            random.shuffle(wires)
        return wires

    def cached(self, chain: Chain, pages: int, unit: int) -> int:
        """Return how many leading pages the engine has on its device."""
        held = {
            item.name
            for item in self.residents
            if item.tier == "device" and item.group is None
        }
        reached = 0
        while reached < pages and self.name(chain, (reached + 1) * unit) in held:
            reached += 1
        return reached

    def copy_to(self, random: Random, tier: str) -> list[Wire]:
        """Copy resident blocks to another tier, in one of the known ways."""
        residents = [item for item in self.residents if item.tier != tier]
        if not residents:
            return []
        item = random.choice(residents)
        chain, depth = item.chain, item.depth
        if self.offload == "flexkv" and tier in FLEXKV_TIERS:
            return [self.inserted(random, chain, depth, tier)]
        if self.offload == "mooncake" and tier != "device":
            return [self.inserted(random, chain, depth, tier)]
        if (self.offload == "names" or item.group) and tier != "device":
            alike = [each for each in residents if each.group == item.group]
            chosen = random.sample(alike, min(len(alike), 2))
            names = [self.name(each.chain, each.depth, tier) for each in chosen]
            self.residents += [
                Resident(tier, each.chain, each.depth, name, each.group)
                for each, name in zip(chosen, names, strict=True)
            ]
            return [self.placed(random, names, tier, item.group)]
        unit = self.unit if tier != "device" or self.coarse else 1
        first = random.randint(0, depth - 1)
        depth -= (depth - first) % unit
        if first == depth:
            return []
        return [self.stored(random, chain, first, depth, tier, unit=unit)]

    def evict(self, random: Random) -> list[Wire]:
        """Drop some residents of one tier, the newest or any."""
        tier = random.choice([item.tier for item in self.residents] or ["device"])
        there = [item for item in self.residents if item.tier == tier]
        count = min(len(there), random.randint(1, 3))
        chosen = (
            there[-count:] if random.random() < 0.4 else random.sample(there, count)
        )
        for item in chosen:
            self.residents.remove(item)
        wires = []
        for group in (None, *self.groups):
            names = [item.name for item in reversed(chosen) if item.group == group]
            number = self.main if self.groups else None
            if group is not None:
                number = group.number
            if random.random() < 0.5:
                wires += [self.removed(random, [name], tier, number) for name in names]
            elif names:
                wires.append(self.removed(random, names, tier, number))
        return wires

    def wipe(self, random: Random) -> list[Wire]:
        """Reset the cache: one clear, or two as with a connector's own."""
        self.residents.clear()
        fields = None if self.layout in ("vllm", "sglang") else 1
        return [Wire(AllBlocksCleared(), fields)] * random.choice((1, 1, 2))

    def work(self, random: Random, chain: Chain) -> list[Wire]:
        """Do one thing that engines do."""
        dice = random.random()
        if dice < 0.35 or not self.residents:
            return self.prefill(random, chain)
        if dice < 0.72:
            return self.copy_to(random, random.choice(("host", "host", *TIERS)))
        if dice < 0.96:
            return self.evict(random)
        return self.wipe(random)


def flexkv_name(tokens: Iterable[int], form: str) -> Name:
    """Return what FlexKV calls the block that ends with these tokens."""
    packed = b"".join(token.to_bytes(8, "little") for token in tokens)
    return shaped(xxhash.xxh64(packed, seed=0).digest(), form, "host")


def digest_name(tokens: tuple[int, ...], size: int, form: str) -> Name:
    """Return the digest by which SGLang stores the page that ends with these."""
    digest = b""
    for start in range(0, len(tokens), size):
        page = tokens[start : start + size]
        packed = b"".join(token.to_bytes(4, "little") for token in page)
        digest = sha256(digest + packed).digest()
    return shaped(digest, form, "host")


def shaped(digest: bytes, form: str, tier: str) -> Name:
    """Write a digest as the integer or byte string that an engine sends."""
    number = int.from_bytes(digest[-8:], "big")
    if form == "signed":
        return number - 2**64 if number >= 2**63 else number
    if form == "bytes32" or (form == "by_tier" and tier != "device"):
        return digest
    return digest[-16:] if form == "bytes16" else number


def layout_of(layout: str, event: BlockStored) -> tuple[int | None, Fields]:
    """Return a layout's number of items and what it carries of a store."""
    given = {
        name: getattr(event, name)
        for name in BlockStored.__dataclass_fields__
        if getattr(event, name) is not None
    }
    given.setdefault("token_ids", None)
    if layout in ("vllm", "sglang"):
        return None, given
    if layout == "sglang-6":
        fields = 6
    elif layout == "sglang-array":
        fields = 8 if given.get("cache_salt") is not None else 7
    else:
        fields = int(layout.removeprefix("vllm-"))
    carried = {
        6: (),
        7: ("medium",),
        8: ("medium", "cache_salt" if "sglang" in layout else "lora_name"),
        9: ("medium", "lora_name", "extra_keys"),
        10: ("medium", "lora_name", "extra_keys", "group_idx"),
        12: (
            "medium",
            "lora_name",
            "extra_keys",
            "group_idx",
            "kv_cache_spec_kind",
            "kv_cache_spec_sliding_window",
        ),
    }[fields]
    always = ("block_hashes", "token_ids", "parent_block_hash", "block_size", "lora_id")
    return fields, {
        name: value for name, value in given.items() if name in (*always, *carried)
    }

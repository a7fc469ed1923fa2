"""How the model answers: each question is one look through all copies."""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from math import ceil
from typing import NamedTuple

import xxhash

from tests.model_names import Names
from tests.model_read import (
    MAIN,
    TIERS,
    Block,
    Content,
    Group,
    Image,
    Name,
    Namespace,
    flexkv_content,
    image,
    same_name,
    sglang_content,
)
from tests.model_state import POOL, Copy, Holder, Kind

Candidate = str | tuple[str, int]
Masks = dict[str, list[bool]]
Region = tuple[str, int, int]  # image identifier, first token, length
PLACES = (*TIERS, "shared", "predicted")


class Row(NamedTuple):
    """One row of an answer."""

    worker: str
    dp_rank: int
    depth: int
    score: float
    device: int
    host: int
    disk: int
    external: int
    shared: int
    predicted: int


class HolderRow(NamedTuple):
    """One row of `workers()`."""

    worker: str
    dp_rank: int
    device: int
    host: int
    disk: int
    external: int
    seq: int | None
    orphans: int
    duplicates: int
    predicted: int


class PoolRow(NamedTuple):
    """One row of `pools()`."""

    pool: str
    device: int
    host: int
    disk: int
    external: int
    seq: int | None
    orphans: int
    duplicates: int


class Answers(Names):
    """The questions that can be asked of a model."""

    # ---- what is held ----

    def held_blocks(
        self, holder: Holder | None = None, tier: str | None = None
    ) -> set[Block]:
        """Return the distinct blocks held: by anyone, or of a holder's main group."""
        return {
            block
            for copy in self.claims()
            if holder is None
            or (copy.holder, copy.tier, copy.group) == (holder, tier, MAIN)
            for block in copy.blocks()
        }

    def __len__(self) -> int:
        """Return the number of distinct blocks held."""
        return len(self.held_blocks())

    def workers(self) -> list[HolderRow]:
        """Return a row for each holder that sent an accepted batch."""
        return [
            HolderRow._make(
                [*holder, *self.numbers(holder), len(self.predicted.get(holder, ()))]
            )
            for holder in sorted(self.touched)
            if holder[1] != POOL
        ]

    def pools(self) -> list[PoolRow]:
        """Return a row for each pool that is registered or sent a batch."""
        return [
            PoolRow._make([holder[0], *self.numbers(holder)])
            for holder in sorted(self.known)
            if holder[1] == POOL
        ]

    def numbers(self, holder: Holder) -> list[int | None]:
        """Return what `workers()` and `pools()` say of a holder."""
        return [
            *(len(self.held_blocks(holder, tier)) for tier in TIERS),
            self.last_seq.get(holder),
            self.waiting_blocks(holder),
            self.duplicates.get(holder, 0),
        ]

    # ---- queries ----

    def match(
        self,
        tokens: Sequence[int],
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: Iterable[Region] | None = None,
        workers: Sequence[Candidate] | None = None,
        weights: dict[str, float] | None = None,
        cascade: bool = False,
        kinds: Sequence[bool] | None = None,
    ) -> list[Row]:
        """Match a prompt, as single tokens, as pairs, or the better of both."""
        ways = self.ways(
            tokens, lora_name=lora_name, cache_salt=cache_salt, mm=mm, kinds=kinds
        )

        def ask(holder: Holder) -> list[Row]:
            return [ask_way(holder, paths) for paths in ways]

        def ask_way(holder: Holder, paths: list[Block]) -> Row:
            def cut(end: int) -> list[Block]:
                return [path[:end] for path in paths]

            def masks(group: Group, end: int) -> Masks:
                return self.masks(holder, cut(end), group)

            def besides(end: int) -> Masks:
                return self.besides(holder, cut(end))

            length = len(paths[0])
            return self.usable(holder, length, masks, besides, weights, cascade)

        return self.choose(ask, workers)

    def usable(
        self,
        holder: Holder,
        length: int,
        masks: Callable[[Group, int], Masks],
        besides: Callable[[int], Masks],
        weights: dict[str, float] | None,
        cascade: bool,  # noqa: FBT001
    ) -> Row:
        """Count the longest beginning of a query from which all groups can go on.

        `masks` and `besides` tell what counts where the query ends early.
        """
        others = {} if cascade else self.others.get(holder, {})
        for end in range(length, -1, -1):
            more = besides(end)
            row = self.row(holder, masks(MAIN, end), more, weights, cascade)
            if not others:
                break
            if row.depth == end and all(
                self.goes_on(kind, masks(group, end), more["predicted"])
                for group, kind in others.items()
            ):
                break
        return row

    def goes_on(self, kind: Kind, masks: Masks, predicted: list[bool]) -> bool:
        """Return whether a group has what it needs at the end of some blocks."""
        places = [*masks.values(), predicted]
        held = [any(each) for each in zip(*places, strict=True)]
        name, window = kind
        need = len(held)
        if name == "mamba":
            need = 1
        elif name in ("sliding_window", "sliding_window_mla") and window:
            need = ceil((window - 1) / self.block_size)
        return all(held[max(0, len(held) - need) :])

    def match_names(
        self,
        names: Sequence[Name],
        *,
        workers: Sequence[Candidate] | None = None,
        weights: dict[str, float] | None = None,
        cascade: bool = False,
    ) -> list[Row]:
        """Match a list of names, each holder by the names that it holds."""

        def ask(holder: Holder) -> list[Row]:
            pools = self.reached(holder[0])
            shared = [
                any(
                    self.holds_name(pool, tier, name)
                    for pool in pools
                    for tier in TIERS
                )
                for name in names
            ]

            def masks(group: Group, end: int) -> Masks:
                return self.name_masks(holder, names[:end], group)

            def besides(end: int) -> Masks:
                return {"shared": shared[:end], "predicted": [False] * end}

            length = len(names)
            row = self.usable(holder, length, masks, besides, weights, cascade)
            return [row]

        return self.choose(ask, workers)

    def pool_depths(
        self,
        tokens: Sequence[int],
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: Iterable[Region] | None = None,
        kinds: Sequence[bool] | None = None,
    ) -> dict[str, int]:
        """Return how many leading blocks of a prompt each pool holds."""
        ways = self.ways(
            tokens, lora_name=lora_name, cache_salt=cache_salt, mm=mm, kinds=kinds
        )
        return {
            pool[0]: max(leading(self.masks(pool, paths)) for paths in ways)
            for pool in self.all_pools()
        }

    def names_depths(self, names: Sequence[Name]) -> dict[str, int]:
        """Return how many leading ones of some names each pool holds."""
        return {
            pool[0]: leading(self.name_masks(pool, names)) for pool in self.all_pools()
        }

    def all_pools(self) -> list[Holder]:
        """Return every pool, whether or not it holds anything."""
        return [holder for holder in self.known if holder[1] == POOL]

    def ways(
        self,
        tokens: Sequence[int],
        *,
        lora_name: str | None,
        cache_salt: str | None,
        mm: Iterable[Region] | None,
        kinds: Sequence[bool] | None,
    ) -> list[list[Block]]:
        """Return a prompt's blocks as they may be held: singles, pairs.

        Those of one way count together. By tokens, where no kind is asked for,
        singles are also blocks that FlexKV and SGLang name.
        """
        namespace = (lora_name or "", cache_salt or "")
        regions = tuple(mm or ())
        size = self.block_size
        ways = [
            [query_blocks(tuple(tokens), namespace, regions, size, pairs=pairs)]
            for pairs in ((False, True) if kinds is None else kinds)
        ]
        if kinds is None and namespace == ("", "") and not regions:
            ways[0].append(flexkv_blocks(tuple(tokens), size))
            ways[0].append(sglang_pages(tuple(tokens), size))
        return ways

    def name_masks(
        self, holder: Holder, names: Sequence[Name], group: Group = MAIN
    ) -> Masks:
        """Return which names a holder holds on each tier."""
        return {
            tier: [self.holds_name(holder, tier, name, group) for name in names]
            for tier in TIERS
        }

    def besides(self, holder: Holder, paths: list[Block]) -> Masks:
        """Return which blocks of some paths count although a holder lacks them."""
        blocks = self.predicted.get(holder, {})
        path = paths[0]
        predicted = [path[:end] in blocks for end in range(1, len(path) + 1)]
        return {"shared": self.shared(holder, paths), "predicted": predicted}

    def shared(self, holder: Holder, paths: list[Block]) -> list[bool]:
        """Return which blocks of some paths any pool has that a worker reaches."""
        shared = [False] * len(paths[0])
        for pool in self.reached(holder[0]):
            for mask in self.masks(pool, paths).values():
                shared = [a or b for a, b in zip(shared, mask, strict=True)]
        return shared

    def holds_name(
        self, holder: Holder, tier: str, name: Name, group: Group = MAIN
    ) -> bool:
        """Return whether a holder holds anything of that name on a tier."""
        return any(
            (copy.holder, copy.group, copy.tier) == (holder, group, tier)
            and same_name(copy.name, name)
            for copy in [*self.copies, *self.pages]
        )

    def all_holders(self) -> list[Holder]:
        """Return every rank that is known or holds anything."""
        holders = self.known | {copy.holder for copy in [*self.copies, *self.pages]}
        return sorted(holder for holder in holders if holder[1] != POOL)

    def masks(self, holder: Holder, paths: list[Block], group: Group = MAIN) -> Masks:
        """Return which blocks of some paths count on each tier."""
        length = len(paths[0])
        by_chunk: dict[tuple[str, int], list[bool]] = {}
        for copy in self.claims():
            if (copy.holder, copy.group) == (holder, group):
                mask = by_chunk.setdefault((copy.tier, copy.chunk), [False] * length)
                for position in (at for path in paths for at in positions(copy, path)):
                    mask[position] = True
        masks = {tier: [False] * length for tier in TIERS}
        for (tier, chunk), mask in by_chunk.items():
            kept = whole_chunks(mask, chunk) if chunk else mask
            masks[tier] = [a or b for a, b in zip(masks[tier], kept, strict=True)]
        return masks

    def row(
        self,
        holder: Holder,
        masks: Masks,
        besides: Masks,
        weights: dict[str, float] | None,
        cascade: bool,  # noqa: FBT001
    ) -> Row:
        """Count a holder's leading blocks by tier, and those it lacks."""
        counts = cascaded(masks) if cascade else nearest(masks | besides)
        weight = self.weights | (weights or {})
        weight["predicted"] = weight["device"]
        score = sum(count * weight[place] for place, count in counts.items())
        return Row(*holder, sum(counts.values()), score, *counts.values())

    def choose(
        self,
        ask: Callable[[Holder], list[Row]],
        workers: Sequence[Candidate] | None,
    ) -> list[Row]:
        """Return the rows of who holds something, or one for each candidate.

        `ask` gives a holder's rows, one for each kind of keys; the best one counts.
        """
        holders = self.all_holders()
        if workers is None:
            rows = map(ask, holders)
            return [best_kind(each) for each in rows if any(map(holds, each))]
        chosen = []
        for candidate in workers:
            if isinstance(candidate, tuple):
                asked = [candidate]
            else:
                asked = [each for each in holders if each[0] == candidate]
                asked = asked or [(candidate, 0)]
            chosen.append(
                max(
                    (best_kind(ask(holder)) for holder in asked),
                    key=lambda row: (row.score, row.depth, -row.dp_rank),
                )
            )
        return chosen


def best_kind(rows: Iterable[Row]) -> Row:
    """Return the larger one of a holder's rows."""
    return max(rows, key=lambda row: (row.depth, row.score))


def holds(row: Row) -> bool:
    """Return whether any of a row's blocks is the holder's own."""
    return row.depth > row.shared


def leading(masks: Masks) -> int:
    """Return how many leading blocks are on any tier."""
    return sum(nearest(masks).values())


@lru_cache(4096)
def query_blocks(
    tokens: tuple[int, ...],
    namespace: Namespace,
    mm: tuple[Region, ...],
    size: int,
    *,
    pairs: bool,
) -> Block:
    """Return the contents of a prompt's whole blocks."""
    return tuple(
        Content(
            namespace,
            tokens[start : start + size + pairs],
            images_between(mm, start, start + size),
            pairs,
        )
        for start in range(0, len(tokens) - size - pairs + 1, size)
    )


@lru_cache(4096)
def flexkv_blocks(tokens: tuple[int, ...], size: int) -> Block:
    """Return a prompt's whole blocks as FlexKV names them."""
    digest = xxhash.xxh64(seed=0)
    blocks = []
    for start in range(0, len(tokens) - size + 1, size):
        digest.update(struct.pack(f"<{size}q", *tokens[start : start + size]))
        blocks.append(flexkv_content(digest.intdigest()))
    return tuple(blocks)


@lru_cache(4096)
def sglang_pages(tokens: tuple[int, ...], size: int) -> Block:
    """Return a prompt's whole pages as SGLang names them in a shared store."""
    digest, pages = b"", []
    for start in range(0, len(tokens) - size + 1, size):
        page = struct.pack(f"<{size}I", *tokens[start : start + size])
        digest = sha256(digest + page).digest()
        pages.append(sglang_content(int.from_bytes(digest[-8:], "big")))
    return tuple(pages)


def images_between(mm: Iterable[Region], start: int, end: int) -> tuple[Image, ...]:
    """Return the images that reach into tokens `start` to `end`."""
    return tuple(
        sorted(
            image(identifier)
            for identifier, first, length in mm
            if max(first, start) < min(first + length, end)
        )
    )


def positions(copy: Copy, path: Block) -> range:
    """Return where on a path the blocks of a copy lie, if it covers all of them."""
    length = len(copy.block)
    page = copy.block[-1]
    if page.family == "sglang":
        # Its name commits to the whole prefix, and its path is that alone.
        at = path.index(page) if page in path else None
        return range(0) if at is None else range(at, at + 1)
    if path[:length] != copy.block:
        return range(0)
    return range(length - copy.size, length)


def whole_chunks(mask: list[bool], chunk: int) -> list[bool]:
    """Keep only the aligned chunks that are held and covered whole."""
    kept = []
    for start in range(0, len(mask), chunk):
        part = mask[start : start + chunk]
        kept += [len(part) == chunk and all(part)] * len(part)
    return kept


def nearest(masks: Masks) -> dict[str, int]:
    """Give each leading block to the first place that has it."""
    counts = dict.fromkeys(masks, 0)
    for each in zip(*masks.values(), strict=True):
        if not any(each):
            break
        counts[tuple(masks)[each.index(True)]] += 1
    return counts


def cascaded(masks: Masks) -> dict[str, int]:
    """Walk each tier once, from where the one before it stopped."""
    counts = dict.fromkeys(PLACES, 0)
    position = 0
    for tier, mask in masks.items():
        while position < len(mask) and mask[position]:
            counts[tier] += 1
            position += 1
    return counts

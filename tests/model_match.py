"""How the model answers: each question is one look through all copies."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tests.model_read import (
    TIERS,
    Block,
    Content,
    Image,
    Name,
    Namespace,
    image,
    same_name,
)
from tests.model_state import Copy, Holder, State

Candidate = str | tuple[str, int]
Masks = dict[str, list[bool]]
Region = tuple[str, int, int]  # image identifier, first token, length


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


class Answers(State):
    """The questions that can be asked of a model."""

    # ---- what is held ----

    def held_blocks(
        self, holder: Holder | None = None, tier: str | None = None
    ) -> set[Block]:
        """Return the distinct blocks held, by anyone or on any tier if not given."""
        return {
            block
            for copy in self.copies
            if holder in (None, copy.holder) and tier in (None, copy.tier)
            for block in copy.blocks()
        }

    def __len__(self) -> int:
        """Return the number of distinct blocks held."""
        return len(self.held_blocks())

    def workers(self) -> list[HolderRow]:
        """Return a row for each holder that sent an accepted batch."""
        return [
            HolderRow._make(
                [
                    *holder,
                    *(len(self.held_blocks(holder, tier)) for tier in TIERS),
                    self.last_seq.get(holder),
                    self.waiting_blocks(holder),
                    self.duplicates.get(holder, 0),
                ]
            )
            for holder in sorted(self.touched)
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
        kinds: Sequence[bool] = (False, True),
    ) -> list[Row]:
        """Match a prompt, as single tokens, as pairs, or the better of both."""
        paths = [
            query_blocks(
                tuple(tokens),
                (lora_name or "", cache_salt or ""),
                tuple(mm or ()),
                self.block_size,
                pairs=pairs,
            )
            for pairs in kinds
        ]
        rows = {}
        for holder in self.all_holders():
            each = [
                self.row(holder, self.masks(holder, path), weights, cascade=cascade)
                for path in paths
            ]
            rows[holder] = max(each, key=lambda row: (row.depth, row.score))
        return self.choose(rows, workers)

    def match_names(
        self,
        names: Sequence[Name],
        *,
        workers: Sequence[Candidate] | None = None,
        weights: dict[str, float] | None = None,
        cascade: bool = False,
    ) -> list[Row]:
        """Match a list of names, each holder by the names that it holds."""
        rows = {}
        for holder in self.all_holders():
            masks = {
                tier: [self.holds_name(holder, tier, name) for name in names]
                for tier in TIERS
            }
            rows[holder] = self.row(holder, masks, weights, cascade=cascade)
        return self.choose(rows, workers)

    def holds_name(self, holder: Holder, tier: str, name: Name) -> bool:
        """Return whether a holder holds anything of that name on a tier."""
        return any(
            (copy.holder, copy.tier) == (holder, tier) and same_name(copy.name, name)
            for copy in self.copies
        )

    def all_holders(self) -> list[Holder]:
        """Return every holder that holds anything."""
        return sorted({copy.holder for copy in self.copies})

    def masks(self, holder: Holder, path: Block) -> Masks:
        """Return which of a path's blocks count on each tier."""
        by_chunk: dict[tuple[str, int], list[bool]] = {}
        for copy in self.copies:
            if copy.holder == holder and is_on(copy, path):
                mask = by_chunk.setdefault((copy.tier, copy.chunk), [False] * len(path))
                for position in range(len(copy.block) - copy.size, len(copy.block)):
                    mask[position] = True
        masks = {tier: [False] * len(path) for tier in TIERS}
        for (tier, chunk), mask in by_chunk.items():
            kept = whole_chunks(mask, chunk) if chunk else mask
            masks[tier] = [a or b for a, b in zip(masks[tier], kept, strict=True)]
        return masks

    def row(
        self,
        holder: Holder,
        masks: Masks,
        weights: dict[str, float] | None,
        *,
        cascade: bool,
    ) -> Row:
        """Count a holder's leading blocks by tier."""
        counts = cascaded(masks) if cascade else nearest(masks)
        weight = self.weights | (weights or {})
        score = sum(count * weight[tier] for tier, count in counts.items())
        return Row(*holder, sum(counts.values()), score, *counts.values())

    def choose(
        self,
        rows: dict[Holder, Row],
        workers: Sequence[Candidate] | None,
    ) -> list[Row]:
        """Return the rows that hold something, or one for each candidate."""
        if workers is None:
            return [row for row in rows.values() if row.depth]
        chosen = []
        for candidate in workers:
            if isinstance(candidate, tuple):
                found = [rows.get(candidate)]
                rank = candidate[1]
            else:
                found = [row for row in rows.values() if row.worker == candidate]
                rank = 0
            name = candidate if isinstance(candidate, str) else candidate[0]
            chosen.append(
                max(
                    (row for row in found if row is not None),
                    key=lambda row: (row.score, row.depth, -row.dp_rank),
                    default=Row(name, rank, 0, 0.0, 0, 0, 0, 0),
                )
            )
        return chosen


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


def images_between(mm: Iterable[Region], start: int, end: int) -> tuple[Image, ...]:
    """Return the images that reach into tokens `start` to `end`."""
    return tuple(
        sorted(
            image(identifier)
            for identifier, first, length in mm
            if max(first, start) < min(first + length, end)
        )
    )


def is_on(copy: Copy, path: Block) -> bool:
    """Return whether the path covers all blocks of a copy."""
    length = len(copy.block)
    return length <= len(path) and path[:length] == copy.block


def whole_chunks(mask: list[bool], chunk: int) -> list[bool]:
    """Keep only the aligned chunks that are held and covered whole."""
    kept = []
    for start in range(0, len(mask), chunk):
        part = mask[start : start + chunk]
        kept += [len(part) == chunk and all(part)] * len(part)
    return kept


def nearest(masks: Masks) -> dict[str, int]:
    """Give each leading block to the nearest tier that has it."""
    counts = dict.fromkeys(TIERS, 0)
    for each in zip(*masks.values(), strict=True):
        if not any(each):
            break
        counts[TIERS[each.index(True)]] += 1
    return counts


def cascaded(masks: Masks) -> dict[str, int]:
    """Walk each tier once, from where the one before it stopped."""
    counts = dict.fromkeys(TIERS, 0)
    position = 0
    for tier, mask in masks.items():
        while position < len(mask) and mask[position]:
            counts[tier] += 1
            position += 1
    return counts

"""A short notation for scenarios: a block is a letter, a path is a word.

`scene.S("w1", "AB")` stores the blocks A and AB from the root, with the names
`name("A")` and `name("AB")`; `scene.S("w1", "C", after="AB")` goes on there.
`"w1@2"` is rank 2 of worker w1, `"pool:p"` is pool p. `scene.R` removes paths,
`scene.C` clears.
`depths(index, "ABC")` is the answer to a query as {holder: depth}.

A scene says every event in one of three forms: as event objects, as map bytes
or as array bytes. The meaning must not depend on it.
"""

# Keywords are passed on as they come; the calls that take them check them.
# ruff: noqa: ANN401

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Any

import kvindex
from kvindex import AllBlocksCleared, BlockRemoved, BlockStored
from tests import wire

BLOCK = 4
FORMS = ("objects", "maps", "arrays")
MEDIA = {"gpu": "GPU", "cpu": "CPU", "disk": "STORAGE", "external": "EXTERNAL"}
TIERS = ("device", "host", "disk", "external")
HEX = {letter: hashlib.sha256(letter.encode()).hexdigest() for letter in "abcdef"}

Event = BlockStored | BlockRemoved | AllBlocksCleared
Hash = int | bytes


def name(path: str) -> int:
    """Return the engine hash of a path: 64 opaque bits, equal for equal paths."""
    digest = hashlib.blake2b(path.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def names(*paths: str) -> list[int]:
    """Return the engine hash of each path."""
    return [name(path) for path in paths]


def tokens(path: str, block: int = BLOCK) -> list[int]:
    """Return the tokens of a path, `block` for each letter."""
    return [ord(letter) * 1000 + i for letter in path for i in range(block)]


def holder(who: str) -> tuple[str, int]:
    """Split `w1@2` into worker and rank; a bare worker is rank 0."""
    worker, _, rank = who.partition("@")
    return worker, int(rank or 0)


def sender(who: str) -> dict[str, Any]:
    """Return the keyword of `apply` that says who sends."""
    kind, _, pool = who.rpartition(":")
    return {kind: pool} if kind else {"worker": holder(who)[0]}


def label(worker: str, rank: int) -> str:
    """Join worker and rank as the notation writes them."""
    return worker if rank == 0 else f"{worker}@{rank}"


def query(path: str | Sequence[int]) -> Sequence[int]:
    """Return the tokens of a path; tokens stay what they are."""
    return tokens(path) if isinstance(path, str) else path


def rows(
    index: kvindex.Indexer, path: str | Sequence[int], **options: Any
) -> dict[str, kvindex.Match]:
    """Match and return {holder: row}."""
    found = index.match(query(path), **options)
    answer = {label(row.worker, row.dp_rank): row for row in found}
    assert len(answer) == len(found), "a holder has one row"
    for row in found:
        check_row(row)
    return answer


def check_row(row: kvindex.Match) -> None:
    """Check what holds for every row of a match."""
    own = row.device + row.host + row.disk + row.external
    assert own + row.shared + row.predicted == row.depth


def depths(
    index: kvindex.Indexer, path: str | Sequence[int], **options: Any
) -> dict[str, int]:
    """Match and return {holder: depth}."""
    return {who: row.depth for who, row in rows(index, path, **options).items()}


def scores(
    index: kvindex.Indexer, path: str | Sequence[int], **options: Any
) -> dict[str, float]:
    """Match and return {holder: score}."""
    return {who: row.score for who, row in rows(index, path, **options).items()}


def split(row: kvindex.Match) -> tuple[int, int, int, int]:
    """Return a row's blocks by tier: device, host, disk, external."""
    return row.device, row.host, row.disk, row.external


def find_state(index: kvindex.Indexer, who: str) -> kvindex.WorkerState | None:
    """Return the holder's line of `workers()`, None if it has none."""
    worker, rank = holder(who)
    found = [
        line
        for line in index.workers()
        if (line.worker, line.dp_rank) == (worker, rank)
    ]
    assert len(found) <= 1, "a holder has one line"
    return found[0] if found else None


def state(index: kvindex.Indexer, who: str) -> kvindex.WorkerState:
    """Return the holder's line of `workers()`."""
    line = find_state(index, who)
    assert line is not None
    return line


def held(index: kvindex.Indexer, who: str) -> int:
    """Return how many (tier, block) a holder holds."""
    line = find_state(index, who)
    if line is None:
        return 0
    return line.device + line.host + line.disk + line.external


def waiting(index: kvindex.Indexer, who: str) -> int:
    """Return how many blocks of a holder wait for their parent."""
    line = find_state(index, who)
    return 0 if line is None else line.orphans


def as_map(event: Event) -> dict[str, object]:
    """Write an event as engines write maps: defaults left out."""
    if isinstance(event, AllBlocksCleared):
        return wire.cleared_map()
    given = {
        field.name: getattr(event, field.name)
        for field in fields(event)
        if field.default is MISSING or getattr(event, field.name) != field.default
    }
    hashes = given.pop("block_hashes")
    medium = given.pop("medium", None)
    if isinstance(event, BlockRemoved):
        return wire.removed_map(hashes, medium, **given)
    return wire.stored_map(
        hashes,
        given.pop("token_ids"),
        given.pop("parent_block_hash", None),
        given.pop("block_size", None),
        medium=medium,
        **given,
    )


def as_array(event: Event) -> list[object]:
    """Write an event by position, as vLLM 0.23 did."""
    if isinstance(event, AllBlocksCleared):
        return wire.cleared_array()
    if isinstance(event, BlockRemoved):
        assert event.kv_cache_spec_kind is None, "arrays of removals have no kind"
        return wire.removed_array(event.block_hashes, event.medium, event.group_idx)
    assert event.cache_salt is None, "vLLM's arrays have no salt but in extra keys"
    assert event.locality is None, "arrays have no locality"
    return wire.stored_array(
        event.block_hashes,
        event.token_ids,
        event.parent_block_hash,
        event.block_size,
        **{
            key: getattr(event, key)
            for key in wire.STORED_FIELDS[4:]
            if hasattr(event, key)
        },
    )


class Scene:
    """An index with blocks of four tokens, told about in one form."""

    def __init__(self, form: str = "objects", **settings: Any) -> None:
        """Make an index; `settings` go to the Indexer."""
        self.form = form
        self.index = kvindex.Indexer(block_size=BLOCK, **settings)

    def apply(
        self, who: str, events: Iterable[Any], **options: Any
    ) -> kvindex.ApplyReport:
        """Apply events of a holder as one batch."""
        _, rank = holder(who)
        if self.form == "objects":
            payload: Any = list(events)
            options["dp_rank"] = rank
        elif self.form == "maps":
            payload = wire.batch(map(as_map, events), rank)
        else:
            payload = wire.batch(map(as_array, events), None)
            options["dp_rank"] = rank
        return self.index.apply(payload, **sender(who), **options)

    def stored(
        self,
        letters: str,
        after: str = "",
        *,
        names: Sequence[Hash] | None = None,
        parent: Hash | None = None,
        tier: str = "gpu",
        token_ids: Any = None,
        salt: str | None = None,
        lora: str | None = None,
        **more: Any,
    ) -> BlockStored:
        """Return a store of `letters` below the path `after`."""
        paths = [after + letters[: i + 1] for i in range(len(letters))]
        if names is None:
            names = [name(path) for path in paths]
        if parent is None and after:
            parent = name(after)
        if salt is not None and self.form == "arrays":
            more["extra_keys"] = [[salt]] + [None] * (len(names) - 1)
        elif salt is not None:
            more["cache_salt"] = salt
        more.setdefault("medium", MEDIA[tier])
        more.setdefault("block_size", BLOCK)
        if token_ids is None:
            token_ids = tokens(letters)
        elif isinstance(token_ids, range):
            token_ids = list(token_ids)
        return BlockStored(
            list(names),
            token_ids,
            parent_block_hash=parent,
            lora_name=lora,
            **more,
        )

    def removed(
        self, *paths: str | Hash, tier: str = "gpu", **more: Any
    ) -> BlockRemoved:
        """Return a removal of paths or of given names."""
        hashes = [name(path) if isinstance(path, str) else path for path in paths]
        more.setdefault("medium", MEDIA[tier])
        return BlockRemoved(hashes, **more)

    def S(  # noqa: N802 - the notation's word
        self, who: str, letters: str, after: str = "", **more: Any
    ) -> kvindex.ApplyReport:
        """Store; the keywords are those of `stored` and of `apply`."""
        options = take_options(more)
        return self.apply(who, [self.stored(letters, after, **more)], **options)

    def P(  # noqa: N802
        self, who: str, *hashes: str | Hash, tier: str = "cpu", **more: Any
    ) -> kvindex.ApplyReport:
        """Place known blocks on a tier: a store without tokens."""
        options = take_options(more)
        given = [name(item) if isinstance(item, str) else item for item in hashes]
        more.setdefault("block_size", 0)
        event = self.stored("", names=given, token_ids=[], tier=tier, **more)
        return self.apply(who, [event], **options)

    def R(  # noqa: N802
        self, who: str, *paths: str | Hash, **more: Any
    ) -> kvindex.ApplyReport:
        """Remove paths or names from one tier."""
        options = take_options(more)
        return self.apply(who, [self.removed(*paths, **more)], **options)

    def C(self, who: str, **options: Any) -> kvindex.ApplyReport:  # noqa: N802
        """Clear a holder."""
        return self.apply(who, [AllBlocksCleared()], **options)

    def depths(self, path: str | Sequence[int], **options: Any) -> dict[str, int]:
        """Match and return {holder: depth}."""
        return depths(self.index, path, **options)

    def scores(self, path: str | Sequence[int], **options: Any) -> dict[str, float]:
        """Match and return {holder: score}."""
        return scores(self.index, path, **options)

    def rows(
        self, path: str | Sequence[int], **options: Any
    ) -> dict[str, kvindex.Match]:
        """Match and return {holder: row}."""
        return rows(self.index, path, **options)

    def held(self, who: str) -> int:
        """Return how many (tier, block) a holder holds."""
        return held(self.index, who)

    def waiting(self, who: str) -> int:
        """Return how many blocks of a holder wait."""
        return waiting(self.index, who)


def take_options(more: dict[str, Any]) -> dict[str, Any]:
    """Take the keywords of `apply` out of those of an event."""
    keys = ("source", "seq", "epoch", "strict", "now")
    return {key: more.pop(key) for key in keys if key in more}


def raw(
    index: kvindex.Indexer, *events: object, worker: str = "w1", **options: Any
) -> kvindex.ApplyReport:
    """Apply events that are already maps or arrays, as bytes."""
    return index.apply(wire.batch(events), worker=worker, **options)

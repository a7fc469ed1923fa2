"""Play one episode on the index and on the model, and compare every answer."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import isclose

import kvindex
from tests.episodes_steps import (
    Attach,
    Batch,
    Broken,
    Clear,
    Detach,
    Episode,
    Expire,
    Names,
    Predict,
    Prompt,
    Query,
    Register,
    Remove,
    Reset,
    Settings,
    Step,
)
from tests.episodes_wire import payload
from tests.model import Model
from tests.model_match import HolderRow, PoolRow, Row
from tests.model_read import MAIN, FaultyEventError, Fields, low
from tests.model_state import POOL, Party, Report

UNKNOWN_EPOCH = 2**62


class MismatchError(AssertionError):
    """The index and the model differ."""


class Duel:
    """An index and a model that are told the same."""

    def __init__(self, settings: Settings) -> None:
        """Make both, empty."""
        self.index = kvindex.Indexer(**vars(settings))
        self.model = Model(**vars(settings))
        self.epochs: dict[Party, list[tuple[int, int]]] = {}
        self.seen: Counter[str] = Counter()

    # ---- telling ----

    def play(self, step: Step) -> None:
        """Do one step on both sides and compare what the calls return."""
        actions: dict[type, Callable[..., None]] = {
            Batch: self.apply,
            Broken: self.break_in,
            Register: self.register,
            Remove: self.remove,
            Reset: self.reset,
            Attach: self.attach,
            Detach: self.detach,
            Clear: self.clear,
            Predict: self.predict,
            Expire: self.expire,
        }
        actions[type(step)](step)

    def apply(self, step: Batch) -> None:
        """Apply a batch."""
        events = payload(step) if step.as_bytes else [w.event for w in step.events]
        ours, theirs = self.epoch(step)
        options = {
            name: getattr(step, name) for name in ("dp_rank", "source", "seq", "strict")
        } | whose(step)
        inside = step.rank_inside if step.as_bytes and step.with_rank else None
        fault = None
        self.model.now = step.now
        try:
            expected = self.model.apply(
                step.events, rank_inside=inside, epoch=ours, **options
            )
        except FaultyEventError as error:
            fault = error.event
        try:
            report = self.index.apply(events, epoch=theirs, now=step.now, **options)
        except kvindex.DecodeError as error:
            same("event of DecodeError", fault, error.event)
            self.seen["strict faults"] += 1
            return
        same("fault that strict=True raises", fault, None)
        compare_reports(expected, report)
        self.seen.update(expected.reasons)
        self.seen[expected.status] += 1
        for name in ("stored", "removed", "cleared", "attached"):
            self.seen[name] += getattr(expected, name)

    def epoch(self, step: Batch) -> tuple[int | None, int | None]:
        """Return what a symbolic epoch is in the model and in the index."""
        given = self.epochs.get((step.worker, step.pool), [])
        if step.epoch is None or (step.epoch == "current" and not given):
            return None, None
        if step.epoch == "current":
            return given[-1]
        if step.epoch == "stale" and len(given) > 1:
            return given[0]
        return UNKNOWN_EPOCH, UNKNOWN_EPOCH

    def break_in(self, step: Broken) -> None:
        """Apply bytes that no batch can be read from."""
        try:
            self.index.apply(step.payload, seq=step.seq, **whose(step))
        except kvindex.DecodeError as error:
            same("event of DecodeError", None, error.event)
            self.seen["undecodable"] += 1
            return
        message = f"undecodable bytes {step.payload!r} were applied"
        raise MismatchError(message)

    def register(self, step: Register) -> None:
        """Register; epochs may differ by value but not by order."""
        if step.pool:
            ours = self.model.register_pool(step.worker, **step.settings)
            theirs = self.index.register_pool(step.worker, **step.settings)
        else:
            ours = self.model.register(step.worker, **step.settings)
            theirs = self.index.register(step.worker, **step.settings)
        given = self.epochs.setdefault((step.worker, step.pool), [])
        if given and given[-1][0] == ours:
            same("epoch of a worker registered again", given[-1][1], theirs)
            return
        highest = max(
            (pair[1] for each in self.epochs.values() for pair in each), default=0
        )
        same("a new epoch is larger than all before", True, theirs > highest)  # noqa: FBT003
        given.append((ours, theirs))

    def remove(self, step: Remove) -> None:
        """Remove a worker or a pool."""
        if step.pool:
            expected = self.model.remove_pool(step.worker)
            compare_flag("remove_pool", expected, self.index.remove_pool(step.worker))
        else:
            expected = self.model.remove_worker(step.worker)
            found = self.index.remove_worker(step.worker)
            compare_flag("remove_worker", expected, found)

    def reset(self, step: Reset) -> None:
        """Reset a holder."""
        if step.pool:
            expected = self.model.reset_pool(step.worker)
            compare_flag("reset_pool", expected, self.index.reset_pool(step.worker))
        else:
            expected = self.model.reset(step.worker, dp_rank=step.dp_rank)
            found = self.index.reset(step.worker, dp_rank=step.dp_rank)
            compare_flag("reset", expected, found)

    def attach(self, step: Attach) -> None:
        """Attach a worker to a pool, if there is one."""
        expected = self.model.attach(step.worker, step.pool)
        try:
            self.index.attach(step.worker, step.pool)
        except kvindex.ConfigError:
            same("there is a pool", expected, found=False)
            return
        same("there is a pool", expected, found=True)

    def detach(self, step: Detach) -> None:
        """Detach a worker from a pool."""
        expected = self.model.detach(step.worker, step.pool)
        same("detach", expected, self.index.detach(step.worker, step.pool))

    def clear(self, _step: Clear) -> None:
        """Forget what all workers hold."""
        self.model.clear()
        self.index.clear()

    def predict(self, step: Predict) -> None:
        """Predict a prompt's blocks, by its tokens or by keys of either kind."""
        options: Fields = {
            name: getattr(step, name)
            for name in ("worker", "dp_rank", "now", "ttl", "capacity")
        }
        space = options_of(step)
        expected = self.model.predict(step.tokens, **options, **space)
        size = self.model.block_size
        keys = kvindex.block_keys(list(step.tokens), block_size=size, **space)
        if step.now % 3 == 0:
            found = self.index.predict(list(step.tokens), **options, **space)
        elif step.now % 3 == 1:
            found = self.index.predict_keys(keys, **options)
        else:
            found = self.index.predict_chain(kvindex.chain_keys(keys), **options)
        same("predict", expected, found)

    def expire(self, step: Expire) -> None:
        """End what is due."""
        expected = self.model.expire(step.now)
        same("expire", expected, self.index.expire(step.now))
        self.seen["expired"] += expected

    # ---- asking ----

    def note_situations(self) -> None:
        """Count what the model's state has in it, to see what episodes reach."""
        copies = self.model.copies
        meanings = self.model.meanings
        own = {(copy.holder, low(copy.name), copy.block) for copy in copies}
        self.seen.update(
            {
                "with pages": bool(self.model.pages),
                "with blocks of pages": len(self.model.claims()) > len(copies),
                "with units": any(copy.size > 1 for copy in copies),
                "with pairs": any(copy.block[-1].pairs for copy in copies),
                "with images": any(copy.block[-1].images for copy in copies),
                "with several copies": any(copy.count > 1 for copy in copies),
                "with aliases": len({block for _, block in meanings}) < len(meanings),
                "with shared names": len({each[:2] for each in own}) < len(own),
                "with waiting": bool(self.model.waiting),
                "with taken waiting": any(item.taken for item in self.model.waiting),
                "with flexkv": any(copy.block[0].family == "flexkv" for copy in copies),
                "with digests": any(
                    copy.block[0].family == "sglang" for copy in copies
                ),
                "with pools": any(copy.holder[1] == POOL for copy in copies),
                "with attached": bool(self.model.attached),
                "with groups": any(copy.group != MAIN for copy in copies),
                "with ages": any(self.model.stored_at.values()),
            }
        )

    def compare(
        self, queries: Sequence[Query], turn: int = 0, *, thorough: bool = False
    ) -> None:
        """Compare what is held and how queries are answered.

        Each query is asked plainly and in one other way, chosen by `turn`; a
        `thorough` comparison asks in every way.
        """
        same("len(index)", len(self.model), len(self.index))
        compare_states(self.model.workers(), self.index.workers())
        compare_pools(self.model.pools(), self.index.pools())
        for number, query in enumerate(queries):
            ways = PROMPT_WAYS if isinstance(query, Prompt) else NAMES_WAYS
            chosen = range(len(ways)) if thorough else {0, (turn + number) % len(ways)}
            for way in chosen:
                self.ask(query, ways[way])

    def ask(self, query: Query, way: Callable[..., None]) -> None:
        """Ask in one way, and say which if the answers differ."""
        try:
            way(self, query)
        except MismatchError as error:
            message = f"{way.__name__}({query}): {error}"
            raise MismatchError(message) from None


def whose(step: Batch | Broken) -> Fields:
    """Return the sender of a batch as a keyword."""
    return {"pool" if step.pool else "worker": step.worker}


def options_of(query: Prompt | Predict) -> Fields:
    """Return a prompt's namespace and images as keywords."""
    return {
        "lora_name": query.lora_name,
        "cache_salt": query.cache_salt,
        "mm": list(query.mm) or None,
    }


def match(duel: Duel, query: Prompt) -> None:
    """Compare `match` and `match_with_keys`."""
    options = options_of(query)
    expected = duel.model.match(query.tokens, **options)
    pools = duel.model.pool_depths(query.tokens, **options)
    tokens = list(query.tokens)
    with_keys, chain = duel.index.match_with_keys(tokens, **options)
    for found in (duel.index.match(tokens, **options), with_keys):
        compare_rows(expected, found)
        same("pools", pools, found.pools)
    size = duel.model.block_size
    keys = kvindex.block_keys(tokens, block_size=size, **options)
    same("keys", kvindex.chain_keys(keys), chain)
    for row in expected:
        duel.seen["rows"] += 1
        for tier in ("device", "host", "disk", "external", "shared", "predicted"):
            duel.seen[f"matched {tier}"] += getattr(row, tier)


def match_cascade(duel: Duel, query: Prompt) -> None:
    """Compare `match(cascade=True)`."""
    options = options_of(query) | {"cascade": True}
    expected = duel.model.match(query.tokens, **options)
    found = duel.index.match(list(query.tokens), **options)
    compare_rows(expected, found)
    same("pools", {}, found.pools)


def match_workers(duel: Duel, query: Prompt) -> None:
    """Compare `match(workers=...)` with weights."""
    options = options_of(query) | {"weights": query.weights}
    expected = duel.model.match(query.tokens, workers=query.workers, **options)
    found = duel.index.match(list(query.tokens), workers=list(query.workers), **options)
    compare_candidates(expected, found)
    space = options_of(query)
    same("pools", duel.model.pool_depths(query.tokens, **space), found.pools)
    for row in found:
        duel.seen["shared of candidates"] += row.shared


def match_candidates(duel: Duel, query: Prompt) -> None:
    """Compare `match(workers=candidates, cascade=True)`."""
    options = options_of(query) | {"cascade": True}
    who = duel.index.candidates(list(query.workers))
    expected = duel.model.match(query.tokens, workers=query.workers, **options)
    found = duel.index.match(list(query.tokens), workers=who, **options)
    compare_candidates(expected, found)


def match_many(duel: Duel, query: Prompt) -> None:
    """Compare `match_many`."""
    options = options_of(query) | {"weights": query.weights}
    prompts = [query.tokens, query.tokens[:-1], query.tokens[1:]]
    answers = duel.index.match_many([list(tokens) for tokens in prompts], **options)
    same("number of answers", len(prompts), len(answers))
    for tokens, found in zip(prompts, answers, strict=True):
        compare_rows(duel.model.match(tokens, **options), found)


def match_keys(duel: Duel, query: Prompt) -> None:
    """Compare `match_keys` and `match_chain` for both kinds of keys."""
    options = options_of(query)
    size = duel.model.block_size
    for pairs in (False, True):
        keys = kvindex.block_keys(
            list(query.tokens), block_size=size, pairs=pairs, **options
        )
        expected = duel.model.match(query.tokens, kinds=(pairs,), **options)
        pools = duel.model.pool_depths(query.tokens, kinds=(pairs,), **options)
        for found in (
            duel.index.match_keys(keys),
            duel.index.match_chain(kvindex.chain_keys(keys)),
        ):
            compare_rows(expected, found)
            same("pools", pools, found.pools)


def match_names(duel: Duel, query: Names) -> None:
    """Compare `match_names`."""
    expected = duel.model.match_names(query.names)
    found = duel.index.match_names(list(query.names))
    compare_rows(expected, found)
    same("pools", duel.model.names_depths(query.names), found.pools)


def match_names_cascade(duel: Duel, query: Names) -> None:
    """Compare `match_names(cascade=True)`."""
    expected = duel.model.match_names(query.names, cascade=True)
    compare_rows(expected, duel.index.match_names(list(query.names), cascade=True))


def match_names_workers(duel: Duel, query: Names) -> None:
    """Compare `match_names(workers=...)`."""
    expected = duel.model.match_names(query.names, workers=query.workers)
    workers = list(query.workers)
    found = duel.index.match_names(list(query.names), workers=workers)
    compare_candidates(expected, found)


PROMPT_WAYS = (
    match,
    match_cascade,
    match_workers,
    match_candidates,
    match_many,
    match_keys,
)
NAMES_WAYS = (match_names, match_names_cascade, match_names_workers)


def same(what: str, expected: object, found: object) -> None:
    """Compare two values."""
    if expected != found:
        message = f"{what}: model {expected!r}, index {found!r}"
        raise MismatchError(message)


def compare_flag(what: str, expected: bool | None, found: object) -> None:  # noqa: FBT001
    """Compare whether there was anything; None is not decided by the contract."""
    if expected is not None:
        same(f"{what} returns", expected, found)


def compare_reports(expected: Report, found: kvindex.ApplyReport) -> None:
    """Compare all fields of two reports."""
    same(
        "ApplyReport",
        vars(expected),
        {name: getattr(found, name) for name in vars(expected)},
    )


def compare_states(
    expected: Iterable[HolderRow], found: Iterable[kvindex.WorkerState]
) -> None:
    """Compare the rows of `workers()`, but for those that say nothing."""
    sides = []
    for states in (expected, found):
        rows = [
            HolderRow(*(getattr(state, name) for name in HolderRow._fields))
            for state in states
        ]
        sides.append(sorted(row for row in rows if any(row[2:6]) or says_more(row)))
    same("workers()", *sides)


def compare_pools(
    expected: Iterable[PoolRow], found: Iterable[kvindex.PoolState]
) -> None:
    """Compare the rows of `pools()`."""
    rows = [
        PoolRow(*(getattr(state, name) for name in PoolRow._fields)) for state in found
    ]
    same("pools()", sorted(expected), sorted(rows))


def says_more(row: HolderRow) -> bool:
    """Return whether a row without blocks says anything."""
    return row.seq is not None or row.orphans > 0 or row.duplicates > 0


def rows_of(found: Iterable[object]) -> list[Row]:
    """Return an answer's rows as the model writes them."""
    return [Row(*(getattr(row, name) for name in Row._fields)) for row in found]


def close(one: Row, other: Row) -> bool:
    """Compare two rows, scores but for rounding."""
    return one._replace(score=0) == other._replace(score=0) and isclose(
        one.score, other.score, abs_tol=1e-9
    )


def compare_rows(expected: Iterable[Row], found: kvindex.Matches) -> None:
    """Compare rows in any order."""
    ours, theirs = sorted(expected), sorted(rows_of(found))
    if len(ours) != len(theirs) or not all(map(close, ours, theirs)):
        same("rows", ours, theirs)


def compare_candidates(expected: Sequence[Row], found: kvindex.Matches) -> None:
    """Compare rows in order; which rank stands for a worker without any is open."""
    theirs = rows_of(found)
    same("number of rows", len(expected), len(theirs))
    for ours, row in zip(expected, theirs, strict=True):
        adjusted = row if row.depth else row._replace(dp_rank=ours.dp_rank)
        if not close(ours, adjusted):
            same("row", ours, row)


def play(episode: Episode, *, thorough: bool = False) -> Counter[str]:
    """Play an episode to its end; raise MismatchError where the sides differ."""
    duel = Duel(episode.settings)
    for number, step in enumerate(episode.steps):
        try:
            duel.play(step)
            duel.compare(episode.queries, number, thorough=thorough)
            duel.note_situations()
        except MismatchError as error:
            message = f"step {number}: {error}"
            raise MismatchError(message) from None
    duel.compare(episode.queries, thorough=True)
    return duel.seen

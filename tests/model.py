"""The judge of the index: the contract in the plainest Python there is.

A block is the tuple of the contents of its whole path. What is held is one
list of copies, what a name means is one list of (name, block), and every
question is answered by looking through them from the start. No hashing, no
runs, no code shared with the product.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.model_age import Ages
from tests.model_read import (
    FULL_KINDS,
    TIERS,
    Anything,
    Block,
    Content,
    Name,
    Namespace,
    Page,
    Store,
    Unreadable,
    Wire,
    flexkv_content,
    hash_count,
    hashes_of,
    is_pairs,
    low,
    lower_keys,
    pages_of,
    raise_first_fault,
    same_name,
    structural_fault,
    tier_of,
    tokens_fault,
)
from tests.model_state import (
    POOL,
    Copy,
    Holder,
    Party,
    Profile,
    Report,
    Waiting,
    party,
)

STRUCTURAL = (
    "unknown_type",
    "malformed",
    "extra_keys",
    "parent",
    "duplicate_hash",
    "tokens",
    "partial",
)
ROOT: Block = ()


class Refused:
    """A name that means blocks of several namespaces."""


AMBIGUOUS = Refused()


class Model(Ages):
    """The same calls as `kvindex.Indexer`, with batches as lists of `Wire`."""

    # ---- workers and pools ----

    def register(self, worker: str, **settings: Anything) -> int:
        """Say how a worker's events are read from now on; return its epoch."""
        return self.enroll((worker, False), {"profile": "vllm"} | settings)

    def register_pool(self, pool: str, **settings: Anything) -> int:
        """Say how a pool's events are read from now on; return its epoch."""
        self.known.add((pool, POOL))
        return self.enroll((pool, True), {"profile": "auto"} | settings)

    def enroll(self, who: Party, settings: dict[str, Anything]) -> int:
        """Set a profile; return the epoch."""
        given = {key: value for key, value in settings.items() if value is not None}
        kind = given.pop("profile")
        if kind == "flexkv":
            given = {"copies": ("device",)} | given
        self.profiles[who] = Profile(kind=kind, **given)
        for holder in {holder for holder in self.known if party(holder) == who}:
            self.forget_ages(holder, kept=self.profile(holder).max_age)
        if who not in self.epochs:
            self.last_epoch += 1
            self.epochs[who] = self.last_epoch
        return self.epochs[who]

    def attach(self, worker: str, pool: str) -> bool:
        """Let a worker reach a pool; return whether there is such a pool."""
        if (pool, POOL) not in self.known:
            return False
        self.attached.add((worker, pool))
        return True

    def detach(self, worker: str, pool: str) -> bool:
        """Take that back; return whether it was attached."""
        was = (worker, pool) in self.attached
        self.attached.discard((worker, pool))
        return was

    def remove_worker(self, worker: str) -> bool | None:
        """Forget a worker; return whether there was anything, None if unclear."""
        attached = {pair for pair in self.attached if pair[0] == worker}
        self.attached -= attached
        struck = self.strike((worker, False))
        return True if attached else struck

    def remove_pool(self, pool: str) -> bool | None:
        """Forget a pool; return whether there was anything, None if unclear."""
        return self.strike((pool, True))

    def strike(self, who: Party) -> bool | None:
        """Forget all of a worker or a pool."""
        holders = [holder for holder in self.touched if party(holder) == who]
        known = who in self.profiles
        answers = [self.reset_holder(holder) for holder in holders]
        self.known = {holder for holder in self.known if party(holder) != who}
        self.profiles.pop(who, None)
        self.epochs.pop(who, None)
        if known or True in answers:
            return True
        return None if holders else False

    def reset(self, worker: str, *, dp_rank: int = 0) -> bool | None:
        """Forget one rank; return whether there was anything, None if unclear."""
        return self.reset_holder((worker, dp_rank))

    def reset_pool(self, pool: str) -> bool | None:
        """Forget what a pool holds; return whether there was anything."""
        return self.reset_holder((pool, POOL))

    def reset_holder(self, holder: Holder) -> bool | None:
        """Forget one holder; return whether there was anything, None if unclear."""
        if holder not in self.touched:
            return False
        holders = [copy.holder for copy in self.copies]
        holders += [item.holder for item in self.waiting]
        predicted = self.predicted.pop(holder, {})
        anything = holder in self.last_seq or holder in holders or bool(predicted)
        self.copies = [copy for copy in self.copies if copy.holder != holder]
        self.waiting = [item for item in self.waiting if item.holder != holder]
        self.cursors = {
            key: seq for key, seq in self.cursors.items() if key[0] != holder
        }
        for table in (self.main_groups, self.last_seq, self.duplicates):
            table.pop(holder, None)
        self.full_groups = {
            key: full for key, full in self.full_groups.items() if key[0] != holder
        }
        self.touched.discard(holder)
        self.forget_ages(holder)
        self.forget_dead_names()
        return anything or None

    def clear(self) -> None:
        """Forget what all workers hold, keep profiles and epochs."""
        for holder in list(self.touched):
            if holder[1] != POOL:
                self.reset_holder(holder)

    # ---- batches ----

    def apply(
        self,
        batch: Sequence[Wire],
        *,
        worker: str | None = None,
        pool: str | None = None,
        dp_rank: int = 0,
        rank_inside: object = None,
        source: str = "",
        seq: int | None = None,
        epoch: int | None = None,
        strict: bool = False,
    ) -> Report:
        """Apply a batch now; `rank_inside` is the rank that the batch itself names."""
        if type(rank_inside) is int and 0 <= rank_inside < 2**32:
            dp_rank = rank_inside
        if pool is not None:
            holder = (pool, POOL)
            report = Report()
        else:
            holder = (worker or "", dp_rank)
            report = Report(dp_rank=dp_rank)
        who = party(holder)
        if strict:
            raise_first_fault(batch, self.block_size)
        everything = sum(hash_count(wire.event) for wire in batch)
        if self.registered_only and who not in self.profiles:
            report.ignore("unregistered", everything)
        elif epoch is not None and epoch != self.epochs.get(who):
            report.ignore("epoch", everything)
        elif not self.advance(holder, source, seq, report):
            report.ignore("duplicate", everything)
        else:
            self.touched.add(holder)
            self.known.add(holder)
            self.end_old(holder, self.now)
            self.apply_events(holder, batch, report)
        return report

    def advance(
        self, holder: Holder, source: str, seq: int | None, report: Report
    ) -> bool:
        """Move the cursor; return whether the batch is to be applied."""
        if seq is None:
            return True
        last = self.cursors.get((holder, source))
        if last is not None and seq <= last:
            report.status = "duplicate"
            self.duplicates[holder] = self.duplicates.get(holder, 0) + 1
            return False
        if last is not None and seq > last + 1:
            report.status = "gap"
            report.gap = (last + 1, seq - 1)
        self.cursors[holder, source] = seq
        self.last_seq[holder] = seq
        self.duplicates[holder] = 0
        return True

    def apply_events(
        self, holder: Holder, batch: Sequence[Wire], report: Report
    ) -> None:
        """Apply the events of an accepted batch in their order."""
        clears = sum(isinstance(wire.event, AllBlocksCleared) for wire in batch)
        cleared = 0
        for wire in batch:
            reason = self.refusal(holder, wire)
            if reason is not None and reason != "partial":
                report.ignore(reason, hash_count(wire.event))
            elif isinstance(wire.event, AllBlocksCleared):
                cleared += 1
                self.clear_holder(holder, cleared, clears)
                report.cleared += 1
            elif isinstance(wire.event, BlockRemoved):
                self.remove(holder, wire, report)
            else:
                self.store(holder, wire, report, partial=reason == "partial")
            self.attach_waiting(report)

    def refusal(self, holder: Holder, wire: Wire) -> str | None:
        """Return why an event is refused as a whole, before anything is looked up."""
        event = wire.event
        if isinstance(event, Unreadable):
            return event.reason
        if isinstance(event, AllBlocksCleared):
            return None
        if isinstance(event, BlockRemoved):
            return None if self.removal_is_main(holder, event) else "group"
        fault = structural_fault(event)
        if fault is not None:
            return fault
        if not self.store_is_main(holder, event):
            return "group"
        size = self.block_size if event.block_size is None else event.block_size
        return tokens_fault(event, size)

    def store_is_main(self, holder: Holder, event: BlockStored) -> bool:
        """Return whether a store is of the indexed group; learn which that is."""
        group, kind = event.group_idx, event.kv_cache_spec_kind
        main = self.main_groups.get(holder)
        if kind is not None:
            self.full_groups[holder, group] = kind in FULL_KINDS
            if kind not in FULL_KINDS:
                return False
        if group is None:
            return True
        if main is None and (kind is not None or group == 0):
            self.main_groups[holder] = main = group
        return group == main

    def removal_is_main(self, holder: Holder, event: BlockRemoved) -> bool:
        """Return whether a removal is of the indexed group."""
        if event.kv_cache_spec_kind is not None:
            return event.kv_cache_spec_kind in FULL_KINDS
        if event.group_idx is None:
            return True
        if holder in self.main_groups:
            return event.group_idx == self.main_groups[holder]
        return event.group_idx == 0 and self.full_groups.get((holder, 0), True)

    def clear_holder(self, holder: Holder, number: int, of: int) -> None:
        """Apply the `number`th of the batch's clears."""
        profile = self.profile(holder)
        tiers: Iterable[str] = TIERS
        if profile.clears is not None:
            tiers = profile.clears
        elif profile.kind == "vllm":
            tiers = ("device", "host")
            if of == 2:
                tiers = ("device",) if number == 1 else ("host", "disk")
        elif profile.kind == "flexkv":
            tiers = ("device",)
        self.copies = [
            copy
            for copy in self.copies
            if copy.holder != holder or copy.tier not in tiers
        ]
        self.waiting = [
            item
            for item in self.waiting
            if item.holder != holder or item.store.tier not in tiers
        ]
        self.forget_ages(holder, kept=set(TIERS) - set(tiers))
        if "device" in tiers:
            self.predicted.pop(holder, None)
        self.forget_dead_names()

    # ---- names ----

    def meaning(
        self, holder: Holder, name: Name, lora: str, salt: str
    ) -> Block | Refused | None:
        """Return the block that a name means to a holder, None if unknown."""
        own = self.own_meanings(holder, name)
        if len(own) == 1:
            return own[0]
        agreeing = [block for block in own if self.agrees(holder, block, lora, salt)]
        if len({block[-1].namespace for block in agreeing}) > 1:
            return AMBIGUOUS
        if agreeing:
            return max(agreeing, key=lambda block: self.age(name, block))
        if own or self.profile(holder).names == "own":
            return None
        anyones = (block for known, block in self.meanings if same_name(known, name))
        return next(anyones, None)

    def own_meanings(self, holder: Holder, name: Name) -> list[Block]:
        """Return the blocks that a holder holds under a name."""
        own: list[Block] = []
        for copy in self.copies:
            if copy.holder == holder and same_name(copy.name, name):
                own += [copy.block] if copy.block not in own else []
        return own

    def agrees(self, holder: Holder, block: Block, lora: str, salt: str) -> bool:
        """Return whether a block lies in the namespace that an event gives."""
        block_lora, block_salt = block[-1].namespace
        if self.profile(holder).kind == "sglang":
            return (block_lora, block_salt) == (lora, salt)
        return lora in ("", block_lora) and salt in ("", block_salt)

    def age(self, name: Name, block: Block) -> int:
        """Return when a name came to mean a block: larger is newer."""
        for position, (known, known_block) in enumerate(self.meanings):
            if known_block == block and same_name(known, name):
                return position
        return -1

    def parent(self, holder: Holder, store: Store) -> Block | Refused | None:
        """Return the block below which a store begins."""
        root = self.profile(holder).root_hash
        if store.parent is None or (root is not None and same_name(root, store.parent)):
            return ROOT
        salt = (store.pages and store.pages[0].salt) or store.salt
        return self.meaning(holder, store.parent, store.lora, salt)

    # ---- stores ----

    def store(
        self, holder: Holder, wire: Wire, report: Report, *, partial: bool
    ) -> None:
        """Apply a store whose shape is sound."""
        event = wire.event
        profile = self.profile(holder)
        names = tuple(hashes_of(event))
        if partial:
            names = names[:-1]
            report.ignore("partial", 1)
        tier = tier_of(event, wire.extra, lower_keys(profile.media))
        lora = event.lora_name or ""
        if not lora and event.lora_id is not None:
            lora = profile.lora_ids.get(event.lora_id, "")
        size = self.block_size if event.block_size is None else event.block_size
        if not tier:
            report.ignore("medium", len(names))
            return
        if event.lora_id is not None and not lora:
            report.ignore("lora_id", len(names))
            return
        self.note_age(holder, tier, names)
        if size % self.block_size or (event.token_ids and size == 0):
            report.ignore("block_size", len(names))
        else:
            whole = size > 0 and size % self.block_size == 0
            size = size // self.block_size if whole else 1
            store = Store(
                names=names,
                parent=event.parent_block_hash,
                tier=tier,
                lora=lora,
                salt=event.cache_salt or "",
                size=size,
                pages=pages_of(wire, self.block_size, size) if names else (),
                pairs=is_pairs(event),
                has_extra_keys=any(event.extra_keys or ()),
            )
            if not event.token_ids and self.is_prefix(holder, store):
                self.place_prefix(holder, store, report)
            elif not event.token_ids:
                self.place(holder, store, report)
            else:
                self.store_pages(holder, store, report)

    def is_prefix(self, holder: Holder, store: Store) -> bool:
        """Return whether names without tokens are FlexKV's, of a whole prefix."""
        flexkv = self.profile(holder).kind == "flexkv"
        return flexkv and store.parent is None and store.tier in ("host", "disk")

    def place_prefix(self, holder: Holder, store: Store, report: Report) -> None:
        """Store blocks that are nothing but their names."""
        if store.size != 1:
            report.ignore("block_size", len(store.names))
            return
        block = ROOT
        for name in store.names:
            block = (*block, flexkv_content(low(name)))
            self.claim(holder, store.tier, name, block, 1)
            report.stored += 1

    def place(self, holder: Holder, store: Store, report: Report) -> None:
        """Put known blocks on a tier: a store without tokens."""
        chunk = self.profile(holder).chunk_tokens.get(store.tier, 0)
        size = chunk // self.block_size or store.size
        for name in store.names:
            block = self.meaning(holder, name, store.lora, store.salt)
            if isinstance(block, Refused):
                report.ignore("ambiguous", 1)
            elif block is None:
                report.ignore("unresolved", 1)
            else:
                self.claim(holder, store.tier, name, block, size)
                report.stored += 1

    def store_pages(self, holder: Holder, store: Store, report: Report) -> None:
        """Store computed blocks, or let them wait for their parent."""
        report.stored += self.file(holder, store, set(), report)

    def file(
        self, holder: Holder, store: Store, taken: set[int], report: Report
    ) -> int:
        """Claim a store's blocks but for the `taken`; return how many were."""
        by_name = store.tier != "device" and not store.has_extra_keys
        here = self.parent(holder, store)
        claimed = 0
        leading = 0
        for position, (name, page) in enumerate(
            zip(store.names, store.pages, strict=False)
        ):
            known = None
            if by_name:
                known = self.meaning(holder, name, store.lora, store.salt)
            if known is not None:
                here = known
            elif here is None:
                leading += 1
                continue
            elif not isinstance(here, Refused):
                here = self.extend(holder, here, store, page)
            if position in taken:
                continue
            if isinstance(here, Refused):
                report.ignore("ambiguous", 1)
            else:
                self.claim(holder, store.tier, name, here, store.size)
                claimed += 1
        if leading:
            self.wait(holder, store, leading, report)
        return claimed

    def extend(self, holder: Holder, parent: Block, store: Store, page: Page) -> Block:
        """Return the last block of a page below its parent."""
        lora, salt = store.lora, page.salt or store.salt
        if self.profile(holder).kind != "sglang":
            inherited: Namespace = parent[-1].namespace if parent else ("", "")
            lora, salt = lora or inherited[0], salt or inherited[1]
        block = parent
        for tokens, images in page.blocks:
            block = (*block, Content((lora, salt), tokens, images, store.pairs))
        return block

    def claim(
        self, holder: Holder, tier: str, name: Name, block: Block, size: int
    ) -> None:
        """Add a copy of the `size` blocks that end with `block`."""
        size = min(size, len(block))
        chunk = self.profile(holder).chunk_tokens.get(tier, 0) // self.block_size
        self.announced.append(name)
        for copy in self.copies:
            where = (copy.holder, copy.tier, copy.size, copy.chunk)
            if where != (holder, tier, size, chunk):
                continue
            if copy.block == block and same_name(copy.name, name):
                if tier in self.profile(holder).copies:
                    copy.count += 1
                break
        else:
            self.copies.append(Copy(holder, tier, name, block, size, chunk))
        if (name, block) not in self.meanings:
            self.meanings.append((name, block))

    # ---- the waiting room ----

    def wait(self, holder: Holder, store: Store, leading: int, report: Report) -> None:
        """Let the first `leading` hashes of a store wait for their parent."""
        if leading * store.size > self.orphan_blocks:
            report.ignore("orphan_dropped", leading)
            return
        while self.waiting_blocks(holder) + leading * store.size > self.orphan_blocks:
            oldest = next(item for item in self.waiting if item.holder == holder)
            self.waiting.remove(oldest)
            report.ignore("orphan_dropped", oldest.left())
        kept = replace(store, names=store.names[:leading], pages=store.pages[:leading])
        self.waiting.append(Waiting(holder, kept))
        report.note("orphan", leading)

    def attach_waiting(self, report: Report) -> None:
        """Store what waited for a name that was announced, the oldest first."""
        while True:
            ready = next(filter(self.can_attach, self.waiting), None)
            if ready is None:
                break
            self.waiting.remove(ready)
            report.attached += self.file(ready.holder, ready.store, ready.taken, report)
        self.announced.clear()

    def can_attach(self, item: Waiting) -> bool:
        """Return whether a store's parent was announced and is known to its holder."""
        parent = item.store.parent
        if parent is None or not any(
            same_name(parent, name) for name in self.announced
        ):
            return False
        found = self.parent(item.holder, item.store)
        return found is not None and not isinstance(found, Refused)

    # ---- removals ----

    def remove(self, holder: Holder, wire: Wire, report: Report) -> None:
        """Take one copy of each name."""
        media = lower_keys(self.profile(holder).media)
        tier = tier_of(wire.event, wire.extra, media)
        for name in hashes_of(wire.event):
            taken = [
                self.take(holder, each, name) for each in ([tier] if tier else TIERS)
            ]
            if any(taken):
                report.removed += 1
            else:
                report.ignore("unknown_block", 1)
        self.forget_dead_names()

    def take(self, holder: Holder, tier: str, name: Name) -> bool:
        """Take a waiting copy, else one copy from each block of that name."""
        for item in self.waiting:
            if (item.holder, item.store.tier) != (holder, tier):
                continue
            for position, waiting_name in enumerate(item.store.names):
                if position not in item.taken and same_name(waiting_name, name):
                    item.taken.add(position)
                    if not item.left():
                        self.waiting.remove(item)
                    return True
        found = [
            copy
            for copy in self.copies
            if (copy.holder, copy.tier) == (holder, tier) and same_name(copy.name, name)
        ]
        for copy in found:
            copy.count -= 1
        self.copies = [copy for copy in self.copies if copy.count]
        return bool(found)

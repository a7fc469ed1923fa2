"""The judge of the index: the contract in the plainest Python there is.

A block is the tuple of the contents of its whole path. What is held is one
list of copies, what a name means is one list of (name, block), and every
question is answered by looking through them from the start. No hashing, no
runs, no code shared with the product.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvindex.events import AllBlocksCleared, BlockRemoved
from tests.model_groups import NOBODY, Groups, Nobody
from tests.model_names import ROOT
from tests.model_pages import Inside, Refused
from tests.model_read import (
    MAIN,
    TIERS,
    Anything,
    Block,
    Content,
    Group,
    Name,
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
    sglang_content,
    small_pages_of,
    split_extra_keys,
    structural_fault,
    tier_of,
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


class Model(Groups):
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
        kind = given.pop("profile").removeprefix("test-")
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
        holders = [copy.holder for copy in [*self.copies, *self.pages]]
        holders += [item.holder for item in self.waiting]
        predicted = self.predicted.pop(holder, {})
        anything = holder in self.last_seq or holder in holders or bool(predicted)
        self.copies = [copy for copy in self.copies if copy.holder != holder]
        self.pages = [copy for copy in self.pages if copy.holder != holder]
        self.waiting = [item for item in self.waiting if item.holder != holder]
        self.cursors = {
            key: seq for key, seq in self.cursors.items() if key[0] != holder
        }
        for table in (self.main_groups, self.others, self.last_seq, self.duplicates):
            table.pop(holder, None)
        self.kinds = {key: kind for key, kind in self.kinds.items() if key[0] != holder}
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
            return "group" if self.removal_group(holder, event) is NOBODY else None
        fault = structural_fault(event)
        if fault is not None:
            return fault
        group = self.store_group(holder, event)
        if group is NOBODY:
            return "group"
        return None if self.is_masked(holder, event) else self.tokens_fault(event)

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
        self.copies, self.pages = (
            [copy for copy in copies if copy.holder != holder or copy.tier not in tiers]
            for copies in (self.copies, self.pages)
        )
        self.waiting = [
            item
            for item in self.waiting
            if item.holder != holder or item.store.tier not in tiers
        ]
        self.forget_ages(holder, kept=set(TIERS) - set(tiers))
        if "device" in tiers:
            self.predicted.pop(holder, None)
        self.forget_dead_names()

    # ---- stores ----

    def store(
        self, holder: Holder, wire: Wire, report: Report, *, partial: bool
    ) -> None:
        """Apply a store whose shape is sound."""
        event = wire.event
        group = self.store_group(holder, event)
        assert not isinstance(group, Nobody), "a store that is refused is not applied"
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
        masked = self.is_masked(holder, event)
        if not tier:
            report.ignore("medium", len(names))
            return
        if event.lora_id is not None and not lora:
            report.ignore("lora_id", len(names))
            return
        self.note_age(holder, tier, names)
        if not self.fits(size, tokens=bool(event.token_ids) and not masked):
            report.ignore("block_size", len(names))
        else:
            page = size if 0 < size < self.block_size else 0
            size = max(size // self.block_size, 1)
            first_salt = split_extra_keys(wire, 0)[0] if names else ""
            store = Store(
                group=group,
                names=names,
                parent=event.parent_block_hash,
                tier=tier,
                lora=lora,
                salt=event.cache_salt or "",
                first_salt=first_salt or event.cache_salt or "",
                size=size,
                pages=()
                if masked or not names
                else small_pages_of(wire, page)
                if page
                else pages_of(wire, self.block_size, size),
                page=page,
                pairs=is_pairs(event),
                has_extra_keys=any(event.extra_keys or ()),
            )
            if not event.token_ids and self.is_prefix(holder, store):
                self.place_prefix(holder, store, report)
            elif not event.token_ids or masked:
                sized = bool(event.block_size)
                self.place(holder, store, report, sized=sized)
            else:
                self.store_pages(holder, store, report)

    def fits(self, size: int, *, tokens: bool) -> bool:
        """Return whether blocks of that size are whole blocks, or parts of one."""
        if size == 0:
            return not tokens
        return size % self.block_size == 0 or self.block_size % size == 0

    def is_prefix(self, holder: Holder, store: Store) -> bool:
        """Return whether names without tokens are FlexKV's, of a whole prefix."""
        flexkv = self.profile(holder).kind == "flexkv" and store.group == MAIN
        return flexkv and store.parent is None and store.tier in ("host", "disk")

    def place_prefix(self, holder: Holder, store: Store, report: Report) -> None:
        """Store blocks that are nothing but their names."""
        if store.size != 1 or store.page:
            report.ignore("block_size", len(store.names))
            return
        block = ROOT
        for name in store.names:
            block = (*block, flexkv_content(low(name)))
            self.claim(holder, store, name, block, 1)
            report.stored += 1

    def place(
        self, holder: Holder, store: Store, report: Report, *, sized: bool
    ) -> None:
        """Put known blocks and pages on a tier: a store without tokens."""
        chunk = self.profile(holder).chunk_tokens.get(store.tier, 0)
        size = chunk // self.block_size or store.size
        of_blocks = chunk or (sized and not store.page)
        computed = self.profile(holder).kind == "mooncake" and store.parent is None
        computed = computed and store.group == MAIN
        if sized and (store.page or store.size != 1):
            computed = False
        for name in store.names:
            if computed and isinstance(name, int):
                page = (sglang_content(low(name)),)
                self.claim(holder, store, name, page, 1)
                report.stored += 1
                continue
            block = self.meaning(holder, name, store.lora, store.first_salt)
            if isinstance(block, Refused):
                report.ignore("ambiguous", 1)
            elif block is None:
                report.ignore("unresolved", 1)
            elif isinstance(block, Inside) and not of_blocks:
                self.claim_page(holder, store, name, block)
                report.stored += 1
            elif (store.page and not chunk) or (
                isinstance(block, Inside) and block.length() < self.block_size
            ):
                report.ignore("block_size", 1)
            else:
                block = block.block() if isinstance(block, Inside) else block
                self.claim(holder, store, name, block, size)
                report.stored += 1

    def store_pages(self, holder: Holder, store: Store, report: Report) -> None:
        """Store computed blocks, or let them wait for their parent."""
        report.stored += self.file(holder, store, set(), report)

    def file(
        self, holder: Holder, store: Store, taken: set[int], report: Report
    ) -> int:
        """Claim a store's blocks but for the `taken`; return how many were."""
        here = self.parent(holder, store)
        claimed = 0
        leading = 0
        for position, (name, page) in enumerate(
            zip(store.names, store.pages, strict=False)
        ):
            known = self.known_place(holder, store, name)
            if known is not None:
                here = known
            elif here is None:
                leading += 1
                continue
            else:
                here = self.next_place(holder, here, store, page)
            if position in taken:
                continue
            if isinstance(here, Refused):
                report.ignore(here.reason, 1)
                continue
            claimed += 1
            if isinstance(here, Inside):
                self.claim_page(holder, store, name, here)
            else:
                self.claim(holder, store, name, here, store.size)
        if leading:
            self.wait(holder, store, leading, report)
        return claimed

    def known_place(
        self, holder: Holder, store: Store, name: Name
    ) -> Block | Inside | Refused | None:
        """Return where a hash belongs by its name, None where tokens decide."""
        other = store.group != MAIN and self.profile(holder).names != "own"
        if not other and (store.tier == "device" or store.has_extra_keys):
            return None
        known = self.meaning(holder, name, store.lora, store.first_salt)
        if known is None or not store.page:
            return known if known is None else self.whole(known)
        return known if isinstance(known, Inside | Refused) else None

    def next_place(
        self, holder: Holder, here: Block | Inside | Refused, store: Store, page: Page
    ) -> Block | Inside | Refused:
        """Return where a hash belongs below another place."""
        if store.page and not isinstance(here, Refused):
            return self.add_page(holder, here, store, page)
        here = self.whole(here)
        if isinstance(here, Refused):
            return here
        return self.extend(holder, here, store, page)

    def extend(self, holder: Holder, parent: Block, store: Store, page: Page) -> Block:
        """Return the last block of a page below its parent."""
        space = self.namespace_below(holder, parent, store, page)
        block = parent
        for tokens, images in page.blocks:
            block = (*block, Content(space, tokens, images, store.pairs))
        return block

    def claim(
        self, holder: Holder, store: Store, name: Name, block: Block, size: int
    ) -> None:
        """Add a copy of the `size` blocks that end with `block`."""
        tier, group = store.tier, store.group
        size = min(size, len(block))
        chunk = self.profile(holder).chunk_tokens.get(tier, 0) // self.block_size
        self.announced.append(name)
        for copy in self.copies:
            where = (copy.holder, copy.group, copy.tier, copy.size, copy.chunk)
            if where != (holder, group, tier, size, chunk):
                continue
            if copy.block == block and same_name(copy.name, name):
                if tier in self.profile(holder).copies:
                    copy.count += 1
                break
        else:
            copy = Copy(holder, tier, name, block, size, chunk, group=group)
            self.copies.append(copy)
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
        group = self.removal_group(holder, wire.event)
        for name in hashes_of(wire.event):
            taken = [
                self.take(holder, group, each, name)
                for each in ([tier] if tier else TIERS)
            ]
            if any(taken):
                report.removed += 1
            else:
                report.ignore("unknown_block", 1)
        self.forget_dead_names()

    def take(
        self, holder: Holder, group: Group | Nobody, tier: str, name: Name
    ) -> bool:
        """Take a waiting copy, else one copy from each block of that name."""
        for item in self.waiting:
            where = (item.holder, item.store.group, item.store.tier)
            if where != (holder, group, tier):
                continue
            for position, waiting_name in enumerate(item.store.names):
                if position not in item.taken and same_name(waiting_name, name):
                    item.taken.add(position)
                    if not item.left():
                        self.waiting.remove(item)
                    return True
        pages = self.take_pages(holder, group, tier, name)
        found = [
            copy
            for copy in self.copies
            if (copy.holder, copy.group, copy.tier) == (holder, group, tier)
            and same_name(copy.name, name)
        ]
        for copy in found:
            copy.count -= 1
        self.copies = [copy for copy in self.copies if copy.count]
        return pages or bool(found)

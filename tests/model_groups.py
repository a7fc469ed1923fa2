"""Which cache group of a hybrid model an event is of, as the model reads it."""

from kvindex.events import BlockRemoved, BlockStored
from tests.model_age import Ages
from tests.model_read import FULL_KINDS, MAIN, Group, tokens_fault
from tests.model_state import POOL, Holder


class Nobody:
    """A cache group that is not followed."""


NOBODY = Nobody()


class Groups(Ages):
    """Groups: the kinds that events named, by holder and number."""

    def tokens_fault(self, event: BlockStored) -> str | None:
        """Compare a store's tokens with its hashes."""
        size = self.block_size if event.block_size is None else event.block_size
        return tokens_fault(event, size)

    def is_masked(self, holder: Holder, event: BlockStored) -> bool:
        """Return whether a store of another group leaves out some of its hashes."""
        other = self.store_group(holder, event) != MAIN
        shared = self.profile(holder).names != "own"
        return other and shared and self.tokens_fault(event) == "tokens"

    def store_group(self, holder: Holder, event: BlockStored) -> Group | Nobody:
        """Return the group that a store is of; learn what that is."""
        number, kind = event.group_idx, event.kv_cache_spec_kind
        main = self.main_groups.get(holder)
        others = self.others.setdefault(holder, {})
        if kind is not None:
            self.kinds[holder, number] = (kind, event.kv_cache_spec_sliding_window)
        full = kind is None or kind in FULL_KINDS
        if number is not None:
            named = kind is not None or number == 0
            if full and main is None and named and number not in others:
                self.main_groups[holder] = main = number
            if number == main:
                return MAIN if full else NOBODY
        elif full:
            return MAIN
        if not self.group_rules or holder[1] == POOL:
            return NOBODY
        if number not in others and kind is None and not event.token_ids:
            return NOBODY
        if kind is not None:
            others[number] = (kind, event.kv_cache_spec_sliding_window)
        else:
            others.setdefault(number, ("unknown", None))
        return number

    def removal_group(self, holder: Holder, event: BlockRemoved) -> Group | Nobody:
        """Return the group that a removal is of."""
        number, kind = event.group_idx, event.kv_cache_spec_kind
        others = self.others.get(holder, {})
        main = self.main_groups.get(holder)
        if kind in FULL_KINDS:
            return MAIN if number is None or number not in others else number
        if kind is None and number is None:
            return MAIN
        if kind is None and number == main:
            return MAIN
        if kind is None and main is None and number == 0 and number not in others:
            known = self.kinds.get((holder, 0))
            return MAIN if known is None or known[0] in FULL_KINDS else NOBODY
        return number if number in others else NOBODY

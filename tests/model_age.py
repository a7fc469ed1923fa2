"""What the model forgets by itself: blocks that were stored too long ago."""

from collections.abc import Iterable

from tests.model_predict import Predictions
from tests.model_read import Name, low
from tests.model_state import Holder


class Ages(Predictions):
    """Limits of age: when each name was last stored, where somebody asks."""

    def note_age(self, holder: Holder, tier: str, names: Iterable[Name]) -> None:
        """Note that a store names these on a tier; a clock never goes back."""
        if tier in self.profile(holder).max_age:
            moments = self.stored_at.setdefault((holder, tier), {})
            now = max([self.now, *moments.values()])
            moments.update({low(name): now for name in names})

    def end_old(self, holder: Holder, now: float) -> int:
        """End what is too old of one holder; return how many blocks."""
        ended = 0
        for tier, limit in self.profile(holder).max_age.items():
            moments = self.stored_at.get((holder, tier), {})
            old = {name for name, moment in moments.items() if moment + limit <= now}
            for name in old:
                del moments[name]
            before = len(self.held_blocks(holder, tier))
            self.copies = [
                copy
                for copy in self.copies
                if (copy.holder, copy.tier) != (holder, tier)
                or low(copy.name) not in old
            ]
            self.pages = [
                copy
                for copy in self.pages
                if (copy.holder, copy.tier) != (holder, tier)
                or low(copy.name) not in old
            ]
            for item in list(self.waiting):
                if (item.holder, item.store.tier) != (holder, tier):
                    continue
                names = enumerate(item.store.names)
                item.taken |= {at for at, name in names if low(name) in old}
                if not item.left():
                    self.waiting.remove(item)
            ended += before - len(self.held_blocks(holder, tier))
        self.forget_dead_names()
        return ended

    def expire(self, now: float) -> int:
        """End what is due and what is too old; return how many blocks."""
        old = sum(self.end_old(holder, now) for holder in self.known)
        return super().expire(now) + old

    def forget_ages(self, holder: Holder, kept: Iterable[str] = ()) -> None:
        """Forget when something was stored, but for the tiers that are kept."""
        for where in list(self.stored_at):
            if where[0] == holder and where[1] not in kept:
                del self.stored_at[where]

"""What the model expects to be held: every predicted block, with its deadline."""

from collections.abc import Iterable, Sequence

from tests.model_match import Answers, Region
from tests.model_state import Holder, party


class Predictions(Answers):
    """Predictions: a dict from blocks to when they end, for each holder."""

    def predict(
        self,
        tokens: Sequence[int],
        *,
        worker: str,
        dp_rank: int,
        ttl: float,
        now: float,
        capacity: int | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: Iterable[Region] | None = None,
    ) -> int:
        """Predict a prompt's leading blocks; return how many."""
        holder = (worker, dp_rank)
        ((path,),) = self.ways(
            tokens, lora_name=lora_name, cache_salt=cache_salt, mm=mm, kinds=[False]
        )
        path = path[:capacity]
        ignored = self.registered_only and party(holder) not in self.profiles
        if not path or ttl <= 0 or ignored:
            return 0
        self.end(holder, now)
        self.touched.add(holder)
        self.known.add(holder)
        self.calls += 1
        blocks = self.predicted.setdefault(holder, {})
        for length in range(1, len(path) + 1):
            until = (now + ttl, self.calls)
            blocks[path[:length]] = max(until, blocks.get(path[:length], until))
        while capacity is not None and len(blocks) > capacity:
            del blocks[min(blocks, key=lambda block: (blocks[block], -len(block)))]
        return len(path)

    def expire(self, now: float) -> int:
        """End what is due; return how many blocks, each holder's counted."""
        return sum(self.end(holder, now) for holder in self.predicted)

    def end(self, holder: Holder, now: float) -> int:
        """End what is due of one holder."""
        blocks = self.predicted.get(holder, {})
        due = [block for block, until in blocks.items() if until[0] <= now]
        for block in due:
            del blocks[block]
        return len(due)

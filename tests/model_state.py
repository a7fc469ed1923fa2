"""What the model remembers: plain lists and dicts."""

from dataclasses import dataclass, field
from typing import Any

from tests.model_read import MAIN, Block, Group, Name, Store

Holder = tuple[str, int]  # worker and rank, or pool and POOL
Party = tuple[str, bool]  # a worker's name and False, or a pool's and True
Kind = tuple[str, int | None]  # a cache group's kind and window
POOL = -1
WEIGHTS = {
    "device": 1.0,
    "host": 0.75,
    "disk": 0.25,
    "external": 0.25,
    "shared": 0.5,
}


def party(holder: Holder) -> Party:
    """Return whose holder it is."""
    return holder[0], holder[1] == POOL


@dataclass
class Profile:
    """How a worker's or a pool's events are read."""

    kind: str = "auto"
    clears: tuple[str, ...] | None = None
    copies: tuple[str, ...] = ("device", "host")
    chunk_tokens: dict[str, int] = field(default_factory=dict)
    media: dict[str, str] = field(default_factory=dict)
    names: str = "shared"
    root_hash: Name | None = None
    lora_ids: dict[int, str] = field(default_factory=dict)
    max_age: dict[str, float] = field(default_factory=dict)


@dataclass
class Copy:
    """A holder's copies of the `size` blocks that end with `block`."""

    holder: Holder
    tier: str
    name: Name
    block: Block
    size: int
    chunk: int = 0  # blocks a chunk of the tier, as the store was read; 0 = none
    count: int = 1
    group: Group = MAIN

    def covers(self, block: Block) -> bool:
        """Return whether `block` is one of the blocks held."""
        first = len(self.block) - self.size
        return (
            first < len(block) <= len(self.block) and self.block[: len(block)] == block
        )

    def blocks(self) -> list[Block]:
        """Return the blocks held."""
        last = len(self.block)
        return [self.block[:end] for end in range(last - self.size + 1, last + 1)]


@dataclass
class Waiting:
    """A store whose parent is unknown; `taken` are the hashes removed since."""

    holder: Holder
    store: Store
    taken: set[int] = field(default_factory=set)

    def left(self) -> int:
        """Return how many hashes still wait."""
        return len(self.store.names) - len(self.taken)


@dataclass
class Report:
    """What `apply` answers."""

    stored: int = 0
    removed: int = 0
    cleared: int = 0
    ignored: int = 0
    attached: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    status: str = "ok"
    gap: tuple[int, int] | None = None
    dp_rank: int = 0

    def ignore(self, reason: str, count: int) -> None:
        """Count hashes that were not applied."""
        self.note(reason, count)
        self.ignored += count

    def note(self, reason: str, count: int) -> None:
        """Count a reason without ignoring anything."""
        if count:
            self.reasons[reason] = self.reasons.get(reason, 0) + count


class State:
    """Everything that is held, named, waiting and registered."""

    def __init__(
        self,
        *,
        block_size: int,
        weights: dict[str, float] | None = None,
        registered_only: bool = False,
        group_rules: bool = False,
        orphan_blocks: int = 16384,
    ) -> None:
        """Make an empty state."""
        self.block_size = block_size
        self.weights = WEIGHTS | (weights or {})
        self.registered_only = registered_only
        self.group_rules = group_rules
        self.orphan_blocks = orphan_blocks
        self.copies: list[Copy] = []
        self.pages: list[Any] = []  # copies of pages
        self.meanings: list[tuple[Name, Any]] = []  # blocks and pages
        self.waiting: list[Waiting] = []
        self.profiles: dict[Party, Profile] = {}
        self.epochs: dict[Party, int] = {}
        self.last_epoch = 0
        self.touched: set[Holder] = set()
        self.known: set[Holder] = set()  # touched, and pools; not forgotten by a reset
        self.attached: set[tuple[str, str]] = set()  # worker and pool
        self.kinds: dict[tuple[Holder, int | None], Kind] = {}
        self.main_groups: dict[Holder, int] = {}
        self.others: dict[Holder, dict[Group, Kind]] = {}
        self.cursors: dict[tuple[Holder, str], int] = {}
        self.last_seq: dict[Holder, int] = {}
        self.duplicates: dict[Holder, int] = {}
        self.announced: list[Name] = []
        # By holder and block, the deadline and the call that set it.
        self.predicted: dict[Holder, dict[Block, tuple[float, int]]] = {}
        self.calls = 0
        # By holder, tier and the 64 bits of a name, where age is limited.
        self.stored_at: dict[tuple[Holder, str], dict[int, float]] = {}
        self.now = 0.0

    def profile(self, holder: Holder) -> Profile:
        """Return how a holder's events are read."""
        return self.profiles.get(party(holder), Profile())

    def reached(self, worker: str) -> list[Holder]:
        """Return the pools that a worker reaches: all, unless it is attached."""
        attached = {pool for known, pool in self.attached if known == worker}
        pools = [holder for holder in self.known if holder[1] == POOL]
        return [pool for pool in pools if not attached or pool[0] in attached]

    def waiting_blocks(self, holder: Holder) -> int:
        """Return how many blocks of a holder wait."""
        return sum(
            item.left() * item.store.size
            for item in self.waiting
            if item.holder == holder
        )

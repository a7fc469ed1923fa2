"""The words of an episode: what is done to an index, and what it is asked."""

from dataclasses import dataclass, field

from tests.model_match import Candidate, Region
from tests.model_read import Fields, Name, Wire


@dataclass(frozen=True)
class Settings:
    """How the index is made."""

    block_size: int = 2
    weights: dict[str, float] | None = None
    registered_only: bool = False
    group_rules: bool = False
    orphan_blocks: int = 16384


@dataclass(frozen=True)
class Batch:
    """One call of `apply`; `pool` says that `worker` is a pool's name.

    `epoch` is symbolic ("current", "stale", "unknown", None), so that a step
    keeps its sense when the steps before it are taken out.
    """

    worker: str
    events: tuple[Wire, ...]
    pool: bool = False
    as_bytes: bool = False
    dp_rank: int = 0
    rank_inside: object = None
    with_rank: bool = True
    source: str = ""
    seq: int | None = None
    epoch: str | None = None
    strict: bool = False
    now: float = 0.0


@dataclass(frozen=True)
class Broken:
    """Bytes that no batch can be read from."""

    worker: str
    payload: bytes
    pool: bool = False
    seq: int | None = None


@dataclass(frozen=True)
class Register:
    """One call of `register` or `register_pool`."""

    worker: str
    settings: Fields
    pool: bool = False


@dataclass(frozen=True)
class Remove:
    """One call of `remove_worker` or `remove_pool`."""

    worker: str
    pool: bool = False


@dataclass(frozen=True)
class Reset:
    """One call of `reset` or `reset_pool`."""

    worker: str
    dp_rank: int
    pool: bool = False


@dataclass(frozen=True)
class Attach:
    """One call of `attach`."""

    worker: str
    pool: str


@dataclass(frozen=True)
class Detach:
    """One call of `detach`."""

    worker: str
    pool: str


@dataclass(frozen=True)
class Clear:
    """One call of `clear`."""


@dataclass(frozen=True)
class Predict:
    """One call of `predict`."""

    worker: str
    dp_rank: int
    tokens: tuple[int, ...]
    now: float
    ttl: float = 5.0
    capacity: int | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    mm: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Expire:
    """One call of `expire`."""

    now: float


Step = (
    Batch
    | Broken
    | Register
    | Remove
    | Reset
    | Attach
    | Detach
    | Clear
    | Predict
    | Expire
)


@dataclass(frozen=True)
class Prompt:
    """A question for `match` and its relatives."""

    tokens: tuple[int, ...]
    lora_name: str | None = None
    cache_salt: str | None = None
    mm: tuple[Region, ...] = ()
    workers: tuple[Candidate, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Names:
    """A question for `match_names`."""

    names: tuple[Name, ...]
    workers: tuple[Candidate, ...] = ()


Query = Prompt | Names


@dataclass(frozen=True)
class Episode:
    """A seeded story: an index, what happens to it, and what it is asked."""

    seed: int
    settings: Settings
    steps: tuple[Step, ...]
    queries: tuple[Query, ...]

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias, final, overload

from typing_extensions import Buffer

from kvindex.diagnosis import Finding
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

__all__ = [
    "DEBUG",
    "ApplyReport",
    "Candidates",
    "Chains",
    "Indexer",
    "Match",
    "Matches",
    "PoolState",
    "WorkerState",
    "__version__",
    "_matches",
    "block_keys",
    "chain_keys",
    "pack_batch",
    "unpack",
]

_Integers: TypeAlias = Buffer | Sequence[int]
_EngineHashes: TypeAlias = Buffer | Sequence[int | bytes]
_Json: TypeAlias = Mapping[str, Any]
_Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared
_Payload: TypeAlias = Buffer | str | _Json | Sequence[_Event | _Json]
_Images: TypeAlias = Sequence[tuple[str | bytes, int, int]]
_Workers: TypeAlias = Candidates | Sequence[str | tuple[str, int]]

DEBUG: Final[bool]
__version__: Final[str]

def block_keys(
    tokens: _Integers,
    /,
    *,
    block_size: int,
    lora_name: str | None = None,
    cache_salt: str | None = None,
    mm: _Images | None = None,
    pairs: bool = False,
) -> memoryview[int]: ...
def chain_keys(local_keys: _Integers, /) -> memoryview[int]: ...
def pack_batch(
    events: Sequence[_Event], /, *, timestamp: float, dp_rank: int = 0
) -> bytes: ...
def unpack(payload: bytes, /) -> object: ...
def _matches(
    workers: tuple[str, ...],
    numbers: bytes,
    weights: list[float],
    pools: list[tuple[str, int]],
    /,
) -> Matches: ...

@final
class Indexer:
    def __new__(
        cls,
        *,
        block_size: int,
        weights: Mapping[str, float] | None = None,
        registered_only: bool = False,
        group_rules: bool = False,
        orphan_blocks: int = 16384,
    ) -> Indexer: ...
    @property
    def block_size(self) -> int: ...
    @property
    def weights(self) -> dict[str, float]: ...
    @property
    def registered_only(self) -> bool: ...
    @property
    def group_rules(self) -> bool: ...
    @property
    def orphan_blocks(self) -> int: ...
    def apply(
        self,
        payload: _Payload,
        /,
        *,
        worker: str | None = None,
        pool: str | None = None,
        dp_rank: int = 0,
        source: str = "",
        seq: int | None = None,
        epoch: int | None = None,
        strict: bool = False,
        now: float | None = None,
    ) -> ApplyReport: ...
    def match(
        self,
        tokens: _Integers,
        /,
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: _Images | None = None,
        workers: _Workers | None = None,
        weights: Mapping[str, float] | None = None,
        cascade: bool = False,
    ) -> Matches: ...
    def match_with_keys(
        self,
        tokens: _Integers,
        /,
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: _Images | None = None,
        workers: _Workers | None = None,
        weights: Mapping[str, float] | None = None,
        cascade: bool = False,
    ) -> tuple[Matches, memoryview[int]]: ...
    def match_many(
        self,
        prompts: Sequence[_Integers],
        /,
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: _Images | None = None,
        workers: _Workers | None = None,
        weights: Mapping[str, float] | None = None,
        cascade: bool = False,
    ) -> list[Matches]: ...
    def match_keys(
        self,
        local_keys: _Integers,
        /,
        *,
        workers: _Workers | None = None,
        weights: Mapping[str, float] | None = None,
        cascade: bool = False,
    ) -> Matches: ...
    def match_chain(
        self,
        chain_keys: _Integers,
        /,
        *,
        workers: _Workers | None = None,
        weights: Mapping[str, float] | None = None,
        cascade: bool = False,
    ) -> Matches: ...
    def match_names(
        self,
        engine_hashes: _EngineHashes,
        /,
        *,
        workers: _Workers | None = None,
        weights: Mapping[str, float] | None = None,
        cascade: bool = False,
    ) -> Matches: ...
    def candidates(self, names: _Workers) -> Candidates: ...
    def register(
        self,
        worker: str,
        *,
        profile: str = "vllm",
        clears: Sequence[str] | None = None,
        copies: Sequence[str] | None = None,
        chunk_tokens: Mapping[str, int] | None = None,
        media: Mapping[str, str] | None = None,
        names: str | None = None,
        root_hash: int | bytes | None = None,
        lora_ids: Mapping[int, str] | None = None,
        max_age: Mapping[str, float] | None = None,
    ) -> int: ...
    def reset(self, worker: str, *, dp_rank: int = 0) -> bool: ...
    def remove_worker(self, worker: str) -> bool: ...
    def clear(self) -> None: ...
    def workers(self) -> list[WorkerState]: ...
    def register_pool(
        self,
        pool: str,
        *,
        profile: str = "auto",
        clears: Sequence[str] | None = None,
        copies: Sequence[str] | None = None,
        chunk_tokens: Mapping[str, int] | None = None,
        media: Mapping[str, str] | None = None,
        names: str | None = None,
        root_hash: int | bytes | None = None,
        lora_ids: Mapping[int, str] | None = None,
        max_age: Mapping[str, float] | None = None,
    ) -> int: ...
    def attach(self, worker: str, pool: str) -> None: ...
    def detach(self, worker: str, pool: str) -> bool: ...
    def reset_pool(self, pool: str) -> bool: ...
    def remove_pool(self, pool: str) -> bool: ...
    def pools(self) -> list[PoolState]: ...
    def predict(
        self,
        tokens: Buffer | Sequence[int],
        /,
        *,
        worker: str,
        dp_rank: int = 0,
        ttl: float = 120.0,
        now: float | None = None,
        capacity: int | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: Sequence[tuple[str | bytes, int, int]] | None = None,
    ) -> int: ...
    def predict_keys(
        self,
        local_keys: Buffer | Sequence[int],
        /,
        *,
        worker: str,
        dp_rank: int = 0,
        ttl: float = 120.0,
        now: float | None = None,
        capacity: int | None = None,
    ) -> int: ...
    def predict_chain(
        self,
        chain_keys: Buffer | Sequence[int],
        /,
        *,
        worker: str,
        dp_rank: int = 0,
        ttl: float = 120.0,
        now: float | None = None,
        capacity: int | None = None,
    ) -> int: ...
    def expire(self, now: float | None = None) -> int: ...
    def diagnose(self, *, tiers: Sequence[str] | None = None) -> list[Finding]: ...
    def stats(self) -> dict[str, Any]: ...
    def explain(
        self,
        tokens: _Integers,
        /,
        *,
        worker: str,
        dp_rank: int = 0,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm: _Images | None = None,
    ) -> dict[str, Any]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...

@final
class Candidates:
    def __new__(cls, names: _Workers, /) -> Candidates: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str | tuple[str, int]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Chains:
    def __new__(cls) -> Chains: ...
    def __len__(self) -> int: ...
    def add(self, chain_keys: _Integers, slot: int, /) -> tuple[int, int]: ...
    def remove(self, number: int, /) -> int: ...
    def shared(self, chain_keys: _Integers, slots: int, /) -> memoryview[int]: ...

@final
class Matches:
    @property
    def workers(self) -> tuple[str, ...]: ...
    @property
    def dp_ranks(self) -> memoryview[int]: ...
    @property
    def depths(self) -> memoryview[int]: ...
    @property
    def scores(self) -> memoryview[float]: ...
    @property
    def device(self) -> memoryview[int]: ...
    @property
    def host(self) -> memoryview[int]: ...
    @property
    def disk(self) -> memoryview[int]: ...
    @property
    def external(self) -> memoryview[int]: ...
    @property
    def shared(self) -> memoryview[int]: ...
    @property
    def predicted(self) -> memoryview[int]: ...
    @property
    def pools(self) -> dict[str, int]: ...
    def best(self, seed: int | None = None) -> Match | None: ...
    def to_dict(self) -> dict[str, list[Any]]: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Match: ...
    @overload
    def __getitem__(self, index: slice, /) -> Matches: ...
    def __iter__(self) -> Iterator[Match]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Match:
    __match_args__ = (
        "worker",
        "dp_rank",
        "depth",
        "score",
        "device",
        "host",
        "disk",
        "external",
        "shared",
        "predicted",
    )
    def __new__(
        cls,
        worker: str,
        dp_rank: int = 0,
        depth: int = 0,
        score: float = 0.0,
        device: int = 0,
        host: int = 0,
        disk: int = 0,
        external: int = 0,
        shared: int = 0,
        predicted: int = 0,
    ) -> Match: ...
    @property
    def worker(self) -> str: ...
    @property
    def dp_rank(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def score(self) -> float: ...
    @property
    def device(self) -> int: ...
    @property
    def host(self) -> int: ...
    @property
    def disk(self) -> int: ...
    @property
    def external(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def predicted(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ApplyReport:
    __match_args__ = (
        "stored",
        "removed",
        "cleared",
        "ignored",
        "attached",
        "reasons",
        "status",
        "gap",
        "dp_rank",
    )
    def __new__(
        cls,
        stored: int = 0,
        removed: int = 0,
        cleared: int = 0,
        ignored: int = 0,
        attached: int = 0,
        reasons: dict[str, int] | None = None,
        status: Literal["ok", "duplicate", "gap"] = "ok",
        gap: tuple[int, int] | None = None,
        dp_rank: int = 0,
    ) -> ApplyReport: ...
    @property
    def stored(self) -> int: ...
    @property
    def removed(self) -> int: ...
    @property
    def cleared(self) -> int: ...
    @property
    def ignored(self) -> int: ...
    @property
    def attached(self) -> int: ...
    @property
    def reasons(self) -> dict[str, int]: ...
    @property
    def status(self) -> Literal["ok", "duplicate", "gap"]: ...
    @property
    def gap(self) -> tuple[int, int] | None: ...
    @property
    def dp_rank(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class WorkerState:
    __match_args__ = (
        "worker",
        "dp_rank",
        "device",
        "host",
        "disk",
        "external",
        "seq",
        "orphans",
        "duplicates",
        "predicted",
    )
    def __new__(
        cls,
        worker: str,
        dp_rank: int = 0,
        device: int = 0,
        host: int = 0,
        disk: int = 0,
        external: int = 0,
        seq: int | None = None,
        orphans: int = 0,
        duplicates: int = 0,
        predicted: int = 0,
    ) -> WorkerState: ...
    @property
    def worker(self) -> str: ...
    @property
    def dp_rank(self) -> int: ...
    @property
    def device(self) -> int: ...
    @property
    def host(self) -> int: ...
    @property
    def disk(self) -> int: ...
    @property
    def external(self) -> int: ...
    @property
    def seq(self) -> int | None: ...
    @property
    def orphans(self) -> int: ...
    @property
    def duplicates(self) -> int: ...
    @property
    def predicted(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class PoolState:
    __match_args__ = (
        "pool",
        "device",
        "host",
        "disk",
        "external",
        "seq",
        "orphans",
        "duplicates",
    )
    def __new__(
        cls,
        pool: str,
        device: int = 0,
        host: int = 0,
        disk: int = 0,
        external: int = 0,
        seq: int | None = None,
        orphans: int = 0,
        duplicates: int = 0,
    ) -> PoolState: ...
    @property
    def pool(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def host(self) -> int: ...
    @property
    def disk(self) -> int: ...
    @property
    def external(self) -> int: ...
    @property
    def seq(self) -> int | None: ...
    @property
    def orphans(self) -> int: ...
    @property
    def duplicates(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

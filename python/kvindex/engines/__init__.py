"""Engines and cache backends: one small file each.

    index.register("w0", profile="tensorrt_llm")
    index.apply(llm.get_kv_cache_events(timeout=1), worker="w0")

An `Engine` is a name, the habits of a source, and a decoder where its payloads
are not batches of vLLM's or SGLang's wire. `names()` lists all, `add` takes one
of your own. `docs/engines.md` says for each what arrives and what does not.
"""

from kvindex._core import pack_batch, unpack
from kvindex.engines.auto import AUTO
from kvindex.engines.dynamo import DYNAMO
from kvindex.engines.engine import Batch, Decoder, Engine, Event
from kvindex.engines.flexkv import FLEXKV
from kvindex.engines.kvbm import KVBM
from kvindex.engines.lmcache import LMCACHE, LMCACHE_INPROCESS, LMCACHE_SHARED
from kvindex.engines.mooncake import MOONCAKE
from kvindex.engines.sglang import SGLANG
from kvindex.engines.sglang_tenants import SGLANG_TENANTS
from kvindex.engines.tensorrt_llm import TENSORRT_LLM
from kvindex.engines.vllm import VLLM
from kvindex.errors import ConfigError

__all__ = [
    "Batch",
    "Decoder",
    "Engine",
    "Event",
    "add",
    "find",
    "names",
    "pack_batch",
    "unpack",
]

_BUILT_IN = (
    *(AUTO, VLLM, SGLANG, SGLANG_TENANTS, TENSORRT_LLM),
    *(KVBM, FLEXKV, LMCACHE, LMCACHE_SHARED, LMCACHE_INPROCESS, MOONCAKE),
    DYNAMO,
)
_ENGINES = {engine.name: engine for engine in _BUILT_IN}


def find(name: str) -> Engine:
    """Return the engine of a name.

    Raises:
        ConfigError: Nobody knows it.

    Examples:
        >>> find("vllm").title
        'vLLM'
    """
    try:
        return _ENGINES[name]
    except KeyError:
        known = ", ".join(names())
        message = f"profile is one of {known}, not {name!r}"
        raise ConfigError(message) from None


def names() -> tuple[str, ...]:
    """Return the names of all engines, in alphabetical order."""
    return tuple(sorted(_ENGINES))


def add(engine: Engine) -> None:
    """Make an engine known by its name, for `register(profile=...)`.

    Thread safety: may be called from any thread at any time.

    Raises:
        ConfigError: The name is empty or taken.
    """
    if not engine.name:
        message = "an engine's name must not be empty"
        raise ConfigError(message)
    if _ENGINES.setdefault(engine.name, engine) is not engine:
        message = f"an engine named {engine.name!r} is known already"
        raise ConfigError(message)

"""Which workers already hold the KV cache of a prompt's prefix, and where.

>>> import kvindex
>>> index = kvindex.Indexer(block_size=16)
>>> stored = kvindex.BlockStored([101, 102], range(32), medium="GPU")
>>> index.apply([stored], worker="w0").stored
2
>>> index.match(range(48)).best().depth
2
"""

import logging
import warnings

from kvindex import _core
from kvindex._core import (
    ApplyReport,
    Candidates,
    Indexer,
    Match,
    Matches,
    PoolState,
    WorkerState,
    __version__,
    block_keys,
    chain_keys,
)
from kvindex.errors import ConfigError, DecodeError, KvIndexError, UnknownWorkerError
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored

__all__ = [
    "AllBlocksCleared",
    "ApplyReport",
    "BlockRemoved",
    "BlockStored",
    "Candidates",
    "ConfigError",
    "DecodeError",
    "Indexer",
    "KvIndexError",
    "Match",
    "Matches",
    "PoolState",
    "UnknownWorkerError",
    "WorkerState",
    "__version__",
    "block_keys",
    "chain_keys",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

if _core.DEBUG:
    warnings.warn(
        "this kvindex was built without optimisation: its speed means nothing",
        RuntimeWarning,
        stacklevel=2,
    )

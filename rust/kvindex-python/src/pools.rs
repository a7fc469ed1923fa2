//! Caches that belong to no worker: their registration, reach and state.

use std::sync::Arc;

use kvindex::{PoolState as State, Sender};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::Error;
use crate::indexer::Indexer;
use crate::profile::{ChunkTokens, Given, LoraIds, MaxAge, Media, RootHash};
use crate::settings::Tiers;
use crate::value::{self, Reduced};

#[pymethods]
impl Indexer {
    /// Says how a pool's later events are to be read.
    ///
    /// A pool is a cache that belongs to no worker. Its blocks count, as `shared`,
    /// for every worker that reaches it, where the worker's own tiers lack them: all
    /// workers do that are not attached to other pools. Pools form no rows. A worker
    /// and a pool may have the same name.
    ///
    /// Args:
    ///     pool: The pool's name.
    ///     profile, clears, copies, chunk_tokens, media, names, root_hash, lora_ids,
    ///         max_age: As for `register`.
    ///
    /// Returns:
    ///     The pool's epoch, for `apply`.
    ///
    /// Raises:
    ///     ConfigError: A setting is unknown or out of range.
    ///
    /// Examples:
    ///     >>> import kvindex
    ///     >>> index = kvindex.Indexer(block_size=4)
    ///     >>> epoch = index.register_pool("store")
    ///     >>> stored = kvindex.BlockStored([1, 2], range(8), medium="CPU")
    ///     >>> report = index.apply([stored], pool="store")
    ///     >>> found = index.match(range(12), workers=["w0"])
    ///     >>> found.pools, found[0].depth, found[0].shared, found[0].score
    ///     ({'store': 2}, 2, 2, 1.0)
    #[pyo3(signature = (
        pool, *, profile="auto", clears=None, copies=None, chunk_tokens=None, media=None,
        names=None, root_hash=None, lora_ids=None, max_age=None
    ))]
    fn register_pool(
        &self,
        py: Python<'_>,
        pool: &str,
        profile: &str,
        clears: Option<Tiers>,
        copies: Option<Tiers>,
        chunk_tokens: Option<ChunkTokens>,
        media: Option<Media>,
        names: Option<&str>,
        root_hash: Option<RootHash>,
        lora_ids: Option<LoraIds>,
        max_age: Option<MaxAge>,
    ) -> Result<u64, Error> {
        let given = Given {
            clears,
            copies,
            chunk_tokens,
            media,
            names,
            root_hash,
            lora_ids,
            max_age,
        };
        self.enroll(py, Sender::Pool(pool), profile, given)
    }

    /// Lets a worker reach a pool, and no other that it is not attached to.
    ///
    /// A worker that is attached to no pool reaches all. The worker need not be
    /// known. It stays attached when the pool is removed, until it is detached or
    /// removed itself.
    ///
    /// Args:
    ///     worker: The worker's name, with all its ranks.
    ///     pool: The pool's name.
    ///
    /// Raises:
    ///     ConfigError: There is no such pool.
    #[pyo3(signature = (worker, pool))]
    fn attach(&self, py: Python<'_>, worker: &str, pool: &str) -> Result<(), Error> {
        Ok(py.detach(|| self.index.attach(worker, pool))?)
    }

    /// Takes back an `attach`.
    ///
    /// Args:
    ///     worker: The worker's name.
    ///     pool: The pool's name.
    ///
    /// Returns:
    ///     Whether the worker was attached to the pool.
    #[pyo3(signature = (worker, pool))]
    fn detach(&self, py: Python<'_>, worker: &str, pool: &str) -> Result<bool, Error> {
        Ok(py.detach(|| self.index.detach(worker, pool))?)
    }

    /// Forgets what a pool holds, its stream's position included.
    ///
    /// Keeps its profile and epoch. Takes no time, whatever it holds.
    ///
    /// Args:
    ///     pool: The pool's name.
    ///
    /// Returns:
    ///     Whether there was anything to forget.
    #[pyo3(signature = (pool))]
    fn reset_pool(&self, py: Python<'_>, pool: &str) -> Result<bool, Error> {
        let used = py.detach(|| self.index.reset_pool(pool))?;
        self.decoders.reset(py, Sender::Pool(pool), None)?;
        Ok(used)
    }

    /// Forgets a pool with its profile, and ends its epoch.
    ///
    /// Takes no time, whatever it holds.
    ///
    /// Args:
    ///     pool: The pool's name.
    ///
    /// Returns:
    ///     Whether there was anything to forget.
    #[pyo3(signature = (pool))]
    fn remove_pool(&self, py: Python<'_>, pool: &str) -> Result<bool, Error> {
        self.misfits.forget(Sender::Pool(pool));
        self.decoders.forget(Sender::Pool(pool));
        Ok(py.detach(|| self.index.remove_pool(pool))?)
    }

    /// The state of every pool.
    fn pools(&self, py: Python<'_>) -> Result<Vec<PoolState>, Error> {
        let pools = py.detach(|| self.index.pools())?;
        Ok(pools.into_iter().map(PoolState::from).collect())
    }
}

/// The state of one pool. Immutable; compares by value.
///
/// Examples:
///     >>> import kvindex
///     >>> kvindex.PoolState("store", host=2, seq=41)
///     PoolState(pool='store', device=0, host=2, disk=0, external=0, seq=41,
///     orphans=0, duplicates=0)
#[pyclass(frozen, module = "kvindex", eq)]
#[derive(PartialEq)]
pub(crate) struct PoolState {
    pool: Arc<str>,
    /// How many distinct blocks are held on the device.
    #[pyo3(get)]
    device: u64,
    /// How many distinct blocks are held in the host's memory.
    #[pyo3(get)]
    host: u64,
    /// How many distinct blocks are held on disk.
    #[pyo3(get)]
    disk: u64,
    /// How many distinct blocks are held behind the network.
    #[pyo3(get)]
    external: u64,
    /// The number of the last batch, of any source; None before the first.
    #[pyo3(get)]
    seq: Option<u64>,
    /// How many blocks wait for their parent.
    #[pyo3(get)]
    orphans: u64,
    /// How many batches in a row had an old number.
    #[pyo3(get)]
    duplicates: u64,
}

const FIELDS: [&str; 8] = [
    "pool",
    "device",
    "host",
    "disk",
    "external",
    "seq",
    "orphans",
    "duplicates",
];

#[pymethods]
impl PoolState {
    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, FIELDS)
    }

    #[new]
    #[pyo3(signature = (
        pool, device=0, host=0, disk=0, external=0, seq=None, orphans=0, duplicates=0
    ))]
    fn new(
        pool: &str,
        device: u64,
        host: u64,
        disk: u64,
        external: u64,
        seq: Option<u64>,
        orphans: u64,
        duplicates: u64,
    ) -> Self {
        Self {
            pool: pool.into(),
            device,
            host,
            disk,
            external,
            seq,
            orphans,
            duplicates,
        }
    }

    /// The pool's name.
    #[getter]
    fn pool(&self) -> &str {
        &self.pool
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.fields(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        value::repr("PoolState", &FIELDS, &self.fields(py)?)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        Ok((slf.get_type(), slf.get().fields(slf.py())?))
    }
}

impl PoolState {
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Self {
            pool,
            device,
            host,
            disk,
            external,
            seq,
            orphans,
            duplicates,
        } = self;
        (
            &**pool, device, host, disk, external, seq, orphans, duplicates,
        )
            .into_pyobject(py)
    }
}

impl From<State> for PoolState {
    fn from(state: State) -> Self {
        let [device, host, disk, external] = state.tiers;
        Self {
            pool: state.pool,
            device,
            host,
            disk,
            external,
            seq: state.seq,
            orphans: state.orphans,
            duplicates: state.duplicates,
        }
    }
}

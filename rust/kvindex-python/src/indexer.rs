//! The index as Python sees it: conversions and calls.

use std::sync::atomic::{AtomicBool, AtomicU64};

use kvindex::key::namespace_seed;
use kvindex::{Blocks, Config, Index, Origin, Sender};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::candidates::{Candidates, Wanted};
use crate::decoding::Decoders;
use crate::error::Error;
use crate::images::Images;
use crate::integers::{EngineHashes, Keys, Tokens};
use crate::matches::Matches;
use crate::misfits::Misfits;
use crate::profile::{ChunkTokens, Given, LoraIds, MaxAge, Media, RootHash};
use crate::query::Query;
use crate::report::ApplyReport;
use crate::settings::{GivenWeights, Tiers, WeightTable, block_size, orphan_blocks, rank};
use crate::state::WorkerState;

/// An exact index of which workers hold which prefix on which tier.
///
/// Events go in by `apply`, answers come out of `match`. One index serves one
/// model at one block size. Settings are immutable and readable as properties.
///
/// Thread safety: every method may be called from any thread at any time.
/// Queries take no lock and never wait for a writer; writers take turns. A query
/// that overlaps an `apply` sees each stretch of the index as it was before or
/// after, never half of it. There is no hidden thread, and no lock is held
/// between calls.
///
/// Args:
///     block_size: Tokens a block, 1 to 2^20.
///     weights: What a block counts for in scores, by tier; those that are not
///         given keep their default: device 1.0, host 0.75, disk 0.25, external
///         0.25, shared 0.5.
///     registered_only: Whether events of workers and pools that were not
///         registered are ignored and counted.
///     group_rules: Whether a prefix counts only as far as all cache groups of a
///         hybrid model can go on from there, and not the main one alone.
///     orphan_blocks: How many blocks a holder may have waiting for their
///         parent; the oldest are dropped and counted.
///
/// Raises:
///     ConfigError: A setting is out of range.
///
/// Examples:
///     >>> import kvindex
///     >>> index = kvindex.Indexer(block_size=16)
///     >>> stored = kvindex.BlockStored([101, 102], range(32))
///     >>> index.apply([stored], worker="w0").stored
///     2
///     >>> index.match(range(48)).best()
///     Match(worker='w0', dp_rank=0, depth=2, score=2.0, device=2, host=0,
///     disk=0, external=0, shared=0, predicted=0)
///     >>> index
///     kvindex.Indexer(block_size=16, workers=1, blocks=2)
#[pyclass(frozen, module = "kvindex")]
pub(crate) struct Indexer {
    pub(crate) index: Index,
    pub(crate) weights: WeightTable,
    pub(crate) undecodable: AtomicU64,
    pub(crate) rejected: AtomicU64,
    /// Whether age was ever limited: nobody else asks for the time.
    pub(crate) ages: AtomicBool,
    pub(crate) misfits: Misfits,
    pub(crate) decoders: Decoders,
}

#[pymethods]
impl Indexer {
    #[new]
    #[pyo3(signature = (
        *, block_size, weights=None, registered_only=false, group_rules=false, orphan_blocks=16384
    ))]
    fn new(
        #[pyo3(from_py_with = block_size)] block_size: u32,
        weights: Option<GivenWeights>,
        registered_only: bool,
        group_rules: bool,
        #[pyo3(from_py_with = orphan_blocks)] orphan_blocks: u32,
    ) -> Result<Self, Error> {
        let config = Config {
            block_size,
            registered_only,
            group_rules,
            orphan_blocks,
        };
        Ok(Self {
            index: Index::new(config)?,
            weights: WeightTable::default().with(weights.as_ref()),
            undecodable: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            ages: AtomicBool::new(false),
            misfits: Misfits::default(),
            decoders: Decoders::default(),
        })
    }

    /// Tokens a block.
    #[getter]
    fn block_size(&self) -> u32 {
        self.index.config().block_size
    }

    /// What a block counts for in scores, by tier.
    #[getter]
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.weights.dict(py)
    }

    /// Whether events of workers and pools that were not registered are ignored.
    #[getter]
    fn registered_only(&self) -> bool {
        self.index.config().registered_only
    }

    /// Whether all cache groups of hybrid models count, and not the main one alone.
    #[getter]
    fn group_rules(&self) -> bool {
        self.index.config().group_rules
    }

    /// How many blocks a holder may have waiting for their parent.
    #[getter]
    fn orphan_blocks(&self) -> u32 {
        self.index.config().orphan_blocks
    }

    /// Applies one batch of the events of a worker or of a pool.
    ///
    /// Bytes are decoded and hashed without the interpreter and outside the
    /// index's lock. An event that cannot be applied costs only itself.
    ///
    /// Args:
    ///     payload: One engine batch as it came off the wire (msgpack), whatever
    ///         else the worker's engine sends (see `kvindex.engines`), or a
    ///         sequence of `BlockStored`, `BlockRemoved` and `AllBlocksCleared`.
    ///     worker: Whose events these are.
    ///     pool: The pool whose events these are, instead of `worker`.
    ///     dp_rank: The rank of a batch that names none. A pool has no ranks: whatever
    ///         is given, its rank is 0.
    ///     source: Which of the sender's streams; each counts its own batches.
    ///     seq: The batch's number in its stream. An old one changes nothing, a
    ///         jump is reported as a gap.
    ///     epoch: What `register` or `register_pool` returned; events of an older one
    ///         are ignored.
    ///         None is always current.
    ///     strict: Whether to refuse the whole batch for a structural fault.
    ///     now: The time in seconds, by default `time.monotonic()`. It matters only where
    ///         a `max_age` is set; the clock must be that of `expire` and `predict`, which
    ///         routers and feeds call with `time.monotonic()`.
    ///
    /// Returns:
    ///     What became of the batch; where a decoder of the worker's engine found
    ///     several in the payload, of all together.
    ///
    /// Raises:
    ///     DecodeError: The bytes are no batch, or `strict` found a fault.
    ///         Nothing was changed.
    ///     TypeError: The payload is neither bytes nor events, or not just one of
    ///         `worker` and `pool` is given.
    ///
    /// Examples:
    ///     >>> import kvindex
    ///     >>> index = kvindex.Indexer(block_size=4)
    ///     >>> index.apply([kvindex.AllBlocksCleared()], worker="w0", seq=7)
    ///     ApplyReport(stored=0, removed=0, cleared=1, ignored=0, attached=0,
    ///     reasons={}, status='ok', gap=None, dp_rank=0)
    ///     >>> index.apply([], worker="w0", seq=9).gap
    ///     (8, 8)
    #[pyo3(signature = (
        payload, /, *, worker=None, pool=None, dp_rank=0, source="", seq=None, epoch=None,
        strict=false, now=None
    ))]
    fn apply(
        &self,
        payload: &Bound<'_, PyAny>,
        worker: Option<&str>,
        pool: Option<&str>,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
        source: &str,
        seq: Option<u64>,
        epoch: Option<u64>,
        strict: bool,
        now: Option<f64>,
    ) -> Result<ApplyReport, Error> {
        let origin = Origin {
            sender: sender(worker, pool)?,
            rank: dp_rank,
            source,
            seq,
            epoch,
            now: self.arrival(payload.py(), now)?,
        };
        Ok(self.apply_payload(payload, &origin, strict)?.into())
    }

    /// Which workers hold how much of a prompt's prefix.
    ///
    /// Takes no lock, changes nothing, and is exact. 512 tokens cost 0.9 us to
    /// read from a buffer and 15 us from a list.
    ///
    /// Args:
    ///     tokens: The prompt, each token 0 to 2^32-1: a C-contiguous buffer of
    ///         32- or 64-bit integers (numpy, array, memoryview) or a sequence of
    ///         int. A trailing partial block is not looked at.
    ///     lora_name: The adapter's name; None and "" mean none.
    ///     cache_salt: The cache salt; None and "" mean none.
    ///     mm: The prompt's images, (identifier, first token, length) each.
    ///     workers: The only workers to look at: `Candidates`, or a sequence of
    ///         names (the best rank each) and (name, rank). There is one row for
    ///         each, in this order, zeros and unknown workers included. Without,
    ///         there is a row for whoever holds any of the leading blocks itself,
    ///         in no promised order.
    ///     weights: Weights by tier for this query, over those of the index.
    ///     cascade: Whether to walk the tiers one way instead, for comparison:
    ///         first the blocks on the device, from there those on the host, then
    ///         disk, then external; depth is their sum. Pools do not count.
    ///
    /// Returns:
    ///     One row a holder.
    ///
    /// Raises:
    ///     OverflowError: A token is out of range; the message names it.
    ///     TypeError: The tokens are no integers of 32 or 64 bits.
    ///     BufferError: The buffer is not contiguous.
    ///     ConfigError: A weight is out of range or of an unknown tier.
    ///
    /// Examples:
    ///     >>> import kvindex
    ///     >>> index = kvindex.Indexer(block_size=4)
    ///     >>> gpu = kvindex.BlockStored([1, 2], range(8), medium="GPU")
    ///     >>> cpu = kvindex.BlockStored([3], range(8, 12), 2, medium="CPU")
    ///     >>> report = index.apply([gpu, cpu], worker="w0")
    ///     >>> index.match(range(12)).to_dict()["score"]
    ///     [2.75]
    ///     >>> [row.depth for row in index.match(range(12), workers=["w1", "w0"])]
    ///     [0, 3]
    #[pyo3(name = "match", signature = (
        tokens, /, *, lora_name=None, cache_salt=None, mm=None, workers=None, weights=None,
        cascade=false
    ))]
    fn match_tokens(
        &self,
        tokens: Tokens,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
        mm: Option<Images>,
        workers: Option<Wanted>,
        weights: Option<GivenWeights>,
        cascade: bool,
    ) -> Result<Matches, Error> {
        let query = self.query(workers, weights.as_ref(), cascade);
        let images = mm.unwrap_or_default();
        let blocks = Blocks::Tokens {
            tokens: &tokens.0,
            images: &images.0,
            seed: seed(lora_name, cache_salt),
        };
        Ok(query.find(&self.index, &blocks)?)
    }

    /// Answers several prompts in one call.
    ///
    /// Large calls let go of the interpreter now and then, so that other threads
    /// go on.
    ///
    /// Args:
    ///     prompts: The tokens of each prompt, as for `match`.
    ///     lora_name, cache_salt, mm, workers, weights, cascade: As for `match`, the
    ///         same for all prompts.
    ///
    /// Returns:
    ///     One answer a prompt, in order.
    #[pyo3(signature = (
        prompts, /, *, lora_name=None, cache_salt=None, mm=None, workers=None, weights=None,
        cascade=false
    ))]
    fn match_many(
        &self,
        py: Python<'_>,
        prompts: &Bound<'_, PyAny>,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
        mm: Option<Images>,
        workers: Option<Wanted>,
        weights: Option<GivenWeights>,
        cascade: bool,
    ) -> Result<Vec<Matches>, Error> {
        let query = self.query(workers, weights.as_ref(), cascade);
        let images = mm.unwrap_or_default();
        let seed = seed(lora_name, cache_salt);
        query.find_many(py, &self.index, prompts, &images.0, seed)
    }

    /// Which workers hold how many leading ones of these blocks, by local keys.
    ///
    /// Blocks that only FlexKV holds have no such keys and are not found.
    ///
    /// Args:
    ///     local_keys: What `block_keys` returns: a buffer of 64-bit integers or a
    ///         sequence of int, 0 to 2^64-1.
    ///     workers, weights, cascade: As for `match`.
    ///
    /// Returns:
    ///     One row a holder.
    #[pyo3(signature = (local_keys, /, *, workers=None, weights=None, cascade=false))]
    fn match_keys(
        &self,
        local_keys: Keys,
        workers: Option<Wanted>,
        weights: Option<GivenWeights>,
        cascade: bool,
    ) -> Result<Matches, Error> {
        let query = self.query(workers, weights.as_ref(), cascade);
        Ok(query.find(&self.index, &Blocks::Locals(&local_keys.0))?)
    }

    /// Which workers hold how many leading ones of these blocks, by chain keys.
    ///
    /// Blocks that only FlexKV holds are not found.
    ///
    /// Args:
    ///     chain_keys: What the function `chain_keys` returns: a buffer of 64-bit
    ///         integers or a sequence of int, 0 to 2^64-1.
    ///     workers, weights, cascade: As for `match`.
    ///
    /// Returns:
    ///     One row a holder.
    #[pyo3(signature = (chain_keys, /, *, workers=None, weights=None, cascade=false))]
    fn match_chain(
        &self,
        chain_keys: Keys,
        workers: Option<Wanted>,
        weights: Option<GivenWeights>,
        cascade: bool,
    ) -> Result<Matches, Error> {
        let query = self.query(workers, weights.as_ref(), cascade);
        Ok(query.find(&self.index, &Blocks::Chain(&chain_keys.0))?)
    }

    /// Which workers hold how many leading ones of these blocks, by engine hashes.
    ///
    /// For engines whose hashes the caller can compute. A worker's row counts the
    /// blocks that it holds under these very hashes. Waits for a write in
    /// progress, without the interpreter.
    ///
    /// Args:
    ///     engine_hashes: A sequence of int (the low 64 bits count) and bytes, or
    ///         a buffer of 64-bit integers.
    ///     workers, weights, cascade: As for `match`.
    ///
    /// Returns:
    ///     One row a holder.
    #[pyo3(signature = (engine_hashes, /, *, workers=None, weights=None, cascade=false))]
    fn match_names(
        &self,
        py: Python<'_>,
        engine_hashes: EngineHashes,
        workers: Option<Wanted>,
        weights: Option<GivenWeights>,
        cascade: bool,
    ) -> Result<Matches, Error> {
        let query = self.query(workers, weights.as_ref(), cascade);
        Ok(py.detach(|| query.find_names(&self.index, &engine_hashes.0))?)
    }

    /// Resolves a list of workers once for many queries.
    ///
    /// Args:
    ///     names: Names (the best rank each) and (name, rank), in the order that
    ///         the rows shall have.
    ///
    /// Returns:
    ///     What `workers=` takes.
    #[pyo3(signature = (names))]
    #[expect(clippy::unused_self, reason = "belongs to the index for its users")]
    fn candidates(&self, names: Wanted) -> Candidates {
        names.into()
    }

    /// Says how a worker's later events are to be read.
    ///
    /// Registering again changes that, keeps what is held, and returns the same
    /// epoch. An unregistered worker is read as `profile="auto"`.
    ///
    /// Args:
    ///     worker: The worker's name.
    ///     profile: The name of an engine or cache backend that `kvindex.engines`
    ///         knows: "vllm", "sglang", "tensorrt_llm", ..., or "auto".
    ///     clears: The tiers that a clear empties, instead of the profile's.
    ///     copies: The tiers on which a second store is a second copy, instead of
    ///         the profile's.
    ///     chunk_tokens: By tier, the tokens of the chunk that one hash without
    ///         tokens stands for; a multiple of the block size.
    ///     media: By medium, the tier that it means; comes before the standard
    ///         ones, letter case aside.
    ///     names: "shared" where equal hashes mean equal prefixes on all workers,
    ///         "own" where the worker merely numbers its blocks.
    ///     root_hash: The parent that means "no parent", besides none at all.
    ///     lora_ids: By number, the name of an adapter that events only number.
    ///     max_age: By tier, how long what was stored there counts, in seconds, for
    ///         sources that never say what left it. Storing it again begins anew.
    ///         What is too old ends at `expire`, and at the holder's next `apply`.
    ///
    /// Returns:
    ///     The worker's epoch, for `apply`.
    ///
    /// Raises:
    ///     ConfigError: A setting is unknown or out of range.
    #[pyo3(signature = (
        worker, *, profile="vllm", clears=None, copies=None, chunk_tokens=None, media=None,
        names=None, root_hash=None, lora_ids=None, max_age=None
    ))]
    fn register(
        &self,
        py: Python<'_>,
        worker: &str,
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
        self.enroll(py, Sender::Worker(worker), profile, given)
    }

    /// Forgets what one rank of a worker holds, its stream's position included.
    ///
    /// Keeps the worker's profile and epoch. Takes no time, whatever it holds.
    ///
    /// Args:
    ///     worker: The worker's name.
    ///     dp_rank: The rank.
    ///
    /// Returns:
    ///     Whether there was anything to forget.
    #[pyo3(signature = (worker, *, dp_rank=0))]
    fn reset(
        &self,
        py: Python<'_>,
        worker: &str,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
    ) -> Result<bool, Error> {
        let used = py.detach(|| self.index.reset(worker, dp_rank))?;
        self.decoders
            .reset(py, Sender::Worker(worker), Some(dp_rank))?;
        Ok(used)
    }

    /// Forgets a worker with all its ranks and its profile, and ends its epoch. It
    /// is attached to no pool then.
    ///
    /// Takes no time, whatever it holds.
    ///
    /// Args:
    ///     worker: The worker's name.
    ///
    /// Returns:
    ///     Whether there was anything to forget.
    #[pyo3(signature = (worker))]
    fn remove_worker(&self, py: Python<'_>, worker: &str) -> Result<bool, Error> {
        self.misfits.forget(Sender::Worker(worker));
        self.decoders.forget(Sender::Worker(worker));
        Ok(py.detach(|| self.index.remove_worker(worker))?)
    }

    /// Forgets what all workers hold; keeps pools, profiles, epochs and counters.
    fn clear(&self, py: Python<'_>) -> Result<(), Error> {
        py.detach(|| self.index.clear())?;
        Ok(self.decoders.reset_all(py)?)
    }

    /// The state of every worker's rank.
    fn workers(&self, py: Python<'_>) -> Result<Vec<WorkerState>, Error> {
        let holders = py.detach(|| self.index.holders())?;
        Ok(holders.into_iter().map(WorkerState::from).collect())
    }

    /// How many distinct blocks are held.
    fn __len__(&self, py: Python<'_>) -> Result<usize, Error> {
        Ok(py.detach(|| self.index.blocks())? as usize)
    }

    /// True: an empty index is an index.
    #[expect(clippy::unused_self, reason = "Python's protocol")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let (workers, blocks) = self.index.size_hint();
        let size = self.block_size();
        format!("kvindex.Indexer(block_size={size}, workers={workers}, blocks={blocks})")
    }

    #[expect(clippy::unused_self, reason = "Python's protocol")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an Indexer cannot be pickled or copied: make a new one and replay the events",
        ))
    }
}

impl Indexer {
    pub(crate) fn query(
        &self,
        workers: Option<Wanted>,
        weights: Option<&GivenWeights>,
        cascade: bool,
    ) -> Query {
        Query::new(workers, self.weights, weights, cascade)
    }
}

/// Who sends a batch: just one of them.
fn sender<'a>(worker: Option<&'a str>, pool: Option<&'a str>) -> PyResult<Sender<'a>> {
    match (worker, pool) {
        (Some(worker), None) => Ok(Sender::Worker(worker)),
        (None, Some(pool)) => Ok(Sender::Pool(pool)),
        (None, None) => Err(PyTypeError::new_err("apply needs a worker or a pool")),
        (Some(_), Some(_)) => Err(PyTypeError::new_err(
            "apply takes a worker or a pool, not both",
        )),
    }
}

pub(crate) fn seed(lora_name: Option<&str>, cache_salt: Option<&str>) -> u64 {
    namespace_seed(
        lora_name.unwrap_or_default(),
        cache_salt.unwrap_or_default(),
    )
}

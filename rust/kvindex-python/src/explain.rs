//! Why is it so? Answers for people, as plain dicts.

use std::sync::atomic::Ordering;

use kvindex::event::{Reason, Tier};
use kvindex::{Blocks, Explanation, Stats, Weights};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Error;
use crate::images::Images;
use crate::indexer::{Indexer, seed};
use crate::integers::Tokens;
use crate::query;
use crate::settings::rank;

#[pymethods]
impl Indexer {
    /// Totals: sizes, and batches, events and reasons since the start.
    ///
    /// Returns:
    ///     Names to numbers; `batches`, `events`, `reasons` and `findings` (how many of
    ///     each kind, see `diagnose`) are dicts in turn.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>, Error> {
        let stats = py.detach(|| self.index.stats())?;
        let refused = Refused {
            undecodable: self.undecodable.load(Ordering::Relaxed) + self.decoders.undecodable(),
            rejected: self.rejected.load(Ordering::Relaxed),
        };
        let dict = totals(py, &stats, refused)?;
        dict.set_item("findings", self.kinds(py, None)?)?;
        Ok(dict)
    }

    /// Why the answer for one rank of a worker is what it is. For people.
    ///
    /// Args:
    ///     tokens: As for `match`.
    ///     worker: The worker's name.
    ///     dp_rank: The rank.
    ///     lora_name, cache_salt, mm: As for `match`.
    ///
    /// Returns:
    ///     The row's fields; `blocks`, the query's whole blocks; `stop`, one
    ///     sentence about what ends the depth; `tiers`, for each block that the
    ///     index knows the names of the tiers on which this worker has it, and
    ///     "shared" where a pool has it; `pools`, the depths of the pools that the
    ///     worker reaches; `groups`, for each of several cache groups, the main one
    ///     first, its number, the blocks that it needs to go on (None = all) and how
    ///     deep it could by itself; `known_worker`, `seq`, `orphans`, `duplicates`;
    ///     `findings`, the kinds of what `diagnose` finds of this rank.
    ///
    /// Examples:
    ///     >>> import kvindex
    ///     >>> index = kvindex.Indexer(block_size=4)
    ///     >>> stored = kvindex.BlockStored([1, 2], range(8))
    ///     >>> report = index.apply([stored], worker="w0")
    ///     >>> index.explain(range(12), worker="w0")["stop"]
    ///     'nobody holds block 2 under this prefix'
    #[pyo3(signature = (
        tokens, /, *, worker, dp_rank=0, lora_name=None, cache_salt=None, mm=None
    ))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        tokens: Tokens,
        worker: &str,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
        mm: Option<Images>,
    ) -> Result<Bound<'py, PyDict>, Error> {
        let images = mm.unwrap_or_default();
        let blocks = Blocks::Tokens {
            tokens: &tokens.0,
            images: &images.0,
            seed: seed(lora_name, cache_salt),
        };
        let why = py.detach(|| query::explain(&self.index, &blocks, worker, dp_rank))?;
        let weights = self.weights.weights();
        let why = explanation(py, worker, dp_rank, &why, &weights)?;
        why.set_item("findings", self.kinds(py, Some((worker, dp_rank)))?)?;
        Ok(why)
    }
}

/// Batches that never reached the index.
#[derive(Clone, Copy)]
struct Refused {
    /// They could not be decoded.
    undecodable: u64,
    /// Strict applying found a fault.
    rejected: u64,
}

/// What `Indexer.stats` returns, but for findings.
fn totals<'py>(py: Python<'py>, stats: &Stats, refused: Refused) -> PyResult<Bound<'py, PyDict>> {
    let [ok, duplicate, gap] = stats.totals.batches;
    let batches = counts(
        py,
        [
            ("ok", ok),
            ("duplicate", duplicate),
            ("gap", gap),
            ("undecodable", refused.undecodable),
            ("rejected", refused.rejected),
        ],
    )?;
    let events = PyDict::new(py);
    let types = ["stored", "removed", "cleared", "unreadable"];
    for (name, [applied, ignored]) in types.into_iter().zip(stats.totals.events) {
        let count = counts(py, [("applied", applied), ("ignored", ignored)])?;
        events.set_item(name, count)?;
    }
    let reasons = Reason::ALL
        .into_iter()
        .map(Reason::name)
        .zip(stats.totals.reasons);
    let dict = counts(
        py,
        [
            ("blocks", stats.blocks),
            ("workers", stats.workers),
            ("pools", stats.pools),
            ("holders", stats.holders),
            ("claims", stats.claims),
            ("orphans", stats.orphans),
            ("predicted", stats.predicted),
            ("runs", stats.runs),
            ("names", stats.names),
            ("bytes", stats.bytes),
            ("reserve", stats.reserve),
        ],
    )?;
    dict.set_item("batches", batches)?;
    dict.set_item("events", events)?;
    dict.set_item("reasons", counts(py, reasons)?)?;
    Ok(dict)
}

/// What `Indexer.explain` returns, but for findings.
fn explanation<'py>(
    py: Python<'py>,
    worker: &str,
    rank: u32,
    why: &Explanation,
    weights: &Weights,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("worker", worker)?;
    dict.set_item("dp_rank", rank)?;
    dict.set_item("known_worker", why.state.is_some())?;
    dict.set_item("blocks", why.blocks)?;
    dict.set_item("depth", why.row.depth())?;
    dict.set_item("score", why.row.score(weights))?;
    for (tier, blocks) in Tier::ALL.into_iter().zip(why.row.tiers()) {
        dict.set_item(tier.name(), blocks)?;
    }
    dict.set_item("shared", why.row.shared())?;
    dict.set_item("predicted", why.row.predicted())?;
    dict.set_item("stop", stop(worker, rank, why))?;
    let tiers: Vec<Vec<&str>> = why.held.iter().map(|held| tiers(*held)).collect();
    dict.set_item("tiers", tiers)?;
    let pools = PyDict::new(py);
    for (pool, depth) in &why.pools {
        pools.set_item(&**pool, depth)?;
    }
    dict.set_item("pools", pools)?;
    let groups = why.groups.iter().map(|group| {
        let dict = PyDict::new(py);
        dict.set_item("group", group.number)?;
        dict.set_item("needs", group.needs)?;
        dict.set_item("depth", group.depth)?;
        Ok(dict)
    });
    dict.set_item("groups", groups.collect::<PyResult<Vec<_>>>()?)?;
    let state = why.state.as_ref();
    dict.set_item("seq", state.and_then(|state| state.seq))?;
    dict.set_item("orphans", state.map_or(0, |state| state.orphans))?;
    dict.set_item("duplicates", state.map_or(0, |state| state.duplicates))?;
    Ok(dict)
}

/// Why the depth is not larger.
fn stop(worker: &str, rank: u32, why: &Explanation) -> String {
    let depth = why.row.depth();
    let held = why.held.get(depth as usize);
    if why.blocks == 0 {
        "the query has no whole block".to_owned()
    } else if u64::from(depth) >= why.blocks {
        "the query ends".to_owned()
    } else if why.state.is_none() {
        format!("worker {worker:?} with dp_rank {rank} is unknown")
    } else if u64::from(depth) >= why.known {
        format!("nobody holds block {depth} under this prefix")
    } else if why.groups.first().is_some_and(|main| main.depth > depth) {
        "no later block is one from which all cache groups of the worker can go on".to_owned()
    } else if let Some(&held) = held.filter(|held| **held != 0) {
        let tiers = tiers(held).join(" and ");
        format!("block {depth} is on {tiers}, but the chunk or larger block around it is not whole")
    } else if why.pools.is_empty() {
        format!("block {depth} is in the index, but this worker holds no copy")
    } else {
        format!(
            "block {depth} is in the index, but neither this worker nor a pool that it reaches \
             holds a copy"
        )
    }
}

fn tiers(held_by: u8) -> Vec<&'static str> {
    let held = |tier: &Tier| held_by >> (*tier as u8) & 1 == 1;
    let own = Tier::ALL.into_iter().filter(held).map(Tier::name);
    let shared = (held_by & Explanation::SHARED != 0).then_some("shared");
    own.chain(shared).collect()
}

fn counts(
    py: Python<'_>,
    counts: impl IntoIterator<Item = (&'static str, u64)>,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, count) in counts {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}

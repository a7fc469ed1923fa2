//! Who holds how much of a query?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvindex::event::Tier;
use kvindex::{Candidate, Found, Names, Row, Weights};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice, PyTuple};

use crate::chance::pick;
use crate::columns::column;
use crate::integers::type_name;
use crate::row::Match;

/// The answer to a query: one row a holder, or one a candidate in their order.
///
/// Has a length, indexes, slices and iterates as a sequence of `Match`. The
/// columns are for vectorised scoring: memoryviews that `numpy.asarray` takes as
/// they are, built anew at each access. Immutable, compares by value, safe to
/// share between threads, and never changed by later events.
///
/// Examples:
///     >>> import kvindex
///     >>> index = kvindex.Indexer(block_size=4)
///     >>> stored = kvindex.BlockStored([1, 2], range(8))
///     >>> report = index.apply([stored], worker="w0")
///     >>> found = index.match(range(12))
///     >>> found
///     Matches(1 row, best=Match(worker='w0', dp_rank=0, depth=2, score=2.0,
///     device=2, host=0, disk=0, external=0, shared=0, predicted=0))
///     >>> found[0].worker, list(found.depths), found.workers
///     ('w0', [2], ('w0',))
#[pyclass(frozen, sequence, module = "kvindex")]
pub(crate) struct Matches {
    rows: Vec<Row>,
    who: Who,
    weights: Weights,
    /// Each pool, and how many leading blocks it holds.
    pools: Vec<(Arc<str>, u32)>,
}

/// Where the workers' names and ranks are.
struct Who {
    /// At each row's holder.
    names: Arc<Names>,
    /// Of candidates, in the order of the rows.
    candidates: Option<Arc<[Candidate]>>,
}

#[pymethods]
impl Matches {
    fn __len__(&self) -> usize {
        self.rows.len()
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = index.py();
        if let Ok(slice) = index.cast::<PySlice>() {
            return Ok(Bound::new(py, self.slice(slice)?)?.into_any());
        }
        let position = self.position(index)?;
        Ok(Bound::new(py, self.row(position))?.into_any())
    }

    fn __iter__(slf: &Bound<'_, Self>) -> Rows {
        Rows {
            matches: slf.clone().unbind(),
            next: AtomicUsize::new(0),
        }
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.rows.len() == other.rows.len()
            && self.pools == other.pools
            && (0..self.rows.len()).all(|position| self.row(position) == other.row(position))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let rows = match self.rows.len() {
            1 => "1 row".to_owned(),
            rows => format!("{rows} rows"),
        };
        let Some(&best) = self.leaders().first() else {
            return Ok(format!("Matches({rows})"));
        };
        let best = self.row(best).__repr__(py)?;
        Ok(format!("Matches({rows}, best={best})"))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Pickled<'py>)> {
        let numbers = (0..self.rows.len())
            .flat_map(|position| self.numbers(position))
            .flat_map(u32::to_le_bytes);
        let numbers = PyBytes::new(py, &numbers.collect::<Vec<u8>>());
        let make = py.import("kvindex._core")?.getattr("_matches")?;
        let pools = self.pools.iter();
        let pools = pools.map(|(pool, depth)| (pool.to_string(), *depth));
        let arguments = (self.workers(py)?, numbers, self.weights, pools.collect());
        Ok((make, arguments))
    }

    /// The workers' names, in the order of the rows.
    #[getter]
    fn workers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(
            py,
            (0..self.rows.len()).map(|position| self.worker(position)),
        )
    }

    /// The workers' data-parallel ranks: a memoryview of format "I".
    #[getter]
    fn dp_ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ranks = (0..self.rows.len()).map(|position| self.rank(position));
        column(py, "I", ranks.map(u32::to_ne_bytes))
    }

    /// How many leading blocks are held on any tier, or in pools: a memoryview of
    /// format "I".
    #[getter]
    fn depths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, Row::depth)
    }

    /// Each tier's blocks times its weight: a memoryview of format "d".
    #[getter]
    fn scores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let scores = self.rows.iter().map(|row| row.score(&self.weights));
        column(py, "d", scores.map(f64::to_ne_bytes))
    }

    /// Blocks nearest on the device: a memoryview of format "I".
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, |row| row.tiers()[0])
    }

    /// Blocks nearest in the host's memory: a memoryview of format "I".
    #[getter]
    fn host<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, |row| row.tiers()[1])
    }

    /// Blocks nearest on disk: a memoryview of format "I".
    #[getter]
    fn disk<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, |row| row.tiers()[2])
    }

    /// Blocks nearest behind the network: a memoryview of format "I".
    #[getter]
    fn external<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, |row| row.tiers()[3])
    }

    /// Blocks that only pools hold: a memoryview of format "I".
    #[getter]
    fn shared<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, Row::shared)
    }

    /// How many of each holder's leading blocks are only predicted.
    #[getter]
    fn predicted<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, Row::predicted)
    }

    /// How many leading blocks each pool holds itself, by its name.
    ///
    /// Every pool of the index is there, whichever workers reach it. Empty for an
    /// answer with `cascade=True`, which looks at no pools.
    #[getter]
    fn pools<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (pool, depth) in &self.pools {
            dict.set_item(&**pool, depth)?;
        }
        Ok(dict)
    }

    /// The row with the highest score, of those the deepest, of those any.
    ///
    /// Args:
    ///     seed: Makes the choice among equals reproducible, 0 to 2^64-1; without
    ///         it each call draws anew.
    ///
    /// Returns:
    ///     The row; None where there is none. With `workers=` there is a row a
    ///     candidate, so the best one may have depth 0.
    #[pyo3(signature = (seed=None))]
    fn best(&self, seed: Option<u64>) -> Option<Match> {
        let leaders = self.leaders();
        (!leaders.is_empty()).then(|| self.row(leaders[pick(leaders.len(), seed)]))
    }

    /// All columns as lists, by the field names of `Match`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let all = || self.rows.iter();
        let workers: Vec<&str> = (0..self.rows.len()).map(|at| self.worker(at)).collect();
        dict.set_item("worker", workers)?;
        let ranks: Vec<u32> = (0..self.rows.len()).map(|at| self.rank(at)).collect();
        dict.set_item("dp_rank", ranks)?;
        dict.set_item("depth", all().map(Row::depth).collect::<Vec<_>>())?;
        let scores: Vec<f64> = all().map(|row| row.score(&self.weights)).collect();
        dict.set_item("score", scores)?;
        for tier in Tier::ALL {
            let blocks: Vec<u32> = all().map(|row| row.tiers()[tier as usize]).collect();
            dict.set_item(tier.name(), blocks)?;
        }
        dict.set_item("shared", all().map(Row::shared).collect::<Vec<_>>())?;
        dict.set_item("predicted", all().map(Row::predicted).collect::<Vec<_>>())?;
        Ok(dict)
    }
}

impl Matches {
    /// What was found, with the candidates that were asked about.
    pub(crate) fn new(
        found: Found<'_>,
        candidates: Option<Arc<[Candidate]>>,
        weights: Weights,
    ) -> Self {
        Self {
            rows: found.rows.to_vec(),
            who: Who {
                names: Arc::clone(found.names),
                candidates,
            },
            weights,
            pools: if found.names.has_pools() {
                pools(&found)
            } else {
                Vec::new()
            },
        }
    }

    fn candidate(&self, position: usize) -> Option<&Candidate> {
        let candidates = self.who.candidates.as_ref()?;
        Some(&candidates[position])
    }

    fn holder(&self, position: usize) -> Option<(&str, u32)> {
        let (worker, rank) = self.who.names.get(self.rows[position].holder)?;
        Some((worker, rank))
    }

    fn worker(&self, position: usize) -> &str {
        match self.candidate(position) {
            Some(candidate) => &candidate.worker,
            None => self.holder(position).map_or("", |(worker, _)| worker),
        }
    }

    /// A row's rank: the one that was asked for, else its holder's.
    fn rank(&self, position: usize) -> u32 {
        let asked = self.candidate(position).and_then(|asked| asked.rank);
        asked.unwrap_or_else(|| self.holder(position).map_or(0, |(_, rank)| rank))
    }

    fn row(&self, position: usize) -> Match {
        let (worker, rank) = (self.worker(position), self.rank(position));
        Match::new_row(worker, rank, &self.rows[position], &self.weights)
    }

    fn numbers(&self, position: usize) -> [u32; 8] {
        let row = &self.rows[position];
        let [device, host, disk, external] = row.tiers();
        let rank = self.rank(position);
        [
            rank,
            row.depth(),
            device,
            host,
            disk,
            external,
            row.shared(),
            row.predicted(),
        ]
    }

    fn column<'py>(
        &self,
        py: Python<'py>,
        field: impl Fn(&Row) -> u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        column(
            py,
            "I",
            self.rows.iter().map(|row| field(row).to_ne_bytes()),
        )
    }

    /// Where the rows are that none surpasses.
    fn leaders(&self) -> Vec<usize> {
        let mut leaders = Vec::new();
        let mut best = (f64::NEG_INFINITY, 0);
        for (position, row) in self.rows.iter().enumerate() {
            let rank = (row.score(&self.weights), row.depth());
            if rank > best {
                best = rank;
                leaders.clear();
            }
            if rank == best {
                leaders.push(position);
            }
        }
        leaders
    }

    fn position(&self, index: &Bound<'_, PyAny>) -> PyResult<usize> {
        let out_of_range = || PyIndexError::new_err("row index out of range");
        let index: isize = index.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(index.py()) {
                return out_of_range();
            }
            let found = type_name(index);
            PyTypeError::new_err(format!("rows are indexed by int or slice, not {found}"))
        })?;
        let length = self.rows.len();
        let position = if index < 0 {
            length.checked_add_signed(index)
        } else {
            usize::try_from(index).ok()
        };
        position.filter(|at| *at < length).ok_or_else(out_of_range)
    }

    fn slice(&self, slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let range = slice.indices(self.rows.len().cast_signed())?;
        let positions: Vec<usize> = (0..range.slicelength.cast_signed())
            .map(|nth| (range.start + nth * range.step).cast_unsigned())
            .collect();
        Ok(Self {
            rows: positions.iter().map(|&at| self.rows[at]).collect(),
            who: Who {
                names: Arc::clone(&self.who.names),
                candidates: self.who.candidates.as_ref().map(|all| {
                    let sliced = positions.iter().map(|&at| all[at].clone());
                    sliced.collect()
                }),
            },
            weights: self.weights,
            pools: self.pools.clone(),
        })
    }
}

#[cold]
fn pools(found: &Found<'_>) -> Vec<(Arc<str>, u32)> {
    let pools = found.pools();
    pools.map(|(pool, depth)| (pool.clone(), depth)).collect()
}

/// Iterates over the rows of one answer.
#[pyclass(frozen, module = "kvindex")]
struct Rows {
    matches: Py<Matches>,
    next: AtomicUsize,
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self) -> Option<Match> {
        let matches = self.matches.get();
        let position = self.next.fetch_add(1, Ordering::Relaxed);
        (position < matches.rows.len()).then(|| matches.row(position))
    }

    fn __length_hint__(&self) -> usize {
        let rows = self.matches.get().rows.len();
        rows.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

/// Workers, seven numbers a row as little-endian u32, weights, depths of pools.
type Pickled<'py> = (
    Bound<'py, PyTuple>,
    Bound<'py, PyBytes>,
    Weights,
    Vec<(String, u32)>,
);

/// Makes an answer anew from its pickle.
#[pyfunction]
#[pyo3(signature = (workers, numbers, weights, pools, /))]
pub(crate) fn _matches(
    workers: Vec<String>,
    numbers: &[u8],
    weights: Weights,
    pools: Vec<(String, u32)>,
) -> PyResult<Matches> {
    let (numbers, rest) = numbers.as_chunks::<4>();
    let (rows, more) = numbers.as_chunks::<8>();
    if rows.len() != workers.len() || !rest.is_empty() || !more.is_empty() {
        return Err(PyValueError::new_err("not the pickle of an answer"));
    }
    let mut candidates = Vec::with_capacity(rows.len());
    let mut made = Vec::with_capacity(rows.len());
    for (worker, numbers) in workers.into_iter().zip(rows) {
        let [rank, _, tiers @ .., shared, predicted] = numbers.map(u32::from_le_bytes);
        let row = Row::new(u32::MAX, tiers).sharing(shared);
        made.push(row.expecting(predicted));
        candidates.push(Candidate {
            worker: worker.into(),
            rank: Some(rank),
        });
    }
    Ok(Matches {
        rows: made,
        who: Who {
            names: Arc::default(),
            candidates: Some(candidates.into()),
        },
        weights,
        pools: pools
            .into_iter()
            .map(|(pool, depth)| (pool.into(), depth))
            .collect(),
    })
}

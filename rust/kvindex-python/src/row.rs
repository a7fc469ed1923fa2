//! What does one holder hold of a query?

use kvindex::{Row, Weights};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::settings::rank;
use crate::value::{self, Reduced};

/// One holder's answer to a query. Immutable; compares by value.
///
/// All numbers but `score` are blocks. `device`, `host`, `disk`, `external`, `shared`
/// and `predicted` add up to `depth`: each leading block counts on the nearest tier
/// of the worker that has it, else as shared where a pool has it that the worker
/// reaches, else as predicted.
///
/// Examples:
///     >>> import kvindex
///     >>> kvindex.Match("w0", depth=3, score=2.75, device=2, host=1)
///     Match(worker='w0', dp_rank=0, depth=3, score=2.75, device=2, host=1,
///     disk=0, external=0, shared=0, predicted=0)
#[pyclass(frozen, module = "kvindex", eq)]
#[derive(PartialEq)]
pub(crate) struct Match {
    worker: Box<str>,
    /// The worker's data-parallel rank.
    #[pyo3(get)]
    dp_rank: u32,
    /// How many leading blocks of the query are held on any tier, or in pools.
    #[pyo3(get)]
    depth: u32,
    /// The blocks of each tier times its weight.
    #[pyo3(get)]
    score: f64,
    /// How many of the leading blocks lie nearest on the device.
    #[pyo3(get)]
    device: u32,
    /// How many of the leading blocks lie nearest in the host's memory.
    #[pyo3(get)]
    host: u32,
    /// How many of the leading blocks lie nearest on disk.
    #[pyo3(get)]
    disk: u32,
    /// How many of the leading blocks lie nearest behind the network.
    #[pyo3(get)]
    external: u32,
    /// How many of the leading blocks only pools hold.
    #[pyo3(get)]
    shared: u32,
    /// How many of the leading blocks are only predicted.
    #[pyo3(get)]
    predicted: u32,
}

const FIELDS: [&str; 10] = [
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
];

#[pymethods]
impl Match {
    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, FIELDS)
    }

    #[new]
    #[pyo3(signature = (
        worker, dp_rank=0, depth=0, score=0.0, device=0, host=0, disk=0, external=0, shared=0,
        predicted=0
    ))]
    fn new(
        worker: &str,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
        depth: u32,
        score: f64,
        device: u32,
        host: u32,
        disk: u32,
        external: u32,
        shared: u32,
        predicted: u32,
    ) -> Self {
        Self {
            worker: worker.into(),
            dp_rank,
            depth,
            score,
            device,
            host,
            disk,
            external,
            shared,
            predicted,
        }
    }

    /// The worker's name.
    #[getter]
    fn worker(&self) -> &str {
        &self.worker
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.fields(py)?.hash()
    }

    pub(crate) fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        value::repr("Match", &FIELDS, &self.fields(py)?)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        Ok((slf.get_type(), slf.get().fields(slf.py())?))
    }
}

impl Match {
    /// The answer of `worker` in `row`.
    pub(crate) fn new_row(worker: &str, dp_rank: u32, row: &Row, weights: &Weights) -> Self {
        let [device, host, disk, external] = row.tiers();
        Self {
            worker: worker.into(),
            dp_rank,
            depth: row.depth(),
            score: row.score(weights),
            device,
            host,
            disk,
            external,
            shared: row.shared(),
            predicted: row.predicted(),
        }
    }

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Self {
            worker,
            dp_rank,
            depth,
            score,
            device,
            host,
            disk,
            external,
            shared,
            predicted,
        } = self;
        (
            &**worker, dp_rank, depth, score, device, host, disk, external, shared, predicted,
        )
            .into_pyobject(py)
    }
}

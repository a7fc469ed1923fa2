//! What is the state of one holder?

use std::sync::Arc;

use kvindex::HolderState;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::settings::rank;
use crate::value::{self, Reduced};

/// The state of one worker's rank. Immutable; compares by value.
///
/// Examples:
///     >>> import kvindex
///     >>> kvindex.WorkerState("w0", device=2, seq=41)
///     WorkerState(worker='w0', dp_rank=0, device=2, host=0, disk=0,
///     external=0, seq=41, orphans=0, duplicates=0, predicted=0)
#[pyclass(frozen, module = "kvindex", eq)]
#[derive(PartialEq)]
pub(crate) struct WorkerState {
    worker: Arc<str>,
    /// The worker's data-parallel rank.
    #[pyo3(get)]
    dp_rank: u32,
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
    ///
    /// Without a feed a growing number is how a restarted engine looks.
    #[pyo3(get)]
    duplicates: u64,
    /// How many blocks are predicted, held or not.
    #[pyo3(get)]
    predicted: u64,
}

const FIELDS: [&str; 10] = [
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
];

#[pymethods]
impl WorkerState {
    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, FIELDS)
    }

    #[new]
    #[pyo3(signature = (
        worker, dp_rank=0, device=0, host=0, disk=0, external=0, seq=None, orphans=0, duplicates=0,
        predicted=0
    ))]
    fn new(
        worker: &str,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
        device: u64,
        host: u64,
        disk: u64,
        external: u64,
        seq: Option<u64>,
        orphans: u64,
        duplicates: u64,
        predicted: u64,
    ) -> Self {
        Self {
            worker: worker.into(),
            dp_rank,
            device,
            host,
            disk,
            external,
            seq,
            orphans,
            duplicates,
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        value::repr("WorkerState", &FIELDS, &self.fields(py)?)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        Ok((slf.get_type(), slf.get().fields(slf.py())?))
    }
}

impl WorkerState {
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Self {
            worker,
            dp_rank,
            device,
            host,
            disk,
            external,
            seq,
            orphans,
            duplicates,
            predicted,
        } = self;
        (
            &**worker, dp_rank, device, host, disk, external, seq, orphans, duplicates, predicted,
        )
            .into_pyobject(py)
    }
}

impl From<HolderState> for WorkerState {
    fn from(state: HolderState) -> Self {
        let [device, host, disk, external] = state.tiers;
        Self {
            worker: state.worker,
            dp_rank: state.rank,
            device,
            host,
            disk,
            external,
            seq: state.seq,
            orphans: state.orphans,
            duplicates: state.duplicates,
            predicted: state.predicted,
        }
    }
}

//! What became of one batch?

use kvindex::event::Reason;
use kvindex::{Report, Status};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::settings::rank;
use crate::value::{self, Reduced};

/// What became of one batch. Immutable; compares by value.
///
/// `stored`, `removed`, `ignored` and `attached` count the batch's hashes, an
/// engine's larger block as one.
///
/// Examples:
///     >>> import kvindex
///     >>> kvindex.ApplyReport(stored=2, ignored=1, reasons={"medium": 1})
///     ApplyReport(stored=2, removed=0, cleared=0, ignored=1, attached=0,
///     reasons={'medium': 1}, status='ok', gap=None, dp_rank=0)
#[pyclass(frozen, module = "kvindex", eq)]
#[derive(PartialEq)]
pub(crate) struct ApplyReport {
    /// How many hashes were stored, again or for the first time.
    #[pyo3(get)]
    stored: u64,
    /// How many hashes lost a copy.
    #[pyo3(get)]
    removed: u64,
    /// How many clears were applied.
    #[pyo3(get)]
    cleared: u64,
    /// How many hashes changed nothing; those that wait are not among them.
    #[pyo3(get)]
    ignored: u64,
    /// How many hashes that had waited for their parent were stored now.
    #[pyo3(get)]
    attached: u64,
    reasons: [u64; Reason::ALL.len()],
    status: Status,
    /// The rank that the batch was applied to.
    #[pyo3(get)]
    dp_rank: u32,
}

const FIELDS: [&str; 9] = [
    "stored", "removed", "cleared", "ignored", "attached", "reasons", "status", "gap", "dp_rank",
];

#[pymethods]
impl ApplyReport {
    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, FIELDS)
    }

    #[new]
    #[pyo3(signature = (
        stored=0, removed=0, cleared=0, ignored=0, attached=0, reasons=None, status="ok", gap=None,
        dp_rank=0
    ))]
    fn new(
        stored: u64,
        removed: u64,
        cleared: u64,
        ignored: u64,
        attached: u64,
        reasons: Option<&Bound<'_, PyDict>>,
        status: &str,
        gap: Option<(u64, u64)>,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
    ) -> PyResult<Self> {
        Ok(Self {
            stored,
            removed,
            cleared,
            ignored,
            attached,
            reasons: counts(reasons)?,
            status: read_status(status, gap)?,
            dp_rank,
        })
    }

    /// How many hashes were not applied as they stood, by reason.
    #[getter]
    fn reasons<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (reason, &count) in Reason::ALL.into_iter().zip(&self.reasons) {
            if count > 0 {
                dict.set_item(reason.name(), count)?;
            }
        }
        Ok(dict)
    }

    /// How the batch's number compared: "ok", "duplicate" or "gap".
    #[getter]
    fn status(&self) -> &'static str {
        match self.status {
            Status::Ok => "ok",
            Status::Duplicate => "duplicate",
            Status::Gap(..) => "gap",
        }
    }

    /// The first and the last number that never came; None without a gap.
    #[getter]
    fn gap(&self) -> Option<(u64, u64)> {
        match self.status {
            Status::Gap(first, last) => Some((first, last)),
            Status::Ok | Status::Duplicate => None,
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        value::repr("ApplyReport", &FIELDS, &self.fields(py)?)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        Ok((slf.get_type(), slf.get().fields(slf.py())?))
    }
}

impl ApplyReport {
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let fields = (
            self.stored,
            self.removed,
            self.cleared,
            self.ignored,
            self.attached,
            self.reasons(py)?,
            self.status(),
            self.gap(),
            self.dp_rank,
        );
        fields.into_pyobject(py)
    }
}

impl From<Report> for ApplyReport {
    fn from(report: Report) -> Self {
        Self {
            stored: report.stored,
            removed: report.removed,
            cleared: report.cleared,
            ignored: report.ignored,
            attached: report.attached,
            reasons: report.reasons,
            status: report.status,
            dp_rank: report.rank,
        }
    }
}

fn counts(reasons: Option<&Bound<'_, PyDict>>) -> PyResult<[u64; Reason::ALL.len()]> {
    let mut counts = [0; Reason::ALL.len()];
    for (name, count) in reasons.into_iter().flatten() {
        let known = |reason: &Reason| name.eq(reason.name()).unwrap_or(false);
        let Some(place) = Reason::ALL.iter().position(known) else {
            let name = name.repr()?;
            return Err(PyValueError::new_err(format!("{name} is no reason")));
        };
        counts[place] = count.extract()?;
    }
    Ok(counts)
}

fn read_status(status: &str, gap: Option<(u64, u64)>) -> PyResult<Status> {
    match (status, gap) {
        ("ok", None) => Ok(Status::Ok),
        ("duplicate", None) => Ok(Status::Duplicate),
        ("gap", Some((first, last))) => Ok(Status::Gap(first, last)),
        _ => Err(PyValueError::new_err(format!(
            "status is ok, duplicate, or gap with its range, not {status:?} with gap={gap:?}"
        ))),
    }
}

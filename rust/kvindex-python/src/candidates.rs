//! Whom does a query ask about?

use std::sync::Arc;

use kvindex::Candidate;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySequence, PyString, PyTuple};

use crate::integers::type_name;
use crate::settings::rank;
use crate::value::Reduced;

/// How many of the workers a repr shows.
const SHOWN: usize = 8;

/// The workers that a query asks about, resolved once for many queries.
///
/// Made by `Indexer.candidates`, passed as `workers=`. Immutable, and of use
/// with every index: names mean whoever holds them at the time of the query.
#[pyclass(frozen, module = "kvindex", eq)]
#[derive(PartialEq)]
pub(crate) struct Candidates {
    list: Arc<[Candidate]>,
}

#[pymethods]
impl Candidates {
    #[new]
    #[pyo3(signature = (names, /))]
    fn new(names: Wanted) -> Self {
        names.into()
    }

    fn __len__(&self) -> usize {
        self.list.len()
    }

    /// Iterates over names, and (name, rank) where one rank is asked for.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(Self::names(&self.list, py)?.try_iter()?.into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = Self::names(&self.list[..self.list.len().min(SHOWN)], py)?;
        let shown = shown.repr()?;
        Ok(match self.list.len() {
            0..=SHOWN => format!("Candidates({shown})"),
            all => format!("Candidates({all} workers, first {shown})"),
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let names = Self::names(&slf.get().list, slf.py())?;
        Ok((slf.get_type(), PyTuple::new(slf.py(), [names])?))
    }
}

impl Candidates {
    fn names<'py>(list: &[Candidate], py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let names = PyList::empty(py);
        for candidate in list {
            match candidate.rank {
                None => names.append(&*candidate.worker)?,
                Some(rank) => names.append((&*candidate.worker, rank))?,
            }
        }
        Ok(names)
    }
}

impl From<Wanted> for Candidates {
    fn from(names: Wanted) -> Self {
        Self { list: names.0 }
    }
}

/// The value of `workers=`: candidates, or a sequence to make them from.
pub(crate) struct Wanted(pub(crate) Arc<[Candidate]>);

impl FromPyObject<'_, '_> for Wanted {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(candidates) = object.cast::<Candidates>() {
            return Ok(Self(Arc::clone(&candidates.get().list)));
        }
        let names = object.cast::<PySequence>();
        let names = names.ok().filter(|_| !object.is_instance_of::<PyString>());
        let Some(names) = names else {
            return Err(PyTypeError::new_err(format!(
                "workers must be Candidates or a sequence of str and (str, int), not {}",
                type_name(&object)
            )));
        };
        let candidates = names.try_iter()?.map(|name| candidate(&name?));
        candidates.collect::<PyResult<_>>().map(Self)
    }
}

fn candidate(object: &Bound<'_, PyAny>) -> PyResult<Candidate> {
    if let Ok(worker) = object.cast::<PyString>() {
        return Ok(Candidate {
            worker: worker.to_str()?.into(),
            rank: None,
        });
    }
    let pair = object.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(pair) = pair else {
        return Err(PyTypeError::new_err(format!(
            "a worker must be str or (str, int), not {}",
            object.repr()?
        )));
    };
    let worker = pair.get_item(0)?;
    Ok(Candidate {
        worker: worker.cast::<PyString>()?.to_str()?.into(),
        rank: Some(rank(&pair.get_item(1)?)?),
    })
}

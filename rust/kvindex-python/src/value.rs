//! What all small result classes share.

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

/// `Name(field=value, ...)`, each value as Python shows it.
pub(crate) fn repr(name: &str, fields: &[&str], values: &Bound<'_, PyTuple>) -> PyResult<String> {
    let shown: PyResult<Vec<String>> = fields
        .iter()
        .zip(values)
        .map(|(field, value)| Ok(format!("{field}={}", value.repr()?.to_str()?)))
        .collect();
    Ok(format!("{name}({})", shown?.join(", ")))
}

/// What `pickle` needs: the class and the arguments that make an equal object.
pub(crate) type Reduced<'py> = (Bound<'py, PyType>, Bound<'py, PyTuple>);

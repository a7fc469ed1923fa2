//! Which images does a prompt show, and where?

use kvindex::key::{Span, hash_bytes, image_hash};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence, PyString};

use crate::integers::type_name;

/// The images of a prompt, from `[(identifier, first token, length), ...]`.
#[derive(Default)]
pub(crate) struct Images(pub(crate) Vec<Span>);

impl FromPyObject<'_, '_> for Images {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let expected = "mm must be a sequence of (identifier, first token, length)";
        let Ok(items) = object.cast::<PySequence>() else {
            let found = type_name(&object);
            return Err(PyTypeError::new_err(format!("{expected}, not {found}")));
        };
        let mut images = Vec::with_capacity(items.len()?);
        for (position, item) in items.try_iter()?.enumerate() {
            let item = item?;
            let (identifier, first, length): (Bound<'_, PyAny>, _, _) =
                item.extract().map_err(|error: PyErr| {
                    let message = format!("{expected}, but item {position} is {item}");
                    if error.is_instance_of::<PyOverflowError>(item.py()) {
                        return PyOverflowError::new_err(message);
                    }
                    PyTypeError::new_err(message)
                })?;
            let image = Span {
                hash: hash(&identifier)?,
                first,
                length,
            };
            if image.length > 0 {
                images.push(image);
            }
        }
        Ok(Self(images))
    }
}

fn hash(identifier: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(bytes) = identifier.cast::<PyBytes>() {
        return Ok(hash_bytes(bytes.as_bytes()));
    }
    if let Ok(text) = identifier.cast::<PyString>() {
        return Ok(image_hash(text.to_str()?));
    }
    let found = type_name(identifier);
    Err(PyTypeError::new_err(format!(
        "an identifier in mm must be str or bytes, not {found}"
    )))
}

//! Which Python value do these bytes stand for? Msgpack, for sources that the
//! core does not decode.

use kvindex::decode::{Value, values};
use kvindex::error::DecodeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::error::Error;

/// Events of any source are far flatter.
const MAX_DEPTH: usize = 32;

/// Reads one msgpack value.
///
/// Strict and bounded: it never recurses, allocates no more than what the bytes
/// hold, and refuses what has no plain Python counterpart.
///
/// Args:
///     payload: One value and nothing more, at most 32 containers deep.
///
/// Returns:
///     None, bool, int, float, str, bytes, or lists and dicts of them; the keys
///     of dicts are str or int.
///
/// Raises:
///     DecodeError: The bytes are no such value; `offset` says where.
///
/// Examples:
///     >>> from kvindex.engines import unpack
///     >>> unpack(bytes.fromhex("82a161cd0100a16292c3c0"))
///     {'a': 256, 'b': [True, None]}
#[pyfunction]
#[pyo3(signature = (payload, /))]
pub(crate) fn unpack<'py>(py: Python<'py>, payload: &[u8]) -> Result<Bound<'py, PyAny>, Error> {
    let mut building = Building {
        py,
        open: Vec::new(),
        done: None,
        failure: None,
    };
    let result = values(payload, |offset, value| building.add(offset, value));
    if let Some(failure) = building.failure {
        return Err(failure.into());
    }
    result?;
    Ok(building.done.expect("a payload is one value"))
}

/// A container whose items are still to come.
enum Open<'py> {
    Array(Bound<'py, PyList>, u32),
    Map(Bound<'py, PyDict>, u32, Option<Bound<'py, PyAny>>),
}

struct Building<'py> {
    py: Python<'py>,
    /// The containers around the next value, the innermost last.
    open: Vec<Open<'py>>,
    done: Option<Bound<'py, PyAny>>,
    /// What Python itself raised.
    failure: Option<PyErr>,
}

impl<'py> Building<'py> {
    fn add(&mut self, offset: usize, value: Value<'_>) -> Result<(), DecodeError> {
        let is_key = matches!(self.open.last(), Some(Open::Map(_, _, None)));
        let is_plain = matches!(
            value,
            Value::Text(_) | Value::Unsigned(_) | Value::Negative(_)
        );
        if is_key && !is_plain {
            return Err(DecodeError::at(
                offset,
                "expected a string or an integer as key",
            ));
        }
        match value {
            Value::Array(items) => {
                let list = PyList::empty(self.py);
                self.open(offset, Open::Array(list, items), items)
            }
            Value::Map(items) => {
                let dict = PyDict::new(self.py);
                self.open(offset, Open::Map(dict, items, None), items)
            }
            scalar => {
                let scalar = self.scalar(offset, scalar)?;
                self.close(scalar)
            }
        }
    }

    fn scalar(
        &mut self,
        offset: usize,
        value: Value<'_>,
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        let py = self.py;
        let made = match value {
            Value::Nil => Ok(py.None().into_bound(py)),
            Value::Bool(value) => value
                .into_pyobject(py)
                .map(|object| object.to_owned().into_any()),
            Value::Unsigned(value) => value.into_pyobject(py).map(Bound::into_any),
            Value::Negative(value) => value.into_pyobject(py).map(Bound::into_any),
            Value::Float(value) => value.into_pyobject(py).map(Bound::into_any),
            Value::Text(bytes) => match str::from_utf8(bytes) {
                Ok(text) => Ok(PyString::new(py, text).into_any()),
                Err(_) => return Err(DecodeError::at(offset, "expected UTF-8 in a string")),
            },
            Value::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
            Value::Extension => return Err(DecodeError::at(offset, "found an extension")),
            Value::Array(_) | Value::Map(_) => unreachable!("containers are opened"),
        };
        let Ok(made) = made;
        Ok(made)
    }

    fn open(&mut self, offset: usize, container: Open<'py>, items: u32) -> Result<(), DecodeError> {
        if self.open.len() == MAX_DEPTH {
            let message = format!("found more than {MAX_DEPTH} containers in each other");
            return Err(DecodeError::at(offset, message));
        }
        if items > 0 {
            self.open.push(container);
            return Ok(());
        }
        self.close(container.into_any())
    }

    /// Puts a whole value into the container around it, which may be whole then.
    fn close(&mut self, mut value: Bound<'py, PyAny>) -> Result<(), DecodeError> {
        loop {
            let Some(open) = self.open.last_mut() else {
                self.done = Some(value);
                return Ok(());
            };
            let left = match open.put(value) {
                Ok(left) => left,
                Err(error) => {
                    let message = error.to_string();
                    self.failure = Some(error);
                    return Err(DecodeError::at(0, message));
                }
            };
            if left > 0 {
                return Ok(());
            }
            let container = self.open.pop().expect("it was just there");
            value = container.into_any();
        }
    }
}

impl<'py> Open<'py> {
    /// Takes one value; how many keys, values and items are still to come.
    fn put(&mut self, value: Bound<'py, PyAny>) -> PyResult<u32> {
        match self {
            Self::Array(list, left) => {
                list.append(value)?;
                *left -= 1;
                Ok(*left)
            }
            Self::Map(dict, left, key) => {
                let Some(key) = key.take() else {
                    *key = Some(value);
                    return Ok(*left);
                };
                dict.set_item(key, value)?;
                *left -= 1;
                Ok(*left)
            }
        }
    }

    fn into_any(self) -> Bound<'py, PyAny> {
        match self {
            Self::Array(list, _) => list.into_any(),
            Self::Map(dict, ..) => dict.into_any(),
        }
    }
}

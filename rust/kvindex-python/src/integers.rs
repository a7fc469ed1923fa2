//! Which numbers did the caller hand over? Tokens, keys and engine hashes from
//! buffers or sequences.

use kvindex::event::Name;
use pyo3::buffer::{Element, ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PySequence, PyString, PyTuple};

/// Token ids, 0 to 2^32-1, from 32- or 64-bit integers.
pub(crate) struct Tokens(pub(crate) Vec<u32>);

/// Local or chain keys, from 64-bit integers.
pub(crate) struct Keys(pub(crate) Vec<u64>);

/// Engine hashes, from 64-bit integers or byte strings.
pub(crate) struct EngineHashes(pub(crate) Vec<Name>);

impl FromPyObject<'_, '_> for Tokens {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let kind = Kind {
            one: "token",
            buffer: "32- or 64-bit integers",
            sequence: "a sequence of int",
            range: "0 to 4294967295",
        };
        let tokens = match buffer(&object, &kind)? {
            None => sequence(&object, &kind, |item| item.extract())?,
            Some(Integers::U32(tokens)) => tokens,
            // One check of all bits together: a check of each token is slower.
            Some(Integers::I32(tokens)) => {
                if tokens.iter().fold(0, |all, token| all | token) < 0 {
                    return Err(kind.first_outside(&tokens, |token| token >= 0));
                }
                tokens.into_iter().map(i32::cast_unsigned).collect()
            }
            Some(Integers::I64(tokens)) => {
                if tokens.iter().fold(0, |all, token| all | token) >> 32 != 0 {
                    let inside = |token| u32::try_from(token).is_ok();
                    return Err(kind.first_outside(&tokens, inside));
                }
                tokens
                    .into_iter()
                    .map(|token| token.cast_unsigned() as u32)
                    .collect()
            }
            Some(Integers::U64(tokens)) => {
                if tokens.iter().fold(0, |all, token| all | token) >> 32 != 0 {
                    let inside = |token| u32::try_from(token).is_ok();
                    return Err(kind.first_outside(&tokens, inside));
                }
                tokens.into_iter().map(|token| token as u32).collect()
            }
        };
        Ok(Self(tokens))
    }
}

/// The tokens of prompt number `position` of several.
pub(crate) fn prompt(position: usize, tokens: &Bound<'_, PyAny>) -> PyResult<Tokens> {
    tokens.extract().map_err(|error: PyErr| {
        let py = tokens.py();
        if !error.is_instance_of::<PyTypeError>(py)
            && !error.is_instance_of::<PyOverflowError>(py)
            && !error.is_instance_of::<PyBufferError>(py)
        {
            return error;
        }
        let message = format!("prompt {position}: {}", error.value(py));
        PyErr::from_type(error.get_type(py), message)
    })
}

impl FromPyObject<'_, '_> for Keys {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let kind = Kind {
            one: "key",
            buffer: "64-bit integers",
            sequence: "a sequence of int",
            range: "0 to 18446744073709551615",
        };
        let keys = match buffer(&object, &kind)? {
            None => sequence(&object, &kind, |item| item.extract())?,
            Some(Integers::I64(keys)) => {
                if keys.iter().fold(0, |all, key| all | key) < 0 {
                    return Err(kind.first_outside(&keys, |key| key >= 0));
                }
                keys.into_iter().map(i64::cast_unsigned).collect()
            }
            Some(integers) => integers.wide(&object, &kind)?,
        };
        Ok(Self(keys))
    }
}

impl FromPyObject<'_, '_> for EngineHashes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let kind = Kind {
            one: "engine hash",
            buffer: "64-bit integers",
            sequence: "a sequence of int or bytes",
            range: "any",
        };
        let hashes = match buffer(&object, &kind)? {
            None => sequence(&object, &kind, engine_hash)?,
            Some(integers) => {
                let values = integers.wide(&object, &kind)?;
                values.into_iter().map(Name::from_integer).collect()
            }
        };
        Ok(Self(hashes))
    }
}

/// One engine hash. The error names no position.
pub(crate) fn engine_hash(object: &Bound<'_, PyAny>) -> PyResult<Name> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Name::from_bytes(bytes.as_bytes()));
    }
    low_bits(object).map(Name::from_integer)
}

/// The low 64 bits of an integer of any size, two's complement.
pub(crate) fn low_bits(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(value) = object.extract::<u64>() {
        return Ok(value);
    }
    if object.is_instance_of::<PyInt>() {
        return object.bitand(u64::MAX)?.extract();
    }
    object.extract().map(i64::cast_unsigned)
}

/// What is expected, in the words of the error messages.
struct Kind {
    one: &'static str,
    buffer: &'static str,
    sequence: &'static str,
    range: &'static str,
}

impl Kind {
    fn unexpected(&self, found: &str) -> PyErr {
        let Self {
            one,
            buffer,
            sequence,
            ..
        } = self;
        PyTypeError::new_err(format!(
            "expected {one}s as {sequence} or a C-contiguous buffer of {buffer}, not {found}"
        ))
    }

    fn outside(&self, position: usize, value: &str) -> PyErr {
        let Self { one, range, .. } = self;
        PyOverflowError::new_err(format!("{one} {position} is {value}, outside {range}"))
    }

    #[cold]
    fn first_outside<T: Copy + ToString>(&self, values: &[T], inside: impl Fn(T) -> bool) -> PyErr {
        let outside = values
            .iter()
            .enumerate()
            .find(|(_, value)| !inside(**value));
        let (position, value) = outside.expect("some value is outside");
        self.outside(position, &value.to_string())
    }

    #[cold]
    fn bad_item(&self, position: usize, item: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
        let Self { one, .. } = self;
        if error.is_instance_of::<PyOverflowError>(item.py()) {
            return self.outside(position, &item.to_string());
        }
        if !error.is_instance_of::<PyTypeError>(item.py()) {
            return error;
        }
        let found = type_name(item);
        let or_bytes = if self.sequence.ends_with("bytes") {
            " or bytes"
        } else {
            ""
        };
        PyTypeError::new_err(format!(
            "expected {one} {position} as int{or_bytes}, not {found}"
        ))
    }
}

/// The contents of a buffer.
enum Integers {
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
}

impl Integers {
    /// The 64-bit values, two's complement.
    fn wide(self, object: &Bound<'_, PyAny>, kind: &Kind) -> PyResult<Vec<u64>> {
        match self {
            Self::U64(values) => Ok(values),
            Self::I64(values) => Ok(values.into_iter().map(i64::cast_unsigned).collect()),
            Self::U32(_) | Self::I32(_) => {
                let name = type_name(object);
                Err(kind.unexpected(&format!("{name} of 32-bit integers")))
            }
        }
    }
}

/// Copies a buffer of integers; `None` where the object is no buffer.
fn buffer(object: &Bound<'_, PyAny>, kind: &Kind) -> PyResult<Option<Integers>> {
    let py = object.py();
    if object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>() {
        return Ok(None);
    }
    let buffer = match PyUntypedBuffer::get(object) {
        Ok(buffer) => buffer,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Ok(None),
        Err(error) => {
            let name = type_name(object);
            return Err(kind.unexpected(&format!("{name} ({})", error.value(py))));
        }
    };
    // PyO3 takes a big-endian format for a native one: read the prefix here.
    let element = match buffer.format().to_bytes() {
        [_] | [b'@', _] => ElementType::from_format(buffer.format()),
        _ => ElementType::Unknown,
    };
    let one_dimension = buffer.dimensions() == 1;
    if one_dimension && !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err(format!(
            "expected {}s as a C-contiguous buffer, not a strided view",
            kind.one
        )));
    }
    let integers = match element {
        ElementType::UnsignedInteger { bytes: 4 } if one_dimension => {
            Integers::U32(copy(py, &buffer)?)
        }
        ElementType::SignedInteger { bytes: 4 } if one_dimension => {
            Integers::I32(copy(py, &buffer)?)
        }
        ElementType::UnsignedInteger { bytes: 8 } if one_dimension => {
            Integers::U64(copy(py, &buffer)?)
        }
        ElementType::SignedInteger { bytes: 8 } if one_dimension => {
            Integers::I64(copy(py, &buffer)?)
        }
        _ => {
            let name = type_name(object);
            return Err(kind.unexpected(&match buffer.dimensions() {
                1 => format!("{name} of format {:?}", buffer.format().to_string_lossy()),
                dimensions => format!("{name} of {dimensions} dimensions"),
            }));
        }
    };
    buffer.release(py);
    Ok(Some(integers))
}

fn copy<T: Element>(py: Python<'_>, buffer: &PyUntypedBuffer) -> PyResult<Vec<T>> {
    // An empty array may lie at any address, aligned or not.
    if buffer.item_count() == 0 {
        return Ok(Vec::new());
    }
    buffer.as_typed()?.to_vec(py)
}

/// Reads a sequence item by item.
fn sequence<'py, T>(
    object: &Bound<'py, PyAny>,
    kind: &Kind,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let Ok(items) = object.cast::<PySequence>() else {
        return Err(kind.unexpected(&type_name(object)));
    };
    if object.is_instance_of::<PyString>() {
        return Err(kind.unexpected("str"));
    }
    let mut values = Vec::with_capacity(items.len()?);
    for (position, item) in items.try_iter()?.enumerate() {
        let item = item?;
        let value = read(&item).map_err(|error| kind.bad_item(position, &item, error))?;
        values.push(value);
    }
    Ok(values)
}

/// The name of an object's type, for a message.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name();
    name.map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

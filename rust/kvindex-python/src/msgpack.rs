//! How is a Python value written in msgpack?

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMemoryView, PySequence, PyString,
};

use crate::integers::low_bits;

/// Deeper values fit no field of an event.
const MAX_DEPTH: usize = 4;

/// Msgpack in the making.
#[derive(Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
    /// Whether integers of any size have a meaning here.
    pub(crate) any_size: bool,
}

impl Writer {
    /// What was written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Writes any value; what msgpack or an event has no place for becomes an
    /// empty map, which no field accepts.
    pub(crate) fn value(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.nested(value, MAX_DEPTH)
    }

    fn nested(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if value.is_exact_instance_of::<PyInt>() {
            self.integer(value);
        } else if value.is_none() {
            self.out.push(0xc0);
        } else if let Ok(value) = value.cast::<PyBool>() {
            self.out.push(if value.is_true() { 0xc3 } else { 0xc2 });
        } else if value.is_instance_of::<PyInt>() {
            self.integer(value);
        } else if let Ok(text) = value.cast::<PyString>() {
            self.text(text.to_str()?);
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            self.bytes(bytes.as_bytes());
        } else if let Ok(bytes) = value.cast::<PyByteArray>() {
            self.bytes(&bytes.to_vec());
        } else if let Ok(value) = value.cast::<PyFloat>() {
            self.float(value.value());
        } else if depth == 0 {
            self.map(0);
        } else if let Some(tokens) = tokens(value) {
            self.array(tokens.len());
            for token in tokens {
                self.unsigned(token.into());
            }
        } else if let Some(items) = items(value)? {
            self.array(items.len());
            for item in items {
                // Mostly tokens: integers come first.
                if item.is_exact_instance_of::<PyInt>() {
                    self.integer(&item);
                } else {
                    self.nested(&item, depth - 1)?;
                }
            }
        } else {
            self.integer(value);
        }
        Ok(())
    }

    /// Writes an integer, or what can be used as one.
    fn integer(&mut self, value: &Bound<'_, PyAny>) {
        if let Ok(value) = value.extract::<u64>() {
            self.unsigned(value);
        } else if self.any_size
            && let Ok(value) = low_bits(value)
        {
            self.unsigned(value);
        } else if let Ok(value) = value.extract::<i64>() {
            self.out.push(0xd3);
            self.out.extend(value.to_be_bytes());
        } else {
            self.map(0);
        }
    }

    /// Writes the shortest form, which the decoder reads fastest.
    pub(crate) fn unsigned(&mut self, value: u64) {
        let bytes = value.to_be_bytes();
        let [.., fourth, third, second, first] = bytes;
        match value {
            0..=0x7f => self.out.push(first),
            0x80..=0xff => self.out.extend([0xcc, first]),
            0x100..=0xffff => self.out.extend([0xcd, second, first]),
            0x1_0000..=0xffff_ffff => self.out.extend([0xce, fourth, third, second, first]),
            _ => {
                self.out.push(0xcf);
                self.out.extend(bytes);
            }
        }
    }

    pub(crate) fn float(&mut self, value: f64) {
        self.out.push(0xcb);
        self.out.extend(value.to_be_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.head(0xdb, text.len());
        self.out.extend(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.head(0xc6, bytes.len());
        self.out.extend(bytes);
    }

    pub(crate) fn array(&mut self, items: usize) {
        self.head(0xdd, items);
    }

    pub(crate) fn map(&mut self, pairs: usize) {
        self.head(0xdf, pairs);
    }

    fn head(&mut self, kind: u8, length: usize) {
        self.out.push(kind);
        self.out.extend((length as u32).to_be_bytes());
    }
}

/// The items of a buffer of native u32, which most arrays of tokens are.
fn tokens(value: &Bound<'_, PyAny>) -> Option<Vec<u32>> {
    if value.is_exact_instance_of::<PyList>() {
        return None;
    }
    let buffer = PyBuffer::<u32>::get(value).ok()?;
    // PyO3 takes a big-endian format for a native one.
    let native = buffer.format() == c"I";
    let plain = native && buffer.dimensions() == 1 && buffer.is_c_contiguous();
    plain.then(|| buffer.to_vec(value.py()).ok())?
}

/// The items of a sequence or of a buffer; `None` for anything else.
fn items<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyList>>> {
    if let Ok(items) = value.cast::<PyList>() {
        return Ok(Some(items.clone()));
    }
    if let Some(items) = sequence(value) {
        return items.to_list().map(Some);
    }
    let Ok(view) = PyMemoryView::from(value) else {
        return Ok(None);
    };
    // A scalar of numpy's is a buffer without dimensions.
    if view.getattr("ndim")?.extract::<usize>()? == 0 {
        return Ok(None);
    }
    Ok(Some(view.call_method0("tolist")?.cast_into()?))
}

/// The object where it is a sequence, strings excluded.
pub(crate) fn sequence<'a, 'py>(
    object: &'a Bound<'py, PyAny>,
) -> Option<&'a Bound<'py, PySequence>> {
    let sequence = object.cast::<PySequence>().ok();
    sequence.filter(|_| !object.is_instance_of::<PyString>())
}

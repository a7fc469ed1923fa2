//! Where do a batch's bytes come from? From the caller as they are, or from
//! event objects, written as the map events of a batch.
//!
//! Objects and bytes are thereby read by one decoder, and mean the same.

use std::borrow::Cow;

use kvindex::decode::decode;
use kvindex::error::DecodeError;
use kvindex::event::Event;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PySequence, PyString, PyType};

use crate::error::Error;
use crate::integers::type_name;
use crate::msgpack::{Writer, sequence};
use crate::settings::rank;

/// One batch in msgpack.
pub(crate) struct Payload<'a>(pub(crate) Cow<'a, [u8]>);

/// The event classes and what is read of them.
const FIELDS: [(&str, &[&str]); 3] = [
    (
        "BlockStored",
        &[
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "local_keys",
            "block_size",
            "lora_id",
            "medium",
            "lora_name",
            "cache_salt",
            "extra_keys",
            "group_idx",
            "kv_cache_spec_kind",
            "kv_cache_spec_sliding_window",
            "locality",
        ],
    ),
    (
        "BlockRemoved",
        &[
            "block_hashes",
            "medium",
            "group_idx",
            "kv_cache_spec_kind",
            "locality",
        ],
    ),
    ("AllBlocksCleared", &[]),
];

/// The fields that are there even where they are nil: readers with types of
/// their own expect them.
const ALWAYS: [&str; 7] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
];

/// The fields whose integers count by their low 64 bits, whatever their size.
const HASHES: [&str; 2] = ["block_hashes", "parent_block_hash"];

impl<'a> FromPyObject<'a, '_> for Payload<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, '_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.extract::<&'a [u8]>() {
            return Ok(Self(Cow::Borrowed(bytes)));
        }
        let owned = if let Ok(buffer) = PyBuffer::<u8>::get(&object) {
            copy(object.py(), &buffer)?
        } else if let Some(events) = sequence(&object) {
            batch(events)?
        } else {
            return Err(PyTypeError::new_err(format!(
                "a payload must be a bytes-like object or a sequence of events, not {}",
                type_name(&object)
            )));
        };
        Ok(Self(Cow::Owned(owned)))
    }
}

/// Whether an object is a sequence of events, rather than what has to be read.
pub(crate) fn is_events(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if PyBuffer::<u8>::get(object).is_ok() {
        return Ok(false);
    }
    let Some(items) = sequence(object) else {
        return Ok(false);
    };
    if items.is_empty()? {
        return Ok(true);
    }
    let class = items.get_item(0)?.get_type();
    Ok(kind_by_name(kinds(object.py())?, &class)?.is_some())
}

fn copy(py: Python<'_>, buffer: &PyBuffer<u8>) -> PyResult<Vec<u8>> {
    if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
        let message = "a payload must be a C-contiguous buffer of one dimension";
        return Err(PyBufferError::new_err(message));
    }
    buffer.to_vec(py)
}

fn batch(events: &Bound<'_, PySequence>) -> PyResult<Vec<u8>> {
    let mut out = Writer::default();
    out.array(2);
    out.float(0.0);
    list(&mut out, events)?;
    Ok(out.into_bytes())
}

fn list(out: &mut Writer, events: &Bound<'_, PySequence>) -> PyResult<()> {
    let events = events.to_list()?;
    out.array(events.len());
    for (position, item) in events.iter().enumerate() {
        event(out, position, &item)?;
    }
    Ok(())
}

/// Writes one batch of vLLM's wire, for a publisher.
///
/// Args:
///     events: `BlockStored`, `BlockRemoved` and `AllBlocksCleared`.
///     timestamp: Seconds since the epoch.
///     dp_rank: Whose rank this is.
///
/// Returns:
///     The payload, in msgpack: a batch whose events are maps, as vLLM sends
///     them since 0.24.
///
/// Raises:
///     DecodeError: An event cannot be written so that it could be read.
///     TypeError: Something in the list is no event.
///
/// Examples:
///     >>> from kvindex import AllBlocksCleared
///     >>> from kvindex.engines import pack_batch, unpack
///     >>> unpack(pack_batch([AllBlocksCleared()], timestamp=1.5, dp_rank=3))
///     [1.5, [{'type': 'AllBlocksCleared'}], 3]
#[pyfunction]
#[pyo3(signature = (events, /, *, timestamp, dp_rank=0))]
pub(crate) fn pack_batch<'py>(
    events: &Bound<'py, PySequence>,
    timestamp: f64,
    #[pyo3(from_py_with = rank)] dp_rank: u32,
) -> Result<Bound<'py, PyBytes>, Error> {
    let mut out = Writer::default();
    out.array(3);
    out.float(timestamp);
    list(&mut out, events)?;
    out.unsigned(dp_rank.into());
    let payload = out.into_bytes();
    for (number, event) in decode(&payload)?.events.iter().enumerate() {
        if let Event::Fault { reason, .. } = event {
            return Err(Error::Decode(DecodeError {
                message: format!("{}: {}", reason.name(), reason.describe()),
                offset: None,
                event: Some(number),
            }));
        }
    }
    Ok(PyBytes::new(events.py(), &payload))
}

/// One event class, and its names as Python strings.
struct Kind {
    name: &'static str,
    class: Py<PyType>,
    fields: Vec<(&'static str, Py<PyString>)>,
}

/// The event classes of this package, looked up once.
fn kinds(py: Python<'_>) -> PyResult<&[Kind]> {
    static KINDS: PyOnceLock<Vec<Kind>> = PyOnceLock::new();
    let kinds = KINDS.get_or_try_init(py, || {
        let module = py.import("kvindex.events")?;
        let kind = |&(name, fields): &(&'static str, &[&'static str])| {
            let fields = fields.iter();
            Ok(Kind {
                name,
                class: module.getattr(name)?.cast_into::<PyType>()?.unbind(),
                fields: fields
                    .map(|&field| (field, PyString::intern(py, field).unbind()))
                    .collect(),
            })
        };
        FIELDS.iter().map(kind).collect::<PyResult<Vec<_>>>()
    });
    kinds.map(Vec::as_slice)
}

/// The kind of a class by its name or that of a base: engines' own event objects
/// have the same names and fields.
fn kind_by_name<'a>(kinds: &'a [Kind], class: &Bound<'_, PyType>) -> PyResult<Option<&'a Kind>> {
    for base in class.mro() {
        let name = base.cast_into::<PyType>()?.name()?;
        let known = kinds.iter().find(|kind| name == kind.name);
        if known.is_some() {
            return Ok(known);
        }
    }
    Ok(None)
}

/// Writes one event. Other classes than the known ones are left to the decoder,
/// which counts them; what is no event at all is the caller's mistake.
fn event(out: &mut Writer, position: usize, item: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, class) = (item.py(), item.get_type());
    let kinds = kinds(py)?;
    let kind = match kinds.iter().find(|kind| class.is(&kind.class)) {
        Some(kind) => Some(kind),
        None if class.module()? == "builtins" => {
            return Err(PyTypeError::new_err(format!(
                "event {position} must be BlockStored, BlockRemoved or AllBlocksCleared, not {}",
                type_name(item)
            )));
        }
        None => kind_by_name(kinds, &class)?,
    };
    let Some(kind) = kind else {
        out.map(1);
        out.text("type");
        out.text(class.name()?.to_str()?);
        return Ok(());
    };
    let mut given = Vec::with_capacity(kind.fields.len());
    for (name, field) in &kind.fields {
        let value = item.getattr_opt(field.bind(py))?;
        let value = value.unwrap_or_else(|| py.None().into_bound(py));
        if !value.is_none() || ALWAYS.contains(name) {
            given.push((*name, value));
        }
    }
    out.map(1 + given.len());
    out.text("type");
    out.text(kind.name);
    for (name, value) in given {
        out.text(name);
        out.any_size = HASHES.contains(&name);
        out.value(&value)?;
    }
    Ok(())
}

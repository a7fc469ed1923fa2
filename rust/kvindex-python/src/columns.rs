//! How do many numbers leave? As a memoryview over bytes of their own.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// A memoryview of the struct format `format` over `values`.
pub(crate) fn column<'py, const SIZE: usize>(
    py: Python<'py>,
    format: &str,
    values: impl ExactSizeIterator<Item = [u8; SIZE]>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new_with(py, values.len() * SIZE, |bytes| {
        for (slot, value) in bytes.chunks_exact_mut(SIZE).zip(values) {
            slot.copy_from_slice(&value);
        }
        Ok(())
    })?;
    PyMemoryView::from(&bytes)?.call_method1("cast", (format,))
}

/// A memoryview of keys.
pub(crate) fn keys<'py>(py: Python<'py>, keys: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    column(py, "Q", keys.iter().map(|key| key.to_ne_bytes()))
}

//! Which blocks do running requests use? For `kvindex.policy`, which counts them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::columns::column;
use crate::integers::Keys;

/// Chains of blocks in use, by the number of the slot that uses them.
///
/// Safe to use from any thread.
///
/// Examples:
///     >>> from kvindex._core import Chains
///     >>> chains = Chains()
///     >>> chains.add([11, 12, 13], 0), chains.add([11, 12, 14], 0)
///     ((0, 3), (1, 1))
///     >>> list(chains.shared([11, 12, 15], 2))
///     [2, 0]
#[pyclass(frozen, module = "kvindex._core")]
#[derive(Default)]
pub(crate) struct Chains {
    chains: Mutex<kvindex::Chains>,
}

#[pymethods]
impl Chains {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// How many chains there are.
    fn __len__(&self) -> usize {
        self.lock().len()
    }

    /// Adds the chain of a request that runs at a slot.
    ///
    /// Args:
    ///     chain_keys: Of its full blocks: a buffer of 64-bit integers or a sequence
    ///         of int, 0 to 2^64-1.
    ///     slot: 0 to 2^32-1.
    ///
    /// Returns:
    ///     The chain's number, and how many of its blocks were not in use at the slot
    ///     before.
    #[pyo3(signature = (chain_keys, slot, /))]
    fn add(&self, chain_keys: Keys, slot: u32) -> (u32, usize) {
        self.lock().add(chain_keys.0, slot)
    }

    /// Takes a chain away.
    ///
    /// Args:
    ///     number: From `add`.
    ///
    /// Returns:
    ///     How many of its blocks are not in use at its slot any more; 0 where no
    ///     chain has that number.
    #[pyo3(signature = (number, /))]
    fn remove(&self, number: u32) -> usize {
        self.lock().remove(number).unwrap_or(0)
    }

    /// How many leading blocks of a prompt are in use at each slot.
    ///
    /// Args:
    ///     chain_keys: Of the prompt, as for `add`.
    ///     slots: How many slots to look at, from 0 on.
    ///
    /// Returns:
    ///     A memoryview of format "q" with one number a slot.
    #[pyo3(signature = (chain_keys, slots, /))]
    fn shared<'py>(
        &self,
        py: Python<'py>,
        chain_keys: Keys,
        slots: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut counts = vec![0; slots];
        self.lock().shared(&chain_keys.0, &mut counts);
        column(
            py,
            "q",
            counts.iter().map(|&count| i64::from(count).to_ne_bytes()),
        )
    }
}

impl Chains {
    fn lock(&self) -> MutexGuard<'_, kvindex::Chains> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

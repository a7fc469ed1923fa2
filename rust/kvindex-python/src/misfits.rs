//! Whose blocks do not fit the index? Each source is reported once.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// The sources that were reported: worker, rank, source.
#[derive(Debug, Default)]
pub(crate) struct Misfits {
    reported: Mutex<HashSet<(String, u32, String)>>,
}

impl Misfits {
    /// Warns, in the log `kvindex`, of a source that was not reported before.
    pub(crate) fn report(
        &self,
        py: Python<'_>,
        (worker, rank, source): (&str, u32, &str),
        block_size: u32,
    ) -> PyResult<()> {
        let key = (worker.to_owned(), rank, source.to_owned());
        let is_new = self.lock().insert(key);
        if is_new {
            let message = "worker %r, rank %d, source %r sends blocks that are no \
                           multiple of %d tokens: they are dropped and counted as block_size";
            py.import("logging")?
                .call_method1("getLogger", ("kvindex",))?
                .call_method1("warning", (message, worker, rank, source, block_size))?;
        }
        Ok(())
    }

    /// Forgets a worker that was removed.
    pub(crate) fn forget(&self, worker: &str) {
        self.lock().retain(|known| known.0 != worker);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<(String, u32, String)>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Whose blocks do not fit the index? Each source is reported once.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvindex::Sender;
use pyo3::prelude::*;

/// Worker or pool and whether it is a pool, rank, source.
type Whose = (String, bool, u32, String);

/// The sources that were reported.
#[derive(Debug, Default)]
pub(crate) struct Misfits {
    reported: Mutex<HashSet<Whose>>,
}

impl Misfits {
    /// Warns, in the log `kvindex`, of a source that was not reported before.
    pub(crate) fn report(
        &self,
        py: Python<'_>,
        (sender, rank, source): (Sender<'_>, u32, &str),
        block_size: u32,
    ) -> PyResult<()> {
        let (name, pool) = (sender.name(), sender.is_pool());
        let key = (name.to_owned(), pool, rank, source.to_owned());
        let is_new = self.lock().insert(key);
        if is_new {
            let message = "%s %r, rank %d, source %r sends blocks that are no multiple of %d \
                           tokens: they are dropped and counted as block_size";
            let kind = if pool { "pool" } else { "worker" };
            py.import("logging")?
                .call_method1("getLogger", ("kvindex",))?
                .call_method1("warning", (message, kind, name, rank, source, block_size))?;
        }
        Ok(())
    }

    /// Forgets a worker or a pool that was removed.
    pub(crate) fn forget(&self, sender: Sender<'_>) {
        let (name, pool) = (sender.name(), sender.is_pool());
        self.lock()
            .retain(|known| (&*known.0, known.1) != (name, pool));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Whose>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

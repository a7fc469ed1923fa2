//! When does a call let go of the interpreter?

use pyo3::Python;
use pyo3::marker::Ungil;

/// Calls keep the interpreter for fewer tokens than that.
///
/// Detaching a short call makes it slow, not fair: with one other busy thread
/// on CPython 3.11 a call of 2 us has a p99 of 5 ms when it detaches (it waits
/// out the other thread's switch interval) and of 2.6 us when it stays attached.
/// Hashing this many tokens takes about as long as the other threads may well
/// wait: 0.7 ms.
const LONG_CALL_TOKENS: usize = 1 << 20;

/// What a prompt costs besides its tokens, in tokens.
pub(crate) const PROMPT_TOKENS: usize = 1 << 10;

/// How long a call has kept the interpreter, in tokens.
#[derive(Debug, Default)]
pub(crate) struct Held(usize);

impl Held {
    /// Calls `work`, which goes over so many tokens, detached from the
    /// interpreter where the call has kept it for long.
    pub(crate) fn work<T: Ungil>(
        &mut self,
        py: Python<'_>,
        tokens: usize,
        work: impl FnOnce() -> T + Ungil,
    ) -> T {
        self.0 = self.0.saturating_add(tokens);
        if self.0 < LONG_CALL_TOKENS {
            work()
        } else {
            self.0 = 0;
            py.detach(work)
        }
    }
}

//! When does a call let go of the interpreter?

use pyo3::Python;
use pyo3::marker::Ungil;

/// Calls over fewer tokens keep the interpreter.
///
/// Detaching a short call makes it slow, not fair: with one other busy thread
/// on CPython 3.11 a call of 2 us has a p99 of 5 ms when it detaches (it waits
/// out the other thread's switch interval) and of 2.6 us when it stays attached.
/// Hashing this many tokens takes about as long as the other threads may well
/// wait: 0.7 ms.
const LONG_CALL_TOKENS: usize = 1 << 20;

/// What a prompt costs besides its tokens, in tokens.
const PROMPT_TOKENS: usize = 1 << 10;

/// Calls `work`, detached from the interpreter where it lasts long.
pub(crate) fn when_long<T: Ungil>(
    py: Python<'_>,
    prompts: usize,
    tokens: usize,
    work: impl FnOnce() -> T + Ungil,
) -> T {
    if tokens.saturating_add(prompts.saturating_mul(PROMPT_TOKENS)) < LONG_CALL_TOKENS {
        work()
    } else {
        py.detach(work)
    }
}

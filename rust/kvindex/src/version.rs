//! Sequence locks: how readers notice that what they read was being written.
//!
//! A version is even at rest and odd while a write is going on. There is one
//! writer at a time, so a write needs no more than two stores. A reader copies
//! what it wants in between two loads of the version and throws the copy away
//! if the version was odd or has changed.

use std::process;

use crate::error::Forked;
use crate::sync::{AtomicU64, Ordering, fence, spin_loop, yield_now};

/// Marks a write as going on; undone by [`end`].
pub(crate) fn begin(version: &AtomicU64) {
    let now = version.load(Ordering::Relaxed);
    debug_assert_eq!(now % 2, 0, "one write at a time");
    version.store(now + 1, Ordering::Relaxed);
    // ORDERING: Release pairs with the Acquire fence in `unchanged`: a reader
    // that saw any of the stores that follow also sees the odd version.
    fence(Ordering::Release);
}

/// Ends a write.
pub(crate) fn end(version: &AtomicU64) {
    let now = version.load(Ordering::Relaxed);
    // ORDERING: Release pairs with the Acquire in `current`: a reader that sees
    // the new version also sees all that was written.
    version.store(now + 1, Ordering::Release);
}

/// The version before a read; `None` while a write is going on.
pub(crate) fn current(version: &AtomicU64) -> Option<u64> {
    // ORDERING: Acquire pairs with the Release in `end`.
    let now = version.load(Ordering::Acquire);
    now.is_multiple_of(2).then_some(now)
}

/// Whether all loads since [`current`] returned `before` saw one state.
pub(crate) fn unchanged(version: &AtomicU64, before: u64) -> bool {
    // ORDERING: Acquire pairs with the Release fence in `begin`: if any load
    // before this line saw a later write, the load below sees its odd version.
    fence(Ordering::Acquire);
    version.load(Ordering::Relaxed) == before
}

/// How a reader waits for a write to end.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    tries: u32,
}

impl Patience {
    /// Waits a little. `writer` is the process that wrote last: where that is
    /// another one, this process was forked in the middle of its write, which
    /// will never end here.
    pub(crate) fn wait(&mut self, writer: &AtomicU64) -> Result<(), Forked> {
        self.tries += 1;
        if !self.tries.is_multiple_of(64) {
            spin_loop();
            return Ok(());
        }
        yield_now();
        if self.tries.is_multiple_of(4096)
            && writer.load(Ordering::Relaxed) != u64::from(process::id())
        {
            return Err(Forked);
        }
        Ok(())
    }
}

//! The only import point of atomics and locks.
//!
//! The tests of all interleavings put loom's in the place of std's, see
//! `interleaved`.

#[cfg(not(all(test, loom)))]
pub(crate) use real::*;

#[cfg(all(test, loom))]
pub(crate) use modelled::*;

pub(crate) use std::sync::TryLockError;
pub(crate) use std::sync::atomic::Ordering;

/// Whether the words are loom's: each costs so much that pages have to be small.
pub(crate) const MODELLED: bool = cfg!(all(test, loom));

#[cfg(not(all(test, loom)))]
mod real {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU64, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock};
    pub(crate) use std::thread::yield_now;

    /// So many words of zero, lazily.
    pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
        bytemuck::zeroed_slice_box(words)
    }
}

#[cfg(all(test, loom))]
mod modelled {
    // A reader that waits lets the others go on; loom ends no other loop.
    pub(crate) use loom::hint::spin_loop;
    use loom::sync::atomic::AtomicBool;
    pub(crate) use loom::sync::atomic::{AtomicU64, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    use super::Ordering;

    /// So many words of zero.
    pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    /// Loom has none: std's holds the value, and whether a thread sees it yet is
    /// for loom to choose. As with all that is written here there is one writer.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        seen: AtomicBool,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self {
                value: std::sync::OnceLock::new(),
                seen: AtomicBool::new(false),
            }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            let value = self.value.get()?;
            self.seen.load(Ordering::Acquire).then_some(value)
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            if self.value.get().is_none() {
                let _ = self.value.set(make());
                self.seen.store(true, Ordering::Release);
            }
            self.value.get().expect("it was set")
        }
    }
}

//! The only import point of atomics and locks.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

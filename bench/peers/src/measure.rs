//! Clock, bytes and distributions.

#[cfg(test)]
mod tests;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The system's allocator, and how many bytes are allocated.
///
/// Each thread counts in a place of its own, by plain loads and stores: a locked
/// addition to a shared word would slow down whoever allocates beside another.
#[derive(Debug)]
pub(crate) struct Counting;

/// A count on a cache line of its own.
#[repr(align(64))]
struct Count(AtomicUsize);

/// More threads than any subject starts.
const THREADS: usize = 64;

static COUNTS: [Count; THREADS] = [const { Count(AtomicUsize::new(0)) }; THREADS];
static STARTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn count(bytes: usize) {
    let thread = THREAD.get();
    let thread = if thread == usize::MAX {
        let next = STARTED.fetch_add(1, Ordering::Relaxed) % THREADS;
        THREAD.set(next);
        next
    } else {
        thread
    };
    let count = &COUNTS[thread].0;
    let sum = count.load(Ordering::Relaxed).wrapping_add(bytes);
    count.store(sum, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size().wrapping_neg());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.wrapping_sub(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes allocated now.
pub(crate) fn bytes() -> usize {
    let counts = COUNTS.iter().map(|count| count.0.load(Ordering::Relaxed));
    counts.fold(0, usize::wrapping_add)
}

/// How long something takes.
pub(crate) fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Buckets a doubling of a histogram.
const STEPS: u32 = 4;

/// Single calls, in nanoseconds; the clock's own time is part of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<u32>);

impl Samples {
    /// Times one call, but not what becomes of its result.
    pub(crate) fn take<T>(&mut self, call: impl FnOnce() -> T) {
        let start = Instant::now();
        let result = black_box(call());
        let nanos = start.elapsed().as_nanos();
        self.0.push(u32::try_from(nanos).unwrap_or(u32::MAX));
        drop(result);
    }

    /// Times a query. A router has just computed its keys: they are near.
    pub(crate) fn ask<K: Copy>(&mut self, query: &[K], find: impl FnOnce(&[K]) -> usize) -> usize {
        for key in query {
            black_box(*key);
        }
        let mut rows = 0;
        self.take(|| rows = find(query));
        rows
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn sort(&mut self) {
        self.0.sort_unstable();
    }

    /// Of sorted samples, the one that a share of them does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> u32 {
        let last = self.0.len().saturating_sub(1);
        let at = (self.0.len() as f64 * share) as usize;
        self.0.get(at.min(last)).copied().unwrap_or(0)
    }

    /// Of sorted samples, how many lie up to each bound: a few bounds a doubling.
    pub(crate) fn histogram(&self) -> Vec<(u32, u64)> {
        let mut buckets: Vec<(u32, u64)> = Vec::new();
        for &sample in &self.0 {
            let bound = bound(sample);
            match buckets.last_mut() {
                Some((last, count)) if *last == bound => *count += 1,
                _ => buckets.push((bound, 1)),
            }
        }
        buckets
    }
}

/// The upper end of the bucket of a sample.
fn bound(sample: u32) -> u32 {
    let octave = sample.max(STEPS).ilog2();
    let step = (1u64 << octave) / u64::from(STEPS);
    let bound = u64::from(sample).div_ceil(step) * step;
    u32::try_from(bound).unwrap_or(u32::MAX)
}

/// More than the last cache of any usual machine.
const SWEEP: usize = 64 << 20;

/// Memory that is read to push everything else out of the caches.
#[derive(Debug)]
pub(crate) struct Sweep(Vec<u64>);

impl Sweep {
    pub(crate) fn new() -> Self {
        Self((0..(SWEEP / 8) as u64).collect())
    }

    pub(crate) fn run(&self) {
        black_box(
            self.0
                .iter()
                .fold(0, |sum: u64, word| sum.wrapping_add(*word)),
        );
    }
}

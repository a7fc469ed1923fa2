//! Readers and writers that race for a while.
//!
//! Seeded, but the schedule is the machine's: a failure is a fault, a pass says
//! the more the longer it took. `KVINDEX_STRESS_SECONDS` (2) says how long each
//! test takes, `KVINDEX_STRESS_SEED` where its random choices begin.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kvindex::Walk;

const READERS: u64 = 2;

/// A small generator of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// One of its own for each thread of a test.
    pub(crate) fn of(thread: u64) -> Self {
        let seed = env::var("KVINDEX_STRESS_SEED").map_or(1, |seed| seed.parse().unwrap());
        Self(seed * 1000 + thread)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Lets writers and readers run for a while, in no other test's way. `write` and
/// `read` do one step.
pub(crate) fn run(
    writers: u64,
    write: impl Fn(u64, &mut Random) + Sync,
    read: impl Fn(&mut Walk, &mut Random) + Sync,
) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = env::var("KVINDEX_STRESS_SECONDS").map_or(2.0, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (stop, changes, answers) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let repeat = |step: &mut dyn FnMut(), steps: &AtomicU64| {
        // A thread that panics must not leave the others waiting for the end.
        let stopped = Stopped(&stop);
        while !stop.load(Ordering::Relaxed) && Instant::now() < end {
            step();
            steps.fetch_add(1, Ordering::Relaxed);
        }
        drop(stopped);
    };
    thread::scope(|scope| {
        let (write, read, repeat) = (&write, &read, &repeat);
        for writer in 0..writers {
            let (changes, mut random) = (&changes, Random::of(writer));
            scope.spawn(move || repeat(&mut || write(writer, &mut random), changes));
        }
        for reader in 0..READERS {
            let (answers, mut random) = (&answers, Random::of(100 + reader));
            let mut walk = Walk::default();
            scope.spawn(move || repeat(&mut || read(&mut walk, &mut random), answers));
        }
    });
    drop(turn);
    let (changes, answers) = (changes.into_inner(), answers.into_inner());
    println!("{changes} changes, {answers} answers");
    assert!(changes > 0 && answers > 0);
}

/// Says that a thread has ended, however it did.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

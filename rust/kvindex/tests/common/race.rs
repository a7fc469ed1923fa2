//! Readers and writers that race for a while.
//!
//! Seeded, but the schedule is the machine's: a failure is a fault, a pass says
//! the more the longer it took. `KVINDEX_STRESS_SECONDS` (2) says how long each
//! test takes, `KVINDEX_STRESS_THREADS` (2) how many readers it has, and writers
//! where they may be several, `KVINDEX_STRESS_SEED` (1) where its random choices
//! begin.

use std::env;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kvindex::Walk;

fn setting<T: FromStr<Err: Debug>>(name: &str, usual: T) -> T {
    let text = env::var(format!("KVINDEX_STRESS_{name}"));
    text.map_or(usual, |text| text.parse().expect("a number"))
}

/// Readers, and writers where they may be several.
pub(crate) fn threads() -> u64 {
    setting("THREADS", 2)
}

/// A small generator of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// One of its own for each thread of a test.
    pub(crate) fn of(thread: u64) -> Self {
        Self(setting::<u64>("SEED", 1) * 1000 + thread)
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
    let end = Instant::now() + Duration::from_secs_f64(setting("SECONDS", 2.0));
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
        for reader in 0..threads() {
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

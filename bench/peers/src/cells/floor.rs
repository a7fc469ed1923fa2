//! What the machine itself can do: no index is faster than what it is made of.

use std::hint::black_box;

use kvindex::key::{BlockHasher, SEED, chain};

use crate::measure::{Samples, time};
use crate::record::Report;
use crate::workload::Random;

/// Sizes of memory through which loads wander, in words.
const SIZES: [usize; 3] = [1 << 15, 1 << 21, 1 << 26];
const LOADS: usize = 1 << 20;
const HASHES: u32 = 1 << 20;
/// Bytes of one copy, more than any cache holds.
const COPY: usize = 128 << 20;

/// Measures the clock, memory, hashing and copying.
pub(crate) fn floor(report: &Report) {
    let mut samples = Samples::default();
    for _ in 0..20_000 {
        samples.take(|| ());
    }
    report.samples("clock", None, samples, 0.0);
    for words in SIZES {
        let nanos = dependent_loads(words);
        report.value("dependent_load", "ns", Some(8 * words as u64), nanos);
    }
    hashes(report);
    let (from, mut to) = (vec![1u8; COPY], vec![0u8; COPY]);
    // Once before, so that every page is there.
    to.copy_from_slice(&from);
    let took = time(|| black_box(&mut to).copy_from_slice(black_box(&from)));
    let rate = COPY as f64 / took.as_secs_f64();
    report.value("copy", "bytes/s", None, rate);
}

/// The mean time of a load whose address the one before it gave.
fn dependent_loads(words: usize) -> f64 {
    let mut order: Vec<u32> = (0..words as u32).collect();
    let mut random = Random::new(words as u64);
    // One cycle through all words: each is swapped with an earlier one.
    for at in (1..words).rev() {
        order.swap(at, random.below(at));
    }
    let mut next = vec![0u64; words];
    next.iter_mut()
        .zip(&order)
        .for_each(|(next, &to)| *next = u64::from(to));
    let mut at = 0;
    let took = time(|| {
        for _ in 0..LOADS {
            at = next[at as usize];
        }
    });
    black_box(at);
    took.as_nanos() as f64 / LOADS as f64
}

/// A block of 16 tokens; a chain key, each of which waits for the one before.
fn hashes(report: &Report) {
    let mut hasher = BlockHasher::new(SEED);
    let mut tokens = [7; 16];
    let took = time(|| {
        for number in 0..HASHES {
            tokens[0] = number;
            black_box(hasher.local(&tokens, &mut []));
        }
    });
    let nanos = |took: std::time::Duration| took.as_nanos() as f64 / f64::from(HASHES);
    report.value("hash_16_tokens", "ns", None, nanos(took));
    let mut key = 1;
    let took = time(|| {
        for number in 0..HASHES {
            key = chain(Some(key), u64::from(number));
        }
    });
    black_box(key);
    report.value("chain_key", "ns", None, nanos(took));
}

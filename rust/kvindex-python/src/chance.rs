//! Which of several equals? Chance, reproducible where a seed is given.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(()));
}

/// A number below `count`, which is at least 1.
pub(crate) fn pick(count: usize, seed: Option<u64>) -> usize {
    if count == 1 {
        return 0;
    }
    let state = seed.unwrap_or_else(|| {
        let state = STATE.get().wrapping_add(1);
        STATE.set(state);
        // Forked processes share the state and must not choose alike.
        state ^ u64::from(std::process::id()).rotate_right(32)
    });
    let product = u128::from(mix(state)) * count as u128;
    (product >> 64) as usize
}

/// The output of `SplitMix64`.
fn mix(state: u64) -> u64 {
    let mut bits = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

//! How to find a run: one table from the chain key of a run's first block to
//! the run, read without locks.
//!
//! ```text
//! shard    version | address | slots | used          256 of them, by the key's
//! slot     key | run + 1 (0 = empty)                  top 8 bits
//! ```
//!
//! Slots are probed one after the other from the key's home; a removal moves
//! later ones back, so there are no marks of former entries. Each shard grows
//! alone, by a quarter, so no insertion waits for more than a small copy.

use crate::arena::{Allocator, Arena, class_for, class_words};
use crate::error::Forked;
use crate::probing;
use crate::sync::{AtomicU64, MODELLED, Ordering::Relaxed};
use crate::version::{self, Patience};

const SHARD_BITS: u32 = if MODELLED { 1 } else { 8 };
const VERSION: usize = 0;
const ADDRESS: usize = 1;
const SLOTS: usize = 2;
const USED: usize = 3;

/// The table, as readers see it.
#[derive(Debug)]
pub(crate) struct Heads {
    shards: Box<[[AtomicU64; 4]]>,
}

impl Default for Heads {
    fn default() -> Self {
        let shards = (0..1 << SHARD_BITS).map(|_| Default::default());
        Self {
            shards: shards.collect(),
        }
    }
}

fn home(key: u64, slots: u64) -> u64 {
    ((u128::from(key << SHARD_BITS) * u128::from(slots)) >> 64) as u64
}

impl Heads {
    fn shard(&self, key: u64) -> &[AtomicU64; 4] {
        &self.shards[(key >> (64 - SHARD_BITS)) as usize]
    }

    /// The run that begins with this key; may be called by any thread.
    ///
    /// `writer` is the process that wrote last.
    pub(crate) fn find(
        &self,
        arena: &Arena,
        key: u64,
        writer: &AtomicU64,
    ) -> Result<Option<u32>, Forked> {
        let shard = self.shard(key);
        let mut patience = Patience::default();
        loop {
            if let Some(before) = version::current(&shard[VERSION]) {
                let found = Self::probe(arena, shard, key);
                if version::unchanged(&shard[VERSION], before) {
                    return Ok(found.map(|(_, run)| run));
                }
            }
            patience.wait(writer)?;
        }
    }

    /// The slot and the run of a key. Ends whatever a write leaves to be seen.
    fn probe(arena: &Arena, shard: &[AtomicU64; 4], key: u64) -> Option<(u64, u32)> {
        let slots = shard[SLOTS].load(Relaxed);
        let words = arena.get(shard[ADDRESS].load(Relaxed), slots as usize * 2)?;
        let mut slot = if slots == 0 { 0 } else { home(key, slots) };
        for _ in 0..slots {
            let at = slot as usize * 2;
            let run = words[at + 1].load(Relaxed);
            if run == 0 {
                return None;
            }
            if words[at].load(Relaxed) == key {
                return Some((slot, (run - 1) as u32));
            }
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        None
    }

    /// Adds a key that the table does not have.
    pub(crate) fn insert(&self, arena: &Arena, free: &mut Allocator, key: u64, run: u32) {
        let shard = self.shard(key);
        let (slots, used) = (shard[SLOTS].load(Relaxed), shard[USED].load(Relaxed));
        version::begin(&shard[VERSION]);
        if (used + 1) * 5 > slots * 4 {
            Self::grow(arena, free, shard);
        }
        let slots = shard[SLOTS].load(Relaxed);
        let words = arena.words(shard[ADDRESS].load(Relaxed), slots as usize * 2);
        Self::fill(words, slots, key, u64::from(run) + 1);
        shard[USED].store(used + 1, Relaxed);
        version::end(&shard[VERSION]);
    }

    fn fill(words: &[AtomicU64], slots: u64, key: u64, run: u64) {
        let mut slot = home(key, slots);
        while words[slot as usize * 2 + 1].load(Relaxed) != 0 {
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        words[slot as usize * 2].store(key, Relaxed);
        words[slot as usize * 2 + 1].store(run, Relaxed);
    }

    fn grow(arena: &Arena, free: &mut Allocator, shard: &[AtomicU64]) {
        let (slots, address) = (shard[SLOTS].load(Relaxed), shard[ADDRESS].load(Relaxed));
        let class = class_for(slots as usize * 2 + 2);
        let larger = class_words(class) as u64 / 2;
        let new = free.allocate(arena, class);
        let target = arena.words(new, larger as usize * 2);
        for word in target {
            word.store(0, Relaxed);
        }
        if slots > 0 {
            let source = arena.words(address, slots as usize * 2);
            for pair in source.chunks_exact(2) {
                let run = pair[1].load(Relaxed);
                if run != 0 {
                    Self::fill(target, larger, pair[0].load(Relaxed), run);
                }
            }
            free.release(arena, address, class_for(slots as usize * 2));
        }
        shard[ADDRESS].store(new, Relaxed);
        shard[SLOTS].store(larger, Relaxed);
    }

    /// Takes a key away that the table has.
    pub(crate) fn remove(&self, arena: &Arena, key: u64) {
        let shard = self.shard(key);
        let (slot, _) = Self::probe(arena, shard, key).expect("a run's first key");
        let slots = shard[SLOTS].load(Relaxed);
        let words = arena.words(shard[ADDRESS].load(Relaxed), slots as usize * 2);
        version::begin(&shard[VERSION]);
        Self::close(words, slots, slot);
        shard[USED].store(shard[USED].load(Relaxed) - 1, Relaxed);
        version::end(&shard[VERSION]);
    }

    /// Empties a slot.
    fn close(words: &[AtomicU64], slots: u64, gap: u64) {
        let load = |at: usize| [0, 1].map(|word| words[at * 2 + word].load(Relaxed));
        let home = |at: usize| {
            let [key, run] = load(at);
            (run != 0).then(|| home(key, slots) as usize)
        };
        let copy = |from: usize, to: usize| {
            let [key, run] = load(from);
            words[to * 2].store(key, Relaxed);
            words[to * 2 + 1].store(run, Relaxed);
        };
        let gap = probing::close(slots as usize, gap as usize, home, copy);
        words[gap * 2 + 1].store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn test_table_agrees_with_a_map_through_growth_and_removal() {
        let (arena, mut free, heads) = (Arena::default(), Allocator::default(), Heads::default());
        let mut map = HashMap::new();
        let mut state = 7_u64;
        for step in 0..60_000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Few top bits, so that some shards fill up.
            let key = ((state >> 33) % 3000).wrapping_mul(0x0123_4567_89ab_cdef);
            if map.remove(&key).is_some() {
                heads.remove(&arena, key);
            } else {
                heads.insert(&arena, &mut free, key, step);
                map.insert(key, step);
            }
            if step % 1000 == 0 {
                for i in 0..3000 {
                    let key = u64::wrapping_mul(i, 0x0123_4567_89ab_cdef);
                    let found = heads.find(&arena, key, &AtomicU64::new(0)).unwrap();
                    assert_eq!(found, map.get(&key).copied());
                }
            }
        }
    }
}

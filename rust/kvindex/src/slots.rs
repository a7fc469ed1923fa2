//! Which block has that hash? Eight bytes an entry, for the writer.
//!
//! ```text
//! slot    mark (24 bits of the hash) | run + 1 (28) | offset (12); 0 = empty
//! ```
//!
//! A slot's home follows from its mark alone, so a table grows without a look
//! at the names that it holds. Slots are probed one after the other, and a
//! removal moves later ones back, so there are no marks of former entries. Each
//! shard grows alone, by a third, so no insertion waits for more than a small
//! copy.

use std::cell::Cell;

use crate::probing::{after, close};
use crate::run::Block;

const SHARD_BITS: u32 = 10;
const MARK_BITS: u32 = 24;
const RUN_BITS: u32 = 28;
const OFFSET_BITS: u32 = 12;
/// Runs are numbered below this.
pub(crate) const MAX_RUNS: u32 = (1 << RUN_BITS) - 1;
/// A shard has at least this many slots, once it has any.
const LEAST: usize = 8;

#[derive(Clone, Debug, Default)]
struct Shard {
    slots: Vec<u64>,
    used: usize,
}

/// A table from hashes to blocks; a hash may have several.
#[derive(Debug)]
pub(crate) struct Slots {
    shards: Box<[Shard]>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            shards: vec![Shard::default(); 1 << SHARD_BITS].into(),
        }
    }
}

fn pack(hash: u64, block: Block) -> u64 {
    let mark = (hash << SHARD_BITS) >> (64 - MARK_BITS) << (RUN_BITS + OFFSET_BITS);
    let run = (u64::from(block.run()) + 1) << OFFSET_BITS;
    mark | run | u64::from(block.offset())
}

fn unpack(slot: u64) -> Block {
    let run = ((slot >> OFFSET_BITS) as u32 & MAX_RUNS) - 1;
    Block::new(run, slot as u16 & ((1 << OFFSET_BITS) - 1))
}

fn mark(slot: u64) -> u64 {
    slot >> (RUN_BITS + OFFSET_BITS)
}

/// Where an entry is looked for first in a table of so many slots.
fn home(slot: u64, slots: usize) -> usize {
    ((mark(slot) * slots as u64) >> MARK_BITS) as usize
}

impl Shard {
    /// Where the first slot lies for which `is` holds, or else the first empty
    /// one behind its home; the shard has an empty one.
    fn probe(&self, slot: u64, mut is: impl FnMut(u64) -> bool) -> usize {
        let mut at = home(slot, self.slots.len());
        while self.slots[at] != 0 && !is(self.slots[at]) {
            at = after(at, self.slots.len());
        }
        at
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let at = self.probe(slot, |_| false);
            self.slots[at] = slot;
        }
    }

    /// Empties a slot.
    fn close(&mut self, gap: usize) {
        let slots = Cell::from_mut(&mut self.slots[..]).as_slice_of_cells();
        let home = |at: usize| {
            let slot = slots[at].get();
            (slot != 0).then(|| home(slot, slots.len()))
        };
        let copy = |from: usize, to: usize| slots[to].set(slots[from].get());
        slots[close(slots.len(), gap, home, copy)].set(0);
    }
}

impl Slots {
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[(hash >> (64 - SHARD_BITS)) as usize]
    }

    fn shard_mut(&mut self, hash: u64) -> &mut Shard {
        &mut self.shards[(hash >> (64 - SHARD_BITS)) as usize]
    }

    /// Loads what the next call for that hash will look at; the value is of no
    /// use. Loads of several hashes wait for memory together.
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        let shard = self.shard(hash);
        let home = home(pack(hash, Block::new(0, 0)), shard.slots.len());
        shard.slots.get(home).copied().unwrap_or(0)
    }

    /// A block of that hash for which `is` holds.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(Block) -> bool) -> Option<Block> {
        let shard = self.shard(hash);
        if shard.used == 0 {
            return None;
        }
        let wanted = pack(hash, Block::new(0, 0));
        let same = |slot: u64| mark(slot) == mark(wanted) && is(unpack(slot));
        let slot = shard.slots[shard.probe(wanted, same)];
        (slot != 0).then(|| unpack(slot))
    }

    /// Adds a block, unless there is one of that hash for which `is` holds;
    /// whether it did.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        block: Block,
        mut is: impl FnMut(Block) -> bool,
    ) -> bool {
        let shard = self.shard_mut(hash);
        if (shard.used + 1) * 4 > shard.slots.len() * 3 {
            shard.resize((shard.slots.len() * 4 / 3).max(shard.slots.len() + LEAST));
        }
        let added = pack(hash, block);
        let at = shard.probe(added, |slot| mark(slot) == mark(added) && is(unpack(slot)));
        if shard.slots[at] != 0 {
            return false;
        }
        shard.slots[at] = added;
        shard.used += 1;
        true
    }

    /// Takes a block away; whether it was there.
    pub(crate) fn remove(&mut self, hash: u64, block: Block) -> bool {
        let shard = self.shard_mut(hash);
        if shard.used == 0 {
            return false;
        }
        let removed = pack(hash, block);
        let at = shard.probe(removed, |slot| slot == removed);
        if shard.slots[at] == 0 {
            return false;
        }
        shard.close(at);
        shard.used -= 1;
        if shard.used * 4 < shard.slots.len() && shard.slots.len() > LEAST {
            shard.resize((shard.slots.len() / 2).max(LEAST));
        }
        true
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| shard.slots.len()).sum();
        slots * 8 + self.shards.len() * size_of::<Shard>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::mix;
    use std::collections::HashMap;

    fn used(slots: &Slots) -> usize {
        slots.shards.iter().map(|shard| shard.used).sum()
    }

    #[test]
    fn test_table_agrees_with_a_map_through_growth_and_removal() {
        let mut slots = Slots::default();
        let mut map: HashMap<u64, Block> = HashMap::new();
        let mut state = 7_u64;
        for step in 0..200_000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Few shards, so that they fill up, and marks that collide.
            let name = (state >> 33) % 6000;
            let hash = mix(name) >> 6 & !(0xff << 34);
            let block = Block::new(step, name as u16 & 0xfff);
            let named = |block: Block| u64::from(block.offset()) == name & 0xfff;
            let known = map.get(&name).copied();
            if step / 50_000 % 2 == 0 && known.is_none() {
                assert!(slots.insert(hash, block, |other| other == block));
                map.insert(name, block);
            } else if let Some(known) = known {
                assert!(slots.find(hash, named).is_some());
                assert_eq!(slots.find(hash, |other| other == known), Some(known));
                assert!(slots.remove(hash, known) && !slots.remove(hash, known));
                map.remove(&name);
            }
            assert_eq!(used(&slots), map.len());
        }
        for (name, block) in &map {
            let hash = mix(*name) >> 6 & !(0xff << 34);
            assert_eq!(slots.find(hash, |other| other == *block), Some(*block));
        }
    }

    #[test]
    fn test_memory_follows_the_number_of_entries() {
        let mut slots = Slots::default();
        let empty = slots.bytes();
        let block = |number: u32| Block::new(number, 0);
        for number in 0..1_000_000 {
            slots.insert(mix(u64::from(number)), block(number), |_| false);
        }
        assert!((slots.bytes() - empty) < 18 * 1_000_000);
        for number in 0..1_000_000 {
            assert!(slots.remove(mix(u64::from(number)), block(number)));
        }
        assert!(slots.bytes() - empty <= (LEAST * 8) << SHARD_BITS);
    }
}

//! Which blocks of a prompt are in use, and at whom? Chains of running requests.
//!
//! Chains are kept in the order of their keys, each beside the number of leading
//! blocks that it shares with the one before it. Two facts follow, and no set of
//! blocks is kept at all:
//!
//! - How much any two chains share is the least of the numbers between them. So one
//!   search for a prompt's place, and a running minimum to both sides, says how much
//!   of it is in use at every slot.
//! - A chain adds to the distinct blocks of its slot what it shares with no other
//!   chain there, and takes the same away when it goes.
//!
//! ```text
//! chain     slot  common
//! a b       1     0
//! a b c d   0     2
//! a b e     1     2
//!                        a b c f: 3 blocks in use at slot 0, 2 at slot 1
//! ```
//!
//! Equal chain keys mean equal prefixes, so how far two chains agree is found by
//! bisection.

use crate::claims::partition;

/// Chains of blocks in use. Who runs a chain is a slot, a number that the caller
/// gives.
#[derive(Debug, Default)]
pub struct Chains {
    /// The chains' keys, by their numbers.
    keys: Vec<Option<Box<[u64]>>>,
    /// Numbers that are free again.
    free: Vec<u32>,
    /// In the order of the keys: a prefix comes before what extends it.
    order: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u32,
    slot: u32,
    /// Leading blocks that it shares with the one before.
    common: u32,
}

/// Where keys belong, and what they share with the chains on both sides.
#[derive(Clone, Copy)]
struct Gap {
    at: usize,
    before: u32,
    after: u32,
}

impl Chains {
    /// How many chains there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a chain; returns its number, and how many of its blocks were not in use
    /// at its slot before.
    pub fn add(&mut self, keys: Vec<u64>, slot: u32) -> (u32, usize) {
        let gap = self.gap(&keys);
        let fresh = keys.len() - self.used(gap, slot);
        let number = self.free.pop().unwrap_or_else(|| {
            self.keys.push(None);
            (self.keys.len() - 1) as u32
        });
        self.keys[number as usize] = Some(keys.into());
        if let Some(next) = self.order.get_mut(gap.at) {
            next.common = gap.after;
        }
        let common = gap.before;
        self.order.insert(
            gap.at,
            Entry {
                number,
                slot,
                common,
            },
        );
        (number, fresh)
    }

    /// Takes a chain away; returns how many of its blocks are not in use at its slot
    /// any more, `None` where there is no chain of that number.
    pub fn remove(&mut self, number: u32) -> Option<usize> {
        let keys = self.keys.get(number as usize)?.as_ref()?;
        let mut at = self.gap(keys).at;
        // Equal chains lie beside each other.
        while self.order[at].number != number {
            at += 1;
        }
        let length = keys.len();
        let Entry { slot, common, .. } = self.order.remove(at);
        let mut gap = Gap {
            at,
            before: common,
            after: 0,
        };
        if let Some(next) = self.order.get_mut(at) {
            gap.after = next.common;
            next.common = next.common.min(common);
        }
        self.keys[number as usize] = None;
        self.free.push(number);
        Some(length - self.used(gap, slot))
    }

    /// Raises each slot's count to the number of leading blocks of a prompt that are
    /// in use there; slots without a count are passed over.
    pub fn shared(&self, keys: &[u64], counts: &mut [u32]) {
        let gap = self.gap(keys);
        for (slot, shared) in self.below(gap).chain(self.above(gap)) {
            if let Some(count) = counts.get_mut(slot as usize) {
                *count = shared.max(*count);
            }
        }
    }

    /// How many blocks of a chain that belongs to a gap are in use at a slot.
    fn used(&self, gap: Gap, slot: u32) -> usize {
        let nearest = |(other, shared)| (other == slot).then_some(shared);
        let below = self.below(gap).find_map(nearest);
        let above = self.above(gap).find_map(nearest);
        below.max(above).unwrap_or(0) as usize
    }

    /// The slots of the chains before a gap, the nearest first, and how many blocks
    /// each shares with what belongs there; as long as it is any.
    fn below(&self, gap: Gap) -> impl Iterator<Item = (u32, u32)> {
        let entries = self.order[..gap.at].iter().rev();
        entries.scan(gap.before, |shared, entry| {
            let now = *shared;
            *shared = now.min(entry.common);
            (now > 0).then_some((entry.slot, now))
        })
    }

    /// The same of the chains behind it.
    fn above(&self, gap: Gap) -> impl Iterator<Item = (u32, u32)> {
        let entries = self.order[gap.at..].iter().enumerate();
        entries.scan(gap.after, |shared, (nth, entry)| {
            if nth > 0 {
                *shared = entry.common.min(*shared);
            }
            (*shared > 0).then_some((entry.slot, *shared))
        })
    }

    /// Where keys belong: before chains that are equal.
    fn gap(&self, keys: &[u64]) -> Gap {
        let (mut low, mut high) = (0, self.order.len());
        let (mut before, mut after) = (0, 0);
        while low < high {
            let middle = low.midpoint(high);
            let other = self.keys[self.order[middle].number as usize].as_deref();
            let other = other.unwrap_or_default();
            // All chains between two that share so much share it, too.
            let common = agreed(keys, other, before.min(after));
            let is_before = match (other.get(common), keys.get(common)) {
                (None, Some(_)) => true,
                (Some(its), Some(own)) => its < own,
                (_, None) => false,
            };
            if is_before {
                (low, before) = (middle + 1, common);
            } else {
                (high, after) = (middle, common);
            }
        }
        Gap {
            at: low,
            before: before as u32,
            after: after as u32,
        }
    }
}

/// How many leading keys two chains have in common, at least `known`.
fn agreed(one: &[u64], other: &[u64], known: usize) -> usize {
    let both = one.len().min(other.len());
    // Most part where they are known to agree up to, or one extends the other.
    if known == both || one[known] != other[known] {
        return known;
    }
    if one[both - 1] == other[both - 1] {
        return both;
    }
    known + partition(both - known, |nth| one[known + nth] == other[known + nth])
}

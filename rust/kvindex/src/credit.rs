//! What holders are credited, from the copies of all claims on the way.
//!
//! For rows that no run can settle by itself: those of holders with chunked
//! tiers or units, and all rows where pools hold some of the blocks. Credits are
//! sorted once, so that each holder's lie side by side.

use std::ops::Range;

use crate::member::{Identity, chunk, is_pool, owner};
use crate::tally::{Tiers, join, whole_chunks};

/// Blocks of the query that a member holds.
#[derive(Clone, Debug)]
struct Credit {
    /// The member, see [`Identity::group`].
    group: u64,
    range: Range<u32>,
}

/// What all holders are credited.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    list: Vec<Credit>,
    /// Memory for those of one holder.
    tiers: Tiers,
}

impl Credits {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn push(&mut self, member: Identity, range: Range<u32>) {
        let group = member.group();
        self.list.push(Credit { group, range });
    }

    /// To be called when all are there.
    pub(crate) fn sort(&mut self) {
        let key = |credit: &Credit| (credit.group, credit.range.start);
        self.list.sort_unstable_by_key(key);
    }

    /// The blocks that count for each holder by tier: for the pools, or for all
    /// others.
    pub(crate) fn each(&mut self, pools: bool, mut count: impl FnMut(u32, &Tiers)) {
        let holder = |credit: &Credit| owner(credit.group).0;
        for own in self.list.chunk_by(|a, b| holder(a) == holder(b)) {
            if is_pool(own[0].group) == pools {
                gather(own, &mut self.tiers);
                count(holder(&own[0]), &self.tiers);
            }
        }
    }
}

/// One holder's ranges by tier, sorted and disjoint.
fn gather(credits: &[Credit], tiers: &mut Tiers) {
    tiers.iter_mut().for_each(Vec::clear);
    for alike in credits.chunk_by(|a, b| a.group == b.group) {
        let (_, tier) = owner(alike[0].group);
        let ranges = alike.iter().map(|credit| credit.range.clone());
        match chunk(alike[0].group) {
            0 => tiers[tier].extend(ranges),
            chunk => {
                let mut ranges = ranges.collect();
                join(&mut ranges);
                whole_chunks(&mut ranges, chunk);
                tiers[tier].append(&mut ranges);
            }
        }
    }
    tiers.iter_mut().for_each(join);
}

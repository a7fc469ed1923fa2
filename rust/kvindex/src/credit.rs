//! What holders are credited, from the copies of all claims on the way.
//!
//! For rows that no run can settle by itself: those of holders with chunked
//! tiers, units or several cache groups, and all rows where pools hold some of the
//! blocks. Credits are sorted once, so that each holder's lie side by side.

use std::ops::Range;

use crate::group::GroupId;
use crate::member::{Identity, Role, chunk, group, is_pool, owner};
use crate::tally::{Tiers, join, whole_chunks};

/// Blocks of the query that a member holds.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    /// The member, see [`Identity::alike`].
    member: u64,
    range: Range<u32>,
    /// Whether they count only together.
    whole: bool,
}

impl Credit {
    /// What of it counts where the query ends.
    fn up_to(&self, end: u32) -> Option<Range<u32>> {
        let Range { start, end: last } = self.range;
        let counts = if self.whole { last <= end } else { start < end };
        counts.then(|| start..last.min(end))
    }
}

/// What all holders are credited.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    list: Vec<Credit>,
}

impl Credits {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn push(&mut self, member: Identity, range: Range<u32>) {
        self.list.push(Credit {
            member: member.alike(),
            range,
            whole: member.role == Role::Unit,
        });
    }

    /// To be called when all are there.
    pub(crate) fn sort(&mut self) {
        let key = |credit: &Credit| (credit.member, credit.range.start);
        self.list.sort_unstable_by_key(key);
    }

    /// Those of each holder: of the pools, or of all others.
    pub(crate) fn each(&self, pools: bool) -> impl Iterator<Item = (u32, Own<'_>)> {
        let holder = |credit: &Credit| owner(credit.member).0;
        let all = self
            .list
            .chunk_by(move |a, b| holder(a) == holder(b))
            .filter(move |own| is_pool(own[0].member) == pools);
        all.map(move |own| (holder(&own[0]), Own(own)))
    }

    /// Those of one holder.
    pub(crate) fn of(&self, holder: u32) -> Own<'_> {
        let before = |credit: &Credit| owner(credit.member).0 < holder;
        let own = &self.list[self.list.partition_point(before)..];
        let own = own.split(|credit| owner(credit.member).0 != holder);
        Own(own.into_iter().next().unwrap_or_default())
    }
}

/// What one holder is credited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own<'a>(&'a [Credit]);

impl Own<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The blocks of a cache group that count by tier, where the query has `end`
    /// blocks; sorted and disjoint.
    pub(crate) fn tiers(&self, of: GroupId, end: u32, tiers: &mut Tiers) {
        tiers.iter_mut().for_each(Vec::clear);
        self.each(of, end, |tier, range| tiers[tier].push(range));
        tiers.iter_mut().for_each(join);
    }

    /// Adds the blocks of a cache group that count on any tier, where the query has
    /// `end` blocks.
    pub(crate) fn ranges(&self, of: GroupId, end: u32, ranges: &mut Vec<Range<u32>>) {
        self.each(of, end, |_, range| ranges.push(range));
    }

    /// Gives what counts of a cache group's credits, and on which tier.
    fn each(&self, of: GroupId, end: u32, mut give: impl FnMut(usize, Range<u32>)) {
        let mut chunked = false;
        for credit in self.0.iter().filter(|credit| group(credit.member) == of) {
            if chunk(credit.member) > 0 {
                chunked = true;
            } else if let Some(range) = credit.up_to(end) {
                give(owner(credit.member).1, range);
            }
        }
        if !chunked {
            return;
        }
        // Those of a member make its chunks together.
        for alike in self.0.chunk_by(|a, b| a.member == b.member) {
            let member = alike[0].member;
            let chunk = chunk(member);
            if chunk > 0 && group(member) == of {
                let mut ranges = alike
                    .iter()
                    .filter_map(|credit| credit.up_to(end))
                    .collect();
                join(&mut ranges);
                whole_chunks(&mut ranges, chunk);
                let ranges = ranges.into_iter();
                ranges.for_each(|range| give(owner(member).1, range));
            }
        }
    }
}

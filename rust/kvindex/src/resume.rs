//! From which block can a holder go on?
//!
//! Full attention needs all blocks before that point, a sliding window the last
//! ones, a state-space model the state at the end of the last one. The deepest point
//! at which every cache group has what it needs is found by going back:
//!
//! ```text
//! main group   0 1 2 3 4 5 6    needs all: from 7
//! window       0 1 2 3 . . 6    needs two: not from 7, from 4
//! state        . 1 . . 4 . .    needs one: not from 4, from 2
//! window                        from 2, too
//! ```

use std::ops::Range;

use crate::credit::{Credits, Own};
use crate::found::Row;
use crate::group::{GroupId, MAIN};
use crate::pool::Pools;
use crate::roster::{Names, Reach};
use crate::tally::{Tiers, join};

/// What a holder's row is made from besides its own blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Besides<'a> {
    pub(crate) pools: &'a Pools,
    pub(crate) credits: &'a Credits,
    pub(crate) reach: Reach<'a>,
    /// Leading blocks that are predicted, of every cache group.
    pub(crate) predicted: u32,
    /// What each cache group but the main one needs before the point.
    pub(crate) needs: &'a [u32],
}

impl<'a> Besides<'a> {
    /// That of a holder. Who is not known any more is dropped by the caller.
    pub(crate) fn of(
        holder: u32,
        names: &'a Names,
        pools: &'a Pools,
        credits: &'a Credits,
        predicted: u32,
    ) -> Self {
        let worker = names.get(holder);
        Self {
            pools,
            credits,
            reach: worker.and_then(|(worker, _)| names.reach(worker)),
            predicted,
            needs: names.needs(holder),
        }
    }

    /// The row of a holder, up to where all its cache groups can go on.
    pub(crate) fn row(&self, holder: u32, own: Own<'_>, tiers: &mut Tiers) -> Row {
        if own.is_empty() && self.pools.is_empty() && self.predicted == 0 {
            return Row::new(holder, [0; 4]);
        }
        let mut end = u32::MAX;
        loop {
            own.tiers(MAIN, end, tiers);
            let row = self.pools.row(holder, tiers, end, self);
            end = row.depth();
            let [memory, ..] = tiers;
            for (group, &need) in (MAIN + 1..).zip(self.needs) {
                end = self.resume(own, group, need, end, memory);
            }
            if end == row.depth() {
                return row;
            }
        }
    }

    /// How far each group could go on by itself, `end` or before it, the main one
    /// first.
    pub(crate) fn apart(&self, holder: u32, own: Own<'_>, end: u32) -> Vec<u32> {
        let main = Self {
            needs: &[],
            ..*self
        };
        let main = main.row(holder, own, &mut Tiers::default()).depth();
        let others = (MAIN + 1..).zip(self.needs);
        let others =
            others.map(|(group, &need)| self.resume(own, group, need, end, &mut Vec::new()));
        [main].into_iter().chain(others).collect()
    }

    /// The deepest point, `end` or before it, from which a group can go on.
    fn resume(
        &self,
        own: Own<'_>,
        group: GroupId,
        need: u32,
        end: u32,
        memory: &mut Vec<Range<u32>>,
    ) -> u32 {
        memory.clear();
        memory.push(0..self.predicted.min(end));
        own.ranges(group, end, memory);
        resume(memory, need, end)
    }
}

/// The deepest point, `end` or before it, that has `need` blocks in front of it, or
/// all there are. Ranges lie before `end`.
fn resume(ranges: &mut Vec<Range<u32>>, need: u32, end: u32) -> u32 {
    if need == 0 {
        return end;
    }
    join(ranges);
    let enough = |range: &&Range<u32>| range.start <= range.end.saturating_sub(need);
    let last = ranges.iter().rev().find(enough);
    last.map_or(0, |range| range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = Vec<(u32, u32)>> {
        prop::collection::vec((0_u32..20, 1_u32..6), 0..6)
    }

    proptest! {
        #[test]
        fn test_resume_agrees_with_a_look_at_every_point(
            raw in ranges(),
            need in 0_u32..6,
            end in 0_u32..26,
        ) {
            let cut = raw.iter().map(|&(start, len)| start..(start + len).min(end));
            let ranges: Vec<_> = cut.filter(|range| range.start < range.end).collect();
            let held = |block: u32| ranges.iter().any(|range| range.contains(&block));
            let goes_on = |point: &u32| (point.saturating_sub(need)..*point).all(held);
            let expected = (0..=end).rev().find(goes_on);
            prop_assert_eq!(Some(resume(&mut ranges.clone(), need, end)), expected);
        }
    }
}

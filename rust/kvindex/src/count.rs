//! Counts how many leading blocks each holder holds, run by run.
//!
//! Nearly always a holder has one claim in a run, which begins at the run's
//! first block: it is counted as it is read. Where there are several, for
//! several tiers or because of holes, they are put together at the run's end.

use std::ops::Range;

use crate::claims::Claim;
use crate::event::Tier;
use crate::found::Row;
use crate::member::{Identity, single};
use crate::run::Shared;
use crate::sync::Ordering::Relaxed;
use crate::tally::{Tiers, join, nearest};

/// How a row got what it has in the segment that it was last counted in.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The query's block where the segment begins.
    segment: u32,
    /// What the one claim gave, where there is one.
    gained: u16,
    tier: Tier,
    state: State,
}

/// How a row is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// One claim in this segment, from its start: counted as it was read.
    Simple,
    /// Several claims in this segment: counted at its end.
    Mixed,
    /// Counted at the end of the walk, from the copies of all claims.
    Special,
}

/// Rows that grow as a walk proceeds.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    rows: Vec<Row>,
    /// One a row.
    marks: Vec<Mark>,
    /// Each holder's row, and the walk that it belongs to.
    slots: Vec<(u32, u32)>,
    /// Counts the walks.
    walks: u32,
    /// Rows of the current segment that are counted at its end: the blocks that
    /// they hold from its start, for each tier.
    mixed: Vec<(u32, [u16; 4])>,
    /// Claims of such rows that begin behind the segment's start.
    late: Vec<(u32, Tier, Range<u16>)>,
    /// Whether any row is special.
    special: bool,
    /// Holders that are asked about; empty = all.
    wanted: Vec<bool>,
}

impl Counts {
    /// Asks about these holders only; all numbers are below `bound`.
    pub(crate) fn want(&mut self, bound: usize, holders: impl Iterator<Item = u32>) {
        self.wanted.clear();
        self.wanted.resize(bound.max(1), false);
        for holder in holders {
            self.wanted[holder as usize] = true;
        }
    }

    pub(crate) fn want_all(&mut self) {
        self.wanted.clear();
    }

    /// Begins another walk.
    pub(crate) fn begin(&mut self) {
        let usual = self.rows.len();
        self.rows = Vec::with_capacity(usual);
        self.marks.clear();
        self.special = false;
        self.walks = self.walks.wrapping_add(1);
        if self.walks == 0 {
            // The number was used before: slots may still carry it.
            self.slots.fill((0, 0));
            self.walks = 1;
        }
    }

    /// Counts a segment: a run's claims, of which the first `agreed` blocks are
    /// the query's from `start` on. Returns whether anybody is left.
    pub(crate) fn segment(
        &mut self,
        shared: &Shared,
        words: &[u64],
        (start, agreed): (u32, u16),
        all_special: bool,
    ) -> bool {
        self.mixed.clear();
        self.late.clear();
        let mut left = false;
        let (mut first, mut members) = shared.members.page(0);
        for &word in words {
            let claim = Claim::unpack(word);
            let number = claim.number();
            if number.wrapping_sub(first) as usize >= members.len() {
                (first, members) = shared.members.page(number);
            }
            let member = members[(number - first) as usize].load(Relaxed);
            match single(member) {
                Some((holder, tier)) if !all_special => {
                    if claim.start < agreed && self.is_wanted(holder) {
                        let range = claim.start..claim.end.min(agreed);
                        left |= self.add(start, holder, tier, range) == agreed;
                    }
                }
                _ => self.add_special(member),
            }
        }
        for i in 0..self.mixed.len() {
            self.settle(i);
        }
        if left && self.mixed.is_empty() {
            return true;
        }
        // Nobody can tell yet how far a special row will get.
        let end = start + u32::from(agreed);
        self.special || self.rows.iter().any(|row| row.depth == end)
    }

    fn is_wanted(&self, holder: u32) -> bool {
        self.wanted.is_empty() || self.wanted.get(holder as usize) == Some(&true)
    }

    fn add_special(&mut self, member: u64) {
        let Some(member) = Identity::unpack(member) else {
            return;
        };
        if self.is_wanted(member.holder) {
            let row = self.row(member.holder);
            self.marks[row as usize].state = State::Special;
            self.special = true;
        }
    }

    /// The row of a holder, made where there is none.
    fn row(&mut self, holder: u32) -> u32 {
        if self.slots.len() <= holder as usize {
            self.slots.resize(holder as usize + 1, (0, 0));
        }
        let slot = &mut self.slots[holder as usize];
        if slot.0 != self.walks {
            *slot = (self.walks, self.rows.len() as u32);
            self.rows.push(Row {
                holder,
                ..Row::default()
            });
            self.marks.push(Mark {
                segment: u32::MAX,
                gained: 0,
                tier: Tier::Device,
                state: State::Simple,
            });
        }
        slot.1
    }

    /// Adds the part of a claim that agrees with the query; returns up to which
    /// block of the segment the holder got by this claim alone.
    fn add(&mut self, segment: u32, holder: u32, tier: Tier, range: Range<u16>) -> u16 {
        let number = if segment == 0 {
            self.row(holder)
        } else {
            match self.slots.get(holder as usize) {
                Some(&(walk, row)) if walk == self.walks => row,
                _ => return 0,
            }
        };
        let row = &mut self.rows[number as usize];
        let mark = &mut self.marks[number as usize];
        if mark.segment != segment && row.depth == segment && mark.state != State::Special {
            *mark = Mark {
                segment,
                gained: 0,
                tier,
                state: State::Simple,
            };
            if range.start == 0 {
                mark.gained = range.end;
                row.depth += u32::from(range.end);
                row.tiers[tier as usize] += u32::from(range.end);
                return range.end;
            }
        }
        if mark.segment == segment {
            self.add_further(number, tier, range);
        }
        0
    }

    fn add_further(&mut self, number: u32, tier: Tier, range: Range<u16>) {
        let row = &mut self.rows[number as usize];
        let mark = &mut self.marks[number as usize];
        if mark.state == State::Simple {
            // What was counted as the only claim is taken back.
            row.depth -= u32::from(mark.gained);
            row.tiers[mark.tier as usize] -= u32::from(mark.gained);
            let mut reach = [0; 4];
            reach[mark.tier as usize] = mark.gained;
            mark.state = State::Mixed;
            self.mixed.push((number, reach));
        }
        if range.start > 0 {
            self.late.push((number, tier, range));
            return;
        }
        let mixed = self.mixed.iter_mut().rev();
        for (_, reach) in mixed.filter(|(owner, _)| *owner == number) {
            reach[tier as usize] = range.end;
        }
    }

    /// Counts what a row with several claims gained in a segment.
    fn settle(&mut self, mixed: usize) {
        let (number, reach) = self.mixed[mixed];
        if self.marks[number as usize].state == State::Special {
            return;
        }
        let late = self.late.iter().any(|(owner, ..)| *owner == number);
        let gained = if late {
            with_holes(reach, &self.late, number)
        } else {
            let mut before = 0;
            reach.map(|reach| {
                let more = reach.max(before) - before;
                before += more;
                u32::from(more)
            })
        };
        let row = &mut self.rows[number as usize];
        for (total, blocks) in row.tiers.iter_mut().zip(gained) {
            *total += blocks;
            row.depth += blocks;
        }
    }

    /// The rows of holders with any depth; `special` counts the blocks by tier
    /// of a holder that has to be counted from the copies of all claims.
    pub(crate) fn finish(&mut self, special: impl Fn(u32) -> [u32; 4]) -> Vec<Row> {
        for (row, mark) in self.rows.iter_mut().zip(&self.marks) {
            if mark.state == State::Special {
                row.tiers = special(row.holder);
                row.depth = row.tiers.iter().sum();
            }
        }
        self.rows.retain(|row| row.depth > 0);
        std::mem::take(&mut self.rows)
    }
}

/// What a row gains from claims that begin anywhere in a segment.
fn with_holes(reach: [u16; 4], late: &[(u32, Tier, Range<u16>)], number: u32) -> [u32; 4] {
    let mut tiers = Tiers::default();
    for (ranges, &reach) in tiers.iter_mut().zip(&reach) {
        if reach > 0 {
            ranges.push(0..u32::from(reach));
        }
    }
    for (_, tier, range) in late.iter().filter(|(owner, ..)| *owner == number) {
        tiers[*tier as usize].push(u32::from(range.start)..u32::from(range.end));
    }
    tiers.iter_mut().for_each(join);
    nearest(&tiers)
}

//! Counts how many leading blocks each holder holds, run by run.
//!
//! A row says for each tier how many leading blocks lie on it or on a nearer
//! one, so a claim from a segment's first block on raises the row of its holder
//! to where the claim ends, for its own tier and all farther ones:
//!
//! ```text
//! w3 HOST 0..9 in the segment at block 40     reach   40 40 40 40 -> 40 49 49 49
//! w3 DEVICE 0..4 there                                            -> 44 49 49 49
//! ```
//!
//! Claims that begin later matter where others reach up to them, which is seen
//! at the segment's end.

use std::ops::Range;

use crate::claims::Claim;
use crate::found::{Row, Weights};
use crate::member::{Identity, is_single, owner};
use crate::run::Shared;
use crate::sync::Ordering::Relaxed;
use crate::tally::{Tiers, join, nearest};

/// The mark of a row that no further segment has counted yet.
const NEVER: u32 = u32::MAX;
/// The mark of a row that is counted at the end of the walk, from the copies of
/// all claims.
const SPECIAL: u32 = u32::MAX - 1;

/// Which rows are counted at the end of the walk, from the copies of all claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Special {
    #[default]
    None,
    /// Those that are marked so.
    Some,
    /// All: pools hold some of the blocks.
    All,
}

/// A claim that begins behind its segment's first block.
#[derive(Clone, Debug)]
struct Late {
    row: usize,
    tier: usize,
    range: Range<u16>,
}

/// A stretch of the query that lies in one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// The query's block where it begins.
    pub(crate) start: u32,
    /// Blocks that agree, not 0.
    pub(crate) agreed: u16,
}

/// Rows that grow as a walk proceeds.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Rows, and old ones behind them.
    rows: Vec<Row>,
    /// How many of them there are.
    count: usize,
    /// Where the segment begins that a row was last counted in, and what the row
    /// had reached before it. Rows that only the first segment's usual claims
    /// counted need neither.
    marks: Vec<u32>,
    bases: Vec<[u32; 4]>,
    /// Each holder's row, and the walk that it belongs to.
    slots: Vec<(u32, u32)>,
    /// Counts the walks.
    walks: u32,
    late: Vec<Late>,
    /// Claims of the segment that are counted at its end.
    unusual: Vec<u64>,
    /// Whether any row got claims of several tiers in the segment.
    several: bool,
    special: Special,
    /// Whether any row may have no depth.
    shallow: bool,
    /// The only holders that are asked about; `None` = all.
    wanted: Option<Vec<u32>>,
}

impl Counts {
    /// Asks about these holders only: each has a row, whatever its depth.
    pub(crate) fn want(&mut self, holders: impl Iterator<Item = u32>) {
        let wanted = self.wanted.get_or_insert_default();
        wanted.clear();
        wanted.extend(holders);
    }

    pub(crate) fn want_all(&mut self) {
        self.wanted = None;
    }

    /// Begins another walk.
    pub(crate) fn begin(&mut self) {
        self.count = 0;
        self.marks.clear();
        self.special = Special::None;
        self.shallow = false;
        self.walks = self.walks.wrapping_add(1);
        if self.walks == 0 {
            // The number was used before: slots may still carry it.
            self.slots.fill((0, 0));
            self.walks = 1;
        }
        if let Some(wanted) = self.wanted.take() {
            for &holder in &wanted {
                self.find_or_make(holder);
            }
            self.wanted = Some(wanted);
        }
    }

    /// Counts a segment: a run's claims, whose first blocks are the query's.
    /// Returns whether anybody is left.
    pub(crate) fn segment(
        &mut self,
        shared: &Shared,
        words: &[u64],
        stretch: Stretch,
        all_special: bool,
    ) -> bool {
        self.unusual.clear();
        self.several = false;
        let counted = if all_special {
            self.unusual.extend_from_slice(words);
            false
        } else if stretch.start == 0 && self.wanted.is_none() {
            self.begin_rows(shared, words, stretch.agreed)
        } else {
            self.raise_rows(shared, words, stretch)
        };
        let settled = self.settle(shared, words, stretch, all_special);
        // Nobody can tell yet how far a special row will get.
        counted || settled || self.special > Special::None
    }

    /// Counts the claims of the query's first run; whether any got to its end.
    #[inline(never)]
    fn begin_rows(&mut self, shared: &Shared, words: &[u64], agreed: u16) -> bool {
        // There are rows where something is expected of their holders.
        let before = self.count;
        if self.rows.len() < before + words.len() {
            self.rows.resize(before + words.len(), Row::new(0, [0; 4]));
        }
        // Fields are kept in locals: each write of a row might change them.
        let (walk, mut count, mut left) = (self.walks, before as u32, false);
        let (slots, mut rows) = (&mut self.slots[..], self.rows[before..].iter_mut());
        let (_, members) = shared.members.page(0);
        for (at, &word) in words.iter().enumerate() {
            let claim = Claim::unpack(word);
            let member = members.get(claim.member as usize);
            let member = member.map_or(0, |member| member.load(Relaxed));
            let (holder, tier) = owner(member);
            if let Some(slot) = slots.get_mut(holder as usize)
                && slot.0 != walk
                && claim.start == 0
                && is_single(member)
                && let Some(row) = rows.next()
            {
                *slot = (walk, count);
                *row = Row::single(holder, tier, u32::from(claim.end.min(agreed)));
                left |= claim.end >= agreed;
                count += 1;
            } else if !is_idle(words, at, agreed) {
                self.unusual.push(word);
            }
        }
        self.count = count as usize;
        left
    }

    /// Counts the claims of a further run; whether any got to its end.
    #[inline(never)]
    fn raise_rows(&mut self, shared: &Shared, words: &[u64], stretch: Stretch) -> bool {
        let count = self.count;
        self.make_room(count);
        let (rows, bases) = (&mut self.rows[..count], &mut self.bases[..count]);
        let marks = &mut self.marks[..count];
        let (walk, slots, mut left) = (self.walks, &self.slots[..], false);
        let (_, members) = shared.members.page(0);
        for (at, &word) in words.iter().enumerate() {
            let claim = Claim::unpack(word);
            let member = members.get(claim.member as usize);
            let member = member.map_or(0, |member| member.load(Relaxed));
            if !is_single(member) || claim.start > 0 {
                if !is_idle(words, at, stretch.agreed) {
                    self.unusual.push(word);
                }
                continue;
            }
            let (holder, tier) = owner(member);
            let Some(&(_, number)) = slots.get(holder as usize).filter(|slot| slot.0 == walk)
            else {
                continue;
            };
            let (row, base) = (&mut rows[number as usize], &mut bases[number as usize]);
            let mark = &mut marks[number as usize];
            if *mark == stretch.start {
                self.several = true;
            } else if *mark == SPECIAL || row.own() != stretch.start {
                continue;
            } else {
                *mark = stretch.start;
                *base = row.reach;
            }
            let end = claim.end.min(stretch.agreed);
            row.raise(tier, base, u32::from(end));
            left |= end == stretch.agreed;
        }
        left
    }

    /// Counts what is rare: claims that begin later, second ones of a holder,
    /// the first ones of holders that never had a row, and all that the end of
    /// the walk has to count. Returns whether any got to the end of the segment
    /// by that.
    fn settle(
        &mut self,
        shared: &Shared,
        words: &[u64],
        stretch: Stretch,
        all_special: bool,
    ) -> bool {
        if self.unusual.is_empty() && !self.several {
            return false;
        }
        let unusual = std::mem::take(&mut self.unusual);
        let load = |claim: Claim| shared.members.record(claim.number())[0].load(Relaxed);
        let mut left = false;
        for claim in unusual.iter().map(|&word| Claim::unpack(word)) {
            let member = load(claim);
            let (holder, tier) = owner(member);
            if !is_single(member) || all_special {
                self.mark_special(member, all_special);
            } else if claim.start == 0 {
                let row = if stretch.start == 0 {
                    self.find_or_make(holder)
                } else {
                    self.find(holder)
                };
                if let Some(row) = row.filter(|&row| self.enter(row, stretch)) {
                    let end = claim.end.min(stretch.agreed);
                    self.rows[row].raise(tier, &self.bases[row], u32::from(end));
                    left |= end == stretch.agreed;
                }
            }
        }
        self.late.clear();
        let later = words.iter().map(|&word| Claim::unpack(word));
        for claim in later.filter(|claim| claim.start > 0 && claim.start < stretch.agreed) {
            let member = load(claim);
            let (holder, tier) = owner(member);
            if is_single(member)
                && let Some(row) = self.find(holder)
                && self.enter(row, stretch)
            {
                let range = claim.start..claim.end.min(stretch.agreed);
                self.late.push(Late { row, tier, range });
            }
        }
        self.unusual = unusual;
        self.settle_late(stretch) || left
    }

    /// Lets a row be counted in a segment; whether it got that far.
    fn enter(&mut self, row: usize, stretch: Stretch) -> bool {
        self.make_room(row + 1);
        if self.marks[row] != stretch.start {
            let first = stretch.start == 0;
            let lost = self.rows[row].own() != stretch.start && !first;
            if self.marks[row] == SPECIAL || lost {
                return false;
            }
            self.marks[row] = stretch.start;
            self.bases[row] = if first { [0; 4] } else { self.rows[row].reach };
        }
        true
    }

    fn mark_special(&mut self, member: u64, all_special: bool) {
        let Some(member) = Identity::unpack(member) else {
            return;
        };
        if member.pool {
            // A walk that goes one way counts no pools.
            if !all_special {
                self.special = Special::All;
            }
        } else if let Some(row) = self.find_or_make(member.holder) {
            self.mark(row);
        }
    }

    /// Makes room for the marks and bases of that many rows.
    fn make_room(&mut self, rows: usize) {
        if self.marks.len() < rows {
            self.marks.resize(rows, NEVER);
        }
        if self.bases.len() < rows {
            self.bases.resize(rows, [0; 4]);
        }
    }

    /// The row of a holder in this walk.
    pub(crate) fn find(&self, holder: u32) -> Option<usize> {
        let &(walk, row) = self.slots.get(holder as usize)?;
        (walk == self.walks).then_some(row as usize)
    }

    /// The row of a holder, made where there is none and all are asked about.
    fn find_or_make(&mut self, holder: u32) -> Option<usize> {
        match self.find(holder) {
            None if self.wanted.is_none() => Some(self.make(holder)),
            found => found,
        }
    }

    /// A row without any depth for a holder that has none.
    fn make(&mut self, holder: u32) -> usize {
        if self.slots.len() <= holder as usize {
            self.slots.resize(holder as usize + 1, (0, 0));
        }
        let row = self.count;
        self.slots[holder as usize] = (self.walks, row as u32);
        self.rows.truncate(row);
        self.rows.push(Row::new(holder, [0; 4]));
        self.count += 1;
        self.shallow = true;
        row
    }

    /// Adds what late claims give to rows that reach up to them; whether any got
    /// to the end of the segment by that.
    fn settle_late(&mut self, stretch: Stretch) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let mut late = std::mem::take(&mut self.late);
        // A claim behind a hole, by far the most, adds nothing.
        let joins = |late: &Late| {
            let gained = self.rows[late.row].own() - self.bases[late.row][3];
            u32::from(late.range.start) <= gained && self.marks[late.row] != SPECIAL
        };
        let mut left = false;
        if late.iter().any(joins) {
            late.sort_unstable_by_key(|late| late.row);
            for late in late.chunk_by(|one, other| one.row == other.row) {
                let (row, base) = (late[0].row, self.bases[late[0].row]);
                if self.marks[row] != SPECIAL {
                    let row = &mut self.rows[row];
                    row.reach = with_late(row.reach, base, late);
                    left |= row.own() - base[3] == u32::from(stretch.agreed);
                }
            }
        }
        self.late = late;
        left
    }

    /// Whether any row has to be counted from the copies of all claims.
    pub(crate) fn has_special(&self) -> bool {
        self.special > Special::None
    }

    /// Has all rows counted from credits, and a row for whoever has any.
    pub(crate) fn make_all_special(&mut self) {
        self.special = Special::All;
    }

    /// Whether pools hold some of the blocks, or might.
    pub(crate) fn is_pooled(&self) -> bool {
        self.special == Special::All
    }

    /// Has a holder's row counted from the copies of all claims.
    pub(crate) fn expect(&mut self, holder: u32) {
        if let Some(row) = self.find_or_make(holder) {
            self.mark(row);
        }
    }

    /// Has a row counted from the copies of all claims.
    fn mark(&mut self, row: usize) {
        self.make_room(row + 1);
        self.marks[row] = SPECIAL;
        self.special = self.special.max(Special::Some);
    }

    /// Whether a holder's row is counted from the copies of all claims.
    pub(crate) fn is_special(&self, holder: u32) -> bool {
        match self.find(holder) {
            Some(row) => self.is_pooled() || self.marks.get(row) == Some(&SPECIAL),
            None => self.is_pooled() && self.wanted.is_none(),
        }
    }

    /// Begins the rows anew that are counted from the copies of all claims.
    pub(crate) fn begin_special(&mut self, mut row: impl FnMut(u32) -> Row) {
        self.make_room(self.count);
        let all = self.is_pooled();
        let marked = self.rows[..self.count].iter_mut().zip(&self.marks);
        for (old, _) in marked.filter(|(_, mark)| all || **mark == SPECIAL) {
            *old = row(old.holder);
        }
    }

    /// Sets such a row.
    pub(crate) fn set_special(&mut self, row: Row) {
        if let Some(number) = self.find_or_make(row.holder) {
            self.rows[number] = row;
        }
    }

    /// Drops rows of holders that have nothing, where nobody asked for them.
    pub(crate) fn prune(&mut self) {
        if self.wanted.is_some() {
            self.retain(|row| row.depth() > 0);
        } else if self.shallow || self.has_special() {
            self.retain(|row| row.claimed() > 0);
        }
    }

    /// Drops rows.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Row) -> bool) {
        self.rows.truncate(self.count);
        self.rows.retain(keep);
        self.count = self.rows.len();
    }

    /// The rows.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows[..self.count]
    }

    /// Takes over rows that were counted before, where none here is better.
    pub(crate) fn merge(&mut self, rows: &[Row], weights: &Weights) {
        for row in rows {
            let Some(number) = self.find_or_make(row.holder) else {
                continue;
            };
            let own = &mut self.rows[number];
            let equal = row.depth() == own.depth();
            if row.depth() > own.depth() || (equal && !own.beats(row, weights)) {
                *own = *row;
            }
        }
    }
}

/// Whether a claim adds nothing where its holder has no other tier: it lies
/// behind a hole of its own member, or behind what agrees.
fn is_idle(words: &[u64], at: usize, agreed: u16) -> bool {
    let claim = Claim::unpack(words[at]);
    let follows = at > 0 && Claim::unpack(words[at - 1]).member == claim.member;
    !claim.is_unit() && (claim.start >= agreed || (claim.start > 0 && follows))
}

/// What a row reaches with claims that begin anywhere in a segment.
fn with_late(reach: [u32; 4], base: [u32; 4], late: &[Late]) -> [u32; 4] {
    let mut tiers = Tiers::default();
    let mut at = 0;
    for ((ranges, reach), base) in tiers.iter_mut().zip(reach).zip(base) {
        ranges.push(at..reach - base);
        at = reach - base;
    }
    for late in late {
        let range = u32::from(late.range.start)..u32::from(late.range.end);
        tiers[late.tier].push(range);
    }
    for ranges in &mut tiers {
        ranges.retain(|range| range.start < range.end);
        join(ranges);
    }
    let mut sum = 0;
    let mut gained = nearest(tiers.each_ref().map(Vec::as_slice)).into_iter();
    base.map(|base| {
        sum += gained.next().unwrap_or(0);
        base + sum
    })
}

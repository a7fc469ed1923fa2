//! The reader: which holders hold how many leading blocks, and where.
//!
//! The walk goes from run to run. Of each run it copies the claims and finds
//! out how many of the run's blocks the query agrees with; both are thrown away
//! and read again if the run was written meanwhile. Then the claims carry those
//! holders on that held everything so far.
//!
//! ```text
//! run at block 0    agrees 0..40    w1 DEVICE 0..40   w2 HOST 0..64   w3 DEVICE 0..9
//! run at block 40   agrees 0..12    w1 DEVICE 0..3    w2 HOST 0..12
//! answer            w1 43   w2 52   w3 9
//! ```
//!
//! Most claims begin at the run's first block and are counted as they are read.
//! Holders with claims that do not, and holders of chunked tiers or of units
//! that count only as a whole, are counted from the copies.

use std::ops::Range;
use std::sync::Arc;

use crate::claims::{Claim, partition};
use crate::error::Forked;
use crate::event::Tier;
use crate::found::Row;
use crate::keys::Keys;
use crate::member::{Identity, Role};
use crate::roster::Names;
use crate::run::Shared;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::tally::{Tiers, cascade, join, nearest, whole_chunks};
use crate::version::{self, Patience};

/// A part of the query that lies in one run.
#[derive(Clone, Debug)]
struct Segment {
    /// The query's block where it begins.
    start: u32,
    /// Blocks that agree.
    agreed: u16,
    /// The run's claims, into `Walk::words`.
    words: Range<usize>,
}

/// One holder's count so far.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    row: Row,
    /// The segment that the next two belong to.
    segment: u32,
    /// Blocks held from the segment's start, for each tier.
    reach: [u16; 4],
    /// How it is counted.
    state: State,
}

/// How a tally is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// One claim in this segment, from its start: counted as it was read.
    #[default]
    Simple,
    /// Several claims in this segment: counted at its end.
    Mixed,
    /// Counted at the end of the walk, from the copies of all claims.
    Special,
}

/// Scratch memory of one reader, kept between its queries.
#[derive(Debug, Default)]
pub struct Walk {
    pub(crate) names: Arc<Names>,
    /// Memory for the keys of the next query.
    pub(crate) keys: Vec<u64>,
    words: Vec<u64>,
    segments: Vec<Segment>,
    tallies: Vec<Tally>,
    /// Each holder's tally, and the walk that it belongs to.
    slots: Vec<(u32, u32)>,
    /// Counts the walks.
    walks: u32,
    /// Tallies of the current segment that are counted at its end.
    mixed: Vec<u32>,
    /// Claims of the current segment that begin behind its start.
    late: Vec<(u32, Tier, Range<u16>)>,
    /// Holders that are asked about; empty = all.
    wanted: Vec<bool>,
}

impl Walk {
    /// Asks about these holders only.
    pub(crate) fn want(&mut self, holders: impl Iterator<Item = u32>) {
        self.wanted.clear();
        self.wanted.resize(self.names.bound().max(1), false);
        for holder in holders {
            self.wanted[holder as usize] = true;
        }
    }

    pub(crate) fn want_all(&mut self) {
        self.wanted.clear();
    }

    /// Blocks of the query that the last walk found in the index.
    pub(crate) fn known(&self) -> u32 {
        let last = self.segments.last();
        last.map_or(0, |last| last.start + u32::from(last.agreed))
    }

    /// Walks the query that `keys` holds; the rows are those of holders with
    /// any depth. `exhaustive` = to its end even where nobody is left.
    pub(crate) fn run(
        &mut self,
        shared: &Shared,
        keys: &mut Keys<'_>,
        cascading: bool,
        exhaustive: bool,
        rows: &mut Vec<Row>,
    ) -> Result<(), Forked> {
        self.begin();
        let walked = self.walk(shared, keys, cascading, exhaustive);
        rows.reserve(self.tallies.len());
        for number in 0..self.tallies.len() {
            let mut row = self.tallies[number].row;
            if self.tallies[number].state == State::Special {
                let tiers = self.tiers(shared, row.holder);
                row.tiers = if cascading {
                    cascade(&tiers)
                } else {
                    nearest(&tiers)
                };
                row.depth = row.tiers.iter().sum();
            }
            if row.depth > 0 {
                rows.push(row);
            }
        }
        walked
    }

    fn begin(&mut self) {
        self.words.clear();
        self.segments.clear();
        self.tallies.clear();
        self.walks = self.walks.wrapping_add(1);
        if self.walks == 0 {
            // The number was used before: slots may still carry it.
            self.slots.fill((0, 0));
            self.walks = 1;
        }
    }

    fn walk(
        &mut self,
        shared: &Shared,
        keys: &mut Keys<'_>,
        all_special: bool,
        exhaustive: bool,
    ) -> Result<(), Forked> {
        let (mut at, total) = (0, keys.total());
        let mut patience = Patience::default();
        while at < total {
            let key = keys.get(at);
            let found = shared.heads.find(&shared.arena, key, &shared.process)?;
            let Some(run) = found else { break };
            let Some(segment) = self.read(shared, keys, run, at)? else {
                // The run is another one by now: its first key is elsewhere.
                patience.wait(&shared.process)?;
                continue;
            };
            at += usize::from(segment.agreed);
            let going_on = self.count(shared, &segment, all_special);
            self.segments.push(segment);
            if !(going_on || exhaustive) {
                break;
            }
        }
        Ok(())
    }

    /// Copies a run's claims and finds how far it agrees with the query from
    /// block `at` on; `None` if not at all.
    fn read(
        &mut self,
        shared: &Shared,
        query: &mut Keys<'_>,
        run: u32,
        at: usize,
    ) -> Result<Option<Segment>, Forked> {
        let record = shared.record(run);
        let base = self.words.len();
        let mut patience = Patience::default();
        loop {
            if let Some(before) = version::current(record.version()) {
                self.words.truncate(base);
                let tail = record.tail();
                let parts = record.keys(&shared.arena).zip(record.claims(&shared.arena));
                let agreed = parts.map(|(keys, claims)| {
                    self.words
                        .extend(claims.iter().map(|word| word.load(Relaxed)));
                    agreed(query, keys, tail, at)
                });
                if version::unchanged(record.version(), before) {
                    let agreed = agreed.filter(|&agreed| agreed > 0);
                    return Ok(agreed.map(|agreed| Segment {
                        start: at as u32,
                        agreed: agreed as u16,
                        words: base..self.words.len(),
                    }));
                }
            }
            patience.wait(&shared.process)?;
        }
    }

    /// Counts one segment; whether anybody is left.
    fn count(&mut self, shared: &Shared, segment: &Segment, all_special: bool) -> bool {
        self.mixed.clear();
        self.late.clear();
        let (mut special, mut left) = (false, false);
        let (mut first, mut members) = shared.members.page(0);
        for i in segment.words.clone() {
            let claim = Claim::unpack(self.words[i]);
            let number = claim.number();
            if number.wrapping_sub(first) as usize >= members.len() {
                (first, members) = shared.members.page(number);
            }
            let member = members[(number - first) as usize].load(Relaxed);
            let Some(member) = Identity::unpack(member) else {
                continue;
            };
            if !self.wanted.is_empty() && !self.is_wanted(member.holder) {
                continue;
            }
            if all_special || member.role != Role::Plain || member.chunk > 0 {
                let tally = self.tally(member.holder);
                self.tallies[tally as usize].state = State::Special;
                special = true;
            } else if claim.start < segment.agreed {
                let end = claim.end.min(segment.agreed);
                self.add(segment.start, member, claim.start..end);
                left |= end == segment.agreed;
            }
        }
        for i in 0..self.mixed.len() {
            self.settle(self.mixed[i], segment.start);
        }
        if special || !self.mixed.is_empty() || !left {
            let end = segment.start + u32::from(segment.agreed);
            // Nobody can tell yet how far a special holder will get.
            let going_on = |tally: &Tally| tally.state == State::Special || tally.row.depth == end;
            return self.tallies.iter().any(going_on);
        }
        left
    }

    fn is_wanted(&self, holder: u32) -> bool {
        self.wanted.get(holder as usize).copied().unwrap_or(false)
    }

    /// The tally that a holder has.
    fn known_tally(&self, holder: u32) -> Option<u32> {
        let &(walk, tally) = self.slots.get(holder as usize)?;
        (walk == self.walks).then_some(tally)
    }

    /// The tally of a holder, made where there is none.
    fn tally(&mut self, holder: u32) -> u32 {
        if let Some(tally) = self.known_tally(holder) {
            return tally;
        }
        if self.slots.len() <= holder as usize {
            self.slots.resize(holder as usize + 1, (0, 0));
        }
        let tally = self.tallies.len() as u32;
        self.slots[holder as usize] = (self.walks, tally);
        self.tallies.push(Tally {
            row: Row {
                holder,
                ..Row::default()
            },
            segment: u32::MAX,
            ..Tally::default()
        });
        tally
    }

    /// Adds the part of a claim that agrees with the query.
    fn add(&mut self, segment: u32, member: Identity, range: Range<u16>) {
        let number = if segment == 0 {
            self.tally(member.holder)
        } else {
            let Some(number) = self.known_tally(member.holder) else {
                return;
            };
            number
        };
        let tally = &mut self.tallies[number as usize];
        let tier = member.tier as usize;
        if tally.segment != segment {
            if tally.row.depth != segment || tally.state == State::Special {
                return;
            }
            tally.segment = segment;
            tally.reach = [0; 4];
            tally.state = State::Simple;
            if range.start == 0 {
                tally.reach[tier] = range.end;
                tally.row.tiers[tier] += u32::from(range.end);
                tally.row.depth += u32::from(range.end);
                return;
            }
        }
        if tally.state == State::Simple {
            // What was counted as the only claim is taken back.
            for (total, reach) in tally.row.tiers.iter_mut().zip(tally.reach) {
                *total -= u32::from(reach);
            }
            tally.row.depth = segment;
            tally.state = State::Mixed;
            self.mixed.push(number);
        }
        if range.start == 0 {
            tally.reach[tier] = range.end;
        } else {
            self.late.push((number, member.tier, range));
        }
    }

    /// Counts what a tally with several claims gained in a segment.
    fn settle(&mut self, number: u32, segment: u32) {
        let tally = &mut self.tallies[number as usize];
        debug_assert_eq!(tally.segment, segment, "it was added to");
        if tally.state == State::Special {
            return;
        }
        let late = self.late.iter().any(|(owner, ..)| *owner == number);
        let gained = if late {
            with_holes(tally.reach, &self.late, number)
        } else {
            let mut before = 0;
            tally.reach.map(|reach| {
                let more = reach.max(before) - before;
                before += more;
                u32::from(more)
            })
        };
        for (total, blocks) in tally.row.tiers.iter_mut().zip(gained) {
            *total += blocks;
            tally.row.depth += blocks;
        }
    }

    /// The blocks of the query that count for a holder, for each tier, from the
    /// copies of all claims on the way.
    fn tiers(&self, shared: &Shared, holder: u32) -> Tiers {
        // Units and single blocks of a chunked tier make its chunks together.
        let mut groups = Vec::<(_, Vec<_>)>::new();
        for (member, range) in self.claims(shared, holder) {
            let group = (member.tier, member.chunk);
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, ranges)) => ranges.push(range),
                None => groups.push((group, vec![range])),
            }
        }
        let mut tiers = Tiers::default();
        for ((tier, chunk), mut ranges) in groups {
            join(&mut ranges);
            if chunk > 0 {
                whole_chunks(&mut ranges, chunk);
            }
            tiers[tier as usize].append(&mut ranges);
        }
        tiers.iter_mut().for_each(join);
        tiers
    }

    /// What a holder's claims of the last walk credit, in blocks of the query.
    fn claims(&self, shared: &Shared, holder: u32) -> impl Iterator<Item = (Identity, Range<u32>)> {
        let claims = self.segments.iter().flat_map(move |segment| {
            let words = self.words[segment.words.clone()].iter();
            words.map(move |&word| (segment, Claim::unpack(word)))
        });
        claims.filter_map(move |(segment, claim)| {
            let member = shared.members.record(claim.number())[0].load(Relaxed);
            let member = Identity::unpack(member).filter(|member| member.holder == holder)?;
            let range = match member.role {
                Role::Shadow => return None,
                Role::Unit if claim.end > segment.agreed => return None,
                Role::Unit => {
                    let end = segment.start + u32::from(claim.end);
                    end.saturating_sub(u32::from(claim.start))..end
                }
                Role::Plain => {
                    let end = claim.end.min(segment.agreed);
                    segment.start + u32::from(claim.start)..segment.start + u32::from(end)
                }
            };
            (range.start < range.end).then_some((member, range))
        })
    }

    /// On which tiers a holder holds each known block of the last walk, counted
    /// or not: a bit a tier.
    pub(crate) fn held(&self, shared: &Shared, holder: u32) -> Vec<u8> {
        let mut held = vec![0; self.known() as usize];
        for segment in &self.segments {
            for &word in &self.words[segment.words.clone()] {
                let claim = Claim::unpack(word);
                let member = shared.members.record(claim.number())[0].load(Relaxed);
                let Some(member) = Identity::unpack(member) else {
                    continue;
                };
                let range = claim.range();
                let start = segment.start + u32::from(range.start);
                let end = segment.start + u32::from(range.end.min(segment.agreed));
                if member.holder == holder {
                    for block in start..end {
                        held[block as usize] |= 1 << member.tier as u8;
                    }
                }
            }
        }
        held
    }
}

/// What a tally gains from claims that begin anywhere in a segment.
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

/// How many of a run's keys agree with the query from block `at` on. Equal keys
/// mean equal prefixes, so the last one that can be compared decides; the run's
/// last one is at hand without a look at the others.
fn agreed(query: &mut Keys<'_>, keys: &[AtomicU64], tail: u64, at: usize) -> usize {
    let limit = keys.len().min(query.total() - at);
    let mut agreed = 0;
    while agreed < limit {
        let end = limit.min(query.reach(at + agreed + 1) - at);
        let last = if end == keys.len() {
            tail
        } else {
            keys[end - 1].load(Relaxed)
        };
        if last != query.known(at + end - 1) {
            let same = |i: usize| keys[agreed + i].load(Relaxed) == query.known(at + agreed + i);
            return agreed + partition(end - 1 - agreed, same);
        }
        agreed = end;
    }
    agreed
}

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
//! Holders of chunked tiers, of units that count only as a whole or of several
//! cache groups are counted from the copies at the end, and so is everybody where
//! pools hold some of the blocks; see `count` for all others.

use std::ops::Range;
use std::sync::Arc;

use crate::claims::{Claim, partition};
use crate::count::{Counts, Stretch};
use crate::credit::{Credits, Own};
use crate::error::Forked;
use crate::found::{Explanation, Row};
use crate::group::MAIN;
use crate::keys::Keys;
use crate::member::{Identity, Role};
use crate::pool::Pools;
use crate::resume::Besides;
use crate::roster::{Names, Reach, Roster};
use crate::run::Shared;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::tally::{Tiers, cascade};
use crate::version::{self, Patience};

/// A part of the query that lies in one run.
#[derive(Clone, Debug)]
struct Segment {
    stretch: Stretch,
    /// The run's claims, into `Walk::words`.
    words: Range<usize>,
}

impl Segment {
    fn end(&self) -> u32 {
        self.stretch.start + u32::from(self.stretch.agreed)
    }
}

/// How a query is walked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Whether its keys are those of pairs.
    pub(crate) pairs: bool,
    pub(crate) cascading: bool,
    /// Whether to its end even where nobody is left.
    pub(crate) exhaustive: bool,
}

/// Scratch memory of one reader, kept between its queries.
#[derive(Debug, Default)]
pub struct Walk {
    pub(crate) names: Arc<Names>,
    /// Memory for the keys of the next query.
    pub(crate) keys: Vec<u64>,
    words: Vec<u64>,
    segments: Vec<Segment>,
    pub(crate) counts: Counts,
    pub(crate) credits: Credits,
    /// Memory for the blocks of one holder.
    tiers: Tiers,
    /// What pools hold: by single blocks, and by pairs.
    pools: [Pools; 2],
    /// Whether they hold anything of the query.
    pooled: bool,
    /// The pools that hold any leading blocks, and how many.
    pub(crate) depths: Vec<(u32, u32)>,
    /// Who is expected to hold any leading blocks, and how many; by holder.
    predicted: Vec<(u32, u32)>,
    /// Memory for the walk that finds that out.
    other: Option<Box<Walk>>,
    /// The rows of candidates, in their order.
    pub(crate) chosen: Vec<Row>,
}

impl Walk {
    /// Blocks of the query that the last walk found in the index.
    pub(crate) fn known(&self) -> u32 {
        self.segments.iter().map(Segment::end).max().unwrap_or(0)
    }

    /// Begins another query.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.predicted.clear();
        if self.pooled {
            self.forget_pools();
        }
    }

    #[cold]
    fn forget_pools(&mut self) {
        self.pooled = false;
        self.pools.iter_mut().for_each(Pools::clear);
        self.depths.clear();
    }

    /// Walks the query that `keys` holds, and `others` by keys of other families,
    /// and counts its rows.
    #[inline]
    pub(crate) fn run(
        &mut self,
        shared: &Shared,
        roster: &Roster,
        keys: &mut Keys<'_>,
        others: &mut [Keys<'_>],
        how: How,
    ) -> Result<(), Forked> {
        self.words.clear();
        self.segments.clear();
        self.counts.begin();
        if self.pooled {
            self.pools[usize::from(how.pairs)].clear();
        }
        // Blocks of another family may go on where these end.
        let how_far = How {
            exhaustive: how.exhaustive || !others.is_empty(),
            ..how
        };
        if !(how.pairs || self.predicted.is_empty()) {
            self.expect();
        }
        self.walk(shared, keys, how_far)?;
        for keys in others {
            self.walk_others(shared, keys)?;
        }
        if self.counts.has_special() {
            self.finish(shared, roster, how);
        }
        Ok(())
    }

    /// Has rows counted from credits that predictions may add to.
    #[cold]
    fn expect(&mut self) {
        for &(holder, _) in &self.predicted {
            self.counts.expect(holder);
        }
    }

    /// Finds who is expected to hold any leading blocks.
    pub(crate) fn predict(
        &mut self,
        shared: &Shared,
        roster: &Roster,
        keys: &mut Keys<'_>,
    ) -> Result<(), Forked> {
        let mut other = self.other.take().unwrap_or_default();
        let done = other.run(shared, roster, keys, &mut [], How::default());
        let rows = other.counts.rows().iter();
        let rows = rows.map(|row| (row.holder, row.depth()));
        self.predicted.clear();
        self.predicted.extend(rows.filter(|row| row.1 > 0));
        self.predicted.sort_unstable();
        self.other = Some(other);
        done
    }

    /// Counts what no run could settle by itself.
    #[inline(never)]
    fn finish(&mut self, shared: &Shared, roster: &Roster, how: How) {
        let mut credits = std::mem::take(&mut self.credits);
        self.gather(shared, &mut credits);
        self.credits = credits;
        roster.refresh(&mut self.names);
        self.settle(usize::from(how.pairs), how.cascading);
    }

    /// Counts rows from credits alone, whoever has any.
    pub(crate) fn count_credits(&mut self, cascading: bool) {
        self.counts.begin();
        self.counts.make_all_special();
        self.settle(0, cascading);
    }

    /// Counts the rows of all that have credits, and what pools hold in the walk
    /// of one kind of keys.
    fn settle(&mut self, kind: usize, cascading: bool) {
        self.credits.sort();
        let (credits, names) = (&self.credits, &self.names);
        let (pools, counts) = (&mut self.pools[kind], &mut self.counts);
        if !cascading {
            for (pool, own) in credits.each(true) {
                pools.add(pool, own);
            }
            self.pooled |= !pools.is_empty();
        }
        let predicted = predicted_in(kind, &self.predicted);
        let tiers = &mut self.tiers;
        let mut row = |holder, own: Own<'_>| {
            if cascading {
                own.tiers(MAIN, u32::MAX, tiers);
                return Row::new(holder, cascade(tiers));
            }
            let predicted = expected(predicted, holder);
            let besides = Besides::of(holder, names, pools, credits, predicted);
            besides.row(holder, own, tiers)
        };
        counts.begin_special(|holder| row(holder, Own::default()));
        for (holder, own) in credits.each(false) {
            counts.set_special(row(holder, own));
        }
    }

    /// How far each cache group of a holder could go on by itself, the main one
    /// first; empty where there is but one. `kind` is that of the last walk's keys.
    pub(crate) fn apart(&self, kind: usize, holder: u32, blocks: u32) -> Vec<u32> {
        if self.names.needs(holder).is_empty() || !self.counts.has_special() {
            return Vec::new();
        }
        let predicted = predicted_in(kind, &self.predicted);
        let (names, pools, credits) = (&self.names, &self.pools[kind], &self.credits);
        let predicted = expected(predicted, holder);
        let besides = Besides::of(holder, names, pools, credits, predicted);
        besides.apart(holder, credits.of(holder), blocks)
    }

    /// How many leading blocks pools hold for a worker.
    pub(crate) fn shared(&self, worker: &str) -> u32 {
        let reach = self.names.reach(worker);
        let depths = self.pools.iter().map(|pools| pools.depth(reach));
        depths.fold(0, u32::max)
    }

    /// Notes how many leading blocks each pool holds.
    #[inline]
    pub(crate) fn note_depths(&mut self) {
        if self.pooled {
            self.find_depths();
        }
    }

    #[cold]
    fn find_depths(&mut self) {
        for (pool, depth) in self.pools.iter().flat_map(Pools::depths) {
            match self.depths.iter_mut().find(|known| known.0 == pool) {
                Some(known) => known.1 = known.1.max(depth),
                None => self.depths.push((pool, depth)),
            }
        }
    }

    #[inline]
    fn walk(&mut self, shared: &Shared, keys: &mut Keys<'_>, how: How) -> Result<(), Forked> {
        let mut at = self.known() as usize;
        while let Some(segment) = self.next(shared, keys, at)? {
            at = segment.end() as usize;
            let words = &self.words[segment.words.clone()];
            let counts = &mut self.counts;
            let going_on = counts.segment(shared, words, segment.stretch, how.cascading);
            self.segments.push(segment);
            if !(going_on || how.exhaustive) {
                break;
            }
        }
        Ok(())
    }

    /// Walks a query by keys of another family: nothing is counted on the way, and
    /// all at the end where anything was found.
    #[cold]
    fn walk_others(&mut self, shared: &Shared, keys: &mut Keys<'_>) -> Result<(), Forked> {
        let (before, mut at) = (self.segments.len(), 0);
        // Behind a gap that nobody fills nothing counts.
        let filled = if keys.have_gaps() {
            let predicted = self.predicted.iter().map(|row| row.1);
            predicted.fold(self.known(), u32::max)
        } else {
            0
        };
        loop {
            if let Some(segment) = self.next(shared, keys, at)? {
                at = segment.end() as usize;
                self.segments.push(segment);
            } else if at < filled as usize {
                at += 1;
            } else {
                break;
            }
        }
        if self.segments.len() > before {
            self.counts.make_all_special();
        }
        Ok(())
    }

    /// Reads the run that goes on with the query's block `at`; `None` where the
    /// query ends, and where there is none.
    #[inline]
    fn next(
        &mut self,
        shared: &Shared,
        keys: &mut Keys<'_>,
        at: usize,
    ) -> Result<Option<Segment>, Forked> {
        let mut patience = Patience::default();
        while at < keys.total() {
            let key = keys.get(at);
            let found = shared.heads.find(&shared.arena, key, &shared.process)?;
            let Some(run) = found else { break };
            let segment = self.read(shared, keys, run, at)?;
            if segment.is_some() {
                return Ok(segment);
            }
            // The run is another one by now: its first key is elsewhere.
            patience.wait(&shared.process)?;
        }
        Ok(None)
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
                let parts = record
                    .blocks(&shared.arena)
                    .zip(record.claims(&shared.arena));
                let agreed = parts.map(|(blocks, claims)| {
                    self.words
                        .extend(claims.iter().map(|word| word.load(Relaxed)));
                    agreed(query, blocks, tail, at)
                });
                if version::unchanged(record.version(), before) {
                    let agreed = agreed.filter(|&agreed| agreed > 0);
                    return Ok(agreed.map(|agreed| Segment {
                        stretch: Stretch {
                            start: at as u32,
                            agreed: agreed as u16,
                        },
                        words: base..self.words.len(),
                    }));
                }
            }
            patience.wait(&shared.process)?;
        }
    }

    /// What the claims of the last walk credit the holders that are counted from
    /// them, and the pools, in blocks of the query.
    fn gather(&self, shared: &Shared, credits: &mut Credits) {
        credits.clear();
        for (stretch, claim, member) in self.claims(shared) {
            let range = credited(stretch, claim, member.role);
            if range.start < range.end && self.is_counted(member) {
                credits.push(member, range);
            }
        }
    }

    /// The claims of the last walk that still count, and whose they are.
    fn claims(&self, shared: &Shared) -> impl Iterator<Item = (Stretch, Claim, Identity)> {
        let claims = self.segments.iter().flat_map(|segment| {
            let words = self.words[segment.words.clone()].iter();
            words.map(|&word| (segment.stretch, Claim::unpack(word)))
        });
        claims.filter_map(|(stretch, claim)| {
            let member = shared.members.record(claim.number())[0].load(Relaxed);
            Some((stretch, claim, Identity::unpack(member)?))
        })
    }

    fn is_counted(&self, member: Identity) -> bool {
        if member.pool {
            self.counts.is_pooled()
        } else {
            self.counts.is_special(member.holder)
        }
    }

    /// On which tiers a holder holds each known block of the last walk, counted
    /// or not, and whether a pool does that it reaches: a bit each.
    pub(crate) fn held(&self, shared: &Shared, holder: Option<u32>, reach: Reach<'_>) -> Vec<u8> {
        let mut held = vec![0; self.known() as usize];
        for (stretch, claim, member) in self.claims(shared) {
            if member.group != MAIN {
                continue;
            }
            let bit = if member.pool {
                let reached = reach.is_none_or(|pools| pools.contains(&member.holder));
                u8::from(reached) * Explanation::SHARED
            } else {
                u8::from(holder == Some(member.holder)) << member.tier as u8
            };
            let range = claim.range();
            let start = stretch.start + u32::from(range.start);
            let end = stretch.start + u32::from(range.end.min(stretch.agreed));
            for block in start..end {
                held[block as usize] |= bit;
            }
        }
        held
    }
}

/// What counts of predictions in the walk of one kind of keys: prompts of pairs
/// are predicted by single blocks.
fn predicted_in(kind: usize, predicted: &[(u32, u32)]) -> &[(u32, u32)] {
    if kind == 0 { predicted } else { &[] }
}

fn expected(predicted: &[(u32, u32)], holder: u32) -> u32 {
    let at = predicted.binary_search_by_key(&holder, |row| row.0);
    at.map_or(0, |at| predicted[at].1)
}

/// The blocks of the query that a claim credits its holder.
fn credited(stretch: Stretch, claim: Claim, role: Role) -> Range<u32> {
    let end = stretch.start + u32::from(claim.end);
    match role {
        Role::Shadow => 0..0,
        Role::Unit if claim.end > stretch.agreed => 0..0,
        Role::Unit => end.saturating_sub(u32::from(claim.start))..end,
        Role::Plain | Role::Paged => {
            let agreed = stretch.start + u32::from(stretch.agreed);
            stretch.start + u32::from(claim.start)..end.min(agreed)
        }
    }
}

/// How many of a run's keys agree with the query from block `at` on. Equal keys
/// mean equal prefixes, so the last one that can be compared decides; the run's
/// last one is at hand without a look at the others.
fn agreed(query: &mut Keys<'_>, blocks: &[AtomicU64], tail: u64, at: usize) -> usize {
    let length = blocks.len() / 2;
    let limit = length.min(query.total() - at);
    let key = |block: usize| blocks[block * 2].load(Relaxed);
    let mut agreed = 0;
    while agreed < limit {
        let end = limit.min(query.reach(at + agreed + 1) - at);
        let last = if end == length { tail } else { key(end - 1) };
        if last != query.known(at + end - 1) {
            let same = |i: usize| key(agreed + i) == query.known(at + agreed + i);
            return agreed + partition(end - 1 - agreed, same);
        }
        agreed = end;
    }
    agreed
}

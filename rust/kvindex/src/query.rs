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
//! Holders of chunked tiers or of units that count only as a whole are counted
//! from the copies at the end; see `count` for all others.

use std::ops::Range;
use std::sync::Arc;

use crate::claims::{Claim, partition};
use crate::count::{Counts, Stretch};
use crate::error::Forked;
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
    stretch: Stretch,
    /// The run's claims, into `Walk::words`.
    words: Range<usize>,
}

impl Segment {
    fn end(&self) -> u32 {
        self.stretch.start + u32::from(self.stretch.agreed)
    }
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
    /// The rows of candidates, in their order.
    pub(crate) chosen: Vec<Row>,
}

impl Walk {
    /// Blocks of the query that the last walk found in the index.
    pub(crate) fn known(&self) -> u32 {
        self.segments.last().map_or(0, Segment::end)
    }

    /// Walks the query that `keys` holds and counts its rows. `exhaustive` = to
    /// its end even where nobody is left.
    pub(crate) fn run(
        &mut self,
        shared: &Shared,
        keys: &mut Keys<'_>,
        cascading: bool,
        exhaustive: bool,
    ) -> Result<(), Forked> {
        self.words.clear();
        self.segments.clear();
        self.counts.begin();
        self.walk(shared, keys, cascading, exhaustive)?;
        if self.counts.has_special() {
            let mut counts = std::mem::take(&mut self.counts);
            counts.finish(|holder| {
                let tiers = self.tiers(shared, holder);
                if cascading {
                    cascade(&tiers)
                } else {
                    nearest(&tiers)
                }
            });
            self.counts = counts;
        }
        Ok(())
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
            at = segment.end() as usize;
            let words = &self.words[segment.words.clone()];
            let counts = &mut self.counts;
            let going_on = counts.segment(shared, words, segment.stretch, all_special);
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
            words.map(move |&word| (segment.stretch, Claim::unpack(word)))
        });
        claims.filter_map(move |(stretch, claim)| {
            let member = shared.members.record(claim.number())[0].load(Relaxed);
            let member = Identity::unpack(member).filter(|member| member.holder == holder)?;
            let range = match member.role {
                Role::Shadow => return None,
                Role::Unit if claim.end > stretch.agreed => return None,
                Role::Unit => {
                    let end = stretch.start + u32::from(claim.end);
                    end.saturating_sub(u32::from(claim.start))..end
                }
                Role::Plain => {
                    let end = claim.end.min(stretch.agreed);
                    stretch.start + u32::from(claim.start)..stretch.start + u32::from(end)
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
                let (range, stretch) = (claim.range(), segment.stretch);
                let start = stretch.start + u32::from(range.start);
                let end = stretch.start + u32::from(range.end.min(stretch.agreed));
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

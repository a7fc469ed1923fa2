//! How a query is answered: the walks that it takes, and the rows that come of
//! them.

use std::collections::BTreeSet;

use crate::error::Forked;
use crate::event::Name;
use crate::found::{Blocks, Candidate, Found, Options, Row};
use crate::index::Index;
use crate::keys::Keys;
use crate::namespace::Family;
use crate::query::{How, Walk};
use crate::sync::{AtomicU64, Ordering, fence};

/// A query that was spoiled so often waits for the writer.
const MAX_SPOILED: u32 = 16;

impl Index {
    /// Who holds how many of these blocks; the answer lies in the walk.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn find<'a>(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        walk: &'a mut Walk,
    ) -> Result<Found<'a>, Forked> {
        for tries in 0.. {
            // A number that is given out again spoils a walk, and so could many.
            let still = (tries >= MAX_SPOILED).then(|| self.write()).transpose()?;
            // ORDERING: Acquire pairs with the Release where a holder's number
            // is given out again.
            let before = self.shared.reuse.load(Ordering::Acquire);
            self.want(options, walk);
            self.walk(blocks, options, walk)?;
            let changed = options.candidates.is_none() && self.roster.refresh(&mut walk.names);
            // Names were looked at before to count special rows.
            if changed || (options.candidates.is_none() && walk.counts.has_special()) {
                let names = &walk.names;
                let is_known = |row: &Row| names.get(row.holder).is_some();
                walk.counts.retain(is_known);
            }
            // ORDERING: pairs with the Release fence where a member's or a
            // holder's number is given out again: if a claim or a name was taken
            // for a later owner's, the load below sees that.
            fence(Ordering::Acquire);
            if still.is_some() || self.shared.reuse.load(Ordering::Relaxed) == before {
                break;
            }
        }
        Ok(answer(options, walk))
    }

    /// Tells a walk who is asked about.
    fn want(&self, options: &Options<'_>, walk: &mut Walk) {
        let Some(candidates) = options.candidates else {
            walk.counts.want_all();
            return;
        };
        self.roster.refresh(&mut walk.names);
        let names = &walk.names;
        let holders = candidates.iter().flat_map(|candidate| {
            let ranks = names.ranks(&candidate.worker).iter();
            let asked = |rank: u32| candidate.rank.is_none_or(|asked| asked == rank);
            ranks
                .filter(move |(rank, _)| asked(*rank))
                .map(|&(_, holder)| holder)
        });
        walk.counts.want(holders);
    }

    fn walk(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        walk: &mut Walk,
    ) -> Result<(), Forked> {
        walk.begin();
        if self.is_plain() {
            let how = How {
                cascading: options.cascade,
                ..How::default()
            };
            let mut keys = self.keys(blocks, false, walk);
            let done = walk.run(&self.shared, &self.roster, &mut keys, &mut [], how);
            walk.keys = keys.into_scratch();
            return done;
        }
        self.walk_kinds(blocks, options, walk)
    }

    /// Whether all blocks are keyed by their tokens alone, and nothing is
    /// predicted: a query is walked once.
    fn is_plain(&self) -> bool {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let [_, pairs, flexkv, sglang] = &self.shared.families;
        load(pairs) | load(flexkv) | load(sglang) | load(&self.predicted.blocks) == 0
    }

    /// The keys of a query, in the walk's memory.
    fn keys<'b>(&self, blocks: &Blocks<'b>, pairs: bool, walk: &mut Walk) -> Keys<'b> {
        let scratch = std::mem::take(&mut walk.keys);
        Keys::new(blocks, self.config().block_size as usize, pairs, scratch)
    }

    /// Walks a query for each family of keys, and for what is predicted.
    #[cold]
    fn walk_kinds(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        walk: &mut Walk,
    ) -> Result<(), Forked> {
        self.walk_kind(blocks, options, false, walk)?;
        if self.lives(Family::Pair) && blocks.prompt().is_some() {
            self.walk_pairs(blocks, options, walk)?;
        }
        Ok(())
    }

    /// Walks a query once more by the keys of pairs; the better rows stay.
    #[cold]
    fn walk_pairs(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        walk: &mut Walk,
    ) -> Result<(), Forked> {
        let mut rows = walk.counts.rows().to_vec();
        let pooled = walk.counts.is_pooled();
        self.walk_kind(blocks, options, true, walk)?;
        if options.candidates.is_none() && (pooled || walk.counts.is_pooled()) {
            // Pools count in both walks for whoever has a row by either.
            let found = rows.iter().chain(walk.counts.rows());
            let found = found.filter(|row| row.claimed() > 0).map(|row| row.holder);
            let found: BTreeSet<u32> = found.collect();
            walk.counts.want(found.into_iter());
            self.walk_kind(blocks, options, false, walk)?;
            rows = walk.counts.rows().to_vec();
            self.walk_kind(blocks, options, true, walk)?;
        }
        walk.counts.merge(&rows, &options.weights);
        Ok(())
    }

    /// Whether anybody holds blocks of a family of keys.
    fn lives(&self, family: Family) -> bool {
        self.shared.families[family as usize].load(Ordering::Relaxed) > 0
    }

    /// Walks a query by its keys, and by those of the families that count together
    /// with single blocks.
    pub(crate) fn run(
        &self,
        blocks: &Blocks<'_>,
        keys: &mut Keys<'_>,
        how: How,
        walk: &mut Walk,
    ) -> Result<(), Forked> {
        let families = [Family::FlexKv, Family::Sglang];
        let alive = |family: &Family| !how.pairs && self.lives(*family);
        let size = self.config().block_size as usize;
        let others = families.into_iter().filter(alive);
        let others = others.filter_map(|family| Keys::named(blocks, size, family));
        let mut others: Vec<Keys<'_>> = others.collect();
        walk.run(&self.shared, &self.roster, keys, &mut others, how)
    }

    /// Finds who is expected to hold any of the query, where anybody is.
    #[inline]
    pub(crate) fn expect(&self, keys: &mut Keys<'_>, walk: &mut Walk) -> Result<(), Forked> {
        if self.predicted.blocks.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        walk.predict(&self.predicted, &self.roster, keys)
    }

    fn walk_kind(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        pairs: bool,
        walk: &mut Walk,
    ) -> Result<(), Forked> {
        let mut keys = self.keys(blocks, pairs, walk);
        let how = How {
            pairs,
            cascading: options.cascade,
            exhaustive: false,
        };
        if !pairs && !options.cascade {
            self.expect(&mut keys, walk)?;
        }
        let done = self.run(blocks, &mut keys, how, walk);
        walk.keys = keys.into_scratch();
        done
    }

    /// Who holds how many leading ones of these names: the blocks that a holder
    /// itself holds under them. Waits for the writer; the answer lies in the
    /// walk.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn find_names<'a>(
        &self,
        names: &[Name],
        options: &Options<'_>,
        walk: &'a mut Walk,
    ) -> Result<Found<'a>, Forked> {
        let mut writer = self.write()?;
        writer.credit_names(names, &mut walk.credits);
        self.roster.refresh(&mut walk.names);
        self.want(options, walk);
        walk.begin();
        walk.count_credits(options.cascade);
        Ok(answer(options, walk))
    }
}

/// The rows of a walk: one a holder, or one a candidate in order.
fn answer<'a>(options: &Options<'_>, walk: &'a mut Walk) -> Found<'a> {
    walk.note_depths();
    let Some(candidates) = options.candidates else {
        walk.counts.prune();
        return Found {
            rows: walk.counts.rows(),
            names: &walk.names,
            pools: (!options.cascade).then_some(&walk.depths),
        };
    };
    let mut chosen = std::mem::take(&mut walk.chosen);
    chosen.clear();
    let (names, counts) = (&walk.names, &walk.counts);
    let pick = |candidate: &Candidate| {
        let ranks = names.ranks(&candidate.worker).iter();
        let asked = ranks.filter(|(rank, _)| candidate.rank.is_none_or(|asked| asked == *rank));
        let rows = asked.filter_map(|&(_, holder)| Some(counts.rows()[counts.find(holder)?]));
        let best = |best: Row, row: Row| {
            if row.beats(&best, &options.weights) {
                row
            } else {
                best
            }
        };
        let nothing = || Row::default().sharing(walk.shared(&candidate.worker));
        rows.reduce(best).unwrap_or_else(nothing)
    };
    chosen.extend(candidates.iter().map(pick));
    walk.chosen = chosen;
    Found {
        rows: &walk.chosen,
        names: &walk.names,
        pools: (!options.cascade).then_some(&walk.depths),
    }
}

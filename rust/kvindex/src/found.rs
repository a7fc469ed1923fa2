//! Questions and answers.

use std::sync::Arc;

use crate::key::Span;
use crate::keys::Keys;
use crate::roster::Names;

/// The blocks that are asked for.
#[derive(Clone, Copy, Debug)]
pub enum Blocks<'a> {
    /// A prompt: hashed as far as the match goes.
    Tokens {
        /// The prompt.
        tokens: &'a [u32],
        /// The prompt's images.
        images: &'a [Span],
        /// The namespace's seed, from `key::namespace_seed`.
        seed: u64,
    },
    /// A prompt, and what [`Blocks::chain_keys`] returns for it: not hashed again.
    Hashed {
        /// The prompt.
        tokens: &'a [u32],
        /// The prompt's images.
        images: &'a [Span],
        /// The namespace's seed.
        seed: u64,
        /// The chain keys of all of its blocks.
        chain: &'a [u64],
    },
    /// Local keys, computed by the caller.
    Locals(&'a [u64]),
    /// Chain keys, computed by the caller.
    Chain(&'a [u64]),
}

impl<'a> Blocks<'a> {
    /// The chain keys of all blocks, those of pairs left aside.
    pub fn chain_keys(&self, block_size: usize) -> Vec<u64> {
        Keys::new(self, block_size, false, Vec::new()).into_all()
    }

    /// The prompt's tokens, images and seed, where there is a prompt.
    pub(crate) fn prompt(&self) -> Option<(&'a [u32], &'a [Span], u64)> {
        match *self {
            Blocks::Tokens {
                tokens,
                images,
                seed,
            }
            | Blocks::Hashed {
                tokens,
                images,
                seed,
                ..
            } => Some((tokens, images, seed)),
            Blocks::Locals(_) | Blocks::Chain(_) => None,
        }
    }
}

/// Weights of the tiers, nearest first, and of what only pools hold.
pub type Weights = [f64; 5];

/// A worker, or one rank of it, that a query asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The worker.
    pub worker: Arc<str>,
    /// The rank; `None` = the worker's best one.
    pub rank: Option<u32>,
}

/// What is asked of a query, besides the blocks.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The only holders to look at: one row each, in order.
    pub candidates: Option<&'a [Candidate]>,
    /// The weights by which a worker's best rank is chosen.
    pub weights: Weights,
    /// The one-way walk over the tiers instead of the union.
    pub cascade: bool,
}

/// One holder's answer. All numbers are blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its dense number, to be looked up in [`Found::names`]; `u32::MAX` for a
    /// candidate that is unknown.
    pub holder: u32,
    /// How many leading blocks lie on each of its tiers or a nearer one; blocks
    /// that only pools hold do not count.
    pub(crate) reach: [u32; 4],
    /// How many leading blocks only pools hold.
    shared: u32,
    /// How many leading blocks are only predicted.
    predicted: u32,
}

impl Default for Row {
    fn default() -> Self {
        Self::new(u32::MAX, [0; 4])
    }
}

impl Row {
    /// The row of a holder with that many blocks on each tier.
    pub const fn new(holder: u32, tiers: [u32; 4]) -> Self {
        let [device, host, disk, external] = tiers;
        let (two, three) = (device + host, device + host + disk);
        Self {
            holder,
            reach: [device, two, three, three + external],
            shared: 0,
            predicted: 0,
        }
    }

    /// The same row with that many blocks in pools besides.
    #[must_use]
    pub const fn sharing(self, shared: u32) -> Self {
        Self { shared, ..self }
    }

    /// The same row with that many blocks predicted besides.
    #[must_use]
    pub const fn expecting(self, predicted: u32) -> Self {
        Self { predicted, ..self }
    }

    /// How many leading blocks it holds, or pools for it, or is expected to hold.
    pub const fn depth(&self) -> u32 {
        self.own() + self.shared + self.predicted
    }

    /// How many of them it holds itself.
    pub(crate) const fn own(&self) -> u32 {
        self.reach[3]
    }

    /// How many of them it holds itself, or is expected to.
    pub(crate) const fn claimed(&self) -> u32 {
        self.own() + self.predicted
    }

    /// How many of them only pools hold.
    pub const fn shared(&self) -> u32 {
        self.shared
    }

    /// How many of them neither it nor a pool holds, but were predicted.
    pub const fn predicted(&self) -> u32 {
        self.predicted
    }

    /// How many of them lie nearest on each tier of its own.
    pub const fn tiers(&self) -> [u32; 4] {
        let [device, two, three, all] = self.reach;
        [device, two - device, three - two, all - three]
    }

    /// The row of a holder with blocks on one tier.
    pub(crate) fn single(holder: u32, tier: usize, blocks: u32) -> Self {
        /// Which tiers' numbers blocks on a tier are part of.
        const RAISED: [[u64; 2]; 4] = [
            [u64::MAX, u64::MAX],
            [u64::MAX << 32, u64::MAX],
            [0, u64::MAX],
            [0, u64::MAX << 32],
        ];
        let twice = u64::from(blocks) << 32 | u64::from(blocks);
        let [low, high] = RAISED[tier];
        let [low, high] = [twice & low, twice & high];
        Self {
            holder,
            reach: [
                low as u32,
                (low >> 32) as u32,
                high as u32,
                (high >> 32) as u32,
            ],
            shared: 0,
            predicted: 0,
        }
    }

    /// The sum of each tier's blocks times its weight; predicted ones weigh as
    /// those on the device.
    pub fn score(&self, weights: &Weights) -> f64 {
        let [device, host, disk, external] = self.tiers();
        let tiers = [device + self.predicted, host, disk, external, self.shared];
        let tiers = tiers.into_iter();
        let terms = tiers.zip(weights);
        terms
            .map(|(blocks, weight)| f64::from(blocks) * weight)
            .sum()
    }

    /// Whether this row is a better answer for one worker than another is.
    pub(crate) fn beats(&self, other: &Self, weights: &Weights) -> bool {
        let (own, its) = (self.score(weights), other.score(weights));
        own > its || (own >= its && self.depth() > other.depth())
    }

    /// Counts the first `end` blocks of a segment on a tier. `base` is what the
    /// row had reached before the segment.
    pub(crate) fn raise(&mut self, tier: usize, base: &[u32; 4], end: u32) {
        for (reach, base) in self.reach[tier..].iter_mut().zip(&base[tier..]) {
            *reach = (*reach).max(base + end);
        }
    }
}

/// An answer, in its walk's memory: one row a holder in no order, or one a
/// candidate in theirs.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The rows.
    pub rows: &'a [Row],
    /// The names of their holders.
    pub names: &'a Arc<Names>,
    /// The pools that hold any leading blocks, and how many; `None` where no pool
    /// was looked at.
    pub(crate) pools: Option<&'a [(u32, u32)]>,
}

impl<'a> Found<'a> {
    /// How many leading blocks each pool holds; empty where none was looked at.
    pub fn pools(&self) -> impl Iterator<Item = (&'a Arc<str>, u32)> {
        let found = self.pools.unwrap_or_default();
        let all = self.pools.map_or(&[][..], |_| self.names.pools());
        let depth = |pool| depth_of(found, pool);
        all.iter().map(move |(name, pool)| (name, depth(*pool)))
    }
}

/// One holder's state. All numbers but `seq` are blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderState {
    /// The worker.
    pub worker: Arc<str>,
    /// The rank.
    pub rank: u32,
    /// Distinct blocks held on each tier.
    pub tiers: [u64; 4],
    /// Blocks that are predicted.
    pub predicted: u64,
    /// The number of the last batch of any source.
    pub seq: Option<u64>,
    /// Blocks that wait for their parent.
    pub orphans: u64,
    /// Batches seen before, in a row.
    pub duplicates: u64,
}

/// One pool's state. All numbers but `seq` are blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// The pool.
    pub pool: Arc<str>,
    /// Distinct blocks held on each tier.
    pub tiers: [u64; 4],
    /// The number of the last batch of any source.
    pub seq: Option<u64>,
    /// Blocks that wait for their parent.
    pub orphans: u64,
    /// Batches seen before, in a row.
    pub duplicates: u64,
}

/// How far one cache group of a holder could go on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDepth {
    /// What events call it.
    pub number: Option<u32>,
    /// The blocks that it needs before the point; `None` = all.
    pub needs: Option<u32>,
    /// The deepest point, in blocks.
    pub depth: u32,
}

/// Why one holder's answer to one query is what it is. All numbers are blocks.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// Whole blocks of the query.
    pub blocks: u64,
    /// Leading blocks that anybody's chain in the index has.
    pub known: u64,
    /// The holder's row.
    pub row: Row,
    /// For each known block: a bit for every tier on which the holder has it,
    /// whether or not it counts there, and [`Explanation::SHARED`] where a pool
    /// has it that the worker reaches.
    pub held: Vec<u8>,
    /// The pools that the worker reaches, and how many leading blocks each holds.
    pub pools: Vec<(Arc<str>, u32)>,
    /// The holder's cache groups, the main one first; empty where there is but one,
    /// and where it holds nothing of the query.
    pub groups: Vec<GroupDepth>,
    /// The holder's state, where it is known.
    pub state: Option<HolderState>,
}

/// How many leading blocks a pool holds, by those that hold any.
pub(crate) fn depth_of(depths: &[(u32, u32)], pool: u32) -> u32 {
    let found = depths.iter().find(|(known, _)| *known == pool);
    found.map_or(0, |(_, depth)| *depth)
}

impl Explanation {
    /// The bit of blocks that a pool holds.
    pub const SHARED: u8 = 1 << 4;
}

/// Totals of an index.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Distinct blocks held.
    pub blocks: u64,
    /// Workers that are registered or have sent events.
    pub workers: u64,
    /// Pools that are registered or have sent events.
    pub pools: u64,
    /// Holders: ranks of workers, and pools.
    pub holders: u64,
    /// Claims: distinct blocks of every holder and tier, of main cache groups.
    pub claims: u64,
    /// Blocks that wait for their parent.
    pub orphans: u64,
    /// Distinct blocks that are predicted of anybody, held or not.
    pub predicted: u64,
    /// Runs.
    pub runs: u64,
    /// Names that are bound to blocks.
    pub names: u64,
    /// Bytes of memory in use for all of this, roughly.
    pub bytes: u64,
    /// Bytes that the index keeps for later use besides.
    pub reserve: u64,
    /// What became of all batches.
    pub totals: crate::report::Totals,
}

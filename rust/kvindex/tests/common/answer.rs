//! What the model answers to queries.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvindex::event::{Name, Tier};
use kvindex::key::{BlockHasher, Span, chain, namespace_seed};
use kvindex::{Candidate, Explanation, HolderState, PoolState, Weights};
use xxhash_rust::xxh64::xxh64;

use super::model::{Content, Copies, Holder, Key, Model, Path};
use super::parties::POOL;
use super::rules::flexkv;

/// Blocks on each tier, in pools alone, and only predicted.
pub(crate) type Counts = [u32; 6];

/// The blocks of the holders that have any.
pub(crate) type Rows = BTreeMap<Key, Counts>;

/// What is asked of a query besides the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    Nearest,
    Cascade,
}

/// A prompt of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    pub(crate) images: Vec<Span>,
    pub(crate) lora: String,
    pub(crate) salt: String,
}

impl Prompt {
    /// The prompt that has these blocks; `None` where they are of several
    /// namespaces or only some of them pairs.
    pub(crate) fn of(path: &[Rc<Content>], block_size: usize) -> Option<Self> {
        let first = path.first()?;
        let alike = |block: &Rc<Content>| {
            (&block.lora, &block.salt, block.tokens.len())
                == (&first.lora, &first.salt, first.tokens.len())
                && block.flexkv.is_none()
        };
        if !path.iter().all(alike) {
            return None;
        }
        let mut tokens: Vec<u32> = Vec::new();
        let mut images = Vec::new();
        for (number, block) in path.iter().enumerate() {
            tokens.extend(&block.tokens[..block_size]);
            images.extend(block.images.iter().map(|&hash| Span {
                hash,
                first: (number * block_size) as u64,
                length: block_size as u64,
            }));
        }
        tokens.extend(&path[path.len() - 1].tokens[block_size..]);
        Some(Self {
            tokens,
            images,
            lora: first.lora.clone(),
            salt: first.salt.clone(),
        })
    }

    /// The prompt's blocks, keyed with the token that follows or without.
    pub(crate) fn path(&self, block_size: usize, pairs: bool) -> Path {
        let more = usize::from(pairs);
        let count = self.tokens.len().saturating_sub(more) / block_size;
        let block = |number: usize| {
            let start = number * block_size;
            let (from, to) = (start as u64, (start + block_size) as u64);
            let here = self.images.iter().filter(|span| span.overlaps(from, to));
            let mut images: Vec<u64> = here.map(|span| span.hash).collect();
            images.sort_unstable();
            Rc::new(Content {
                lora: self.lora.clone(),
                salt: self.salt.clone(),
                tokens: self.tokens[start..start + block_size + more].to_vec(),
                images,
                flexkv: None,
            })
        };
        (0..count).map(block).collect()
    }

    /// The prompt's blocks as they may be held, singles or pairs. Those of one way
    /// count together; singles are also blocks that FlexKV names.
    pub(crate) fn ways(&self, block_size: usize) -> [Vec<Path>; 2] {
        let mut singles = vec![self.path(block_size, false)];
        if self.lora.is_empty() && self.salt.is_empty() && self.images.is_empty() {
            let names = flexkv_names(&self.tokens, block_size);
            singles.push(names.into_iter().map(flexkv).collect());
        }
        [singles, vec![self.path(block_size, true)]]
    }
}

/// What FlexKV calls the blocks of a prompt: a hash of all tokens up to their ends.
pub(crate) fn flexkv_names(tokens: &[u32], block_size: usize) -> Vec<u64> {
    let bytes = tokens.iter().map(|token| i64::from(*token).to_le_bytes());
    let bytes: Vec<u8> = bytes.flatten().collect();
    let ends = (1..=tokens.len() / block_size).map(|end| end * block_size * 8);
    ends.map(|end| xxh64(&bytes[..end], 0)).collect()
}

/// The chain keys of a prefix.
pub(crate) fn chain_keys(path: &[Rc<Content>]) -> Vec<u64> {
    let mut last = None;
    let key = |block: &Rc<Content>| {
        let seed = namespace_seed(&block.lora, &block.salt);
        let local = BlockHasher::new(seed).local(&block.tokens, &mut block.images.clone());
        let key = chain(last, local);
        last = Some(key);
        key
    };
    path.iter().map(key).collect()
}

pub(crate) fn score(counts: &Counts, weights: &Weights) -> f64 {
    let terms = counts.iter().zip(weights.iter().chain(&weights[..1]));
    terms.map(|(&n, weight)| f64::from(n) * weight).sum()
}

impl Model {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.holders.keys().filter(|key| key.1 != POOL)
    }

    fn copies(&self, key: &Key) -> &[Copies] {
        let holder = self.holders.get(key);
        holder.map_or(&[][..], |holder| &holder.copies)
    }

    /// The pools that a worker reaches.
    fn reached(&self, worker: &str) -> impl Iterator<Item = (&Key, &Holder)> {
        let attached = self.attached.iter().any(|(known, _)| known == worker);
        let reaches = move |pool: &str| {
            let pair = (worker.to_owned(), pool.to_owned());
            !attached || self.attached.contains(&pair)
        };
        let pools = self.holders.iter().filter(|(key, _)| key.1 == POOL);
        pools.filter(move |(key, _)| reaches(&key.0))
    }

    /// The row of a worker's rank, whether or not it holds anything itself.
    fn row(&self, key: &Key, way: &[Path], walked: Walked) -> Counts {
        let path = &way[0];
        let mut shared = vec![false; path.len()];
        for (_, pool) in self.reached(&key.0) {
            for (shared, tiers) in shared.iter_mut().zip(credited(&pool.copies, way)) {
                *shared |= tiers.contains(&true);
            }
        }
        let holder = self.holders.get(key);
        let predicted = (1..=path.len())
            .map(|end| holder.is_some_and(|own| own.predicted.contains_key(&path[..end])));
        let besides: Vec<_> = shared.into_iter().zip(predicted).collect();
        count(&credited(self.copies(key), way), &besides, walked)
    }

    /// Who holds how many leading blocks of a prefix.
    pub(crate) fn find(&self, path: &[Rc<Content>], walked: Walked) -> Rows {
        let rows = self.keys();
        let way = [path.to_vec()];
        let rows = rows.map(|key| (key.clone(), self.row(key, &way, walked)));
        rows.filter(|(_, counts)| holds(counts)).collect()
    }

    /// How many leading blocks of a prefix each pool holds.
    pub(crate) fn pool_depths(&self, way: &[Path]) -> BTreeMap<String, u32> {
        let pools = self.holders.iter().filter(|(key, _)| key.1 == POOL);
        let depth = |(key, pool): (&Key, &Holder)| {
            let held = credited(&pool.copies, way);
            let held = held.iter().take_while(|tiers| tiers.contains(&true));
            (key.0.clone(), held.count() as u32)
        };
        pools.map(depth).collect()
    }

    /// The same of the pools that a worker reaches.
    pub(crate) fn reached_depths(
        &self,
        worker: &str,
        path: &[Rc<Content>],
    ) -> BTreeMap<String, u32> {
        let mut depths = self.pool_depths(&[path.to_vec()]);
        depths.retain(|pool, _| self.reached(worker).any(|(key, _)| key.0 == *pool));
        depths
    }

    /// Who holds how many leading blocks of a prompt, by either kind of keys.
    pub(crate) fn find_prompt(&self, prompt: &Prompt, walked: Walked, weights: &Weights) -> Rows {
        let size = self.config.block_size as usize;
        let ways = prompt.ways(size);
        let rows = self.keys().filter_map(|key| {
            let [one, two] = ways.each_ref().map(|way| self.row(key, way, walked));
            let rank = |counts: &Counts| (depth(counts), score(counts, weights));
            let best = if rank(&two) > rank(&one) { two } else { one };
            (holds(&one) || holds(&two)).then(|| (key.clone(), best))
        });
        rows.collect()
    }

    /// Who holds how many leading blocks under these names.
    pub(crate) fn find_names(&self, names: &[Name], walked: Walked) -> Rows {
        let on = |copies: &[Copies], name: &Name, tier: Tier| {
            let mut copies = copies.iter();
            copies.any(|copies| copies.tier == tier && copies.name.matches(*name))
        };
        let rows = self.keys().map(|key| {
            let own = |name| Tier::ALL.map(|tier| on(self.copies(key), name, tier));
            let pooled = |name| {
                let mut pools = self.reached(&key.0);
                pools.any(|(_, pool)| Tier::ALL.iter().any(|tier| on(&pool.copies, name, *tier)))
            };
            let held: Vec<_> = names.iter().map(own).collect();
            let shared: Vec<_> = names.iter().map(pooled).collect();
            let besides: Vec<_> = shared.into_iter().map(|shared| (shared, false)).collect();
            (key.clone(), count(&held, &besides, walked))
        });
        rows.filter(|(_, counts)| holds(counts)).collect()
    }

    /// The rows of candidates: rank and blocks, in their order.
    pub(crate) fn candidates(
        &self,
        path: &[Rc<Content>],
        walked: Walked,
        candidates: &[Candidate],
        weights: &Weights,
    ) -> Vec<(u32, Counts)> {
        let way = [path.to_vec()];
        let row = |candidate: &Candidate| {
            let of = |rank: u32| {
                let key = (candidate.worker.to_string(), rank);
                (rank, self.row(&key, &way, walked))
            };
            if let Some(rank) = candidate.rank {
                return of(rank);
            }
            let ranks = self.keys().filter(|key| *key.0 == *candidate.worker);
            let value = |row: &(u32, Counts)| (score(&row.1, weights), depth(&row.1));
            let better = |best: (u32, Counts), row: (u32, Counts)| {
                if value(&row) > value(&best) {
                    row
                } else {
                    best
                }
            };
            let best = ranks.map(|key| of(key.1)).reduce(better);
            best.unwrap_or_else(|| of(0))
        };
        candidates.iter().map(row).collect()
    }

    /// On which tiers a holder holds each block of a prefix, and whether a pool
    /// does that it reaches: a bit each.
    pub(crate) fn bits(&self, key: &Key, path: &[Rc<Content>]) -> Vec<u8> {
        let covers =
            |copies: &[Copies], end: usize| copies.iter().any(|copies| copies.cover(&path[..end]));
        let bits = |end: usize| {
            let own = self.copies(key).iter();
            let own = own.filter(|copies| copies.cover(&path[..end]));
            let own = own.fold(0, |bits, copies| bits | 1 << copies.tier as u8);
            let mut pools = self.reached(&key.0);
            let shared = pools.any(|(_, pool)| covers(&pool.copies, end));
            own | if shared { Explanation::SHARED } else { 0 }
        };
        (1..=path.len()).map(bits).collect()
    }

    /// The state of every worker's rank.
    pub(crate) fn states(&self) -> Vec<HolderState> {
        let states = self.keys().map(|key| HolderState {
            predicted: self.holders[key].predicted.len() as u64,
            worker: key.0.as_str().into(),
            rank: key.1,
            tiers: self.held_on(key),
            seq: self.holders[key].seq,
            orphans: self.waiting(key),
            duplicates: self.holders[key].duplicates,
        });
        states.collect()
    }

    /// The state of every pool.
    pub(crate) fn pool_states(&self) -> Vec<PoolState> {
        let pools = self.holders.iter().filter(|(key, _)| key.1 == POOL);
        let states = pools.map(|(key, holder)| PoolState {
            pool: key.0.as_str().into(),
            tiers: self.held_on(key),
            seq: holder.seq,
            orphans: self.waiting(key),
            duplicates: holder.duplicates,
        });
        states.collect()
    }

    /// How many distinct blocks a holder has on each tier.
    pub(super) fn held_on(&self, key: &Key) -> [u64; 4] {
        Tier::ALL.map(|tier| {
            let copies = self.copies(key).iter();
            let copies = copies.filter(|copies| copies.tier == tier);
            let blocks: BTreeSet<_> = copies.flat_map(Copies::blocks).collect();
            blocks.len() as u64
        })
    }

    /// Every block that anybody holds.
    pub(crate) fn blocks(&self) -> BTreeSet<&[Rc<Content>]> {
        let copies = self.holders.values().flat_map(|holder| &holder.copies);
        copies.flat_map(Copies::blocks).collect()
    }
}

/// For each block of a query the tiers on which it counts.
fn credited(copies: &[Copies], way: &[Path]) -> Vec<[bool; 4]> {
    let length = way[0].len();
    let mut credited = vec![[false; 4]; length];
    // A unit is of no use to a query that does not have all of it.
    let whole = copies
        .iter()
        .filter(|copies| way.iter().any(|path| path.starts_with(&copies.path)));
    let mut groups: BTreeMap<(Tier, u32), Vec<bool>> = BTreeMap::new();
    for copies in whole {
        let group = groups.entry((copies.tier, copies.chunk)).or_default();
        group.resize(length, false);
        for block in copies.blocks() {
            group[block.len() - 1] = true;
        }
    }
    for ((tier, chunk), held) in groups {
        let chunk = (chunk as usize).max(1);
        for (number, tiers) in credited.iter_mut().enumerate() {
            let first = number / chunk * chunk;
            let whole = held.get(first..first + chunk);
            tiers[tier as usize] |= whole.is_some_and(|whole| !whole.contains(&false));
        }
    }
    credited
}

/// `besides` says of each block whether a pool has it, and whether it is predicted.
fn count(credited: &[[bool; 4]], besides: &[(bool, bool)], walked: Walked) -> Counts {
    let mut counts = [0; 6];
    let mut lowest = 0;
    for (tiers, &(shared, predicted)) in credited.iter().zip(besides) {
        let own = (lowest..4).find(|&tier| tiers[tier]);
        let besides = [shared, predicted].into_iter().zip(4..);
        let mut besides = besides.filter(|(has, _)| *has && walked == Walked::Nearest);
        let Some(tier) = own.or_else(|| besides.next().map(|(_, place)| place)) else {
            break;
        };
        counts[tier] += 1;
        if walked == Walked::Cascade {
            lowest = tier;
        }
    }
    counts
}

/// Whether any of a row's blocks is the holder's own, or predicted.
fn holds(counts: &Counts) -> bool {
    counts[..4].iter().any(|blocks| *blocks > 0) || counts[5] > 0
}

fn depth(counts: &Counts) -> u32 {
    counts.iter().sum()
}

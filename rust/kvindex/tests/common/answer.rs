//! What the model answers to queries.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvindex::event::{Name, Tier};
use kvindex::key::{BlockHasher, Span, chain, namespace_seed};
use kvindex::{Candidate, HolderState, Weights};

use super::model::{Content, Copies, Key, Model, Path};

/// Depths by tier of the holders that have any.
pub(crate) type Rows = BTreeMap<Key, [u32; 4]>;

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
    fn path(&self, block_size: usize, pairs: bool) -> Path {
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
            })
        };
        (0..count).map(block).collect()
    }
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

pub(crate) fn score(tiers: &[u32; 4], weights: &Weights) -> f64 {
    let terms = tiers.iter().zip(weights);
    terms.map(|(&n, weight)| f64::from(n) * weight).sum()
}

impl Model {
    /// Who holds how many leading blocks of a prefix.
    pub(crate) fn find(&self, path: &[Rc<Content>], walked: Walked) -> Rows {
        let rows = self.holders.iter().map(|(key, holder)| {
            let credited = credited(&holder.copies, path);
            (key.clone(), count(&credited, walked))
        });
        rows.filter(|(_, tiers)| *tiers != [0; 4]).collect()
    }

    /// Who holds how many leading blocks of a prompt.
    pub(crate) fn find_prompt(&self, prompt: &Prompt, walked: Walked, weights: &Weights) -> Rows {
        let size = self.config.block_size as usize;
        let mut rows = self.find(&prompt.path(size, false), walked);
        for (key, tiers) in self.find(&prompt.path(size, true), walked) {
            let rank =
                |tiers: &[u32; 4]| (f64::from(tiers.iter().sum::<u32>()), score(tiers, weights));
            let known = rows.get(&key);
            if known.is_none_or(|known| rank(&tiers) > rank(known)) {
                rows.insert(key, tiers);
            }
        }
        rows
    }

    /// Who holds how many leading blocks under these names.
    pub(crate) fn find_names(&self, names: &[Name], walked: Walked) -> Rows {
        let rows = self.holders.iter().map(|(key, holder)| {
            let on = |name: &Name, tier: Tier| {
                let mut copies = holder.copies.iter();
                copies.any(|copies| copies.tier == tier && copies.name.matches(*name))
            };
            let held = names
                .iter()
                .map(|name| Tier::ALL.map(|tier| on(name, tier)));
            (key.clone(), count(&held.collect::<Vec<_>>(), walked))
        });
        rows.filter(|(_, tiers)| *tiers != [0; 4]).collect()
    }

    /// The rows of candidates: rank and depths, in their order.
    pub(crate) fn candidates(
        &self,
        rows: &Rows,
        candidates: &[Candidate],
        weights: &Weights,
    ) -> Vec<(u32, [u32; 4])> {
        let row = |candidate: &Candidate| {
            if let Some(rank) = candidate.rank {
                let key = (candidate.worker.to_string(), rank);
                return (rank, rows.get(&key).copied().unwrap_or_default());
            }
            let ranks = self
                .holders
                .keys()
                .filter(|key| *key.0 == *candidate.worker);
            let ranks = ranks.map(|key| (key.1, rows.get(key).copied().unwrap_or_default()));
            let value = |row: &(u32, [u32; 4])| {
                (score(&row.1, weights), f64::from(row.1.iter().sum::<u32>()))
            };
            let better = |best: (u32, [u32; 4]), row: (u32, [u32; 4])| {
                if value(&row) > value(&best) {
                    row
                } else {
                    best
                }
            };
            ranks.reduce(better).unwrap_or_default()
        };
        candidates.iter().map(row).collect()
    }

    /// On which tiers a holder holds each block of a prefix: a bit a tier.
    pub(crate) fn bits(&self, key: &Key, path: &[Rc<Content>]) -> Vec<u8> {
        let copies = self
            .holders
            .get(key)
            .map_or(&[][..], |holder| &holder.copies);
        let bits = |end: usize| {
            let held = copies.iter().filter(|copies| copies.cover(&path[..end]));
            held.fold(0, |bits, copies| bits | 1 << copies.tier as u8)
        };
        (1..=path.len()).map(bits).collect()
    }

    /// The state of every holder.
    pub(crate) fn states(&self) -> Vec<HolderState> {
        let states = self.holders.iter().map(|(key, holder)| HolderState {
            worker: key.0.as_str().into(),
            rank: key.1,
            tiers: Tier::ALL.map(|tier| {
                let copies = holder.copies.iter().filter(|copies| copies.tier == tier);
                copies
                    .flat_map(Copies::blocks)
                    .collect::<BTreeSet<_>>()
                    .len() as u64
            }),
            seq: holder.seq,
            orphans: self.waiting(key),
            duplicates: holder.duplicates,
        });
        states.collect()
    }

    /// Every block that anybody holds.
    pub(crate) fn blocks(&self) -> BTreeSet<&[Rc<Content>]> {
        let copies = self.holders.values().flat_map(|holder| &holder.copies);
        copies.flat_map(Copies::blocks).collect()
    }
}

/// For each block of a query the tiers on which it counts.
fn credited(copies: &[Copies], path: &[Rc<Content>]) -> Vec<[bool; 4]> {
    let mut credited = vec![[false; 4]; path.len()];
    // A unit is of no use to a query that does not have all of it.
    let whole = copies
        .iter()
        .filter(|copies| path.starts_with(&copies.path));
    let mut groups: BTreeMap<(Tier, u32), Vec<bool>> = BTreeMap::new();
    for copies in whole {
        let group = groups.entry((copies.tier, copies.chunk)).or_default();
        group.resize(path.len(), false);
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

fn count(credited: &[[bool; 4]], walked: Walked) -> [u32; 4] {
    let mut counts = [0; 4];
    let mut lowest = 0;
    for tiers in credited {
        let Some(tier) = (lowest..4).find(|&tier| tiers[tier]) else {
            break;
        };
        counts[tier] += 1;
        if walked == Walked::Cascade {
            lowest = tier;
        }
    }
    counts
}

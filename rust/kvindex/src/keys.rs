//! The query's chain keys, computed in slices as the match proceeds, so that a
//! prompt that diverges early is not hashed to its end.

use crate::found::Blocks;
use crate::key::{
    BlockHasher, FlexKvNames, Prompt, SEED, SglangDigests, chain, flexkv_chain, sglang_key,
};
use crate::namespace::Family;

/// Blocks computed at a time, at most; the first slices are shorter.
const SLICE: usize = 64;

/// Where keys come from.
#[derive(Debug)]
enum Source<'a> {
    /// They are all there.
    Chain(&'a [u64]),
    Locals(&'a [u64]),
    Prompt(Prompt<'a>, BlockHasher),
    /// Tokens, and their number in a block. Boxed, for keys are moved.
    FlexKv(&'a [u32], usize, Box<FlexKvNames>),
    Sglang(&'a [u32], usize, Box<SglangDigests>),
}

/// Chain keys of one query: those that were needed so far.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    computed: Vec<u64>,
    total: usize,
    source: Source<'a>,
}

impl<'a> Keys<'a> {
    /// The keys of some blocks; `scratch` is reused for them. `pairs` concerns
    /// prompts only.
    pub(crate) fn new(
        blocks: &Blocks<'a>,
        block_size: usize,
        pairs: bool,
        mut scratch: Vec<u64>,
    ) -> Self {
        scratch.clear();
        let (total, source) = match *blocks {
            Blocks::Hashed { chain: keys, .. } if !pairs => (keys.len(), Source::Chain(keys)),
            Blocks::Chain(keys) => (keys.len(), Source::Chain(keys)),
            Blocks::Locals(keys) => (keys.len(), Source::Locals(keys)),
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
            } => {
                let prompt = Prompt {
                    tokens,
                    images,
                    block_size,
                    pairs,
                };
                let hasher = BlockHasher::new(seed);
                (prompt.blocks(), Source::Prompt(prompt, hasher))
            }
        };
        Self {
            computed: scratch,
            total,
            source,
        }
    }

    /// The keys under which blocks lie that FlexKV or SGLang names. They know no
    /// namespaces and no images: `None` for a prompt that has any, and where there
    /// is no prompt.
    pub(crate) fn named(blocks: &Blocks<'a>, block_size: usize, family: Family) -> Option<Self> {
        match blocks.prompt() {
            Some((tokens, [], SEED)) => Some(Self {
                computed: Vec::new(),
                total: tokens.len() / block_size,
                source: if family == Family::Sglang {
                    Source::Sglang(tokens, block_size, Box::default())
                } else {
                    Source::FlexKv(tokens, block_size, Box::default())
                },
            }),
            _ => None,
        }
    }

    /// Whether a key may be known where the one before it is not.
    pub(crate) fn have_gaps(&self) -> bool {
        matches!(self.source, Source::Sglang(..))
    }

    /// Blocks of the query.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The key of a block, computed if need be.
    pub(crate) fn get(&mut self, block: usize) -> u64 {
        self.reach(block + 1);
        self.known(block)
    }

    /// A key that was computed before.
    pub(crate) fn known(&self, block: usize) -> u64 {
        match self.source {
            Source::Chain(keys) => keys[block],
            _ => self.computed[block],
        }
    }

    /// Computes at least that many keys; returns how many there are now.
    #[inline]
    pub(crate) fn reach(&mut self, blocks: usize) -> usize {
        if matches!(self.source, Source::Chain(_)) {
            return self.total;
        }
        if self.computed.len() < blocks {
            self.compute(blocks);
        }
        self.computed.len()
    }

    fn compute(&mut self, blocks: usize) {
        while self.computed.len() < blocks {
            let start = self.computed.len();
            let end = (start + start.clamp(2, SLICE)).min(self.total);
            match &mut self.source {
                Source::Chain(_) => return,
                Source::Locals(locals) => {
                    for &local in &locals[start..end] {
                        self.computed
                            .push(chain(self.computed.last().copied(), local));
                    }
                }
                Source::FlexKv(tokens, size, names) => {
                    for block in tokens[start * *size..end * *size].chunks_exact(*size) {
                        let last = self.computed.last().copied();
                        self.computed.push(flexkv_chain(last, names.next(block)));
                    }
                }
                Source::Sglang(tokens, size, digests) => {
                    for block in tokens[start * *size..end * *size].chunks_exact(*size) {
                        self.computed.push(sglang_key(digests.next(block)));
                    }
                }
                Source::Prompt(prompt, hasher) => {
                    for block in start..end {
                        let local = prompt.local(hasher, block);
                        self.computed
                            .push(chain(self.computed.last().copied(), local));
                    }
                }
            }
        }
    }

    /// All keys.
    pub(crate) fn all(&mut self) -> &[u64] {
        self.reach(self.total);
        match self.source {
            Source::Chain(keys) => keys,
            _ => &self.computed,
        }
    }

    /// All keys, in memory of their own.
    pub(crate) fn into_all(mut self) -> Vec<u64> {
        if let Source::Chain(keys) = self.source {
            return keys.to_vec();
        }
        self.computed.reserve_exact(self.total);
        self.reach(self.total);
        self.computed
    }

    /// The scratch memory back.
    pub(crate) fn into_scratch(self) -> Vec<u64> {
        self.computed
    }
}

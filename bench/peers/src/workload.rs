//! Work made from seeds: the same chains, events and queries for everybody.
//!
//! Nothing is kept: a family of chains is made again from its number whenever it
//! is needed, so a stream of any length takes a bounded amount of memory.

mod agentic;
mod family;
mod holes;
mod random;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use agentic::Agentic;
pub(crate) use family::{Family, Fleet, Sharing};
pub(crate) use holes::{Holes, punched};
pub(crate) use random::Random;
pub(crate) use stream::{Direction, Stream};

use kvindex::key::{BlockHasher, SEED, chain};

/// Tokens a block.
pub(crate) const BLOCK_SIZE: usize = 2;

/// One block of a chain, with every hash that anybody needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The two tokens, the first one in the low half.
    pub(crate) content: u64,
    /// The hash of the tokens.
    pub(crate) local: u64,
    /// The hash of the prefix up to and with this block.
    pub(crate) chain: u64,
}

impl Block {
    /// The block of that content below `parent`.
    pub(crate) fn below(parent: Option<u64>, content: u64) -> Self {
        let tokens = tokens(content);
        let local = BlockHasher::new(SEED).local(&tokens, &mut []);
        Self {
            content,
            local,
            chain: chain(parent, local),
        }
    }
}

/// The tokens of a block of that content.
pub(crate) fn tokens(content: u64) -> [u32; BLOCK_SIZE] {
    [content as u32, (content >> 32) as u32]
}

/// Appends `count` random blocks to a chain.
pub(crate) fn grow(blocks: &mut Vec<Block>, count: usize, random: &mut Random) {
    let mut parent = blocks.last().map(|block| block.chain);
    for _ in 0..count {
        let block = Block::below(parent, random.next());
        parent = Some(block.chain);
        blocks.push(block);
    }
}

/// How engines name blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// All alike, as they do when they hash with the same seed.
    Common,
    /// Each in its own way.
    Own,
}

impl Names {
    /// What a worker's engine calls a block.
    pub(crate) fn name(self, worker: u32, block: &Block) -> u64 {
        let salt = match self {
            Self::Common => 0,
            Self::Own => u64::from(worker) + 1,
        };
        random::mix(block.chain ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// What a worker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Stored blocks below the one that it calls so.
    Store(Option<u64>),
    /// Removed blocks.
    Remove,
}

/// A worker's event: consecutive blocks, each with the engine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) worker: u32,
    pub(crate) action: Action,
    pub(crate) blocks: Vec<(Block, u64)>,
}

impl Event {
    /// The store of `chain[from..to]`.
    pub(crate) fn store(
        worker: u32,
        names: Names,
        chain: &[Block],
        from: usize,
        to: usize,
    ) -> Self {
        let parent = from.checked_sub(1).map(|at| names.name(worker, &chain[at]));
        Self {
            worker,
            action: Action::Store(parent),
            blocks: named(worker, names, chain[from..to].iter()),
        }
    }

    /// The removal of blocks, in their order.
    pub(crate) fn remove<'a>(
        worker: u32,
        names: Names,
        blocks: impl Iterator<Item = &'a Block>,
    ) -> Self {
        Self {
            worker,
            action: Action::Remove,
            blocks: named(worker, names, blocks),
        }
    }
}

fn named<'a>(
    worker: u32,
    names: Names,
    blocks: impl Iterator<Item = &'a Block>,
) -> Vec<(Block, u64)> {
    blocks
        .map(|block| (*block, names.name(worker, block)))
        .collect()
}

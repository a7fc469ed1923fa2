//! Runs: the unit in which the index stores prefixes.
//!
//! A run is a stretch of one chain of blocks. It grows and shrinks at its tail
//! only and is never split: the first child of its last block extends it, any
//! other child begins a run of its own, found through the head table.
//!
//! ```text
//! record   version | tail key | blocks' address, length | claims' address, class
//!          claim count, blocks' class | three claims, where no more are needed
//! blocks   chain key, engine hash of each block
//! claims   sorted words, see `claims`
//! ```
//!
//! # Consistency
//!
//! A record, its blocks and its claims are written under the record's version: a
//! reader sees all of them as they were before a write or after it.

use crate::arena::{ADDRESS_BITS, Arena, Table, class_words};
use crate::head::Heads;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The most blocks of one run; longer chains are several runs, so that no write
/// keeps readers of a run waiting for long.
pub(crate) const MAX_BLOCKS: usize = 4096;
/// Neighbours of which the writer keeps notes together.
pub(crate) const GROUP: usize = 8;
/// Claims that fit into the record.
pub(crate) const INLINE: usize = 3;

pub(crate) const VERSION: usize = 0;
pub(crate) const TAIL: usize = 1;
pub(crate) const BLOCKS: usize = 2;
pub(crate) const CLAIMS: usize = 3;
pub(crate) const COUNT: usize = 4;
const FIRST_CLAIM: usize = 5;

/// A block, by where it is stored: the run and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block(u64);

impl Block {
    pub(crate) const fn new(run: u32, offset: u16) -> Self {
        Self(((run as u64) << 16) | offset as u64)
    }

    pub(crate) const fn run(self) -> u32 {
        (self.0 >> 16) as u32
    }

    pub(crate) const fn offset(self) -> u16 {
        self.0 as u16
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The aligned group of [`GROUP`] neighbours that the block is in, and which
    /// of them it is.
    pub(crate) const fn group(self) -> (u64, usize) {
        (self.0 / GROUP as u64, self.0 as usize % GROUP)
    }
}

/// What readers and the writer share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) arena: Arena,
    pub(crate) heads: Heads,
    pub(crate) runs: Table<3>,
    /// One word a member, see `member`.
    pub(crate) members: Table<0>,
    /// Changes whenever a member's number is given out again.
    pub(crate) reuse: AtomicU64,
    /// Live runs of each family of keys.
    pub(crate) families: [AtomicU64; 4],
    /// Distinct blocks held, and workers; written after each change.
    pub(crate) blocks: AtomicU64,
    pub(crate) workers: AtomicU64,
    /// The process that wrote last.
    pub(crate) process: AtomicU64,
}

/// A run's record, read word by word. Values belong together only where the
/// version says so, or where the reader is the writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) words: &'a [AtomicU64],
}

impl<'a> Record<'a> {
    pub(crate) fn version(self) -> &'a AtomicU64 {
        &self.words[VERSION]
    }

    fn load(self, field: usize) -> u64 {
        self.words[field].load(Relaxed)
    }

    pub(crate) fn tail(self) -> u64 {
        self.load(TAIL)
    }

    /// Blocks in the run; 0 for a run that is not in use.
    pub(crate) fn len(self) -> usize {
        self.load(BLOCKS) as usize & 0xffff
    }

    pub(crate) fn blocks_address(self) -> u64 {
        self.load(BLOCKS) >> 16
    }

    pub(crate) fn blocks_class(self) -> u8 {
        self.load(COUNT) as u8
    }

    /// Blocks that there is memory for.
    pub(crate) fn capacity(self) -> usize {
        (class_words(self.blocks_class()) / 2).min(MAX_BLOCKS)
    }

    pub(crate) fn count(self) -> usize {
        (self.load(COUNT) >> 32) as usize
    }

    pub(crate) fn claims_address(self) -> u64 {
        self.load(CLAIMS) & ((1 << ADDRESS_BITS) - 1)
    }

    pub(crate) fn claims_class(self) -> u8 {
        (self.load(CLAIMS) >> ADDRESS_BITS) as u8
    }

    /// Chain key and engine hash of each block; `None` only in the middle of a
    /// write.
    pub(crate) fn blocks(self, arena: &'a Arena) -> Option<&'a [AtomicU64]> {
        arena.get(self.blocks_address(), self.len() * 2)
    }

    /// The claims; `None` only in the middle of a write.
    pub(crate) fn claims(self, arena: &'a Arena) -> Option<&'a [AtomicU64]> {
        let (address, count) = (self.claims_address(), self.count());
        if address == 0 {
            return self.words.get(FIRST_CLAIM..FIRST_CLAIM + count);
        }
        arena.get(address, count)
    }

    pub(crate) fn inline(self) -> &'a [AtomicU64] {
        &self.words[FIRST_CLAIM..]
    }
}

impl Shared {
    pub(crate) fn record(&self, run: u32) -> Record<'_> {
        Record {
            words: self.runs.record(run),
        }
    }

    /// For the writer: chain key and engine hash of consecutive blocks.
    pub(crate) fn blocks(&self, first: Block, count: usize) -> &[AtomicU64] {
        let address = self.record(first.run()).blocks_address();
        let offset = u64::from(first.offset()) * 2;
        self.arena.words(address + offset, count * 2)
    }

    /// For the writer: the chain key of a block.
    pub(crate) fn key(&self, block: Block) -> u64 {
        self.blocks(block, 1)[0].load(Relaxed)
    }

    /// For the writer: where a block's engine hash is kept.
    pub(crate) fn name_word(&self, block: Block) -> &AtomicU64 {
        &self.blocks(block, 1)[1]
    }

    /// For the writer: the claims of a run.
    pub(crate) fn claims(&self, run: u32) -> &[AtomicU64] {
        self.record(run)
            .claims(&self.arena)
            .expect("the writer sees whole records")
    }
}

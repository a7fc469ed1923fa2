//! Where is the block of that name? Engine hashes to blocks, for the writer.
//!
//! Nearly always one engine hash means one block and one block has one hash.
//! That hash is the block's *primary* name: it lies beside the block's key in
//! its run, and the table of places has one word for it, which is verified
//! against the run. Everything rarer has an entry of its own: further names of
//! a block, a name with several meanings, the second half of byte strings.
//!
//! A name is bound to a block from the first store that says so until nobody
//! holds the block.

use hashbrown::HashTable;

use crate::event::Name;
use crate::mix::{MixMap, MixSet, mix};
use crate::run::{Block, Shared};
use crate::slots::Slots;
use crate::sync::Ordering::Relaxed;

const SHARD_BITS: u32 = 8;

/// A meaning that the table of places has no room for.
#[derive(Clone, Copy, Debug)]
struct Binding {
    name: Name,
    block: Block,
    /// Its place in the order in which bindings were made.
    age: u64,
}

/// All names that are bound to blocks.
#[derive(Debug)]
pub(crate) struct Places {
    /// Blocks by their primary name. A name in here has no older meaning.
    primary: Slots,
    others: Vec<HashTable<Binding>>,
    /// The further names of blocks.
    aliases: MixMap<Block, Vec<Name>>,
    /// The second halves of primary names that are byte strings.
    wide: MixMap<Block, u64>,
    /// Blocks whose primary name is the number 0: elsewhere a 0 beside the key
    /// says that there is no primary name.
    zero: MixSet<Block>,
    others_count: usize,
    clock: u64,
    touched: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            primary: Slots::default(),
            others: (0..1 << SHARD_BITS).map(|_| HashTable::new()).collect(),
            aliases: MixMap::default(),
            wide: MixMap::default(),
            zero: MixSet::default(),
            others_count: 0,
            clock: 0,
            touched: 0,
        }
    }
}

fn shard(hash: u64) -> usize {
    (hash >> (56 - SHARD_BITS)) as usize & ((1 << SHARD_BITS) - 1)
}

fn low_of(shared: &Shared, block: Block) -> u64 {
    shared.name_word(block).load(Relaxed)
}

impl Places {
    /// The name that a holder of the block is taken to have given it, unless
    /// its copies say otherwise.
    pub(crate) fn primary(&self, shared: &Shared, block: Block) -> Option<Name> {
        let low = low_of(shared, block);
        if low == 0 && !self.zero.contains(&block) {
            return None;
        }
        let wide = if self.wide.is_empty() {
            0
        } else {
            self.wide.get(&block).copied().unwrap_or(0)
        };
        Some(Name::from_parts(low, wide))
    }

    /// Binds a name to a block that somebody holds or is about to hold.
    pub(crate) fn bind(&mut self, shared: &Shared, block: Block, name: Name) {
        let primary = self.primary(shared, block);
        if primary == Some(name) {
            return;
        }
        if primary.is_some() {
            let aliases = self.aliases.entry(block).or_default();
            if !aliases.contains(&name) {
                aliases.push(name);
                self.add_other(name, block);
            }
            return;
        }
        self.set_primary(shared, block, name);
    }

    /// Binds names to consecutive blocks that nobody held and that have none.
    pub(crate) fn bind_fresh(&mut self, shared: &Shared, first: Block, names: &[Name]) {
        self.touch(names.iter().map(|name| name.low()));
        for (offset, &name) in (first.offset()..).zip(names) {
            self.set_primary(shared, Block::new(first.run(), offset), name);
        }
    }

    /// Loads what the next calls for these names will look at, all at once.
    fn touch(&mut self, lows: impl Iterator<Item = u64>) {
        // Kept, so that the loads are not left out.
        self.touched = lows.fold(0, |sum, low| sum ^ self.primary.touch(mix(low)));
    }

    fn set_primary(&mut self, shared: &Shared, block: Block, name: Name) {
        let (low, hash) = (name.low(), mix(name.low()));
        let same = |known| low_of(shared, known) == low;
        if self.has_other(hash, low) || !self.primary.insert(hash, block, same) {
            self.add_other(name, block);
        }
        shared.name_word(block).store(low, Relaxed);
        if low == 0 {
            self.zero.insert(block);
        }
        if name.wide() != 0 {
            self.wide.insert(block, name.wide());
        }
    }

    /// Whether consecutive blocks have just these primary names; may be false
    /// for rare kinds of names where it is so.
    pub(crate) fn are_primary(&self, shared: &Shared, first: Block, names: &[Name]) -> bool {
        let blocks = shared.blocks(first, names.len()).chunks_exact(2);
        self.wide.is_empty()
            && blocks.zip(names).all(|(words, name)| {
                let low = name.low();
                low != 0 && name.wide() == 0 && words[1].load(Relaxed) == low
            })
    }

    /// Unbinds all names of consecutive blocks.
    pub(crate) fn purge(&mut self, shared: &Shared, first: Block, count: usize) {
        let words = shared.blocks(first, count);
        self.touch(words.chunks_exact(2).map(|words| words[1].load(Relaxed)));
        for offset in (first.offset()..).take(count) {
            let block = Block::new(first.run(), offset);
            if let Some(name) = self.primary(shared, block) {
                self.unbind_primary(shared, block, name);
            }
            if !self.aliases.is_empty() {
                for name in self.aliases.remove(&block).unwrap_or_default() {
                    self.remove_other(name, block);
                }
            }
        }
    }

    fn unbind_primary(&mut self, shared: &Shared, block: Block, name: Name) {
        let hash = mix(name.low());
        if !self.primary.remove(hash, block) {
            self.remove_other(name, block);
        }
        if name.low() == 0 {
            self.zero.remove(&block);
        }
        if name.wide() != 0 {
            self.wide.remove(&block);
        }
        shared.name_word(block).store(0, Relaxed);
    }

    /// The blocks that a name is bound to, the oldest meaning first. Some may
    /// be held by nobody any more.
    pub(crate) fn meanings(&self, shared: &Shared, name: Name) -> Meanings {
        let hash = mix(name.low());
        let first = self
            .find_primary(shared, hash, name.low())
            .filter(|&block| {
                let primary = self.primary(shared, block);
                primary.is_some_and(|primary| primary.matches(name))
            });
        if self.others_count == 0 {
            return Meanings {
                first,
                rest: Vec::new(),
            };
        }
        let mut rest: Vec<Binding> = self.others[shard(hash)]
            .iter_hash(hash)
            .filter(|binding| binding.name.matches(name))
            .copied()
            .collect();
        rest.sort_unstable_by_key(|binding| binding.age);
        let mut meanings = Meanings {
            first,
            rest: Vec::with_capacity(rest.len()),
        };
        // A block that several of its names match is one meaning.
        for binding in rest {
            if !meanings.iter().any(|block| block == binding.block) {
                meanings.rest.push(binding.block);
            }
        }
        meanings
    }

    /// The only meaning of a name, where it is quick to tell.
    pub(crate) fn sole(&self, shared: &Shared, name: Name) -> Option<Block> {
        let plain = self.others_count == 0 && self.wide.is_empty() && name.wide() == 0;
        let block = plain.then(|| self.find_primary(shared, mix(name.low()), name.low()))?;
        block.filter(|_| name.low() != 0)
    }

    fn find_primary(&self, shared: &Shared, hash: u64, low: u64) -> Option<Block> {
        let same = |block| low_of(shared, block) == low;
        self.primary.find(hash, same)
    }

    fn has_other(&self, hash: u64, low: u64) -> bool {
        self.others_count > 0
            && self.others[shard(hash)]
                .find(hash, |binding| binding.name.low() == low)
                .is_some()
    }

    fn add_other(&mut self, name: Name, block: Block) {
        let hash = mix(name.low());
        let age = self.clock;
        self.clock += 1;
        self.others_count += 1;
        self.others[shard(hash)].insert_unique(hash, Binding { name, block, age }, |binding| {
            mix(binding.name.low())
        });
    }

    fn remove_other(&mut self, name: Name, block: Block) {
        let hash = mix(name.low());
        let same = |binding: &Binding| binding.block == block && binding.name == name;
        let entry = self.others[shard(hash)].find_entry(hash, same);
        entry.expect("a binding of the block").remove();
        self.others_count -= 1;
    }

    /// How many bindings there are.
    pub(crate) fn len(&self) -> usize {
        self.primary.len() + self.others_count
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let others: usize = self.others.iter().map(HashTable::allocation_size).sum();
        let aliases = self.aliases.capacity() * 40 + self.aliases.len() * 64;
        self.primary.bytes() + others + aliases + (self.wide.capacity() + self.zero.capacity()) * 17
    }
}

/// What a name means, oldest first.
#[derive(Debug)]
pub(crate) struct Meanings {
    first: Option<Block>,
    rest: Vec<Block>,
}

impl Meanings {
    /// The only meaning there is.
    pub(crate) fn only(&self) -> Option<Block> {
        self.first.filter(|_| self.rest.is_empty())
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Block> {
        self.first.into_iter().chain(self.rest.iter().copied())
    }
}

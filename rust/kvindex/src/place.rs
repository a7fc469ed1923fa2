//! Where is the block of that name? Engine hashes to blocks, for the writer.
//!
//! Nearly always one engine hash means one block and one block has one hash.
//! That hash is the block's *primary* name and lies beside the block's key in
//! its run; further ones are its *aliases*. The table of places has one slot for
//! each name, which is verified against what is written by the block. Names that
//! have several meanings are not in the table but in a list, the oldest first.
//!
//! A name is bound to a block from the first store that says so until nobody
//! holds the block.

use crate::aliases::Aliases;
use crate::event::Name;
use crate::mix::{MixMap, MixSet, mix};
use crate::run::{Block, Shared};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// How a name stands with a block that it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Primary,
    /// By its number among the block's aliases, which stays as long as anybody
    /// holds the block.
    Alias(usize),
}

/// All names that are bound to blocks.
#[derive(Debug, Default)]
pub(crate) struct Places {
    slots: Slots,
    /// What is bound to names that compare equal with integers, by those, where
    /// there is more than one; such names have no slots.
    several: MixMap<u64, Vec<(Name, Block)>>,
    aliases: Aliases,
    /// The second halves of primary names that are byte strings.
    wide: MixMap<Block, u64>,
    /// Blocks whose primary name is the number 0: elsewhere a 0 beside the key
    /// says that there is no primary name.
    zero: MixSet<Block>,
    bindings: usize,
    touched: u64,
}

/// Whether a block has a name that compares equal with an integer.
fn has(shared: &Shared, aliases: &Aliases, block: Block, low: u64) -> bool {
    shared.name_word(block).load(Relaxed) == low
        || (!aliases.is_empty() && aliases.find(block, low).is_some())
}

impl Places {
    /// The name that a holder of the block is taken to have given it, unless
    /// its copies say otherwise.
    pub(crate) fn primary(&self, shared: &Shared, block: Block) -> Option<Name> {
        self.name_in(block, shared.name_word(block))
    }

    /// The primary name of a block, by the word beside its key.
    pub(crate) fn name_in(&self, block: Block, word: &AtomicU64) -> Option<Name> {
        let low = word.load(Relaxed);
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

    /// A block's alias of that number.
    pub(crate) fn alias(&self, block: Block, number: usize) -> Name {
        let alias = self.aliases.get(block, number);
        alias.expect("an alias of a block that is held")
    }

    /// How a name stands with a block that it is bound to.
    pub(crate) fn standing(&self, shared: &Shared, block: Block, name: Name) -> Standing {
        if self.primary(shared, block) == Some(name) {
            return Standing::Primary;
        }
        let number = self.aliases.number(block, name);
        Standing::Alias(number.expect("a name of the block"))
    }

    /// Binds a name to a block that somebody holds or is about to hold; `word` is
    /// the one beside the block's key.
    pub(crate) fn bind(
        &mut self,
        shared: &Shared,
        block: Block,
        word: &AtomicU64,
        name: Name,
    ) -> Standing {
        let primary = self.name_in(block, word);
        if primary.is_none() {
            self.set_primary(shared, block, word, name);
        }
        if primary.is_none_or(|primary| primary == name) {
            return Standing::Primary;
        }
        let (hash, low) = (mix(name.low()), name.low());
        // Only a name that is known by its slot or list may be the block's already.
        if self.has_several(name) || !self.insert(shared, hash, low, block) {
            if let Some(number) = self.aliases.number(block, name) {
                return Standing::Alias(number);
            }
            if !self.is_listed(name, block) {
                self.list(shared, hash, name, block);
            }
        }
        self.bindings += 1;
        Standing::Alias(self.aliases.push(block, name))
    }

    /// Gives a block's name a slot, unless that name has one; whether it did.
    fn insert(&mut self, shared: &Shared, hash: u64, low: u64, block: Block) -> bool {
        let aliases = &self.aliases;
        self.slots
            .insert(hash, block, |known| has(shared, aliases, known, low))
    }

    /// Binds names to consecutive blocks that nobody held and that have none.
    pub(crate) fn bind_fresh(&mut self, shared: &Shared, first: Block, names: &[Name]) {
        self.touch(names.iter().map(|name| name.low()));
        let words = shared.blocks(first, names.len()).chunks_exact(2);
        for ((offset, &name), words) in (first.offset()..).zip(names).zip(words) {
            self.set_primary(shared, Block::new(first.run(), offset), &words[1], name);
        }
    }

    /// Loads what binding or unbinding these names will look at, all at once.
    pub(crate) fn touch(&mut self, lows: impl Iterator<Item = u64>) {
        // Kept, so that the loads are not left out.
        self.touched = lows.fold(0, |sum, low| sum ^ self.slots.touch(mix(low)));
    }

    fn set_primary(&mut self, shared: &Shared, block: Block, word: &AtomicU64, name: Name) {
        let (low, hash) = (name.low(), mix(name.low()));
        if !self.is_listed(name, block) && !self.insert(shared, hash, low, block) {
            self.list(shared, hash, name, block);
        }
        self.bindings += 1;
        word.store(low, Relaxed);
        if low == 0 {
            self.zero.insert(block);
        }
        if name.wide() != 0 {
            self.wide.insert(block, name.wide());
        }
    }

    /// Lists a binding of a name that is listed; whether it is.
    fn is_listed(&mut self, name: Name, block: Block) -> bool {
        if self.several.is_empty() {
            return false;
        }
        let list = self.several.get_mut(&name.low());
        list.map(|list| list.push((name, block))).is_some()
    }

    /// Lists a binding beside the one of that name that has a slot.
    fn list(&mut self, shared: &Shared, hash: u64, name: Name, block: Block) {
        let other = self.find(shared, hash, name.low(), |_| None);
        let other = other.expect("the binding that was found");
        let removed = self.slots.remove(hash, other.1);
        debug_assert!(removed, "a name without a list has a slot");
        self.several.insert(name.low(), vec![other, (name, block)]);
    }

    /// The only binding of a name that has a slot. `guess` = the number of the
    /// alias of a block that it may be, which spares looking at all of them.
    fn find(
        &self,
        shared: &Shared,
        hash: u64,
        low: u64,
        guess: impl Fn(Block) -> Option<usize>,
    ) -> Option<(Name, Block)> {
        let aliases = &self.aliases;
        let mut alias = None;
        let block = self.slots.find(hash, |block| {
            if shared.name_word(block).load(Relaxed) == low {
                return true;
            }
            if aliases.is_empty() {
                return false;
            }
            let guessed = guess(block).and_then(|number| aliases.get(block, number));
            let guessed = guessed.filter(|name| name.low() == low);
            alias = guessed.or_else(|| aliases.find(block, low));
            alias.is_some()
        })?;
        let name = alias.or_else(|| self.primary(shared, block));
        Some((name.expect("what has a slot is bound"), block))
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
        let words = shared.blocks(first, count).chunks_exact(2);
        self.touch(words.clone().map(|words| words[1].load(Relaxed)));
        for (offset, words) in (first.offset()..).zip(words) {
            let block = Block::new(first.run(), offset);
            if let Some(name) = self.name_in(block, &words[1]) {
                self.unbind(block, name);
                self.forget_primary(block, &words[1], name);
            }
            if self.aliases.is_empty() {
                continue;
            }
            let aliases = self.aliases.take(block);
            self.touch(aliases.iter().map(|name| name.low()));
            for name in aliases {
                self.unbind(block, name);
            }
        }
    }

    fn forget_primary(&mut self, block: Block, word: &AtomicU64, name: Name) {
        if name.low() == 0 {
            self.zero.remove(&block);
        }
        if name.wide() != 0 {
            self.wide.remove(&block);
        }
        word.store(0, Relaxed);
    }

    fn unbind(&mut self, block: Block, name: Name) {
        let hash = mix(name.low());
        self.bindings -= 1;
        if !self.several.is_empty()
            && let Some(list) = self.several.get_mut(&name.low())
        {
            list.retain(|binding| *binding != (name, block));
            if let [(_, left)] = list[..] {
                self.several.remove(&name.low());
                self.slots.insert(hash, left, |_| false);
            }
            return;
        }
        let removed = self.slots.remove(hash, block);
        debug_assert!(removed, "a name without a list has a slot");
    }

    /// The blocks that a name is bound to, the oldest meaning first. Some may
    /// be held by nobody any more.
    pub(crate) fn meanings(&self, shared: &Shared, name: Name) -> Meanings {
        if !self.several.is_empty()
            && let Some(list) = self.several.get(&name.low())
        {
            let mut blocks = Vec::with_capacity(list.len());
            for (other, block) in list {
                // A block that several of its names match is one meaning.
                if other.matches(name) && !blocks.contains(block) {
                    blocks.push(*block);
                }
            }
            let mut blocks = blocks.into_iter();
            return Meanings {
                first: blocks.next(),
                rest: blocks.collect(),
            };
        }
        let found = self.find(shared, mix(name.low()), name.low(), |_| None);
        let found = found.filter(|(other, _)| other.matches(name));
        Meanings {
            first: found.map(|(_, block)| block),
            rest: Vec::new(),
        }
    }

    /// The only block that just this name means; `None` for rare kinds of names
    /// where there may be one. `guess` is as for `find`.
    pub(crate) fn sole(
        &self,
        shared: &Shared,
        name: Name,
        guess: impl Fn(Block) -> Option<usize>,
    ) -> Option<Block> {
        if self.has_several(name) {
            return None;
        }
        let found = self.find(shared, mix(name.low()), name.low(), guess);
        let (known, block) = found?;
        (known == name).then_some(block)
    }

    /// Whether a name may have several meanings.
    pub(crate) fn has_several(&self, name: Name) -> bool {
        !self.several.is_empty() && self.several.contains_key(&name.low())
    }

    /// How many bindings there are.
    pub(crate) fn len(&self) -> usize {
        self.bindings
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let several = self.several.capacity() * 33 + self.several.len() * 64;
        let rare = (self.wide.capacity() + self.zero.capacity()) * 17;
        self.slots.bytes() + several + self.aliases.bytes() + rare
    }
}

/// What a name means, oldest first.
#[derive(Debug)]
pub(crate) struct Meanings {
    first: Option<Block>,
    rest: Vec<Block>,
}

impl Meanings {
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Block> {
        self.first.into_iter().chain(self.rest.iter().copied())
    }
}

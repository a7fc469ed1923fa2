//! Where is the block of that name? Engine hashes to blocks, for the writer.
//!
//! Nearly always one engine hash means one block and one block has one hash.
//! That hash is the block's *primary* name: it lies beside the block's key in
//! its run, and the table of places has one slot for it, which is verified
//! against the run. A block's further names, its *aliases*, are listed by block
//! and have slots in a table of their own. Names that have several meanings are
//! in neither table but in a list, the oldest first.
//!
//! A name is bound to a block from the first store that says so until nobody
//! holds the block.

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
    /// Blocks by their primary names.
    primary: Slots,
    /// Blocks by their aliases.
    further: Slots,
    /// What is bound to names that compare equal with integers, by those, where
    /// there is more than one; such names have no slots.
    several: MixMap<u64, Vec<(Name, Block)>>,
    aliases: MixMap<Block, Vec<Name>>,
    /// The second halves of primary names that are byte strings.
    wide: MixMap<Block, u64>,
    /// Blocks whose primary name is the number 0: elsewhere a 0 beside the key
    /// says that there is no primary name.
    zero: MixSet<Block>,
    bindings: usize,
    touched: u64,
}

fn low_of(shared: &Shared, block: Block) -> u64 {
    shared.name_word(block).load(Relaxed)
}

fn has_alias(aliases: &MixMap<Block, Vec<Name>>, block: Block, low: u64) -> bool {
    let aliases = aliases.get(&block);
    aliases.is_some_and(|aliases| aliases.iter().any(|alias| alias.low() == low))
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
        self.aliases[&block][number]
    }

    /// How a name stands with a block that it is bound to.
    pub(crate) fn standing(&self, shared: &Shared, block: Block, name: Name) -> Standing {
        if self.primary(shared, block) == Some(name) {
            return Standing::Primary;
        }
        let mut aliases = self.aliases[&block].iter();
        let number = aliases.position(|alias| *alias == name);
        Standing::Alias(number.expect("a name of the block"))
    }

    /// Binds a name to a block that somebody holds or is about to hold.
    pub(crate) fn bind(&mut self, shared: &Shared, block: Block, name: Name) -> Standing {
        let primary = self.primary(shared, block);
        if primary.is_none() {
            self.set_primary(shared, block, shared.name_word(block), name);
        }
        if primary.is_none_or(|primary| primary == name) {
            return Standing::Primary;
        }
        let (hash, low) = (mix(name.low()), name.low());
        // Only a name that is known by its slot or list may be the block's already.
        let known = self.has_several(name) || !self.insert_alias(shared, hash, low, block);
        if known {
            let own = self.aliases.get(&block).map_or(&[][..], Vec::as_slice);
            if let Some(number) = own.iter().position(|alias| *alias == name) {
                return Standing::Alias(number);
            }
            if !self.is_listed(name, block) {
                self.list(shared, hash, name, block);
            }
        }
        let aliases = self.aliases.entry(block).or_default();
        aliases.push(name);
        self.bindings += 1;
        Standing::Alias(aliases.len() - 1)
    }

    /// Gives an alias a slot, unless its name has one; whether it did.
    fn insert_alias(&mut self, shared: &Shared, hash: u64, low: u64, block: Block) -> bool {
        let same = |known| low_of(shared, known) == low;
        if self.primary.find(hash, same).is_some() {
            return false;
        }
        let aliases = &self.aliases;
        self.further
            .insert(hash, block, |known| has_alias(aliases, known, low))
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
        let rare = self.further.len() > 0;
        let touch = |low| {
            let hash = mix(low);
            let further = if rare { self.further.touch(hash) } else { 0 };
            self.primary.touch(hash) ^ further
        };
        // Kept, so that the loads are not left out.
        self.touched = lows.fold(0, |sum, low| sum ^ touch(low));
    }

    fn set_primary(&mut self, shared: &Shared, block: Block, word: &AtomicU64, name: Name) {
        let (low, hash) = (name.low(), mix(name.low()));
        if !self.is_listed(name, block) {
            let aliases = &self.aliases;
            let same = |known| has_alias(aliases, known, low);
            let other = (self.further.len() > 0).then(|| self.further.find(hash, same));
            let same = |known| low_of(shared, known) == low;
            if other.flatten().is_some() || !self.primary.insert(hash, block, same) {
                self.list(shared, hash, name, block);
            }
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
        let other = self.find(shared, hash, name.low());
        let other = other.expect("the binding that was found");
        let removed = self.primary.remove(hash, other.1) || self.further.remove(hash, other.1);
        debug_assert!(removed, "a name without a list has a slot");
        self.several.insert(name.low(), vec![other, (name, block)]);
    }

    /// The only binding of a name that has a slot.
    fn find(&self, shared: &Shared, hash: u64, low: u64) -> Option<(Name, Block)> {
        let same = |block| low_of(shared, block) == low;
        if let Some(block) = self.primary.find(hash, same) {
            let name = self.primary(shared, block);
            return Some((name.expect("what has a slot is bound"), block));
        }
        let mut name = None;
        let block = self.further.find(hash, |block| {
            let mut aliases = self.aliases.get(&block).into_iter().flatten();
            name = aliases.find(|alias| alias.low() == low).copied();
            name.is_some()
        });
        name.zip(block)
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
                self.unbind(shared, block, name, Standing::Primary);
                self.forget_primary(block, &words[1], name);
            }
            if self.aliases.is_empty() {
                continue;
            }
            let aliases = self.aliases.remove(&block).unwrap_or_default();
            for (number, name) in aliases.into_iter().enumerate() {
                self.unbind(shared, block, name, Standing::Alias(number));
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

    fn unbind(&mut self, shared: &Shared, block: Block, name: Name, standing: Standing) {
        let hash = mix(name.low());
        self.bindings -= 1;
        if !self.several.is_empty()
            && let Some(list) = self.several.get_mut(&name.low())
        {
            list.retain(|binding| *binding != (name, block));
            if let [(left, of)] = list[..] {
                self.several.remove(&name.low());
                let table = if self.primary(shared, of) == Some(left) {
                    &mut self.primary
                } else {
                    &mut self.further
                };
                table.insert(hash, of, |_| false);
            }
            return;
        }
        let table = match standing {
            Standing::Primary => &mut self.primary,
            Standing::Alias(_) => &mut self.further,
        };
        let removed = table.remove(hash, block);
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
        let found = self.find(shared, mix(name.low()), name.low());
        let found = found.filter(|(other, _)| other.matches(name));
        Meanings {
            first: found.map(|(_, block)| block),
            rest: Vec::new(),
        }
    }

    /// The only block that just this name means; `None` for rare kinds of names
    /// where there may be one.
    pub(crate) fn sole(&self, shared: &Shared, name: Name) -> Option<Block> {
        if self.has_several(name) {
            return None;
        }
        let found = self.find(shared, mix(name.low()), name.low());
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
        let aliases = self.aliases.capacity() * 33 + (self.bindings - self.primary.len()) * 20;
        let rare = (self.wide.capacity() + self.zero.capacity()) * 17;
        self.primary.bytes() + self.further.bytes() + several + aliases + rare
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

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

impl Places {
    /// The name that a holder of the block is taken to have given it, unless
    /// its copies say otherwise.
    pub(crate) fn primary(&self, shared: &Shared, block: Block) -> Option<Name> {
        self.name_in(block, shared.name_word(block))
    }

    fn name_in(&self, block: Block, word: &AtomicU64) -> Option<Name> {
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
        let aliases = self.aliases.entry(block).or_default();
        if let Some(number) = aliases.iter().position(|alias| *alias == name) {
            return Standing::Alias(number);
        }
        let number = aliases.len();
        let hash = mix(name.low());
        if !self.has_several(shared, hash, name, block) {
            self.further.insert(hash, block, |_| false);
        }
        self.aliases.entry(block).or_default().push(name);
        self.bindings += 1;
        Standing::Alias(number)
    }

    /// Binds names to consecutive blocks that nobody held and that have none.
    pub(crate) fn bind_fresh(&mut self, shared: &Shared, first: Block, names: &[Name]) {
        self.touch(names.iter().map(|name| name.low()));
        let words = shared.blocks(first, names.len()).chunks_exact(2);
        for ((offset, &name), words) in (first.offset()..).zip(names).zip(words) {
            self.set_primary(shared, Block::new(first.run(), offset), &words[1], name);
        }
    }

    /// Loads what the next calls for these names will look at, all at once.
    fn touch(&mut self, lows: impl Iterator<Item = u64>) {
        // Kept, so that the loads are not left out.
        self.touched = lows.fold(0, |sum, low| sum ^ self.primary.touch(mix(low)));
    }

    fn set_primary(&mut self, shared: &Shared, block: Block, word: &AtomicU64, name: Name) {
        let (low, hash) = (name.low(), mix(name.low()));
        let rare = self.further.len() > 0 || !self.several.is_empty();
        if !(rare && self.has_several(shared, hash, name, block)) {
            let same = |known| low_of(shared, known) == low;
            if !self.primary.insert(hash, block, same) {
                self.has_several(shared, hash, name, block);
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

    /// Lists a binding where there is another one of its name.
    fn has_several(&mut self, shared: &Shared, hash: u64, name: Name, block: Block) -> bool {
        let low = name.low();
        if let Some(list) = self.several.get_mut(&low) {
            list.push((name, block));
            return true;
        }
        let Some(other) = self.find(shared, hash, low) else {
            return false;
        };
        let removed = self.primary.remove(hash, other.1) || self.further.remove(hash, other.1);
        debug_assert!(removed, "a name without a list has a slot");
        self.several.insert(low, vec![other, (name, block)]);
        true
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

    /// The only meaning of a name, where it is quick to tell.
    pub(crate) fn sole(&self, shared: &Shared, name: Name) -> Option<Block> {
        let same = |block| low_of(shared, block) == name.low();
        self.is_usual(name)
            .then(|| self.primary.find(mix(name.low()), same))?
    }

    /// Whether a name means the block whose primary name it is and no other.
    pub(crate) fn is_usual(&self, name: Name) -> bool {
        let several = !self.several.is_empty() && self.several.contains_key(&name.low());
        name.low() != 0 && name.wide() == 0 && self.wide.is_empty() && !several
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

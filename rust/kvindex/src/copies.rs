//! How often does a member hold a block, and under which names?
//!
//! A block that a member holds is held once, under its primary name, unless it
//! is written down here. What is not too rare takes one word:
//!
//! ```text
//! word   block (48 bits) | 0 | copies under the primary name (15)
//! word   block (48 bits) | 1 | the alias that the one copy is under (15)
//! ```

use hashbrown::HashTable;

use crate::event::Name;
use crate::mix::{MixMap, mix};
use crate::place::{Places, Standing};
use crate::run::{Block, Shared};

const CODE_BITS: u32 = 16;
const ALIAS: u16 = 1 << 15;
/// The code of what is not written down.
const ONCE: u16 = 1;

/// A name's copies of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) name: Name,
    pub(crate) count: u32,
}

/// The copies of one member's blocks.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    words: HashTable<u64>,
    /// Copies under several names, and what no word can hold.
    lists: MixMap<Block, Vec<Copy>>,
}

fn pack(block: Block, code: u16) -> u64 {
    block.word() << CODE_BITS | u64::from(code)
}

fn hash(word: u64) -> u64 {
    mix(word >> CODE_BITS)
}

fn is_of(block: Block) -> impl Fn(&u64) -> bool {
    move |word| word >> CODE_BITS == block.word()
}

impl Copies {
    fn code(&self, block: Block) -> Option<u16> {
        let found = self.words.find(mix(block.word()), is_of(block));
        found.map(|word| *word as u16)
    }

    fn is_listed(&self, block: Block) -> bool {
        !self.lists.is_empty() && self.lists.contains_key(&block)
    }

    fn insert(&mut self, word: u64) {
        self.words
            .insert_unique(hash(word), word, |&word| hash(word));
    }

    /// Whether a block is held once, under its primary name.
    pub(crate) fn is_usual(&self, block: Block) -> bool {
        self.once(block) == Some(Standing::Primary)
    }

    /// The copies of a block that is held.
    pub(crate) fn get(&self, places: &Places, shared: &Shared, block: Block) -> Vec<Copy> {
        if let Some(list) = self.lists.get(&block) {
            return list.clone();
        }
        let code = self.code(block).unwrap_or(ONCE);
        if code & ALIAS != 0 {
            let name = places.alias(block, usize::from(code & !ALIAS));
            return vec![Copy { name, count: 1 }];
        }
        let primary = places.primary(shared, block);
        vec![Copy {
            name: primary.expect("a held block has a name"),
            count: u32::from(code),
        }]
    }

    /// Whether a block that is held is held under a name.
    pub(crate) fn have(&self, places: &Places, shared: &Shared, block: Block, name: Name) -> bool {
        if self.is_usual(block) {
            let primary = places.primary(shared, block);
            return primary.is_some_and(|primary| primary.matches(name));
        }
        let copies = self.get(places, shared, block);
        copies.iter().any(|copy| copy.name.matches(name))
    }

    /// How a block that is held once is held; `None` for all others.
    pub(crate) fn once(&self, block: Block) -> Option<Standing> {
        if self.is_listed(block) {
            return None;
        }
        if self.words.is_empty() {
            return Some(Standing::Primary);
        }
        match self.code(block) {
            None => Some(Standing::Primary),
            Some(code) if code & ALIAS != 0 => Some(Standing::Alias(usize::from(code & !ALIAS))),
            Some(_) => None,
        }
    }

    /// Forgets what is written down of consecutive blocks.
    pub(crate) fn clear(&mut self, blocks: impl Iterator<Item = Block>) {
        if !self.words.is_empty() {
            blocks.for_each(|block| self.set_code(block, ONCE));
        }
    }

    /// Sets the copies of a block that is held, or was.
    pub(crate) fn set(&mut self, places: &Places, shared: &Shared, block: Block, copies: &[Copy]) {
        let code = match copies {
            [] => Some(ONCE),
            [Copy { name, count }] => match (places.standing(shared, block, *name), *count) {
                (Standing::Primary, count) if count < u32::from(ALIAS) => Some(count as u16),
                (Standing::Alias(number @ ..0x8000), 1) => Some(ALIAS | number as u16),
                _ => None,
            },
            _ => None,
        };
        self.set_code(block, code.unwrap_or(ONCE));
        if code.is_none() {
            self.lists.insert(block, copies.to_vec());
        } else if !self.lists.is_empty() {
            self.lists.remove(&block);
        }
    }

    /// Says that a block that was not held is now, under its name of that
    /// standing.
    pub(crate) fn begin(&mut self, block: Block, name: Name, standing: Standing) {
        match standing {
            Standing::Primary => {}
            Standing::Alias(number @ ..0x8000) => {
                self.insert(pack(block, ALIAS | number as u16));
            }
            Standing::Alias(_) => {
                self.lists.insert(block, vec![Copy { name, count: 1 }]);
            }
        }
    }

    /// Adds a copy under the primary name; false where that takes more than a
    /// number.
    pub(crate) fn add_primary(&mut self, block: Block) -> bool {
        if self.is_listed(block) {
            return false;
        }
        match self.words.find_mut(mix(block.word()), is_of(block)) {
            Some(word) if (*word as u16) < ALIAS - 1 => *word += 1,
            Some(_) => return false,
            None => self.insert(pack(block, ONCE + 1)),
        }
        true
    }

    fn set_code(&mut self, block: Block, code: u16) {
        if code == ONCE && self.words.is_empty() {
            return;
        }
        match self.words.find_entry(mix(block.word()), is_of(block)) {
            Ok(entry) if code == ONCE => {
                entry.remove();
            }
            Ok(mut entry) => *entry.get_mut() = pack(block, code),
            Err(_) if code == ONCE => {}
            Err(_) => self.insert(pack(block, code)),
        }
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.words.allocation_size() + self.lists.capacity() * 33 + self.lists.len() * 64
    }
}

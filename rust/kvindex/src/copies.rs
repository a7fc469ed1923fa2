//! How often does a member hold a block, and under which names?
//!
//! A block that a member holds is held once, under its primary name, unless it
//! is written down here. What is not too rare takes 16 bits, beside those of the
//! block's seven neighbours, since what holds for one block mostly holds for the
//! blocks around it:
//!
//! ```text
//! group   run (32 bits) | offset / 8 (13)     code of each of the eight blocks
//! code    0, nothing is written down
//!         0 | copies under the primary name, 2 or more (15)
//!         1 | the alias that the one copy is under (15)
//! ```

use hashbrown::HashTable;

use crate::event::Name;
use crate::mix::{MixMap, mix};
use crate::place::{Places, Standing};
use crate::run::{Block, GROUP, Shared};

const ALIAS: u16 = 1 << 15;
/// The code of what is not written down.
const USUAL: u16 = 0;

/// The copies of a block under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: Name,
    pub(crate) count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    key: u64,
    codes: [u16; GROUP],
}

/// The copies of one member's blocks.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    groups: HashTable<Group>,
    /// Copies under several names, and what no code can say.
    lists: MixMap<Block, Vec<Named>>,
}

fn hash(group: &Group) -> u64 {
    mix(group.key)
}

impl Copies {
    fn code(&self, block: Block) -> u16 {
        if self.groups.is_empty() {
            return USUAL;
        }
        let (key, at) = block.group();
        let found = self.groups.find(mix(key), |group| group.key == key);
        found.map_or(USUAL, |group| group.codes[at])
    }

    fn set_code(&mut self, block: Block, code: u16) {
        if code == USUAL && self.groups.is_empty() {
            return;
        }
        let (key, at) = block.group();
        match self.groups.find_entry(mix(key), |group| group.key == key) {
            Ok(mut entry) => {
                entry.get_mut().codes[at] = code;
                if entry.get().codes == [USUAL; GROUP] {
                    entry.remove();
                }
            }
            Err(_) if code == USUAL => {}
            Err(_) => {
                let mut codes = [USUAL; GROUP];
                codes[at] = code;
                let group = Group { key, codes };
                self.groups.insert_unique(mix(key), group, hash);
            }
        }
    }

    fn is_listed(&self, block: Block) -> bool {
        !self.lists.is_empty() && self.lists.contains_key(&block)
    }

    /// Whether a block is held once, under its primary name.
    pub(crate) fn is_usual(&self, block: Block) -> bool {
        self.once(block) == Some(Standing::Primary)
    }

    /// The copies of a block that is held.
    pub(crate) fn get(&self, places: &Places, shared: &Shared, block: Block) -> Vec<Named> {
        if let Some(list) = self.lists.get(&block) {
            return list.clone();
        }
        if let Some(number) = self.alias(block) {
            let name = places.alias(block, number);
            return vec![Named { name, count: 1 }];
        }
        let primary = places.primary(shared, block);
        vec![Named {
            name: primary.expect("a held block has a name"),
            count: u32::from(self.code(block).max(1)),
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
        match (self.code(block), self.alias(block)) {
            (USUAL, _) => Some(Standing::Primary),
            (_, alias) => alias.map(Standing::Alias),
        }
    }

    /// The number of the alias under which a block may be held once.
    pub(crate) fn alias(&self, block: Block) -> Option<usize> {
        let code = self.code(block);
        (code & ALIAS != 0).then(|| usize::from(code & !ALIAS))
    }

    /// Forgets what is written down of consecutive blocks.
    pub(crate) fn clear(&mut self, blocks: impl Iterator<Item = Block>) {
        if !self.groups.is_empty() {
            blocks.for_each(|block| self.set_code(block, USUAL));
        }
    }

    /// Sets the copies of a block that is held, or was.
    pub(crate) fn set(&mut self, places: &Places, shared: &Shared, block: Block, copies: &[Named]) {
        let code = match copies {
            [] => Some(USUAL),
            [Named { name, count }] => match (places.standing(shared, block, *name), *count) {
                (Standing::Primary, 1) => Some(USUAL),
                (Standing::Primary, count) if count < u32::from(ALIAS) => Some(count as u16),
                (Standing::Alias(number @ ..0x8000), 1) => Some(ALIAS | number as u16),
                _ => None,
            },
            _ => None,
        };
        self.set_code(block, code.unwrap_or(USUAL));
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
            Standing::Alias(number @ ..0x8000) => self.set_code(block, ALIAS | number as u16),
            Standing::Alias(_) => {
                self.lists.insert(block, vec![Named { name, count: 1 }]);
            }
        }
    }

    /// Adds a copy under the primary name; false where that takes more than a
    /// number.
    pub(crate) fn add_primary(&mut self, block: Block) -> bool {
        let code = self.code(block);
        if code >= ALIAS - 1 || self.is_listed(block) {
            return false;
        }
        self.set_code(block, code.max(1) + 1);
        true
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.allocation_size() + self.lists.capacity() * 33 + self.lists.len() * 64
    }
}

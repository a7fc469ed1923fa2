//! What else is that block called? Names beyond the primary one, for the writer.
//!
//! Where workers hash differently, a block that many of them hold has a name of
//! each, and so have its neighbours: they arrive together and are asked for
//! together. So the aliases of eight neighbours lie in rows, and those that one
//! worker gave in one batch are next to each other in memory.

use hashbrown::HashTable;

use crate::event::Name;
use crate::mix::{MixMap, mix};
use crate::run::{Block, GROUP};

#[derive(Clone, Debug)]
struct Group {
    key: u64,
    /// How many aliases each block has: its column is filled so far.
    counts: [u32; GROUP],
    /// By the aliases' numbers; each row has one of each block.
    rows: Vec<[u64; GROUP]>,
}

/// The aliases of all blocks. A block's are numbered in the order in which they
/// came, and all go at once.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    groups: HashTable<Group>,
    /// The second halves of those that are byte strings.
    wide: MixMap<(Block, u32), u64>,
    rows: usize,
}

impl Aliases {
    fn group(&self, block: Block) -> Option<(&Group, usize)> {
        let (key, at) = block.group();
        let group = self.groups.find(mix(key), |group| group.key == key);
        group.map(|group| (group, at))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// A block's alias of that number, if it has so many.
    pub(crate) fn get(&self, block: Block, number: usize) -> Option<Name> {
        let (group, at) = self.group(block)?;
        let known = number < group.counts[at] as usize;
        known.then(|| self.name(block, number, group.rows[number][at]))
    }

    fn name(&self, block: Block, number: usize, low: u64) -> Name {
        let wide = if self.wide.is_empty() {
            0
        } else {
            self.wide.get(&(block, number as u32)).copied().unwrap_or(0)
        };
        Name::from_parts(low, wide)
    }

    fn of(&self, block: Block) -> impl Iterator<Item = Name> {
        let group = self.group(block).into_iter();
        group.flat_map(move |(group, at)| {
            let rows = group.rows[..group.counts[at] as usize].iter();
            let numbered = rows.enumerate();
            numbered.map(move |(number, row)| self.name(block, number, row[at]))
        })
    }

    /// A block's first alias that compares equal with an integer.
    pub(crate) fn find(&self, block: Block, low: u64) -> Option<Name> {
        self.of(block).find(|alias| alias.low() == low)
    }

    /// The number of a block's alias.
    pub(crate) fn number(&self, block: Block, name: Name) -> Option<usize> {
        self.of(block).position(|alias| alias == name)
    }

    /// Gives a block an alias; returns its number.
    pub(crate) fn push(&mut self, block: Block, name: Name) -> usize {
        let (key, at) = block.group();
        let same = |group: &Group| group.key == key;
        let entry = self
            .groups
            .entry(mix(key), same, |group| mix(group.key))
            .or_insert_with(|| Group {
                key,
                counts: [0; GROUP],
                rows: Vec::new(),
            });
        let group = entry.into_mut();
        let number = group.counts[at];
        if number as usize == group.rows.len() {
            if group.rows.len() == group.rows.capacity() {
                let more = group.rows.len() / 4 + 1;
                group.rows.reserve_exact(more);
                self.rows += more;
            }
            group.rows.push([0; GROUP]);
        }
        group.rows[number as usize][at] = name.low();
        group.counts[at] += 1;
        if name.wide() != 0 {
            self.wide.insert((block, number), name.wide());
        }
        number as usize
    }

    /// Takes all aliases of a block.
    pub(crate) fn take(&mut self, block: Block) -> Vec<Name> {
        let names: Vec<Name> = self.of(block).collect();
        if names.is_empty() {
            return names;
        }
        let (key, at) = block.group();
        let entry = self.groups.find_entry(mix(key), |group| group.key == key);
        let mut entry = entry.expect("the group of the names");
        let group = entry.get_mut();
        group.counts[at] = 0;
        if group.counts == [0; GROUP] {
            self.rows -= group.rows.capacity();
            entry.remove();
        }
        if !self.wide.is_empty() {
            for number in 0..names.len() as u32 {
                self.wide.remove(&(block, number));
            }
        }
        names
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.rows * size_of::<[u64; GROUP]>();
        self.groups.allocation_size() + rows + self.wide.capacity() * 25
    }
}

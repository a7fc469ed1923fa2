//! What does that name mean to this holder?

use crate::event::Name;
use crate::member::Role;
use crate::profile::Profile;
use crate::run::Block;
use crate::store::Store;
use crate::writer::Writer;

/// The namespace that an event names; `None` = it says nothing, empty = none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given<'a> {
    pub(crate) lora: Option<&'a str>,
    pub(crate) salt: Option<&'a str>,
}

impl<'a> Given<'a> {
    /// What an adapter's name and a salt of an event say: sources that always
    /// name theirs mean by silence that there is none.
    pub(crate) fn by(profile: &Profile, lora: Option<&'a str>, salt: Option<&'a str>) -> Self {
        let silence = (!profile.inherits_namespace()).then_some("");
        Self {
            lora: lora.or(silence),
            salt: salt.or(silence),
        }
    }
}

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Block(Block),
    Unknown,
    /// Blocks of several namespaces.
    Ambiguous,
}

impl Writer {
    /// The meaning of a name: the holder's own live block, else the oldest live
    /// meaning that anybody gave it.
    pub(crate) fn resolve(&mut self, holder: u32, name: Name, given: Given<'_>) -> Meaning {
        let own_only = self.profile(holder).own_names;
        let alias = |block| self.own_alias(holder, block);
        let places = &self.store.places;
        if !own_only && let Some(block) = places.sole(&self.store.shared, name, alias) {
            let live = self.store.live(block);
            return if live {
                Meaning::Block(block)
            } else {
                Meaning::Unknown
            };
        }
        let meanings = self.store.places.meanings(&self.store.shared, name);
        let mut live = Vec::new();
        for block in meanings.iter() {
            if self.store.live(block) {
                live.push(block);
            }
        }
        if let ([block], false) = (&live[..], own_only) {
            return Meaning::Block(*block);
        }
        let holds = |block: &Block| self.holds(holder, *block, name);
        let own: Vec<Block> = live.iter().copied().filter(holds).collect();
        match (&own[..], live.first()) {
            ([], Some(&oldest)) if !own_only => Meaning::Block(oldest),
            ([], _) => Meaning::Unknown,
            ([block], _) => Meaning::Block(*block),
            (blocks, _) => self.choose(blocks, given),
        }
    }

    /// The number of an alias that a holder gave a block, if it did.
    fn own_alias(&self, holder: u32, block: Block) -> Option<usize> {
        let mut slots = self.holders.get(holder).all_slots();
        slots.find_map(|slot| self.members.get(slot.number).copies.alias(block))
    }

    /// One of several own meanings, in the order in which they arose.
    fn choose(&self, blocks: &[Block], given: Given<'_>) -> Meaning {
        let agrees = |block: &Block| {
            let space = self.store.namespace(*block);
            given.lora.is_none_or(|lora| *space.lora == *lora)
                && given.salt.is_none_or(|salt| *space.salt == *salt)
        };
        let agreeing: Vec<Block> = blocks.iter().copied().filter(agrees).collect();
        let Some(&newest) = agreeing.last() else {
            return Meaning::Unknown;
        };
        let space = self.store.namespace(newest);
        let same = |block: &Block| {
            let other = self.store.namespace(*block);
            other.lora == space.lora && other.salt == space.salt
        };
        if agreeing.iter().all(same) {
            Meaning::Block(newest)
        } else {
            Meaning::Ambiguous
        }
    }

    /// Whether a holder holds a block under that name, on any tier.
    pub(crate) fn holds(&self, holder: u32, block: Block, name: Name) -> bool {
        let mut slots = self.holders.get(holder).all_slots();
        slots.any(|slot| match slot.role {
            Role::Plain => {
                self.store.covers(slot.number, block) && self.has_name(slot.number, block, name)
            }
            Role::Unit => {
                let units = self.members.get(slot.number).units.get(&block);
                units.is_some_and(|units| units.iter().any(|unit| unit.copies.name.matches(name)))
            }
            Role::Shadow => false,
        })
    }

    /// Whether a plain member that holds a block does so under that name.
    pub(crate) fn has_name(&self, member: u32, block: Block, name: Name) -> bool {
        let Store { places, shared, .. } = &self.store;
        let copies = &self.members.get(member).copies;
        copies.have(places, shared, block, name)
    }
}

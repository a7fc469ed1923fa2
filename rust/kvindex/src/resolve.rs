//! What does that name mean to this holder?

use crate::event::Name;
use crate::member::Role;
use crate::namespace::Namespace;
use crate::pages::PageId;
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
    Page(PageId),
    Unknown,
    /// Blocks of several namespaces.
    Ambiguous,
}

impl Writer {
    /// The meaning of a name: the holder's own page or live block, else the oldest
    /// live meaning that anybody gave it, blocks before pages.
    pub(crate) fn resolve(&mut self, holder: u32, name: Name, given: Given<'_>) -> Meaning {
        if self.pages.is_empty() {
            return self.resolve_block(holder, name, given).0;
        }
        let pages = self.pages.named(name);
        let has = |page: &PageId| self.holds_page(holder, *page, name);
        let own: Vec<PageId> = pages.iter().copied().filter(has).collect();
        match own[..] {
            [] => {}
            [page] => return Meaning::Page(page),
            _ => return choose(&own, given, |page| self.pages.space(page), Meaning::Page),
        }
        let (meaning, is_own) = self.resolve_block(holder, name, given);
        let others = !is_own && !self.profile(holder).own_names;
        match pages.first() {
            Some(&oldest) if meaning == Meaning::Unknown && others => Meaning::Page(oldest),
            _ => meaning,
        }
    }

    /// The meaning of a name among blocks, and whether it is the holder's own.
    fn resolve_block(&mut self, holder: u32, name: Name, given: Given<'_>) -> (Meaning, bool) {
        let own_only = self.profile(holder).own_names;
        let alias = |block| self.own_alias(holder, block);
        let places = &self.store.places;
        if !own_only && let Some(block) = places.sole(&self.store.shared, name, alias) {
            let live = self.store.live(block);
            return if live {
                (Meaning::Block(block), false)
            } else {
                (Meaning::Unknown, false)
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
            return (Meaning::Block(*block), false);
        }
        let holds = |block: &Block| self.holds(holder, *block, name);
        let own: Vec<Block> = live.iter().copied().filter(holds).collect();
        match (&own[..], live.first()) {
            ([], Some(&oldest)) if !own_only => (Meaning::Block(oldest), false),
            ([], _) => (Meaning::Unknown, false),
            ([block], _) => (Meaning::Block(*block), true),
            (blocks, _) => {
                let space = |block| self.store.namespace(block);
                (choose(blocks, given, space, Meaning::Block), true)
            }
        }
    }

    /// The number of an alias that a holder gave a block, if it did.
    fn own_alias(&self, holder: u32, block: Block) -> Option<usize> {
        let mut slots = self.holders.get(holder).all_slots();
        slots.find_map(|slot| self.members.get(slot.number).copies.alias(block))
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
            Role::Shadow | Role::Paged => false,
        })
    }

    /// Whether a holder holds a page under that name, on any tier.
    fn holds_page(&self, holder: u32, page: PageId, name: Name) -> bool {
        let mut slots = self.holders.get(holder).all_slots();
        slots.any(|slot| self.pages.has(page, slot.number, name))
    }

    /// Whether a plain member that holds a block does so under that name.
    pub(crate) fn has_name(&self, member: u32, block: Block, name: Name) -> bool {
        let Store { places, shared, .. } = &self.store;
        let copies = &self.members.get(member).copies;
        copies.have(places, shared, block, name)
    }
}

/// One of several own meanings, in the order in which they arose.
fn choose<'a, T: Copy>(
    own: &[T],
    given: Given<'_>,
    space: impl Fn(T) -> &'a Namespace,
    meaning: impl Fn(T) -> Meaning,
) -> Meaning {
    let agrees = |one: &T| {
        let space = space(*one);
        given.lora.is_none_or(|lora| *space.lora == *lora)
            && given.salt.is_none_or(|salt| *space.salt == *salt)
    };
    let agreeing: Vec<T> = own.iter().copied().filter(agrees).collect();
    let Some(&newest) = agreeing.last() else {
        return Meaning::Unknown;
    };
    let newest_space = space(newest);
    let same = |one: &T| {
        let other = space(*one);
        other.lora == newest_space.lora && other.salt == newest_space.salt
    };
    if agreeing.iter().all(same) {
        meaning(newest)
    } else {
        Meaning::Ambiguous
    }
}

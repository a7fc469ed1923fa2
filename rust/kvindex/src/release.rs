//! And who does not any more? What a removal takes away.

use crate::claims::Range;
use crate::event::{Name, Tier};
use crate::group::GroupId;
use crate::hold::Target;
use crate::holder::Slot;
use crate::member::Role;
use crate::place::Standing;
use crate::run::Block;
use crate::store::Store;
use crate::writer::Writer;

impl Writer {
    /// Gives up the blocks of leading names at once, where they lie side by side
    /// and nothing about them is rare; how many. After 0 the first name is to be
    /// released by itself.
    pub(crate) fn release_piece(
        &mut self,
        holder: u32,
        group: GroupId,
        tier: Tier,
        names: &[Name],
    ) -> usize {
        let Some(member) = self.sole_member(holder, group, tier) else {
            return 0;
        };
        let alias = |block| self.members.get(member).copies.alias(block);
        let first = self.store.places.sole(&self.store.shared, names[0], alias);
        let Some(first) = first.filter(|first| self.store.tidy(first.run())) else {
            return 0;
        };
        let run = first.run();
        let Some(claimed) = self.store.claim_around(run, member, first.offset()) else {
            return 0;
        };
        let Store { places, shared, .. } = &self.store;
        let copies = &self.members.get(member).copies;
        let words = shared.blocks(Block::new(run, 0), usize::from(claimed.end));
        let once = |offset: u16, name: Name| {
            let block = Block::new(run, offset);
            let known = copies.once(block).and_then(|standing| match standing {
                Standing::Primary => places.name_in(block, &words[usize::from(offset) * 2 + 1]),
                Standing::Alias(number) => Some(places.alias(block, number)),
            });
            known == Some(name) && !places.has_several(name)
        };
        let range = side_by_side(first.offset(), &claimed, names, once);
        if range.is_empty() {
            return 0;
        }
        let blocks = range.clone().map(|offset| Block::new(run, offset));
        self.members.get_mut(member).copies.clear(blocks);
        self.store.uncover(run, member, &range);
        let count = range.end - range.start;
        *self.holders.get_mut(holder).held_mut(group, tier) -= u64::from(count);
        self.store.settle(run, &range);
        usize::from(count)
    }

    /// The one member of a holder's group on a tier, where nothing waits.
    fn sole_member(&self, holder: u32, group: GroupId, tier: Tier) -> Option<u32> {
        let holder = self.holders.get(holder);
        let [slot] = holder.slots(group, tier)[..] else {
            return None;
        };
        let simple = slot.role == Role::Plain && holder.waiting.blocks == 0;
        simple.then_some(slot.number)
    }

    /// Takes one copy under a name, first of what waits; whether there was any.
    pub(crate) fn take_copy(
        &mut self,
        holder: u32,
        group: GroupId,
        tier: Tier,
        name: Name,
    ) -> bool {
        self.take_waiting(holder, group, tier, name) || self.release(holder, group, tier, name)
    }

    /// Takes one copy of everything that a holder holds of a group on a tier under
    /// a name; whether there was anything.
    pub(crate) fn release(&mut self, holder: u32, group: GroupId, tier: Tier, name: Name) -> bool {
        let meanings = self.store.places.meanings(&self.store.shared, name);
        let slots = self.holders.get(holder).slots(group, tier).clone();
        let target = |slot: &Slot| Target {
            holder,
            group,
            tier,
            counting: true,
            chunk: slot.chunk,
        };
        let mut released = false;
        for slot in slots.iter().filter(|slot| slot.role == Role::Paged) {
            released |= self.release_pages(target(slot), slot.number, name);
        }
        for block in meanings.iter() {
            for slot in &slots {
                let target = target(slot);
                released |= self.store.tidy(block.run())
                    && match slot.role {
                        Role::Plain => self.release_block(target, slot.number, block, name),
                        Role::Unit => self.release_units(target, slot.number, block, name),
                        Role::Shadow | Role::Paged => false,
                    };
            }
        }
        released
    }

    fn release_block(&mut self, target: Target, member: u32, block: Block, name: Name) -> bool {
        if !self.store.covers(member, block) || !self.has_name(member, block, name) {
            return false;
        }
        let Store { places, shared, .. } = &self.store;
        let copies = &mut self.members.get_mut(member).copies;
        if !copies.is_usual(block) {
            let mut list = copies.get(places, shared, block);
            for copy in &mut list {
                copy.count -= u32::from(copy.name.matches(name));
            }
            list.retain(|copy| copy.count > 0);
            copies.set(places, shared, block, &list);
            if !list.is_empty() {
                return true;
            }
        }
        self.unclaim(target, member, block);
        true
    }

    /// Ends a member's claim on a block of a tidy run.
    pub(crate) fn unclaim(&mut self, target: Target, member: u32, block: Block) {
        let range = block.offset()..block.offset() + 1;
        self.store.uncover(block.run(), member, &range);
        if !self.held_besides(target, member, block) {
            let holder = self.holders.get_mut(target.holder);
            *holder.held_mut(target.group, target.tier) -= 1;
        }
        self.store.settle(block.run(), &range);
    }

    fn release_units(&mut self, target: Target, member: u32, block: Block, name: Name) -> bool {
        let units = &mut self.members.get_mut(member).units;
        let Some(list) = units.get_mut(&block) else {
            return false;
        };
        let mut lengths: Vec<u16> = Vec::new();
        let mut released = false;
        for unit in list
            .iter_mut()
            .filter(|unit| unit.copies.name.matches(name))
        {
            unit.copies.count -= 1;
            released = true;
            if unit.copies.count == 0 {
                lengths.push(unit.length);
            }
        }
        list.retain(|unit| unit.copies.count > 0);
        lengths.retain(|length| !list.iter().any(|unit| unit.length == *length));
        lengths.sort_unstable();
        lengths.dedup();
        if list.is_empty() {
            units.remove(&block);
        }
        // The way back through earlier runs must not go while it is walked.
        self.store.pin(block);
        for length in lengths {
            for piece in self.pieces(block, length) {
                self.store.tidy(piece.run);
                let word = self.unit_word(target, member, block, length, &piece);
                self.store.remove_word(piece.run, word);
                let alone = self.held_alone(target, &piece);
                let holder = self.holders.get_mut(target.holder);
                *holder.held_mut(target.group, target.tier) -= alone;
                self.store.settle(piece.run, &piece.range());
            }
        }
        self.store.unpin();
        released
    }
}

/// The offsets around `first` that `has_name` says have these names, one after the
/// other in either direction, as far as they go on in `within`.
fn side_by_side(
    first: u16,
    within: &Range,
    names: &[Name],
    has_name: impl Fn(u16, Name) -> bool,
) -> Range {
    if !has_name(first, names[0]) {
        return first..first;
    }
    let next = |(offset, name): &(u16, &Name)| has_name(*offset, **name);
    let ahead = (first + 1..within.end).zip(&names[1..]);
    let ahead = ahead.take_while(next).count() as u16;
    if ahead > 0 {
        return first..first + 1 + ahead;
    }
    let behind = (within.start..first).rev().zip(&names[1..]);
    first - behind.take_while(next).count() as u16..first + 1
}

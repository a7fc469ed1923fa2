//! Who holds it now? Copies, units, and what follows for names.

use crate::claims::Claim;
use crate::copies::Named;
use crate::event::{Name, Tier};
use crate::group::{GroupId, MAIN};
use crate::holder::Slot;
use crate::member::{Identity, Role, Unit};
use crate::place::Standing;
use crate::run::Block;
use crate::store::{Piece, Store};
use crate::writer::Writer;

/// Where a copy lies, and how copies are counted there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) holder: u32,
    pub(crate) group: GroupId,
    pub(crate) tier: Tier,
    /// Whether a second store is a second copy.
    pub(crate) counting: bool,
    /// Blocks of one chunk of the tier; 0 = no chunks.
    pub(crate) chunk: u32,
}

impl Writer {
    /// The member of a target, begun where there is none.
    pub(crate) fn member(&mut self, target: Target, role: Role) -> u32 {
        let holder = self.holders.get_mut(target.holder);
        let several = target.group == MAIN && !holder.groups.others().is_empty();
        let pool = holder.pool;
        let slots = holder.slots_mut(target.group, target.tier);
        let known = slots
            .iter()
            .find(|slot| slot.role == role && slot.chunk == target.chunk);
        if let Some(slot) = known {
            return slot.number;
        }
        let identity = Identity {
            holder: target.holder,
            tier: target.tier,
            role,
            pool,
            several,
            group: target.group,
            chunk: target.chunk,
        };
        let number = self.members.begin(&self.store.shared, identity);
        slots.push(Slot {
            number,
            role,
            chunk: target.chunk,
        });
        number
    }

    /// Stores blocks, each under its name.
    pub(crate) fn hold(&mut self, target: Target, piece: Piece, names: &[Name]) {
        let member = self.member(target, Role::Plain);
        self.store.tidy(piece.run);
        let news = if piece.fresh {
            self.store.revive(piece.run, &[piece.range()], true);
            let places = &mut self.store.places;
            places.bind_fresh(&self.store.shared, piece.first(), names);
            piece.len() as u64
        } else {
            let gaps = self.store.uncovered(piece.run, &piece.range());
            self.store.revive(piece.run, &gaps, false);
            self.join(target, member, piece, names)
        };
        if !self.orphans.is_empty() {
            self.announced.extend_from_slice(names);
        }
        self.store.cover(piece.run, member, &piece.range());
        if piece.fresh {
            self.store.fasten();
        }
        let holder = self.holders.get_mut(target.holder);
        *holder.held_mut(target.group, target.tier) += news;
    }

    /// Names blocks that may have names and holders, and counts the copies; how
    /// many of them the holder did not hold on the tier.
    fn join(&mut self, target: Target, member: u32, piece: Piece, names: &[Name]) -> u64 {
        let claimed = self.store.claim_around(piece.run, member, piece.start);
        let own = claimed.is_some_and(|claimed| piece.end <= claimed.end);
        let free = !own && !self.store.overlaps(piece.run, member, &piece.range());
        let places = &self.store.places;
        let holder = self.holders.get(target.holder);
        let alone = holder.slots(target.group, target.tier).len() == 1;
        if (own || free) && alone && places.are_primary(&self.store.shared, piece.first(), names) {
            return if free {
                piece.len() as u64
            } else {
                self.repeat(target, member, piece, names)
            };
        }
        let lows = names.iter().map(|name| name.low());
        self.store.places.touch(lows);
        let shared = self.store.shared.clone();
        let words = shared.blocks(piece.first(), piece.len()).chunks_exact(2);
        let mut news = 0;
        for ((offset, &name), words) in piece.range().zip(names).zip(words) {
            let block = Block::new(piece.run, offset);
            let held = !free && self.store.covers(member, block);
            news += u64::from(!held && (alone || !self.held_besides(target, member, block)));
            let standing = self.store.places.bind(&shared, block, &words[1], name);
            self.count(target, member, block, (name, standing), held);
        }
        news
    }

    /// Counts another copy of blocks that a member holds, under their primary
    /// names; none of them is new.
    fn repeat(&mut self, target: Target, member: u32, piece: Piece, names: &[Name]) -> u64 {
        for (offset, &name) in piece.range().zip(names) {
            let block = Block::new(piece.run, offset);
            let copies = &mut self.members.get_mut(member).copies;
            let counted = if target.counting {
                copies.add_primary(block)
            } else {
                copies.is_usual(block)
            };
            if !counted {
                self.count(target, member, block, (name, Standing::Primary), true);
            }
        }
        0
    }

    /// Counts a copy of a block under one of its names.
    fn count(
        &mut self,
        target: Target,
        member: u32,
        block: Block,
        (name, standing): (Name, Standing),
        held: bool,
    ) {
        let Store { places, shared, .. } = &self.store;
        let copies = &mut self.members.get_mut(member).copies;
        if !held {
            return copies.begin(block, name, standing);
        }
        if !target.counting && standing == Standing::Primary && copies.is_usual(block) {
            return;
        }
        let mut list = copies.get(places, shared, block);
        match list.iter_mut().find(|copy| copy.name.matches(name)) {
            Some(copy) => copy.count += u32::from(target.counting),
            None => list.push(Named { name, count: 1 }),
        }
        copies.set(places, shared, block, &list);
    }

    /// Whether another member of the same holder, group and tier holds a block.
    pub(crate) fn held_besides(&self, target: Target, member: u32, block: Block) -> bool {
        let slots = self.holders.get(target.holder);
        let slots = slots.slots(target.group, target.tier);
        let mut others = slots.iter().filter(|slot| slot.number != member);
        others.any(|slot| self.store.covers(slot.number, block))
    }

    /// Stores `length` blocks up to `last`, which has as many before it, as one
    /// piece under a name.
    pub(crate) fn hold_unit(&mut self, target: Target, last: Block, length: u32, name: Name) {
        let member = self.member(target, Role::Unit);
        self.member(target, Role::Shadow);
        self.store.pin(last);
        self.store.tidy(last.run());
        let units = self.members.get(member).units.get(&last);
        let units = units.map(Vec::as_slice).unwrap_or_default();
        let mut same = units.iter().filter(|unit| u32::from(unit.length) == length);
        if same.next().is_none() {
            self.claim_unit(target, member, last, length as u16);
        }
        let Store { places, shared, .. } = &mut self.store;
        places.bind(shared, last, shared.name_word(last), name);
        if !self.orphans.is_empty() {
            self.announced.push(name);
        }
        let units = self.members.get_mut(member).units.entry(last).or_default();
        let known = units
            .iter_mut()
            .find(|unit| u32::from(unit.length) == length && unit.copies.name.matches(name));
        match known {
            Some(unit) => unit.copies.count += u32::from(target.counting),
            None => units.push(Unit {
                length: length as u16,
                copies: Named { name, count: 1 },
            }),
        }
        self.store.unpin();
    }

    fn claim_unit(&mut self, target: Target, member: u32, last: Block, length: u16) {
        for piece in self.pieces(last, length) {
            self.store.tidy(piece.run);
            let gaps = self.store.uncovered(piece.run, &piece.range());
            self.store.revive(piece.run, &gaps, false);
            let alone = self.held_alone(target, &piece);
            let holder = self.holders.get_mut(target.holder);
            *holder.held_mut(target.group, target.tier) += alone;
            let word = self.unit_word(target, member, last, length, &piece);
            self.store.add_word(piece.run, word);
        }
    }

    /// The pieces of a unit, the one with the last block first.
    pub(crate) fn pieces(&self, last: Block, length: u16) -> Vec<Piece> {
        let (mut pieces, mut left, mut next) = (Vec::new(), u32::from(length), Some(last));
        while let Some(block) = next.filter(|_| left > 0) {
            let (piece, before) = self.store.piece_up_to(block, left);
            left -= piece.len() as u32;
            pieces.push(piece);
            next = before;
        }
        pieces
    }

    /// The word for a piece of a unit: only the run of the last block has the
    /// unit's own, the others have shadows.
    pub(crate) fn unit_word(
        &self,
        target: Target,
        unit: u32,
        last: Block,
        length: u16,
        piece: &Piece,
    ) -> u64 {
        if piece.last() == last {
            return Claim {
                member: unit,
                start: length,
                end: piece.end,
            }
            .pack();
        }
        let slots = self.holders.get(target.holder);
        let slots = slots.slots(target.group, target.tier);
        let shadow = slots
            .iter()
            .find(|slot| slot.role == Role::Shadow && slot.chunk == target.chunk)
            .expect("units have shadows");
        Claim {
            member: shadow.number,
            start: piece.end - piece.start,
            end: piece.end,
        }
        .pack()
    }

    /// How many blocks of a piece no member of the holder, group and tier holds.
    pub(crate) fn held_alone(&self, target: Target, piece: &Piece) -> u64 {
        let blocks = piece.range().map(|offset| Block::new(piece.run, offset));
        let alone = blocks.filter(|block| !self.held_besides(target, u32::MAX, *block));
        alone.count() as u64
    }

    /// Ends a holder's members of one tier: what it held there is gone.
    pub(crate) fn drop_tier(&mut self, holder: u32, tier: Tier) {
        let held = self.holders.get_mut(holder);
        held.held[tier as usize] = 0;
        held.ages[tier as usize] = None;
        let members = std::mem::take(&mut held.members[tier as usize]);
        let others = held.groups.take_members(tier);
        for slot in members.into_iter().chain(others) {
            let ended = self.members.end(&self.store.shared, slot.number);
            self.drop_pages(slot.number, ended.pages);
            self.store.outdate();
        }
        self.drop_waiting(holder, Some(tier));
        if tier == Tier::Device {
            self.predictions.forget(holder);
        }
    }
}

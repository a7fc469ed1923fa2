//! And if the parent is unknown? A bounded waiting room.
//!
//! Orphans wait outside the structure, with a copy of what their event said,
//! until anybody announces their parent.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::Range;

use crate::apply::salt_of;
use crate::event::{Batch, Event, Name, Store, Tier};
use crate::group::GroupId;
use crate::mix::MixMap;
use crate::writer::Writer;

/// Stored blocks that wait for their parent.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) holder: u32,
    pub(crate) group: GroupId,
    pub(crate) tier: Tier,
    pub(crate) parent: Name,
    /// One store, alone.
    pub(crate) batch: Batch,
    /// The adapter that the event names.
    pub(crate) lora: Option<Box<str>>,
    /// Blocks a hash; a page counts as one.
    pub(crate) unit: u32,
    /// Tokens a hash, where it is a page.
    pub(crate) page: Option<NonZeroU32>,
    /// Which hashes a removal has taken meanwhile.
    pub(crate) taken: Vec<bool>,
}

impl Orphan {
    pub(crate) fn store(&self) -> &Store {
        match &self.batch.events[..] {
            [Event::Store(store)] => store,
            _ => unreachable!("an orphan is one store"),
        }
    }

    /// The adapter and the salt that the event names.
    pub(crate) fn given(&self) -> (Option<&str>, Option<&str>) {
        let salt = salt_of(&self.batch, self.store());
        (self.lora.as_deref(), salt)
    }

    /// Hashes that still wait.
    pub(crate) fn hashes(&self) -> u64 {
        self.taken.iter().filter(|taken| !**taken).count() as u64
    }

    fn blocks(&self) -> u64 {
        self.hashes() * u64::from(self.unit)
    }
}

/// A copy of the first hashes of a store, alone in a batch.
pub(crate) fn excerpt(batch: &Batch, store: &Store, count: usize, tokens: usize) -> Batch {
    let mut alone = Batch::default();
    let names = store.names.start..store.names.start + count;
    let tokens = store.tokens.start..store.tokens.start + tokens;
    alone.names.extend_from_slice(&batch.names[names]);
    alone.tokens.extend_from_slice(&batch.tokens[tokens]);
    let locals = store.local_keys(batch);
    alone.locals.extend(locals.iter().take(count));
    let images = batch.images[store.images.clone()].iter();
    let images = images.filter(|image| (image.block as usize) < count);
    alone.images.extend(images);
    for salt in store.salts(batch) {
        if (salt.block as usize) < count {
            let text = alone.text(&batch.texts[salt.text as usize]);
            alone.salts.push(crate::event::Salt { text, ..*salt });
        }
    }
    let salt = store.salt.map(|id| alone.text(&batch.texts[id as usize]));
    let all = |len: usize| -> Range<usize> { 0..len };
    let store = Store {
        names: all(count),
        tokens: all(alone.tokens.len()),
        locals: 0..alone.locals.len() as u32,
        images: all(alone.images.len()),
        salts: 0..alone.salts.len() as u32,
        salt,
        lora: None,
        medium: None,
        ..store.clone()
    };
    alone.events.push(Event::Store(store));
    alone
}

/// All orphans, by number; lower numbers came earlier.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    all: MixMap<u64, Orphan>,
    /// Who waits for a name, by its low half.
    parents: MixMap<u64, Vec<u64>>,
    next: u64,
}

impl Orphans {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Orphan> {
        self.all.get(&number)
    }

    /// Takes an orphan out for a moment, to look something up for it.
    pub(crate) fn lend(&mut self, number: u64) -> Option<Orphan> {
        self.all.remove(&number)
    }

    pub(crate) fn give_back(&mut self, number: u64, orphan: Orphan) {
        self.all.insert(number, orphan);
    }

    /// Blocks that wait.
    pub(crate) fn blocks(&self) -> u64 {
        self.all.values().map(Orphan::blocks).sum()
    }

    /// Who waits for a name, the oldest first.
    pub(crate) fn children(&self, name: Name) -> Vec<u64> {
        let numbers = self.parents.get(&name.low()).cloned();
        let mut numbers = numbers.unwrap_or_default();
        numbers.retain(|number| self.all[number].parent.matches(name));
        numbers
    }
}

fn forget(numbers: &mut MixMap<u64, Vec<u64>>, low: u64, number: u64) {
    if let Some(list) = numbers.get_mut(&low) {
        list.retain(|&known| known != number);
        if list.is_empty() {
            numbers.remove(&low);
        }
    }
}

impl Writer {
    /// Lets a store wait; returns how many hashes were pushed out for it.
    pub(crate) fn wait(&mut self, orphan: Orphan) -> u64 {
        let number = self.orphans.next;
        self.orphans.next += 1;
        let waiting = &mut self.holders.get_mut(orphan.holder).waiting;
        waiting.order.push_back(number);
        waiting.blocks += orphan.blocks();
        for name in &orphan.batch.names {
            waiting.names.entry(name.low()).or_default().push(number);
        }
        let parents = &mut self.orphans.parents;
        parents.entry(orphan.parent.low()).or_default().push(number);
        let holder = orphan.holder;
        self.orphans.all.insert(number, orphan);
        self.push_out(holder)
    }

    fn push_out(&mut self, holder: u32) -> u64 {
        let mut dropped = 0;
        loop {
            let waiting = &mut self.holders.get_mut(holder).waiting;
            if waiting.blocks <= u64::from(self.orphan_blocks) {
                return dropped;
            }
            let oldest = waiting.order.front().copied();
            let orphan = self.unwait(oldest.expect("blocks wait"));
            dropped += orphan.hashes();
        }
    }

    /// Takes an orphan out of the waiting room.
    pub(crate) fn unwait(&mut self, number: u64) -> Orphan {
        let orphan = self.orphans.all.remove(&number).expect("a waiting orphan");
        forget(&mut self.orphans.parents, orphan.parent.low(), number);
        let waiting = &mut self.holders.get_mut(orphan.holder).waiting;
        waiting.blocks -= orphan.blocks();
        for name in &orphan.batch.names {
            forget(&mut waiting.names, name.low(), number);
        }
        // Numbers that are gone leave the queue when they come to its front.
        let all = &self.orphans.all;
        while waiting
            .order
            .front()
            .is_some_and(|number| !all.contains_key(number))
        {
            waiting.order.pop_front();
        }
        if waiting.order.len() > 2 * waiting.names.len() + 16 {
            waiting.order.retain(|number| all.contains_key(number));
        }
        orphan
    }

    /// Takes one waiting copy of a name of a group on a tier; whether there was one.
    pub(crate) fn take_waiting(
        &mut self,
        holder: u32,
        group: GroupId,
        tier: Tier,
        name: Name,
    ) -> bool {
        if !self.holders.waits_with(holder, name) {
            return false;
        }
        let numbers = &self.holders.get(holder).waiting.names[&name.low()];
        let found = numbers.iter().find_map(|&number| {
            let orphan = &self.orphans.all[&number];
            let hash = (0..orphan.taken.len())
                .find(|&hash| !orphan.taken[hash] && orphan.batch.names[hash].matches(name))?;
            (orphan.group == group && orphan.tier == tier).then_some((number, hash))
        });
        let Some((number, hash)) = found else {
            return false;
        };
        let orphan = self.orphans.all.get_mut(&number).expect("found above");
        orphan.taken[hash] = true;
        let (blocks, rest) = (u64::from(orphan.unit), orphan.hashes());
        self.holders.get_mut(holder).waiting.blocks -= blocks;
        if rest == 0 {
            self.unwait(number);
        }
        true
    }

    /// Drops what waits of a holder, on one tier or on all.
    pub(crate) fn drop_waiting(&mut self, holder: u32, tier: Option<Tier>) {
        let order: VecDeque<u64> = self.holders.get(holder).waiting.order.clone();
        for number in order {
            let of_tier = |orphan: &Orphan| tier.is_none_or(|tier| orphan.tier == tier);
            if self.orphans.get(number).is_some_and(of_tier) {
                self.unwait(number);
            }
        }
    }
}

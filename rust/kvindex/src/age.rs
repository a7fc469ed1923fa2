//! And when was it last stored? Limits of age, for tiers that nothing leaves.
//!
//! Some sources say what they store on a tier and never what left it. Where a
//! profile limits the age of what lies there, the writer notes when each name was
//! last stored, and [`Index::expire`](crate::Index::expire) takes away what is
//! older, by the same steps as a removal that names it once for every copy. Names
//! are told apart by the 64 bits in which all of them compare.

use std::collections::VecDeque;

use crate::event::{Name, Tier};
use crate::group::GroupId;
use crate::mix::MixMap;
use crate::predict::Moment;
use crate::writer::Writer;

/// When names were last stored on one tier of one holder.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    /// In order; a later moment of a name outdates the earlier ones.
    order: VecDeque<(Moment, u64)>,
    newest: MixMap<u64, Moment>,
}

impl Ages {
    /// Notes that names are stored now; a clock that went back stands still.
    fn note(&mut self, names: &[Name], now: Moment) {
        let now = self.order.back().map_or(now, |&(last, _)| now.max(last));
        for name in names {
            if self.newest.insert(name.low(), now) != Some(now) {
                self.order.push_back((now, name.low()));
            }
        }
        if self.order.len() > 2 * self.newest.len() + 16 {
            let newest = &self.newest;
            self.order
                .retain(|(moment, low)| newest.get(low) == Some(moment));
        }
    }

    /// Takes out the names that are older than so many seconds, the oldest first.
    fn take_due(&mut self, limit: f64, now: Moment) -> Vec<Name> {
        let mut due = Vec::new();
        while let Some(&(moment, low)) = self.order.front()
            && moment.after(limit) <= now
        {
            self.order.pop_front();
            if self.newest.get(&low) == Some(&moment) {
                self.newest.remove(&low);
                due.push(Name::from_integer(low));
            }
        }
        due
    }

    fn bytes(&self) -> usize {
        self.order.capacity() * 16 + self.newest.capacity() * 17
    }
}

impl Writer {
    /// Notes that a store names these on a tier, if there is a limit of age.
    pub(crate) fn note_age(&mut self, holder: u32, tier: Tier, names: &[Name]) {
        let now = self.now;
        let holder = self.holders.get_mut(holder);
        if holder.profile.max_age[tier as usize].is_some() {
            let ages = holder.ages[tier as usize].get_or_insert_default();
            ages.note(names, now);
        }
    }

    /// Ends what is too old of a holder; returns how many blocks.
    pub(crate) fn end_aged(&mut self, number: u32, now: Moment) -> u64 {
        let mut ended = 0;
        for tier in Tier::ALL {
            let holder = self.holders.get_mut(number);
            let limit = holder.profile.max_age[tier as usize];
            let (Some(limit), Some(ages)) = (limit, &mut holder.ages[tier as usize]) else {
                continue;
            };
            let due = ages.take_due(limit, now);
            let before = holder.held[tier as usize];
            for group in 0..=holder.groups.others().len() as GroupId {
                self.release_all(number, group, tier, &due);
            }
            ended += before - self.holders.get(number).held[tier as usize];
        }
        ended
    }

    /// Takes all copies of a group that have these names.
    fn release_all(&mut self, holder: u32, group: GroupId, tier: Tier, mut names: &[Name]) {
        while let [name, rest @ ..] = names {
            let together = self.release_piece(holder, group, tier, names);
            if together > 0 {
                names = &names[together..];
                continue;
            }
            names = rest;
            while self.take_copy(holder, group, tier, *name) {}
        }
    }

    /// Ends predictions that are due, and what is too old of anybody; returns how
    /// many blocks.
    pub(crate) fn expire(&mut self, now: Moment) -> u64 {
        let mut ended = self.predictions.expire(now);
        let aged = self.holders.iter();
        let aged = aged.filter(|(_, holder)| holder.ages.iter().any(Option::is_some));
        let aged: Vec<u32> = aged.map(|(number, _)| number).collect();
        for number in aged {
            ended += self.end_aged(number, now);
        }
        self.publish();
        ended
    }

    /// Bytes of memory for all ages, roughly.
    pub(crate) fn age_bytes(&self) -> usize {
        let ages = self.holders.iter().flat_map(|(_, holder)| &holder.ages);
        ages.flatten().map(|ages| ages.bytes()).sum()
    }
}

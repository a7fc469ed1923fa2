//! Of which cache group of a hybrid model is it, and how much of a group is needed
//! to go on?
//!
//! The main group is that of full attention. What is held of the others is held by
//! members of their own. All groups call a block by the same name, so the others'
//! blocks are mostly known already.

use crate::event::{GroupKind, Store, Tier};
use crate::found::GroupDepth;
use crate::holder::Slot;
use crate::member::Members;
use crate::profile::PerTier;
use crate::writer::Writer;

/// The place of a group among those of its holder.
pub(crate) type GroupId = u16;

/// The main group.
pub(crate) const MAIN: GroupId = 0;

/// Groups besides the main one that are followed of a holder, at most.
pub(crate) const MAX_GROUPS: usize = 1023;

/// A group besides the main one.
#[derive(Debug)]
pub(crate) struct Other {
    /// What events call it.
    number: Option<u32>,
    kind: GroupKind,
    pub(crate) members: PerTier<Vec<Slot>>,
    /// Distinct blocks held.
    pub(crate) held: PerTier<u64>,
}

/// What is known of a holder's cache groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    main: Option<u32>,
    kinds: Vec<(u32, GroupKind)>,
    others: Vec<Other>,
}

impl Groups {
    pub(crate) fn others(&self) -> &[Other] {
        &self.others
    }

    pub(crate) fn others_mut(&mut self) -> &mut [Other] {
        &mut self.others
    }

    /// The group that others' events of that number belong to.
    fn find(&self, number: Option<u32>) -> Option<GroupId> {
        let at = self.others.iter().position(|other| other.number == number);
        at.map(|at| at as GroupId + 1)
    }

    /// The kind that was last said of a group.
    fn kind(&self, number: Option<u32>) -> Option<GroupKind> {
        let known = self.kinds.iter().find(|known| Some(known.0) == number);
        known.map(|known| known.1)
    }

    fn learn(&mut self, number: u32, kind: GroupKind) {
        if let Some(known) = self.kinds.iter_mut().find(|known| known.0 == number) {
            known.1 = kind;
        } else if self.kinds.len() <= MAX_GROUPS {
            self.kinds.push((number, kind));
        }
    }

    /// Whether a store belongs to the main group; learns from it.
    fn store(&mut self, number: Option<u32>, kind: Option<GroupKind>) -> bool {
        if let (Some(number), Some(kind)) = (number, kind) {
            self.learn(number, kind);
        }
        if kind.is_some_and(|kind| kind != GroupKind::Full) {
            return false;
        }
        let Some(group) = number else { return true };
        let full = kind.is_some() || group == 0;
        if self.main.is_none() && full && self.find(number).is_none() {
            self.main = Some(group);
        }
        self.main == Some(group)
    }

    /// The group that a removal belongs to; `None` where it is not followed.
    pub(crate) fn remove(&self, number: Option<u32>, kind: Option<GroupKind>) -> Option<GroupId> {
        let other = self.find(number);
        let main = match (kind, number, self.main) {
            (Some(kind), ..) => kind == GroupKind::Full && (number.is_none() || other.is_none()),
            (None, None, _) => true,
            // What was stored as the main group's is removed as that, whatever
            // else was said of the group.
            (None, Some(group), Some(main)) => group == main,
            (None, Some(group), None) => {
                let kind = self.kind(number);
                group == 0 && other.is_none() && kind.is_none_or(|kind| kind == GroupKind::Full)
            }
        };
        if main { Some(MAIN) } else { other }
    }

    /// Follows a group besides the main one; whether more or something else is
    /// known of it now.
    fn follow(&mut self, number: Option<u32>, kind: Option<GroupKind>) -> (GroupId, bool) {
        if let Some(group) = self.find(number) {
            let other = &mut self.others[usize::from(group) - 1];
            let before = other.kind;
            other.kind = kind.unwrap_or(before);
            return (group, other.kind != before);
        }
        self.others.push(Other {
            number,
            kind: kind.unwrap_or(GroupKind::Other),
            members: PerTier::default(),
            held: PerTier::default(),
        });
        (self.others.len() as GroupId, true)
    }

    /// The members of all groups but the main one on a tier, which hold nothing
    /// from now on.
    pub(crate) fn take_members(&mut self, tier: Tier) -> Vec<Slot> {
        let mut members = Vec::new();
        for other in &mut self.others {
            other.held[tier as usize] = 0;
            members.append(&mut other.members[tier as usize]);
        }
        members
    }

    /// Each group by what events call it, and how far it could go on by itself.
    pub(crate) fn depths(&self, block_size: u32, apart: &[u32]) -> Vec<GroupDepth> {
        let others = self.others.iter().map(|other| other.number);
        let numbers = [self.main].into_iter().chain(others);
        let needs = [u32::MAX].into_iter().chain(self.needs(block_size));
        let groups = numbers.zip(needs).zip(apart);
        let groups = groups.map(|((number, need), &depth)| GroupDepth {
            number,
            needs: (need < u32::MAX).then_some(need),
            depth,
        });
        groups.collect()
    }

    /// How many blocks each group but the main one needs before the point from
    /// which it goes on; all where the prefix is shorter.
    fn needs(&self, block_size: u32) -> Vec<u32> {
        let needs = self.others.iter().map(|other| match other.kind {
            GroupKind::Window(tokens) => tokens.saturating_sub(1).div_ceil(block_size),
            GroupKind::State => 1,
            // Blocks that are all there are enough for any attention.
            GroupKind::Full | GroupKind::Other => u32::MAX,
        });
        needs.collect()
    }
}

impl Writer {
    /// The group that a store belongs to; `None` where it is not followed. Learns
    /// from the store.
    pub(crate) fn group_of(&mut self, holder: u32, store: &Store) -> Option<GroupId> {
        let known = self.holders.get_mut(holder);
        let groups = &mut known.groups;
        if groups.store(store.group, store.kind) {
            return Some(MAIN);
        }
        let is_main = store.group.is_some() && store.group == groups.main;
        if !self.group_rules || known.pool || is_main {
            return None;
        }
        let is_known = groups.find(store.group).is_some();
        let full = groups.others.len() == MAX_GROUPS;
        // A name alone does not say that there is such a group.
        let says = store.has_content() || store.kind.is_some();
        if !is_known && (full || !says) {
            return None;
        }
        let (group, changed) = groups.follow(store.group, store.kind);
        if changed {
            self.publish_groups(holder);
        }
        Some(group)
    }

    /// Tells readers what the groups of a holder need.
    fn publish_groups(&mut self, holder: u32) {
        let known = self.holders.get(holder);
        let needs = known.groups.needs(self.block_size);
        self.roster.set_needs(holder, needs);
        for slot in known.members.iter().flatten() {
            Members::mark_several(&self.store.shared, slot.number);
        }
    }

    /// Forgets what is known of a holder's groups; nothing is held of them.
    pub(crate) fn forget_groups(&mut self, holder: u32) {
        let groups = std::mem::take(&mut self.holders.get_mut(holder).groups);
        if !groups.others.is_empty() {
            // A query that read the claims before must not count them without
            // the groups' needs.
            self.spoil_queries();
            self.roster.set_needs(holder, Vec::new());
        }
    }
}

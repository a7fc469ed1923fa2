//! Who says so? Workers, their ranks, profiles, epochs and cursors.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::event::{GroupKind, Name};
use crate::member::Role;
use crate::mix::MixMap;
use crate::profile::{Kind, PerTier, Profile};

/// A member of a holder, on one tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) role: Role,
    pub(crate) chunk: u32,
}

/// What is known of a holder's cache groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    main: Option<u32>,
    kinds: Vec<(u32, GroupKind)>,
}

impl Groups {
    fn learn(&mut self, group: u32, kind: GroupKind) {
        match self.kinds.iter_mut().find(|(known, _)| *known == group) {
            Some(entry) => entry.1 = kind,
            None => self.kinds.push((group, kind)),
        }
    }

    /// Whether a store belongs to the main attention group; learns from it.
    pub(crate) fn store(&mut self, group: Option<u32>, kind: Option<GroupKind>) -> bool {
        if let (Some(group), Some(kind)) = (group, kind) {
            self.learn(group, kind);
        }
        if kind == Some(GroupKind::Other) {
            return false;
        }
        let Some(group) = group else { return true };
        let full = kind.is_some() || group == 0;
        if self.main.is_none() && full {
            self.main = Some(group);
        }
        self.main == Some(group)
    }

    /// Whether a removal belongs to the main attention group.
    pub(crate) fn remove(&self, group: Option<u32>, kind: Option<GroupKind>) -> bool {
        match (kind, group, self.main) {
            (Some(kind), ..) => kind == GroupKind::Full,
            (None, None, _) => true,
            // What was stored as the main group's is removed as that, whatever
            // else was said of the group.
            (None, Some(group), Some(main)) => group == main,
            (None, Some(group), None) => {
                let other = (group, GroupKind::Other);
                group == 0 && !self.kinds.contains(&other)
            }
        }
    }
}

/// The stores of one holder that wait for their parents.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Their numbers, the oldest first; some may be gone already.
    pub(crate) order: VecDeque<u64>,
    /// Index blocks that wait.
    pub(crate) blocks: u64,
    /// Which of them wait with a block of that name.
    pub(crate) names: MixMap<u64, Vec<u64>>,
}

/// One rank of one worker.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) worker: Arc<str>,
    pub(crate) rank: u32,
    /// Its worker's.
    pub(crate) profile: Arc<Profile>,
    pub(crate) members: PerTier<Vec<Slot>>,
    /// Distinct blocks held.
    pub(crate) held: PerTier<u64>,
    pub(crate) groups: Groups,
    pub(crate) cursors: HashMap<Box<str>, u64>,
    /// The number of the last batch of any source.
    pub(crate) seq: Option<u64>,
    /// Batches seen before, in a row.
    pub(crate) duplicates: u64,
    pub(crate) waiting: Waiting,
}

impl Holder {
    fn new(worker: Arc<str>, rank: u32, profile: Arc<Profile>) -> Self {
        Self {
            worker,
            rank,
            profile,
            members: PerTier::default(),
            held: [0; 4],
            groups: Groups::default(),
            cursors: HashMap::new(),
            seq: None,
            duplicates: 0,
            waiting: Waiting::default(),
        }
    }

    /// Whether the holder is more than a name.
    pub(crate) fn is_used(&self) -> bool {
        self.held != [0; 4] || self.seq.is_some() || self.waiting.blocks > 0
    }
}

/// A worker: what its ranks have in common.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The epoch that `register` gave; `None` for one that never was.
    pub(crate) epoch: Option<u64>,
    pub(crate) profile: Arc<Profile>,
    /// Its ranks and their holders, ascending by rank.
    pub(crate) ranks: Vec<(u32, u32)>,
}

/// All workers and holders.
#[derive(Debug)]
pub(crate) struct Holders {
    slots: Vec<Option<Holder>>,
    free: Vec<u32>,
    pub(crate) workers: MixMap<Arc<str>, Worker>,
    auto: Arc<Profile>,
    epochs: u64,
}

impl Default for Holders {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            workers: MixMap::default(),
            auto: Arc::new(Profile::new(Kind::Auto)),
            epochs: 0,
        }
    }
}

impl Holders {
    pub(crate) fn get(&self, holder: u32) -> &Holder {
        self.slots[holder as usize].as_ref().expect("a live holder")
    }

    pub(crate) fn get_mut(&mut self, holder: u32) -> &mut Holder {
        self.slots[holder as usize].as_mut().expect("a live holder")
    }

    /// All holders and their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Holder)> {
        let numbered = self.slots.iter().enumerate();
        numbered.filter_map(|(number, slot)| Some((number as u32, slot.as_ref()?)))
    }

    pub(crate) fn find(&self, worker: &str, rank: u32) -> Option<u32> {
        self.look_up(worker, rank).1
    }

    /// A worker's epoch, and the holder of one of its ranks.
    pub(crate) fn look_up(&self, worker: &str, rank: u32) -> (Option<u64>, Option<u32>) {
        let Some(worker) = self.workers.get(worker) else {
            return (None, None);
        };
        let at = worker.ranks.binary_search_by_key(&rank, |entry| entry.0);
        (worker.epoch, at.ok().map(|at| worker.ranks[at].1))
    }

    /// The holder of that name, made where there is none; whether it was.
    pub(crate) fn enter(&mut self, worker: &str, rank: u32) -> (u32, bool) {
        if let Some(holder) = self.find(worker, rank) {
            return (holder, false);
        }
        let name = self.name(worker);
        let known = self.workers.get(worker);
        let profile = known.map_or(&self.auto, |worker| &worker.profile);
        let slot = Some(Holder::new(name.clone(), rank, profile.clone()));
        let holder = if let Some(holder) = self.free.pop() {
            self.slots[holder as usize] = slot;
            holder
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        let auto = &self.auto;
        let entry = self.workers.entry(name).or_insert_with(|| Worker {
            epoch: None,
            profile: auto.clone(),
            ranks: Vec::new(),
        });
        let at = entry.ranks.partition_point(|&(known, _)| known < rank);
        entry.ranks.insert(at, (rank, holder));
        (holder, true)
    }

    fn name(&self, worker: &str) -> Arc<str> {
        let known = self.workers.get_key_value(worker);
        known.map_or_else(|| worker.into(), |(name, _)| name.clone())
    }

    /// Sets a worker's profile; returns its epoch.
    pub(crate) fn register(&mut self, worker: &str, profile: Profile) -> u64 {
        let (name, profile) = (self.name(worker), Arc::new(profile));
        let entry = self.workers.entry(name).or_insert_with(|| Worker {
            epoch: None,
            profile: profile.clone(),
            ranks: Vec::new(),
        });
        for &(_, holder) in &entry.ranks {
            let slot = self.slots[holder as usize].as_mut();
            slot.expect("a live holder").profile = profile.clone();
        }
        entry.profile = profile;
        *entry.epoch.get_or_insert_with(|| {
            self.epochs += 1;
            self.epochs
        })
    }

    /// Forgets a worker; returns it and its holders' numbers, which stay out of
    /// use until [`Holders::release`].
    pub(crate) fn remove(&mut self, worker: &str) -> Option<Worker> {
        let removed = self.workers.remove(worker)?;
        for &(_, holder) in &removed.ranks {
            self.slots[holder as usize] = None;
        }
        Some(removed)
    }

    /// Lets a holder's number be given out again.
    pub(crate) fn release(&mut self, holder: u32) {
        self.free.push(holder);
    }

    /// Whether a name matters to the waiting room of a holder.
    pub(crate) fn waits_with(&self, holder: u32, name: Name) -> bool {
        let waiting = &self.get(holder).waiting;
        waiting.blocks > 0 && waiting.names.contains_key(&name.low())
    }
}

//! Who says so? Workers and their ranks, pools; profiles, epochs and cursors.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::age::Ages;
use crate::event::{Name, Tier};
use crate::found::PoolState;
use crate::group::{GroupId, Groups};
use crate::member::Role;
use crate::mix::MixMap;
use crate::profile::{Kind, PerTier, Profile};
use crate::symptoms::Evidence;

/// Who sends events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender<'a> {
    /// A worker of that name.
    Worker(&'a str),
    /// A pool of that name, a cache that belongs to no worker. A worker may be
    /// called like a pool.
    Pool(&'a str),
}

impl<'a> Sender<'a> {
    /// The name of the worker or pool.
    pub const fn name(self) -> &'a str {
        match self {
            Self::Worker(name) | Self::Pool(name) => name,
        }
    }

    /// Whether it is a pool.
    pub const fn is_pool(self) -> bool {
        matches!(self, Self::Pool(_))
    }
}

/// A member of a holder, on one tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) role: Role,
    pub(crate) chunk: u32,
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

/// One rank of one worker, or a pool.
#[derive(Debug)]
pub(crate) struct Holder {
    /// The worker or the pool.
    pub(crate) name: Arc<str>,
    /// A pool's is 0.
    pub(crate) rank: u32,
    pub(crate) pool: bool,
    /// Its worker's, or the pool's.
    pub(crate) profile: Arc<Profile>,
    /// Those of the main group.
    pub(crate) members: PerTier<Vec<Slot>>,
    /// Distinct blocks held of the main group.
    pub(crate) held: PerTier<u64>,
    /// When it was stored, where age is limited.
    pub(crate) ages: PerTier<Option<Box<Ages>>>,
    pub(crate) groups: Groups,
    pub(crate) cursors: HashMap<Box<str>, u64>,
    /// The number of the last batch of any source.
    pub(crate) seq: Option<u64>,
    /// Batches seen before, in a row.
    pub(crate) duplicates: u64,
    pub(crate) waiting: Waiting,
    pub(crate) evidence: Evidence,
}

impl Holder {
    fn new(name: Arc<str>, rank: u32, pool: bool, profile: Arc<Profile>) -> Self {
        Self {
            name,
            rank,
            pool,
            profile,
            members: PerTier::default(),
            held: [0; 4],
            ages: PerTier::default(),
            groups: Groups::default(),
            cursors: HashMap::new(),
            seq: None,
            duplicates: 0,
            waiting: Waiting::default(),
            evidence: Evidence::default(),
        }
    }

    /// Reads later events by another profile. What was stored on a tier that has no
    /// limit of age now has none.
    fn read_as(&mut self, profile: &Arc<Profile>, batches: u64) {
        self.evidence = Evidence::since(batches);
        self.profile = profile.clone();
        for (ages, limit) in self.ages.iter_mut().zip(profile.max_age) {
            ages.take_if(|_| limit.is_none());
        }
    }

    /// The members of one group on a tier.
    pub(crate) fn slots(&self, group: GroupId, tier: Tier) -> &Vec<Slot> {
        let members = match usize::from(group).checked_sub(1) {
            None => &self.members,
            Some(at) => &self.groups.others()[at].members,
        };
        &members[tier as usize]
    }

    pub(crate) fn slots_mut(&mut self, group: GroupId, tier: Tier) -> &mut Vec<Slot> {
        let members = match usize::from(group).checked_sub(1) {
            None => &mut self.members,
            Some(at) => &mut self.groups.others_mut()[at].members,
        };
        &mut members[tier as usize]
    }

    /// The members of all groups.
    pub(crate) fn all_slots(&self) -> impl Iterator<Item = &Slot> {
        let others = self.groups.others().iter().flat_map(|other| &other.members);
        self.members.iter().chain(others).flatten()
    }

    /// How many distinct blocks it holds of a group on a tier.
    pub(crate) fn held_mut(&mut self, group: GroupId, tier: Tier) -> &mut u64 {
        let held = match usize::from(group).checked_sub(1) {
            None => &mut self.held,
            Some(at) => &mut self.groups.others_mut()[at].held,
        };
        &mut held[tier as usize]
    }

    /// What is told of a pool.
    pub(crate) fn pool_state(&self) -> PoolState {
        PoolState {
            pool: self.name.clone(),
            tiers: self.held,
            seq: self.seq,
            orphans: self.waiting.blocks,
            duplicates: self.duplicates,
        }
    }

    /// Whether the holder is more than a name.
    pub(crate) fn is_used(&self) -> bool {
        let others = self.groups.others().iter().map(|other| other.held);
        let holds = others.chain([self.held]).any(|held| held != [0; 4]);
        holds || self.seq.is_some() || self.waiting.blocks > 0
    }
}

/// A worker or a pool: what its ranks have in common.
#[derive(Debug)]
pub(crate) struct Party {
    /// The epoch that `register` gave; `None` for one that never was.
    pub(crate) epoch: Option<u64>,
    pub(crate) profile: Arc<Profile>,
    /// How many batches of anybody there were when it was registered.
    pub(crate) since: u64,
    /// Its ranks and their holders, ascending by rank.
    pub(crate) ranks: Vec<(u32, u32)>,
}

impl Party {
    fn new(profile: Arc<Profile>) -> Self {
        Self {
            epoch: None,
            profile,
            since: 0,
            ranks: Vec::new(),
        }
    }
}

type Parties = MixMap<Arc<str>, Party>;

/// All workers, pools and holders.
#[derive(Debug)]
pub(crate) struct Holders {
    slots: Vec<Option<Holder>>,
    free: Vec<u32>,
    workers: Parties,
    pools: Parties,
    auto: Arc<Profile>,
    epochs: u64,
}

impl Default for Holders {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            workers: MixMap::default(),
            pools: MixMap::default(),
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

    /// How many workers and pools there are.
    pub(crate) fn parties(&self) -> (u64, u64) {
        (self.workers.len() as u64, self.pools.len() as u64)
    }

    /// Registered workers of which no rank is known.
    pub(crate) fn without_ranks(&self) -> impl Iterator<Item = (&Arc<str>, &Party)> {
        let workers = self.workers.iter();
        workers.filter(|(_, party)| party.ranks.is_empty())
    }

    /// A worker or a pool.
    pub(crate) fn party(&self, sender: Sender<'_>) -> Option<&Party> {
        match sender {
            Sender::Worker(name) => self.workers.get(name),
            Sender::Pool(name) => self.pools.get(name),
        }
    }

    /// The one of that name, made with a profile where there is none.
    fn party_mut(&mut self, sender: Sender<'_>, profile: &Arc<Profile>) -> (Arc<str>, &mut Party) {
        let parties = match sender {
            Sender::Worker(_) => &mut self.workers,
            Sender::Pool(_) => &mut self.pools,
        };
        let known = parties.get_key_value(sender.name());
        let name = known.map_or_else(|| sender.name().into(), |(name, _)| name.clone());
        let party = parties.entry(Arc::clone(&name));
        let party = party.or_insert_with(|| Party::new(profile.clone()));
        (name, party)
    }

    pub(crate) fn find(&self, sender: Sender<'_>, rank: u32) -> Option<u32> {
        self.look_up(sender, rank).1
    }

    /// A worker's or a pool's epoch, and the holder of one of its ranks.
    pub(crate) fn look_up(&self, sender: Sender<'_>, rank: u32) -> (Option<u64>, Option<u32>) {
        let Some(party) = self.party(sender) else {
            return (None, None);
        };
        let at = party.ranks.binary_search_by_key(&rank, |entry| entry.0);
        (party.epoch, at.ok().map(|at| party.ranks[at].1))
    }

    /// The holder of that name, made where there is none; whether it was.
    pub(crate) fn enter(&mut self, sender: Sender<'_>, rank: u32) -> (u32, bool) {
        if let Some(holder) = self.find(sender, rank) {
            return (holder, false);
        }
        let auto = self.auto.clone();
        let (name, party) = self.party_mut(sender, &auto);
        let slot = Holder::new(name, rank, sender.is_pool(), party.profile.clone());
        let slot = Some(slot);
        let holder = if let Some(holder) = self.free.pop() {
            self.slots[holder as usize] = slot;
            holder
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        let (_, party) = self.party_mut(sender, &auto);
        let at = party.ranks.partition_point(|&(known, _)| known < rank);
        party.ranks.insert(at, (rank, holder));
        (holder, true)
    }

    /// Sets a worker's or a pool's profile, after so many batches of anybody;
    /// returns its epoch.
    pub(crate) fn register(&mut self, sender: Sender<'_>, profile: Profile, batches: u64) -> u64 {
        let (profile, next) = (Arc::new(profile), self.epochs + 1);
        let (_, party) = self.party_mut(sender, &profile);
        party.profile = profile.clone();
        party.since = batches;
        let (epoch, ranks) = (*party.epoch.get_or_insert(next), party.ranks.clone());
        for (_, holder) in ranks {
            self.get_mut(holder).read_as(&profile, batches);
        }
        self.epochs = self.epochs.max(epoch);
        epoch
    }

    /// Forgets a worker or a pool. Its holders' numbers stay out of use until
    /// [`Holders::release`].
    pub(crate) fn remove(&mut self, sender: Sender<'_>) {
        let removed = match sender {
            Sender::Worker(name) => self.workers.remove(name),
            Sender::Pool(name) => self.pools.remove(name),
        };
        for (_, holder) in removed.into_iter().flat_map(|party| party.ranks) {
            self.slots[holder as usize] = None;
        }
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

//! The model's workers and pools: registered, reset, removed.

use kvindex::Sender;
use kvindex::profile::{Kind, Profile};

use super::model::{Key, Model, Worker};

/// Stands in the place of a pool's rank.
pub(crate) const POOL: u32 = u32::MAX;

/// A worker's name, or a pool's and true.
pub(crate) type Party = (String, bool);

pub(super) fn party(sender: Sender<'_>) -> Party {
    match sender {
        Sender::Worker(name) => (name.into(), false),
        Sender::Pool(name) => (name.into(), true),
    }
}

/// The holder of one rank, of which pools have none.
pub(crate) fn key(sender: Sender<'_>, rank: u32) -> Key {
    match party(sender) {
        (name, false) => (name, rank),
        (name, true) => (name, POOL),
    }
}

impl Model {
    pub(crate) fn register(&mut self, sender: Sender<'_>, profile: Profile) -> u64 {
        let known = self.workers.get(&party(sender));
        let known = known.and_then(|known| known.epoch);
        let epoch = known.unwrap_or_else(|| {
            self.epochs += 1;
            self.epochs
        });
        let entry = Worker {
            epoch: Some(epoch),
            profile,
        };
        self.workers.insert(party(sender), entry);
        self.forget_ages(sender.name(), sender.is_pool());
        if let Sender::Pool(_) = sender {
            self.holders.entry(key(sender, 0)).or_default();
        }
        epoch
    }

    /// Makes a holder where there is none.
    pub(super) fn enter(&mut self, key: &Key) {
        let entry = Worker {
            epoch: None,
            profile: Profile::new(Kind::Auto),
        };
        let party = (key.0.clone(), key.1 == POOL);
        self.workers.entry(party).or_insert(entry);
        self.holders.entry(key.clone()).or_default();
    }

    /// Forgets a worker or a pool; a worker is attached to nothing then.
    pub(crate) fn remove(&mut self, sender: Sender<'_>) -> bool {
        let removed = party(sender);
        let registered = self.workers.get(&removed);
        let mut known = registered.is_some_and(|w| w.epoch.is_some());
        let own = |key: &Key| key.0 == removed.0 && (key.1 == POOL) == removed.1;
        let keys: Vec<Key> = self
            .holders
            .keys()
            .filter(|key| own(key))
            .cloned()
            .collect();
        for key in keys {
            known |= self.reset(&key);
            self.holders.remove(&key);
        }
        if !removed.1 {
            let attached = self.attached.len();
            self.attached.retain(|(worker, _)| *worker != removed.0);
            known |= self.attached.len() < attached;
        }
        self.workers.remove(&removed);
        known
    }

    pub(crate) fn reset(&mut self, key: &Key) -> bool {
        let key = key.clone();
        let waited = self.waiting(&key) > 0;
        let Some(holder) = self.holders.get_mut(&key) else {
            return false;
        };
        let before = std::mem::take(holder);
        self.orphans.retain(|orphan| orphan.holder != key);
        self.forget();
        let used = !before.copies.is_empty() || !before.predicted.is_empty();
        waited || used || before.seq.is_some()
    }

    pub(crate) fn clear(&mut self) {
        let workers = self.holders.keys().filter(|key| key.1 != POOL);
        for key in workers.cloned().collect::<Vec<Key>>() {
            self.reset(&key);
        }
    }

    pub(crate) fn profile(&self, holder: &Key) -> &Profile {
        let party = (holder.0.clone(), holder.1 == POOL);
        &self.workers[&party].profile
    }
}

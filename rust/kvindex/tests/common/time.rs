//! The model's clock: predictions, and what is stored too long.

use std::collections::BTreeMap;

use kvindex::event::{Name, Tier};
use kvindex::{Moment, Prediction};

use super::answer::Prompt;
use super::model::{Key, Model, Path};
use super::parties::POOL;

/// Blocks that are predicted, and until when: the deadline and the call's number.
pub(crate) type Predicted = BTreeMap<Path, (Moment, u64)>;

/// When names were last stored on a tier, by the half in which all compare.
pub(crate) type Ages = BTreeMap<u64, f64>;

impl Model {
    pub(crate) fn predict(&mut self, key: &Key, prompt: &Prompt, prediction: Prediction) -> u64 {
        let mut path = prompt.path(self.config.block_size as usize, false);
        path.truncate(prediction.capacity.map_or(usize::MAX, |most| most as usize));
        let worker = self.workers.get(&(key.0.clone(), false));
        let registered = worker.is_some_and(|worker| worker.epoch.is_some());
        let refused = self.config.registered_only && !registered;
        if path.is_empty() || refused || prediction.deadline <= prediction.now {
            return 0;
        }
        self.enter(key);
        self.end_predictions(key, prediction.now);
        self.calls += 1;
        let until = (prediction.deadline, self.calls);
        let predicted = &mut self.holders.get_mut(key).unwrap().predicted;
        for end in 1..=path.len() {
            let known = predicted.entry(path[..end].to_vec()).or_insert(until);
            *known = until.max(*known);
        }
        let most = prediction.capacity.map_or(usize::MAX, |most| most as usize);
        while predicted.len() > most {
            let goes =
                |(path, until): &(&Path, &(Moment, u64))| (**until, std::cmp::Reverse(path.len()));
            let first = predicted.iter().min_by_key(goes);
            let first = first.map(|(path, _)| path.clone()).unwrap();
            predicted.remove(&first);
        }
        path.len() as u64
    }

    /// Ends what is due and what is too old; returns how many blocks.
    pub(crate) fn expire(&mut self, now: f64) -> u64 {
        let keys: Vec<Key> = self.holders.keys().cloned().collect();
        let end = |key: &Key| {
            let predicted = self.end_predictions(key, Moment::new(now).unwrap());
            predicted + self.end_old(key, now)
        };
        keys.iter().map(end).sum()
    }

    fn end_predictions(&mut self, key: &Key, now: Moment) -> u64 {
        let predicted = &mut self.holders.get_mut(key).unwrap().predicted;
        let before = predicted.len();
        predicted.retain(|_, until| until.0 > now);
        (before - predicted.len()) as u64
    }

    /// How many distinct blocks are predicted of anybody.
    pub(crate) fn predicted(&self) -> u64 {
        let all = self.holders.values().flat_map(|own| own.predicted.keys());
        all.collect::<std::collections::BTreeSet<_>>().len() as u64
    }

    /// Notes that a store names these on a tier; a clock never goes back.
    pub(super) fn note_age(&mut self, key: &Key, tier: Tier, names: &[Name]) {
        if self.profile(key).max_age[tier as usize].is_none() {
            return;
        }
        let now = self.now;
        let ages = &mut self.holders.get_mut(key).unwrap().ages[tier as usize];
        let now = ages.values().fold(now, |latest, age| latest.max(*age));
        ages.extend(names.iter().map(|name| (name.low(), now)));
    }

    /// Ends what is too old of a holder; returns how many blocks.
    pub(super) fn end_old(&mut self, key: &Key, now: f64) -> u64 {
        let mut ended = 0;
        for tier in Tier::ALL {
            let Some(limit) = self.profile(key).max_age[tier as usize] else {
                continue;
            };
            let before = self.held_on(key)[tier as usize];
            let holder = self.holders.get_mut(key).unwrap();
            let mut old = Vec::new();
            holder.ages[tier as usize].retain(|name, stored| {
                let kept = *stored + limit > now;
                old.extend((!kept).then_some(*name));
                kept
            });
            let kept = |name: &Name| !old.contains(&name.low());
            holder
                .copies
                .retain(|copies| copies.tier != tier || kept(&copies.name));
            self.drop_waiting(key, tier, &old);
            self.forget();
            ended += before - self.held_on(key)[tier as usize];
        }
        ended
    }

    /// Forgets when things were stored on tiers without a limit.
    pub(super) fn forget_ages(&mut self, name: &str, pool: bool) {
        let own = |key: &Key| key.0 == name && (key.1 == POOL) == pool;
        let keys: Vec<Key> = self
            .holders
            .keys()
            .filter(|key| own(key))
            .cloned()
            .collect();
        for key in keys {
            let limits = self.profile(&key).max_age;
            let ages = &mut self.holders.get_mut(&key).unwrap().ages;
            for (ages, limit) in ages.iter_mut().zip(limits) {
                if limit.is_none() {
                    ages.clear();
                }
            }
        }
    }
}

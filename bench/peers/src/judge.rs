//! The model that answers are judged by: who holds which block, nothing else.

#[cfg(test)]
mod tests;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::subject::{self, Depth, Subject};
use crate::workload::{Action, Block, Event};

/// Every claim: a block, by its chain key, and a worker.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    holders: FxHashMap<u64, FxHashSet<u32>>,
}

/// What became of some queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Queries.
    pub(crate) of: u64,
    /// Queries for which any worker's depth was not what it holds.
    pub(crate) wrong: u64,
    /// The most blocks that a worker was credited and does not hold.
    pub(crate) too_many: u32,
    /// The most blocks that a worker holds and was not credited.
    pub(crate) too_few: u32,
}

impl Judge {
    /// Does as the event says.
    pub(crate) fn apply(&mut self, event: &Event) {
        for (block, _) in &event.blocks {
            let holders = self.holders.entry(block.chain).or_default();
            match event.action {
                Action::Store(_) => holders.insert(event.worker),
                Action::Remove => holders.remove(&event.worker),
            };
        }
    }

    /// Whether a worker holds a block.
    pub(crate) fn holds(&self, worker: u32, block: &Block) -> bool {
        let holders = self.holders.get(&block.chain);
        holders.is_some_and(|holders| holders.contains(&worker))
    }

    /// How many leading blocks each worker holds, where it is any.
    pub(crate) fn depths(&self, query: &[Block]) -> Vec<Depth> {
        let first = query
            .first()
            .and_then(|first| self.holders.get(&first.chain));
        let workers = first.into_iter().flatten();
        let mut depths: Vec<Depth> = workers
            .map(|&worker| {
                let held = query.iter().take_while(|block| self.holds(worker, block));
                (worker, held.count() as u32)
            })
            .collect();
        depths.sort_unstable();
        depths
    }

    /// Asks a subject and compares.
    pub(crate) fn ask<S: Subject>(&self, subject: &mut S, query: &[Block], verdict: &mut Verdict) {
        let answer = subject.depths(&subject::query::<S>(query));
        verdict.add(&self.depths(query), answer);
    }
}

impl Verdict {
    /// Compares an answer with the right one, which is sorted.
    fn add(&mut self, right: &[Depth], mut answer: Vec<Depth>) {
        answer.retain(|&(_, depth)| depth > 0);
        answer.sort_unstable();
        self.of += 1;
        if answer == right {
            return;
        }
        self.wrong += 1;
        let depth = |depths: &[Depth], worker| {
            let found = depths.iter().find(|(other, _)| *other == worker);
            found.map_or(0, |(_, depth)| *depth)
        };
        for &(worker, got) in &answer {
            self.too_many = self.too_many.max(got.saturating_sub(depth(right, worker)));
        }
        for &(worker, held) in right {
            self.too_few = self
                .too_few
                .max(held.saturating_sub(depth(&answer, worker)));
        }
    }
}

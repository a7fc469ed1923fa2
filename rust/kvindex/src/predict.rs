//! What is a holder expected to hold before any event says so?
//!
//! A router that has just chosen a worker for a prompt knows that the worker
//! will hold its blocks soon. Such predictions have a deadline and lie in a
//! structure of their own, which is built as the one of what is held: runs of
//! chain keys, but no names. So they touch nothing that events have said.
//!
//! A prediction always covers a prompt from its first block on. So of each run a
//! holder has its first blocks, and those nearer to the root stay at least as
//! long as those behind them:
//!
//! ```text
//! run at block 0    w1 0..40    until 17 up to block 40, until 30 up to block 12
//! ```
//!
//! Over a capacity, what ends first goes first, of equal ones what was predicted
//! least recently, and its deepest block before the others.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::event::Tier;
use crate::group::MAIN;
use crate::holder::Sender;
use crate::member::{Identity, Role};
use crate::mix::MixMap;
use crate::namespace::Namespace;
use crate::run::Shared;
use crate::store::{Piece, Store};
use crate::sync::Ordering::Relaxed;
use crate::writer::Writer;

/// A moment, in seconds of a clock that the caller chose; not NaN. 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment(f64);

impl Moment {
    /// A moment; `None` for NaN.
    pub fn new(seconds: f64) -> Option<Self> {
        (!seconds.is_nan()).then_some(Self(seconds + 0.0))
    }

    /// The moment so many seconds later.
    pub(crate) fn after(self, seconds: f64) -> Self {
        Self(self.0 + seconds)
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// How long something is predicted, and how much.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// When it is made: what is due by then ends.
    pub now: Moment,
    /// When it ends.
    pub deadline: Moment,
    /// The blocks that may be predicted of the holder at once.
    pub capacity: Option<u32>,
}

/// How long, as far as it decides what goes first: the deadline, then the number
/// of the call.
type Use = (Moment, u64);

/// Blocks that go together: those up to the end of one step that no later step
/// covers. In the order in which steps go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    until: Use,
    /// The last block's depth: the deepest goes first.
    depth: Reverse<u32>,
    run: u32,
    end: u16,
}

/// What is predicted of one holder.
#[derive(Debug, Default)]
struct Predicted {
    /// Of each run the steps, by their ends: those that end later go sooner.
    runs: MixMap<u32, Vec<Due>>,
    queue: BTreeSet<Due>,
    blocks: u64,
}

/// All predictions.
#[derive(Debug)]
pub(crate) struct Predictions {
    store: Store,
    holders: MixMap<u32, Predicted>,
    calls: u64,
}

impl Predictions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            store: Store::new(shared),
            holders: MixMap::default(),
            calls: 0,
        }
    }

    fn predict(&mut self, holder: u32, keys: &[u64], prediction: Prediction) {
        self.end_while(holder, |due| due.until.0 <= prediction.now);
        self.calls += 1;
        self.enter(holder);
        let (mut at, mut done) = (None, 0);
        while done < keys.len() {
            let piece = self.store.place(at, &Namespace::default(), &keys[done..]);
            at = Some(piece.last());
            done += piece.len();
            self.claim(holder, piece, (prediction.deadline, self.calls));
        }
        self.store.unpin();
        if let Some(capacity) = prediction.capacity {
            self.shrink(holder, u64::from(capacity));
        }
        self.publish();
    }

    /// Makes a holder one that readers find. A member is a holder here: there is
    /// one for each, and its number is free again only when it claims nothing.
    fn enter(&mut self, holder: u32) {
        if self.holders.contains_key(&holder) {
            return;
        }
        self.holders.insert(holder, Predicted::default());
        let members = &self.store.shared.members;
        members.make(holder);
        let identity = Identity {
            holder,
            tier: Tier::Device,
            role: Role::Plain,
            chunk: 0,
            pool: false,
            several: false,
            group: MAIN,
        };
        members.record(holder)[0].store(identity.pack(), Relaxed);
    }

    fn claim(&mut self, holder: u32, piece: Piece, until: Use) {
        let gaps = if piece.fresh {
            vec![piece.range()]
        } else {
            self.store.uncovered(piece.run, &piece.range())
        };
        self.store.revive(piece.run, &gaps, piece.fresh);
        self.store.cover(piece.run, holder, &piece.range());
        if piece.fresh {
            self.store.fasten();
        }
        let due = Due {
            until,
            depth: Reverse(self.store.depth(piece.last())),
            run: piece.run,
            end: piece.end,
        };
        let predicted = self.holders.get_mut(&holder).expect("an entered holder");
        predicted.add(due);
    }

    /// Ends what is due; returns how many blocks that are.
    pub(crate) fn expire(&mut self, now: Moment) -> u64 {
        let holders: Vec<u32> = self.holders.keys().copied().collect();
        let ended = holders.into_iter();
        let ended = ended.map(|holder| self.end_while(holder, |due| due.until.0 <= now));
        let ended = ended.sum();
        self.publish();
        ended
    }

    /// Forgets all that is predicted of a holder.
    pub(crate) fn forget(&mut self, holder: u32) {
        if !self.holders.is_empty() {
            self.end_while(holder, |_| true);
            self.publish();
        }
    }

    /// Ends steps from the first one on that goes.
    fn end_while(&mut self, holder: u32, goes: impl Fn(&Due) -> bool) -> u64 {
        let mut ended = 0;
        while let Some(predicted) = self.holders.get(&holder)
            && let Some(&due) = predicted.queue.first()
            && goes(&due)
        {
            ended += self.cut(holder, due, 0);
        }
        if self.holders.get(&holder).is_some_and(|own| own.blocks == 0) {
            self.holders.remove(&holder);
            self.store.shared.members.record(holder)[0].store(0, Relaxed);
        }
        ended
    }

    /// Ends blocks until no more than so many are left.
    fn shrink(&mut self, holder: u32, capacity: u64) {
        while let Some(predicted) = self.holders.get(&holder)
            && let Some(excess) = predicted.blocks.checked_sub(capacity)
            && let Some(&due) = predicted.queue.first().filter(|_| excess > 0)
        {
            self.cut(
                holder,
                due,
                u64::from(due.end).saturating_sub(excess) as u16,
            );
        }
    }

    /// Shortens the step that goes first, at most to `end`; returns by how many
    /// blocks.
    fn cut(&mut self, holder: u32, due: Due, end: u16) -> u64 {
        let predicted = self.holders.get_mut(&holder).expect("a holder of a step");
        let end = predicted.shorten(due, end);
        let range = end..due.end;
        self.store.uncover(due.run, holder, &range);
        self.store.settle(due.run, &range);
        u64::from(range.end - range.start)
    }

    /// Says how many blocks are predicted of anybody: readers of none look no
    /// further.
    fn publish(&self) {
        let shared = &self.store.shared;
        shared.blocks.store(self.store.held(), Relaxed);
    }

    /// Blocks that are predicted of a holder.
    pub(crate) fn blocks(&self, holder: u32) -> u64 {
        self.holders.get(&holder).map_or(0, |own| own.blocks)
    }

    /// Distinct blocks that are predicted of anybody.
    pub(crate) fn total(&self) -> u64 {
        self.store.held()
    }

    /// Bytes of memory, roughly: in use, and in reserve besides.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let steps = self.holders.values().map(|own| own.queue.len());
        let (used, reserve) = self.store.bytes();
        (used + steps.sum::<usize>() * 100, reserve)
    }
}

impl Writer {
    /// Predicts the first blocks of a prompt, as many as the capacity allows;
    /// returns how many.
    pub(crate) fn predict(
        &mut self,
        worker: &str,
        rank: u32,
        keys: &[u64],
        prediction: Prediction,
    ) -> u64 {
        let most = prediction.capacity.map_or(usize::MAX, |most| most as usize);
        let keys = &keys[..keys.len().min(most)];
        let sender = Sender::Worker(worker);
        let (epoch, known) = self.holders.look_up(sender, rank);
        let refused = self.registered_only && epoch.is_none();
        if keys.is_empty() || refused || prediction.deadline <= prediction.now {
            return 0;
        }
        let holder = known.unwrap_or_else(|| self.enter(sender, rank));
        self.predictions.predict(holder, keys, prediction);
        keys.len() as u64
    }
}

impl Predicted {
    /// Adds a step, in place of those that it covers and outlasts.
    fn add(&mut self, due: Due) {
        let steps = self.runs.entry(due.run).or_default();
        let before = steps.last().map_or(0, |step| step.end);
        let lasts = |step: &Due| step.end >= due.end && step.until >= due.until;
        if steps.iter().any(lasts) {
            return;
        }
        let queue = &mut self.queue;
        steps.retain(|step| {
            let kept = step.end > due.end || step.until > due.until;
            kept || !queue.remove(step)
        });
        let at = steps.partition_point(|step| step.end < due.end);
        steps.insert(at, due);
        queue.insert(due);
        self.blocks += u64::from(due.end.saturating_sub(before));
    }

    /// Shortens a run's last step, not below `end` nor the step before it;
    /// returns where it ends now.
    fn shorten(&mut self, due: Due, end: u16) -> u16 {
        let steps = self.runs.get_mut(&due.run).expect("the run of a step");
        let last = steps.pop();
        debug_assert_eq!(last, Some(due), "what ends last goes first");
        self.queue.remove(&due);
        let below = steps.last().map_or(0, |step| step.end);
        let left = end.max(below);
        if left > below {
            let depth = Reverse(due.depth.0 - u32::from(due.end - left));
            let shorter = Due {
                depth,
                end: left,
                ..due
            };
            steps.push(shorter);
            self.queue.insert(shorter);
        }
        if steps.is_empty() {
            self.runs.remove(&due.run);
        }
        self.blocks -= u64::from(due.end - left);
        left
    }
}

//! The writer: all that lies behind the one lock, and what ends things.

use std::sync::Arc;

use crate::event::{Name, Tier};
use crate::holder::{Holders, Sender, Slot, Waiting};
use crate::member::Members;
use crate::orphan::Orphans;
use crate::pages::Pages;
use crate::predict::{Moment, Predictions};
use crate::profile::Profile;
use crate::report::Totals;
use crate::roster::{self, Roster};
use crate::run::Shared;
use crate::store::Store;
use crate::symptoms::Evidence;
use crate::sync::{Ordering, fence};

/// Runs looked at after each batch while claims that ended are left: enough to
/// be done before as many blocks were stored again.
const SWEEP_RUNS: u32 = 64;

/// Everything that one thread at a time may change.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) store: Store,
    pub(crate) members: Members,
    pub(crate) holders: Holders,
    pub(crate) orphans: Orphans,
    pub(crate) pages: Pages,
    pub(crate) predictions: Predictions,
    /// When the batch under way came.
    pub(crate) now: Moment,
    /// Names that blocks were stored under since orphans were last looked at.
    pub(crate) announced: Vec<Name>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) totals: Totals,
    pub(crate) block_size: u32,
    pub(crate) orphan_blocks: u32,
    pub(crate) registered_only: bool,
    pub(crate) group_rules: bool,
    /// Memory for the chain keys of a store.
    pub(crate) keys: Vec<u64>,
    cursor: u32,
    /// Holders that were removed since the sweep under way began; and before.
    ended: Vec<u32>,
    sweeping: Vec<u32>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        predicted: Arc<Shared>,
        roster: Arc<Roster>,
        config: &crate::Config,
    ) -> Self {
        Self {
            store: Store::new(shared),
            members: Members::default(),
            holders: Holders::default(),
            orphans: Orphans::default(),
            pages: Pages::default(),
            predictions: Predictions::new(predicted),
            now: Moment::default(),
            announced: Vec::new(),
            roster,
            totals: Totals::default(),
            block_size: config.block_size,
            orphan_blocks: config.orphan_blocks,
            registered_only: config.registered_only,
            group_rules: config.group_rules,
            keys: Vec::new(),
            cursor: 0,
            ended: Vec::new(),
            sweeping: Vec::new(),
        }
    }

    pub(crate) fn profile(&self, holder: u32) -> &Arc<Profile> {
        &self.holders.get(holder).profile
    }

    /// Sets a worker's or a pool's profile; returns its epoch.
    pub(crate) fn register(&mut self, sender: Sender<'_>, profile: Profile) -> u64 {
        let batches = self.totals.all_batches();
        self.holders.register(sender, profile, batches)
    }

    /// The holder of that name, made where there is none.
    pub(crate) fn enter(&mut self, sender: Sender<'_>, rank: u32) -> u32 {
        let (holder, new) = self.holders.enter(sender, rank);
        if new {
            let evidence = Evidence::since(self.totals.all_batches());
            self.holders.get_mut(holder).evidence = evidence;
            self.spoil_queries();
            let name = roster::Name {
                text: self.holders.get(holder).name.clone(),
                rank,
                pool: sender.is_pool(),
                needs: Arc::default(),
            };
            self.roster.set(holder, Some(name));
        }
        holder
    }

    /// Has queries asked anew that are under way: they may have read of a holder
    /// what goes together no more.
    pub(crate) fn spoil_queries(&self) {
        let reuse = &self.store.shared.reuse;
        // ORDERING: Release pairs with the Acquire at the start of a query, which
        // then sees a roster without the number's former owner, and no claim that
        // has ended; the fence pairs with the one at its end.
        reuse.store(reuse.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Forgets a worker or a pool; whether it was registered or had sent
    /// anything.
    pub(crate) fn remove(&mut self, sender: Sender<'_>) -> bool {
        let Some(party) = self.holders.party(sender) else {
            return false;
        };
        let mut known = party.epoch.is_some();
        for (_, holder) in party.ranks.clone() {
            known |= self.is_used(holder);
            self.drop_all(holder);
            self.roster.set(holder, None);
            self.ended.push(holder);
        }
        self.holders.remove(sender);
        self.sweep(SWEEP_RUNS);
        known
    }

    /// Forgets what one holder holds, its cursors and what waits of it; whether
    /// there was anything.
    pub(crate) fn reset(&mut self, holder: u32) -> bool {
        let used = self.is_used(holder);
        self.drop_all(holder);
        self.forget_groups(holder);
        let holder = self.holders.get_mut(holder);
        holder.cursors.clear();
        holder.seq = None;
        holder.duplicates = 0;
        holder.evidence = Evidence::since(self.totals.all_batches());
        self.sweep(SWEEP_RUNS);
        used
    }

    /// Whether a holder is more than a name.
    fn is_used(&self, holder: u32) -> bool {
        let known = self.holders.get(holder);
        let mut slots = known.all_slots();
        let pages = |slot: &Slot| !self.members.get(slot.number).pages.is_empty();
        known.is_used() || self.predictions.blocks(holder) > 0 || slots.any(pages)
    }

    fn drop_all(&mut self, holder: u32) {
        for tier in Tier::ALL {
            self.drop_tier(holder, tier);
        }
        self.drop_waiting(holder, None);
        self.holders.get_mut(holder).waiting = Waiting::default();
    }

    /// Looks at some more runs for claims that ended.
    pub(crate) fn sweep(&mut self, runs: u32) {
        if !self.members.to_sweep() {
            for holder in self.ended.drain(..).chain(self.sweeping.drain(..)) {
                self.holders.release(holder);
            }
            return;
        }
        if self.members.begin_sweep() {
            self.cursor = 0;
            std::mem::swap(&mut self.sweeping, &mut self.ended);
        }
        for _ in 0..runs {
            if self.cursor >= self.store.runs().1 {
                self.members.end_sweep();
                for holder in self.sweeping.drain(..) {
                    self.holders.release(holder);
                }
                return;
            }
            self.store.tidy(self.cursor);
            self.cursor += 1;
        }
    }

    /// Looks at all runs for claims that ended.
    pub(crate) fn finish_sweep(&mut self) {
        while self.members.to_sweep() {
            self.sweep(u32::MAX);
        }
        self.sweep(0);
    }

    /// Looks at some more runs, more the larger the batch was, and publishes
    /// the totals.
    pub(crate) fn rest(&mut self, hashes: u64) {
        if self.members.to_sweep() {
            self.sweep(SWEEP_RUNS + hashes.min(4096) as u32);
        }
        self.publish();
    }

    /// Bytes of memory outside of the structure, roughly.
    pub(crate) fn side_bytes(&self) -> usize {
        self.members.bytes() + self.pages.bytes() + self.age_bytes()
    }

    /// Publishes the totals that need no lock to be read.
    pub(crate) fn publish(&self) {
        let shared = &self.store.shared;
        shared.blocks.store(self.store.held(), Ordering::Relaxed);
        let (workers, _) = self.holders.parties();
        shared.workers.store(workers, Ordering::Relaxed);
    }
}

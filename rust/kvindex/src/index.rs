//! The index: composes the parts and holds no rule of its own.

use std::sync::Arc;

use crate::error::{ConfigError, DecodeError, Forked, RegisterError};
use crate::event::{Batch, Event, Name, Reason};
use crate::found::{Blocks, Candidate, Explanation, Found, HolderState, Options, Row, Stats};
use crate::holder::Holder;
use crate::keys::Keys;
use crate::prepare::{MAX_UNIT, Prepared};
use crate::profile::Profile;
use crate::query::Walk;
use crate::report::{Report, Status};
use crate::roster::Roster;
use crate::run::Shared;
use crate::sync::{Mutex, MutexGuard, Ordering, TryLockError, fence};
use crate::writer::Writer;

/// The largest block size, in tokens.
pub const MAX_BLOCK_SIZE: u32 = 1 << 20;

/// A query that was spoiled so often waits for the writer.
const MAX_SPOILED: u32 = 16;

/// The settings of an index; they never change.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Tokens a block, 1 to 2^20.
    pub block_size: u32,
    /// Whether events of workers that were not registered are ignored.
    pub registered_only: bool,
    /// Blocks that may wait for their parent, a holder.
    pub orphan_blocks: u32,
}

/// Whose events a batch holds.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The worker.
    pub worker: &'a str,
    /// The rank of a batch that names none.
    pub rank: u32,
    /// Which of the holder's sources; each counts its own batches.
    pub source: &'a str,
    /// The batch's number.
    pub seq: Option<u64>,
    /// The worker's epoch, as `register` returned it.
    pub epoch: Option<u64>,
}

/// An exact index of who holds which prefix on which tier.
///
/// # Consistency
///
/// Queries never block and never write. One that overlaps a batch sees each run
/// of blocks as it was before a change or after it, never half of it. A batch is
/// many changes: a query may see some of them and not yet others.
#[derive(Debug)]
pub struct Index {
    config: Config,
    shared: Arc<Shared>,
    roster: Arc<Roster>,
    writer: Mutex<Writer>,
}

impl Index {
    /// An empty index.
    ///
    /// # Errors
    ///
    /// A block size outside 1 to 2^20.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        if !(1..=MAX_BLOCK_SIZE).contains(&config.block_size) {
            let size = config.block_size;
            return Err(ConfigError(format!(
                "block_size must be 1 to {MAX_BLOCK_SIZE}, not {size}"
            )));
        }
        let shared = Arc::new(Shared::default());
        // Queries look at the first page of members before there is any.
        shared.members.make(0);
        let roster = Arc::new(Roster::default());
        let writer = Writer::new(shared.clone(), roster.clone(), &config);
        Ok(Self {
            config,
            shared,
            roster,
            writer: Mutex::new(writer),
        })
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The writer, once it is free.
    fn write(&self) -> Result<MutexGuard<'_, Writer>, Forked> {
        let process = u64::from(std::process::id());
        let guard = match self.writer.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::WouldBlock) => {
                // A lock that another process took is never given back here.
                let owner = self.shared.process.load(Ordering::Relaxed);
                if owner != process {
                    return Err(Forked);
                }
                self.writer.lock().unwrap_or_else(|_| panicked())
            }
            Err(TryLockError::Poisoned(_)) => panicked(),
        };
        self.shared.process.store(process, Ordering::Relaxed);
        Ok(guard)
    }

    /// Checks a batch and computes its keys; takes no lock.
    ///
    /// # Errors
    ///
    /// With `strict`, the first structural fault of any event.
    pub fn prepare(&self, batch: Batch, strict: bool) -> Result<Prepared, DecodeError> {
        Prepared::new(batch, self.config.block_size, strict)
    }

    /// Applies a batch.
    ///
    /// # Errors
    ///
    /// [`Forked`], and nothing is applied.
    pub fn apply(&self, prepared: &Prepared, origin: &Origin<'_>) -> Result<Report, Forked> {
        let mut writer = self.write()?;
        let report = writer.apply_batch(prepared, origin);
        writer.rest(prepared.hashes());
        Ok(report)
    }

    /// Sets how a worker's later events are read; returns its epoch.
    ///
    /// # Errors
    ///
    /// A setting that does not go with the block size, or [`Forked`].
    pub fn register(&self, worker: &str, profile: Profile) -> Result<u64, RegisterError> {
        profile.check(self.config.block_size, MAX_UNIT)?;
        let mut writer = self.write()?;
        let epoch = writer.holders.register(worker, profile);
        writer.publish();
        Ok(epoch)
    }

    /// Forgets a worker and ends its epoch; whether there was anything.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn remove_worker(&self, worker: &str) -> Result<bool, Forked> {
        let mut writer = self.write()?;
        let known = writer.remove_worker(worker);
        writer.publish();
        Ok(known)
    }

    /// Forgets what one holder holds, what waits of it and its cursors, and
    /// keeps the worker's profile and epoch; whether there was anything.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn reset(&self, worker: &str, rank: u32) -> Result<bool, Forked> {
        let mut writer = self.write()?;
        let holder = writer.holders.find(worker, rank);
        let used = holder.is_some_and(|holder| writer.reset(holder));
        writer.publish();
        Ok(used)
    }

    /// Resets all holders.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn clear(&self) -> Result<(), Forked> {
        let mut writer = self.write()?;
        let all: Vec<u32> = writer.holders.iter().map(|(holder, _)| holder).collect();
        for holder in all {
            writer.reset(holder);
        }
        writer.publish();
        Ok(())
    }

    /// Who holds how many of these blocks; the answer lies in the walk.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn find<'a>(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        walk: &'a mut Walk,
    ) -> Result<Found<'a>, Forked> {
        for tries in 0.. {
            // A number that is given out again spoils a walk, and so could many.
            let still = (tries >= MAX_SPOILED).then(|| self.write()).transpose()?;
            // ORDERING: Acquire pairs with the Release where a holder's number
            // is given out again.
            let before = self.shared.reuse.load(Ordering::Acquire);
            self.want(options, walk);
            self.walk(blocks, options, walk)?;
            if options.candidates.is_none() && self.roster.refresh(&mut walk.names) {
                let names = &walk.names;
                let is_known = |row: &Row| names.get(row.holder).is_some();
                walk.counts.retain(is_known);
            }
            // ORDERING: pairs with the Release fence where a member's or a
            // holder's number is given out again: if a claim or a name was taken
            // for a later owner's, the load below sees that.
            fence(Ordering::Acquire);
            if still.is_some() || self.shared.reuse.load(Ordering::Relaxed) == before {
                break;
            }
        }
        Ok(answer(options, walk))
    }

    /// Tells a walk who is asked about.
    fn want(&self, options: &Options<'_>, walk: &mut Walk) {
        let Some(candidates) = options.candidates else {
            walk.counts.want_all();
            return;
        };
        self.roster.refresh(&mut walk.names);
        let names = &walk.names;
        let holders = candidates.iter().flat_map(|candidate| {
            let ranks = names.ranks(&candidate.worker).iter();
            let asked = |rank: u32| candidate.rank.is_none_or(|asked| asked == rank);
            ranks
                .filter(move |(rank, _)| asked(*rank))
                .map(|&(_, holder)| holder)
        });
        walk.counts.want(holders);
    }

    fn walk(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        walk: &mut Walk,
    ) -> Result<(), Forked> {
        self.walk_kind(blocks, options, false, walk)?;
        let pairs = self.shared.pair_runs.load(Ordering::Relaxed) > 0;
        if pairs && matches!(blocks, Blocks::Tokens { .. }) {
            let rows = walk.counts.rows().to_vec();
            self.walk_kind(blocks, options, true, walk)?;
            walk.counts.merge(&rows, &options.weights);
        }
        Ok(())
    }

    fn walk_kind(
        &self,
        blocks: &Blocks<'_>,
        options: &Options<'_>,
        pairs: bool,
        walk: &mut Walk,
    ) -> Result<(), Forked> {
        let scratch = std::mem::take(&mut walk.keys);
        let size = self.config.block_size as usize;
        let mut keys = Keys::new(blocks, size, pairs, scratch);
        let done = walk.run(&self.shared, &mut keys, options.cascade, false);
        walk.keys = keys.into_scratch();
        done
    }

    /// Who holds how many leading ones of these names: the blocks that a holder
    /// itself holds under them. Waits for the writer; the answer lies in the
    /// walk.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn find_names<'a>(
        &self,
        names: &[Name],
        options: &Options<'_>,
        walk: &'a mut Walk,
    ) -> Result<Found<'a>, Forked> {
        let mut writer = self.write()?;
        let rows = writer.rows_of_names(names, options.cascade);
        self.roster.refresh(&mut walk.names);
        self.want(options, walk);
        walk.counts.begin();
        walk.counts.merge(&rows, &options.weights);
        Ok(answer(options, walk))
    }

    /// Every known holder.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn holders(&self) -> Result<Vec<HolderState>, Forked> {
        let writer = self.write()?;
        let states = writer.holders.iter().map(|(_, holder)| state(holder));
        Ok(states.collect())
    }

    /// Totals; exact, finishes what clears left to sweep.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn stats(&self) -> Result<Stats, Forked> {
        let mut writer = self.write()?;
        writer.finish_sweep();
        writer.publish();
        let (bytes, reserve) = writer.store.bytes();
        let held = writer.holders.iter().map(|(_, holder)| holder.held);
        Ok(Stats {
            blocks: writer.store.held(),
            workers: writer.holders.workers.len() as u64,
            holders: writer.holders.iter().count() as u64,
            claims: held.flatten().sum(),
            orphans: writer.orphans.blocks(),
            runs: u64::from(writer.store.runs().0),
            names: writer.store.places.len() as u64,
            bytes: (bytes + writer.members.bytes()) as u64,
            reserve: reserve as u64,
            totals: writer.totals.clone(),
        })
    }

    /// Distinct blocks held by anybody; exact, finishes what clears left to
    /// sweep.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn blocks(&self) -> Result<u64, Forked> {
        let mut writer = self.write()?;
        writer.finish_sweep();
        writer.publish();
        Ok(writer.store.held())
    }

    /// Workers, and the distinct blocks held as far as swept, in no time at all.
    pub fn size_hint(&self) -> (u64, u64) {
        let load = |word: &crate::sync::AtomicU64| word.load(Ordering::Relaxed);
        (load(&self.shared.workers), load(&self.shared.blocks))
    }

    /// Why a holder's answer is what it is.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn explain(
        &self,
        blocks: &Blocks<'_>,
        worker: &str,
        rank: u32,
        walk: &mut Walk,
    ) -> Result<Explanation, Forked> {
        let writer = self.write()?;
        let size = self.config.block_size as usize;
        let holder = writer.holders.find(worker, rank);
        walk.counts.want_all();
        let mut best = Explanation::default();
        for pairs in [false, true] {
            let mut keys = Keys::new(blocks, size, pairs, Vec::new());
            walk.run(&self.shared, &mut keys, false, true)?;
            let found = holder.and_then(|holder| walk.counts.find(holder));
            let row = found.map_or_else(Row::default, |at| walk.counts.rows()[at]);
            let known = u64::from(walk.known());
            if !pairs || (row.depth(), known) > (best.row.depth(), best.known) {
                best = Explanation {
                    blocks: keys.total() as u64,
                    known,
                    row,
                    held: holder.map_or_else(Vec::new, |h| walk.held(&self.shared, h)),
                    state: holder.map(|holder| state(writer.holders.get(holder))),
                };
            }
        }
        Ok(best)
    }
}

fn panicked() -> ! {
    panic!("a batch panicked while it was applied: the index is of no use")
}

fn state(holder: &Holder) -> HolderState {
    HolderState {
        worker: holder.worker.clone(),
        rank: holder.rank,
        tiers: holder.held,
        seq: holder.seq,
        orphans: holder.waiting.blocks,
        duplicates: holder.duplicates,
    }
}

/// The rows of a walk: one a holder, or one a candidate in order.
fn answer<'a>(options: &Options<'_>, walk: &'a mut Walk) -> Found<'a> {
    let names = &walk.names;
    let Some(candidates) = options.candidates else {
        walk.counts.prune();
        return Found {
            rows: walk.counts.rows(),
            names,
        };
    };
    let counts = &walk.counts;
    let pick = |candidate: &Candidate| {
        let ranks = names.ranks(&candidate.worker).iter();
        let asked = ranks.filter(|(rank, _)| candidate.rank.is_none_or(|asked| asked == *rank));
        let rows = asked.filter_map(|&(_, holder)| Some(counts.rows()[counts.find(holder)?]));
        let best = |best: Row, row: Row| {
            if row.beats(&best, &options.weights) {
                row
            } else {
                best
            }
        };
        rows.reduce(best).unwrap_or_default()
    };
    walk.chosen.clear();
    walk.chosen.extend(candidates.iter().map(pick));
    Found {
        rows: &walk.chosen,
        names,
    }
}

impl Writer {
    /// Applies a batch if its worker, epoch and number let it.
    fn apply_batch(&mut self, prepared: &Prepared, origin: &Origin<'_>) -> Report {
        let mut report = Report {
            rank: prepared.batch.rank.unwrap_or(origin.rank),
            ..Report::default()
        };
        let (epoch, known) = self.holders.look_up(origin.worker, report.rank);
        let refused = if self.registered_only && epoch.is_none() {
            Some(Reason::Unregistered)
        } else if origin.epoch.is_some() && origin.epoch != epoch {
            Some(Reason::Epoch)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.refuse(prepared, reason, &mut report);
        } else {
            let holder = known.unwrap_or_else(|| self.enter(origin.worker, report.rank));
            report.status = self.advance(holder, origin);
            if report.status == Status::Duplicate {
                self.refuse(prepared, Reason::Duplicate, &mut report);
            } else {
                self.apply_events(holder, prepared, &mut report);
            }
        }
        self.totals.add(&report);
        report
    }

    fn refuse(&mut self, prepared: &Prepared, reason: Reason, report: &mut Report) {
        report.ignore(reason, prepared.hashes());
        for event in &prepared.batch.events {
            self.totals.count(event.into(), false);
        }
    }

    /// Moves the cursor of a source.
    fn advance(&mut self, holder: u32, origin: &Origin<'_>) -> Status {
        let Some(seq) = origin.seq else {
            return Status::Ok;
        };
        let holder = self.holders.get_mut(holder);
        let cursor = holder.cursors.get_mut(origin.source);
        let status = match cursor.as_deref() {
            Some(&last) if seq <= last => {
                holder.duplicates += 1;
                return Status::Duplicate;
            }
            Some(&last) if seq > last + 1 => Status::Gap(last + 1, seq - 1),
            _ => Status::Ok,
        };
        match cursor {
            Some(last) => *last = seq,
            None => {
                holder.cursors.insert(origin.source.into(), seq);
            }
        }
        holder.seq = Some(seq);
        holder.duplicates = 0;
        status
    }
}

impl From<&Event> for crate::report::Type {
    fn from(event: &Event) -> Self {
        match event {
            Event::Store(_) => Self::Stored,
            Event::Remove(_) => Self::Removed,
            Event::Clear => Self::Cleared,
            Event::Fault { .. } => Self::Unreadable,
        }
    }
}

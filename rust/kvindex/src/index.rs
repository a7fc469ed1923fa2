//! The index: composes the parts and holds no rule of its own.

use std::sync::Arc;

use crate::error::{ConfigError, DecodeError, Forked, RegisterError};
use crate::event::Batch;
use crate::found::{Blocks, HolderState, PoolState, Stats};
use crate::holder::{Holder, Sender};
use crate::keys::Keys;
use crate::predict::{Moment, Prediction};
use crate::prepare::{MAX_UNIT, Prepared};
use crate::profile::Profile;
use crate::report::Report;
use crate::roster::Roster;
use crate::run::Shared;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, TryLockError};
use crate::writer::Writer;

/// The largest block size, in tokens.
pub const MAX_BLOCK_SIZE: u32 = 1 << 20;

/// The settings of an index; they never change.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Tokens a block, 1 to 2^20.
    pub block_size: u32,
    /// Whether events of workers and pools that were not registered are ignored.
    pub registered_only: bool,
    /// Whether a prefix counts as far as all cache groups of its holder can go on
    /// from there, and not the main one alone.
    pub group_rules: bool,
    /// Blocks that may wait for their parent, a holder.
    pub orphan_blocks: u32,
}

/// Whose events a batch holds.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The worker or the pool.
    pub sender: Sender<'a>,
    /// The rank of a worker's batch that names none.
    pub rank: u32,
    /// Which of the holder's sources; each counts its own batches.
    pub source: &'a str,
    /// The batch's number.
    pub seq: Option<u64>,
    /// The sender's epoch, as `register` or `register_pool` returned it.
    pub epoch: Option<u64>,
    /// When it came; matters only where age is limited.
    pub now: Moment,
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
    pub(crate) shared: Arc<Shared>,
    /// What is predicted, in a structure of its own.
    pub(crate) predicted: Arc<Shared>,
    pub(crate) roster: Arc<Roster>,
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
        let [shared, predicted] = [(); 2].map(|()| Arc::new(Shared::default()));
        // Queries look at the first page of members before there is any.
        shared.members.make(0);
        predicted.members.make(0);
        let roster = Arc::new(Roster::default());
        let writer = Writer::new(shared.clone(), predicted.clone(), roster.clone(), &config);
        Ok(Self {
            config,
            shared,
            predicted,
            roster,
            writer: Mutex::new(writer),
        })
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The writer, once it is free.
    pub(crate) fn write(&self) -> Result<MutexGuard<'_, Writer>, Forked> {
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
        for shared in [&self.shared, &self.predicted] {
            shared.process.store(process, Ordering::Relaxed);
        }
        Ok(guard)
    }

    /// Checks a batch and computes its keys; takes no lock.
    ///
    /// # Errors
    ///
    /// With `strict`, the first structural fault of any event.
    pub fn prepare(&self, batch: Batch, strict: bool) -> Result<Prepared, DecodeError> {
        Prepared::new(batch, &self.config, strict)
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
        let epoch = writer.register(Sender::Worker(worker), profile);
        writer.publish();
        Ok(epoch)
    }

    /// Sets how a pool's later events are read; returns its epoch.
    ///
    /// # Errors
    ///
    /// A setting that does not go with the block size, or [`Forked`].
    pub fn register_pool(&self, pool: &str, profile: Profile) -> Result<u64, RegisterError> {
        profile.check(self.config.block_size, MAX_UNIT)?;
        let mut writer = self.write()?;
        let epoch = writer.register(Sender::Pool(pool), profile);
        writer.enter(Sender::Pool(pool), 0);
        writer.publish();
        Ok(epoch)
    }

    /// Lets a worker reach a pool, and no other that it is not attached to. A
    /// worker that is attached to none reaches all.
    ///
    /// # Errors
    ///
    /// A pool that is neither registered nor has sent events, or [`Forked`].
    pub fn attach(&self, worker: &str, pool: &str) -> Result<(), RegisterError> {
        let writer = self.write()?;
        if writer.holders.party(Sender::Pool(pool)).is_none() {
            return Err(ConfigError(format!("there is no pool {pool:?}")).into());
        }
        self.roster.attach(worker, pool);
        Ok(())
    }

    /// Takes that back; whether the worker was attached to the pool.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn detach(&self, worker: &str, pool: &str) -> Result<bool, Forked> {
        let _writer = self.write()?;
        Ok(self.roster.detach(worker, pool))
    }

    /// Predicts that a worker will hold the leading blocks of a prompt; returns
    /// how many. Those of a worker that would be ignored are none.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn predict(
        &self,
        blocks: &Blocks<'_>,
        worker: &str,
        rank: u32,
        prediction: Prediction,
    ) -> Result<u64, Forked> {
        let size = self.config.block_size as usize;
        let mut keys = Keys::new(blocks, size, false, Vec::new());
        let keys = keys.all();
        let mut writer = self.write()?;
        let predicted = writer.predict(worker, rank, keys, prediction);
        writer.publish();
        Ok(predicted)
    }

    /// Ends predictions whose deadline is not after `now`, and what is too old by
    /// then where age is limited; returns how many blocks of holders that are, of
    /// their main cache groups.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn expire(&self, now: Moment) -> Result<u64, Forked> {
        Ok(self.write()?.expire(now))
    }

    /// Forgets a worker and ends its epoch; whether there was anything.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn remove_worker(&self, worker: &str) -> Result<bool, Forked> {
        let mut writer = self.write()?;
        let attached = self.roster.detach_all(worker);
        let known = writer.remove(Sender::Worker(worker));
        writer.publish();
        Ok(known || attached)
    }

    /// Forgets a pool and ends its epoch; whether there was anything. Workers
    /// that are attached to it stay so.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn remove_pool(&self, pool: &str) -> Result<bool, Forked> {
        let mut writer = self.write()?;
        let known = writer.remove(Sender::Pool(pool));
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
        self.reset_holder(Sender::Worker(worker), rank)
    }

    /// The same for a pool.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn reset_pool(&self, pool: &str) -> Result<bool, Forked> {
        self.reset_holder(Sender::Pool(pool), 0)
    }

    fn reset_holder(&self, sender: Sender<'_>, rank: u32) -> Result<bool, Forked> {
        let mut writer = self.write()?;
        let holder = writer.holders.find(sender, rank);
        let used = holder.is_some_and(|holder| writer.reset(holder));
        writer.publish();
        Ok(used)
    }

    /// Resets all workers' holders.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn clear(&self) -> Result<(), Forked> {
        let mut writer = self.write()?;
        let all = writer.holders.iter();
        let workers = all.filter(|(_, holder)| !holder.pool);
        let workers: Vec<u32> = workers.map(|(number, _)| number).collect();
        for holder in workers {
            writer.reset(holder);
        }
        writer.publish();
        Ok(())
    }

    /// Every known rank of a worker.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn holders(&self) -> Result<Vec<HolderState>, Forked> {
        let writer = self.write()?;
        let workers = writer.holders.iter().filter(|(_, holder)| !holder.pool);
        Ok(workers.map(|(holder, _)| writer.state(holder)).collect())
    }

    /// Every known pool.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn pools(&self) -> Result<Vec<PoolState>, Forked> {
        let writer = self.write()?;
        let all = writer.holders.iter().map(|(_, holder)| holder);
        Ok(all
            .filter(|holder| holder.pool)
            .map(Holder::pool_state)
            .collect())
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
        let (predicted_bytes, predicted_reserve) = writer.predictions.bytes();
        let held = writer.holders.iter().map(|(_, holder)| holder.held);
        let (workers, pools) = writer.holders.parties();
        Ok(Stats {
            blocks: writer.store.held(),
            workers,
            pools,
            holders: writer.holders.iter().count() as u64,
            claims: held.flatten().sum(),
            orphans: writer.orphans.blocks(),
            predicted: writer.predictions.total(),
            runs: u64::from(writer.store.runs().0),
            names: (writer.store.places.len() + writer.pages.names()) as u64,
            bytes: (bytes + predicted_bytes + writer.side_bytes()) as u64,
            reserve: (reserve + predicted_reserve) as u64,
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
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        (load(&self.shared.workers), load(&self.shared.blocks))
    }
}

fn panicked() -> ! {
    panic!("a batch panicked while it was applied: the index is of no use")
}

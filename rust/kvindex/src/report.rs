//! What became of a batch, and the totals of all batches.

use crate::event::Reason;

/// How a batch's number compared with those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It was the next one, or had none.
    #[default]
    Ok,
    /// It, or a later one, was applied before; nothing was changed.
    Duplicate,
    /// The numbers from the first to the last of these never came.
    Gap(u64, u64),
}

/// What became of one batch.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Hashes stored.
    pub stored: u64,
    /// Hashes removed.
    pub removed: u64,
    /// Clears applied.
    pub cleared: u64,
    /// Hashes that changed nothing.
    pub ignored: u64,
    /// Hashes that had waited, and were stored now.
    pub attached: u64,
    /// How many hashes were not applied as they stood, by reason.
    pub reasons: [u64; Reason::ALL.len()],
    /// How the batch's number compared.
    pub status: Status,
    /// The rank that the batch was applied to.
    pub rank: u32,
}

impl Report {
    pub(crate) fn note(&mut self, reason: Reason, hashes: u64) {
        self.reasons[reason as usize] += hashes;
    }

    pub(crate) fn ignore(&mut self, reason: Reason, hashes: u64) {
        self.ignored += hashes;
        self.note(reason, hashes);
    }
}

/// The types of events, as they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    Stored,
    Removed,
    Cleared,
    Unreadable,
}

/// Totals since the index was made.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Batches: in order, seen before, after a gap.
    pub batches: [u64; 3],
    /// Stores, removals, clears and unreadable events: applied at least in
    /// part, and not at all.
    pub events: [[u64; 2]; 4],
    /// Hashes not applied as they stood, by reason.
    pub reasons: [u64; Reason::ALL.len()],
}

impl Totals {
    pub(crate) fn count(&mut self, kind: Type, applied: bool) {
        self.events[kind as usize][usize::from(!applied)] += 1;
    }

    /// How many batches there were.
    pub(crate) fn all_batches(&self) -> u64 {
        self.batches.iter().sum()
    }

    pub(crate) fn add(&mut self, report: &Report) {
        let kind = match report.status {
            Status::Ok => 0,
            Status::Duplicate => 1,
            Status::Gap(..) => 2,
        };
        self.batches[kind] += 1;
        for (total, hashes) in self.reasons.iter_mut().zip(report.reasons) {
            *total += hashes;
        }
    }
}

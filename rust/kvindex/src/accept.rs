//! Is a batch to be applied? Its sender, epoch and number decide.

use crate::event::{Event, Reason};
use crate::index::Origin;
use crate::prepare::Prepared;
use crate::report::{Report, Status};
use crate::writer::Writer;

impl Writer {
    /// Applies a batch if its sender, epoch and number let it.
    pub(crate) fn apply_batch(&mut self, prepared: &Prepared, origin: &Origin<'_>) -> Report {
        let rank = prepared.batch.rank.unwrap_or(origin.rank);
        let mut report = Report {
            rank: if origin.sender.is_pool() { 0 } else { rank },
            ..Report::default()
        };
        let (epoch, known) = self.holders.look_up(origin.sender, report.rank);
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
            let holder = known.unwrap_or_else(|| self.enter(origin.sender, report.rank));
            report.status = self.advance(holder, origin);
            if report.status == Status::Duplicate {
                self.refuse(prepared, Reason::Duplicate, &mut report);
            } else {
                self.now = origin.now;
                self.end_aged(holder, origin.now);
                self.apply_events(holder, prepared, &mut report);
            }
            self.note_batch(holder, &prepared.batch, &report);
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

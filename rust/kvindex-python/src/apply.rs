//! What happens to a payload? It becomes batches, which are applied.

use std::sync::atomic::Ordering;

use kvindex::decode::decode;
use kvindex::event::Reason;
use kvindex::{Origin, Prepared, Report, Status};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::decoding::Part;
use crate::error::Error;
use crate::events::Payload;
use crate::indexer::Indexer;

impl Indexer {
    /// Reads what a worker's source sent, and applies it.
    pub(crate) fn apply_payload(
        &self,
        payload: &Bound<'_, PyAny>,
        origin: &Origin<'_>,
        strict: bool,
    ) -> Result<Report, Error> {
        let py = payload.py();
        let settings = (self.index.config().block_size, strict);
        let apply = |parts: &[Part<'_>]| self.apply_parts(py, parts, origin, strict);
        if let Some(report) = self.decoders.read(payload, origin, settings, apply)? {
            return Ok(report);
        }
        let payload = payload.extract::<Payload<'_>>()?;
        let report = py.detach(|| {
            let batch = self.prepared(&payload, strict)?;
            Ok::<_, Error>(self.index.apply(&batch, origin)?)
        })?;
        self.report_misfits(py, origin, &report)?;
        Ok(report)
    }

    /// Applies the batches of one payload: all of them, or none if one cannot be
    /// read.
    fn apply_parts(
        &self,
        py: Python<'_>,
        parts: &[Part<'_>],
        origin: &Origin<'_>,
        strict: bool,
    ) -> Result<Report, Error> {
        if parts.is_empty() {
            let nothing = PyList::empty(py);
            let payload = nothing.extract::<Payload<'_>>()?;
            let batch = self.prepared(&payload, strict)?;
            return Ok(py.detach(|| self.index.apply(&batch, origin))?);
        }
        let prepared = parts.iter().map(|part| {
            let payload = part.events.extract::<Payload<'_>>()?;
            py.detach(|| self.prepared(&payload, strict))
        });
        let prepared = prepared.collect::<Result<Vec<_>, Error>>()?;
        let mut reports = Vec::with_capacity(parts.len());
        for (part, batch) in parts.iter().zip(&prepared) {
            let origin = Origin {
                rank: part.rank.unwrap_or(origin.rank),
                source: part.source(origin),
                seq: part.seq.or(origin.seq),
                ..*origin
            };
            let report = py.detach(|| self.index.apply(batch, &origin))?;
            self.report_misfits(py, &origin, &report)?;
            reports.push(report);
        }
        Ok(sum(&reports))
    }

    fn prepared(&self, payload: &Payload<'_>, strict: bool) -> Result<Prepared, Error> {
        let batch = decode(&payload.0).inspect_err(|_| {
            self.undecodable.fetch_add(1, Ordering::Relaxed);
        })?;
        let prepared = self.index.prepare(batch, strict).inspect_err(|_| {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        })?;
        Ok(prepared)
    }

    fn report_misfits(&self, py: Python<'_>, origin: &Origin<'_>, report: &Report) -> PyResult<()> {
        if report.reasons[Reason::BlockSize as usize] == 0 {
            return Ok(());
        }
        let whose = (origin.sender, report.rank, origin.source);
        self.misfits
            .report(py, whose, self.index.config().block_size)
    }
}

/// What became of several batches together: a duplicate only where all are, a gap
/// from the first number that is missing to the last.
fn sum(reports: &[Report]) -> Report {
    let mut total = Report {
        rank: reports[0].rank,
        status: Status::Duplicate,
        ..Report::default()
    };
    for report in reports {
        total.stored += report.stored;
        total.removed += report.removed;
        total.cleared += report.cleared;
        total.ignored += report.ignored;
        total.attached += report.attached;
        for (all, count) in total.reasons.iter_mut().zip(report.reasons) {
            *all += count;
        }
        total.status = match (total.status, report.status) {
            (Status::Gap(first, _), Status::Gap(_, last)) => Status::Gap(first, last),
            (gap @ Status::Gap(..), _) | (_, gap @ Status::Gap(..)) => gap,
            (Status::Duplicate, status) => status,
            (Status::Ok, _) => Status::Ok,
        };
    }
    total
}

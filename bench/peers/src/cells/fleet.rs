//! A fleet's whole life: stored, asked, asked beside a writer, removed.

use super::matches::{Kind, quiet};
use super::{apply, busy::busy, rate};
use crate::measure::{Sweep, bytes};
use crate::record::Report;
use crate::subject::Subject;
use crate::workload::{Block, Direction, Fleet, Stream};

/// Measures a subject with a fleet's claims.
pub(crate) fn fleet<S: Subject>(fleet: &Fleet, report: &Report) {
    let before = bytes();
    let mut subject = match S::new(fleet.workers) {
        Ok(subject) => subject,
        Err(why) => return report.note("store", &why),
    };
    let stored = apply(&mut subject, Stream::new(fleet, Direction::Store));
    let size = (bytes() - before) as f64;
    report.value("store", "blocks/s", None, rate(stored));
    report.value("bytes_per_claim", "bytes", None, size / fleet.claims as f64);
    report.value(
        "bytes_per_block",
        "bytes",
        None,
        size / fleet.distinct as f64,
    );
    let sweep = Sweep::new();
    let queries = |kind: Kind| (kind, kind.queries(fleet));
    let all: Vec<(Kind, Vec<Vec<Block>>)> = Kind::ALL.into_iter().map(queries).collect();
    for (kind, queries) in &all {
        let (samples, rows) = quiet(&mut subject, *kind, queries, &sweep);
        if samples.len() > 0 {
            report.samples(kind.cell(), None, samples, rows);
        }
    }
    busy(&mut subject, report, &all);
    drop(all);
    subject.drain();
    let removed = apply(&mut subject, Stream::new(fleet, Direction::Remove));
    report.value("remove", "blocks/s", None, rate(removed));
}

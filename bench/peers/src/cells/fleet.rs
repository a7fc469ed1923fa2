//! A fleet's whole life: stored, asked, asked beside a writer, removed.

use super::busy::busy;
use super::matches::{Kind, quiet};
use super::{apply, rate};
use crate::judge::{Judge, Verdict};
use crate::measure::{Sweep, bytes};
use crate::record::Report;
use crate::subject::Subject;
use crate::workload::{Block, Direction, Event, Fleet, Stream, punched};

/// One in so many inner blocks is removed from a fragmented fleet.
const ONE_IN: usize = 50;
/// Queries of each kind that are judged.
const JUDGED: usize = 512;

/// What is done with a fleet.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a step that is taken or left out"
)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Course {
    /// The queries.
    pub(crate) kinds: &'static [Kind],
    /// Whether holes are punched into it first.
    pub(crate) punched: bool,
    /// Whether it is asked beside a writer, too.
    pub(crate) busy: bool,
    /// Whether answers are compared with the model's: that takes memory.
    pub(crate) judged: bool,
    /// Whether it is removed in the end.
    pub(crate) removed: bool,
}

/// Measures a subject with a fleet's claims.
pub(crate) fn fleet<S: Subject>(fleet: &Fleet, course: &Course, report: &Report) {
    let before = bytes();
    let mut subject = match S::new(fleet.workers) {
        Ok(subject) => subject,
        Err(why) => return report.note("store", &why),
    };
    let stored = apply(&mut subject, Stream::new(fleet, Direction::Store));
    report.value("store", "blocks/s", None, rate(stored));
    let mut claims = fleet.claims;
    if course.punched {
        let removed = apply(&mut subject, punched(fleet, ONE_IN));
        report.value("remove_inner", "blocks/s", None, rate(removed));
        claims -= removed.0;
    }
    let size = bytes().wrapping_sub(before) as f64;
    report.value("bytes_per_claim", "bytes", None, size / claims as f64);
    let per_block = size / fleet.distinct as f64;
    report.value("bytes_per_block", "bytes", None, per_block);
    let queries = |kind: &Kind| (*kind, kind.queries(fleet));
    let all: Vec<(Kind, Vec<Vec<Block>>)> = course.kinds.iter().map(queries).collect();
    ask(&mut subject, &all, report);
    if course.busy {
        busy(&mut subject, report, &all);
        subject.drain();
    }
    if course.judged {
        judge(&mut subject, fleet, course, &all, report);
    }
    drop(all);
    if course.removed {
        let removed = apply(&mut subject, Stream::new(fleet, Direction::Remove));
        report.value("remove", "blocks/s", None, rate(removed));
    }
}

fn ask<S: Subject>(subject: &mut S, all: &[(Kind, Vec<Vec<Block>>)], report: &Report) {
    let sweep = Sweep::new();
    for (kind, queries) in all {
        let (samples, rows) = quiet(subject, *kind, queries, &sweep);
        if samples.len() > 0 {
            report.samples(kind.cell(), None, samples, rows);
        }
    }
}

/// Judges whatever was asked.
fn judge<S: Subject>(
    subject: &mut S,
    fleet: &Fleet,
    course: &Course,
    all: &[(Kind, Vec<Vec<Block>>)],
    report: &Report,
) {
    let mut judge = Judge::default();
    let mut model = |event: Event| judge.apply(&event);
    Stream::new(fleet, Direction::Store).for_each(&mut model);
    if course.punched {
        punched(fleet, ONE_IN).for_each(&mut model);
    }
    let mut verdict = Verdict::default();
    for query in all
        .iter()
        .flat_map(|(_, queries)| queries.iter().take(JUDGED))
    {
        judge.ask(subject, query, &mut verdict);
    }
    report.verdict(&verdict);
}

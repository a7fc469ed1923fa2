//! The same matches while another thread writes as fast as it can.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::matches::Kind;
use crate::measure::Samples;
use crate::record::Report;
use crate::subject::{Subject, query};
use crate::workload::{Block, Direction, Event, Fleet, Names, Sharing, Stream};

/// How long each kind of query is asked.
const SPAN: Duration = Duration::from_millis(500);
/// Claims that the writer stores and removes, again and again.
const CHURN: u64 = 200_000;

/// Measures every kind of query beside a writer, and the writer.
pub(crate) fn busy<S: Subject>(subject: &mut S, report: &Report, all: &[(Kind, Vec<Vec<Block>>)]) {
    let fleet = Fleet::new(0xb0_5e, CHURN, Sharing::Mixed, Names::Common);
    let both = [Direction::Store, Direction::Remove].into_iter();
    let events: Vec<Event> = both.flat_map(|way| Stream::new(&fleet, way)).collect();
    let inputs: Vec<(S::Input, u64)> = events
        .iter()
        .map(|event| (subject.prepare(event), event.blocks.len() as u64))
        .collect();
    drop(events);
    // A cold query asked for long is no longer cold.
    let warm = all.iter().filter(|(kind, _)| *kind != Kind::OneCold);
    let queries: Vec<(Kind, Vec<Vec<S::Key>>)> = warm
        .map(|(kind, queries)| {
            (
                *kind,
                queries.iter().map(|blocks| query::<S>(blocks)).collect(),
            )
        })
        .collect();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut write, mut read) = subject.halves();
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut inputs = inputs.iter().cycle();
            while !stop.load(Ordering::Relaxed) {
                let (input, blocks) = inputs.next().expect("cycles");
                write(input);
                written.fetch_add(*blocks, Ordering::Relaxed);
            }
        });
        let _stop = Stop(&stop);
        for (kind, queries) in &queries {
            let (samples, rows) = ask(&mut read, queries);
            let cell = format!("busy_{}", kind.cell());
            report.samples(&cell, None, samples, rows);
        }
    });
    let rate = written.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    report.value("busy_writer", "blocks/s", None, rate);
}

/// Ends the writer, also where the reader panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn ask<K: Copy>(read: &mut impl FnMut(&[K]) -> usize, queries: &[Vec<K>]) -> (Samples, f64) {
    let (mut samples, mut rows) = (Samples::default(), 0);
    let end = Instant::now() + SPAN;
    while Instant::now() < end && !queries.is_empty() {
        for query in queries {
            rows += samples.ask(query, &mut *read);
            if samples.len().is_multiple_of(64) && Instant::now() >= end {
                break;
            }
        }
    }
    let mean = rows as f64 / samples.len().max(1) as f64;
    (samples, mean)
}

//! What is measured of one subject in one workload; each in a process of its own.

mod agentic;
mod busy;
mod fleet;
mod floor;
mod growth;
mod holes;
mod matches;

pub(crate) use agentic::agentic;
pub(crate) use fleet::{Course, fleet};
pub(crate) use floor::floor;
pub(crate) use growth::{growth_of_claims, growth_of_depth, growth_of_holders};
pub(crate) use holes::holes;
pub(crate) use matches::Kind;

use std::time::Duration;

use crate::measure::time;
use crate::subject::Subject;
use crate::workload::Event;

/// Events that are made ready before they are applied, and timed together.
const CHUNK: usize = 1_024;

/// Applies a stream; returns how many blocks it had and how long that took. Only
/// the applying is timed, until all of it is done.
fn apply<S: Subject>(subject: &mut S, events: impl Iterator<Item = Event>) -> (u64, Duration) {
    let mut events = events.peekable();
    let (mut blocks, mut total) = (0, Duration::ZERO);
    let mut inputs = Vec::with_capacity(CHUNK);
    while events.peek().is_some() {
        for event in events.by_ref().take(CHUNK) {
            blocks += event.blocks.len() as u64;
            inputs.push(subject.prepare(&event));
        }
        total += time(|| {
            subject.apply(&mut inputs);
            subject.drain();
        });
        inputs.clear();
    }
    (blocks, total)
}

/// Blocks a second.
fn rate((blocks, time): (u64, Duration)) -> f64 {
    blocks as f64 / time.as_secs_f64()
}

//! Is every answer right, with holes, blocks that come back, and chains cut short?

use super::apply;
use crate::judge::{Judge, Verdict};
use crate::record::Report;
use crate::subject::Subject;
use crate::workload::{Block, Fleet, Holes};

/// Rounds of changes, after each of which chains are asked for.
const ROUNDS: usize = 4;
/// Chains, a round.
const QUERIES: usize = 1_030;

/// Judges a subject.
pub(crate) fn holes<S: Subject>(fleet: &Fleet, report: &Report) {
    let mut subject = match S::new(fleet.workers) {
        Ok(subject) => subject,
        Err(why) => return report.note("wrong", &why),
    };
    let mut work = Holes::new(fleet);
    let (mut judge, mut verdict) = (Judge::default(), Verdict::default());
    apply(
        &mut subject,
        work.stores().inspect(|event| judge.apply(event)),
    );
    for _ in 0..ROUNDS {
        let events = work.round();
        for event in &events {
            judge.apply(event);
        }
        apply(&mut subject, events.into_iter());
        let chains: Vec<&[Block]> = work.chains().take(QUERIES).collect();
        for chain in chains {
            judge.ask(&mut subject, chain, &mut verdict);
        }
    }
    report.verdict(&verdict);
}

//! Sessions that grow, fork and are trimmed.

use super::{apply, rate};
use crate::judge::{Judge, Verdict};
use crate::measure::{Samples, bytes};
use crate::record::Report;
use crate::subject::{Subject, query};
use crate::workload::{Agentic, Block, Random, grow};

const SEED: u64 = 7;
/// Stored blocks, for each claim that there is room for.
const TURNOVER: u64 = 2;
/// Queries that are timed.
const SAMPLES: usize = 20_000;
/// Queries that are judged.
const JUDGED: usize = 512;
/// Blocks of a session's next turn.
const NEXT: usize = 32;

/// Measures a subject with engines that have room for so many claims.
pub(crate) fn agentic<S: Subject>(claims: u64, report: &Report) {
    let before = bytes();
    let mut subject = match S::new(Agentic::workers()) {
        Ok(subject) => subject,
        Err(why) => return report.note("agentic", &why),
    };
    let mut work = Agentic::new(SEED, claims, TURNOVER * claims);
    let mixed = apply(&mut subject, work.by_ref());
    report.value("agentic", "blocks/s", None, rate(mixed));
    let held = work.claims();
    let with_work = bytes();
    let mut queries = queries(&work);
    let own = bytes().wrapping_sub(with_work);
    drop(work);
    let size = bytes().wrapping_sub(before).wrapping_sub(own) as f64;
    report.value("bytes_per_claim", "bytes", None, size / held as f64);
    Random::new(SEED).shuffle(&mut queries);
    ask(&mut subject, &queries, report);
    judge(&mut subject, claims, &queries, report);
}

/// Each session's chain, and the next turn.
fn queries(work: &Agentic) -> Vec<Vec<Block>> {
    let mut random = Random::new(SEED);
    let next_turn = |chain: &[Block]| {
        let mut query = chain.to_vec();
        grow(&mut query, NEXT, &mut random);
        query
    };
    work.chains().map(next_turn).collect()
}

fn ask<S: Subject>(subject: &mut S, queries: &[Vec<Block>], report: &Report) {
    let queries: Vec<Vec<S::Key>> = queries.iter().map(|blocks| query::<S>(blocks)).collect();
    let (mut samples, mut rows) = (Samples::default(), 0);
    for query in &queries {
        subject.find(query);
    }
    while samples.len() < SAMPLES {
        for query in &queries {
            rows += samples.ask(query, |query| subject.find(query));
        }
    }
    let mean = rows as f64 / samples.len() as f64;
    report.samples("match_next_turn", None, samples, mean);
}

fn judge<S: Subject>(subject: &mut S, claims: u64, queries: &[Vec<Block>], report: &Report) {
    let (mut judge, mut verdict) = (Judge::default(), Verdict::default());
    Agentic::new(SEED, claims, TURNOVER * claims).for_each(|event| judge.apply(&event));
    for query in queries.iter().take(JUDGED) {
        judge.ask(subject, query, &mut verdict);
    }
    report.verdict(&verdict);
}

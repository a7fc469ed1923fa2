//! How figures change with size: claims, depth, holders.

use std::time::Duration;

use super::matches::{Kind, quiet};
use super::{apply, rate};
use crate::measure::{Sweep, bytes};
use crate::record::Report;
use crate::subject::Subject;
use crate::workload::{Direction, Fleet, Names, Sharing, Stream};

const SEED: u64 = 11;
/// Chains of one depth, or of one number of holders, that are asked in turn.
const CHAINS: u64 = 4;
/// Holders of a chain whose depth grows.
const DEGREE: usize = 8;
/// Blocks of a chain whose holders grow.
const DEPTH: usize = 64;

/// Fewer claims than that are stored in no time.
const WORTH_TIMING: u64 = 10_000;
/// The longest that one point may take to store, if there is to be a larger one.
const PATIENCE: Duration = Duration::from_secs(3);

/// One index of the mixed kind that grows tenfold from point to point.
pub(crate) fn growth_of_claims<S: Subject>(most: u64, report: &Report) {
    let fleet = Fleet::new(SEED, most, Sharing::Mixed, Names::Common);
    let before = bytes();
    let mut subject = match S::new(fleet.workers) {
        Ok(subject) => subject,
        Err(why) => return report.note("store", &why),
    };
    let (mut done, mut claims) = (0, 10_000);
    while claims <= most {
        let part = Fleet::new(SEED, claims, Sharing::Mixed, Names::Common);
        let families = done..part.families;
        done = part.families;
        let stored = apply(&mut subject, Stream::of(&fleet, Direction::Store, families));
        let size = bytes().wrapping_sub(before) as f64;
        let x = Some(claims);
        report.value("store", "blocks/s", x, rate(stored));
        let per_claim = size / part.claims as f64;
        report.value("bytes_per_claim", "bytes", x, per_claim);
        for kind in [Kind::OneCold, Kind::Wide] {
            let queries = kind.queries(&part);
            let (samples, rows) = quiet(&mut subject, kind, &queries, &Sweep::new());
            if samples.len() > 0 {
                report.samples(kind.cell(), x, samples, rows);
            }
        }
        claims *= 10;
    }
}

/// Chains of 1 to 65,536 blocks, each held by a few.
pub(crate) fn growth_of_depth<S: Subject>(report: &Report) {
    for power in 0..=16 {
        let depth = 1 << power;
        let fleet = Fleet::fixed(SEED + power, CHAINS, depth, DEGREE);
        if !point::<S>(&fleet, depth as u64, report) {
            break;
        }
    }
}

/// Chains of 64 blocks, held by 1 to 10,000.
pub(crate) fn growth_of_holders<S: Subject>(report: &Report) {
    for degree in [1, 3, 10, 32, 100, 316, 1_000, 3_162, 10_000] {
        let fleet = Fleet::fixed(SEED + degree as u64, CHAINS, DEPTH, degree);
        if !point::<S>(&fleet, degree as u64, report) {
            break;
        }
    }
}

/// An index of one fleet only; whether a larger one is worth its time.
fn point<S: Subject>(fleet: &Fleet, x: u64, report: &Report) -> bool {
    let mut subject = match S::new(fleet.workers) {
        Ok(subject) => subject,
        Err(why) => {
            report.note("match", &format!("not at {x}: {why}"));
            return false;
        }
    };
    let stored = apply(&mut subject, Stream::new(fleet, Direction::Store));
    if fleet.claims >= WORTH_TIMING {
        report.value("store", "blocks/s", Some(x), rate(stored));
    }
    let queries = Kind::Whole.queries(fleet);
    let (samples, rows) = quiet(&mut subject, Kind::Whole, &queries, &Sweep::new());
    report.samples("match", Some(x), samples, rows);
    let slow = stored.1 > PATIENCE;
    if slow {
        let seconds = stored.1.as_secs_f64();
        let why = format!("not beyond {x}: that took {seconds:.1} s to store");
        report.note("match", &why);
    }
    !slow
}

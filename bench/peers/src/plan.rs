//! Which workloads there are, how large, and who takes part.

use crate::cells::{
    Course, Kind, agentic, fleet, floor, growth_of_claims, growth_of_depth, growth_of_holders,
    holes,
};
use crate::record::Report;
use crate::subject::{Chain, Copies, Dynamo, Kvindex, Locals, Positional, Sets, Smg, Subject};
use crate::workload::{Fleet, Names, Sharing};

/// Every subject, in the order of the table's columns.
pub(crate) const SUBJECTS: [&str; 7] = [
    Kvindex::<Sets>::NAME,
    Kvindex::<Locals>::NAME,
    Kvindex::<Copies>::NAME,
    Dynamo::NAME,
    Smg::NAME,
    Chain::NAME,
    Positional::NAME,
];

/// What the machine itself can do.
pub(crate) const MACHINE: &str = "machine";

/// Whether a subject is another index than kvindex.
pub(crate) fn is_peer(subject: &str) -> bool {
    subject != MACHINE && !subject.starts_with(Kvindex::<Sets>::NAME)
}

/// A kind of work, with the numbers of claims that it is done with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) claims: &'static [u64],
    /// Where it should be quick; nothing = it is left out.
    pub(crate) quick: &'static [u64],
    /// How often each subject does it, in turns.
    pub(crate) rounds: usize,
    run: Run,
}

#[derive(Clone, Copy, Debug)]
enum Run {
    Mixed,
    Agentic,
    Unique,
    Fragmented,
    OwnNames,
    FanOut(usize),
    Holes,
    GrowthOfClaims,
    GrowthOfDepth,
    GrowthOfHolders,
    Floor,
}

const fn workload(
    name: &'static str,
    claims: &'static [u64],
    quick: &'static [u64],
    rounds: usize,
    run: Run,
) -> Workload {
    Workload {
        name,
        claims,
        quick,
        rounds,
        run,
    }
}

/// From how many claims on only one round is made, and nothing of little interest.
const LARGE: u64 = 10_000_000;

/// Up to how many claims the mixed workload is judged, too.
const JUDGED: u64 = 1_000_000;

/// Every workload.
pub(crate) const WORKLOADS: [Workload; 13] = [
    workload("machine", &[0], &[0], 1, Run::Floor),
    workload(
        "mixed",
        &[4_000_000, 12_800_000],
        &[1_000_000],
        2,
        Run::Mixed,
    ),
    workload("agentic", &[1_000_000], &[], 1, Run::Agentic),
    workload("unique", &[1_000_000], &[], 1, Run::Unique),
    workload("fragmented", &[1_000_000], &[], 1, Run::Fragmented),
    workload("own-names", &[1_000_000], &[], 1, Run::OwnNames),
    workload("fanout-256", &[262_144], &[262_144], 1, Run::FanOut(256)),
    workload("fanout-1024", &[1_048_576], &[], 1, Run::FanOut(1_024)),
    workload("fanout-10000", &[2_560_000], &[], 1, Run::FanOut(10_000)),
    workload("holes", &[300_000], &[100_000], 1, Run::Holes),
    workload("growth-claims", &[10_000_000], &[], 1, Run::GrowthOfClaims),
    workload("growth-depth", &[65_536], &[], 1, Run::GrowthOfDepth),
    workload("growth-holders", &[10_000], &[], 1, Run::GrowthOfHolders),
];

/// Blocks of a chain that fans out.
const FAN_DEPTH: usize = 256;
const SEED: u64 = 1;

impl Workload {
    /// How many rounds of it are worth their time.
    pub(crate) fn rounds(&self, claims: u64) -> usize {
        if claims < LARGE { self.rounds } else { 1 }
    }

    /// Who takes part where nobody is named.
    pub(crate) fn subjects(&self, claims: u64) -> Vec<&'static str> {
        if let Run::Floor = self.run {
            return vec![MACHINE];
        }
        let all = SUBJECTS.into_iter();
        all.filter(|subject| !self.is_beside_the_point(subject, claims))
            .filter(|subject| self.why_not(subject, claims).is_none())
            .collect()
    }

    /// Who does not, though it could be compared, and why.
    pub(crate) fn left_out(&self, claims: u64) -> Vec<(&'static str, &'static str)> {
        if let Run::Floor = self.run {
            return Vec::new();
        }
        let all = SUBJECTS.into_iter();
        all.filter_map(|subject| Some((subject, self.why_not(subject, claims)?)))
            .collect()
    }

    /// Variants of kvindex are there for a few cells only.
    fn is_beside_the_point(&self, subject: &str, claims: u64) -> bool {
        let mixed = matches!(self.run, Run::Mixed) && claims < LARGE;
        match subject {
            name if name == Kvindex::<Locals>::NAME => {
                !(mixed || matches!(self.run, Run::FanOut(_)))
            }
            name if name == Kvindex::<Copies>::NAME => !mixed,
            _ => false,
        }
    }

    /// Whether it is worth its time even where a match looks at each block.
    fn takes_slow_matches(&self) -> bool {
        let fleets = matches!(self.run, Run::Mixed | Run::Fragmented | Run::FanOut(_));
        fleets || matches!(self.run, Run::Agentic | Run::Holes)
    }

    fn why_not(&self, subject: &str, claims: u64) -> Option<&'static str> {
        match (subject, self.run) {
            (Smg::NAME, Run::FanOut(10_000)) => {
                Some("each store copies the whole set of holders: minutes for 10,000")
            }
            (Positional::NAME, Run::FanOut(10_000)) => Some("a match takes milliseconds"),
            (Positional::NAME, _) if !self.takes_slow_matches() => {
                Some("a match takes microseconds to milliseconds: see mixed")
            }
            (Positional::NAME, _) if claims >= LARGE => Some("takes 100 bytes a claim"),
            _ => None,
        }
    }

    /// Does it with the subject of that name, in this process.
    pub(crate) fn run(&self, subject: &str, claims: u64) {
        if let Run::Floor = self.run {
            return floor(&self.report(MACHINE, claims));
        }
        match subject {
            name if name == Kvindex::<Sets>::NAME => self.measure::<Kvindex<Sets>>(claims),
            name if name == Kvindex::<Locals>::NAME => self.measure::<Kvindex<Locals>>(claims),
            name if name == Kvindex::<Copies>::NAME => self.measure::<Kvindex<Copies>>(claims),
            Dynamo::NAME => self.measure::<Dynamo>(claims),
            Smg::NAME => self.measure::<Smg>(claims),
            Chain::NAME => self.measure::<Chain>(claims),
            Positional::NAME => self.measure::<Positional>(claims),
            other => panic!("no subject is called {other}"),
        }
    }

    fn measure<S: Subject>(&self, claims: u64) {
        let report = self.report(S::NAME, claims);
        let of = |sharing, names| Fleet::new(SEED, claims, sharing, names);
        let course = self.course(S::NAME, claims);
        match self.run {
            Run::Mixed | Run::Fragmented => {
                fleet::<S>(&of(Sharing::Mixed, Names::Common), &course, &report);
            }
            Run::Unique => fleet::<S>(&of(Sharing::Unique, Names::Common), &course, &report),
            Run::OwnNames => fleet::<S>(&of(Sharing::Mixed, Names::Own), &course, &report),
            Run::FanOut(workers) => {
                let families = (claims / (workers * FAN_DEPTH) as u64).max(1);
                let wide = Fleet::fixed(SEED, families, FAN_DEPTH, workers);
                fleet::<S>(&wide, &course, &report);
            }
            Run::Agentic => agentic::<S>(claims, &report),
            Run::Holes => holes::<S>(&of(Sharing::Mixed, Names::Common), &report),
            Run::GrowthOfClaims => growth_of_claims::<S>(claims, &report),
            Run::GrowthOfDepth => growth_of_depth::<S>(&report),
            Run::GrowthOfHolders => growth_of_holders::<S>(&report),
            Run::Floor => floor(&report),
        }
    }

    fn report(&self, subject: &'static str, claims: u64) -> Report {
        Report {
            workload: self.name.into(),
            claims,
            subject,
        }
    }

    /// What is done with a fleet of this workload.
    fn course(&self, subject: &str, claims: u64) -> Course {
        let whole = Course {
            kinds: &Kind::MIXED,
            busy: true,
            removed: true,
            ..Course::default()
        };
        let course = match self.run {
            Run::Mixed => Course {
                judged: claims <= JUDGED,
                ..whole
            },
            Run::Unique => Course {
                kinds: &[Kind::OneCold, Kind::One, Kind::Miss],
                busy: false,
                judged: true,
                ..whole
            },
            Run::Fragmented => Course {
                punched: true,
                busy: false,
                judged: true,
                removed: false,
                ..whole
            },
            Run::OwnNames => Course {
                busy: false,
                judged: true,
                ..whole
            },
            Run::FanOut(_) => Course {
                kinds: &[Kind::Whole],
                judged: true,
                removed: false,
                ..whole
            },
            _ => whole,
        };
        // Its variants are there for a few cells only.
        if subject == Kvindex::<Locals>::NAME {
            return Course {
                busy: false,
                removed: false,
                ..course
            };
        }
        if subject == Kvindex::<Copies>::NAME {
            return Course::default();
        }
        course
    }
}

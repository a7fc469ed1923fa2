//! Single matches in a fleet's index.

use std::time::{Duration, Instant};

use crate::measure::{Samples, Sweep};
use crate::subject::{Subject, query};
use crate::workload::{Block, Fleet, Random, grow};

/// Samples that a cell is done with.
const ENOUGH: usize = 20_000;
/// How often a cold query is asked.
const COLD_ROUNDS: usize = 3;
/// Or as soon as this is over.
const LONGEST: Duration = Duration::from_secs(2);
/// Queries of one kind at the most.
const QUERIES: usize = 4_096;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Another chain of one holder each time, out of cold caches.
    OneCold,
    /// Chains of one holder, again and again.
    One,
    /// 78 blocks that 64 workers hold.
    Wide,
    /// 400 to 512 blocks that 64 workers hold.
    WideAndDeep,
    /// 64 blocks that nobody holds.
    Miss,
    /// 78 blocks of which 64 workers hold the first 39.
    Half,
    /// All that the members of a family share.
    Whole,
}

impl Kind {
    /// Those that a mixed fleet is asked.
    pub(crate) const MIXED: [Self; 6] = [
        Self::OneCold,
        Self::One,
        Self::Wide,
        Self::WideAndDeep,
        Self::Miss,
        Self::Half,
    ];

    /// The cell's name; `busy_` comes before it where a writer runs beside it.
    pub(crate) const fn cell(self) -> &'static str {
        match self {
            Self::OneCold => "match_one_cold",
            Self::One => "match_one",
            Self::Wide => "match_64x78",
            Self::WideAndDeep => "match_64x512",
            Self::Miss => "match_miss",
            Self::Half => "match_half",
            Self::Whole => "match_fanout",
        }
    }

    /// The queries of this kind that a fleet has, in random order.
    pub(crate) fn queries(self, fleet: &Fleet) -> Vec<Vec<Block>> {
        let mut random = Random::new(fleet.seed ^ 0x51);
        if self == Self::Miss {
            return (0..QUERIES).map(|_| unknown(64, &mut random)).collect();
        }
        let mut families: Vec<u64> = (0..fleet.families)
            .filter(|&at| self.fits(fleet, at))
            .collect();
        random.shuffle(&mut families);
        families.truncate(QUERIES);
        let query = |at: u64| self.query(fleet, at, &mut random);
        families.into_iter().map(query).collect()
    }

    fn fits(self, fleet: &Fleet, family: u64) -> bool {
        let shape = fleet.shape(family);
        match self {
            Self::OneCold | Self::One => shape.tails.len() == 1,
            Self::Whole => true,
            Self::Wide | Self::Half => shape.tails.len() == 64 && shape.shared >= 78,
            Self::WideAndDeep => shape.tails.len() == 64 && shape.shared >= 400,
            Self::Miss => false,
        }
    }

    fn query(self, fleet: &Fleet, family: u64, random: &mut Random) -> Vec<Block> {
        let mut family = fleet.family(family);
        match self {
            Self::OneCold | Self::One => return family.chain(0),
            Self::Wide => family.shared.truncate(78),
            Self::Half => {
                family.shared.truncate(39);
                grow(&mut family.shared, 39, random);
            }
            Self::WideAndDeep | Self::Miss | Self::Whole => {}
        }
        family.shared
    }
}

fn unknown(blocks: usize, random: &mut Random) -> Vec<Block> {
    let mut query = Vec::with_capacity(blocks);
    grow(&mut query, blocks, random);
    query
}

/// Times matches one by one; returns them and the mean number of rows.
pub(crate) fn quiet<S: Subject>(
    subject: &mut S,
    kind: Kind,
    queries: &[Vec<Block>],
    sweep: &Sweep,
) -> (Samples, f64) {
    let queries: Vec<Vec<S::Key>> = queries.iter().map(|blocks| query::<S>(blocks)).collect();
    let (mut samples, mut rows) = (Samples::default(), 0);
    if queries.is_empty() {
        return (samples, 0.0);
    }
    let cold = kind == Kind::OneCold;
    // A cold query is neither warmed up nor asked again soon, but it is not the
    // first one of all: that allocates what later ones find.
    let warm = if cold { 1 } else { queries.len() };
    for query in &queries[..warm] {
        subject.find(query);
    }
    let enough = if cold {
        COLD_ROUNDS * queries.len()
    } else {
        ENOUGH
    };
    let end = Instant::now() + LONGEST;
    while samples.len() < enough && Instant::now() < end {
        if cold {
            sweep.run();
        }
        for query in &queries {
            rows += samples.ask(query, |query| subject.find(query));
        }
    }
    let mean = rows as f64 / samples.len() as f64;
    (samples, mean)
}

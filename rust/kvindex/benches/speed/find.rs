//! From blocks to rows.

use criterion::{BenchmarkId, Criterion};
use kvindex::decode::decode;
use kvindex::key::SEED;
use kvindex::{Blocks, Found, Index, Options, Walk};

use crate::workload::{Chain, Random, index, origin, workers};

const HOLDERS: [usize; 3] = [1, 64, 256];
const BLOCKS: [usize; 4] = [8, 64, 512, 8192];
/// Blocks asked for before the first chain comes again.
const WINDOW: usize = 8192;
/// Blocks a store.
const STEP: usize = 64;

/// Chains that the first so many workers hold.
struct Held {
    holders: usize,
    blocks: usize,
    chains: Vec<Chain>,
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let index = index();
    let mut random = Random(123_456_789);
    let mut all = Vec::new();
    for holders in HOLDERS {
        for blocks in BLOCKS {
            let held = Held::new(holders, blocks, &mut random);
            held.store(&index);
            all.push(held);
        }
    }
    by_keys(criterion, &index, &all);
    by_tokens(criterion, &index, &all);
    missed(criterion, &index, &all, &mut random);
}

impl Held {
    fn new(holders: usize, blocks: usize, random: &mut Random) -> Self {
        let chains = (0..WINDOW / blocks).map(|_| Chain::new(blocks, random));
        Self {
            holders,
            blocks,
            chains: chains.collect(),
        }
    }

    fn store(&self, index: &Index) {
        let workers = workers();
        for bytes in self
            .chains
            .iter()
            .flat_map(|chain| chain.batches(STEP, None))
        {
            let batch = decode(&bytes).expect("a valid batch");
            let prepared = index.prepare(batch, false).expect("not strict");
            for worker in &workers[..self.holders] {
                index.apply(&prepared, &origin(worker)).expect("no fork");
            }
        }
    }

    fn id(&self) -> BenchmarkId {
        BenchmarkId::new(format!("{} holders", self.holders), self.blocks)
    }
}

fn by_keys(criterion: &mut Criterion, index: &Index, all: &[Held]) {
    let mut group = criterion.benchmark_group("find by keys");
    for held in all {
        let queries: Vec<Vec<u64>> = held.chains.iter().map(Chain::locals).collect();
        let mut next = queries.iter().cycle();
        let mut walk = Walk::default();
        group.bench_function(held.id(), |bencher| {
            bencher.iter(|| {
                let keys = next.next().expect("cycles");
                find(index, &Blocks::Locals(keys), &mut walk, held.holders)
            });
        });
    }
    group.finish();
}

fn by_tokens(criterion: &mut Criterion, index: &Index, all: &[Held]) {
    let mut group = criterion.benchmark_group("find by tokens");
    for held in all.iter().filter(|held| held.holders == 64) {
        let mut next = held.chains.iter().cycle();
        let mut walk = Walk::default();
        group.bench_function(held.id(), |bencher| {
            bencher.iter(|| {
                let blocks = Blocks::Tokens {
                    tokens: &next.next().expect("cycles").tokens,
                    images: &[],
                    seed: SEED,
                };
                find(index, &blocks, &mut walk, held.holders)
            });
        });
    }
    group.finish();
}

/// Prompts of 512 blocks that nobody holds, and of which only a half is held.
fn missed(criterion: &mut Criterion, index: &Index, all: &[Held], random: &mut Random) {
    let of_512 = |held: &&Held| held.holders == 64 && held.blocks == 512;
    let held = all.iter().find(of_512).expect("is among them");
    let unknown = Chain::new(512, random).locals();
    let half = |chain: &Chain| [&chain.locals()[..256], &unknown[256..]].concat();
    let halves: Vec<Vec<u64>> = held.chains.iter().map(half).collect();
    let mut next = halves.iter().cycle();
    let mut walk = Walk::default();
    let mut group = criterion.benchmark_group("find by keys, 512 blocks");
    group.bench_function("unknown from the first block on", |bencher| {
        bencher.iter(|| find(index, &Blocks::Locals(&unknown), &mut walk, 0));
    });
    group.bench_function("64 holders of the first half", |bencher| {
        bencher.iter(|| {
            let keys = next.next().expect("cycles");
            find(index, &Blocks::Locals(keys), &mut walk, 64)
        });
    });
    group.finish();
}

fn find(index: &Index, blocks: &Blocks<'_>, walk: &mut Walk, rows: usize) {
    let options = Options {
        candidates: None,
        weights: [1.0, 0.75, 0.25, 0.25],
        cascade: false,
    };
    let found = index.find(blocks, &options, walk).expect("no fork");
    assert_eq!(found.rows.len(), rows);
}

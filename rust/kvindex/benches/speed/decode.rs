//! From bytes to events, in blocks a second.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use kvindex::decode::decode;

use crate::workload::{Chain, Random};

/// So many batches, each another one: one batch over and over is learned by heart.
const BATCHES: usize = 4_096;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    let mut random = Random(2_463_534_242);
    for blocks in [8, 64] {
        let chain = Chain::new(BATCHES * 8, &mut random);
        let batches = chain.batches(blocks, None);
        let mut next = batches.iter().cycle();
        group.throughput(Throughput::Elements(blocks as u64));
        let id = BenchmarkId::from_parameter(format!("{blocks} blocks"));
        group.bench_function(id, |bencher| {
            bencher.iter(|| decode(black_box(next.next().expect("cycles"))));
        });
    }
    group.finish();
}

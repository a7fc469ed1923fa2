//! From events to claims, in blocks a second: a fleet's stores, 8 blocks each.

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use kvindex::decode::decode;
use kvindex::event::Batch;
use kvindex::{Index, Prepared};

use crate::workload::{Sent, index, mixed, origin, workers};

const CLAIMS: usize = 250_000;
const STEP: usize = 8;

pub(crate) fn bench(criterion: &mut Criterion) {
    let sent = mixed(CLAIMS, STEP);
    let workers = workers();
    prepare(criterion, &sent);
    let mut group = criterion.benchmark_group("apply");
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(4))
        .throughput(Throughput::Elements((sent.len() * STEP) as u64));
    let all: Vec<(usize, Prepared)> = sent
        .iter()
        .map(|(worker, bytes)| (*worker, ready(&index(), bytes)))
        .collect();
    group.bench_function("mixed, prepared", |bencher| {
        let fill = |index: &mut Index| {
            for (worker, prepared) in &all {
                put(index, &workers[*worker], prepared);
            }
        };
        bencher.iter_batched_ref(index, fill, BatchSize::PerIteration);
    });
    group.bench_function("mixed, decoded and prepared too", |bencher| {
        let fill = |index: &mut Index| {
            for (worker, bytes) in &sent {
                put(index, &workers[*worker], &ready(index, bytes));
            }
        };
        bencher.iter_batched_ref(index, fill, BatchSize::PerIteration);
    });
    group.finish();
}

fn prepare(criterion: &mut Criterion, sent: &[Sent]) {
    let index = index();
    let decoded = |(_, bytes): &Sent| decode(bytes).expect("a valid batch");
    let batches: Vec<Batch> = sent.iter().take(4_096).map(decoded).collect();
    let mut next = batches.iter().cycle();
    let mut group = criterion.benchmark_group("prepare");
    group.throughput(Throughput::Elements(STEP as u64));
    group.bench_function("8 blocks", |bencher| {
        let copy = || next.next().expect("cycles").clone();
        let check = |batch| index.prepare(batch, false);
        bencher.iter_batched(copy, check, BatchSize::SmallInput);
    });
    group.finish();
}

fn ready(index: &Index, bytes: &[u8]) -> Prepared {
    let batch = decode(bytes).expect("a valid batch");
    index.prepare(batch, false).expect("not strict")
}

fn put(index: &Index, worker: &str, prepared: &Prepared) {
    let report = index.apply(prepared, &origin(worker)).expect("no fork");
    debug_assert_eq!(report.ignored, 0, "all is stored");
}

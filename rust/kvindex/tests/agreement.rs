//! Random operations: the index answers as the model does, whatever is done.

mod common;

use common::agree::Both;
use common::ops::{Op, Sent, ops, profile, worker};
use common::said::{Said, batch, store};
use common::{apply, config};
use kvindex::{Config, Origin};
use proptest::prelude::*;

/// Runs that no operation touches: with them a clear is swept in several steps.
const FILLER: u64 = 300;

fn send(both: &mut Both, sent: &Sent, epochs: &[Option<u64>; 3], before: &mut Vec<Said>) {
    let said = sent.said(&both.model, before);
    before.extend(said.iter().cloned());
    let mut batch = batch(said);
    batch.rank = sent.ranked.then_some(sent.rank);
    let origin = Origin {
        worker: worker(sent.worker),
        rank: if sent.ranked { 3 } else { sent.rank },
        source: sent.source,
        seq: sent.seq,
        epoch: match sent.epoch {
            0 => None,
            1 => epochs[sent.worker],
            stale => Some(stale * 1000),
        },
    };
    both.apply(batch, &origin);
}

fn fill(both: &mut Both) {
    let size = both.model.config.block_size;
    for root in 0..FILLER {
        let tokens = vec![1000 + root as u32; size as usize];
        let said = store([1 << 60 | root], &tokens);
        apply(&both.index, "filler", batch([said.into()]));
    }
    both.stranger = "filler";
}

fn run(config: Config, filled: bool, ops: &[Op]) {
    let mut both = Both::new(config);
    let mut others = 0;
    if filled && !config.registered_only {
        fill(&mut both);
        others = FILLER;
    }
    let (mut epochs, mut before) = ([None; 3], Vec::new());
    for op in ops {
        match *op {
            Op::Batch(ref sent) => send(&mut both, sent, &epochs, &mut before),
            Op::Register(number, kind) => {
                let profile = profile(kind, config.block_size);
                epochs[number] = Some(both.register(worker(number), profile));
            }
            Op::RemoveWorker(number) => {
                both.remove_worker(worker(number));
            }
            Op::Reset(number, rank) => {
                both.reset(worker(number), rank);
            }
            Op::Clear if others == 0 => {
                both.index.clear().unwrap();
                both.model.clear();
            }
            Op::Clear => {}
            Op::Totals => both.check_totals(others),
        }
        both.check(false);
    }
    both.check(true);
    both.check_totals(others);
    for number in 0..3 {
        both.remove_worker(worker(number));
    }
    both.index.remove_worker("filler").unwrap();
    let stats = both.index.stats().unwrap();
    let left = (
        stats.blocks,
        stats.runs,
        stats.names,
        stats.claims,
        stats.orphans,
    );
    assert_eq!(left, (0, 0, 0, 0, 0), "nothing is left");
}

fn configs() -> impl Strategy<Value = Config> {
    let orphans = prop_oneof![1 => Just(0_u32), 1 => Just(4), 3 => Just(1000)];
    let registered = prop_oneof![19 => Just(false), 1 => Just(true)];
    (1..3_u32, orphans, registered).prop_map(|(block_size, orphan_blocks, registered_only)| {
        Config {
            registered_only,
            orphan_blocks,
            ..config(block_size)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn test_index_agrees_with_the_model(
        config in configs(),
        filled in prop_oneof![2 => Just(false), 1 => Just(true)],
        ops in ops(),
    ) {
        run(config, filled, &ops);
    }
}

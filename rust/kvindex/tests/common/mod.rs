//! What the tests share: how to write events, and the model that they are
//! checked against.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod agree;
pub(crate) mod answer;
pub(crate) mod model;
pub(crate) mod ops;
mod parties;
pub(crate) mod play;
pub(crate) mod race;
mod rules;
pub(crate) mod said;
mod time;

use std::collections::BTreeMap;

use kvindex::event::Batch;
use kvindex::{Config, Found, Index, Moment, Options, Origin, Report, Row, Sender};

/// The weights that queries have unless told otherwise.
pub(crate) const WEIGHTS: kvindex::Weights = [1.0, 0.75, 0.25, 0.25, 0.5];

/// Options that ask about everybody.
pub(crate) const EVERYBODY: Options<'static> = Options {
    candidates: None,
    weights: WEIGHTS,
    cascade: false,
};

/// A usual configuration.
pub(crate) fn config(block_size: u32) -> Config {
    Config {
        block_size,
        registered_only: false,
        group_rules: false,
        orphan_blocks: 1000,
    }
}

/// Rank 0 of a worker, without numbers or epochs.
pub(crate) fn origin(worker: &str) -> Origin<'_> {
    Origin {
        sender: Sender::Worker(worker),
        rank: 0,
        source: "",
        seq: None,
        epoch: None,
        now: Moment::default(),
    }
}

/// Applies a batch of rank 0 of a worker.
pub(crate) fn apply(index: &Index, worker: &str, batch: Batch) -> Report {
    let prepared = index.prepare(batch, false).unwrap();
    index.apply(&prepared, &origin(worker)).unwrap()
}

/// A row's blocks by tier, in pools alone, and only predicted.
pub(crate) fn counts(row: &Row) -> [u32; 6] {
    let [device, host, disk, external] = row.tiers();
    let counts = [device, host, disk, external, row.shared(), row.predicted()];
    assert_eq!(row.depth(), counts.iter().sum::<u32>());
    counts
}

/// An answer's rows by worker and rank.
pub(crate) fn rows(found: &Found<'_>) -> BTreeMap<(String, u32), [u32; 6]> {
    let mut rows = BTreeMap::new();
    for row in found.rows {
        let (worker, rank) = found.names.get(row.holder).expect("a holder's name");
        assert!(row.depth() > 0, "a row without blocks");
        let before = rows.insert((worker.to_string(), rank), counts(row));
        assert_eq!(before, None, "one row a holder");
    }
    rows
}

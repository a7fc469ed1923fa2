//! The structure under churn and at depth: what comes and goes leaves nothing
//! behind, and chains may be as long as they like.

mod common;

use std::thread;

use common::said::{Said, batch, remove, store};
use common::{EVERYBODY, config, rows};
use kvindex::key::{BlockHasher, SEED, chain};
use kvindex::{Blocks, Index, Report, Stats, Walk};

/// Rounds of churn by default, and of the long tests.
const ROUNDS: u64 = 100_000;
const LONG: u64 = 1_000_000;
/// Rounds whose blocks are there at the same time.
const WINDOW: u64 = 16;
/// Blocks that stay.
const PREFIX: u64 = 200;
/// Blocks of the deep chains.
const DEEP: usize = 200_000;

fn index() -> Index {
    Index::new(config(1)).unwrap()
}

fn apply(index: &Index, worker: &str, events: impl IntoIterator<Item = Said>) -> Report {
    common::apply(index, worker, batch(events))
}

/// Blocks of one round, which no other round has: names and tokens.
fn fresh(round: u64, count: u64) -> (Vec<u64>, Vec<u32>) {
    let names = (0..count).map(|i| (round + 1) * 1000 + i);
    let tokens = (0..count).map(|i| ((round + 1) * 1000 + i) as u32);
    (names.collect(), tokens.collect())
}

/// An index with a prefix that stays, named 1 to [`PREFIX`].
fn with_prefix() -> Index {
    let index = index();
    let tokens: Vec<u32> = (1..=PREFIX as u32).collect();
    apply(&index, "stays", [store(1..=PREFIX, &tokens).into()]);
    index
}

/// Lets rounds come and go, at most [`WINDOW`] of them at a time, and checks
/// that after the last one there is no more than after the first ones.
fn churn(rounds: u64, come: impl Fn(&Index, u64), go: impl Fn(&Index, u64)) {
    let index = with_prefix();
    let mut first = Stats::default();
    for round in 0..rounds {
        come(&index, round);
        if let Some(old) = round.checked_sub(WINDOW) {
            go(&index, old);
        }
        if round + 1 == rounds / 20 {
            first = index.stats().unwrap();
        }
    }
    let last = index.stats().unwrap();
    let counts = |stats: &Stats| {
        let (runs, names) = (stats.runs, stats.names);
        (
            runs,
            names,
            stats.blocks,
            stats.claims,
            stats.holders,
            stats.workers,
            stats.orphans,
        )
    };
    assert_eq!(counts(&last), counts(&first));
    // The tables have a few hundred parts that grow alone, each to the most
    // that it ever had by chance.
    let most = |stats: &Stats| (stats.bytes + stats.reserve) * 11 / 10;
    assert!(
        last.bytes + last.reserve <= most(&first),
        "{first:?} {last:?}"
    );
    for old in rounds - WINDOW..rounds {
        go(&index, old);
    }
    let stats = index.stats().unwrap();
    let left = (stats.blocks, stats.claims, stats.names, stats.runs);
    assert_eq!(left, (PREFIX, PREFIX, PREFIX, 1));
}

/// Forks below every block of the prefix.
fn forks(rounds: u64) {
    let come = |index: &Index, round: u64| {
        let (names, tokens) = fresh(round, 1 + round % 8);
        let said = store(names, &tokens).below(1 + round % PREFIX);
        apply(index, "stays", [said.into()]);
    };
    let go = |index: &Index, round: u64| {
        let names = fresh(round, 1 + round % 8).0;
        let report = apply(index, "stays", [remove(names).into()]);
        assert_eq!(report.removed, 1 + round % 8);
    };
    churn(rounds, come, go);
}

/// Workers with names that were never seen before, which hold some of the
/// prefix and blocks of their own.
fn workers(rounds: u64) {
    let come = |index: &Index, round: u64| {
        let shared = 1 + round % PREFIX;
        let tokens: Vec<u32> = (1..=shared as u32).collect();
        let (names, own) = fresh(round, 5);
        let events = [
            store(1..=shared, &tokens).into(),
            store(names, &own).below(shared).on("CPU").into(),
            store([7_000_000_000 + round], &[7]).below(404).into(),
        ];
        apply(index, &format!("w{round}"), events);
    };
    let go = |index: &Index, round: u64| {
        assert!(index.remove_worker(&format!("w{round}")).unwrap());
    };
    churn(rounds, come, go);
}

/// Namespaces that were never seen before.
fn namespaces(rounds: u64) {
    let salt = |round: u64| &*Box::leak(format!("salt {round}").into_boxed_str());
    let salts: Vec<&'static str> = (0..rounds).map(salt).collect();
    let come = |index: &Index, round: u64| {
        let (names, tokens) = fresh(round, 3);
        let said = store(names, &tokens).salt(salts[round as usize]);
        apply(index, "stays", [said.into()]);
    };
    let go = |index: &Index, round: u64| {
        apply(index, "stays", [remove(fresh(round, 3).0).into()]);
    };
    churn(rounds, come, go);
}

/// Chains that lose their middle first and their ends later.
fn holes(rounds: u64) {
    let come = |index: &Index, round: u64| {
        let (names, tokens) = fresh(round, 40);
        let events = [
            store(names.iter().copied(), &tokens).into(),
            remove(names[10..30].iter().copied()).into(),
            store([names[15]], &tokens[15..16]).below(names[9]).into(),
        ];
        let report = apply(index, "stays", events);
        assert_eq!((report.stored, report.removed), (41, 20));
    };
    let go = |index: &Index, round: u64| {
        let names = fresh(round, 40).0;
        let ends = [
            remove(names[..10].iter().copied()).into(),
            remove(names[15..16].iter().copied()).into(),
            remove(names[30..].iter().copied()).into(),
        ];
        assert_eq!(apply(index, "stays", ends).removed, 21);
    };
    churn(rounds, come, go);
}

/// Clears by workers that stay, each in time for its next round.
fn clears(rounds: u64) {
    let worker = |round: u64| format!("w{}", round % (WINDOW + 1));
    let come = |index: &Index, round: u64| {
        let (names, tokens) = fresh(round, 6);
        let said = store(names, &tokens).below(1 + round % PREFIX);
        apply(index, &worker(round), [said.into()]);
    };
    let go = |index: &Index, round: u64| {
        assert_eq!(apply(index, &worker(round), [Said::Cleared]).cleared, 1);
    };
    churn(rounds, come, go);
}

#[test]
fn test_forks_that_come_and_go_leave_nothing_behind() {
    forks(ROUNDS);
}

#[test]
fn test_workers_that_come_and_go_leave_nothing_behind() {
    workers(ROUNDS);
}

#[test]
fn test_namespaces_that_come_and_go_leave_nothing_behind() {
    namespaces(ROUNDS);
}

#[test]
fn test_chains_removed_in_the_middle_leave_nothing_behind() {
    holes(ROUNDS);
}

#[test]
fn test_clears_leave_nothing_behind() {
    clears(ROUNDS);
}

#[test]
#[ignore = "takes a minute"]
fn test_a_million_rounds_leave_nothing_behind() {
    forks(LONG);
    workers(LONG);
    namespaces(LONG);
    holes(LONG);
    clears(LONG);
}

/// A chain of [`DEEP`] blocks named by their position, and its keys.
struct Deep {
    tokens: Vec<u32>,
    keys: Vec<u64>,
}

impl Deep {
    fn new() -> Self {
        let tokens: Vec<u32> = (0..DEEP as u32).collect();
        let mut hasher = BlockHasher::new(SEED);
        let mut last = None;
        let key = |token: &u32| {
            let key = chain(last, hasher.local(&[*token], &mut []));
            last = Some(key);
            key
        };
        let keys = tokens.iter().map(key).collect();
        Self { tokens, keys }
    }

    /// Stores the chain, that many blocks an event.
    fn stored(&self, blocks: usize) -> Index {
        let index = index();
        for start in (0..DEEP).step_by(blocks) {
            let end = (start + blocks).min(DEEP);
            let said = store((start..end).map(|i| 1 + i as u64), &self.tokens[start..end]);
            let said = match start {
                0 => said,
                start => said.below(start as u64),
            };
            assert_eq!(
                apply(&index, "w", [said.into()]).stored,
                (end - start) as u64
            );
        }
        index
    }

    fn depth(&self, index: &Index, walk: &mut Walk) -> u32 {
        let found = index.find(&Blocks::Chain(&self.keys), &EVERYBODY, walk);
        let found = rows(&found.unwrap());
        found.values().map(|tiers| tiers[0]).sum()
    }
}

#[test]
fn test_deep_chain_is_exact_at_every_step_of_its_removal() {
    let deep = Deep::new();
    let mut walk = Walk::default();
    for blocks in [1, DEEP] {
        let index = deep.stored(blocks);
        assert_eq!(deep.depth(&index, &mut walk), DEEP as u32);
        for left in (0..DEEP).rev() {
            apply(&index, "w", [remove([1 + left as u64]).into()]);
            if left % 64 == 0 || left > DEEP - 9000 {
                assert_eq!(deep.depth(&index, &mut walk), left as u32);
            }
        }
        let stats = index.stats().unwrap();
        assert_eq!((stats.blocks, stats.names, stats.runs), (0, 0, 0));
    }
}

#[test]
fn test_deep_chain_removed_from_its_root_goes_at_its_last_block() {
    let deep = Deep::new();
    let index = deep.stored(DEEP);
    let runs = index.stats().unwrap().runs;
    let mut walk = Walk::default();
    for first in 0..DEEP as u64 - 1 {
        apply(&index, "w", [remove([1 + first]).into()]);
    }
    assert_eq!(deep.depth(&index, &mut walk), 0);
    assert_eq!(index.blocks().unwrap(), 1);
    assert_eq!(
        index.stats().unwrap().runs,
        runs,
        "the way to the last block stays"
    );
    apply(&index, "w", [remove([DEEP as u64]).into()]);
    let stats = index.stats().unwrap();
    assert_eq!((stats.blocks, stats.names, stats.runs), (0, 0, 0));
}

#[test]
fn test_deep_chain_needs_no_deep_stack() {
    let deep = Deep::new();
    let work = move || {
        for blocks in [1, DEEP] {
            let index = deep.stored(blocks);
            assert_eq!(deep.depth(&index, &mut Walk::default()), DEEP as u32);
            drop(index);
        }
        let index = deep.stored(DEEP);
        assert!(index.remove_worker("w").unwrap());
        assert_eq!(index.blocks().unwrap(), 0);
    };
    let small = thread::Builder::new().stack_size(256 << 10);
    small.spawn(work).unwrap().join().unwrap();
}

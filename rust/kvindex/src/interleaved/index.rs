//! Queries while the index is written, through nothing but its public methods.
//!
//! A page holds two runs' records here, and what was freed last is reused first.

use std::sync::Arc;

use super::{explore, spawn};
use crate::event::{Batch, Event, GroupKind, Name, Remove, Store};
use crate::key::{BlockHasher, SEED, chain};
use crate::profile::{Kind, Profile};
use crate::{Blocks, Candidate, Config, Index, Moment, Options, Origin, Prepared, Sender, Walk};

const EVERYBODY: Options<'static> = Options {
    candidates: None,
    weights: [1.0, 0.75, 0.25, 0.25, 0.5],
    cascade: false,
};

const CONFIG: Config = Config {
    block_size: 1,
    registered_only: false,
    group_rules: true,
    orphan_blocks: 0,
};

fn index() -> Arc<Index> {
    Arc::new(Index::new(CONFIG).unwrap())
}

/// A batch of one event; every block's token is its name.
fn batch(names: &[u64], event: impl FnOnce(&Batch) -> Event) -> Prepared {
    let mut batch = Batch {
        names: names.iter().copied().map(Name::from_integer).collect(),
        tokens: names.iter().map(|name| *name as u32).collect(),
        ..Batch::default()
    };
    batch.events.push(event(&batch));
    Prepared::new(batch, &CONFIG, false).unwrap()
}

/// Stores blocks below a parent, 0 for none.
fn store(parent: u64, names: &[u64]) -> Prepared {
    store_of(None, parent, names)
}

/// The same, of a cache group's kind.
fn store_of(kind: Option<GroupKind>, parent: u64, names: &[u64]) -> Prepared {
    batch(names, |batch| {
        Event::Store(Store {
            names: 0..batch.names.len(),
            tokens: 0..batch.tokens.len(),
            locals: 0..0,
            pairs: false,
            parent: (parent > 0).then(|| Name::from_integer(parent)),
            block_size: None,
            lora: None,
            lora_id: None,
            salt: None,
            medium: None,
            remote: false,
            group: None,
            kind,
            images: 0..0,
            salts: 0..0,
            extra_keys: false,
        })
    })
}

/// Removes blocks.
fn remove(names: &[u64]) -> Prepared {
    batch(names, |batch| {
        Event::Remove(Remove {
            names: 0..batch.names.len(),
            medium: None,
            remote: false,
            group: None,
            kind: None,
        })
    })
}

/// Makes a worker known: a new one has every query that overlaps begin again,
/// which would hide what else it saw.
fn nothing() -> Prepared {
    remove(&[])
}

fn clear() -> Prepared {
    batch(&[], |_| Event::Clear)
}

fn apply(index: &Index, worker: &str, batch: &Prepared) {
    let origin = Origin {
        sender: Sender::Worker(worker),
        rank: 0,
        source: "",
        seq: None,
        epoch: None,
        now: Moment::default(),
    };
    index.apply(batch, &origin).unwrap();
}

/// The chain keys of the blocks of these names, one below the other.
fn keys(names: &[u64]) -> Vec<u64> {
    let mut hasher = BlockHasher::new(SEED);
    let mut last = None;
    let key = |name: &u64| {
        let key = chain(last, hasher.local(&[*name as u32], &mut []));
        last = Some(key);
        key
    };
    names.iter().map(key).collect()
}

/// Who holds how many of these blocks.
fn find(index: &Index, keys: &[u64]) -> Vec<(String, u32)> {
    let mut walk = Walk::default();
    let found = index.find(&Blocks::Chain(keys), &EVERYBODY, &mut walk);
    let found = found.unwrap();
    let name = |holder| found.names.get(holder).expect("a name").0.to_string();
    let rows = found.rows.iter();
    let mut rows: Vec<_> = rows.map(|row| (name(row.holder), row.depth())).collect();
    rows.sort();
    rows
}

/// A worker, and what it sends.
type Sent = (&'static str, fn() -> Prepared);

/// Tries what a query for some blocks finds while batches are applied. It has to
/// be one of a few answers, written as `worker depth, worker depth`.
fn race(
    preemptions: usize,
    before: &'static [Sent],
    batches: &'static [Sent],
    query: &'static [u64],
    answers: &'static [&'static str],
) {
    explore(preemptions, move || {
        let index = index();
        for (worker, batch) in before {
            apply(&index, worker, &batch());
        }
        let batches = batches.iter().map(|(worker, batch)| (worker, batch()));
        let batches: Vec<_> = batches.collect();
        let (read, keys) = (index.clone(), keys(query));
        loom::explore();
        let reader = spawn(move || check(&find(&read, &keys), answers));
        for (worker, batch) in &batches {
            apply(&index, worker, batch);
        }
        reader.join().unwrap();
    });
}

fn check(rows: &[(String, u32)], answers: &[&str]) {
    let texts: Vec<String> = rows
        .iter()
        .map(|(name, depth)| format!("{name} {depth}"))
        .collect();
    let text = texts.join(", ");
    assert!(
        answers.contains(&text.as_str()),
        "{text:?} is none of {answers:?}"
    );
}

#[test]
fn test_a_run_that_grows_is_seen_before_or_after() {
    race(
        1,
        &[("w", || store(0, &[1, 2]))],
        &[("w", || store(2, &[3]))],
        &[1, 2, 3],
        &["w 2", "w 3"],
    );
}

/// Another run gets the memory that the keys were in.
#[test]
fn test_keys_that_move_are_not_read_where_they_were() {
    race(
        0,
        &[
            ("w", || store(0, &[1, 2, 3, 4, 5, 6, 7, 8])),
            ("v", nothing),
        ],
        &[
            ("w", || remove(&[4, 5, 6, 7, 8])),
            ("v", || store(0, &[11, 12, 13, 14, 15, 16, 17, 18])),
        ],
        &[1, 2],
        &["w 2"],
    );
}

#[test]
fn test_a_run_that_shrinks_is_seen_before_or_after() {
    race(
        1,
        &[("v", || store(0, &[1])), ("w", || store(0, &[1, 2, 3]))],
        &[("w", || remove(&[3]))],
        &[1, 2, 3],
        &["v 1, w 3", "v 1, w 2"],
    );
}

#[test]
fn test_claims_that_come_and_go_hide_no_others() {
    race(
        1,
        &[("v", || store(0, &[1])), ("w", || store(0, &[1]))],
        &[("v", || remove(&[1]))],
        &[1],
        &["v 1, w 1", "w 1"],
    );
}

#[test]
fn test_claims_are_whole_while_they_leave_the_record() {
    race(
        1,
        &[
            ("a", || store(0, &[1])),
            ("b", || store(0, &[1])),
            ("c", || store(0, &[1])),
            ("d", nothing),
        ],
        &[("d", || store(0, &[1]))],
        &[1],
        &["a 1, b 1, c 1", "a 1, b 1, c 1, d 1"],
    );
}

#[test]
fn test_a_run_of_a_new_page_is_found_whole_or_not_at_all() {
    race(
        1,
        &[
            ("v", || store(0, &[9])),
            ("v", || store(0, &[8])),
            ("w", nothing),
        ],
        &[("w", || store(0, &[1, 2]))],
        &[1, 2],
        &["", "w 2"],
    );
}

#[test]
fn test_a_run_that_was_freed_is_not_taken_for_its_successor() {
    race(
        0,
        &[("v", || store(0, &[1])), ("w", || store(0, &[9]))],
        &[("v", || remove(&[1])), ("w", || store(0, &[5]))],
        &[1],
        &["v 1", ""],
    );
}

#[test]
fn test_a_successor_is_not_taken_for_the_run_that_was_freed() {
    race(
        1,
        &[("v", || store(0, &[1])), ("w", || store(0, &[9]))],
        &[("v", || remove(&[1])), ("w", || store(0, &[5]))],
        &[5],
        &["", "w 1"],
    );
}

/// A member's number is free once a sweep has dropped its claims.
#[test]
fn test_claims_are_not_taken_for_those_of_who_has_the_number_next() {
    race(
        1,
        &[
            ("v", || store(0, &[1])),
            ("u", || store(0, &[9])),
            ("w", nothing),
        ],
        &[("v", clear), ("w", || store(0, &[9]))],
        &[1],
        &["v 1", ""],
    );
}

/// The same for a holder that leaves and one that comes.
#[test]
fn test_a_holder_is_not_called_as_who_has_the_number_next() {
    explore(1, || {
        let index = index();
        index.register("w", Profile::new(Kind::Auto)).unwrap();
        apply(&index, "v", &store(0, &[1]));
        let (read, keys, nothing) = (index.clone(), keys(&[1]), nothing());
        loom::explore();
        let reader = spawn(move || check(&find(&read, &keys), &["v 1", ""]));
        index.remove_worker("v").unwrap();
        apply(&index, "w", &nothing);
        reader.join().unwrap();
    });
}

/// The main cache group does not count alone while its holder is reset.
#[test]
fn test_a_reset_does_not_uncover_what_a_cache_group_lacks() {
    explore(1, || {
        let index = index();
        apply(&index, "v", &store(0, &[1, 2]));
        apply(&index, "v", &store_of(Some(GroupKind::State), 0, &[1]));
        let (read, keys) = (index.clone(), keys(&[1, 2]));
        loom::explore();
        let reader = spawn(move || check(&find(&read, &keys), &["v 1", ""]));
        index.reset("v", 0).unwrap();
        reader.join().unwrap();
    });
}

/// The same for a query that asks about the holder that leaves, and knows its
/// number from before.
#[test]
fn test_a_candidate_is_not_given_what_who_has_its_number_next_holds() {
    explore(0, || {
        let index = index();
        apply(&index, "v", &nothing());
        let candidates = [Candidate {
            worker: "v".into(),
            rank: None,
        }];
        let mut walk = Walk::default();
        let keys = keys(&[5]);
        let depth = move |index: &Index, walk: &mut Walk| {
            let options = Options {
                candidates: Some(&candidates),
                ..EVERYBODY
            };
            let found = index.find(&Blocks::Chain(&keys), &options, walk);
            found.unwrap().rows[0].depth()
        };
        depth(&index, &mut walk);
        let (read, stored) = (index.clone(), store(0, &[5]));
        loom::explore();
        let reader = spawn(move || assert_eq!(depth(&read, &mut walk), 0));
        index.remove_worker("v").unwrap();
        apply(&index, "w", &stored);
        reader.join().unwrap();
    });
}

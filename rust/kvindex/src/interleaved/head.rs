//! The head table: a key that stays is found while others come and go beside it.

use std::sync::Arc;

use super::{explore, spawn};
use crate::arena::{Allocator, Arena, class_for, class_words};
use crate::head::Heads;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Keys of one shard whose home is the first slot, whatever the shard's size.
const STAYS: u64 = 1;
const COMES: u64 = 2;
const WAS: u64 = 3;

#[derive(Default)]
struct Table {
    arena: Arena,
    heads: Heads,
    process: AtomicU64,
}

impl Table {
    fn find(&self, key: u64) -> Option<u32> {
        let found = self.heads.find(&self.arena, key, &self.process);
        found.expect("one process")
    }
}

/// A table of some keys, each with a run of the same number.
fn table(keys: &[u64]) -> (Arc<Table>, Allocator) {
    let (table, mut free) = (Table::default(), Allocator::default());
    for &key in keys {
        table.heads.insert(&table.arena, &mut free, key, key as u32);
    }
    (Arc::new(table), free)
}

#[test]
fn test_a_key_is_found_while_its_shard_grows_and_its_memory_is_reused() {
    explore(3, || {
        let (table, mut free) = table(&[STAYS]);
        let read = table.clone();
        loom::explore();
        let reader = spawn(move || {
            assert_eq!(read.find(STAYS), Some(STAYS as u32));
        });
        table
            .heads
            .insert(&table.arena, &mut free, COMES, COMES as u32);
        let class = class_for(4);
        let block = free.allocate(&table.arena, class);
        // What a reader with an old address would take for the key, elsewhere.
        for word in table.arena.words(block, class_words(class)) {
            word.store(STAYS, Relaxed);
        }
        reader.join().unwrap();
    });
}

#[test]
fn test_a_key_is_found_while_it_moves_to_close_a_gap() {
    explore(3, || {
        let (table, mut free) = table(&[WAS, STAYS]);
        let read = table.clone();
        loom::explore();
        let reader = spawn(move || {
            assert_eq!(read.find(STAYS), Some(STAYS as u32));
        });
        table.heads.remove(&table.arena, WAS);
        table
            .heads
            .insert(&table.arena, &mut free, COMES, COMES as u32);
        reader.join().unwrap();
    });
}

#[test]
fn test_a_key_that_comes_or_goes_is_found_with_its_own_run_or_not_at_all() {
    explore(3, || {
        let (table, mut free) = table(&[WAS]);
        let read = table.clone();
        loom::explore();
        let reader = spawn(move || {
            for key in [COMES, WAS] {
                let found = read.find(key);
                assert!(found.is_none_or(|run| u64::from(run) == key), "{found:?}");
            }
        });
        table.heads.remove(&table.arena, WAS);
        table
            .heads
            .insert(&table.arena, &mut free, COMES, COMES as u32);
        reader.join().unwrap();
    });
}

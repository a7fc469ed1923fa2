//! A sequence lock: what is read between two looks at a version is of one state.

use std::sync::Arc;

use super::{explore, spawn};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::version::{self, Patience};

/// Two words that are always written together.
struct Pair {
    version: AtomicU64,
    words: [AtomicU64; 2],
    process: AtomicU64,
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            version: AtomicU64::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            process: AtomicU64::new(0),
        })
    }

    fn write(&self, value: u64) {
        version::begin(&self.version);
        for word in &self.words {
            word.store(value, Relaxed);
        }
        version::end(&self.version);
    }

    /// The words and how many writes there had been, if none was going on.
    fn read(&self) -> Option<(u64, [u64; 2])> {
        let before = version::current(&self.version)?;
        let words = self.words.each_ref().map(|word| word.load(Relaxed));
        version::unchanged(&self.version, before).then_some((before / 2, words))
    }

    /// The same, waiting for the writer.
    fn wait(&self) -> (u64, [u64; 2]) {
        let mut patience = Patience::default();
        loop {
            if let Some(found) = self.read() {
                return found;
            }
            patience.wait(&self.process).expect("one process");
        }
    }
}

#[test]
fn test_a_reader_sees_the_words_of_one_write() {
    explore(3, || {
        let pair = Pair::new();
        let read = pair.clone();
        loom::explore();
        let reader = spawn(move || {
            if let Some((writes, words)) = read.read() {
                assert_eq!(words, [writes; 2]);
            }
        });
        pair.write(1);
        pair.write(2);
        reader.join().unwrap();
    });
}

#[test]
fn test_readers_wait_for_a_write_and_never_go_back() {
    explore(3, || {
        let pair = Pair::new();
        let wait = |pair: Arc<Pair>| {
            move || {
                let (first, words) = pair.wait();
                assert_eq!(words, [first; 2]);
                let (second, words) = pair.wait();
                assert_eq!(words, [second; 2]);
                assert!(second >= first);
            }
        };
        let wait = wait(pair.clone());
        loom::explore();
        let reader = spawn(wait);
        pair.write(1);
        pair.write(2);
        reader.join().unwrap();
    });
}

#[test]
fn test_two_readers_see_whole_writes() {
    explore(3, || {
        let pair = Pair::new();
        let readers = [pair.clone(), pair.clone()];
        loom::explore();
        let readers = readers.map(|pair| {
            spawn(move || {
                if let Some((writes, words)) = pair.read() {
                    assert_eq!(words, [writes; 2]);
                }
            })
        });
        pair.write(1);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

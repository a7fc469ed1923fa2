//! What must hold for any bytes at all. The targets in `fuzz_targets` and the
//! test that replays the corpora call these.

#[path = "../../rust/kvindex/tests/common/mod.rs"]
mod common;
pub mod memory;

use std::sync::LazyLock;
use std::{env, fs};

use kvindex::event::{Event, Store};
use kvindex::{Index, Origin};

use common::agree::Both;
use common::ops::bytes::{Bytes, config, ops};
use common::ops::{profile, sender};
use common::{config as usual, origin, play};

/// What decoding and preparing a payload may take: so many bytes, and so many
/// for each of the payload's. An event takes one byte at least and becomes 160,
/// of which there are three times as many while their list grows.
const FIXED: usize = 4 << 10;
const A_BYTE: usize = 512;

/// Payloads that the model, which compares everything with everything, is done
/// with in a moment.
const SHORT: usize = 2048;

/// Decodes a payload and prepares it for several block sizes: neither panics nor
/// takes more memory than a multiple of the payload.
///
/// # Panics
///
/// If it did take more.
pub fn decode(payload: &[u8]) {
    static INDEXES: LazyLock<[Index; 3]> =
        LazyLock::new(|| [1, 4, 16].map(|size| Index::new(usual(size)).unwrap()));
    for (number, index) in INDEXES.iter().enumerate() {
        let peak = memory::peak(|| {
            if let Ok(batch) = kvindex::decode::decode(payload) {
                drop(index.prepare(batch, number == 2));
            }
        });
        let most = FIXED + A_BYTE * payload.len();
        assert!(peak <= most, "{peak} bytes for {}", payload.len());
    }
}

/// Applies a payload as that of two workers to an index and to the model of it:
/// both report and hold the same. The first byte chooses how it is read.
pub fn wire(input: &[u8]) {
    let Some((&choice, payload)) = input.split_first() else {
        return;
    };
    let batch = kvindex::decode::decode(payload);
    let Some(batch) = batch.ok().filter(|_| payload.len() <= SHORT) else {
        return;
    };
    // The model knows blocks by their tokens.
    if !batch.locals.is_empty() {
        return;
    }
    let block_size = u32::from(choice % 4) + 1;
    // Nor does it know pages smaller than a block.
    let is_page = |store: &Store| {
        let size = store.block_size.unwrap_or(0);
        (1..u64::from(block_size)).contains(&size)
    };
    let paged = |event: &Event| matches!(event, Event::Store(store) if is_page(store));
    if batch.events.iter().any(paged) {
        return;
    }
    let mut both = Both::new(usual(block_size));
    for (number, kind) in [choice / 4 % 7, choice / 28 % 7].into_iter().enumerate() {
        both.register(sender(number), profile(kind.into(), block_size));
    }
    for number in [0, 1, 0] {
        let origin = Origin {
            sender: sender(number),
            ..origin("")
        };
        both.apply(batch.clone(), &origin);
        both.check(false);
    }
    both.check(true);
    both.check_totals(0);
    for number in [1, 0] {
        both.remove(sender(number));
        both.check(false);
    }
    both.check_totals(0);
}

/// Does operations to an index and to the model of it and compares the answers
/// after each.
pub fn operations(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let (config, filled) = config(&mut bytes);
    play::run(config, filled, &ops(&mut bytes));
}

/// Runs a target once for each file that the command line names.
///
/// # Panics
///
/// If a file cannot be read.
pub fn replay(target: fn(&[u8])) {
    for name in env::args().skip(1) {
        println!("{name}");
        target(&fs::read(&name).unwrap());
    }
}

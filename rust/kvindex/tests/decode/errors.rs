//! Payloads that are no batch, and where they stop being one.

use std::time::{Duration, Instant};

use kvindex::decode::decode;
use kvindex::event::Event;

use crate::wire::{NIL, Wire, array, map};

fn error(payload: &[u8]) -> (usize, String) {
    let error = decode(payload).expect_err("no batch");
    (error.offset.expect("an offset"), error.message)
}

#[test]
fn test_message_names_what_was_expected_and_what_came() {
    for (payload, offset, message) in [
        (
            Vec::new(),
            0,
            "expected a whole value, found the end of the payload",
        ),
        (
            vec![0xc1],
            0,
            "expected a value, found the unused byte 0xc1",
        ),
        (
            map! {"ts": 1}.bytes(),
            0,
            "expected a batch [timestamp, events, rank], found a map",
        ),
        (
            NIL.bytes(),
            0,
            "expected a batch [timestamp, events, rank], found nil",
        ),
        (
            array![1].bytes(),
            0,
            "expected at least 2 items in a batch, found fewer",
        ),
        (
            array![1, NIL].bytes(),
            2,
            "expected an array of events, found nil",
        ),
        (
            array![1, map! {}, 0].bytes(),
            2,
            "expected an array of events, found a map",
        ),
        (
            [array![1, array![]].bytes(), vec![0]].concat(),
            3,
            "expected the end of the payload, found more bytes",
        ),
        (
            array![1, array![array!["AllBlocksCleared", Wire::Raw(vec![0xc1])]]].bytes(),
            21,
            "expected a value, found the unused byte 0xc1",
        ),
        (
            array![
                1,
                array![array!["BlockRemoved", "bad", Wire::Raw(vec![0xd9, 9, 1])]]
            ]
            .bytes(),
            21,
            "expected a whole value, found the end of the payload",
        ),
    ] {
        assert_eq!(error(&payload), (offset, message.to_owned()));
    }
}

#[test]
fn test_declared_lengths_are_not_believed() {
    let huge = |tag| Wire::Raw(vec![tag, 0xff, 0xff, 0xff, 0xff]);
    for tag in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
        for payload in [
            huge(tag),
            array![1, huge(tag)],
            array![1, array![huge(tag)]],
            array![1, array![array!["BlockStored", huge(tag)]]],
            array![1, array![array!["BlockStored", array![], NIL, huge(tag)]]],
            array![
                1,
                array![array![
                    "BlockStored",
                    array![],
                    NIL,
                    NIL,
                    NIL,
                    NIL,
                    NIL,
                    NIL,
                    huge(tag)
                ]]
            ],
            array![
                1,
                array![map! {"type": "BlockStored", "unknown": huge(tag)}]
            ],
        ] {
            error(&payload.bytes());
        }
    }
}

#[test]
fn test_nesting_of_any_depth_is_passed_over() {
    let depth = 1_000_000;
    let mut deep = vec![0x91; depth];
    deep.push(0xc0);
    let deep = Wire::Raw(deep);
    let event = map! {"unknown": deep.clone(), "type": "AllBlocksCleared"};
    let payload = array![deep.clone(), array![deep.clone(), event], deep];
    let batch = decode(&payload.bytes()).expect("a batch");
    assert!(matches!(
        batch.events[..],
        [Event::Fault { .. }, Event::Clear]
    ));

    let start = Instant::now();
    error(&vec![0x91; depth]);
    error(&vec![0x81; depth]);
    error(&[vec![0x92, 0xc0], [0xdc, 0x00, 0x01].repeat(depth)].concat());
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn test_memory_is_bounded_by_the_payload() {
    let events = vec![NIL; 100_000];
    let payload = array![1, events].bytes();
    let batch = decode(&payload).expect("a batch");
    assert_eq!(batch.events.len(), 100_000);
    assert!(batch.events.capacity() < 4 * payload.len());

    let tokens = vec![Wire::from(1); 100_000];
    let payload = array![1, array![array!["BlockStored", array![], NIL, tokens]]].bytes();
    let batch = decode(&payload).expect("a batch");
    assert!(batch.tokens.capacity() < 4 * payload.len());
}

#[test]
fn test_many_salts_take_linear_time() {
    let count = 50_000;
    let hashes: Vec<i128> = (0..count).collect();
    let salts: Vec<Wire> = (0..count)
        .map(|salt| array![&*format!("{salt:06}")])
        .collect();
    let event = map! {"type": "BlockStored", "block_hashes": hashes, "extra_keys": salts};
    let payload = array![1, array![event]].bytes();
    let start = Instant::now();
    let batch = decode(&payload).expect("a batch");
    assert_eq!(batch.salts.len(), 50_000);
    assert!(start.elapsed() < Duration::from_secs(2));
}

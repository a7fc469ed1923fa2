//! Hashes and tokens are the same in every encoding.

use kvindex::event::{Event, Name};

use crate::wire::{NIL, Wire, array, encodings};
use crate::{integers, read};

#[test]
fn test_hashes_of_every_kind_and_encoding() {
    let small = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 1 << 32, u64::MAX];
    let unsigned = small.map(|value| (i128::from(value), value));
    let negative = [-1, -33, -129, -70_000, i64::MIN];
    let signed = negative.map(|value| (i128::from(value), value.cast_unsigned()));
    for (value, name) in unsigned.into_iter().chain(signed) {
        let expected = integers(&[name]);
        for encoding in encodings(value) {
            let batch = read(vec![array!["BlockRemoved", vec![encoding.clone()]]]);
            assert_eq!(batch.names, expected, "{encoding:?}");
        }
    }
    let digest: Vec<u8> = (0..32).collect();
    let batch = read(vec![array![
        "BlockRemoved",
        array![digest.as_slice(), b"0123456789".as_slice(), b"".as_slice()]
    ]]);
    let expected = [&digest[..], b"0123456789", b""].map(Name::from_bytes);
    assert_eq!(batch.names, expected);
}

#[test]
fn test_tokens_of_every_encoding_at_every_position() {
    let values = [0, 127, 128, 255, 256, 65_535, 65_536, u32::MAX];
    for value in values {
        for encoding in encodings(value.into()) {
            for (count, at) in (1..26).flat_map(|count| (0..count).map(move |at| (count, at))) {
                let mut tokens: Vec<Wire> = vec![0x1234.into(); count];
                tokens[at] = encoding.clone();
                let batch = read(vec![array!["BlockStored", array![], NIL, tokens]]);
                let mut expected = vec![0x1234; count];
                expected[at] = value;
                assert_eq!(batch.tokens, expected, "{encoding:?}");
            }
        }
    }
}

#[test]
fn test_pairs_keep_the_first_tokens_and_the_last_second() {
    let longer = Wire::Raw(vec![0xdc, 0, 2, 1, 2]);
    let longest = Wire::Raw(vec![0xdd, 0, 0, 0, 2, 70, 71]);
    let pairs = array![longer, array![2, 70_000], array![70_000, 4]];
    let batch = read(vec![
        array!["BlockStored", array![9], NIL, array![5, 6], 2],
        array!["BlockStored", array![7], NIL, pairs, 3],
    ]);
    let Event::Store(store) = &batch.events[1] else {
        panic!("expected a store");
    };
    assert!(store.pairs);
    assert_eq!(batch.tokens[store.tokens.clone()], [1, 2, 70_000, 4]);

    let batch = read(vec![array![
        "BlockStored",
        array![7],
        NIL,
        array![longest],
        1
    ]]);
    assert_eq!(batch.tokens, [70, 71]);
}

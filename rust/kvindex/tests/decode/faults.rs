//! A faulty event costs only itself.

use kvindex::event::{Event, Reason};

use crate::wire::{NIL, Wire, array, map, range};
use crate::{integers, read};

/// Reads the event between two good ones, which must be as if it were not there.
fn fault(event: &Wire) -> (Reason, u64) {
    let good = |hash: i128| {
        array![
            "BlockStored",
            array![hash],
            NIL,
            range(hash, 4),
            4,
            NIL,
            "GPU"
        ]
    };
    let batch = read(vec![good(1), event.clone(), good(2)]);
    assert_eq!(batch.names, integers(&[1, 2]), "{event:?}");
    assert_eq!(batch.tokens, [1, 2, 3, 4, 2, 3, 4, 5], "{event:?}");
    assert_eq!(batch.texts, ["GPU".into()], "{event:?}");
    assert!(batch.images.is_empty() && batch.salts.is_empty());
    assert!(matches!(batch.events[0], Event::Store(_)), "{event:?}");
    assert!(matches!(batch.events[2], Event::Store(_)), "{event:?}");
    match batch.events[1] {
        Event::Fault { reason, hashes } => (reason, hashes),
        ref other => panic!("expected a fault, found {other:?} for {event:?}"),
    }
}

#[test]
fn test_events_of_unknown_type() {
    for event in [
        array!["BlockMoved", array![1], 2],
        array![""],
        array!["blockstored", array![1]],
        map! {"block_hashes": 5, "type": "BlockMoved"},
        map! {"type": "BlockMoved", "block_hashes": array![Wire::Float(0.5)]},
    ] {
        assert_eq!(fault(&event), (Reason::UnknownType, 1), "{event:?}");
    }
}

#[test]
fn test_events_that_are_none() {
    for event in [
        NIL,
        5.into(),
        "BlockStored".into(),
        Wire::Float(1.0),
        Wire::Bool(true),
        array![],
        array![NIL, array![1]],
        array![5, array![1]],
        array![b"BlockStored".as_slice(), array![1]],
        map! {},
        map! {"block_hashes": array![1]},
        map! {"type": NIL, "block_hashes": array![1]},
        map! {"type": array!["BlockStored"], "block_hashes": array![1]},
    ] {
        assert_eq!(fault(&event), (Reason::Malformed, 1), "{event:?}");
    }
}

#[test]
fn test_extensions_are_passed_over() {
    let fixed = (0..5).map(|power| (vec![0xd4 + power], 1 << power));
    let counted = [
        (vec![0xc7, 3], 3),
        (vec![0xc8, 1, 0], 256),
        (vec![0xc9, 0, 1, 0, 0], 65_536),
    ];
    for (mut bytes, length) in fixed.chain(counted) {
        // One byte for the type, and then contents that would end the batch.
        bytes.resize(bytes.len() + 1 + length, 0xc1);
        let extension = Wire::Raw(bytes);
        assert_eq!(fault(&extension), (Reason::Malformed, 1));
        assert_eq!(fault(&array![1, vec![extension]]), (Reason::Malformed, 1));
    }
}

#[test]
fn test_hashes_are_required() {
    for event in [
        array!["BlockStored"],
        array!["BlockRemoved"],
        array!["BlockStored", NIL],
        map! {"type": "BlockStored", "token_ids": array![1, 2]},
        map! {"type": "BlockRemoved", "medium": "another"},
    ] {
        assert_eq!(fault(&event), (Reason::Malformed, 1), "{event:?}");
    }
}

fn float() -> Wire {
    Wire::Float(1.0)
}

fn nested() -> Wire {
    array![1, array![map! {"a": array![2]}], 3]
}

/// Each value in the named field of a store that is good otherwise.
fn check_field(name: &str, values: Vec<Wire>) {
    for value in values {
        let event = Wire::Map(vec![
            ("lora_name".into(), "dropped with the event".into()),
            ("token_ids".into(), array![1, 2, 3]),
            ("block_hashes".into(), array![8, 9]),
            (name.into(), value),
            ("type".into(), "BlockStored".into()),
            ("token_ids".into(), array![1, 2, 3]),
        ]);
        assert_eq!(fault(&event), (Reason::Malformed, 1), "{event:?}");
    }
}

#[test]
fn test_hashes_of_wrong_type() {
    check_field(
        "block_hashes",
        vec![
            5.into(),
            "text".into(),
            map! {},
            array![NIL],
            array![1, float()],
            array![1, Wire::Bool(false)],
            array![1, array![2]],
            nested(),
        ],
    );
    let parents = vec![float(), Wire::Bool(true), array![1], map! {}];
    check_field("parent_block_hash", parents);
}

#[test]
fn test_tokens_of_wrong_type_or_range() {
    check_field(
        "token_ids",
        vec![
            5.into(),
            "text".into(),
            array![-1],
            array![1, 1_i128 << 32],
            array![(1_i128 << 64) - 1],
            array![1, float()],
            array![1, NIL],
            array![1, "2"],
            array![1, array![1, 2]],
            array![array![1, 2], 3],
            array![array![1, 2], array![3, 4]],
            array![array![1, 2, 3]],
            array![array![1]],
            array![array![1, NIL]],
            nested(),
        ],
    );
}

#[test]
fn test_numbers_of_wrong_type_or_range() {
    let size = vec![
        (-1).into(),
        float(),
        "4".into(),
        array![4],
        Wire::Bool(true),
    ];
    check_field("block_size", size);
    let adapter = vec![float(), "4".into(), (1 << 63).into(), nested()];
    check_field("lora_id", adapter);
    let group = vec![(-1).into(), (1 << 32).into(), float(), "0".into(), nested()];
    check_field("group_idx", group);
    let window = vec![
        (-1).into(),
        float(),
        "128".into(),
        nested(),
        Wire::Bool(true),
    ];
    check_field("kv_cache_spec_sliding_window", window);
}

#[test]
fn test_strings_of_wrong_type() {
    let bytes = || Wire::from(b"GPU".as_slice());
    let no_utf8 = || Wire::Text(vec![b'a', 0xff]);
    for name in [
        "medium",
        "lora_name",
        "cache_salt",
        "kv_cache_spec_kind",
        "locality",
    ] {
        let values = vec![
            1.into(),
            Wire::Bool(true),
            bytes(),
            no_utf8(),
            nested(),
            map! {},
        ];
        check_field(name, values);
    }
}

#[test]
fn test_positional_fields_of_wrong_type() {
    let full = || {
        vec![
            Wire::from("BlockStored"),
            array![8],
            7.into(),
            array![1],
            1.into(),
            NIL,
            "another".into(),
            "sql".into(),
            NIL,
            0.into(),
            "mamba".into(),
            NIL,
        ]
    };
    // Nobody looks at the window, and extra keys have a reason of their own.
    for at in (1..12).filter(|at| ![8, 11].contains(at)) {
        let mut items = full();
        items[at] = Wire::Bool(true);
        let event = Wire::Array(items);
        assert_eq!(fault(&event), (Reason::Malformed, 1), "{event:?}");
    }
    let mut items = full();
    items[7] = map! {"other": 1, "cache_salt": 2};
    assert_eq!(fault(&Wire::Array(items)), (Reason::Malformed, 1));
}

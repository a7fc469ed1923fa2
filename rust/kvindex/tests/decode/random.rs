//! Any bytes are read or refused: no panic, no half, no memory without bound.

use std::sync::LazyLock;

use kvindex::decode::decode;
use kvindex::event::{Batch, Event, Name};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::wire::{NIL, Wire, array, encodings, map, range};
use crate::{integers, streams};

/// A payload with one event of every kind and field.
fn rich() -> Vec<u8> {
    let extra = || {
        array![
            array!["sql", array!["image", -4]],
            array!["salt", b"embeds".as_slice()]
        ]
    };
    let digest: Vec<u8> = (0..32).collect();
    array![
        Wire::Float(1.5),
        array![
            array![
                "BlockStored",
                array![7, -8],
                6,
                range(65_500, 64),
                32,
                1,
                "GPU",
                "sql",
                extra(),
                0,
                "mamba",
                NIL,
                "LOCAL"
            ],
            array!["BlockRemoved", array![digest.as_slice(), "name"], "CPU", 0],
            array!["AllBlocksCleared"],
            array![
                "BlockStored",
                array![1],
                NIL,
                array![array![1, 2], array![2, 300]],
                2,
                NIL,
                NIL,
                map! {"cache_salt": "tenant"}
            ],
            map! {
                "type": "BlockStored", "block_hashes": array![7, 8], "parent_block_hash": NIL,
                "token_ids": range(100, 32), "block_size": 16, "extra_keys": extra(),
                "unknown": map! {"deep": array![array![1], Wire::Bool(true)]},
            },
            array!["BlockStored", array![NIL]],
            array!["Unknown", 1],
        ],
        5,
    ]
    .bytes()
}

static REAL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut payloads = vec![rich()];
    for stream in [
        "vllm/e_lora_salt_mm.jsonl",
        "vllm/h_vllm_0.22.1_offload.jsonl",
        "vllm/d1_offload_placeholder.jsonl",
        "sglang/gpu_eagle_bigram.jsonl",
        "sglang/old_v0.5.19_radix_ps4.jsonl",
    ] {
        payloads.extend(streams::payloads(stream).into_iter().take(3));
    }
    payloads
});

/// Decodes, and checks what holds for every batch that comes out.
fn survive(payload: &[u8]) {
    let Ok(batch) = decode(payload) else { return };
    let bound = 2 * payload.len() + 64;
    assert!(batch.events.capacity() <= bound);
    assert!(batch.names.capacity() <= bound);
    assert!(batch.tokens.capacity() <= bound);
    assert!(batch.images.capacity() <= bound);
    assert!(batch.salts.capacity() <= bound);
    assert!(batch.texts.iter().map(|text| text.len()).sum::<usize>() <= payload.len());
    for event in &batch.events {
        check_event(&batch, event);
    }
}

fn check_event(batch: &Batch, event: &Event) {
    let Event::Store(store) = event else { return };
    let hashes = batch.names[store.names.clone()].len();
    let tokens = batch.tokens[store.tokens.clone()].len();
    assert!(!store.pairs || tokens >= 2);
    let images = &batch.images[store.images.clone()];
    assert!(images.is_sorted_by_key(|image| image.block));
    assert!(images.iter().all(|image| (image.block as usize) < hashes));
    let salts = store.salts(batch);
    assert!(salts.is_sorted_by(|left, right| left.block < right.block));
    let texts = [store.lora, store.salt, store.medium].into_iter().flatten();
    for text in texts.chain(salts.iter().map(|salt| salt.text)) {
        assert!(!batch.texts[text as usize].is_empty());
    }
}

#[test]
fn test_every_prefix_of_a_payload_is_an_error() {
    for payload in REAL.iter() {
        decode(payload).expect("the whole payload");
        for end in 0..payload.len() {
            let error = decode(&payload[..end]).expect_err("a part of a payload");
            assert!(error.offset.is_some_and(|offset| offset <= end), "{error}");
        }
    }
}

#[test]
fn test_every_changed_byte_is_survived() {
    let mut payload = rich();
    for at in 0..payload.len() {
        let byte = payload[at];
        for changed in 0..=u8::MAX {
            payload[at] = changed;
            survive(&payload);
        }
        payload[at] = byte;
    }
}

fn value(integer: impl Into<i128>) -> impl Strategy<Value = Wire> {
    let forms = encodings(integer.into());
    (0..forms.len()).prop_map(move |form| forms[form].clone())
}

fn token() -> impl Strategy<Value = (u32, Wire)> {
    let tokens = prop_oneof![0..300_u32, 0..70_000_u32, any::<u32>()];
    tokens.prop_flat_map(|token| {
        (
            Just(token),
            prop_oneof![Just(token.into_wire()), value(token)],
        )
    })
}

trait IntoWire {
    fn into_wire(self) -> Wire;
}

impl IntoWire for u32 {
    fn into_wire(self) -> Wire {
        Wire::Integer(self.into())
    }
}

fn hash() -> impl Strategy<Value = (Name, Wire)> {
    prop_oneof![
        any::<u64>().prop_map(|hash| (Name::from_integer(hash), Wire::Integer(hash.into()))),
        any::<i64>().prop_map(|hash| {
            (
                Name::from_integer(hash.cast_unsigned()),
                Wire::Integer(hash.into()),
            )
        }),
        vec(any::<u8>(), 0..300).prop_map(|hash| (Name::from_bytes(&hash), Wire::Bytes(hash))),
    ]
}

proptest! {
    #[test]
    fn test_random_bytes_are_survived(payload in vec(any::<u8>(), 0..300)) {
        survive(&payload);
    }

    #[test]
    fn test_random_bytes_as_events_are_survived(bytes in vec(any::<u8>(), 0..300)) {
        survive(&[b"\x92\xc0".as_slice(), &bytes].concat());
        survive(&[b"\x92\xc0\x91\x97\xabBlockStored".as_slice(), &bytes].concat());
    }

    #[test]
    fn test_flipped_bits_are_survived(
        which in any::<prop::sample::Index>(),
        flips in vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let mut payload = which.get(&REAL).clone();
        for flip in flips {
            let bit = flip.index(payload.len() * 8);
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        survive(&payload);
    }

    #[test]
    fn test_what_is_written_is_read(
        hashes in vec(hash(), 0..40),
        tokens in vec(token(), 0..100),
        parent in proptest::option::of(hash()),
        order in Just([0, 1, 2, 3, 4]).prop_shuffle(),
    ) {
        let (names, hashes): (Vec<_>, Vec<_>) = hashes.into_iter().unzip();
        let (tokens, token_ids): (Vec<_>, Vec<_>) = tokens.into_iter().unzip();
        let (parent, parent_hash) = parent.unzip();
        let fields: [(Wire, Wire); 5] = [
            ("type".into(), "BlockStored".into()),
            ("block_hashes".into(), Wire::Array(hashes)),
            ("token_ids".into(), Wire::Array(token_ids)),
            ("parent_block_hash".into(), parent_hash.unwrap_or(NIL)),
            ("unknown".into(), array![1, map! {"a": "b"}]),
        ];
        let event = Wire::Map(order.map(|at| fields[at].clone()).to_vec());
        let after = array!["BlockRemoved", array![5]];
        let payload = array![NIL, vec![event, after]].bytes();
        survive(&payload);
        let batch = decode(&payload).expect("a batch");
        let Event::Store(store) = &batch.events[0] else {
            panic!("expected a store, found {:?}", batch.events[0]);
        };
        prop_assert_eq!(&batch.names[store.names.clone()], names);
        prop_assert_eq!(&batch.tokens[store.tokens.clone()], tokens);
        prop_assert_eq!(store.parent, parent);
        let Event::Remove(remove) = &batch.events[1] else {
            panic!("expected a removal, found {:?}", batch.events[1]);
        };
        prop_assert_eq!(&batch.names[remove.names.clone()], integers(&[5]));
    }
}

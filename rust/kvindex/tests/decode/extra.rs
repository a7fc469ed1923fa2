//! Adapter, salt and images are told apart among extra keys.

use kvindex::decode::{ExtraKey, Identifier, SaltRule, classify_block};
use kvindex::event::{Batch, Event, Image, Reason};
use kvindex::key::{hash_bytes, image_hash};

use crate::wire::{NIL, Wire, array, map};
use crate::{read, store, text};

const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Images as (identifier hash, offset), and the salt, of block `block`.
fn classify(block: u32, keys: &[ExtraKey<'_>], lora: Option<&str>, rule: SaltRule) -> Found {
    let mut batch = Batch::default();
    classify_block(&mut batch, block, keys, lora, rule);
    assert!(batch.images.iter().all(|image| image.block == block));
    assert!(batch.salts.iter().all(|salt| salt.block == block));
    let images = batch.images.iter().map(|image| (image.hash, image.offset));
    let salts = batch
        .salts
        .iter()
        .map(|salt| batch.texts[salt.text as usize].to_string());
    (images.collect(), salts.collect())
}

type Found = (Vec<(u64, i64)>, Vec<String>);

fn found(images: &[(&str, i64)], salts: &[&str]) -> Found {
    (
        images
            .iter()
            .map(|&(text, offset)| (image_hash(text), offset))
            .collect(),
        salts.iter().map(|&salt| salt.to_owned()).collect(),
    )
}

const WHOLE: i64 = i64::MIN;

#[test]
fn test_adapter_and_salt_by_every_rule() {
    use ExtraKey::Text;
    use SaltRule::{EveryBlock, FirstBlock, NoBlock};
    let keys = [Text("sql"), Text("a"), Text("b")];
    for (block, lora, rule, expected) in [
        (0, Some("sql"), EveryBlock, found(&[("a", WHOLE)], &["b"])),
        (5, Some("sql"), EveryBlock, found(&[("a", WHOLE)], &["b"])),
        (
            0,
            None,
            EveryBlock,
            found(&[("sql", WHOLE), ("a", WHOLE)], &["b"]),
        ),
        (0, Some("b"), EveryBlock, found(&[("sql", WHOLE)], &["a"])),
        (0, Some("sql"), FirstBlock, found(&[("a", WHOLE)], &["b"])),
        (
            1,
            Some("sql"),
            FirstBlock,
            found(&[("a", WHOLE), ("b", WHOLE)], &[]),
        ),
        (
            0,
            Some("sql"),
            NoBlock,
            found(&[("a", WHOLE), ("b", WHOLE)], &[]),
        ),
    ] {
        assert_eq!(
            classify(block, &keys, lora, rule),
            expected,
            "{block} {lora:?} {rule:?}"
        );
    }
}

#[test]
fn test_salt_may_equal_the_adapter() {
    let keys = [ExtraKey::Text("x"), ExtraKey::Text("x")];
    let expected = found(&[], &["x"]);
    assert_eq!(
        classify(0, &keys, Some("x"), SaltRule::EveryBlock),
        expected
    );
    assert_eq!(
        classify(0, &keys[..1], Some("x"), SaltRule::EveryBlock),
        found(&[], &[])
    );
}

#[test]
fn test_marked_salt_wins_and_is_stripped() {
    use ExtraKey::Text;
    let keys = [Text("a"), Text("dynamo-cache-salt:tenant"), Text("b")];
    let expected = found(&[("a", WHOLE), ("b", WHOLE)], &["tenant"]);
    for rule in [SaltRule::EveryBlock, SaltRule::FirstBlock] {
        assert_eq!(classify(0, &keys, None, rule), expected);
    }
    let keys = [Text("dynamo-cache-salt:")];
    assert_eq!(
        classify(0, &keys, None, SaltRule::EveryBlock),
        found(&[], &[])
    );
    assert_eq!(
        classify(0, &[Text("")], None, SaltRule::EveryBlock),
        found(&[], &[])
    );
}

#[test]
fn test_digest_is_a_salt_in_new_layouts_only() {
    let keys = [ExtraKey::Text("a"), ExtraKey::Text(DIGEST)];
    let images = found(&[("a", WHOLE), (DIGEST, WHOLE)], &[]);
    assert_eq!(classify(0, &keys, None, SaltRule::FirstBlock), images);
    let salted = found(&[("a", WHOLE)], &[DIGEST]);
    assert_eq!(classify(0, &keys, None, SaltRule::EveryBlock), salted);
}

#[test]
fn test_images_keep_offset_and_repetition() {
    let image = |offset| ExtraKey::Image {
        identifier: Identifier::Text("picture"),
        offset,
    };
    let digest = ExtraKey::Image {
        identifier: Identifier::Bytes(b"\x01\x02"),
        offset: 3,
    };
    let keys = [
        image(4),
        ExtraKey::Text("salt"),
        image(-12),
        digest,
        ExtraKey::Bytes(b"embeds"),
    ];
    let (images, salts) = classify(2, &keys, None, SaltRule::EveryBlock);
    let picture = image_hash("picture");
    let expected = [
        (picture, 4),
        (picture, -12),
        (hash_bytes(b"\x01\x02"), 3),
        (hash_bytes(b"embeds"), WHOLE),
    ];
    assert_eq!(images, expected);
    assert_eq!(salts, ["salt"]);
}

fn stored(parent: Wire, extra: Wire, more: usize) -> Wire {
    let mut items = vec![
        "BlockStored".into(),
        array![7, 8],
        parent,
        NIL,
        NIL,
        NIL,
        NIL,
        "sql".into(),
    ];
    items.push(extra);
    items.extend(vec![NIL; more]);
    Wire::Array(items)
}

#[test]
fn test_layout_and_parent_decide_where_salts_are() {
    let extra = || array![array!["sql", "a"], array!["b"]];
    for (event, expected) in [
        (stored(NIL, extra(), 0), vec!["a"]),
        (stored(NIL, extra(), 2), vec!["a"]),
        (stored(6.into(), extra(), 2), vec![]),
        (stored(6.into(), extra(), 3), vec!["a", "b"]),
        (
            map! {
                "type": "BlockStored", "block_hashes": array![7, 8], "parent_block_hash": 6,
                "extra_keys": extra(), "lora_name": "sql",
            },
            vec!["a", "b"],
        ),
    ] {
        let batch = read(vec![event.clone()]);
        let salts = batch
            .salts
            .iter()
            .map(|salt| &*batch.texts[salt.text as usize]);
        assert_eq!(salts.collect::<Vec<_>>(), expected, "{event:?}");
        assert_eq!(batch.images.len(), 2 - expected.len());
        assert_eq!(text(&batch, store(&batch).lora), Some("sql"));
    }
}

#[test]
fn test_embeddings_and_pairs_come_off_the_wire() {
    let extra = array![
        NIL,
        array![
            array![DIGEST, 4],
            array![b"raw".as_slice(), -12],
            b"embeds".as_slice()
        ],
    ];
    let batch = read(vec![stored(6.into(), extra, 3)]);
    let image = |hash, offset| Image {
        block: 1,
        offset,
        hash,
    };
    let expected = [
        image(0x0011_2233_4455_6677, 4),
        image(hash_bytes(b"raw"), -12),
        image(hash_bytes(b"embeds"), WHOLE),
    ];
    assert_eq!(batch.images, expected);
    assert_eq!(store(&batch).images, 0..3);
}

#[test]
fn test_extra_keys_are_present_where_any_entry_is_filled() {
    for (extra, expected) in [
        (NIL, false),
        (array![NIL, NIL], false),
        (array![array![], NIL], false),
        (array![NIL, array!["sql"]], true),
    ] {
        let batch = read(vec![stored(NIL, extra.clone(), 0)]);
        assert_eq!(store(&batch).extra_keys, expected, "{extra:?}");
    }
}

#[test]
fn test_unreadable_extra_keys_cost_the_whole_event() {
    for extra in [
        array![],
        array![NIL],
        array![NIL, NIL, NIL],
        map! {"a": 1},
        "text".into(),
        5.into(),
        array!["text", NIL],
        array![NIL, array![1]],
        array![array![NIL], NIL],
        array![array![array!["id"]], NIL],
        array![array![array!["id", 1, 2]], NIL],
        array![array![array![1, 1]], NIL],
        array![array![array!["id", "1"]], NIL],
        array![array![array!["id", 1 << 63]], NIL],
        array![array![map! {"id": 1}], NIL],
        array![array![Wire::Text(vec![0xff])], NIL],
    ] {
        let batch = read(vec![stored(NIL, extra.clone(), 0)]);
        let [Event::Fault { reason, hashes }] = batch.events[..] else {
            panic!("expected a fault for {extra:?}");
        };
        assert_eq!((reason, hashes), (Reason::ExtraKeys, 2), "{extra:?}");
        assert!(batch.names.is_empty() && batch.images.is_empty() && batch.salts.is_empty());
        assert!(batch.texts.is_empty());
    }
}

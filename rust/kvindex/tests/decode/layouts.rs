//! What each version sends is read as it was meant.

use kvindex::decode::decode;
use kvindex::event::{Event, GroupKind, Name};

use crate::wire::{NIL, Wire, array, map, range};
use crate::{integers, read, remove, store, text};

/// The fields that all versions of the array have, and then `more`.
fn stored(more: Vec<Wire>) -> Wire {
    let mut items = vec![
        "BlockStored".into(),
        array![7, 8],
        Wire::from(6),
        range(100, 8),
        4.into(),
    ];
    items.extend(more);
    Wire::Array(items)
}

#[test]
fn test_literal_bytes_are_a_batch() {
    let batch = decode(
        b"\x93\xca\x00\x00\x00\x00\x91\x97\xabBlockStored\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff\
          \xd3\xff\xff\xff\xff\xff\xff\xff\xfe\x92\xcd\x01\x02\xce\x00\x01\x00\x00\x02\xc0\xa3GPU\x03",
    )
    .expect("a batch");
    assert_eq!(batch.rank, Some(3));
    let store = store(&batch);
    assert_eq!(batch.names[store.names.clone()], integers(&[u64::MAX]));
    assert_eq!(store.parent, Some(Name::from_integer(u64::MAX - 1)));
    assert_eq!(batch.tokens[store.tokens.clone()], [0x102, 0x1_0000]);
    assert_eq!(store.block_size, Some(2));
    assert_eq!(text(&batch, store.medium), Some("GPU"));
}

#[test]
fn test_oldest_array_has_no_medium() {
    let batch = read(vec![stored(vec![NIL])]);
    let store = store(&batch);
    assert_eq!(batch.names[store.names.clone()], integers(&[7, 8]));
    assert_eq!(store.parent, Some(Name::from_integer(6)));
    assert_eq!(
        batch.tokens[store.tokens.clone()],
        [100, 101, 102, 103, 104, 105, 106, 107]
    );
    assert_eq!(store.block_size, Some(4));
    assert!(!store.pairs && !store.remote && !store.extra_keys);
    assert_eq!(
        (store.lora, store.lora_id, store.salt, store.medium),
        (None, None, None, None)
    );
    assert_eq!((store.group, store.kind), (None, None));
}

#[test]
fn test_arrays_of_7_and_8_items_have_medium_and_adapter() {
    let batch = read(vec![stored(vec![3.into(), "GPU".into()])]);
    assert_eq!(text(&batch, store(&batch).medium), Some("GPU"));
    assert_eq!(store(&batch).lora_id, Some(3));

    let batch = read(vec![stored(vec![3.into(), "CPU".into(), "sql".into()])]);
    assert_eq!(text(&batch, store(&batch).medium), Some("CPU"));
    assert_eq!(text(&batch, store(&batch).lora), Some("sql"));
    assert_eq!(
        store(&batch).lora_id,
        None,
        "the name makes the number redundant"
    );
}

#[test]
fn test_array_of_9_items_has_extra_keys() {
    let digest = "ab".repeat(32);
    let extra = array![array!["sql", &*digest], NIL];
    let batch = read(vec![stored(vec![
        1.into(),
        "GPU".into(),
        "sql".into(),
        extra,
    ])]);
    let store = store(&batch);
    assert!(store.extra_keys);
    assert_eq!(store.images.len(), 1);
    assert_eq!(batch.images[0].hash, 0xabab_abab_abab_abab);
    assert!(store.salts.is_empty());
}

#[test]
fn test_arrays_of_10_and_12_items_have_group_and_kind() {
    let front = || vec![NIL, "GPU".into(), NIL, array![NIL, NIL]];
    let mut fields = front();
    fields.push(2.into());
    let batch = read(vec![stored(fields.clone())]);
    assert_eq!((store(&batch).group, store(&batch).kind), (Some(2), None));
    assert!(!store(&batch).extra_keys);

    fields.extend(["sliding_window".into(), 128.into()]);
    let batch = read(vec![stored(fields)]);
    assert_eq!(
        (store(&batch).group, store(&batch).kind),
        (Some(2), Some(GroupKind::Window(128)))
    );

    let mut fields = front();
    fields.extend([
        0.into(),
        "mla_attention".into(),
        NIL,
        "remote".into(),
        Wire::Bool(true),
    ]);
    let batch = read(vec![stored(fields)]);
    assert_eq!(store(&batch).kind, Some(GroupKind::Full));
    // No engine's arrays ever had more fields: what follows is not known.
    assert!(!store(&batch).remote);
}

#[test]
fn test_sglang_array_may_end_with_options() {
    let options = map! {"other": array![1, 2], "cache_salt": "tenant"};
    let batch = read(vec![stored(vec![NIL, "GPU".into(), options])]);
    assert_eq!(text(&batch, store(&batch).salt), Some("tenant"));
    assert_eq!(store(&batch).lora, None);

    let batch = read(vec![stored(vec![
        NIL,
        "GPU".into(),
        map! {"cache_salt": NIL},
    ])]);
    assert_eq!(store(&batch).salt, None);
}

#[test]
fn test_short_array_lacks_the_rest() {
    let batch = read(vec![array!["BlockStored", array![7], NIL, NIL]]);
    let store = store(&batch);
    assert_eq!(batch.names, integers(&[7]));
    assert_eq!(
        (store.parent, store.block_size, store.tokens.len()),
        (None, None, 0)
    );
}

#[test]
fn test_map_has_fields_by_name_in_any_order() {
    let batch = read(vec![map! {
        "session_id": map!{"deep": array![1, array![NIL]]},
        "lookahead_token_ids": array![array![1]],
        "extra_keys": array![array!["sql", "salt"], array!["sql"]],
        "kv_cache_spec_kind": "full_attention",
        "kv_cache_spec_sliding_window": NIL,
        "group_idx": 1,
        "locality": "Remote",
        "ownership": "kvcr",
        "token_ids": range(1, 8),
        "medium": "CPU",
        "lora_id": 7,
        "block_size": 4,
        "parent_block_hash": -1,
        "block_hashes": array![7, 8],
        "cache_salt": "outer",
        "lora_name": "sql",
        "type": "BlockStored",
    }]);
    let store = store(&batch);
    assert_eq!(batch.names[store.names.clone()], integers(&[7, 8]));
    assert_eq!(store.parent, Some(Name::from_integer(u64::MAX)));
    assert_eq!(batch.tokens[store.tokens.clone()], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((store.block_size, store.lora_id), (Some(4), None));
    assert_eq!((store.group, store.kind), (Some(1), Some(GroupKind::Full)));
    assert_eq!(text(&batch, store.lora), Some("sql"));
    assert_eq!(text(&batch, store.salt), Some("outer"));
    assert_eq!(text(&batch, store.medium), Some("CPU"));
    assert!(store.remote && store.extra_keys && store.images.is_empty());
    let salts = store.salts(&batch);
    assert_eq!(salts.len(), 1);
    assert_eq!(
        (salts[0].block, text(&batch, Some(salts[0].text))),
        (0, Some("salt"))
    );
}

#[test]
fn test_map_without_optional_fields() {
    let batch = read(vec![
        map! {"type": "BlockStored", "block_hashes": array![7]},
    ]);
    let store = store(&batch);
    assert_eq!(
        (store.parent, store.block_size, store.lora_id),
        (None, None, None)
    );
    assert!(store.tokens.is_empty() && !store.extra_keys && !store.remote);
}

#[test]
fn test_keys_that_are_no_strings_are_skipped() {
    let event = Wire::Map(vec![
        (array![1, map! {"type": "BlockRemoved"}], 5.into()),
        (NIL, map! {"type": 1}),
        (3.into(), "type".into()),
        ("type".into(), "BlockStored".into()),
        (b"block_hashes".as_slice().into(), array![9]),
        ("block_hashes".into(), array![7]),
    ]);
    let batch = read(vec![event]);
    assert_eq!(batch.names[store(&batch).names.clone()], integers(&[7]));
}

#[test]
fn test_removals_of_every_length() {
    for (event, medium, group, kind) in [
        (array!["BlockRemoved", array![7, 8]], None, None, None),
        (
            array!["BlockRemoved", array![7, 8], "CPU"],
            Some("CPU"),
            None,
            None,
        ),
        (
            array!["BlockRemoved", array![7, 8], NIL, 3],
            None,
            Some(3),
            None,
        ),
        (
            array!["BlockRemoved", array![7, 8], "GPU", 3, "mamba", 7],
            Some("GPU"),
            Some(3),
            None,
        ),
    ] {
        let batch = read(vec![event]);
        let remove = remove(&batch);
        assert_eq!(batch.names[remove.names.clone()], integers(&[7, 8]));
        assert_eq!(text(&batch, remove.medium), medium);
        assert_eq!(
            (remove.group, remove.kind, remove.remote),
            (group, kind, false)
        );
    }
    let batch = read(vec![map! {
        "type": "BlockRemoved", "block_hashes": array![7], "medium": "STORAGE",
        "group_idx": 0, "locality": "REMOTE", "token_ids": "not a field of removals",
    }]);
    assert_eq!(text(&batch, remove(&batch).medium), Some("STORAGE"));
    assert_eq!(
        (remove(&batch).group, remove(&batch).remote),
        (Some(0), true)
    );
}

#[test]
fn test_clears_have_no_fields() {
    let batch = read(vec![
        array!["AllBlocksCleared"],
        array!["AllBlocksCleared", "later", array![1]],
        map! {"type": "AllBlocksCleared"},
        map! {"block_hashes": "not a field of clears", "type": "AllBlocksCleared"},
    ]);
    assert_eq!(batch.events.len(), 4);
    assert!(
        batch
            .events
            .iter()
            .all(|event| matches!(event, Event::Clear))
    );
}

#[test]
fn test_nil_and_empty_strings_are_absent() {
    let batch = read(vec![map! {
        "type": "BlockStored", "block_hashes": array![7], "parent_block_hash": NIL,
        "token_ids": NIL, "block_size": NIL, "lora_id": NIL, "medium": "", "lora_name": "",
        "cache_salt": "", "extra_keys": NIL, "group_idx": NIL, "kv_cache_spec_kind": NIL,
        "locality": NIL,
    }]);
    let store = store(&batch);
    assert_eq!(
        (store.parent, store.block_size, store.tokens.len()),
        (None, None, 0)
    );
    assert_eq!((store.lora, store.salt, store.medium), (None, None, None));
    assert_eq!((store.group, store.kind, store.remote), (None, None, false));
    assert!(batch.texts.is_empty());
}

#[test]
fn test_kinds_of_cache_groups() {
    for (kind, expected) in [
        ("full_attention", Some(GroupKind::Full)),
        ("mla_attention", Some(GroupKind::Full)),
        ("sink_full_attention", Some(GroupKind::Full)),
        ("sliding_window_mla", Some(GroupKind::Other)),
        ("invented_tomorrow", Some(GroupKind::Other)),
        ("unknown", Some(GroupKind::Other)),
    ] {
        let batch = read(vec![map! {
            "type": "BlockRemoved", "block_hashes": array![7], "kv_cache_spec_kind": kind,
        }]);
        assert_eq!(remove(&batch).kind, expected, "{kind}");
    }
}

#[test]
fn test_the_length_of_a_window_is_part_of_its_kind() {
    for (kind, window, expected) in [
        ("sliding_window", 1.into(), GroupKind::Window(1)),
        ("sliding_window_mla", 128.into(), GroupKind::Window(128)),
        (
            "sliding_window",
            (1 << 40).into(),
            GroupKind::Window(u32::MAX),
        ),
        ("sliding_window", 0.into(), GroupKind::Other),
        ("sliding_window", NIL, GroupKind::Other),
        ("mamba", 128.into(), GroupKind::State),
        ("chunked_local_attention", 128.into(), GroupKind::Other),
        ("full_attention", 128.into(), GroupKind::Full),
    ] {
        let event = |window: Wire| {
            map! {
                "type": "BlockStored", "block_hashes": array![7], "token_ids": NIL,
                "kv_cache_spec_sliding_window": window, "kv_cache_spec_kind": kind,
            }
        };
        let batch = read(vec![event(window)]);
        assert_eq!(store(&batch).kind, Some(expected), "{kind}");
    }
}

#[test]
fn test_rank_is_a_u32_or_absent() {
    for (rank, expected) in [
        (Wire::from(0), Some(0)),
        (Wire::from(4_294_967_295), Some(u32::MAX)),
        (Wire::from(4_294_967_296), None),
        (Wire::from(-1), None),
        (Wire::Float(1.0), None),
        (Wire::Bool(true), None),
        ("1".into(), None),
        (array![1, array![2]], None),
        (NIL, None),
    ] {
        let payload = array![NIL, array![array!["AllBlocksCleared"]], rank.clone()];
        let batch = decode(&payload.bytes()).expect("a batch");
        assert_eq!(batch.rank, expected, "{rank:?}");
        assert_eq!(batch.events.len(), 1);
    }
}

#[test]
fn test_batches_of_any_length_and_timestamp() {
    for time in [NIL, "now".into(), 5.into(), array![map! {"a": 1}]] {
        for payload in [
            array![time.clone(), array![]],
            array![time.clone(), array![], 2, "more", map! {"and": "more"}],
        ] {
            let batch = decode(&payload.bytes()).expect("a batch");
            assert!(batch.events.is_empty());
        }
    }
}

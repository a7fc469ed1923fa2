//! Replays the corpora, and what was found once, on any Rust.

use std::fs;
use std::path::Path;

fn replay(corpus: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let files = fs::read_dir(folder.join(corpus)).expect("a corpus");
    let mut count = 0;
    for file in files {
        let path = file.expect("a directory entry").path();
        // Shown where the target panics.
        println!("{}", path.display());
        target(&fs::read(&path).expect("a file"));
        count += 1;
    }
    assert!(count > 0, "{corpus} is empty");
}

#[test]
fn test_payloads_are_decoded_within_bounds() {
    replay("decode", kvindex_fuzz::decode);
}

#[test]
fn test_operations_agree_with_the_model() {
    replay("operations", kvindex_fuzz::operations);
}

#[test]
fn test_payloads_agree_with_the_model() {
    replay("wire", kvindex_fuzz::wire);
}

/// A batch of this many events.
fn batch(events: usize, event: &[u8]) -> Vec<u8> {
    let mut payload = vec![0x92, 0x00, 0xdd];
    payload.extend((events as u32).to_be_bytes());
    for _ in 0..events {
        payload.extend(event);
    }
    payload
}

/// Events that take the fewest bytes for what they become.
#[test]
fn test_payloads_that_grow_the_most_are_decoded_within_bounds() {
    let nothing: &[u8] = &[0xc0];
    let removed = b"\x92\xacBlockRemoved\x90";
    let stored = b"\x95\xabBlockStored\x90\xc0\xc0\x04";
    for event in [nothing, removed, stored] {
        for events in [10, 1000, 65_537, 300_000] {
            kvindex_fuzz::decode(&batch(events, event));
        }
    }
    let mut names = b"\x92\x00\x91\x92\xacBlockRemoved\xdd\x00\x01\x00\x01".to_vec();
    names.resize(names.len() + 65_537, 0);
    kvindex_fuzz::decode(&names);
}

/// Each of many blocks has a picture.
#[test]
fn test_payloads_of_many_pictures_take_no_time() {
    let blocks = 60_000_u16;
    let array = |items: &mut dyn FnMut(u16, &mut Vec<u8>)| {
        let mut bytes = vec![0xdc];
        bytes.extend(blocks.to_be_bytes());
        (0..blocks).for_each(|block| items(block, &mut bytes));
        bytes
    };
    let name = |block: u16, bytes: &mut Vec<u8>| {
        bytes.push(0xcd);
        bytes.extend(block.to_be_bytes());
    };
    let mut payload = b"\x92\x00\x91\x99\xabBlockStored".to_vec();
    payload.extend(array(&mut { name }));
    payload.push(0xc0);
    payload.extend(array(&mut |_, bytes| bytes.push(7)));
    // One token a block, then no adapter, medium and adapter's name.
    payload.extend([0x01, 0xc0, 0xc0, 0xc0]);
    payload.extend(array(&mut |_, bytes| bytes.extend(b"\x91\xa1x")));
    let batch = kvindex::decode::decode(&payload).expect("a batch");
    // The first block's may as well be a salt, and is taken for one.
    assert_eq!(batch.images.len(), usize::from(blocks) - 1);
    kvindex_fuzz::decode(&payload);
}

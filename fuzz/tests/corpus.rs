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

//! Captured streams of real engines are read without a fault.

use std::fs;
use std::path::Path;

use kvindex::decode::decode;
use kvindex::event::{Batch, Event};

/// The payloads of one captured stream; none where the captures are not there.
pub(crate) fn payloads(stream: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/streams");
    let Ok(lines) = fs::read_to_string(root.join(stream)) else {
        return Vec::new();
    };
    // The payload is the last string of a line, of either format.
    let payloads = lines.lines().filter_map(|line| line.rsplit('"').nth(1));
    payloads
        .map(base64)
        .filter(|payload| !payload.is_empty())
        .collect()
}

fn base64(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|&byte| byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{byte:#x} is no base64"),
        };
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

fn batches(stream: &str) -> Vec<Batch> {
    let read =
        |payload: &Vec<u8>| decode(payload).unwrap_or_else(|error| panic!("{stream}: {error}"));
    payloads(stream).iter().map(read).collect()
}

/// Stores, removals, clears and faults.
fn count(batches: &[Batch]) -> [usize; 4] {
    let mut counts = [0; 4];
    for event in batches.iter().flat_map(|batch| &batch.events) {
        counts[match event {
            Event::Store(_) => 0,
            Event::Remove(_) => 1,
            Event::Clear => 2,
            Event::Fault { .. } => 3,
        }] += 1;
    }
    counts
}

#[test]
fn test_streams_have_the_events_that_the_engines_sent() {
    for (stream, expected) in [
        ("vllm/h_vllm_0.11.0.jsonl", [18, 10, 1, 0]),
        ("vllm/h_vllm_0.19.1.jsonl", [19, 13, 1, 0]),
        ("vllm/h_vllm_0.22.1_offload.jsonl", [34, 19, 1, 0]),
        ("vllm/h_vllm_0.25.1.jsonl", [19, 9, 1, 0]),
        ("vllm/c6_simple_cpu_offload.jsonl", [170, 136, 2, 0]),
        ("vllm/d1_offload_placeholder.jsonl", [116, 74, 2, 0]),
        ("vllm/f1_hybrid_full_swa.jsonl", [90, 181, 0, 0]),
        ("vllm/g_sha256_bytes.jsonl", [18, 0, 1, 0]),
        ("sglang/old_v0.5.9_radix_ps4.jsonl", [252, 200, 2, 0]),
        ("sglang/old_v0.5.19_radix_ps4.jsonl", [108, 30, 2, 0]),
        ("sglang/gpu_eagle_bigram.jsonl", [75, 26, 1, 0]),
        ("sglang/hicache_write_back.jsonl", [555, 500, 1, 0]),
    ] {
        let batches = batches(stream);
        if !batches.is_empty() {
            assert_eq!(count(&batches), expected, "{stream}");
        }
    }
}

#[test]
fn test_no_captured_event_is_at_fault() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/streams");
    for engine in ["vllm", "sglang"] {
        let Ok(files) = fs::read_dir(root.join(engine)) else {
            continue;
        };
        for file in files {
            let path = file.expect("a directory entry").path();
            if path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                let stream = path.to_str().expect("a plain name");
                assert_eq!(count(&batches(stream))[3], 0, "{stream}");
            }
        }
    }
}

#[test]
fn test_captured_adapters_salts_and_images_are_told_apart() {
    let batches = batches("vllm/e_lora_salt_mm.jsonl");
    if batches.is_empty() {
        return;
    }
    let mut found = Vec::new();
    for batch in &batches {
        let text = |id: u32| batch.texts[id as usize].to_string();
        found.extend(batch.salts.iter().map(|salt| text(salt.text)));
    }
    found.sort();
    found.dedup();
    // One request of the capture has a salt that is also the name of an adapter.
    assert_eq!(found, ["sql-adapter", "tenant-x", "tenant-y", "tenant-z"]);
    let images = batches.iter().flat_map(|batch| &batch.images);
    let mut images: Vec<u64> = images.map(|image| image.hash).collect();
    images.sort_unstable();
    images.dedup();
    let digits = [0xaaaa, 0xbbbb, 0xcccc, 0xdddd].map(|digits| digits * 0x1_0001_0001_0001);
    assert_eq!(images, digits);
}

#[test]
fn test_captured_pairs_overlap() {
    for batch in batches("sglang/gpu_eagle_bigram.jsonl") {
        for event in &batch.events {
            if let Event::Store(store) = event {
                let size = store.block_size.expect("a block size") as usize;
                assert!(store.pairs);
                assert_eq!(store.tokens.len(), store.names.len() * size + 1);
            }
        }
    }
}

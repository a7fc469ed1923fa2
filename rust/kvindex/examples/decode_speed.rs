//! How fast raw engine batches are decoded, on one core:
//! `cargo run --release --example decode_speed`.
//!
//! The batches are those of a recent vLLM: one store of 8 blocks of 16 tokens,
//! as a map. Every payload is another one, so that branches and caches behave as
//! in a router.

use std::hint::black_box;
use std::time::Instant;

use kvindex::decode::decode;

const BLOCKS: u32 = 8;
const BLOCK_SIZE: u32 = 16;
const PAYLOADS: u32 = 20_000;
const ROUNDS: usize = 15;

fn main() {
    let mut random = Random(88_172_645_463_325_252);
    println!("tokens below        M blocks/s    ns/batch");
    for (label, vocabulary) in [("32 000", 32_000), ("128 000", 128_000)] {
        let payloads: Vec<Vec<u8>> = (0..PAYLOADS)
            .map(|_| payload(|| random.below(vocabulary), BLOCK_SIZE))
            .collect();
        report(label, &payloads);
    }
    let payloads: Vec<Vec<u8>> = (0..PAYLOADS).map(|_| payload(|| 0, 0)).collect();
    report("none at all", &payloads);
}

fn report(label: &str, payloads: &[Vec<u8>]) {
    let seconds = (0..ROUNDS)
        .map(|_| decode_all(payloads))
        .min_by(f64::total_cmp);
    let seconds = seconds.expect("at least one round");
    let batch = seconds / f64::from(PAYLOADS) * 1e9;
    println!(
        "{label:<20}{:>9.1}{batch:>12.0}",
        f64::from(BLOCKS) / batch * 1e3
    );
}

fn decode_all(payloads: &[Vec<u8>]) -> f64 {
    let start = Instant::now();
    for payload in payloads {
        let batch = decode(black_box(payload)).expect("a valid payload");
        assert_eq!(batch.names.len(), BLOCKS as usize);
        black_box(batch);
    }
    start.elapsed().as_secs_f64()
}

fn payload(mut token: impl FnMut() -> u64, block_size: u32) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1.7e9_f64.to_be_bytes());
    out.extend([0x91, 0x8a]);
    text(&mut out, "type");
    text(&mut out, "BlockStored");
    text(&mut out, "block_hashes");
    array(&mut out, BLOCKS);
    for _ in 0..BLOCKS {
        integer(&mut out, u64::MAX - token());
    }
    text(&mut out, "parent_block_hash");
    integer(&mut out, u64::MAX - token());
    text(&mut out, "token_ids");
    array(&mut out, BLOCKS * block_size);
    for _ in 0..BLOCKS * block_size {
        integer(&mut out, token());
    }
    text(&mut out, "block_size");
    integer(&mut out, 16);
    text(&mut out, "lora_id");
    out.push(0xc0);
    text(&mut out, "medium");
    text(&mut out, "GPU");
    text(&mut out, "lora_name");
    out.push(0xc0);
    text(&mut out, "extra_keys");
    array(&mut out, BLOCKS);
    out.extend([0xc0; BLOCKS as usize]);
    text(&mut out, "kv_cache_spec_kind");
    text(&mut out, "full_attention");
    out.push(0);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | text.len() as u8);
    out.extend(text.as_bytes());
}

fn array(out: &mut Vec<u8>, items: u32) {
    out.push(0xdc);
    out.extend((items as u16).to_be_bytes());
}

fn integer(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x7f => out.push(value as u8),
        0x80..=0xff => out.extend([0xcc, value as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((value as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend(value.to_be_bytes());
        }
    }
}

/// Xorshift: enough to be no pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

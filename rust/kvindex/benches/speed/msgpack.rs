//! Batches as vLLM writes them since 0.24: events as maps.

use crate::workload::BLOCK_SIZE;

/// A batch with one store.
pub(crate) fn batch(names: &[u64], tokens: &[u32], parent: Option<u64>) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1.7e9_f64.to_be_bytes());
    out.extend([0x91, 0x8b]);
    text(&mut out, "type");
    text(&mut out, "BlockStored");
    text(&mut out, "block_hashes");
    array(&mut out, names.iter().copied());
    text(&mut out, "parent_block_hash");
    match parent {
        Some(name) => integer(&mut out, name),
        None => out.push(NIL),
    }
    text(&mut out, "token_ids");
    array(&mut out, tokens.iter().map(|&token| u64::from(token)));
    text(&mut out, "block_size");
    integer(&mut out, BLOCK_SIZE as u64);
    text(&mut out, "lora_id");
    out.push(NIL);
    text(&mut out, "medium");
    text(&mut out, "GPU");
    text(&mut out, "lora_name");
    out.push(NIL);
    text(&mut out, "extra_keys");
    head(&mut out, names.len());
    out.extend(names.iter().map(|_| NIL));
    text(&mut out, "group_idx");
    out.push(0);
    text(&mut out, "kv_cache_spec_kind");
    text(&mut out, "full_attention");
    out.push(0);
    out
}

const NIL: u8 = 0xc0;

fn text(out: &mut Vec<u8>, text: &str) {
    assert!(text.len() < 32, "a short string");
    out.push(0xa0 | text.len() as u8);
    out.extend(text.as_bytes());
}

fn head(out: &mut Vec<u8>, items: usize) {
    let items = u16::try_from(items).expect("a short array");
    out.push(0xdc);
    out.extend(items.to_be_bytes());
}

fn array(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = u64>) {
    head(out, items.len());
    items.for_each(|item| integer(out, item));
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

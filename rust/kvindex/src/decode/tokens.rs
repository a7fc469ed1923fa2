//! Token arrays: where nearly all bytes of a batch are.
//!
//! Real token ids lie on both sides of 256 and of 65536 without any order, so a
//! branch on the encoding is mispredicted again and again. Two loops take turns
//! instead, both without such a branch:
//!
//! ```text
//! repeat
//!     while the next four tokens are 16-bit ones: take all four
//!     take up to 16 tokens one by one, size and mask from tables
//! ```
//!
//! Anything that is no plain token in its shortest encoding, and the last bytes
//! of the payload, goes through the general reader.

use super::Fail;
use super::msgpack::{Reader, Value};

const SHORT: u8 = 0xcd;

/// Where four 16-bit tokens in a row have their first bytes.
const SHORT_TAGS: u128 = 0xff | (0xff << 24) | (0xff << 48) | (0xff << 72);

/// What stands there.
const SHORT_GROUP: u128 = SHORT_TAGS / 0xff * SHORT as u128;

/// Bytes of a token by its first byte; 0 where that starts no plain token.
static SIZES: [u8; 256] = sizes();

/// The bits of a token by its first byte, once it is shifted down.
static MASKS: [u32; 256] = masks();

const fn sizes() -> [u8; 256] {
    let mut sizes = [0; 256];
    let mut tag = 0;
    while tag < 0x80 {
        sizes[tag] = 1;
        tag += 1;
    }
    sizes[0xcc] = 2;
    sizes[SHORT as usize] = 3;
    sizes[0xce] = 5;
    sizes
}

const fn masks() -> [u32; 256] {
    let mut masks = [0x7f; 256];
    masks[0xcc] = 0xff;
    masks[SHORT as usize] = 0xffff;
    masks[0xce] = u32::MAX;
    masks
}

/// Appends one pair of tokens to a run of overlapping pairs that begins at
/// `start`: the first tokens of all pairs, then the second of the last one.
/// False where the pair does not begin with the token that the last one ends in.
fn push_pair(tokens: &mut Vec<u32>, start: usize, first: u32, second: u32) -> bool {
    if tokens.len() == start {
        tokens.push(first);
    } else if tokens.last() != Some(&first) {
        return false;
    }
    tokens.push(second);
    true
}

/// Appends the `count` tokens that follow; true where they come as pairs.
pub(super) fn read(
    reader: &mut Reader<'_>,
    count: usize,
    tokens: &mut Vec<u32>,
) -> Result<bool, Fail> {
    let start = tokens.len();
    let first = reader.rest().first().copied().unwrap_or_default();
    if count > 0 && matches!(first, 0x90..=0x9f | 0xdc | 0xdd) {
        for _ in 0..count {
            let (first, second) = pair(reader)?;
            if !push_pair(tokens, start, first, second) {
                return Err(Fail::MALFORMED);
            }
        }
        return Ok(true);
    }
    tokens.resize(start + count, 0);
    flat(reader, &mut tokens[start..])?;
    Ok(false)
}

fn pair(reader: &mut Reader<'_>) -> Result<(u32, u32), Fail> {
    match reader.value()? {
        Value::Array(2) => Ok((token(reader)?, token(reader)?)),
        _ => Err(Fail::MALFORMED),
    }
}

fn token(reader: &mut Reader<'_>) -> Result<u32, Fail> {
    match reader.value()? {
        Value::Unsigned(token) => u32::try_from(token).map_err(|_| Fail::MALFORMED),
        _ => Err(Fail::MALFORMED),
    }
}

fn flat(reader: &mut Reader<'_>, slots: &mut [u32]) -> Result<(), Fail> {
    let mut done = 0;
    while done < slots.len() {
        let (taken, rest) = plain(reader.rest(), &mut slots[done..]);
        reader.advance(rest);
        done += taken;
        if let Some(slot) = slots.get_mut(done) {
            *slot = token(reader)?;
            done += 1;
        }
    }
    Ok(())
}

/// Fills slots with plain tokens as far as they go: how many, and the bytes that
/// are left behind them.
fn plain<'a>(mut rest: &'a [u8], slots: &mut [u32]) -> (usize, &'a [u8]) {
    let mut taken = 0;
    while taken < slots.len() {
        while let Some(group) = slots[taken..].first_chunk_mut()
            && short_group(&mut rest, group)
        {
            taken += group.len();
        }
        for slot in slots[taken..].iter_mut().take(16) {
            if !one(&mut rest, slot) {
                return (taken, rest);
            }
            taken += 1;
        }
    }
    (taken, rest)
}

/// Four 16-bit tokens at once, or nothing.
#[inline]
fn short_group(rest: &mut &[u8], group: &mut [u32; 4]) -> bool {
    let Some(window) = rest.first_chunk::<16>() else {
        return false;
    };
    // One comparison for all four first bytes, so that there is one branch.
    if u128::from_le_bytes(*window) & SHORT_TAGS != SHORT_GROUP {
        return false;
    }
    for (slot, token) in group.iter_mut().zip(window.chunks_exact(3)) {
        *slot = u16::from_be_bytes([token[1], token[2]]).into();
    }
    *rest = &rest[12..];
    true
}

#[inline]
fn one(rest: &mut &[u8], slot: &mut u32) -> bool {
    let Some(window) = rest.first_chunk::<8>() else {
        return false;
    };
    let tag = usize::from(window[0]);
    let size = SIZES[tag];
    if size == 0 {
        return false;
    }
    let shifted = u64::from_be_bytes(*window) >> (64 - 8 * u32::from(size));
    *slot = shifted as u32 & MASKS[tag];
    *rest = &rest[usize::from(size)..];
    true
}

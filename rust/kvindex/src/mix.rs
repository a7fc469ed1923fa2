//! A small fast hasher for maps by ids, hashes, and texts that the operator
//! chose.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by what nobody chooses to collide.
pub(crate) type MixMap<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;
/// A set of such.
pub(crate) type MixSet<K> = HashSet<K, BuildHasherDefault<Mix>>;

/// Multiplies and folds, word by word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix(u64);

/// Spreads a word over all 64 bits.
pub(crate) const fn mix(word: u64) -> u64 {
    let product = (word ^ 0x9e37_79b9_7f4a_7c15) as u128 * 0xd6e8_feb8_6659_fd93;
    (product >> 64) as u64 ^ product as u64
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ word);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

//! Which prefix is it? Local keys, chain keys and namespaces: the only file
//! that hashes.
//!
//! All hashes are XXH3-64 over little-endian bytes and agree byte for byte with
//! the published definition (see `docs/design.md`, Hashes):
//!
//! - local key: the block's tokens as u32, then its multimodal hashes as u64 in
//!   ascending order; seed = 1337 + XXH3(LoRA name, 0) + XXH3(cache salt, 1), a
//!   term only where the name is not empty.
//! - chain key: the first is the local key, each later one is
//!   XXH3(previous chain key || local key, 1337).
//!
//! FlexKV's names are XXH64 over all tokens so far as i64, seed 0; their chain
//! keys are made from them as from local keys, below a root of their own.
//!
//! SGLang's digest of a page is SHA-256 over the digest before it and the page's
//! tokens as u32. Pages of a shared store lie each under a key of its own, made
//! from the digest's last 8 bytes.

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use xxhash_rust::xxh64::Xxh64;

/// The seed of chain keys, and the base of every local key's seed.
pub const SEED: u64 = 1337;

/// XXH3-64 of a byte string, seed 0.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The seed of a namespace's local keys; an empty name counts as absent.
pub fn namespace_seed(lora: &str, salt: &str) -> u64 {
    let mut seed = SEED;
    if !lora.is_empty() {
        seed = seed.wrapping_add(xxh3_64_with_seed(lora.as_bytes(), 0));
    }
    if !salt.is_empty() {
        seed = seed.wrapping_add(xxh3_64_with_seed(salt.as_bytes(), 1));
    }
    seed
}

/// The multimodal hash of an identifier: its first 16 digits where it has 64
/// hexadecimal ones, else its XXH3-64.
pub fn image_hash(identifier: &str) -> u64 {
    let digits = identifier.len() == 64 && identifier.bytes().all(|byte| byte.is_ascii_hexdigit());
    let first = digits.then(|| u64::from_str_radix(&identifier[..16], 16).ok());
    first
        .flatten()
        .unwrap_or_else(|| hash_bytes(identifier.as_bytes()))
}

/// The chain key of a block: its local key at the start of a chain.
pub fn chain(parent: Option<u64>, local: u64) -> u64 {
    let Some(parent) = parent else { return local };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&parent.to_le_bytes());
    bytes[8..].copy_from_slice(&local.to_le_bytes());
    xxh3_64_with_seed(&bytes, SEED)
}

/// An image in a page of a block: its hash, where it begins from the block's first
/// token (the least number = unknown), and the how manieth it is that begins there.
pub(crate) type PageImage = (u64, i64, u32);

/// A key that commits to a page and all before it.
pub(crate) fn page_key(above: Option<u64>, pairs: bool, local: u64, images: &[PageImage]) -> u64 {
    let mut bytes = Vec::new();
    for word in [above.unwrap_or_default(), u64::from(pairs), local] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for (hash, start, nth) in images {
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes.extend_from_slice(&start.to_le_bytes());
        bytes.extend_from_slice(&nth.to_le_bytes());
    }
    hash_bytes(&bytes)
}

/// What stands before the first chain key of FlexKV's blocks, so that they are
/// nobody else's: "FlexKV".
const FLEXKV_ROOT: u64 = 0x0000_566b_7865_6c46;

/// The chain key of a block that FlexKV names.
pub(crate) fn flexkv_chain(parent: Option<u64>, name: u64) -> u64 {
    chain(Some(parent.unwrap_or(FLEXKV_ROOT)), name)
}

/// What stands before the names of SGLang's pages: "SGLang".
const SGLANG_ROOT: u64 = 0x0000_676e_614c_4753;

/// The key of a page that SGLang has put into a shared store, by the last 8 bytes
/// of its digest.
pub(crate) fn sglang_key(name: u64) -> u64 {
    chain(Some(SGLANG_ROOT), name)
}

/// SGLang's digests of a prompt's pages, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct SglangDigests(Option<[u8; 32]>);

impl SglangDigests {
    /// The last 8 bytes of the next page's digest.
    pub(crate) fn next(&mut self, tokens: &[u32]) -> u64 {
        let mut hasher = Sha256::new();
        hasher.update(self.0.as_ref().map_or(&[][..], |above| &above[..]));
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        let digest: [u8; 32] = hasher.finalize().into();
        self.0 = Some(digest);
        let last = digest.last_chunk().expect("a digest has 32 bytes");
        u64::from_be_bytes(*last)
    }
}

/// FlexKV's names of a prompt's blocks, one after the other.
#[derive(Clone)]
pub(crate) struct FlexKvNames(Xxh64);

impl std::fmt::Debug for FlexKvNames {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("FlexKvNames")
    }
}

impl Default for FlexKvNames {
    fn default() -> Self {
        Self(Xxh64::new(0))
    }
}

impl FlexKvNames {
    /// The name of the next block, which has these tokens.
    pub(crate) fn next(&mut self, tokens: &[u32]) -> u64 {
        for &token in tokens {
            self.0.update(&i64::from(token).to_le_bytes());
        }
        self.0.digest()
    }
}

/// Hashes blocks of tokens; holds the scratch bytes that this needs.
#[derive(Debug)]
pub struct BlockHasher {
    seed: u64,
    bytes: Vec<u8>,
}

impl BlockHasher {
    /// A hasher for blocks of one namespace.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            bytes: Vec::new(),
        }
    }

    /// The local key of one block. `images` is sorted in place.
    pub fn local(&mut self, tokens: &[u32], images: &mut [u64]) -> u64 {
        if cfg!(target_endian = "little") && images.is_empty() {
            return xxh3_64_with_seed(bytemuck::cast_slice(tokens), self.seed);
        }
        images.sort_unstable();
        self.bytes.resize(tokens.len() * 4, 0);
        for (bytes, token) in self.bytes.chunks_exact_mut(4).zip(tokens) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        for image in images.iter() {
            self.bytes.extend_from_slice(&image.to_le_bytes());
        }
        xxh3_64_with_seed(&self.bytes, self.seed)
    }
}

/// One image in a prompt: it belongs to every block that it overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its multimodal hash.
    pub hash: u64,
    /// The first token it covers.
    pub first: u64,
    /// How many tokens it covers.
    pub length: u64,
}

impl Span {
    /// Whether it overlaps the tokens from `start` up to, not including, `end`.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.first < end && self.first.saturating_add(self.length) > start
    }
}

/// A prompt whose local keys are computed block by block, as far as asked.
#[derive(Debug)]
pub struct Prompt<'a> {
    /// The prompt's tokens.
    pub tokens: &'a [u32],
    /// The prompt's images, in any order.
    pub images: &'a [Span],
    /// Tokens a block.
    pub block_size: usize,
    /// Whether a block is keyed by the token that follows it, too.
    pub pairs: bool,
}

impl Prompt<'_> {
    /// How many whole blocks the prompt has.
    pub fn blocks(&self) -> usize {
        self.tokens.len().saturating_sub(usize::from(self.pairs)) / self.block_size
    }

    /// The local key of block `index`.
    ///
    /// # Panics
    ///
    /// Where `index` is not below [`Prompt::blocks`].
    pub fn local(&self, hasher: &mut BlockHasher, index: usize) -> u64 {
        let start = index * self.block_size;
        let end = start + self.block_size;
        let tokens = &self.tokens[start..end + usize::from(self.pairs)];
        if self.images.is_empty() {
            return hasher.local(tokens, &mut []);
        }
        let mut images: Vec<u64> = self
            .images
            .iter()
            .filter(|span| span.overlaps(start as u64, end as u64))
            .map(|span| span.hash)
            .collect();
        hasher.local(tokens, &mut images)
    }
}

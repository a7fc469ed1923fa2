//! What the extra keys of a block mean: adapter, salt, images.
//!
//! Engines hash more into a block than its tokens and publish that as a list per
//! block, without names: an adapter's name and a cache salt are bare strings
//! both, and so were images in old versions. What is what follows from the rest
//! of the event; the index must not take an image for a salt or lose one, or a
//! block with a picture would match as plain text.

use crate::event::{Batch, Image, Salt};
use crate::key::{hash_bytes, image_hash};

/// Says that a salt is meant, and nothing else.
const SALT_PREFIX: &str = "dynamo-cache-salt:";

/// What an image or embedding is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identifier<'a> {
    /// Usually 64 hexadecimal digits.
    Text(&'a str),
    /// A digest.
    Bytes(&'a [u8]),
}

impl Identifier<'_> {
    fn hash(self) -> u64 {
        match self {
            Self::Text(text) => image_hash(text),
            Self::Bytes(bytes) => hash_bytes(bytes),
        }
    }
}

/// One extra key of one block, as the event has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraKey<'a> {
    /// A bare string: adapter, salt or image.
    Text(&'a str),
    /// A pair: an image, and where it begins from the block's first token.
    Image {
        /// Which image.
        identifier: Identifier<'a>,
        /// Negative where it began in an earlier block.
        offset: i64,
    },
    /// A bare byte string: the digest of prompt embeddings.
    Bytes(&'a [u8]),
}

/// Which blocks of an event may carry a cache salt among their extra keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaltRule {
    /// Events as maps or objects, and arrays of 12 items or more.
    EveryBlock,
    /// Shorter arrays without a parent: the first block, and a string of 64
    /// hexadecimal digits is an image there.
    FirstBlock,
    /// Shorter arrays with a parent.
    NoBlock,
}

/// Files the extra keys of block `block` under the batch's images and salts.
///
/// `lora` is the adapter's name that the event gives. Of the bare strings the
/// first equal to it is the adapter, one is the salt where `rule` allows it, and
/// all others are images. Images without an offset get the least there is: they
/// belong to the whole block. Blocks have to come in ascending order.
pub fn classify_block(
    batch: &mut Batch,
    block: u32,
    keys: &[ExtraKey<'_>],
    lora: Option<&str>,
    rule: SaltRule,
) {
    let adapter = texts(keys).find(|&(_, text)| Some(text) == lora);
    let adapter = adapter.map(|(at, _)| at);
    let others = || texts(keys).filter(|&(at, _)| Some(at) != adapter);
    let salt = match rule {
        SaltRule::EveryBlock => find_salt(others()),
        SaltRule::FirstBlock if block == 0 => {
            find_salt(others()).filter(|(_, text)| !is_digest(text))
        }
        SaltRule::FirstBlock | SaltRule::NoBlock => None,
    };
    for (at, key) in keys.iter().enumerate() {
        if Some(at) == adapter || Some(at) == salt.map(|(at, _)| at) {
            continue;
        }
        let (hash, offset) = match *key {
            ExtraKey::Text(text) => (image_hash(text), i64::MIN),
            ExtraKey::Image { identifier, offset } => (identifier.hash(), offset),
            ExtraKey::Bytes(bytes) => (hash_bytes(bytes), i64::MIN),
        };
        batch.images.push(Image {
            block,
            offset,
            hash,
        });
    }
    let salt = salt.map(|(_, text)| text.strip_prefix(SALT_PREFIX).unwrap_or(text));
    if let Some(salt) = salt.filter(|salt| !salt.is_empty()) {
        let text = batch.text(salt);
        batch.salts.push(Salt { block, text });
    }
}

/// The bare strings among the keys, with their places.
fn texts<'a>(keys: &[ExtraKey<'a>]) -> impl Iterator<Item = (usize, &'a str)> {
    keys.iter().enumerate().filter_map(|(at, key)| match *key {
        ExtraKey::Text(text) => Some((at, text)),
        _ => None,
    })
}

/// The first that is marked as a salt, else the last.
fn find_salt<'a>(texts: impl Iterator<Item = (usize, &'a str)>) -> Option<(usize, &'a str)> {
    let mut last = None;
    for (at, text) in texts {
        last = Some((at, text));
        if text.starts_with(SALT_PREFIX) {
            break;
        }
    }
    last
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

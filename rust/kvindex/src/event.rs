//! What an engine said: one batch of events as plain, flat values, no policy.
//!
//! A batch owns a few flat arrays and its events point into them, so decoding
//! costs a handful of allocations whatever the number of blocks.

use std::ops::Range;

use crate::key::hash_bytes;

/// An engine's own name for a block: any integer or byte string, only compared.
///
/// Integers compare by their low 64 bits. A byte string compares with integers
/// by its last 8 bytes, big-endian, and with other byte strings whole (through
/// a second 64-bit hash of the whole string).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    low: u64,
    wide: u64,
}

impl Name {
    /// The name that an engine gave as an integer, two's complement.
    pub const fn from_integer(value: u64) -> Self {
        Self {
            low: value,
            wide: 0,
        }
    }

    /// The name that an engine gave as a byte string.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let tail = &bytes[bytes.len().saturating_sub(8)..];
        let low = tail
            .iter()
            .fold(0, |low, &byte| (low << 8) | u64::from(byte));
        Self {
            low,
            wide: hash_bytes(bytes).max(1),
        }
    }

    pub(crate) const fn from_parts(low: u64, wide: u64) -> Self {
        Self { low, wide }
    }

    /// The 64 bits in which integers and byte strings compare.
    pub const fn low(self) -> u64 {
        self.low
    }

    /// The hash of the whole byte string; 0 for an integer.
    pub const fn wide(self) -> u64 {
        self.wide
    }

    /// Whether both name the same block: not transitive, see the type.
    pub const fn matches(self, other: Self) -> bool {
        self.low == other.low && (self.wide == other.wide || self.wide == 0 || other.wide == 0)
    }
}

/// Where a copy lies, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tier {
    /// Accelerator memory.
    Device = 0,
    /// The worker's main memory.
    Host = 1,
    /// The worker's disks.
    Disk = 2,
    /// Anything reached over a network.
    External = 3,
}

impl Tier {
    /// Every tier, nearest first.
    pub const ALL: [Self; 4] = [Self::Device, Self::Host, Self::Disk, Self::External];

    /// The tier's name in every interface.
    pub const fn name(self) -> &'static str {
        ["device", "host", "disk", "external"][self as usize]
    }

    /// The tier of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.name() == name)
    }
}

/// Why something in a batch was not applied as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the texts are in `describe`")]
pub enum Reason {
    UnknownType,
    Malformed,
    ExtraKeys,
    Parent,
    DuplicateHash,
    Tokens,
    Partial,
    Orphan,
    OrphanDropped,
    UnknownBlock,
    Unresolved,
    Ambiguous,
    Medium,
    BlockSize,
    Group,
    LoraId,
    Epoch,
    Unregistered,
    Duplicate,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::UnknownType,
        Self::Malformed,
        Self::ExtraKeys,
        Self::Parent,
        Self::DuplicateHash,
        Self::Tokens,
        Self::Partial,
        Self::Orphan,
        Self::OrphanDropped,
        Self::UnknownBlock,
        Self::Unresolved,
        Self::Ambiguous,
        Self::Medium,
        Self::BlockSize,
        Self::Group,
        Self::LoraId,
        Self::Epoch,
        Self::Unregistered,
        Self::Duplicate,
    ];

    /// The reason's name in every interface.
    pub const fn name(self) -> &'static str {
        self.texts().0
    }

    /// What the reason means, as one phrase.
    pub const fn describe(self) -> &'static str {
        self.texts().1
    }

    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::UnknownType => ("unknown_type", "the event's type is unknown"),
            Self::Malformed => ("malformed", "a field has the wrong type or range"),
            Self::ExtraKeys => ("extra_keys", "the extra keys cannot be read"),
            Self::Parent => ("parent", "the parent is among the event's own hashes"),
            Self::DuplicateHash => ("duplicate_hash", "the event stores one hash twice"),
            Self::Tokens => ("tokens", "the tokens do not fit the hashes"),
            Self::Partial => ("partial", "the last block is not full"),
            Self::Orphan => ("orphan", "the parent is unknown, the blocks wait"),
            Self::OrphanDropped => ("orphan_dropped", "waited too long, pushed out"),
            Self::UnknownBlock => ("unknown_block", "nothing to remove under that hash"),
            Self::Unresolved => ("unresolved", "no tokens and the hash is unknown"),
            Self::Ambiguous => ("ambiguous", "the hash means blocks of several namespaces"),
            Self::Medium => ("medium", "the medium is unknown"),
            Self::BlockSize => ("block_size", "the block size does not fit the index"),
            Self::Group => ("group", "not the main attention group"),
            Self::LoraId => ("lora_id", "an integer adapter without a name"),
            Self::Epoch => ("epoch", "the worker's epoch has ended"),
            Self::Unregistered => ("unregistered", "the worker is not registered"),
            Self::Duplicate => ("duplicate", "the sequence number was seen before"),
        }
    }
}

/// An index into [`Batch::texts`].
pub type TextId = u32;

/// One image or embedding of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Which of the event's hashes it belongs to.
    pub block: u32,
    /// The first token it covers, from the start of that hash's block; negative
    /// where it began before.
    pub offset: i64,
    /// Its multimodal hash.
    pub hash: u64,
}

/// A cache salt found among the extra keys of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt {
    /// Which of the event's hashes it belongs to.
    pub block: u32,
    /// The salt itself.
    pub text: TextId,
}

/// What kind of cache group an event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Full attention: the kinds that are indexed.
    Full,
    /// A sliding window of so many tokens, not 0.
    Window(u32),
    /// State-space models: what goes on is the state at a block's end.
    State,
    /// All others, and windows of unknown length.
    Other,
}

/// Blocks stored.
#[derive(Clone, Debug)]
pub struct Store {
    /// Into [`Batch::names`].
    pub names: Range<usize>,
    /// Into [`Batch::tokens`]. For pairs the first tokens of all pairs, then the
    /// second of the last one.
    pub tokens: Range<usize>,
    /// Into [`Batch::locals`]: the blocks' local keys, from sources that send
    /// them instead of tokens. Narrow, as is all that few events have.
    pub locals: Range<u32>,
    /// Whether the tokens came as pairs (speculative decoding).
    pub pairs: bool,
    /// The parent of the first block.
    pub parent: Option<Name>,
    /// Tokens a hash, where the event says so.
    pub block_size: Option<u64>,
    /// The adapter's name, never empty.
    pub lora: Option<TextId>,
    /// The adapter's number, where there is no name.
    pub lora_id: Option<i64>,
    /// The salt of the whole event, never empty.
    pub salt: Option<TextId>,
    /// What the event calls the tier.
    pub medium: Option<TextId>,
    /// Whether the locality says that the copy lies elsewhere.
    pub remote: bool,
    /// The cache group.
    pub group: Option<u32>,
    /// The cache group's kind.
    pub kind: Option<GroupKind>,
    /// Into [`Batch::images`], ascending by block.
    pub images: Range<usize>,
    /// Into [`Batch::salts`], ascending by block, at most one a block.
    pub salts: Range<u32>,
    /// Whether any block carries an extra key (of any kind, the adapter's name
    /// included).
    pub extra_keys: bool,
}

impl Store {
    /// Whether it says what its blocks hold, not only what they are called.
    pub fn has_content(&self) -> bool {
        !self.tokens.is_empty() || !self.locals.is_empty()
    }

    /// The salts of its blocks.
    pub fn salts<'a>(&self, batch: &'a Batch) -> &'a [Salt] {
        &batch.salts[self.salts.start as usize..self.salts.end as usize]
    }

    /// The local keys that came instead of tokens.
    pub fn local_keys<'a>(&self, batch: &'a Batch) -> &'a [u64] {
        &batch.locals[self.locals.start as usize..self.locals.end as usize]
    }
}

/// Blocks removed.
#[derive(Clone, Debug)]
pub struct Remove {
    /// Into [`Batch::names`].
    pub names: Range<usize>,
    /// What the event calls the tier.
    pub medium: Option<TextId>,
    /// Whether the locality says that the copy lies elsewhere.
    pub remote: bool,
    /// The cache group.
    pub group: Option<u32>,
    /// The cache group's kind.
    pub kind: Option<GroupKind>,
}

/// One event of a batch.
#[derive(Clone, Debug)]
pub enum Event {
    /// Blocks were stored.
    Store(Store),
    /// Blocks were removed.
    Remove(Remove),
    /// Everything was cleared.
    Clear,
    /// An event that cannot be applied as it stands.
    Fault {
        /// What is wrong with it.
        reason: Reason,
        /// How many hashes it had; 1 where they cannot be read.
        hashes: u64,
    },
}

/// One batch of events in the order in which the engine sent them.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The data-parallel rank that the batch names.
    pub rank: Option<u32>,
    /// The events, in order.
    pub events: Vec<Event>,
    /// All engine hashes.
    pub names: Vec<Name>,
    /// All tokens.
    pub tokens: Vec<u32>,
    /// All local keys that came instead of tokens.
    pub locals: Vec<u64>,
    /// The adapter names, salts and media, few of them twice.
    pub texts: Vec<Box<str>>,
    /// All images.
    pub images: Vec<Image>,
    /// All salts that were found among extra keys.
    pub salts: Vec<Salt>,
}

impl Batch {
    /// The id of a text. Only the latest few are looked through: what every event
    /// repeats is kept once, and a batch of many texts takes linear time.
    pub fn text(&mut self, text: &str) -> TextId {
        let recent = self.texts.len().saturating_sub(16);
        let found = self.texts[recent..]
            .iter()
            .position(|known| **known == *text);
        let id = found.map_or(self.texts.len(), |at| recent + at);
        if id == self.texts.len() {
            self.texts.push(text.into());
        }
        id as TextId
    }
}

//! How does this source behave? Copies or sets, clears, chunks, media, names.

use crate::error::ConfigError;
use crate::event::{Name, Tier};

/// A value for each tier, nearest first.
pub type PerTier<T> = [T; 4];

/// What events call each tier, in any case.
const MEDIA: PerTier<&[&str]> = [
    &["gpu", "device"],
    &["cpu", "cpu_pinned", "cpu_tier1"],
    &["cpu_tier2", "disk", "nvme", "ssd", "storage"],
    &["external", "network", "remote", "shared"],
];

/// The kinds of event source whose habits are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not registered: the habits that do least harm.
    #[default]
    Auto,
    /// vLLM and what speaks its dialect.
    Vllm,
    /// SGLang.
    Sglang,
    /// vLLM with FlexKV.
    FlexKv,
    /// A Mooncake store.
    Mooncake,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Auto,
        Self::Vllm,
        Self::Sglang,
        Self::FlexKv,
        Self::Mooncake,
    ];

    /// The kind's name in every interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::FlexKv => "flexkv",
            Self::Mooncake => "mooncake",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How one source's events are read. Immutable once it is registered.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Which kind of source.
    pub kind: Kind,
    /// The tiers that a clear empties, where the user said so.
    pub clears: Option<PerTier<bool>>,
    /// The tiers on which a second store is a second copy.
    pub copies: PerTier<bool>,
    /// Tokens of one chunk on a tier; 0 = the tier has no chunks.
    pub chunk_tokens: PerTier<u32>,
    /// Seconds after which what was stored on a tier ends, if it has not been stored
    /// again; finite, above 0.
    pub max_age: PerTier<Option<f64>>,
    /// Media besides the standard ones, in any case; they come first.
    pub media: Vec<(String, Tier)>,
    /// Whether a hash only ever means this holder's own blocks.
    pub own_names: bool,
    /// The parent value that means "no parent".
    pub root: Option<Name>,
    /// Names of adapters that come as integers.
    pub lora_ids: Vec<(i64, String)>,
}

impl Profile {
    /// The habits of a kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            clears: None,
            // FlexKV says at each insertion what was there before, too.
            copies: [true, kind != Kind::FlexKv, false, false],
            chunk_tokens: [0; 4],
            max_age: [None; 4],
            media: Vec::new(),
            own_names: false,
            root: None,
            lora_ids: Vec::new(),
        }
    }

    /// Checks that chunks are whole blocks, and at most `most` of them, and that
    /// limits of age are.
    pub(crate) fn check(&self, block_size: u32, most: u64) -> Result<(), ConfigError> {
        for (tier, tokens) in Tier::ALL.into_iter().zip(self.chunk_tokens) {
            if !tokens.is_multiple_of(block_size) || u64::from(tokens / block_size) > most {
                return Err(ConfigError(format!(
                    "chunk_tokens for {} must be a multiple of the block size \
                     {block_size} and at most {most} blocks, not {tokens}",
                    tier.name()
                )));
            }
        }
        for (tier, limit) in Tier::ALL.into_iter().zip(self.max_age) {
            if let Some(seconds) = limit.filter(|limit| !(limit.is_finite() && *limit > 0.0)) {
                return Err(ConfigError(format!(
                    "max_age for {} must be a finite number of seconds above 0, not {seconds}",
                    tier.name()
                )));
            }
        }
        Ok(())
    }

    /// Whether a block without a namespace of its own has its parent's.
    pub fn inherits_namespace(&self) -> bool {
        self.kind != Kind::Sglang
    }

    /// Whether names without tokens and without a parent are those of a whole
    /// prefix, computed from its tokens.
    pub(crate) fn computes_names(&self, tier: Tier) -> bool {
        self.kind == Kind::FlexKv && matches!(tier, Tier::Host | Tier::Disk)
    }

    /// Whether an integer without tokens and without a parent is the end of the
    /// digest of a page that SGLang has stored.
    pub(crate) fn names_digests(&self) -> bool {
        self.kind == Kind::Mooncake
    }

    /// The tiers that clear number `nth` of `total` in one batch empties.
    ///
    /// vLLM's offloading connectors queue a clear of their own behind that of
    /// the GPU pool.
    pub fn cleared(&self, nth: usize, total: usize) -> PerTier<bool> {
        match (self.clears, self.kind) {
            (Some(tiers), _) => tiers,
            (None, Kind::Vllm) if total == 2 && nth == 0 => [true, false, false, false],
            (None, Kind::Vllm) if total == 2 => [false, true, true, false],
            (None, Kind::Vllm) => [true, true, false, false],
            // FlexKV tells nothing of its own resets.
            (None, Kind::FlexKv) => [true, false, false, false],
            (None, _) => [true; 4],
        }
    }

    /// The tier that a medium means; `None` where it is unknown. What lies with
    /// somebody else is external, whatever its medium.
    pub fn tier(&self, medium: Option<&str>, remote: bool) -> Option<Tier> {
        if remote {
            return Some(Tier::External);
        }
        let own = medium.and_then(|medium| {
            let mut media = self.media.iter();
            media.find(|(name, _)| name.eq_ignore_ascii_case(medium))
        });
        if let Some(&(_, tier)) = own {
            return Some(tier);
        }
        let Some(medium) = medium else {
            return Some(Tier::Device);
        };
        let named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(medium));
        let tiers = Tier::ALL.into_iter();
        tiers
            .zip(MEDIA)
            .find(|(_, names)| named(names))
            .map(|(tier, _)| tier)
    }

    /// The name of an adapter that came as an integer.
    pub fn lora_name(&self, id: i64) -> Option<&str> {
        let named = self.lora_ids.iter().find(|(known, _)| *known == id);
        named.map(|(_, name)| name.as_str())
    }
}

//! Operations over tiny alphabets, as plain values that shrink well.

pub(crate) mod bytes;
pub(crate) mod strategy;

use kvindex::Sender;
use kvindex::event::{GroupKind, Image, Name, Reason, Tier};
use kvindex::key::hash_bytes;
use kvindex::profile::{Kind, Profile};

use super::answer::flexkv_names;
use super::model::Model;
use super::parties::key;
use super::said::{Removed, Said, Stored};

/// What is done to an index.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Batch(Sent),
    Register(usize, usize),
    Remove(usize),
    Reset(usize, u32),
    /// A worker to a pool.
    Attach(&'static str, &'static str),
    Detach(&'static str, &'static str),
    Clear,
    Predict(Predicted),
    /// By this time.
    Expire(u32),
    /// Look at totals, which finishes what clears left to do.
    Totals,
}

/// A prompt for which a worker was chosen.
#[derive(Clone, Debug)]
pub(crate) struct Predicted {
    pub(crate) worker: usize,
    pub(crate) rank: u32,
    pub(crate) letters: Vec<u32>,
    pub(crate) space: usize,
    pub(crate) now: u32,
    pub(crate) ttl: u32,
    pub(crate) capacity: Option<u32>,
}

/// A batch on its way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) sender: usize,
    pub(crate) rank: u32,
    /// Whether the batch itself names the rank.
    pub(crate) ranked: bool,
    pub(crate) source: &'static str,
    pub(crate) seq: Option<u64>,
    /// 0 = none, 1 = the worker's own, others are stale.
    pub(crate) epoch: u64,
    pub(crate) now: u32,
    pub(crate) events: Vec<Told>,
}

/// An event: which blocks of which chain.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Store(StoreText),
    Remove(RemoveText),
    /// What was said so many events ago, by whomever.
    Again(usize),
    /// Names under which the holder has copies, from one on.
    RemoveHeld(usize, usize),
    Clear,
    Unreadable(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct StoreText {
    chain: ChainText,
    /// Blocks of the chain that are not stored, but the parent of what is.
    above: usize,
    /// Blocks a hash.
    unit: usize,
    tokens: TokensText,
    parent: ParentText,
    medium: Option<&'static str>,
    /// Whether the event names the namespace, or leaves it to be inherited.
    spoken: bool,
    /// Whether the salt comes as an extra key of this block.
    salt_of: Option<u32>,
    image: Option<(u32, i64)>,
    pairs: bool,
    odd: OddText,
}

/// A chain of blocks and how an engine names them.
#[derive(Clone, Debug)]
struct ChainText {
    /// The name of the block that it hangs below.
    base: u64,
    letters: Vec<u32>,
    space: usize,
    dialect: u64,
}

#[derive(Clone, Copy, Debug)]
enum TokensText {
    Full,
    None,
    Partial,
    TooFew,
}

#[derive(Clone, Copy, Debug)]
enum ParentText {
    True,
    /// The chain hangs below something that somebody holds.
    Held(usize),
    Root,
    Unknown,
    Itself,
}

/// Rare fields.
#[derive(Clone, Copy, Debug)]
enum OddText {
    Plain,
    Size(Option<u64>),
    LoraId(i64),
    Group(Option<u32>, Option<GroupKind>),
    Remote,
    ExtraKeys,
    Twice,
}

#[derive(Clone, Debug)]
pub(crate) struct RemoveText {
    chain: ChainText,
    /// Blocks of the chain that stay.
    above: usize,
    medium: Option<&'static str>,
    odd: OddText,
}

pub(crate) const SPACES: [(&str, &str); 5] =
    [("", ""), ("x", ""), ("", "s"), ("x", "s"), ("", "z")];
/// How many profiles there are.
const PROFILES: usize = 9;
/// The dialect in which names on host and disk are FlexKV's.
const FLEXKV: u64 = 8;
/// And the profile that reads them so.
const FLEXKV_PROFILE: usize = 7;
const WORKERS: [&str; 3] = ["w0", "w1", "w2"];
/// One is called like a worker.
const POOLS: [&str; 2] = ["p0", "w1"];
pub(crate) const SENDERS: usize = WORKERS.len() + POOLS.len();

/// The workers, and behind them the pools.
pub(crate) fn sender(number: usize) -> Sender<'static> {
    match number.checked_sub(WORKERS.len()) {
        None => Sender::Worker(WORKERS[number]),
        Some(number) => Sender::Pool(POOLS[number]),
    }
}

/// The profiles that workers are registered with.
pub(crate) fn profile(number: usize, block_size: u32) -> Profile {
    let (vllm, sglang) = (Profile::new(Kind::Vllm), Profile::new(Kind::Sglang));
    match number {
        0 => Profile::new(Kind::Auto),
        1 => vllm,
        2 => sglang,
        3 => Profile {
            chunk_tokens: [0, 2 * block_size, 5 * block_size, 0],
            copies: [true, false, true, false],
            ..vllm
        },
        4 => Profile {
            clears: Some([true, false, false, true]),
            copies: [false; 4],
            media: vec![("ramdisk".into(), Tier::Disk), ("gpu".into(), Tier::Host)],
            lora_ids: vec![(7, "x".into())],
            ..vllm
        },
        5 => Profile {
            own_names: true,
            root: Some(Name::from_integer(0)),
            copies: [true; 4],
            ..vllm
        },
        6 => Profile {
            own_names: true,
            chunk_tokens: [2 * block_size; 4],
            ..sglang
        },
        FLEXKV_PROFILE => Profile::new(Kind::FlexKv),
        _ => Profile {
            max_age: [Some(4.0), Some(2.0), Some(3.0), None],
            clears: Some([true, true, false, false]),
            ..vllm
        },
    }
}

/// What an engine calls the last block of a chain.
fn name(base: u64, letters: &[u32], space: usize, dialect: u64) -> Name {
    let hash = |space: usize, seed: u64| {
        let bytes = format!("{base} {letters:?} {:?} {seed}", SPACES[space]);
        hash_bytes(bytes.as_bytes())
    };
    let bytes = |first: u8, low: u64| {
        let mut bytes = [first; 32];
        bytes[24..].copy_from_slice(&low.to_be_bytes());
        Name::from_bytes(&bytes)
    };
    match dialect {
        // Engines that agree, that seed their hashes, that leave the namespace out.
        0 | 1 => Name::from_integer(hash(space, dialect)),
        2 => Name::from_integer(hash(0, 2)),
        // One engine's byte strings that end with another one's integers.
        3 => bytes(3, hash(space, 0)),
        // Blocks that are numbered; 0 is the root of some.
        4 => Name::from_integer(letters.len() as u64 - 1),
        // Byte strings that end alike, and the integer that matches both.
        5 => Name::from_integer(hash(0, 5)),
        _ => bytes(dialect as u8, hash(0, 5)),
    }
}

impl ChainText {
    fn name(&self, blocks: usize, block_size: usize) -> Name {
        if self.dialect == FLEXKV {
            let tokens = tokens(&self.letters[..blocks], block_size);
            let names = flexkv_names(&tokens, block_size);
            return Name::from_integer(names[blocks - 1]);
        }
        name(self.base, &self.letters[..blocks], self.space, self.dialect)
    }
}

/// The tokens of blocks.
pub(crate) fn tokens(letters: &[u32], block_size: usize) -> Vec<u32> {
    let block = |letter: &u32| {
        let letter = *letter;
        (0..block_size).map(move |i| letter + 10 * i as u32)
    };
    letters.iter().flat_map(block).collect()
}

impl StoreText {
    /// Whether FlexKV says it, without tokens.
    fn is_flexkv(&self) -> bool {
        let medium = matches!(self.medium, Some("CPU" | "storage"));
        self.chain.dialect == FLEXKV && medium
    }

    /// The prompt that FlexKV's names stand for.
    pub(crate) fn prompt(&self, block_size: usize) -> Option<Vec<u32>> {
        self.is_flexkv()
            .then(|| tokens(&self.chain.letters, block_size))
    }

    fn said(&self, model: &Model) -> Said {
        let block_size = model.config.block_size as usize;
        let (unit, mut above) = (self.unit, self.above.min(self.chain.letters.len() - 1));
        if self.is_flexkv() {
            above = 0;
        }
        let mut below = None;
        if let ParentText::Held(number) = self.parent {
            let copies: Vec<_> = model.holders.values().flat_map(|h| &h.copies).collect();
            below = copies.get(number % copies.len().max(1)).map(|c| c.name);
            above = 0;
        }
        let hashes = ((self.chain.letters.len() - above) / unit).max(1);
        let mut chain = self.chain.clone();
        chain.letters.resize(above + hashes * unit, 0);
        chain.base = below.map_or(0, Name::low);
        let names = (1..=hashes).map(|hash| chain.name(above + hash * unit, block_size));
        let mut stored = Stored {
            names: names.collect(),
            pairs: self.pairs,
            medium: self.medium,
            size: (unit > 1).then_some((unit * block_size) as u64),
            ..Stored::default()
        };
        stored.tokens = self.tokens(&chain.letters[above..], hashes, block_size);
        stored.parent = match self.parent {
            ParentText::True if above > 0 => Some(chain.name(above, block_size)),
            ParentText::True | ParentText::Root => None,
            ParentText::Held(_) => below,
            ParentText::Unknown => Some(Name::from_integer(404)),
            ParentText::Itself => Some(stored.names[0]),
        };
        self.name_space(&mut stored, hashes);
        if let Some((block, offset)) = self.image.filter(|_| !stored.tokens.is_empty()) {
            stored.extra_keys = true;
            stored.images.push(Image {
                block: block % hashes as u32,
                offset,
                hash: 77,
            });
        }
        self.add_odd(&mut stored);
        Said::Stored(stored)
    }

    fn tokens(&self, letters: &[u32], hashes: usize, block_size: usize) -> Vec<u32> {
        let blocks = match self.tokens {
            TokensText::None => return Vec::new(),
            _ if self.is_flexkv() => return Vec::new(),
            TokensText::TooFew => (hashes - 1) * self.unit,
            _ => hashes * self.unit,
        };
        let mut tokens = tokens(&letters[..blocks], block_size);
        if matches!(self.tokens, TokensText::Partial) {
            tokens.pop();
        }
        if self.pairs {
            tokens.push(5);
        }
        tokens
    }

    fn name_space(&self, stored: &mut Stored, hashes: usize) {
        let (lora, salt) = SPACES[self.chain.space];
        if !self.spoken {
            return;
        }
        stored.lora = (!lora.is_empty()).then_some(lora);
        if !salt.is_empty() {
            match self.salt_of {
                Some(block) => {
                    stored.salts.push((block % hashes as u32, salt));
                    stored.extra_keys = true;
                }
                None => stored.salt = Some(salt),
            }
        }
    }

    fn add_odd(&self, stored: &mut Stored) {
        match self.odd {
            OddText::Plain => {}
            OddText::Size(size) => stored.size = size,
            OddText::LoraId(id) => stored.lora_id = Some(id),
            OddText::Group(group, kind) => (stored.group, stored.kind) = (group, kind),
            OddText::Remote => stored.remote = true,
            OddText::ExtraKeys => stored.extra_keys = true,
            OddText::Twice => {
                let first = stored.names[0];
                *stored.names.last_mut().unwrap() = first;
            }
        }
    }
}

impl RemoveText {
    fn said(&self, block_size: usize) -> Said {
        let blocks = self.chain.letters.len();
        let above = self.above.min(blocks - 1);
        let mut removed = Removed {
            names: (above + 1..=blocks)
                .map(|end| self.chain.name(end, block_size))
                .collect(),
            medium: self.medium,
            ..Removed::default()
        };
        match self.odd {
            OddText::Group(group, kind) => (removed.group, removed.kind) = (group, kind),
            OddText::Remote => removed.remote = true,
            OddText::Twice => removed.names.push(removed.names[0]),
            _ => {}
        }
        Said::Removed(removed)
    }
}

impl Sent {
    /// The events as they are said, given what is held before the batch and was
    /// said before.
    pub(crate) fn said(&self, model: &Model, before: &[Said]) -> Vec<Said> {
        let said = |told: &Told| match told {
            Told::Again(ago) => match before.iter().rev().nth(*ago) {
                Some(said) => said.clone(),
                None => Said::Removed(Removed::default()),
            },
            Told::Store(store) => store.said(model),
            Told::Remove(remove) => remove.said(model.config.block_size as usize),
            Told::RemoveHeld(from, count) => self.remove_held(model, *from, *count),
            Told::Clear => Said::Cleared,
            Told::Unreadable(hashes) => Said::Unreadable(Reason::Malformed, *hashes),
        };
        self.events.iter().map(said).collect()
    }

    fn remove_held(&self, model: &Model, from: usize, count: usize) -> Said {
        let key = key(sender(self.sender), self.rank);
        let copies = model.holders.get(&key).map_or(&[][..], |h| &h.copies);
        let Some(first) = copies.get(from % copies.len().max(1)) else {
            return Said::Removed(Removed::default());
        };
        let profile = model.profile(&key);
        let mut media = ["gpu", "device", "cpu", "disk", "external"].into_iter();
        let same = copies.iter().filter(|copies| copies.tier == first.tier);
        Said::Removed(Removed {
            names: same.skip(from % 3).take(count).map(|c| c.name).collect(),
            medium: media.find(|m| profile.tier(Some(m), false) == Some(first.tier)),
            ..Removed::default()
        })
    }
}

//! Checks a batch and computes its keys, before any lock is taken.
//!
//! A block without a namespace of its own has its parent's, which is only known
//! under the lock. Keys are computed here as if the parent had none; where it
//! has, [`Layout::locals`] computes them again.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use crate::error::DecodeError;
use crate::event::{Batch, Event, GroupKind, Image, Name, Reason, Store};
use crate::index::Config;
use crate::key::{BlockHasher, PageImage, namespace_seed};
use crate::namespace::{Family, Namespace};

/// The longest unit, in blocks.
pub(crate) const MAX_UNIT: u64 = u16::MAX as u64;

/// How a store is to be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// What is wrong with all of it.
    pub(crate) fault: Option<Reason>,
    /// Hashes with tokens; one fewer than came if the last block is not full.
    pub(crate) count: usize,
    /// Whether the last hash was dropped.
    pub(crate) partial: bool,
    /// Blocks a hash; 0 where it is not one or more whole blocks.
    pub(crate) unit: u32,
    /// Tokens a hash, where it is a page: several make a block.
    pub(crate) page: Option<NonZeroU32>,
    /// The local keys, into [`Prepared::locals`].
    pub(crate) locals: Range<usize>,
    /// The namespaces under a parent without one.
    pub(crate) spaces: Spaces,
}

/// A batch with its keys computed, ready to be applied.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) batch: Batch,
    /// One an event; empty for what is no store.
    pub(crate) plans: Vec<Plan>,
    pub(crate) locals: Vec<u64>,
}

impl Prepared {
    pub(crate) fn new(batch: Batch, config: &Config, strict: bool) -> Result<Self, DecodeError> {
        let mut plans = Vec::with_capacity(batch.events.len());
        let mut locals = Vec::with_capacity(batch.names.len());
        for (number, event) in batch.events.iter().enumerate() {
            let plan = match event {
                Event::Store(store) => Plan::new(&batch, store, config, &mut locals),
                _ => Plan::default(),
            };
            let fault = match event {
                Event::Fault { reason, .. } => Some(*reason),
                Event::Store(store) => plan.own_fault(store),
                _ => None,
            };
            if let Some(reason) = fault.filter(|_| strict) {
                return Err(DecodeError {
                    message: format!("{}: {}", reason.name(), reason.describe()),
                    offset: None,
                    event: Some(number),
                });
            }
            plans.push(plan);
        }
        Ok(Self {
            batch,
            plans,
            locals,
        })
    }

    /// All hashes of the batch; an unreadable event counts as it says.
    pub(crate) fn hashes(&self) -> u64 {
        let count = |event: &Event| match event {
            Event::Store(store) => store.names.len() as u64,
            Event::Remove(remove) => remove.names.len() as u64,
            Event::Clear => 0,
            Event::Fault { hashes, .. } => *hashes,
        };
        self.batch.events.iter().map(count).sum()
    }
}

impl Plan {
    /// What an event shows by itself to be wrong, whatever came before it: the
    /// tokens of other groups need not fit their hashes.
    fn own_fault(&self, store: &Store) -> Option<Reason> {
        let partial = self.partial.then_some(Reason::Partial);
        let fault = self.fault.or(partial)?;
        let of_tokens = matches!(fault, Reason::Tokens | Reason::Partial);
        (!of_tokens || may_be_main(store)).then_some(fault)
    }

    fn new(batch: &Batch, store: &Store, config: &Config, locals: &mut Vec<u64>) -> Self {
        let block_size = config.block_size;
        let mut plan = Self::default();
        let names = &batch.names[store.names.clone()];
        plan.fault = fault(names, store);
        if is_other(store) && !config.group_rules {
            return plan;
        }
        let size = store.block_size.unwrap_or(u64::from(block_size));
        let blocks = size / u64::from(block_size);
        if size.is_multiple_of(u64::from(block_size)) && blocks <= MAX_UNIT {
            plan.unit = blocks as u32;
        } else if blocks == 0 && size > 0 && u64::from(block_size).is_multiple_of(size) {
            plan.page = NonZeroU32::new(size as u32);
        }
        if plan.fault.is_some() || !store.has_content() {
            return plan;
        }
        if !store.locals.is_empty() {
            return plan.by_keys(batch, store, locals);
        }
        let tokens = (store.tokens.len() - usize::from(store.pairs)) as u64;
        let hashes = names.len() as u64;
        let most = hashes.saturating_mul(size);
        let without_last = hashes.saturating_sub(1).saturating_mul(size);
        if size == 0 || tokens > most || tokens <= without_last {
            plan.fault = Some(Reason::Tokens);
            return plan;
        }
        plan.partial = tokens < most;
        plan.count = names.len() - usize::from(plan.partial);
        // The blocks of other groups are mostly known by name.
        if plan.unit == 0 || is_other(store) {
            return plan;
        }
        let layout = Layout {
            batch,
            store,
            count: plan.count,
            unit: plan.unit as usize,
            block_size: block_size as usize,
        };
        plan.compute(&layout, locals);
        plan
    }

    /// The plan of a store whose local keys came instead of its tokens: one for
    /// each hash, for blocks of the index's size.
    fn by_keys(mut self, batch: &Batch, store: &Store, locals: &mut Vec<u64>) -> Self {
        self.count = store.names.len();
        if !store.tokens.is_empty() || store.locals.len() != self.count {
            self.fault = Some(Reason::Tokens);
            return self;
        }
        self.unit = u32::from(self.unit == 1);
        self.page = None;
        let layout = Layout {
            batch,
            store,
            count: self.count,
            unit: 1,
            block_size: 0,
        };
        self.compute(&layout, locals);
        self
    }

    fn compute(&mut self, layout: &Layout<'_>, locals: &mut Vec<u64>) {
        let (batch, store) = (layout.batch, layout.store);
        let lora = store.lora.map_or("", |id| &batch.texts[id as usize]);
        self.spaces = layout.spaces(lora, Some(&Namespace::default()));
        let start = locals.len();
        layout.locals(&self.spaces, locals);
        self.locals = start..locals.len();
    }
}

/// Whether an event may be of the main group, as far as it says itself.
fn may_be_main(store: &Store) -> bool {
    let first = store.group.is_none_or(|group| group == 0);
    !is_other(store) && (store.kind.is_some() || first)
}

/// Whether an event says that it is of a group besides the main one.
fn is_other(store: &Store) -> bool {
    store.kind.is_some_and(|kind| kind != GroupKind::Full)
}

/// What is wrong with a store's hashes.
fn fault(names: &[Name], store: &Store) -> Option<Reason> {
    let own = |parent: Name| names.iter().any(|name| name.matches(parent));
    if store.parent.is_some_and(own) {
        return Some(Reason::Parent);
    }
    (store.has_content() && repeats(names)).then_some(Reason::DuplicateHash)
}

fn repeats(names: &[Name]) -> bool {
    if names.len() <= 16 {
        let mut earlier = names.iter().enumerate();
        return earlier.any(|(i, name)| names[..i].iter().any(|known| known.matches(*name)));
    }
    // An integer comes before the byte strings that it matches.
    let mut sorted: Vec<(u64, u64)> = names.iter().map(|name| (name.low(), name.wide())).collect();
    sorted.sort_unstable();
    let same =
        |pair: &[(u64, u64)]| pair[0].0 == pair[1].0 && (pair[0].1 == 0 || pair[0].1 == pair[1].1);
    sorted.windows(2).any(same)
}

/// The namespaces along a store: the one of its first hash, then from which
/// hash on another one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spaces {
    pub(crate) first: Namespace,
    pub(crate) later: Vec<(usize, Namespace)>,
}

impl Spaces {
    /// The namespace of a hash.
    pub(crate) fn at(&self, hash: usize) -> &Namespace {
        let later = self.later.partition_point(|(start, _)| *start <= hash);
        let last = later.checked_sub(1);
        last.map_or(&self.first, |last| &self.later[last].1)
    }

    /// The stretches of hashes of one namespace up to `count`.
    pub(crate) fn stretches(
        &self,
        count: usize,
    ) -> impl Iterator<Item = (Range<usize>, &Namespace)> {
        let starts = std::iter::once((0, &self.first));
        let starts = starts.chain(self.later.iter().map(|(start, space)| (*start, space)));
        let ends = self.later.iter().map(|entry| entry.0).chain([count]);
        starts
            .zip(ends)
            .map(|((start, space), end)| (start..end, space))
    }
}

/// How the tokens of a store lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) store: &'a Store,
    /// Hashes.
    pub(crate) count: usize,
    /// Blocks a hash.
    pub(crate) unit: usize,
    /// Tokens a block.
    pub(crate) block_size: usize,
}

impl Layout<'_> {
    /// The tokens of one block, and the one behind it for pairs.
    pub(crate) fn tokens(&self, block: usize) -> &[u32] {
        let start = self.store.tokens.start + block * self.block_size;
        let end = start + self.block_size + usize::from(self.store.pairs);
        &self.batch.tokens[start..end]
    }

    /// The namespaces of the store's hashes below a parent in `inherited`; `None`
    /// where the source's blocks inherit nothing, from each other neither.
    pub(crate) fn spaces(&self, lora: &str, inherited: Option<&Namespace>) -> Spaces {
        let text = |id: u32| Arc::<str>::from(&*self.batch.texts[id as usize]);
        let none = Namespace::default();
        let parent = inherited.unwrap_or(&none);
        let lora = if lora.is_empty() {
            parent.lora.clone()
        } else {
            lora.into()
        };
        let event_salt = self.store.salt.map(text);
        let event_salt = event_salt.or_else(|| inherited.is_none().then(Arc::default));
        let mut space = Namespace {
            lora,
            salt: event_salt.clone().unwrap_or_else(|| parent.salt.clone()),
            family: if self.store.pairs {
                Family::Pair
            } else {
                Family::Single
            },
        };
        let mut spaces = Spaces::default();
        let salts = self.store.salts(self.batch);
        let mut own = salts.iter().peekable();
        if let Some(salt) = own.next_if(|salt| salt.block == 0) {
            space.salt = text(salt.text);
        }
        spaces.first = space.clone();
        // Behind a block with a salt of its own the event's salt holds again.
        let mut change = |block: usize, salt: Arc<str>| {
            if salt != space.salt {
                space.salt = salt;
                spaces.later.push((block, space.clone()));
            }
        };
        let mut next = usize::from(salts.first().is_some_and(|salt| salt.block == 0));
        for salt in own {
            let block = salt.block as usize;
            if let Some(event_salt) = event_salt.as_ref().filter(|_| next > 0 && next < block) {
                change(next, event_salt.clone());
            }
            change(block, text(salt.text));
            next = block + 1;
        }
        if let Some(event_salt) = event_salt.filter(|_| next > 0 && next < self.count) {
            change(next, event_salt);
        }
        spaces.later.retain(|&(block, _)| block < self.count);
        spaces
    }

    /// Appends the local keys of all blocks: those that came, whatever the
    /// namespace, else those of the tokens.
    pub(crate) fn locals(&self, spaces: &Spaces, locals: &mut Vec<u64>) {
        if !self.store.locals.is_empty() {
            let given = self.store.local_keys(self.batch);
            return locals.extend(&given[..self.count]);
        }
        let images = &self.batch.images[self.store.images.clone()];
        for (hashes, space) in spaces.stretches(self.count) {
            let mut hasher = BlockHasher::new(namespace_seed(&space.lora, &space.salt));
            for block in hashes.start * self.unit..hashes.end * self.unit {
                let tokens = self.tokens(block);
                let key = if images.is_empty() {
                    hasher.local(tokens, &mut [])
                } else {
                    hasher.local(tokens, &mut self.images(block))
                };
                locals.push(key);
            }
        }
    }

    /// The images of a hash that is a page and begins so many tokens into its
    /// block.
    pub(crate) fn page_images(&self, hash: usize, start: u32) -> Vec<PageImage> {
        let mut images: Vec<PageImage> = Vec::new();
        for image in self.images_of(hash) {
            let begin = match image.offset {
                i64::MIN => i64::MIN,
                offset => offset.saturating_add(i64::from(start)),
            };
            let same = images
                .iter()
                .filter(|known| (known.0, known.1) == (image.hash, begin));
            images.push((image.hash, begin, same.count() as u32));
        }
        images.sort_unstable();
        images
    }

    fn images_of(&self, hash: usize) -> impl Iterator<Item = &Image> {
        let images = &self.batch.images[self.store.images.clone()];
        let first = images.partition_point(|image| (image.block as usize) < hash);
        let own = images[first..].iter();
        own.take_while(move |image| image.block as usize == hash)
    }

    /// The multimodal hashes of one block: those of its hash that begin before
    /// the block's end, and in the last block of a hash all that are left.
    fn images(&self, block: usize) -> Vec<u64> {
        let (hash, within) = (block / self.unit, block % self.unit);
        let last = within + 1 == self.unit;
        let end = i64::try_from((within + 1) * self.block_size).unwrap_or(i64::MAX);
        let own = self.images_of(hash);
        let own = own.filter(|image| last || image.offset < end);
        own.map(|image| image.hash).collect()
    }
}

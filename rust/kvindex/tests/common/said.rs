//! What an engine says, spelled out: the tests' way to write a batch.

use kvindex::event::{Batch, Event, GroupKind, Image, Name, Reason, Remove, Salt, Store};

/// Blocks stored, with everything that the wire can say of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) names: Vec<Name>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) pairs: bool,
    pub(crate) parent: Option<Name>,
    pub(crate) size: Option<u64>,
    pub(crate) lora: Option<&'static str>,
    pub(crate) lora_id: Option<i64>,
    pub(crate) salt: Option<&'static str>,
    pub(crate) medium: Option<&'static str>,
    pub(crate) remote: bool,
    pub(crate) group: Option<u32>,
    pub(crate) kind: Option<GroupKind>,
    pub(crate) images: Vec<Image>,
    pub(crate) salts: Vec<(u32, &'static str)>,
    pub(crate) extra_keys: bool,
}

/// Stores blocks under integer names, from the root and on the device unless
/// told otherwise.
pub(crate) fn store(names: impl IntoIterator<Item = u64>, tokens: &[u32]) -> Stored {
    Stored {
        names: names.into_iter().map(Name::from_integer).collect(),
        tokens: tokens.to_vec(),
        ..Stored::default()
    }
}

impl Stored {
    pub(crate) fn below(self, parent: u64) -> Self {
        let parent = Some(Name::from_integer(parent));
        Self { parent, ..self }
    }

    pub(crate) fn on(self, medium: &'static str) -> Self {
        let medium = Some(medium);
        Self { medium, ..self }
    }

    pub(crate) fn sized(self, size: u64) -> Self {
        let size = Some(size);
        Self { size, ..self }
    }

    pub(crate) fn lora(self, lora: &'static str) -> Self {
        let lora = Some(lora);
        Self { lora, ..self }
    }

    pub(crate) fn salt(self, salt: &'static str) -> Self {
        let salt = Some(salt);
        Self { salt, ..self }
    }

    /// Gives one block a salt of its own.
    pub(crate) fn block_salt(mut self, block: u32, salt: &'static str) -> Self {
        self.salts.push((block, salt));
        self.extra_keys = true;
        self
    }
}

/// Blocks removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removed {
    pub(crate) names: Vec<Name>,
    pub(crate) medium: Option<&'static str>,
    pub(crate) remote: bool,
    pub(crate) group: Option<u32>,
    pub(crate) kind: Option<GroupKind>,
}

/// Removes blocks by integer names.
pub(crate) fn remove(names: impl IntoIterator<Item = u64>) -> Removed {
    Removed {
        names: names.into_iter().map(Name::from_integer).collect(),
        ..Removed::default()
    }
}

impl Removed {
    pub(crate) fn on(self, medium: &'static str) -> Self {
        let medium = Some(medium);
        Self { medium, ..self }
    }
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Stored(Stored),
    Removed(Removed),
    Cleared,
    Unreadable(Reason, u64),
}

impl From<Stored> for Said {
    fn from(stored: Stored) -> Self {
        Self::Stored(stored)
    }
}

impl From<Removed> for Said {
    fn from(removed: Removed) -> Self {
        Self::Removed(removed)
    }
}

/// The batch of some events.
pub(crate) fn batch(events: impl IntoIterator<Item = Said>) -> Batch {
    let mut batch = Batch::default();
    for said in events {
        let event = match said {
            Said::Stored(stored) => stored_event(&mut batch, stored),
            Said::Removed(removed) => removed_event(&mut batch, removed),
            Said::Cleared => Event::Clear,
            Said::Unreadable(reason, hashes) => Event::Fault { reason, hashes },
        };
        batch.events.push(event);
    }
    batch
}

fn stored_event(batch: &mut Batch, stored: Stored) -> Event {
    let names = batch.names.len()..batch.names.len() + stored.names.len();
    let tokens = batch.tokens.len()..batch.tokens.len() + stored.tokens.len();
    let images = batch.images.len()..batch.images.len() + stored.images.len();
    let salts = batch.salts.len() as u32..(batch.salts.len() + stored.salts.len()) as u32;
    batch.names.extend(stored.names);
    batch.tokens.extend(stored.tokens);
    batch.images.extend(stored.images);
    for (block, salt) in stored.salts {
        let text = batch.text(salt);
        batch.salts.push(Salt { block, text });
    }
    Event::Store(Store {
        names,
        tokens,
        locals: 0..0,
        pairs: stored.pairs,
        parent: stored.parent,
        block_size: stored.size,
        lora: stored.lora.map(|lora| batch.text(lora)),
        lora_id: stored.lora_id,
        salt: stored.salt.map(|salt| batch.text(salt)),
        medium: stored.medium.map(|medium| batch.text(medium)),
        remote: stored.remote,
        group: stored.group,
        kind: stored.kind,
        images,
        salts,
        extra_keys: stored.extra_keys,
    })
}

fn removed_event(batch: &mut Batch, removed: Removed) -> Event {
    let names = batch.names.len()..batch.names.len() + removed.names.len();
    batch.names.extend(removed.names);
    Event::Remove(Remove {
        names,
        medium: removed.medium.map(|medium| batch.text(medium)),
        remote: removed.remote,
        group: removed.group,
        kind: removed.kind,
    })
}

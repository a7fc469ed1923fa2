//! Which field stands where, in an event of each kind.

use super::Fail;
use crate::event::Reason;

/// What an event reports.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Store,
    Remove,
    Clear,
}

#[derive(Clone, Copy)]
pub(super) enum Field {
    Hashes,
    Parent,
    Tokens,
    LocalKeys,
    BlockSize,
    LoraId,
    Medium,
    Lora,
    /// The adapter's name, or a map of options that an array ends with.
    LoraOrOptions,
    Salt,
    ExtraKeys,
    Group,
    GroupKind,
    Window,
    Locality,
    Other,
}

impl Kind {
    /// The kind of that name.
    pub(super) fn of(tag: &[u8]) -> Result<Self, Fail> {
        match tag {
            b"BlockStored" => Ok(Self::Store),
            b"BlockRemoved" => Ok(Self::Remove),
            b"AllBlocksCleared" => Ok(Self::Clear),
            _ => Err(Fail::fault(Reason::UnknownType)),
        }
    }

    /// How many fields every array of this kind has had, in any version.
    pub(super) const fn required(self) -> usize {
        match self {
            Self::Store => 3,
            Self::Remove => 1,
            Self::Clear => 0,
        }
    }

    /// The fields of an array behind its tag.
    pub(super) const fn positions(self) -> &'static [Field] {
        match self {
            Self::Store => &[
                Field::Hashes,
                Field::Parent,
                Field::Tokens,
                Field::BlockSize,
                Field::LoraId,
                Field::Medium,
                Field::LoraOrOptions,
                Field::ExtraKeys,
                Field::Group,
                Field::GroupKind,
                Field::Window,
            ],
            Self::Remove => &[Field::Hashes, Field::Medium, Field::Group],
            Self::Clear => &[],
        }
    }

    /// The field that a map's key names.
    pub(super) fn named(self, key: &[u8]) -> Field {
        let field = match key {
            b"block_hashes" => Field::Hashes,
            b"medium" => Field::Medium,
            b"group_idx" => Field::Group,
            b"kv_cache_spec_kind" => Field::GroupKind,
            b"locality" => Field::Locality,
            _ => return self.named_of_store(key),
        };
        match self {
            Self::Store | Self::Remove => field,
            Self::Clear => Field::Other,
        }
    }

    fn named_of_store(self, key: &[u8]) -> Field {
        if !matches!(self, Self::Store) {
            return Field::Other;
        }
        match key {
            b"token_ids" => Field::Tokens,
            b"local_keys" => Field::LocalKeys,
            b"parent_block_hash" => Field::Parent,
            b"block_size" => Field::BlockSize,
            b"lora_id" => Field::LoraId,
            b"lora_name" => Field::Lora,
            b"extra_keys" => Field::ExtraKeys,
            b"cache_salt" => Field::Salt,
            b"kv_cache_spec_sliding_window" => Field::Window,
            _ => Field::Other,
        }
    }
}

//! How does a registered worker's source behave?

use kvindex::event::{Name, Tier};
use kvindex::profile::{Kind, PerTier, Profile};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::config_error;
use crate::integers::engine_hash;
use crate::settings::{Tiers, chunk_tokens, items, tier};

/// What a registration says besides the kind.
pub(crate) struct Given<'a> {
    pub(crate) clears: Option<Tiers>,
    pub(crate) copies: Option<Tiers>,
    pub(crate) chunk_tokens: Option<ChunkTokens>,
    pub(crate) media: Option<Media>,
    pub(crate) names: Option<&'a str>,
    pub(crate) root_hash: Option<RootHash>,
    pub(crate) lora_ids: Option<LoraIds>,
}

impl Given<'_> {
    /// The habits of a kind, what is given overridden.
    pub(crate) fn over(self, kind: &str) -> PyResult<Profile> {
        let habits = of_kind(kind)?;
        Ok(Profile {
            clears: self.clears.map_or(habits.clears, |tiers| Some(tiers.0)),
            copies: self.copies.map_or(habits.copies, |tiers| tiers.0),
            chunk_tokens: self
                .chunk_tokens
                .map_or(habits.chunk_tokens, |chunks| chunks.0),
            media: self.media.map_or(habits.media, |media| media.0),
            own_names: self.names.map_or(Ok(habits.own_names), own_names)?,
            root: self.root_hash.map_or(habits.root, |root| Some(root.0)),
            lora_ids: self.lora_ids.map_or(habits.lora_ids, |names| names.0),
            kind: habits.kind,
        })
    }
}

/// The habits of the kind of that name.
fn of_kind(name: &str) -> PyResult<Profile> {
    let kind = Kind::from_name(name).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::name).join(", ");
        config_error(format!("profile is one of {known}, not {name:?}"))
    })?;
    Ok(Profile::new(kind))
}

/// Whether `names` says that a hash only means the worker's own blocks.
fn own_names(names: &str) -> PyResult<bool> {
    match names {
        "own" => Ok(true),
        "shared" => Ok(false),
        _ => Err(config_error(format!(
            "names is one of shared, own, not {names:?}"
        ))),
    }
}

/// Tokens a chunk by tier.
pub(crate) struct ChunkTokens(pub(crate) PerTier<u32>);

impl FromPyObject<'_, '_> for ChunkTokens {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let mut chunks = [0; 4];
        for (name, tokens) in items(&object)? {
            let tier = tier(&name)?;
            chunks[tier as usize] = chunk_tokens(&tokens, tier)?;
        }
        Ok(Self(chunks))
    }
}

/// Tiers by medium.
pub(crate) struct Media(pub(crate) Vec<(String, Tier)>);

impl FromPyObject<'_, '_> for Media {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let media = items(&object)?.into_iter().map(|(medium, name)| {
            let medium = medium.cast::<PyString>()?.to_str()?.to_ascii_lowercase();
            Ok((medium, tier(&name)?))
        });
        media.collect::<PyResult<_>>().map(Self)
    }
}

/// The parent value that means "no parent".
pub(crate) struct RootHash(pub(crate) Name);

impl FromPyObject<'_, '_> for RootHash {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        engine_hash(&object).map(Self)
    }
}

/// Names of adapters that come as integers.
pub(crate) struct LoraIds(pub(crate) Vec<(i64, String)>);

impl FromPyObject<'_, '_> for LoraIds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let names = items(&object)?.into_iter().map(|(id, name)| {
            let id = id.extract().map_err(|error: PyErr| {
                if error.is_instance_of::<PyOverflowError>(id.py()) {
                    config_error(format!("a LoRA id has 64 bits, {id} has more"))
                } else {
                    error
                }
            })?;
            Ok((id, name.extract()?))
        });
        names.collect::<PyResult<_>>().map(Self)
    }
}

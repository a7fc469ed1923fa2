//! How does a registered worker's source behave?

use std::sync::atomic::Ordering;

use kvindex::Sender;
use kvindex::event::{Name, Tier};
use kvindex::profile::{Kind, PerTier, Profile};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::decoding::made_by;
use crate::error::{Error, config_error};
use crate::indexer::Indexer;
use crate::integers::engine_hash;
use crate::settings::{Tiers, chunk_tokens, items, tier};

/// The engine of that name, as `kvindex.engines` knows it.
fn engine<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("kvindex.engines")?.call_method1("find", (name,))
}

/// The settings that a caller gives, over those of the engine.
pub(crate) struct Given<'a> {
    pub(crate) clears: Option<Tiers>,
    pub(crate) copies: Option<Tiers>,
    pub(crate) chunk_tokens: Option<ChunkTokens>,
    pub(crate) media: Option<Media>,
    pub(crate) names: Option<&'a str>,
    pub(crate) root_hash: Option<RootHash>,
    pub(crate) lora_ids: Option<LoraIds>,
    pub(crate) max_age: Option<MaxAge>,
}

impl Given<'_> {
    /// The whole profile.
    fn over(self, engine: &Bound<'_, PyAny>) -> PyResult<Profile> {
        let habits = of_kind(engine.getattr("kind")?.extract()?)?;
        let names = self.names.map(str::to_owned);
        let names = setting(names, engine, "names")?;
        let copies = setting(self.copies, engine, "copies")?;
        let chunks = setting(self.chunk_tokens, engine, "chunk_tokens")?;
        let media = setting(self.media, engine, "media")?;
        let lora_ids = setting(self.lora_ids, engine, "lora_ids")?;
        let max_age = setting(self.max_age, engine, "max_age")?;
        Ok(Profile {
            clears: setting(self.clears, engine, "clears")?.map(|tiers| tiers.0),
            copies: copies.map_or(habits.copies, |tiers| tiers.0),
            chunk_tokens: chunks.map_or(habits.chunk_tokens, |chunks| chunks.0),
            media: media.map_or(habits.media, |media| media.0),
            own_names: names.map_or(Ok(habits.own_names), |names| own_names(&names))?,
            root: setting(self.root_hash, engine, "root_hash")?.map(|root| root.0),
            lora_ids: lora_ids.map_or(habits.lora_ids, |names| names.0),
            max_age: max_age.map_or(habits.max_age, |limits| limits.0),
            kind: habits.kind,
        })
    }
}

impl Indexer {
    /// Registers a worker or a pool as a source of an engine's; returns its epoch.
    pub(crate) fn enroll(
        &self,
        py: Python<'_>,
        sender: Sender<'_>,
        name: &str,
        given: Given<'_>,
    ) -> Result<u64, Error> {
        let engine = engine(py, name)?;
        let profile = given.over(&engine)?;
        if profile.max_age != [None; 4] {
            self.ages.store(true, Ordering::Relaxed);
        }
        let decoder = made_by(&engine, self.index.config().block_size)?;
        let epoch = py.detach(|| match sender {
            Sender::Worker(worker) => self.index.register(worker, profile),
            Sender::Pool(pool) => self.index.register_pool(pool, profile),
        })?;
        self.decoders.set(sender, epoch, &engine, decoder)?;
        Ok(epoch)
    }
}

/// What the caller gives, or else the engine; `None` leaves it to the kind.
fn setting<T>(given: Option<T>, engine: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<T>>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    if given.is_some() {
        return Ok(given);
    }
    let value = engine.getattr(name)?;
    if value.is_none() {
        return Ok(None);
    }
    value.extract().map(Some)
}

/// The habits of the kind of that name.
fn of_kind(name: &str) -> PyResult<Profile> {
    let kind = Kind::from_name(name).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::name).join(", ");
        config_error(format!("an engine's kind is one of {known}, not {name:?}"))
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

/// Limits of age by tier, in seconds.
pub(crate) struct MaxAge(pub(crate) PerTier<Option<f64>>);

impl FromPyObject<'_, '_> for MaxAge {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let mut limits = [None; 4];
        for (name, seconds) in items(&object)? {
            limits[tier(&name)? as usize] = Some(seconds.extract()?);
        }
        Ok(Self(limits))
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

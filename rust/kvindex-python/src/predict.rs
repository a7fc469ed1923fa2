//! What is a worker expected to hold? Claims with a deadline.

use std::sync::atomic::Ordering;

use kvindex::{Blocks, Moment, Prediction};
use pyo3::prelude::*;
use pyo3::types::PyAnyMethods;

use crate::error::{Error, config_error};
use crate::images::Images;
use crate::indexer::{Indexer, seed};
use crate::integers::{Keys, Tokens};
use crate::settings::rank;

#[pymethods]
impl Indexer {
    /// Predicts that a worker will hold a prompt's blocks, since it was chosen.
    ///
    /// Until the deadline they count, as `predicted` and at the device's weight,
    /// where neither the worker nor a pool that it reaches holds them. Events take
    /// nothing away from predictions, and predictions nothing from what events
    /// said. Predicting again moves the deadline to a later time, never to an earlier
    /// one. A clear
    /// of the worker's device, `reset`, `remove_worker` and `clear` end them.
    ///
    /// Args:
    ///     tokens, lora_name, cache_salt, mm: As for `match`.
    ///     worker: The worker's name.
    ///     dp_rank: The rank.
    ///     ttl: Seconds until the deadline, 0 or more; 0 predicts nothing, infinity
    ///         is never.
    ///     now: The time in seconds, by default `time.monotonic()`. The clock must be
    ///         the same for all calls, those of `expire` and `apply` and of routers and
    ///         feeds included. What is due by then ends for this rank.
    ///     capacity: How many blocks may be predicted of the rank at once, None for
    ///         any number. Of a longer prompt only the first blocks are taken. Beyond
    ///         it what ends first goes first, then what was predicted least recently,
    ///         its deepest block first.
    ///
    /// Returns:
    ///     How many of the prompt's blocks are predicted now.
    ///
    /// Raises:
    ///     ConfigError: `ttl` is negative, or it or `now` is not a number.
    ///     OverflowError: A token is out of range.
    ///     TypeError: The tokens are no integers of 32 or 64 bits.
    ///
    /// Examples:
    ///     >>> import kvindex
    ///     >>> index = kvindex.Indexer(block_size=4)
    ///     >>> index.predict(range(8), worker="w0", ttl=5.0, now=100.0)
    ///     2
    ///     >>> index.match(range(12)).best().predicted
    ///     2
    ///     >>> index.expire(now=105.0), len(index.match(range(12)))
    ///     (2, 0)
    #[pyo3(signature = (
        tokens, /, *, worker, dp_rank=0, ttl=120.0, now=None, capacity=None, lora_name=None,
        cache_salt=None, mm=None
    ))]
    fn predict(
        &self,
        py: Python<'_>,
        tokens: Tokens,
        worker: &str,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
        ttl: f64,
        now: Option<f64>,
        capacity: Option<u32>,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
        mm: Option<Images>,
    ) -> Result<u64, Error> {
        let images = mm.unwrap_or_default();
        let blocks = Blocks::Tokens {
            tokens: &tokens.0,
            images: &images.0,
            seed: seed(lora_name, cache_salt),
        };
        let prediction = prediction(py, ttl, now, capacity)?;
        Ok(py.detach(|| self.index.predict(&blocks, worker, dp_rank, prediction))?)
    }

    /// Predicts blocks by their local keys, as `predict` does by tokens.
    ///
    /// Args:
    ///     local_keys: As for `match_keys`.
    ///     worker, dp_rank, ttl, now, capacity: As for `predict`.
    ///
    /// Returns:
    ///     How many of the blocks are predicted now.
    ///
    /// Raises:
    ///     ConfigError: `ttl` is negative, or it or `now` is not a number.
    ///     OverflowError: A key is out of range.
    ///     TypeError: The keys are no integers.
    #[pyo3(signature = (
        local_keys, /, *, worker, dp_rank=0, ttl=120.0, now=None, capacity=None
    ))]
    fn predict_keys(
        &self,
        py: Python<'_>,
        local_keys: Keys,
        worker: &str,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
        ttl: f64,
        now: Option<f64>,
        capacity: Option<u32>,
    ) -> Result<u64, Error> {
        let blocks = Blocks::Locals(&local_keys.0);
        let prediction = prediction(py, ttl, now, capacity)?;
        Ok(py.detach(|| self.index.predict(&blocks, worker, dp_rank, prediction))?)
    }

    /// Predicts blocks by their chain keys, as `predict` does by tokens.
    ///
    /// Args:
    ///     chain_keys: As for `match_chain`.
    ///     worker, dp_rank, ttl, now, capacity: As for `predict`.
    ///
    /// Returns:
    ///     How many of the blocks are predicted now.
    ///
    /// Raises:
    ///     ConfigError: `ttl` is negative, or it or `now` is not a number.
    ///     OverflowError: A key is out of range.
    ///     TypeError: The keys are no integers.
    #[pyo3(signature = (
        chain_keys, /, *, worker, dp_rank=0, ttl=120.0, now=None, capacity=None
    ))]
    fn predict_chain(
        &self,
        py: Python<'_>,
        chain_keys: Keys,
        worker: &str,
        #[pyo3(from_py_with = rank)] dp_rank: u32,
        ttl: f64,
        now: Option<f64>,
        capacity: Option<u32>,
    ) -> Result<u64, Error> {
        let blocks = Blocks::Chain(&chain_keys.0);
        let prediction = prediction(py, ttl, now, capacity)?;
        Ok(py.detach(|| self.index.predict(&blocks, worker, dp_rank, prediction))?)
    }

    /// Ends the predictions whose deadline has come, and what is older than a
    /// `max_age` allows.
    ///
    /// Args:
    ///     now: The time in seconds, by default `time.monotonic()`. The clock must be
    ///         that of `predict` and of `apply`, also where routers and feeds call them:
    ///         a time of another clock ends everything.
    ///
    /// Returns:
    ///     How many blocks were predicted or held so, each rank's, pool's and tier's
    ///     counted.
    ///
    /// Raises:
    ///     ConfigError: `now` is not a number.
    #[pyo3(signature = (now=None))]
    fn expire(&self, py: Python<'_>, now: Option<f64>) -> Result<u64, Error> {
        let now = moment(clock(py, now)?)?;
        Ok(py.detach(|| self.index.expire(now))?)
    }
}

fn prediction(
    py: Python<'_>,
    ttl: f64,
    now: Option<f64>,
    capacity: Option<u32>,
) -> PyResult<Prediction> {
    if ttl.is_nan() || ttl < 0.0 {
        return Err(config_error(format!("ttl must be 0 or more, not {ttl}")));
    }
    let now = clock(py, now)?;
    Ok(Prediction {
        now: moment(now)?,
        deadline: moment(now + ttl)?,
        capacity,
    })
}

impl Indexer {
    /// When a batch comes, for those that have to know.
    pub(crate) fn arrival(&self, py: Python<'_>, now: Option<f64>) -> PyResult<Moment> {
        if now.is_none() && !self.ages.load(Ordering::Relaxed) {
            return Ok(Moment::default());
        }
        moment(clock(py, now)?)
    }
}

fn clock(py: Python<'_>, now: Option<f64>) -> PyResult<f64> {
    match now {
        Some(now) => Ok(now),
        None => py.import("time")?.call_method0("monotonic")?.extract(),
    }
}

pub(crate) fn moment(seconds: f64) -> PyResult<Moment> {
    let finite = Some(seconds).filter(|seconds| *seconds > f64::NEG_INFINITY);
    let moment = finite.and_then(Moment::new);
    moment.ok_or_else(|| config_error(format!("now must be a number, not {seconds}")))
}

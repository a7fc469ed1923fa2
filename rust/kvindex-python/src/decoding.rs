//! Whose payloads are read by a decoder of their engine's, in Python?

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvindex::{Origin, Sender};
use pyo3::prelude::*;

use crate::error::is_decode_error;
use crate::events::is_events;

/// One batch that a decoder made of a payload.
pub(crate) struct Part<'py> {
    pub(crate) events: Bound<'py, PyAny>,
    pub(crate) rank: Option<u32>,
    pub(crate) seq: Option<u64>,
    source: Option<String>,
}

/// A worker or a pool: its name, and which of both it is.
type Whose = (String, bool);

fn whose(sender: Sender<'_>) -> Whose {
    (sender.name().to_owned(), sender.is_pool())
}

/// The decoder of one worker or pool.
struct Decoder {
    /// The `Engine` that made it.
    engine: Py<PyAny>,
    epoch: u64,
    /// One payload at a time: a decoder has state. Taken without any lock of
    /// Rust's.
    turn: Py<PyAny>,
    /// What reads; another one after each strict payload.
    reader: Mutex<Py<PyAny>>,
}

impl Decoder {
    /// What reads, for whoever has the turn.
    fn reader<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        lock(&self.reader).bind(py).clone()
    }
}

/// The decoders of the workers and pools that have one.
#[derive(Default)]
pub(crate) struct Decoders {
    /// Whether anybody has one: all that the others pay for it.
    any: AtomicBool,
    by_sender: Mutex<HashMap<Whose, Arc<Decoder>>>,
    undecodable: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Decoders {
    fn find(&self, sender: Sender<'_>) -> Option<Arc<Decoder>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.by_sender).get(&whose(sender)).cloned()
    }

    /// Payloads that no decoder could read.
    pub(crate) fn undecodable(&self) -> u64 {
        self.undecodable.load(Ordering::Relaxed)
    }

    /// Gives a worker or a pool the decoder of its engine, or none. It keeps the
    /// one that it has if that is of the same engine and epoch: it is where it was.
    pub(crate) fn set(
        &self,
        sender: Sender<'_>,
        epoch: u64,
        engine: &Bound<'_, PyAny>,
        made: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = engine.py();
        let Some(reader) = made else {
            self.forget(sender);
            return Ok(());
        };
        let known = self.find(sender);
        if known.is_some_and(|known| known.epoch == epoch && engine.is(&known.engine)) {
            return Ok(());
        }
        let new = Decoder {
            engine: engine.clone().unbind(),
            epoch,
            turn: py.import("threading")?.call_method0("Lock")?.unbind(),
            reader: Mutex::new(reader.unbind()),
        };
        self.any.store(true, Ordering::Relaxed);
        let old = lock(&self.by_sender).insert(whose(sender), Arc::new(new));
        drop(old);
        Ok(())
    }

    /// Forgets the decoder of a worker or a pool.
    pub(crate) fn forget(&self, sender: Sender<'_>) {
        if self.any.load(Ordering::Relaxed) {
            let old = lock(&self.by_sender).remove(&whose(sender));
            drop(old);
        }
    }

    /// Lets a decoder forget what one rank held, or all ranks.
    pub(crate) fn reset(
        &self,
        py: Python<'_>,
        sender: Sender<'_>,
        rank: Option<u32>,
    ) -> PyResult<()> {
        let Some(decoder) = self.find(sender) else {
            return Ok(());
        };
        let _turn = Turn::new(decoder.turn.bind(py))?;
        decoder.reader(py).call_method1("reset", (rank,))?;
        Ok(())
    }

    /// Lets the decoders of all workers forget what was held.
    pub(crate) fn reset_all(&self, py: Python<'_>) -> PyResult<()> {
        let known: Vec<Whose> = lock(&self.by_sender).keys().cloned().collect();
        let mut workers = known.iter().filter(|(_, pool)| !pool);
        workers.try_for_each(|(worker, _)| self.reset(py, Sender::Worker(worker), None))
    }

    /// Reads a payload with the worker's decoder and hands the batches that come
    /// out of it to `apply`; `None` where there is nothing to be read: no decoder,
    /// or event objects.
    pub(crate) fn read<'py, T, E: From<PyErr>>(
        &self,
        payload: &Bound<'py, PyAny>,
        origin: &Origin<'_>,
        (block_size, strict): (u32, bool),
        apply: impl FnOnce(&[Part<'py>]) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let py = payload.py();
        let Some(known) = self.find(origin.sender) else {
            return Ok(None);
        };
        if is_events(payload)? {
            return Ok(None);
        }
        let _turn = Turn::new(known.turn.bind(py))?;
        // A payload of another epoch is not this worker's any more: it is read
        // all the same, so that it is counted, and leaves no trace.
        let stale = origin.epoch.is_some_and(|epoch| epoch != known.epoch);
        let reader = if stale {
            let engine = known.engine.bind(py);
            engine.call_method1("decoder", (block_size,))?
        } else if strict {
            // What strict applying refuses leaves none, either.
            let copy = py.import("copy")?;
            copy.call_method1("deepcopy", (known.reader(py),))?
        } else {
            known.reader(py)
        };
        let batches = reader.call_method1("decode", (payload,));
        let batches = batches.inspect_err(|error| {
            if is_decode_error(py, error) {
                self.undecodable.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let parts = batches.try_iter()?.map(|batch| Part::new(&batch?));
        let parts = parts.collect::<PyResult<Vec<_>>>()?;
        let done = apply(&parts)?;
        if strict && !stale {
            let old = std::mem::replace(&mut *lock(&known.reader), reader.unbind());
            drop(old);
        }
        Ok(Some(done))
    }
}

/// The decoder that an engine makes for one worker; none for most.
pub(crate) fn made_by<'py>(
    engine: &Bound<'py, PyAny>,
    block_size: u32,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let make: Option<Bound<'py, PyAny>> = engine.getattr("decoder")?.extract()?;
    make.map(|make| make.call1((block_size,))).transpose()
}

/// The stream of numbers that payloads have of their own. Those of the call are
/// the transport's, and must not be mixed with them.
const OWN_NUMBERS: &str = "payload";

impl<'py> Part<'py> {
    /// Which stream its number belongs to.
    pub(crate) fn source<'a>(&'a self, origin: &Origin<'a>) -> &'a str {
        let given = self.source.as_deref();
        given.unwrap_or(if self.seq.is_some() {
            OWN_NUMBERS
        } else {
            origin.source
        })
    }

    fn new(batch: &Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            events: batch.getattr("events")?,
            rank: batch.getattr("dp_rank")?.extract()?,
            seq: batch.getattr("seq")?.extract()?,
            source: batch.getattr("source")?.extract()?,
        })
    }
}

/// A lock of Python's that is held.
struct Turn<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> Turn<'a, 'py> {
    fn new(lock: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        lock.call_method0("acquire")?;
        Ok(Self(lock))
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        // It is ours, so this cannot fail.
        let _ = self.0.call_method0("release");
    }
}

//! From which bytes? Payloads become batches of events.
//!
//! One file per wire family, over one msgpack reader:
//!
//! - `vllm`: batches and events of vLLM, SGLang and the backends that speak like
//!   them, in every version.
//! - `layout`: which field stands where in such an event.
//! - `fields`: one field at a time, absent where it is nil.
//! - `tokens`: the token arrays, where nearly all bytes are.
//! - `extra`: what the extra keys of a block mean, for any kind of input.
//! - `msgpack`: values in place, bounds checked, without recursion.
//!
//! A payload that is no batch is an error. A single event that cannot be read
//! is an [`Event::Fault`](crate::event::Event::Fault) in its place and costs the
//! others nothing.

mod extra;
mod fields;
mod layout;
mod msgpack;
mod tokens;
mod vllm;

pub use extra::{ExtraKey, Identifier, SaltRule, classify_block};
pub use msgpack::{Value, values};
pub use vllm::decode;

use crate::event::{Batch, Reason};
use msgpack::Broken;

/// How far the flat arrays of a batch were filled before an event was read, to
/// take back what a faulty one left there.
#[derive(Clone, Copy, Debug)]
struct Mark {
    names: usize,
    tokens: usize,
    locals: usize,
    texts: usize,
    images: usize,
    salts: usize,
}

impl Mark {
    /// The batch as it is now.
    fn of(batch: &Batch) -> Self {
        Self {
            names: batch.names.len(),
            tokens: batch.tokens.len(),
            locals: batch.locals.len(),
            texts: batch.texts.len(),
            images: batch.images.len(),
            salts: batch.salts.len(),
        }
    }

    /// Drops what was added since, events excepted.
    fn restore(self, batch: &mut Batch) {
        batch.names.truncate(self.names);
        batch.tokens.truncate(self.tokens);
        batch.locals.truncate(self.locals);
        batch.texts.truncate(self.texts);
        batch.images.truncate(self.images);
        batch.salts.truncate(self.salts);
    }
}

/// Why an event was not read to its end.
#[derive(Clone, Copy, Debug)]
enum Fail {
    /// The payload is no batch.
    Broken(Broken),
    /// The event cannot be used; the bytes behind it can.
    Fault { reason: Reason, hashes: u64 },
}

impl Fail {
    const MALFORMED: Self = Self::fault(Reason::Malformed);

    const fn fault(reason: Reason) -> Self {
        Self::Fault { reason, hashes: 1 }
    }
}

impl From<Broken> for Fail {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

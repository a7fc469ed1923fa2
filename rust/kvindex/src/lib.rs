//! kvindex tells an LLM request router which workers already hold the KV cache
//! of a prompt's prefix, how deep, and on which storage tier.
//!
//! The crate is the index alone: plain slices and integers in, rows out, no
//! I/O, no clock and no thread of its own. Data flows one way through its
//! files, and each answers one question:
//!
//! - `event` what did an engine say? `decode` from which bytes?
//! - `profile` how does this source behave?
//! - `key` which prefix is it? `prepare` does it fit together?
//! - `apply` what does that mean here? `incoming`, `resolve`, `hold` and `release`
//!   carry it out
//! - `holder` who says so? `place` where is the block of that name? `orphan`
//!   and if the parent is unknown?
//! - `run`, `head`, `claims` the structure; `store` and `cover` write it
//! - `find` answers, `query` reads it; `arena` and `version` make that safe while it is written
//! - `chains` beside all of it: which blocks do running requests use?
#![forbid(unsafe_code)]

mod accept;
mod age;
mod aliases;
mod apply;
mod arena;
mod by_name;
mod chains;
mod claims;
mod copies;
mod count;
mod cover;
mod credit;
pub mod decode;
pub mod error;
pub mod event;
mod explain;
mod find;
mod found;
mod group;
mod head;
mod hold;
mod holder;
mod incoming;
mod index;
#[cfg(all(test, loom))]
mod interleaved;
pub mod key;
mod keys;
mod member;
mod mix;
mod namespace;
mod orphan;
mod pages;
mod place;
mod pool;
mod predict;
mod prepare;
mod probing;
pub mod profile;
mod query;
mod release;
mod report;
mod resolve;
mod resume;
mod roster;
mod run;
mod slots;
mod store;
mod symptoms;
mod sync;
mod tally;
mod version;
mod writer;

pub use chains::Chains;
pub use found::{
    Blocks, Candidate, Explanation, Found, GroupDepth, HolderState, Options, PoolState, Row, Stats,
    Weights,
};
pub use holder::Sender;
pub use index::{Config, Index, MAX_BLOCK_SIZE, Origin};
pub use predict::{Moment, Prediction};
pub use prepare::Prepared;
pub use query::Walk;
pub use report::{Report, Status, Totals};
pub use roster::Names;
pub use symptoms::{Evidence, Symptoms};

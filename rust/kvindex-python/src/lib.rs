//! The Python binding: conversions and calls only, no rule of its own.
#![forbid(unsafe_code)]
#![expect(
    clippy::doc_link_with_quotes,
    clippy::doc_markdown,
    reason = "the docstrings are Python's"
)]
#![expect(
    clippy::needless_pass_by_value,
    clippy::too_many_arguments,
    reason = "so are the signatures, and converted arguments are handed over whole"
)]

mod apply;
mod candidates;
mod chains;
mod chance;
mod columns;
mod decoding;
mod detach;
mod diagnose;
mod error;
mod events;
mod explain;
mod hashed;
mod hashing;
mod images;
mod indexer;
mod integers;
mod matches;
mod misfits;
mod msgpack;
mod pools;
mod predict;
mod profile;
mod query;
mod report;
mod row;
mod settings;
mod state;
mod unpack;
mod value;

/// The compiled part of kvindex.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::candidates::Candidates;
    #[pymodule_export]
    use crate::chains::Chains;
    #[pymodule_export]
    use crate::events::pack_batch;
    #[pymodule_export]
    use crate::hashing::{block_keys, chain_keys};
    #[pymodule_export]
    use crate::indexer::Indexer;
    #[pymodule_export]
    use crate::matches::{_matches, Matches};
    #[pymodule_export]
    use crate::pools::PoolState;
    #[pymodule_export]
    use crate::report::ApplyReport;
    #[pymodule_export]
    use crate::row::Match;
    #[pymodule_export]
    use crate::state::WorkerState;
    #[pymodule_export]
    use crate::unpack::unpack;

    /// Whether this is a build without optimisation.
    #[pymodule_export]
    const DEBUG: bool = cfg!(debug_assertions);

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

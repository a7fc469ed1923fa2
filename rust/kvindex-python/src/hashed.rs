//! Who holds how much of a prompt, and which keys has it? Hashed once for both.

use kvindex::Blocks;
use pyo3::prelude::*;

use crate::candidates::Wanted;
use crate::columns;
use crate::error::Error;
use crate::images::Images;
use crate::indexer::{Indexer, seed};
use crate::integers::Tokens;
use crate::matches::Matches;
use crate::settings::GivenWeights;

#[pymethods]
impl Indexer {
    /// What `match` returns, and the chain keys of all of the prompt's blocks.
    ///
    /// For callers that need both, such as routers that count which blocks are in
    /// use: each block is hashed once. `match` alone stops hashing where nobody holds
    /// more.
    ///
    /// Args:
    ///     tokens, lora_name, cache_salt, mm, workers, weights, cascade: As for
    ///         `match`.
    ///
    /// Returns:
    ///     One row a holder; and a memoryview of format "Q" with one key a block, as
    ///     `chain_keys` returns it.
    ///
    /// Raises:
    ///     OverflowError, TypeError, BufferError, ConfigError: As for `match`.
    ///
    /// Examples:
    ///     >>> import kvindex
    ///     >>> index = kvindex.Indexer(block_size=4)
    ///     >>> found, keys = index.match_with_keys(range(12), workers=["w0"])
    ///     >>> locals = kvindex.block_keys(range(12), block_size=4)
    ///     >>> found[0].depth, keys == kvindex.chain_keys(locals)
    ///     (0, True)
    #[pyo3(signature = (
        tokens, /, *, lora_name=None, cache_salt=None, mm=None, workers=None, weights=None,
        cascade=false
    ))]
    fn match_with_keys<'py>(
        &self,
        py: Python<'py>,
        tokens: Tokens,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
        mm: Option<Images>,
        workers: Option<Wanted>,
        weights: Option<GivenWeights>,
        cascade: bool,
    ) -> Result<(Matches, Bound<'py, PyAny>), Error> {
        let query = self.query(workers, weights.as_ref(), cascade);
        let images = mm.unwrap_or_default();
        let (tokens, images, seed) = (&*tokens.0, &*images.0, seed(lora_name, cache_salt));
        let blocks = Blocks::Tokens {
            tokens,
            images,
            seed,
        };
        let chain = blocks.chain_keys(self.index.config().block_size as usize);
        let blocks = Blocks::Hashed {
            tokens,
            images,
            seed,
            chain: &chain,
        };
        let found = query.find(&self.index, &blocks)?;
        Ok((found, columns::keys(py, &chain)?))
    }
}

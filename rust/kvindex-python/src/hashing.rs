//! Which keys does a prompt have? For callers that compute them once.

use kvindex::key::{BlockHasher, Prompt, chain, namespace_seed};
use pyo3::prelude::*;

use crate::columns;
use crate::detach::Held;
use crate::images::Images;
use crate::integers::{Keys, Tokens};
use crate::settings::block_size;

/// The local keys of a prompt's whole blocks.
///
/// Safe to call from any thread.
///
/// Args:
///     tokens: The prompt, each token 0 to 2^32-1: a buffer of 32- or 64-bit
///         integers (fast) or a sequence of int.
///     block_size: Tokens a block, 1 to 2^20.
///     lora_name: The adapter's name; None and "" mean none.
///     cache_salt: The cache salt; None and "" mean none.
///     mm: The prompt's images, (identifier, first token, length) each.
///     pairs: Whether a block is keyed by the token that follows it, too, as
///         sources with speculative decoding do.
///
/// Returns:
///     A memoryview of format "Q" with one key a block; a trailing partial block
///     has none.
///
/// Raises:
///     ConfigError: The block size is out of range.
///     OverflowError: A token is out of range.
///     TypeError: The tokens are no integers.
///     BufferError: The buffer is not contiguous.
///
/// Examples:
///     >>> import kvindex
///     >>> keys = kvindex.block_keys(range(8), block_size=4)
///     >>> [hex(key) for key in keys]
///     ['0x7ee2cbedc694ab46', '0xa8416cfd935bdb13']
#[pyfunction]
#[pyo3(signature = (
    tokens, /, *, block_size, lora_name=None, cache_salt=None, mm=None, pairs=false
))]
pub(crate) fn block_keys<'py>(
    py: Python<'py>,
    tokens: Tokens,
    #[pyo3(from_py_with = block_size)] block_size: u32,
    lora_name: Option<&str>,
    cache_salt: Option<&str>,
    mm: Option<Images>,
    pairs: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let seed = namespace_seed(
        lora_name.unwrap_or_default(),
        cache_salt.unwrap_or_default(),
    );
    let images = mm.unwrap_or_default();
    let prompt = Prompt {
        tokens: &tokens.0,
        images: &images.0,
        block_size: block_size as usize,
        pairs,
    };
    let keys: Vec<u64> = Held::default().work(py, prompt.tokens.len(), || {
        let mut hasher = BlockHasher::new(seed);
        let blocks = 0..prompt.blocks();
        blocks
            .map(|block| prompt.local(&mut hasher, block))
            .collect()
    });
    columns::keys(py, &keys)
}

/// The chain keys of a chain of blocks.
///
/// A chain key commits to the whole prefix: equal chain keys, equal prefixes.
/// Safe to call from any thread.
///
/// Args:
///     local_keys: The local keys of the blocks, in order: a buffer of 64-bit
///         integers (fast) or a sequence of int, 0 to 2^64-1.
///
/// Returns:
///     A memoryview of format "Q" with one key a block.
///
/// Raises:
///     OverflowError: A key is out of range.
///     TypeError: The keys are no integers.
///     BufferError: The buffer is not contiguous.
///
/// Examples:
///     >>> import kvindex
///     >>> locals = kvindex.block_keys(range(8), block_size=4)
///     >>> chain = kvindex.chain_keys(locals)
///     >>> chain[0] == locals[0], chain[1] == locals[1]
///     (True, False)
#[pyfunction]
#[pyo3(signature = (local_keys, /))]
pub(crate) fn chain_keys(py: Python<'_>, local_keys: Keys) -> PyResult<Bound<'_, PyAny>> {
    let mut parent = None;
    let keys: Vec<u64> = local_keys
        .0
        .into_iter()
        .map(|local| *parent.insert(chain(parent, local)))
        .collect();
    columns::keys(py, &keys)
}

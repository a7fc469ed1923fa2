//! What does a query say besides its blocks, and how is it answered?

use std::cell::RefCell;
use std::sync::Arc;

use kvindex::error::Forked;
use kvindex::event::Name;
use kvindex::key::Span;
use kvindex::{Blocks, Candidate, Explanation, Index, Options, Walk, Weights};

use pyo3::prelude::*;

use crate::candidates::Wanted;
use crate::detach::{Held, PROMPT_TOKENS};
use crate::error::Error;
use crate::integers::{Tokens, prompt};
use crate::matches::Matches;
use crate::settings::{GivenWeights, WeightTable};

/// Prompts are answered in groups of about so many tokens: 256 KiB.
const GROUP_TOKENS: usize = 1 << 16;

thread_local! {
    /// Scratch memory of this thread's queries.
    static WALK: RefCell<Walk> = RefCell::new(Walk::default());
}

/// Whom to look at and how to count.
pub(crate) struct Query {
    candidates: Option<Arc<[Candidate]>>,
    weights: Weights,
    cascade: bool,
}

impl Query {
    pub(crate) fn new(
        workers: Option<Wanted>,
        index_weights: WeightTable,
        weights: Option<&GivenWeights>,
        cascade: bool,
    ) -> Self {
        Self {
            candidates: workers.map(|wanted| wanted.0),
            weights: index_weights.with(weights).weights(),
            cascade,
        }
    }

    /// Who holds how many of these blocks.
    pub(crate) fn find(&self, index: &Index, blocks: &Blocks<'_>) -> Result<Matches, Forked> {
        WALK.with_borrow_mut(|walk| {
            let found = index.find(blocks, &self.options(), walk)?;
            Ok(Matches::new(found, self.candidates.clone(), self.weights))
        })
    }

    /// Who holds how many blocks of each of some prompts. They are read and
    /// answered in groups, so that their tokens stay in the cache.
    pub(crate) fn find_many(
        &self,
        py: Python<'_>,
        index: &Index,
        prompts: &Bound<'_, PyAny>,
        images: &[Span],
        seed: u64,
    ) -> Result<Vec<Matches>, Error> {
        let mut prompts = prompts.try_iter()?.enumerate();
        let (mut answers, mut held) = (Vec::new(), Held::default());
        loop {
            let (mut group, mut cost) = (Vec::new(), 0);
            while cost < GROUP_TOKENS
                && let Some((position, tokens)) = prompts.next()
            {
                let tokens = prompt(position, &tokens?)?;
                cost += tokens.0.len() + PROMPT_TOKENS;
                group.push(tokens);
            }
            if group.is_empty() {
                return Ok(answers);
            }
            let answer = |tokens: &Tokens| {
                let blocks = Blocks::Tokens {
                    tokens: &tokens.0,
                    images,
                    seed,
                };
                self.find(index, &blocks)
            };
            let found = held.work(py, cost, || {
                group.iter().map(answer).collect::<Result<Vec<_>, _>>()
            });
            answers.extend(found?);
        }
    }

    /// Who holds how many of the blocks that have these names.
    pub(crate) fn find_names(&self, index: &Index, names: &[Name]) -> Result<Matches, Forked> {
        WALK.with_borrow_mut(|walk| {
            let found = index.find_names(names, &self.options(), walk)?;
            Ok(Matches::new(found, self.candidates.clone(), self.weights))
        })
    }

    fn options(&self) -> Options<'_> {
        Options {
            candidates: self.candidates.as_deref(),
            weights: self.weights,
            cascade: self.cascade,
        }
    }
}

/// Why the answer for one holder is what it is.
pub(crate) fn explain(
    index: &Index,
    blocks: &Blocks<'_>,
    worker: &str,
    rank: u32,
) -> Result<Explanation, Forked> {
    WALK.with_borrow_mut(|walk| index.explain(blocks, worker, rank, walk))
}

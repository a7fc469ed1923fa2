//! What does a query say besides its blocks, and how is it answered?

use std::cell::RefCell;
use std::sync::Arc;

use kvindex::error::Forked;
use kvindex::event::Name;
use kvindex::{Blocks, Candidate, Explanation, Index, Options, Walk, Weights};

use crate::candidates::Wanted;
use crate::matches::Matches;
use crate::settings::{GivenWeights, WeightTable};

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
            weights: index_weights.with(weights).tiers(),
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

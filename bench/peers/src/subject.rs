//! What is measured: one file for each index, all behind one trait.

mod chain;
mod dynamo;
mod kvindex;
mod positional;
mod smg;

pub(crate) use chain::Chain;
pub(crate) use dynamo::Dynamo;
pub(crate) use kvindex::{Copies, Kvindex, Locals, Sets};
pub(crate) use positional::Positional;
pub(crate) use smg::Smg;

use crate::workload::{Block, Event};

/// A worker and how many leading blocks of a query it holds.
pub(crate) type Depth = (u32, u32);

/// An index under test. Inputs and queries are made outside the timing, as the
/// fastest call that is public takes them.
pub(crate) trait Subject: Sized {
    /// What it is called in every table and file.
    const NAME: &'static str;

    /// An event, ready to be applied.
    type Input: Send + Sync;
    /// What stands for a block in a query.
    type Key: Copy;

    /// An empty index for so many workers, or why there is none.
    fn new(workers: u32) -> Result<Self, String>;

    /// Makes an event ready.
    fn prepare(&self, event: &Event) -> Self::Input;

    /// Applies events, in order. What it does not consume it leaves.
    fn apply(&mut self, inputs: &mut Vec<Self::Input>);

    /// Waits until everything is applied.
    fn drain(&mut self) {}

    /// What stands for this block.
    fn key(block: &Block) -> Self::Key;

    /// Answers a query; returns how many workers hold any of it.
    fn find(&mut self, query: &[Self::Key]) -> usize;

    /// The whole answer to a query, in any order.
    fn depths(&mut self, query: &[Self::Key]) -> Vec<Depth>;

    /// A writer, and a reader that may be used beside it. The writer returns
    /// when its event is applied, or bounds how many are not.
    #[expect(clippy::type_complexity, reason = "two closures: names would say less")]
    fn halves(
        &mut self,
    ) -> (
        impl FnMut(&Self::Input) + Send,
        impl FnMut(&[Self::Key]) -> usize,
    );
}

/// Makes a query ready.
pub(crate) fn query<S: Subject>(blocks: &[Block]) -> Vec<S::Key> {
    blocks.iter().map(S::key).collect()
}

//! smg-radix-tree: chains of content hashes, one writer, no locks of its own.

use std::sync::{Arc, PoisonError, RwLock};

use radix_tree::{Config, HolderId, Overlap, OverlapScratch, RadixTree};

use super::{Depth, Subject};
use crate::workload::{Action, Block, Event};

/// The tree, and what a caller keeps beside it.
pub(crate) struct Smg {
    tree: RadixTree,
    holders: Vec<HolderId>,
    scratch: OverlapScratch,
    rows: Vec<Overlap>,
}

/// One event for one holder.
pub(crate) enum Input {
    Store(HolderId, Option<u64>, Vec<(u64, u64)>),
    Remove(HolderId, Vec<u64>),
}

impl Subject for Smg {
    const NAME: &'static str = "smg-radix-tree";
    type Input = Input;
    type Key = u64;

    fn new(workers: u32) -> Result<Self, String> {
        let mut tree = RadixTree::new(Config::default());
        let create = |worker| tree.create_holder(&format!("w{worker}"));
        Ok(Self {
            holders: (0..workers).map(create).collect(),
            tree,
            scratch: OverlapScratch::default(),
            rows: Vec::new(),
        })
    }

    fn prepare(&self, event: &Event) -> Input {
        let holder = self.holders[event.worker as usize];
        let blocks = event.blocks.iter();
        match event.action {
            Action::Store(parent) => {
                let blocks = blocks.map(|(block, name)| (*name, block.local));
                Input::Store(holder, parent, blocks.collect())
            }
            Action::Remove => Input::Remove(holder, blocks.map(|(_, name)| *name).collect()),
        }
    }

    fn apply(&mut self, inputs: &mut Vec<Input>) {
        for input in inputs {
            put(&mut self.tree, input);
        }
    }

    fn key(block: &Block) -> u64 {
        block.local
    }

    fn find(&mut self, query: &[u64]) -> usize {
        self.tree.overlap(query, &mut self.scratch, &mut self.rows);
        self.rows.len()
    }

    fn depths(&mut self, query: &[u64]) -> Vec<Depth> {
        self.find(query);
        let rows = self.rows.iter();
        rows.map(|row| (row.holder.parts().0, row.depth)).collect()
    }

    fn halves(&mut self) -> (impl FnMut(&Self::Input) + Send, impl FnMut(&[u64]) -> usize) {
        // The crate leaves locking to its user.
        let reader = Arc::new(RwLock::new(&mut self.tree));
        let writer = reader.clone();
        let (scratch, rows) = (&mut self.scratch, &mut self.rows);
        (
            move |input: &Input| {
                let mut tree = writer.write().unwrap_or_else(PoisonError::into_inner);
                put(&mut tree, input);
            },
            move |query: &[u64]| {
                let tree = reader.read().unwrap_or_else(PoisonError::into_inner);
                tree.overlap(query, scratch, rows);
                rows.len()
            },
        )
    }
}

fn put(tree: &mut RadixTree, input: &Input) {
    match input {
        Input::Store(holder, parent, blocks) => {
            // What it refuses shows in the exactness column.
            let _ = tree.store(*holder, *parent, blocks);
        }
        Input::Remove(holder, names) => {
            tree.remove(*holder, names);
        }
    }
}

//! kv-index 1: its positional indexer, one map by position and content.

use kv_index_positional::{
    ContentHash, PositionalIndexer, SequenceHash, StoredBlock, WorkerBlockMap,
};

use super::{Depth, Subject};
use crate::workload::{Action, Block, Event};

/// Has no effect any more, but must be given.
const JUMP: usize = 64;

/// The index, and the map of each worker that its writers keep.
pub(crate) struct Positional {
    index: PositionalIndexer,
    ids: Vec<u32>,
    maps: Vec<WorkerBlockMap>,
}

/// One event of one worker.
pub(crate) enum Input {
    Store(u32, Option<SequenceHash>, Vec<StoredBlock>),
    Remove(u32, Vec<SequenceHash>),
}

impl Subject for Positional {
    const NAME: &'static str = "kv-index-positional";
    type Input = Input;
    type Key = ContentHash;

    fn new(workers: u32) -> Result<Self, String> {
        let index = PositionalIndexer::new(JUMP);
        let ids = (0..workers).map(|worker| index.intern_worker(&format!("w{worker}")));
        let ids: Result<Vec<u32>, _> = ids.collect();
        Ok(Self {
            ids: ids.map_err(|error| error.to_string())?,
            index,
            maps: (0..workers).map(|_| WorkerBlockMap::default()).collect(),
        })
    }

    fn prepare(&self, event: &Event) -> Input {
        let blocks = event.blocks.iter();
        match event.action {
            Action::Store(parent) => {
                let blocks = blocks.map(|(block, name)| StoredBlock {
                    seq_hash: SequenceHash(*name),
                    content_hash: ContentHash(block.local),
                });
                let parent = parent.map(SequenceHash);
                Input::Store(event.worker, parent, blocks.collect())
            }
            Action::Remove => {
                let names = blocks.map(|(_, name)| SequenceHash(*name));
                Input::Remove(event.worker, names.collect())
            }
        }
    }

    fn apply(&mut self, inputs: &mut Vec<Input>) {
        for input in inputs {
            put(&self.index, &self.ids, &mut self.maps, input);
        }
    }

    fn key(block: &Block) -> ContentHash {
        ContentHash(block.local)
    }

    fn find(&mut self, query: &[ContentHash]) -> usize {
        self.index.find_matches(query, false).scores.len()
    }

    fn depths(&mut self, query: &[ContentHash]) -> Vec<Depth> {
        let scores = self.index.find_matches(query, false).scores;
        scores.into_iter().collect()
    }

    fn halves(
        &mut self,
    ) -> (
        impl FnMut(&Self::Input) + Send,
        impl FnMut(&[ContentHash]) -> usize,
    ) {
        let (index, ids, maps) = (&self.index, &self.ids, &mut self.maps);
        (
            move |input: &Input| put(index, ids, maps, input),
            move |query: &[ContentHash]| index.find_matches(query, false).scores.len(),
        )
    }
}

fn put(index: &PositionalIndexer, ids: &[u32], maps: &mut [WorkerBlockMap], input: &Input) {
    match input {
        Input::Store(worker, parent, blocks) => {
            let (id, map) = (ids[*worker as usize], &mut maps[*worker as usize]);
            // What it refuses shows in the exactness column.
            let _ = index.apply_stored(id, blocks, *parent, map);
        }
        Input::Remove(worker, names) => {
            let (id, map) = (ids[*worker as usize], &mut maps[*worker as usize]);
            index.apply_removed(id, names, map);
        }
    }
}

//! kv-index: its run-compressed chain index, sharded by 1,024 workers.

use kv_index::{ChainBlockMap, ContentHash, SequenceHash, ShardedChainIndex, StoredBlock};

use super::{Depth, Subject};
use crate::workload::{Action, Block, Event};

/// Workers a shard, the most that it allows.
const SHARD: u32 = 1_024;

/// The index, and the map of each worker that its writers keep.
pub(crate) struct Chain {
    index: ShardedChainIndex,
    ids: Vec<u32>,
    maps: Vec<ChainBlockMap>,
    rows: Vec<Depth>,
}

/// One event of one worker.
pub(crate) enum Input {
    Store(u32, Option<SequenceHash>, Vec<StoredBlock>),
    Remove(u32, Vec<SequenceHash>),
}

impl Subject for Chain {
    const NAME: &'static str = "kv-index-chain";
    type Input = Input;
    type Key = ContentHash;

    fn new(workers: u32) -> Result<Self, String> {
        let shards = workers.div_ceil(SHARD) as usize;
        let index = ShardedChainIndex::new(shards, workers.min(SHARD) as usize);
        let ids = (0..workers).map(|worker| index.intern_worker(&format!("w{worker}")));
        let ids: Result<Vec<u32>, _> = ids.collect();
        Ok(Self {
            ids: ids.map_err(|error| error.to_string())?,
            index,
            maps: (0..workers).map(|_| ChainBlockMap::new()).collect(),
            rows: Vec::new(),
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
        find(&self.index, query, &mut self.rows)
    }

    fn depths(&mut self, query: &[ContentHash]) -> Vec<Depth> {
        self.find(query);
        let worker = |id: u32| {
            let shards = self.index.shards() as u32;
            let shard = ShardedChainIndex::shard_of(id) as u32;
            ShardedChainIndex::local_id(id) * shards + shard
        };
        let rows = self.rows.iter();
        rows.map(|&(id, depth)| (worker(id), depth)).collect()
    }

    fn halves(
        &mut self,
    ) -> (
        impl FnMut(&Self::Input) + Send,
        impl FnMut(&[ContentHash]) -> usize,
    ) {
        let (index, ids) = (&self.index, &self.ids);
        let (maps, rows) = (&mut self.maps, &mut self.rows);
        (
            move |input: &Input| put(index, ids, maps, input),
            move |query: &[ContentHash]| find(index, query, rows),
        )
    }
}

/// By the call that allocates nothing.
fn find(index: &ShardedChainIndex, query: &[ContentHash], rows: &mut Vec<Depth>) -> usize {
    rows.clear();
    let report = |worker, depth| rows.push((worker, depth));
    index.score_into(query, |content| content.0, false, report);
    rows.len()
}

fn put(index: &ShardedChainIndex, ids: &[u32], maps: &mut [ChainBlockMap], input: &Input) {
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

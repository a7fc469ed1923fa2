//! dynamo-kv-router: the concurrent compressed radix tree behind one thread, as
//! Dynamo's router runs it.

use dynamo_kv_router::indexer::SyncIndexer;
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData,
};
use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed, LocalBlockHash, OverlapScores, RouterEvent, ThreadPoolIndexer,
};

use super::{Depth, Subject};
use crate::workload::{Action, BLOCK_SIZE, Block, Event};

/// Events that may wait while another thread reads.
const QUEUE: usize = 64;

type Indexer = ThreadPoolIndexer<ConcurrentRadixTreeCompressed>;

/// The indexer; its thread ends when it is dropped.
pub(crate) struct Dynamo {
    indexer: Indexer,
}

impl Subject for Dynamo {
    const NAME: &'static str = "dynamo-kv-router";
    type Input = RouterEvent;
    type Key = LocalBlockHash;

    fn new(_workers: u32) -> Result<Self, String> {
        let tree = ConcurrentRadixTreeCompressed::new();
        Ok(Self {
            indexer: ThreadPoolIndexer::new(tree, 1, BLOCK_SIZE as u32),
        })
    }

    fn prepare(&self, event: &Event) -> RouterEvent {
        let blocks = event.blocks.iter();
        let data = match event.action {
            Action::Store(parent) => {
                let blocks = blocks.map(|(block, name)| KvCacheStoredBlockData {
                    block_hash: ExternalSequenceBlockHash(*name),
                    tokens_hash: LocalBlockHash(block.local),
                    mm_extra_info: None,
                });
                KvCacheEventData::Stored(KvCacheStoreData {
                    parent_hash: parent.map(ExternalSequenceBlockHash),
                    start_position: None,
                    blocks: blocks.collect(),
                })
            }
            Action::Remove => {
                let names = blocks.map(|(_, name)| ExternalSequenceBlockHash(*name));
                KvCacheEventData::Removed(KvCacheRemoveData {
                    block_hashes: names.collect(),
                })
            }
        };
        let event_data = KvCacheEvent {
            event_id: 0,
            data,
            dp_rank: 0,
        };
        RouterEvent::new(u64::from(event.worker), event_data)
    }

    fn apply(&mut self, inputs: &mut Vec<RouterEvent>) {
        for event in inputs.drain(..) {
            put(&self.indexer, event);
        }
    }

    fn drain(&mut self) {
        wait(&self.indexer);
    }

    fn key(block: &Block) -> LocalBlockHash {
        LocalBlockHash(block.local)
    }

    fn find(&mut self, query: &[LocalBlockHash]) -> usize {
        find(&self.indexer, query).scores.len()
    }

    fn depths(&mut self, query: &[LocalBlockHash]) -> Vec<Depth> {
        let scores = find(&self.indexer, query).scores.into_iter();
        scores
            .map(|(worker, depth)| (worker.worker_id as u32, depth))
            .collect()
    }

    fn halves(
        &mut self,
    ) -> (
        impl FnMut(&Self::Input) + Send,
        impl FnMut(&[LocalBlockHash]) -> usize,
    ) {
        let indexer = &self.indexer;
        let mut sent = 0;
        (
            move |event: &RouterEvent| {
                put(indexer, event.clone());
                sent += 1;
                if sent == QUEUE {
                    wait(indexer);
                    sent = 0;
                }
            },
            move |query: &[LocalBlockHash]| find(indexer, query).scores.len(),
        )
    }
}

/// On the caller's thread, as its router does.
fn find(indexer: &Indexer, query: &[LocalBlockHash]) -> OverlapScores {
    indexer.backend().find_matches(query, false)
}

fn put(indexer: &Indexer, event: RouterEvent) {
    indexer.enqueue_event(event).expect("its thread lives");
}

fn wait(indexer: &Indexer) {
    pollster::block_on(indexer.flush_and_wait()).expect("its thread lives");
}

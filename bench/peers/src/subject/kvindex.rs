//! kvindex: batches prepared, queries by chain keys or by local keys.

use std::fmt::Debug;
use std::marker::PhantomData;

use kvindex::event::{Batch, Event as KvEvent, Name, Remove, Store};
use kvindex::profile::{Kind, Profile};
use kvindex::{Blocks, Config, Found, Index, Moment, Options, Origin, Prepared, Sender, Walk};

use super::{Depth, Subject};
use crate::workload::{Action, BLOCK_SIZE, Block, Event, tokens};

const OPTIONS: Options<'static> = Options {
    candidates: None,
    weights: [1.0, 0.75, 0.25, 0.25, 0.5],
    cascade: false,
};

/// How it is asked and told: what its variants differ in.
pub(crate) trait Variant: Debug {
    const NAME: &'static str;
    /// Whether a second store is a second copy.
    const COPIES: bool;
    fn key(block: &Block) -> u64;
    fn blocks(keys: &[u64]) -> Blocks<'_>;
}

/// Chain keys; a second store changes nothing, as with every peer.
#[derive(Debug)]
pub(crate) struct Sets;

/// Local keys: chaining is part of the time.
#[derive(Debug)]
pub(crate) struct Locals;

/// As workers come that nobody registered: a second store is a second copy.
#[derive(Debug)]
pub(crate) struct Copies;

impl Variant for Sets {
    const NAME: &'static str = "kvindex";
    const COPIES: bool = false;
    fn key(block: &Block) -> u64 {
        block.chain
    }
    fn blocks(keys: &[u64]) -> Blocks<'_> {
        Blocks::Chain(keys)
    }
}

impl Variant for Locals {
    const NAME: &'static str = "kvindex-locals";
    const COPIES: bool = false;
    fn key(block: &Block) -> u64 {
        block.local
    }
    fn blocks(keys: &[u64]) -> Blocks<'_> {
        Blocks::Locals(keys)
    }
}

impl Variant for Copies {
    const NAME: &'static str = "kvindex-copies";
    const COPIES: bool = true;
    fn key(block: &Block) -> u64 {
        block.chain
    }
    fn blocks(keys: &[u64]) -> Blocks<'_> {
        Blocks::Chain(keys)
    }
}

/// The index, and what a caller keeps beside it.
#[derive(Debug)]
pub(crate) struct Kvindex<V> {
    index: Index,
    workers: Vec<String>,
    walk: Walk,
    variant: PhantomData<V>,
}

impl<V: Variant> Subject for Kvindex<V> {
    const NAME: &'static str = V::NAME;
    type Input = (u32, Prepared);
    type Key = u64;

    fn new(workers: u32) -> Result<Self, String> {
        let config = Config {
            block_size: BLOCK_SIZE as u32,
            registered_only: false,
            group_rules: false,
            orphan_blocks: 1 << 14,
        };
        let index = Index::new(config).map_err(|error| error.0)?;
        let workers: Vec<String> = (0..workers).map(|worker| format!("w{worker}")).collect();
        if !V::COPIES {
            for worker in &workers {
                let mut profile = Profile::new(Kind::Auto);
                profile.copies = [false; 4];
                index.register(worker, profile).expect("valid settings");
            }
        }
        Ok(Self {
            index,
            workers,
            walk: Walk::default(),
            variant: PhantomData,
        })
    }

    fn prepare(&self, event: &Event) -> Self::Input {
        let prepared = self.index.prepare(batch(event), true);
        (event.worker, prepared.expect("a valid batch"))
    }

    fn apply(&mut self, inputs: &mut Vec<Self::Input>) {
        for input in inputs {
            put(&self.index, &self.workers, input);
        }
    }

    fn key(block: &Block) -> u64 {
        V::key(block)
    }

    fn find(&mut self, query: &[u64]) -> usize {
        find::<V>(&self.index, query, &mut self.walk).rows.len()
    }

    fn depths(&mut self, query: &[u64]) -> Vec<Depth> {
        let found = find::<V>(&self.index, query, &mut self.walk);
        let row = |row: &kvindex::Row| {
            let (worker, _) = found.names.get(row.holder).expect("is there");
            (worker[1..].parse().expect("a number"), row.depth())
        };
        found.rows.iter().map(row).collect()
    }

    fn halves(&mut self) -> (impl FnMut(&Self::Input) + Send, impl FnMut(&[u64]) -> usize) {
        let (index, workers, walk) = (&self.index, &self.workers, &mut self.walk);
        (
            move |input: &Self::Input| put(index, workers, input),
            move |query: &[u64]| find::<V>(index, query, walk).rows.len(),
        )
    }
}

fn find<'a, V: Variant>(index: &Index, keys: &[u64], walk: &'a mut Walk) -> Found<'a> {
    let found = index.find(&V::blocks(keys), &OPTIONS, walk);
    found.expect("no fork")
}

fn put(index: &Index, workers: &[String], (worker, prepared): &(u32, Prepared)) {
    let origin = Origin {
        sender: Sender::Worker(&workers[*worker as usize]),
        rank: 0,
        source: "",
        seq: None,
        epoch: None,
        now: Moment::default(),
    };
    index.apply(prepared, &origin).expect("no fork");
}

fn batch(event: &Event) -> Batch {
    let names = 0..event.blocks.len();
    let mut batch = Batch {
        names: event
            .blocks
            .iter()
            .map(|(_, name)| Name::from_integer(*name))
            .collect(),
        ..Batch::default()
    };
    batch.events.push(match event.action {
        Action::Remove => KvEvent::Remove(Remove {
            names,
            medium: None,
            remote: false,
            group: None,
            kind: None,
        }),
        Action::Store(parent) => {
            let contents = event.blocks.iter().map(|(block, _)| block.content);
            batch.tokens = contents.flat_map(tokens).collect();
            KvEvent::Store(Store {
                names,
                tokens: 0..batch.tokens.len(),
                locals: 0..0,
                pairs: false,
                parent: parent.map(Name::from_integer),
                block_size: None,
                lora: None,
                lora_id: None,
                salt: None,
                medium: None,
                remote: false,
                group: None,
                kind: None,
                images: 0..0,
                salts: 0..0,
                extra_keys: false,
            })
        }
    });
    batch
}

//! Work made from seeds: chains, and a fleet's stream of stores.

use std::rc::Rc;

use kvindex::key::{BlockHasher, SEED};
use kvindex::{Config, Index, Origin};

use crate::msgpack;

pub(crate) const BLOCK_SIZE: usize = 16;
const VOCABULARY: u64 = 128_000;
const WORKERS: usize = 256;

/// An empty index.
pub(crate) fn index() -> Index {
    let config = Config {
        block_size: BLOCK_SIZE as u32,
        registered_only: false,
        orphan_blocks: 1 << 14,
    };
    Index::new(config).expect("valid settings")
}

/// The names of the workers, as engines' events come with.
pub(crate) fn workers() -> Vec<String> {
    (0..WORKERS).map(|worker| format!("w{worker}")).collect()
}

/// Whose batch it is, in full.
pub(crate) fn origin(worker: &str) -> Origin<'_> {
    Origin {
        worker,
        rank: 0,
        source: "",
        seq: None,
        epoch: None,
    }
}

/// Consecutive blocks.
pub(crate) struct Chain {
    pub(crate) tokens: Vec<u32>,
    pub(crate) names: Vec<u64>,
}

impl Chain {
    pub(crate) fn new(blocks: usize, random: &mut Random) -> Self {
        let tokens = 0..blocks * BLOCK_SIZE;
        Self {
            tokens: tokens.map(|_| random.below(VOCABULARY) as u32).collect(),
            names: (0..blocks).map(|_| random.next()).collect(),
        }
    }

    pub(crate) fn locals(&self) -> Vec<u64> {
        let mut hasher = BlockHasher::new(SEED);
        let blocks = self.tokens.chunks(BLOCK_SIZE);
        blocks.map(|block| hasher.local(block, &mut [])).collect()
    }

    /// The batches that store it, the first one below `parent`.
    pub(crate) fn batches(&self, blocks: usize, mut parent: Option<u64>) -> Vec<Rc<[u8]>> {
        let names = self.names.chunks(blocks);
        let stretches = names.zip(self.tokens.chunks(blocks * BLOCK_SIZE));
        let batches = stretches.map(|(names, tokens)| {
            let batch = msgpack::batch(names, tokens, parent);
            parent = names.last().copied();
            batch.into()
        });
        batches.collect()
    }
}

/// A worker and a batch that it sends.
pub(crate) type Sent = (usize, Rc<[u8]>);

/// The stores of a fleet of 256 workers, about so many claims, `step` blocks a
/// store.
///
/// A prefix is shared by 1 (50 %), 8 (35 %) or 64 (15 %) workers and about log
/// uniformly 8 to 512 blocks deep; each worker goes on with 4 to 64 blocks of
/// its own. Lengths are rounded up to whole stores. The workers' stores come
/// interleaved, and 5 % of them twice.
pub(crate) fn mixed(claims: usize, step: usize) -> Vec<Sent> {
    let mut random = Random(88_172_645_463_325_252);
    let mut streams = Vec::new();
    let mut made = 0;
    while made < claims {
        let family = family(step, &mut random);
        made += family
            .iter()
            .map(|stream| stream.len() * step)
            .sum::<usize>();
        streams.extend(family);
    }
    interleaved(streams, &mut random)
}

fn family(step: usize, random: &mut Random) -> Vec<Vec<Sent>> {
    let degree = match random.below(100) {
        0..50 => 1,
        50..85 => 8,
        _ => 64,
    };
    // Each doubling is as likely as any other.
    let octave = 8 << random.below(6);
    let depth = (octave + random.below(octave)) as usize;
    let shared = Chain::new(depth.next_multiple_of(step), random);
    let common = shared.batches(step, None);
    let first = random.below(WORKERS as u64) as usize;
    let members = (0..degree).map(|member| {
        let worker = (first + member * 3) % WORKERS;
        let length = 4 + random.below(61) as usize;
        let tail = Chain::new(length.next_multiple_of(step), random);
        let own = tail.batches(step, shared.names.last().copied());
        let all = common.iter().cloned().chain(own);
        all.map(|batch| (worker, batch)).collect()
    });
    members.collect()
}

/// Merges streams, 2,000 at a time, each in its order.
fn interleaved(streams: Vec<Vec<Sent>>, random: &mut Random) -> Vec<Sent> {
    let mut waiting = streams.into_iter().map(Vec::into_iter);
    let mut active: Vec<_> = waiting.by_ref().take(2_000).collect();
    let mut out = Vec::new();
    while !active.is_empty() {
        let at = random.below(active.len() as u64) as usize;
        if let Some(sent) = active[at].next() {
            if random.below(20) == 0 {
                out.push(sent.clone());
            }
            out.push(sent);
        } else {
            active.swap_remove(at);
            active.extend(waiting.next());
        }
    }
    out
}

/// Xorshift: enough to be no pattern.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

//! Operations from any bytes, for a fuzzer: a byte is a choice, so that who
//! changes one changes the other. Where the bytes end all choices are the first.

use kvindex::Config;
use kvindex::event::GroupKind;

use super::{
    ChainText, FLEXKV, OddText, Op, POOLS, PROFILES, ParentText, Predicted, RemoveText, SENDERS,
    SPACES, Sent, StoreText, TokensText, Told, WORKERS,
};

/// Operations of one input at most: the model's time grows faster than they do.
const MOST: usize = 60;

/// Choices to come.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first) % bound
    }

    /// One of several: how many bytes of 256 choose each but the first.
    fn pick<const N: usize>(&mut self, others: [usize; N]) -> usize {
        let mut byte = self.below(256);
        for (number, weight) in others.into_iter().enumerate() {
            if byte >= 256 - weight {
                return number + 1;
            }
            byte += weight;
        }
        0
    }

    fn rarely(&mut self) -> bool {
        self.pick([20]) == 1
    }
}

/// A configuration, and whether runs stand by that no operation touches.
pub(crate) fn config(bytes: &mut Bytes<'_>) -> (Config, bool) {
    let config = Config {
        block_size: 1 + bytes.below(2) as u32,
        registered_only: bytes.pick([8]) == 1,
        group_rules: false,
        orphan_blocks: [1000, 0, 4][bytes.pick([40, 80])],
    };
    (config, bytes.pick([16]) == 1)
}

/// The namespaces and the ways to name blocks that one input's chains have.
struct Pool {
    spaces: [usize; 3],
    dialects: [u64; 3],
}

/// Operations, up to the end of the bytes.
pub(crate) fn ops(bytes: &mut Bytes<'_>) -> Vec<Op> {
    let pool = Pool {
        spaces: [(); 3].map(|()| bytes.below(SPACES.len())),
        dialects: [(); 3].map(|()| [0, 2, 1, 3, 4, 5, 6, 7, FLEXKV][bytes.below(9)]),
    };
    let mut ops = Vec::new();
    while !bytes.0.is_empty() && ops.len() < MOST {
        ops.push(op(bytes, &pool));
    }
    ops
}

/// A worker, seldom a pool.
fn sender(bytes: &mut Bytes<'_>) -> usize {
    match bytes.below(256) {
        byte @ 0..240 => byte % WORKERS.len(),
        byte => WORKERS.len() + byte % (SENDERS - WORKERS.len()),
    }
}

fn pair(bytes: &mut Bytes<'_>) -> (&'static str, &'static str) {
    let worker = WORKERS[bytes.below(WORKERS.len())];
    (worker, POOLS[bytes.below(POOLS.len())])
}

fn op(bytes: &mut Bytes<'_>, pool: &Pool) -> Op {
    match bytes.pick([14, 7, 4, 2, 14, 6, 3, 12, 6]) {
        1 => Op::Register(sender(bytes), bytes.below(PROFILES)),
        2 => Op::Remove(sender(bytes)),
        3 => Op::Reset(sender(bytes), bytes.below(2) as u32),
        4 => Op::Clear,
        5 => Op::Totals,
        6 => {
            let (worker, pool) = pair(bytes);
            Op::Attach(worker, pool)
        }
        7 => {
            let (worker, pool) = pair(bytes);
            Op::Detach(worker, pool)
        }
        8 => Op::Predict(Predicted {
            worker: bytes.below(WORKERS.len()),
            rank: bytes.pick([50]) as u32,
            letters: chain(bytes, pool).letters,
            space: pool.spaces[bytes.below(3)],
            now: bytes.below(9) as u32,
            ttl: bytes.below(6) as u32,
            capacity: (bytes.pick([80]) == 1).then(|| bytes.below(6) as u32),
        }),
        9 => Op::Expire(bytes.below(12) as u32),
        _ => Op::Batch(sent(bytes, pool)),
    }
}

fn sent(bytes: &mut Bytes<'_>, pool: &Pool) -> Sent {
    Sent {
        sender: sender(bytes),
        rank: bytes.pick([50]) as u32,
        ranked: bytes.pick([128]) == 1,
        source: ["", "other"][bytes.pick([40])],
        seq: (bytes.pick([30]) == 1).then(|| bytes.below(12) as u64),
        epoch: [0, 1, 9][bytes.pick([35, 7])],
        now: bytes.pick([20, 20, 20, 20]) as u32 * 2,
        events: (0..=bytes.below(4)).map(|_| told(bytes, pool)).collect(),
    }
}

fn told(bytes: &mut Bytes<'_>, pool: &Pool) -> Told {
    match bytes.pick([28, 36, 28, 5, 5]) {
        1 => Told::Remove(RemoveText {
            chain: chain(bytes, pool),
            above: bytes.below(9),
            medium: medium(bytes),
            odd: odd(bytes),
        }),
        2 => Told::RemoveHeld(bytes.below(40), 1 + bytes.below(3)),
        3 => Told::Again(bytes.below(12)),
        4 => Told::Clear,
        5 => Told::Unreadable(bytes.below(3) as u64),
        _ => Told::Store(store(bytes, pool)),
    }
}

fn chain(bytes: &mut Bytes<'_>, pool: &Pool) -> ChainText {
    let blocks = 1 + bytes.below(9);
    ChainText {
        base: 0,
        letters: (0..blocks).map(|_| bytes.pick([48, 16]) as u32).collect(),
        space: pool.spaces[bytes.below(3)],
        dialect: pool.dialects[bytes.below(3)],
    }
}

fn store(bytes: &mut Bytes<'_>, pool: &Pool) -> StoreText {
    StoreText {
        chain: chain(bytes, pool),
        above: bytes.below(8),
        unit: [1, 2, 3, 4, 5][bytes.pick([36, 12, 12, 12])],
        tokens: match bytes.pick([40, 8, 8]) {
            0 => TokensText::Full,
            1 => TokensText::None,
            2 => TokensText::Partial,
            _ => TokensText::TooFew,
        },
        parent: match bytes.pick([66, 11, 6, 6]) {
            0 => ParentText::True,
            1 => ParentText::Held(bytes.below(60)),
            2 => ParentText::Root,
            3 => ParentText::Unknown,
            _ => ParentText::Itself,
        },
        medium: medium(bytes),
        spoken: bytes.pick([85]) == 0,
        salt_of: (bytes.pick([85]) == 1).then(|| bytes.below(3) as u32),
        image: bytes
            .rarely()
            .then(|| (bytes.below(3) as u32, [-1, 0, 1, 2, 3, 4][bytes.below(6)])),
        pairs: bytes.rarely(),
        odd: odd(bytes),
    }
}

fn medium(bytes: &mut Bytes<'_>) -> Option<&'static str> {
    let media = [None, Some("CPU"), Some("storage"), Some("gpu")];
    let others = [Some("External"), Some("ramdisk"), Some("nowhere")];
    let all = [media.as_slice(), others.as_slice()].concat();
    all[bytes.pick([70, 35, 17, 17, 17, 5])]
}

fn odd(bytes: &mut Bytes<'_>) -> OddText {
    match bytes.pick([15, 5, 10, 5, 5, 5]) {
        0 => OddText::Plain,
        1 => OddText::Size(
            [None, Some(0), Some(2), Some(3), Some(4), Some(u64::MAX)][bytes.below(6)],
        ),
        2 => OddText::LoraId([6, 7][bytes.below(2)]),
        3 => group(bytes),
        4 => OddText::Remote,
        5 => OddText::ExtraKeys,
        _ => OddText::Twice,
    }
}

fn group(bytes: &mut Bytes<'_>) -> OddText {
    let kinds = [None, Some(GroupKind::Full), Some(GroupKind::Other)];
    let number = [None, Some(0), Some(1), Some(2)][bytes.below(4)];
    OddText::Group(number, kinds[bytes.below(3)])
}

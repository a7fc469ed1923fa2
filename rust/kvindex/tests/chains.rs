//! Units, forks and holes on chains that share a trunk, short ones and some that
//! are longer than one run of the index can be.
//!
//! The model knows blocks by branch and position, so that it stays simple at
//! that size: a trunk, and branches that leave another branch somewhere.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::said::{Said, batch, remove, store};
use common::{EVERYBODY, config, origin, rows};
use kvindex::key::{BlockHasher, SEED, chain};
use kvindex::{Blocks, Config, Index, Walk};
use proptest::collection::vec;
use proptest::prelude::*;

/// The longest run.
const RUN: usize = 4096;
/// Blocks of every branch, the part before its fork included.
const LONG: usize = 9000;
const SHORT: usize = 24;
const BRANCHES: usize = 4;
const WORKERS: usize = 3;
const MEDIA: [&str; 2] = ["GPU", "CPU"];

#[derive(Clone, Copy, Debug)]
enum Op {
    Store(Stretch),
    Remove(Stretch),
    /// The stretch as one piece.
    StoreUnit(Stretch),
    RemoveUnit(Stretch),
    RemoveWorker(usize),
}

/// Some blocks of a branch, for one worker and tier.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    worker: usize,
    tier: usize,
    branch: usize,
    start: usize,
    end: usize,
}

/// Where branches leave others: branch `i + 1` leaves the one of that number,
/// modulo `i + 1`, at that position.
type Forks = [(usize, usize); BRANCHES - 1];

/// A block: the branch that it was first seen on, and its position.
type Block = (usize, usize);

struct Tree {
    /// The blocks of every branch from the root on.
    blocks: Vec<Vec<Block>>,
    keys: Vec<Vec<u64>>,
}

fn token(block: Block) -> u32 {
    (block.0 * 100_000 + block.1) as u32
}

fn name(block: Block) -> u64 {
    ((block.0 as u64 + 1) << 32) | block.1 as u64
}

fn unit_name(stretch: &Stretch) -> u64 {
    let position = (stretch.start * 100_000 + stretch.end) as u64;
    (1 << 63) | ((stretch.branch as u64) << 48) | position
}

impl Tree {
    fn new(forks: &Forks, length: usize) -> Self {
        let mut blocks: Vec<Vec<Block>> = vec![(0..length).map(|i| (0, i)).collect()];
        for (number, &(from, at)) in (1..).zip(forks) {
            let mut branch = blocks[from % number][..at].to_vec();
            branch.extend((at..length).map(|i| (number, i)));
            blocks.push(branch);
        }
        let mut hasher = BlockHasher::new(SEED);
        let mut keys = |branch: &Vec<Block>| {
            let mut last = None;
            let key = |block: &Block| {
                let key = chain(last, hasher.local(&[token(*block)], &mut []));
                last = Some(key);
                key
            };
            branch.iter().map(key).collect()
        };
        let keys = blocks.iter().map(&mut keys).collect();
        Self { blocks, keys }
    }

    fn of(&self, stretch: &Stretch) -> &[Block] {
        &self.blocks[stretch.branch][stretch.start..stretch.end]
    }
}

/// What one worker holds on one tier.
#[derive(Default)]
struct Held {
    copies: BTreeMap<Block, u32>,
    /// By branch, first position and the one behind the last.
    units: BTreeMap<(usize, usize, usize), u32>,
}

struct Both {
    index: Index,
    tree: Tree,
    held: Vec<[Held; 2]>,
    /// Blocks and units whose names are known.
    named: BTreeSet<Block>,
    named_units: BTreeSet<(usize, usize, usize)>,
}

impl Both {
    fn new(forks: &Forks, length: usize) -> Self {
        let config = Config {
            orphan_blocks: 0,
            ..config(1)
        };
        Self {
            index: Index::new(config).unwrap(),
            tree: Tree::new(forks, length),
            held: (0..WORKERS).map(|_| Default::default()).collect(),
            named: BTreeSet::new(),
            named_units: BTreeSet::new(),
        }
    }

    fn apply(&self, worker: usize, said: impl Into<Said>) -> kvindex::Report {
        let prepared = self.index.prepare(batch([said.into()]), false).unwrap();
        let worker = format!("w{worker}");
        self.index.apply(&prepared, &origin(&worker)).unwrap()
    }

    fn carry_out(&mut self, op: &Op) {
        match op {
            Op::Store(stretch) => self.store(stretch),
            Op::Remove(stretch) => self.remove(stretch),
            Op::StoreUnit(stretch) => self.store_unit(stretch),
            Op::RemoveUnit(stretch) => self.remove_unit(stretch),
            Op::RemoveWorker(worker) => {
                self.index.remove_worker(&format!("w{worker}")).unwrap();
                self.held[*worker] = Default::default();
            }
        }
        let all = self.all();
        self.named.retain(|block| all.contains(block));
        let blocks = &self.tree.blocks;
        let last = |unit: &(usize, usize, usize)| &blocks[unit.0][unit.2 - 1];
        self.named_units.retain(|unit| all.contains(last(unit)));
    }

    /// Whether what lies before a stretch is known by name.
    fn hangs(&self, stretch: &Stretch) -> bool {
        let before = stretch.start.checked_sub(1);
        before.is_none_or(|at| self.named.contains(&self.tree.blocks[stretch.branch][at]))
    }

    fn said(&self, stretch: &Stretch, names: Vec<u64>) -> common::said::Stored {
        let blocks = self.tree.of(stretch);
        let tokens: Vec<u32> = blocks.iter().map(|block| token(*block)).collect();
        let said = store(names, &tokens).on(MEDIA[stretch.tier]);
        match stretch.start.checked_sub(1) {
            Some(at) => said.below(name(self.tree.blocks[stretch.branch][at])),
            None => said,
        }
    }

    fn store(&mut self, stretch: &Stretch) {
        let blocks = self.tree.of(stretch).to_vec();
        let said = self.said(stretch, blocks.iter().map(|block| name(*block)).collect());
        let known = stretch.tier > 0 && self.named.contains(&blocks[0]);
        let report = self.apply(stretch.worker, said);
        let mut stored: Vec<Block> = blocks;
        if !(known || self.hangs(stretch)) {
            // On a tier other than the device what is known needs no parent.
            let known = |block: &Block| stretch.tier > 0 && self.named.contains(block);
            let first = stored.iter().position(known).unwrap_or(stored.len());
            stored.drain(..first);
        }
        assert_eq!(report.stored, stored.len() as u64);
        for block in stored {
            let held = &mut self.held[stretch.worker][stretch.tier];
            *held.copies.entry(block).or_default() += 1;
            self.named.insert(block);
        }
    }

    fn remove(&mut self, stretch: &Stretch) {
        let blocks = self.tree.of(stretch).to_vec();
        let said = remove(blocks.iter().map(|block| name(*block))).on(MEDIA[stretch.tier]);
        let report = self.apply(stretch.worker, said);
        let held = &mut self.held[stretch.worker][stretch.tier].copies;
        let removed = blocks.iter().filter(|block| take(held, block)).count();
        assert_eq!(report.removed, removed as u64);
    }

    fn store_unit(&mut self, stretch: &Stretch) {
        let hangs = self.hangs(stretch);
        let said = self.said(stretch, vec![unit_name(stretch)]);
        let length = (stretch.end - stretch.start) as u64;
        let report = self.apply(stretch.worker, said.sized(length));
        let key = (stretch.branch, stretch.start, stretch.end);
        // On a tier other than the device what is known needs no parent.
        let stored = hangs || (stretch.tier > 0 && self.named_units.contains(&key));
        assert_eq!(report.stored, u64::from(stored), "{stretch:?}");
        if stored {
            let units = &mut self.held[stretch.worker][stretch.tier].units;
            *units.entry(key).or_default() += 1;
            self.named_units.insert(key);
        }
    }

    fn remove_unit(&mut self, stretch: &Stretch) {
        let said = remove([unit_name(stretch)]).on(MEDIA[stretch.tier]);
        let report = self.apply(stretch.worker, said);
        let key = (stretch.branch, stretch.start, stretch.end);
        let units = &mut self.held[stretch.worker][stretch.tier].units;
        assert_eq!(report.removed, u64::from(take(units, &key)));
    }

    /// The blocks that one worker holds on one tier.
    fn of(&self, held: &Held) -> BTreeSet<Block> {
        let mut all: BTreeSet<Block> = held.copies.keys().copied().collect();
        for &(branch, start, end) in held.units.keys() {
            all.extend(&self.tree.blocks[branch][start..end]);
        }
        all
    }

    fn all(&self) -> BTreeSet<Block> {
        let mut all = BTreeSet::new();
        for held in self.held.iter().flatten() {
            all.append(&mut self.of(held));
        }
        all
    }

    /// Checks the answer for the first blocks of a branch.
    fn check(&self, branch: usize, length: usize, walk: &mut Walk) {
        let keys = &self.tree.keys[branch][..length];
        let found = self.index.find(&Blocks::Chain(keys), &EVERYBODY, walk);
        let found = rows(&found.unwrap());
        for (worker, tiers) in self.held.iter().enumerate() {
            let mut on = vec![[false; 2]; length];
            for (tier, held) in tiers.iter().enumerate() {
                let path = &self.tree.blocks[branch][..length];
                for (block, on) in path.iter().zip(&mut on) {
                    on[tier] |= held.copies.contains_key(block);
                }
                for &(other, start, end) in held.units.keys() {
                    let of = &self.tree.blocks[other];
                    if end <= length && of[end - 1] == path[end - 1] {
                        on[start..end].iter_mut().for_each(|on| on[tier] = true);
                    }
                }
            }
            let depth = on.iter().take_while(|on| on[0] || on[1]).count();
            let device = on[..depth].iter().filter(|on| on[0]).count();
            let expected = [device as u32, (depth - device) as u32, 0, 0, 0, 0];
            let row = found.get(&(format!("w{worker}"), 0)).copied();
            assert_eq!(
                row.unwrap_or_default(),
                expected,
                "w{worker} on {branch}, {length}"
            );
        }
    }

    fn check_totals(&self) {
        let stats = self.index.stats().unwrap();
        assert_eq!(stats.blocks, self.all().len() as u64);
        let claims = self.held.iter().flatten();
        let claims: usize = claims.map(|held| self.of(held).len()).sum();
        assert_eq!(stats.claims, claims as u64);
    }
}

fn take<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else {
        return false;
    };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
    true
}

fn stretch(
    position: impl Strategy<Value = usize> + Clone,
    length: impl Strategy<Value = usize> + Clone,
    most: usize,
) -> impl Strategy<Value = Stretch> + Clone {
    let who = (0..WORKERS, 0..MEDIA.len(), 0..BRANCHES);
    (who, position, length).prop_map(move |((worker, tier, branch), start, length)| Stretch {
        worker,
        tier,
        branch,
        start,
        end: (start + length).min(most),
    })
}

fn op(stretch: impl Strategy<Value = Stretch> + Clone) -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => stretch.clone().prop_map(Op::Store),
        4 => stretch.clone().prop_map(Op::Remove),
        4 => stretch.clone().prop_map(Op::StoreUnit),
        2 => stretch.prop_map(Op::RemoveUnit),
        1 => (0..WORKERS).prop_map(Op::RemoveWorker),
    ]
}

/// Positions in a long chain, most of them near the ends of runs.
fn far() -> impl Strategy<Value = usize> + Clone {
    prop_oneof![
        4 => Just(0_usize),
        4 => RUN - 4..RUN + 4,
        2 => 2 * RUN - 4..2 * RUN + 4,
        2 => 1..LONG - 1,
    ]
}

fn far_op() -> impl Strategy<Value = Op> {
    let length = prop_oneof![1..9_usize, RUN - 4..RUN + 4, 1..LONG];
    op(stretch(far(), length, LONG))
}

fn near_op() -> impl Strategy<Value = Op> {
    let position = prop_oneof![1 => Just(0_usize), 2 => 0..SHORT];
    op(stretch(position, 1..SHORT / 2, SHORT))
}

/// A number of branches, and where each leaves the earlier ones.
fn forks(position: impl Strategy<Value = usize> + Clone) -> impl Strategy<Value = Forks> {
    let fork = |branches: usize| (0..branches, position.clone());
    [fork(1), fork(2), fork(3)]
}

/// The trunk is there from the start, so that most of what follows can hang.
fn carry_out(mut both: Both, trunk: usize, ops: &[Op], lengths: &[usize]) {
    let most = both.tree.blocks[0].len();
    let mut walk = Walk::default();
    both.store(&Stretch {
        worker: 0,
        tier: 1,
        branch: 0,
        start: 0,
        end: trunk,
    });
    for op in ops {
        both.carry_out(op);
        for branch in 0..BRANCHES {
            both.check(branch, most, &mut walk);
        }
        both.check_totals();
    }
    for &length in lengths {
        for branch in 0..BRANCHES {
            both.check(branch, length, &mut walk);
        }
    }
    for worker in 0..WORKERS {
        both.carry_out(&Op::RemoveWorker(worker));
    }
    let stats = both.index.stats().unwrap();
    assert_eq!((stats.blocks, stats.runs, stats.names), (0, 0, 0));
}

/// So many times the usual number of cases, or a part of it.
fn cases(times: u32, part: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig {
        cases: (config.cases * times).div_ceil(part),
        failure_persistence: None,
        ..config
    }
}

proptest! {
    #![proptest_config(cases(16, 1))]

    #[test]
    fn test_short_chains_agree_with_the_model(
        forks in forks(0..SHORT),
        trunk in 1..=SHORT,
        ops in vec(near_op(), 1..50),
    ) {
        let lengths: Vec<usize> = (1..SHORT).collect();
        carry_out(Both::new(&forks, SHORT), trunk, &ops, &lengths);
    }
}

proptest! {
    #![proptest_config(cases(1, 8))]

    #[test]
    fn test_chains_longer_than_a_run_agree_with_the_model(
        forks in forks(far()),
        trunk in prop_oneof![1..LONG, RUN - 2..RUN + 3],
        ops in vec(far_op(), 1..16),
        lengths in vec(far(), 4),
    ) {
        carry_out(Both::new(&forks, LONG), trunk, &ops, &lengths);
    }
}

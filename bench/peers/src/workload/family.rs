//! Families: a shared prefix and the workers that hold it, each with a tail.

use super::random::mix;
use super::{Block, Names, Random, grow};

/// Who shares how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Prefixes shared by 1 (50 %), 8 (35 %) or 64 (15 %) workers.
    Mixed,
    /// Every prefix is one worker's own.
    Unique,
    /// Every prefix is that deep and shared by so many workers, without tails.
    Fixed {
        /// Blocks.
        depth: usize,
        /// Workers.
        degree: usize,
    },
}

/// So many families that their claims come to about a given number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) seed: u64,
    pub(crate) workers: u32,
    pub(crate) sharing: Sharing,
    pub(crate) names: Names,
    /// How many families there are.
    pub(crate) families: u64,
    /// What they come to.
    pub(crate) claims: u64,
    /// Distinct blocks among the claims.
    pub(crate) distinct: u64,
}

/// The sizes of one family.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) first: u32,
    pub(crate) shared: usize,
    pub(crate) tails: Vec<usize>,
}

/// A shared prefix, and each member's worker and tail.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) shared: Vec<Block>,
    pub(crate) members: Vec<Member>,
}

/// One worker's part in a family.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) worker: u32,
    pub(crate) tail: Vec<Block>,
}

impl Fleet {
    /// Families of at least so many claims.
    pub(crate) fn new(seed: u64, claims: u64, sharing: Sharing, names: Names) -> Self {
        let mut fleet = Self {
            seed,
            workers: 256,
            sharing,
            names,
            families: 0,
            claims: 0,
            distinct: 0,
        };
        while fleet.claims < claims {
            let shape = fleet.shape(fleet.families);
            let tails: usize = shape.tails.iter().sum();
            fleet.claims += (shape.shared * shape.tails.len() + tails) as u64;
            fleet.distinct += (shape.shared + tails) as u64;
            fleet.families += 1;
        }
        fleet
    }

    /// From a member's worker to the next one's.
    fn step(&self) -> u32 {
        if matches!(self.sharing, Sharing::Fixed { .. }) {
            1
        } else {
            3
        }
    }

    fn random(&self, family: u64, part: u64) -> Random {
        Random::new(mix(self.seed).wrapping_add(family << 8) ^ part)
    }

    /// So many families of one size.
    pub(crate) fn fixed(seed: u64, families: u64, depth: usize, degree: usize) -> Self {
        Self {
            seed,
            workers: degree as u32,
            sharing: Sharing::Fixed { depth, degree },
            names: Names::Common,
            families,
            claims: families * (depth * degree) as u64,
            distinct: families * depth as u64,
        }
    }

    /// The sizes of family number `number`.
    pub(crate) fn shape(&self, number: u64) -> Shape {
        let mut random = self.random(number, 0);
        if let Sharing::Fixed { depth, degree } = self.sharing {
            return Shape {
                first: 0,
                shared: depth,
                tails: vec![0; degree],
            };
        }
        let degree = match (self.sharing, random.below(100)) {
            (Sharing::Unique, _) | (_, 0..50) => 1,
            (_, 50..85) => 8,
            _ => 64,
        };
        Shape {
            first: random.below(self.workers as usize) as u32,
            shared: random.log_uniform(8, 512),
            tails: (0..degree).map(|_| 4 + random.below(61)).collect(),
        }
    }

    /// Family number `number`.
    pub(crate) fn family(&self, number: u64) -> Family {
        let shape = self.shape(number);
        let mut random = self.random(number, 1);
        let mut shared = Vec::with_capacity(shape.shared);
        grow(&mut shared, shape.shared, &mut random);
        let member = |(number, &length): (usize, &usize)| {
            let mut chain = vec![shared[shape.shared - 1]];
            grow(&mut chain, length, &mut random);
            Member {
                worker: (shape.first + self.step() * number as u32) % self.workers,
                tail: chain.split_off(1),
            }
        };
        let members = shape.tails.iter().enumerate().map(member).collect();
        Family { shared, members }
    }
}

impl Family {
    /// All blocks of one member, from the root to its leaf.
    pub(crate) fn chain(&self, member: usize) -> Vec<Block> {
        [&self.shared[..], &self.members[member].tail].concat()
    }
}

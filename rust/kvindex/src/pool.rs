//! What of a query lies in pools, and for whom does it count?

use std::ops::Range;

use crate::found::Row;
use crate::roster::Reach;
use crate::tally::{Tiers, join, nearest};

/// A pool that holds any block of the query.
#[derive(Debug)]
struct Pool {
    holder: u32,
    ranges: Vec<Range<u32>>,
}

/// What pools hold of one walk's query.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    list: Vec<Pool>,
    /// What all of them hold together.
    all: Vec<Range<u32>>,
}

impl Pools {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.all.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds what a pool holds, on whichever tiers.
    pub(crate) fn add(&mut self, holder: u32, tiers: &Tiers) {
        let mut ranges = tiers.concat();
        join(&mut ranges);
        self.all.extend_from_slice(&ranges);
        join(&mut self.all);
        self.list.push(Pool { holder, ranges });
    }

    /// Each pool, and how many leading blocks it holds.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (u32, u32)> {
        let pools = self.list.iter();
        pools.map(|pool| (pool.holder, leading(&pool.ranges)))
    }

    /// How many leading blocks the pools hold together that are reached.
    pub(crate) fn depth(&self, reach: Reach<'_>) -> u32 {
        match reach {
            None => leading(&self.all),
            Some(reached) => leading(&self.reached(reached)),
        }
    }

    /// The row of a holder with blocks of its own, and so many that are predicted.
    pub(crate) fn row(&self, holder: u32, own: &Tiers, reach: Reach<'_>, predicted: u32) -> Row {
        let [one, two, three, four] = own.each_ref().map(Vec::as_slice);
        let reached = reach.map(|reached| self.reached(reached));
        let pools = reached.as_ref().unwrap_or(&self.all);
        let expected = 0..predicted;
        let expected = if predicted > 0 {
            std::slice::from_ref(&expected)
        } else {
            &[]
        };
        let counted = nearest([one, two, three, four, pools, expected]);
        let [device, host, disk, external, shared, predicted] = counted;
        let row = Row::new(holder, [device, host, disk, external]);
        row.sharing(shared).expecting(predicted)
    }

    fn reached(&self, reached: &[u32]) -> Vec<Range<u32>> {
        let pools = self.list.iter();
        let pools = pools.filter(|pool| reached.contains(&pool.holder));
        let mut ranges = pools.flat_map(|pool| pool.ranges.clone()).collect();
        join(&mut ranges);
        ranges
    }
}

/// How many blocks from 0 on joined ranges cover.
fn leading(ranges: &[Range<u32>]) -> u32 {
    let first = ranges.first().filter(|range| range.start == 0);
    first.map_or(0, |range| range.end)
}

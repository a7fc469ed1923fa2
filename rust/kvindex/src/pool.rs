//! What of a query lies in pools, and for whom does it count?

use std::ops::Range;

use crate::credit::{Credits, Own};
use crate::found::Row;
use crate::group::MAIN;
use crate::resume::Besides;
use crate::roster::Reach;
use crate::tally::{Tiers, join, nearest};

/// A pool that holds any block of the query.
#[derive(Debug)]
struct Pool {
    holder: u32,
    ranges: Vec<Range<u32>>,
}

impl Pool {
    /// The blocks that count where the query has `end` blocks, of those that are
    /// credited in the walk under way.
    fn up_to(&self, end: u32, credits: &Credits) -> Vec<Range<u32>> {
        if end == u32::MAX {
            return self.ranges.clone();
        }
        let mut ranges = Vec::new();
        credits.of(self.holder).ranges(MAIN, end, &mut ranges);
        ranges
    }
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
    pub(crate) fn add(&mut self, holder: u32, own: Own<'_>) {
        let mut ranges = Vec::new();
        own.ranges(MAIN, u32::MAX, &mut ranges);
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
            Some(_) => leading(&self.reached(reach, |pool| pool.ranges.clone())),
        }
    }

    /// The row of a holder with blocks of its own, where the query has `end` blocks.
    pub(crate) fn row(&self, holder: u32, own: &Tiers, end: u32, besides: &Besides<'_>) -> Row {
        let [one, two, three, four] = own.each_ref().map(Vec::as_slice);
        let Besides { reach, credits, .. } = *besides;
        let reached = (reach.is_some() || end < u32::MAX)
            .then(|| self.reached(reach, |pool| pool.up_to(end, credits)));
        let pools = reached.as_ref().unwrap_or(&self.all);
        let expected = 0..besides.predicted.min(end);
        let expected = if expected.end > 0 {
            std::slice::from_ref(&expected)
        } else {
            &[]
        };
        let counted = nearest([one, two, three, four, pools, expected]);
        let [device, host, disk, external, shared, predicted] = counted;
        let row = Row::new(holder, [device, host, disk, external]);
        row.sharing(shared).expecting(predicted)
    }

    /// What the pools hold together that are reached.
    fn reached(
        &self,
        reach: Reach<'_>,
        ranges: impl Fn(&Pool) -> Vec<Range<u32>>,
    ) -> Vec<Range<u32>> {
        let pools = self.list.iter();
        let pools = pools.filter(|pool| reach.is_none_or(|all| all.contains(&pool.holder)));
        let mut all = pools.flat_map(ranges).collect();
        join(&mut all);
        all
    }
}

/// How many blocks from 0 on joined ranges cover.
fn leading(ranges: &[Range<u32>]) -> u32 {
    let first = ranges.first().filter(|range| range.start == 0);
    first.map_or(0, |range| range.end)
}

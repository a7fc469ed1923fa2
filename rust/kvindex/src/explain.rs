//! Why is an answer what it is?

use crate::error::Forked;
use crate::found::{Blocks, Explanation, HolderState, Row, depth_of};
use crate::holder::Sender;
use crate::index::Index;
use crate::keys::Keys;
use crate::query::{How, Walk};
use crate::writer::Writer;

impl Index {
    /// Why a holder's answer is what it is.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn explain(
        &self,
        blocks: &Blocks<'_>,
        worker: &str,
        rank: u32,
        walk: &mut Walk,
    ) -> Result<Explanation, Forked> {
        let writer = self.write()?;
        let size = self.config().block_size as usize;
        let holder = writer.holders.find(Sender::Worker(worker), rank);
        self.roster.refresh(&mut walk.names);
        walk.counts.want(holder.into_iter());
        walk.begin();
        let mut best = Explanation::default();
        for pairs in [false, true] {
            let mut keys = Keys::new(blocks, size, pairs, Vec::new());
            let how = How {
                pairs,
                exhaustive: true,
                ..How::default()
            };
            if !pairs {
                self.expect(&mut keys, walk)?;
            }
            self.run(blocks, &mut keys, how, walk)?;
            let found = holder.and_then(|holder| walk.counts.find(holder));
            let row = found.map(|at| walk.counts.rows()[at]);
            let row = row.unwrap_or_else(|| Row::default().sharing(walk.shared(worker)));
            let known = u64::from(walk.known());
            let reach = walk.names.reach(worker);
            if !pairs || (row.depth(), known) > (best.row.depth(), best.known) {
                best = Explanation {
                    blocks: keys.total() as u64,
                    known,
                    row,
                    held: walk.held(&self.shared, holder, reach),
                    pools: Vec::new(),
                    groups: holder.map_or_else(Vec::new, |holder| {
                        let apart = walk.apart(usize::from(pairs), holder, keys.total() as u32);
                        let groups = &writer.holders.get(holder).groups;
                        groups.depths(size as u32, &apart)
                    }),
                    state: holder.map(|holder| writer.state(holder)),
                };
            }
        }
        walk.note_depths();
        let reach = walk.names.reach(worker);
        let reached = walk.names.pools().iter();
        let reached = reached.filter(|pool| reach.is_none_or(|reach| reach.contains(&pool.1)));
        let reached = reached.map(|(pool, holder)| (pool.clone(), depth_of(&walk.depths, *holder)));
        best.pools = reached.collect();
        Ok(best)
    }
}

impl Writer {
    /// The state of a worker's rank.
    pub(crate) fn state(&self, number: u32) -> HolderState {
        let holder = self.holders.get(number);
        HolderState {
            worker: holder.name.clone(),
            rank: holder.rank,
            tiers: holder.held,
            predicted: self.predictions.blocks(number),
            seq: holder.seq,
            orphans: holder.waiting.blocks,
            duplicates: holder.duplicates,
        }
    }
}

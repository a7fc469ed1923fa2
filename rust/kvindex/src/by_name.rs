//! Who holds how many leading ones of some names, for the writer.

use crate::claims::Claim;
use crate::event::{Name, Tier};
use crate::found::Row;
use crate::member::{Identity, Role};
use crate::mix::MixMap;
use crate::run::Block;
use crate::sync::Ordering::Relaxed;
use crate::tally::{Tiers, cascade, join, nearest};
use crate::writer::Writer;

impl Writer {
    /// The rows of holders that hold the first of the names, at least.
    pub(crate) fn rows_of_names(&mut self, names: &[Name], cascading: bool) -> Vec<Row> {
        let mut found: MixMap<u32, Tiers> = MixMap::default();
        let mut reach: MixMap<u32, u32> = MixMap::default();
        for (at, &name) in (0_u32..).zip(names) {
            let mut anybody = false;
            for (holder, tier) in self.holders_of(name) {
                let reached = reach.entry(holder).or_default();
                if *reached < at {
                    continue;
                }
                *reached = at + 1;
                anybody = true;
                let tiers = found.entry(holder).or_default();
                tiers[tier as usize].push(at..at + 1);
            }
            if !anybody {
                break;
            }
        }
        let rows = found.into_iter().map(|(holder, mut tiers)| {
            tiers.iter_mut().for_each(join);
            let count = if cascading { cascade } else { nearest };
            Row::new(holder, count(&tiers))
        });
        rows.filter(|row| row.depth() > 0).collect()
    }

    /// Who holds any block under that name, and on which tiers.
    fn holders_of(&mut self, name: Name) -> Vec<(u32, Tier)> {
        let meanings = self.store.places.meanings(&self.store.shared, name);
        let mut found = Vec::new();
        for block in meanings.iter() {
            if !self.store.live(block) {
                continue;
            }
            for word in self.store.shared.claims(block.run()) {
                let claim = Claim::unpack(word.load(Relaxed));
                let member = self.store.shared.members.record(claim.number());
                let member = Identity::unpack(member[0].load(Relaxed)).expect("the run is tidy");
                if self.claims_under(claim, member, block, name) {
                    found.push((member.holder, member.tier));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn claims_under(&self, claim: Claim, member: Identity, block: Block, name: Name) -> bool {
        match member.role {
            Role::Shadow => false,
            Role::Plain => {
                claim.range().contains(&block.offset())
                    && self.has_name(claim.number(), block, name)
            }
            Role::Unit => {
                let units = self.members.get(claim.number()).units.get(&block);
                claim.end == block.offset() + 1
                    && units.is_some_and(|units| {
                        units.iter().any(|unit| unit.copies.name.matches(name))
                    })
            }
        }
    }
}

//! Who holds how many leading ones of some names, for the writer.

use crate::claims::Claim;
use crate::credit::Credits;
use crate::event::Name;
use crate::member::{Identity, Role};
use crate::run::Block;
use crate::sync::Ordering::Relaxed;
use crate::writer::Writer;

impl Writer {
    /// Credits whoever holds the names, up to one that nobody holds.
    pub(crate) fn credit_names(&mut self, names: &[Name], credits: &mut Credits) {
        credits.clear();
        for (at, &name) in (0_u32..).zip(names) {
            let before = credits.len();
            self.credit_name(name, at, credits);
            if credits.len() == before {
                break;
            }
        }
    }

    /// Credits block `at` of a query to whoever holds any block under a name.
    fn credit_name(&mut self, name: Name, at: u32, credits: &mut Credits) {
        for page in self.pages.named(name) {
            for number in self.pages.members(page, name) {
                let member = self.store.shared.members.record(number);
                let member = Identity::unpack(member[0].load(Relaxed)).expect("it holds the page");
                credits.push(Identity { chunk: 0, ..member }, at..at + 1);
            }
        }
        let meanings = self.store.places.meanings(&self.store.shared, name);
        for block in meanings.iter() {
            if !self.store.live(block) {
                continue;
            }
            for word in self.store.shared.claims(block.run()) {
                let claim = Claim::unpack(word.load(Relaxed));
                let member = self.store.shared.members.record(claim.number());
                let member = Identity::unpack(member[0].load(Relaxed)).expect("the run is tidy");
                if self.claims_under(claim, member, block, name) {
                    // By name a block counts even where its chunk is not whole.
                    credits.push(Identity { chunk: 0, ..member }, at..at + 1);
                }
            }
        }
    }

    fn claims_under(&self, claim: Claim, member: Identity, block: Block, name: Name) -> bool {
        match member.role {
            Role::Shadow => false,
            Role::Plain | Role::Paged => {
                self.members.get(claim.number()).pages.is_empty()
                    && claim.range().contains(&block.offset())
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

//! Where do the blocks of a store go? Below a parent, under names that are known
//! already, or into the waiting room.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::ops::Range;

use crate::event::{Batch, Name, Reason, Store, Tier};
use crate::group::MAIN;
use crate::hold::Target;
use crate::key::chain;
use crate::namespace::Namespace;
use crate::orphan::{Orphan, excerpt};
use crate::pages::{PageId, Spot};
use crate::prepare::{Layout, Plan};
use crate::profile::Profile;
use crate::report::Report;
use crate::resolve::{Given, Meaning};
use crate::run::Block;
use crate::store::Piece;
use crate::writer::Writer;

/// A store with tokens, on its way in.
pub(crate) struct Incoming<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) store: &'a Store,
    pub(crate) target: Target,
    /// Hashes with tokens.
    pub(crate) count: usize,
    /// Blocks a hash; a page counts as one.
    pub(crate) unit: usize,
    /// Tokens a hash, where it is a page.
    pub(crate) page: Option<NonZeroU32>,
    /// The adapter that the event names, empty = none.
    pub(crate) lora: &'a str,
    pub(crate) given: Given<'a>,
    pub(crate) inherits: bool,
    /// Whether a hash only ever means this holder's own blocks.
    pub(crate) own_names: bool,
    /// Keys that hold under a parent without a namespace.
    pub(crate) planned: Option<(&'a Plan, &'a [u64])>,
    /// Which hashes are not to be stored; empty = none of them.
    pub(crate) taken: &'a [bool],
}

impl Incoming<'_> {
    pub(crate) fn names(&self) -> &[Name] {
        &self.batch.names[self.store.names.start..self.store.names.start + self.count]
    }

    pub(crate) fn is_taken(&self, hash: usize) -> bool {
        self.taken.get(hash).copied().unwrap_or(false)
    }

    /// How many of some hashes are to be stored.
    pub(crate) fn left(&self, hashes: Range<usize>) -> u64 {
        hashes.filter(|&hash| !self.is_taken(hash)).count() as u64
    }

    /// Whether names that are known say more than the tokens: events for other
    /// tiers leave out salts and images, those of other groups some of the hashes.
    fn goes_by_name(&self) -> bool {
        let silent = self.target.tier != Tier::Device && !self.store.extra_keys;
        silent || (self.target.group != MAIN && !self.own_names)
    }
}

/// What became of a store, in hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) stored: u64,
    pub(crate) ambiguous: u64,
    /// Of a size that does not fit where they belong.
    pub(crate) misfit: u64,
    pub(crate) waiting: u64,
    /// Pushed out of the waiting room, or too many for it.
    pub(crate) dropped: u64,
}

/// Where the next hash of a store goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Root,
    Below(Block),
    /// Behind a page, inside of its block.
    Inside(PageId),
    /// Below a parent that nobody has announced.
    Unknown(Name),
    /// Below a name that means blocks of several namespaces.
    Refused,
    /// Inside of a block, where no hash of this size begins.
    Misfit,
}

impl Outcome {
    /// Counts hashes that have no place.
    pub(crate) fn refuse(&mut self, place: Place, hashes: u64) {
        match place {
            Place::Misfit => self.misfit += hashes,
            _ => self.ambiguous += hashes,
        }
    }
}

impl Writer {
    /// Stores what came with tokens, as far as its place is known.
    pub(crate) fn take_in(&mut self, incoming: &Incoming<'_>, profile: &Profile) -> Outcome {
        let mut outcome = Outcome::default();
        let mut place = self.place_below_parent(incoming, profile);
        let mut hash = 0;
        while hash < incoming.count {
            let known = self.known(incoming, hash);
            if known == Meaning::Unknown {
                let end = self.unknown_up_to(incoming, hash);
                place = self.take_in_unknown(incoming, place, hash..end, &mut outcome);
                hash = end;
            } else {
                place = self.take_in_known(incoming, known, hash, &mut outcome);
                hash += 1;
            }
        }
        outcome
    }

    fn place_below_parent(&mut self, incoming: &Incoming<'_>, profile: &Profile) -> Place {
        let is_root = |name: Name| profile.root.is_some_and(|root| root.matches(name));
        let Some(parent) = incoming.store.parent.filter(|parent| !is_root(*parent)) else {
            return Place::Root;
        };
        match self.resolve(incoming.target.holder, parent, incoming.given) {
            Meaning::Block(block) => Place::Below(block),
            Meaning::Page(page) => self.behind(incoming, page),
            Meaning::Unknown => Place::Unknown(parent),
            Meaning::Ambiguous => Place::Refused,
        }
    }

    /// Where hashes go behind a page: whole blocks only behind the last of a block.
    fn behind(&self, incoming: &Incoming<'_>, page: PageId) -> Place {
        match self.pages.ends(page) {
            Some(block) => Place::Below(block),
            None if incoming.page.is_some() => Place::Inside(page),
            None => Place::Misfit,
        }
    }

    /// The block that a hash is known to mean, where that decides.
    fn known(&mut self, incoming: &Incoming<'_>, hash: usize) -> Meaning {
        if !incoming.goes_by_name() {
            return Meaning::Unknown;
        }
        let name = incoming.names()[hash];
        match self.resolve(incoming.target.holder, name, incoming.given) {
            // What is called a block elsewhere may be a page here.
            Meaning::Block(_) if incoming.page.is_some() => Meaning::Unknown,
            known => known,
        }
    }

    /// Behind the last of the unknown names that follow one.
    fn unknown_up_to(&mut self, incoming: &Incoming<'_>, hash: usize) -> usize {
        if !incoming.goes_by_name() {
            return incoming.count;
        }
        let mut rest = hash + 1..incoming.count;
        rest.find(|&hash| self.known(incoming, hash) != Meaning::Unknown)
            .unwrap_or(incoming.count)
    }

    fn take_in_known(
        &mut self,
        incoming: &Incoming<'_>,
        known: Meaning,
        hash: usize,
        outcome: &mut Outcome,
    ) -> Place {
        let left = incoming.left(hash..hash + 1);
        let (place, page) = match known {
            Meaning::Block(block) => (Place::Below(block), None),
            Meaning::Page(page) => {
                let page_here = incoming.page.map(|_| page);
                (self.behind(incoming, page), page_here)
            }
            Meaning::Unknown | Meaning::Ambiguous => (Place::Refused, None),
        };
        let name = incoming.names()[hash];
        match (place, page) {
            _ if left == 0 => {}
            (_, Some(page)) => self.hold_page(incoming.target, page, name),
            (Place::Below(block), None) => {
                self.hold_known(incoming.target, block, incoming.unit as u32, name);
            }
            _ => {
                outcome.refuse(place, left);
                return place;
            }
        }
        outcome.stored += left;
        place
    }

    fn take_in_unknown(
        &mut self,
        incoming: &Incoming<'_>,
        place: Place,
        hashes: Range<usize>,
        outcome: &mut Outcome,
    ) -> Place {
        let (block, page) = match place {
            Place::Root => (None, None),
            Place::Below(parent) => (Some(parent), None),
            Place::Inside(page) => (None, Some(page)),
            Place::Unknown(parent) => {
                self.let_wait(incoming, hashes.end, parent, outcome);
                return place;
            }
            Place::Refused | Place::Misfit => {
                outcome.refuse(place, incoming.left(hashes));
                return place;
            }
        };
        let Some(size) = incoming.page else {
            return Place::Below(self.extend(incoming, block, hashes, outcome));
        };
        let spot = page.map_or(Spot { block, page }, |page| self.pages.behind(page));
        self.extend_by_pages(incoming, spot, hashes, size, outcome)
    }

    fn let_wait(
        &mut self,
        incoming: &Incoming<'_>,
        count: usize,
        parent: Name,
        outcome: &mut Outcome,
    ) {
        if (count * incoming.unit) as u64 > u64::from(self.orphan_blocks) {
            outcome.dropped += count as u64;
            return;
        }
        let tokens = if count == incoming.store.names.len() || incoming.store.tokens.is_empty() {
            incoming.store.tokens.len()
        } else {
            let size = incoming.page.map_or(self.block_size, NonZeroU32::get);
            count * incoming.unit * size as usize + usize::from(incoming.store.pairs)
        };
        let lora = (!incoming.lora.is_empty()).then(|| incoming.lora.into());
        let orphan = Orphan {
            holder: incoming.target.holder,
            group: incoming.target.group,
            tier: incoming.target.tier,
            parent,
            batch: excerpt(incoming.batch, incoming.store, count, tokens),
            lora,
            unit: incoming.unit as u32,
            page: incoming.page,
            taken: vec![false; count],
        };
        outcome.waiting += count as u64;
        outcome.dropped += self.wait(orphan);
    }

    /// Stores hashes below a block, or at the root; returns the last block.
    fn extend(
        &mut self,
        incoming: &Incoming<'_>,
        parent: Option<Block>,
        hashes: Range<usize>,
        outcome: &mut Outcome,
    ) -> Block {
        let layout = Layout {
            batch: incoming.batch,
            store: incoming.store,
            count: incoming.count,
            unit: incoming.unit,
            block_size: self.block_size as usize,
        };
        let bare = if incoming.inherits {
            parent.is_none_or(|parent| self.store.namespace(parent).is_bare())
        } else {
            incoming.store.salts.is_empty()
        };
        let (owned, mut keys);
        let (spaces, locals) = match incoming.planned {
            Some((plan, locals)) if bare => (&plan.spaces, locals),
            _ => {
                let above = parent.map(|parent| self.store.namespace(parent).clone());
                let above = above.unwrap_or_default();
                let inherited = incoming.inherits.then_some(&above);
                owned = layout.spaces(incoming.lora, inherited);
                keys = Vec::new();
                layout.locals(&owned, &mut keys);
                (&owned, &keys[..])
            }
        };
        let mut at = parent;
        for (stretch, space) in spaces.stretches(incoming.count) {
            let stretch = stretch.start.max(hashes.start)..stretch.end.min(hashes.end);
            if stretch.start < stretch.end {
                let locals = &locals[stretch.start * incoming.unit..stretch.end * incoming.unit];
                at = Some(self.extend_stretch(incoming, at, stretch, space, locals));
            }
        }
        outcome.stored += incoming.left(hashes);
        let last = at.expect("there are hashes");
        // So that blocks at the end that nobody holds go when it is let go.
        self.store.pin(last);
        last
    }

    fn extend_stretch(
        &mut self,
        incoming: &Incoming<'_>,
        parent: Option<Block>,
        hashes: Range<usize>,
        space: &Namespace,
        locals: &[u64],
    ) -> Block {
        let mut key = parent.map(|parent| self.store.shared.key(parent));
        let mut next = |local: &u64| {
            let chained = chain(key, *local);
            key = Some(chained);
            chained
        };
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend(locals.iter().map(&mut next));
        let (mut at, mut done) = (parent, 0);
        while done < keys.len() {
            // A unit is stored before the next one begins.
            let end = match incoming.unit {
                1 => keys.len(),
                unit => (done / unit + 1) * unit,
            };
            let piece = self.store.place(at, space, &keys[done..end]);
            at = Some(piece.last());
            let first = hashes.start + done / incoming.unit;
            done += piece.len();
            if incoming.unit == 1 {
                self.hold_untaken(incoming, piece, first);
            } else if done == end && !incoming.is_taken(first) {
                let name = incoming.names()[first];
                self.hold_unit(incoming.target, piece.last(), incoming.unit as u32, name);
            }
        }
        self.keys = keys;
        at.expect("a stretch has blocks")
    }

    /// Holds the blocks of a piece whose hashes, from `first` on, still wait.
    fn hold_untaken(&mut self, incoming: &Incoming<'_>, piece: Piece, first: usize) {
        let names = &incoming.names()[first..first + piece.len()];
        if incoming.taken.is_empty() {
            return self.hold(incoming.target, piece, names);
        }
        for (i, name) in names.iter().enumerate() {
            if !incoming.is_taken(first + i) {
                let start = piece.start + i as u16;
                let part = Piece {
                    start,
                    end: start + 1,
                    ..piece
                };
                self.hold(incoming.target, part, std::slice::from_ref(name));
            }
        }
        self.store.loosen();
    }

    /// Stores all orphans whose parent has been announced, and theirs, the
    /// oldest first.
    pub(crate) fn attach(&mut self, report: &mut Report) {
        let mut ready = BTreeSet::new();
        loop {
            for name in std::mem::take(&mut self.announced) {
                ready.extend(self.orphans.children(name));
            }
            let next = ready
                .iter()
                .copied()
                .find(|&number| self.has_parent(number));
            let Some(number) = next else { break };
            ready.remove(&number);
            self.attach_one(number, report);
        }
    }

    fn has_parent(&mut self, number: u64) -> bool {
        let Some(orphan) = self.orphans.lend(number) else {
            return false;
        };
        let (lora, salt) = orphan.given();
        let given = Given::by(self.profile(orphan.holder), lora, salt);
        let meaning = self.resolve(orphan.holder, orphan.parent, given);
        self.orphans.give_back(number, orphan);
        matches!(meaning, Meaning::Block(_) | Meaning::Page(_))
    }

    fn attach_one(&mut self, number: u64, report: &mut Report) {
        let orphan = self.unwait(number);
        let profile = self.profile(orphan.holder).clone();
        let (lora, salt) = orphan.given();
        let incoming = Incoming {
            batch: &orphan.batch,
            store: orphan.store(),
            target: self.target(orphan.holder, orphan.group, &profile, orphan.tier),
            count: orphan.taken.len(),
            unit: orphan.unit as usize,
            page: orphan.page,
            lora: lora.unwrap_or_default(),
            given: Given::by(&profile, lora, salt),
            inherits: profile.inherits_namespace(),
            own_names: profile.own_names,
            planned: None,
            taken: &orphan.taken,
        };
        let outcome = self.take_in(&incoming, &profile);
        self.store.unpin();
        report.attached += outcome.stored;
        report.ignore(Reason::Ambiguous, outcome.ambiguous);
        report.ignore(Reason::BlockSize, outcome.misfit);
    }
}

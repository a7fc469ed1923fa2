//! What does that mean here? The rules that turn events into blocks held.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::event::{Batch, Event, Name, Reason, Remove, Store, Tier};
use crate::hold::Target;
use crate::key::chain;
use crate::namespace::Namespace;
use crate::orphan::{Orphan, excerpt};
use crate::prepare::{Layout, Plan, Prepared};
use crate::profile::Profile;
use crate::report::{Report, Type};
use crate::resolve::{Given, Meaning};
use crate::run::Block;
use crate::writer::Writer;

/// A store with tokens, on its way in.
struct Incoming<'a> {
    batch: &'a Batch,
    store: &'a Store,
    target: Target,
    /// Hashes with tokens.
    count: usize,
    /// Blocks a hash.
    unit: usize,
    /// The adapter that the event names, empty = none.
    lora: &'a str,
    given: Given<'a>,
    inherits: bool,
    /// Keys that hold under a parent without a namespace.
    planned: Option<(&'a Plan, &'a [u64])>,
    /// Which hashes are not to be stored; empty = none of them.
    taken: &'a [bool],
}

impl Incoming<'_> {
    fn names(&self) -> &[Name] {
        &self.batch.names[self.store.names.start..self.store.names.start + self.count]
    }

    fn is_taken(&self, hash: usize) -> bool {
        self.taken.get(hash).copied().unwrap_or(false)
    }

    /// How many of some hashes are to be stored.
    fn left(&self, hashes: Range<usize>) -> u64 {
        hashes.filter(|&hash| !self.is_taken(hash)).count() as u64
    }
}

/// What became of a store.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    stored: u64,
    ambiguous: u64,
    waiting: u64,
    /// Pushed out of the waiting room, or too many for it.
    dropped: u64,
}

impl Writer {
    /// Applies the events of a batch to a holder.
    pub(crate) fn apply_events(&mut self, holder: u32, prepared: &Prepared, report: &mut Report) {
        let is_clear = |event: &&Event| matches!(event, Event::Clear);
        let clears = prepared.batch.events.iter().filter(is_clear).count();
        let mut nth_clear = 0;
        for (event, plan) in prepared.batch.events.iter().zip(&prepared.plans) {
            match event {
                Event::Store(store) => {
                    let before = report.stored + report.reasons[Reason::Orphan as usize];
                    self.store_event(holder, prepared, store, plan, report);
                    let after = report.stored + report.reasons[Reason::Orphan as usize];
                    self.totals.count(Type::Stored, after > before);
                }
                Event::Remove(remove) => {
                    let before = report.removed;
                    self.remove_event(holder, &prepared.batch, remove, report);
                    self.totals.count(Type::Removed, report.removed > before);
                }
                Event::Clear => {
                    let tiers = self.profile(holder).cleared(nth_clear, clears);
                    for tier in Tier::ALL.into_iter().filter(|tier| tiers[*tier as usize]) {
                        self.drop_tier(holder, tier);
                    }
                    nth_clear += 1;
                    report.cleared += 1;
                    self.totals.count(Type::Cleared, true);
                }
                Event::Fault { reason, hashes } => {
                    report.ignore(*reason, *hashes);
                    self.totals.count(Type::Unreadable, false);
                }
            }
            self.store.unpin();
            self.attach(report);
        }
    }

    fn store_event(
        &mut self,
        holder: u32,
        prepared: &Prepared,
        store: &Store,
        plan: &Plan,
        report: &mut Report,
    ) {
        let batch = &prepared.batch;
        let hashes = store.names.len() as u64;
        let profile = self.profile(holder).clone();
        // Tokens need not fit the hashes of other groups.
        if let Some(reason) = plan.fault.filter(|fault| *fault != Reason::Tokens) {
            return report.ignore(reason, hashes);
        }
        let groups = &mut self.holders.get_mut(holder).groups;
        if !groups.store(store.group, store.kind) {
            return report.ignore(Reason::Group, hashes);
        }
        if let Some(reason) = plan.fault {
            return report.ignore(reason, hashes);
        }
        let text = |id: u32| &*batch.texts[id as usize];
        let mut hashes = hashes;
        if plan.partial {
            report.ignore(Reason::Partial, 1);
            hashes -= 1;
        }
        let Some(tier) = profile.tier(store.medium.map(text), store.remote) else {
            return report.ignore(Reason::Medium, hashes);
        };
        let named = store.lora.map(text);
        let numbered = store.lora_id.filter(|_| named.is_none());
        let lora = named.or(numbered.and_then(|id| profile.lora_name(id)));
        if numbered.is_some() && lora.is_none() {
            return report.ignore(Reason::LoraId, hashes);
        }
        let target = self.target(holder, &profile, tier);
        let given = given(&profile, batch, store, lora);
        if store.tokens.is_empty() {
            return self.put_named(target, batch, store, plan.unit, given, report);
        }
        if plan.unit == 0 {
            return report.ignore(Reason::BlockSize, hashes);
        }
        let locals = &prepared.locals[plan.locals.clone()];
        let incoming = Incoming {
            batch,
            store,
            target,
            count: plan.count,
            unit: plan.unit as usize,
            lora: lora.unwrap_or_default(),
            given,
            inherits: profile.inherits_namespace(),
            planned: (lora == named).then_some((plan, locals)),
            taken: &[],
        };
        let outcome = self.take_in(&incoming, &profile);
        report.stored += outcome.stored;
        report.ignore(Reason::Ambiguous, outcome.ambiguous);
        report.ignore(Reason::OrphanDropped, outcome.dropped);
        report.note(Reason::Orphan, outcome.waiting);
    }

    fn target(&self, holder: u32, profile: &Profile, tier: Tier) -> Target {
        Target {
            holder,
            tier,
            counting: profile.copies[tier as usize],
            chunk: profile.chunk_tokens[tier as usize] / self.block_size,
        }
    }

    /// Puts blocks that are known by name on a tier.
    fn put_named(
        &mut self,
        target: Target,
        batch: &Batch,
        store: &Store,
        unit: u32,
        given: Given<'_>,
        report: &mut Report,
    ) {
        // A placeholder for a chunk says nothing of the chunk's size, or 0.
        let sized = store.block_size.is_some_and(|size| size > 0);
        if sized && unit == 0 {
            return report.ignore(Reason::BlockSize, store.names.len() as u64);
        }
        let length = if target.chunk > 0 { target.chunk } else { unit };
        for &name in &batch.names[store.names.clone()] {
            match self.resolve(target.holder, name, given) {
                Meaning::Block(block) => {
                    self.hold_known(target, block, length, name);
                    report.stored += 1;
                }
                Meaning::Unknown => report.ignore(Reason::Unresolved, 1),
                Meaning::Ambiguous => report.ignore(Reason::Ambiguous, 1),
            }
            self.store.unpin();
        }
    }

    fn hold_known(&mut self, target: Target, block: Block, length: u32, name: Name) {
        let length = length.min(self.store.depth(block) + 1);
        if length > 1 {
            return self.hold_unit(target, block, length, name);
        }
        let (piece, _) = self.store.piece_up_to(block, 1);
        self.hold(target, piece, &[name]);
    }

    /// Stores what came with tokens, as far as its place is known.
    fn take_in(&mut self, incoming: &Incoming<'_>, profile: &Profile) -> Outcome {
        let by_name = incoming.target.tier != Tier::Device && !incoming.store.extra_keys;
        let parent = incoming.store.parent.filter(|parent| {
            let root = profile.root;
            !root.is_some_and(|root| root.matches(*parent))
        });
        let mut outcome = Outcome::default();
        // Where the next hash goes; `None` = below the event's own parent.
        let mut at: Option<Meaning> = None;
        let mut hash = 0;
        while hash < incoming.count {
            let known = if by_name {
                let name = incoming.names()[hash];
                self.resolve(incoming.target.holder, name, incoming.given)
            } else {
                Meaning::Unknown
            };
            match known {
                Meaning::Block(block) => {
                    if !incoming.is_taken(hash) {
                        let name = incoming.names()[hash];
                        self.hold_known(incoming.target, block, incoming.unit as u32, name);
                        outcome.stored += 1;
                    }
                    at = Some(Meaning::Block(block));
                    hash += 1;
                    continue;
                }
                Meaning::Ambiguous => {
                    outcome.ambiguous += u64::from(!incoming.is_taken(hash));
                    at = Some(Meaning::Ambiguous);
                    hash += 1;
                    continue;
                }
                Meaning::Unknown => {}
            }
            let end = self.unknown_up_to(incoming, hash, by_name);
            let place = match (at, parent) {
                (Some(place), _) => Some(place),
                (None, None) => None,
                (None, Some(name)) => {
                    Some(self.resolve(incoming.target.holder, name, incoming.given))
                }
            };
            match (place, parent) {
                (Some(Meaning::Ambiguous), _) => outcome.ambiguous += incoming.left(hash..end),
                (Some(Meaning::Unknown), Some(parent)) => {
                    self.let_wait(incoming, end, parent, &mut outcome);
                }
                (Some(Meaning::Block(parent)), _) => {
                    at = self.extend(incoming, Some(parent), hash..end, &mut outcome);
                }
                _ => at = self.extend(incoming, None, hash..end, &mut outcome),
            }
            hash = end;
        }
        outcome
    }

    /// Behind the last of the unknown names that follow one.
    fn unknown_up_to(&mut self, incoming: &Incoming<'_>, hash: usize, by_name: bool) -> usize {
        if !by_name {
            return incoming.count;
        }
        let holder = incoming.target.holder;
        let mut rest = hash + 1..incoming.count;
        let known = rest.find(|&hash| {
            let name = incoming.names()[hash];
            self.resolve(holder, name, incoming.given) != Meaning::Unknown
        });
        known.unwrap_or(incoming.count)
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
        let tokens = if count == incoming.store.names.len() {
            incoming.store.tokens.len()
        } else {
            let blocks = count * incoming.unit * self.block_size as usize;
            blocks + usize::from(incoming.store.pairs)
        };
        let lora = (!incoming.lora.is_empty()).then(|| incoming.lora.into());
        let orphan = Orphan {
            holder: incoming.target.holder,
            tier: incoming.target.tier,
            parent,
            batch: excerpt(incoming.batch, incoming.store, count, tokens),
            lora,
            unit: incoming.unit as u32,
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
    ) -> Option<Meaning> {
        let above = parent.map(|parent| self.store.namespace(parent).clone());
        let above = above.unwrap_or_default();
        let inherited = incoming.inherits.then_some(&above);
        let layout = Layout {
            batch: incoming.batch,
            store: incoming.store,
            count: incoming.count,
            unit: incoming.unit,
            block_size: self.block_size as usize,
        };
        let bare = match inherited {
            Some(above) => above.lora.is_empty() && above.salt.is_empty(),
            None => incoming.store.salts.is_empty(),
        };
        let (owned, mut keys);
        let (spaces, locals) = match incoming.planned {
            Some((plan, locals)) if bare => (&plan.spaces, locals),
            _ => {
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
        // So that blocks at the end that nobody holds go when it is let go.
        self.store.pin(at?);
        at.map(Meaning::Block)
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
        let keys: Vec<u64> = locals.iter().map(&mut next).collect();
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
        at.expect("a stretch has blocks")
    }

    /// Holds the blocks of a piece whose hashes, from `first` on, still wait.
    fn hold_untaken(&mut self, incoming: &Incoming<'_>, piece: crate::store::Piece, first: usize) {
        let names = &incoming.names()[first..first + piece.len()];
        if incoming.taken.is_empty() {
            return self.hold(incoming.target, piece, names);
        }
        for (i, name) in names.iter().enumerate() {
            if !incoming.is_taken(first + i) {
                let start = piece.start + i as u16;
                let part = crate::store::Piece {
                    start,
                    end: start + 1,
                    ..piece
                };
                self.hold(incoming.target, part, std::slice::from_ref(name));
            }
        }
    }

    /// Stores all orphans whose parent has been announced, and theirs, the
    /// oldest first.
    fn attach(&mut self, report: &mut Report) {
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
        let Some(orphan) = self.orphans.get(number) else {
            return false;
        };
        let (holder, parent) = (orphan.holder, orphan.parent);
        let (lora, salt) = orphan.given();
        let (lora, salt) = (lora.map(Box::<str>::from), salt.map(Box::<str>::from));
        let given = named_by(self.profile(holder), lora.as_deref(), salt.as_deref());
        matches!(self.resolve(holder, parent, given), Meaning::Block(_))
    }

    fn attach_one(&mut self, number: u64, report: &mut Report) {
        let orphan = self.unwait(number);
        let profile = self.profile(orphan.holder).clone();
        let (lora, salt) = orphan.given();
        let incoming = Incoming {
            batch: &orphan.batch,
            store: orphan.store(),
            target: self.target(orphan.holder, &profile, orphan.tier),
            count: orphan.taken.len(),
            unit: orphan.unit as usize,
            lora: lora.unwrap_or_default(),
            given: named_by(&profile, lora, salt),
            inherits: profile.inherits_namespace(),
            planned: None,
            taken: &orphan.taken,
        };
        let outcome = self.take_in(&incoming, &profile);
        self.store.unpin();
        report.attached += outcome.stored;
        report.ignore(Reason::Ambiguous, outcome.ambiguous);
    }

    fn remove_event(&mut self, holder: u32, batch: &Batch, remove: &Remove, report: &mut Report) {
        let groups = &self.holders.get(holder).groups;
        if !groups.remove(remove.group, remove.kind) {
            return report.ignore(Reason::Group, remove.names.len() as u64);
        }
        let medium = remove.medium.map(|id| &*batch.texts[id as usize]);
        let tier = self.profile(holder).tier(medium, remove.remote);
        let tiers = tier.map_or(Tier::ALL.to_vec(), |tier| vec![tier]);
        for &name in &batch.names[remove.names.clone()] {
            let mut removed = false;
            for &tier in &tiers {
                removed |=
                    self.take_waiting(holder, tier, name) || self.release(holder, tier, name);
            }
            if removed {
                report.removed += 1;
            } else {
                report.ignore(Reason::UnknownBlock, 1);
            }
        }
    }
}

/// The namespace that a store names.
fn given<'a>(
    profile: &Profile,
    batch: &'a Batch,
    store: &Store,
    lora: Option<&'a str>,
) -> Given<'a> {
    let salt = salt_of(batch, store);
    named_by(profile, lora, salt)
}

/// What an event says of a namespace: sources that always name theirs mean by
/// silence that there is none.
fn named_by<'a>(profile: &Profile, lora: Option<&'a str>, salt: Option<&'a str>) -> Given<'a> {
    let silence = (!profile.inherits_namespace()).then_some("");
    Given {
        lora: lora.or(silence),
        salt: salt.or(silence),
    }
}

/// The salt that a store names: its first block's own, or the whole event's.
pub(crate) fn salt_of<'a>(batch: &'a Batch, store: &Store) -> Option<&'a str> {
    let own = batch.salts[store.salts.clone()].first();
    let own = own.filter(|salt| salt.block == 0).map(|salt| salt.text);
    own.or(store.salt).map(|id| &*batch.texts[id as usize])
}

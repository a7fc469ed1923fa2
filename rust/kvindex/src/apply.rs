//! What does that mean here? The rules that turn events into blocks held.

use crate::event::{Batch, Event, Name, Reason, Remove, Store, Tier};
use crate::group::{GroupId, MAIN};
use crate::hold::Target;
use crate::incoming::Incoming;
use crate::key::{flexkv_chain, sglang_key};
use crate::namespace::{Family, Namespace};
use crate::prepare::{Plan, Prepared};
use crate::profile::Profile;
use crate::report::{Report, Type};
use crate::resolve::{Given, Meaning};
use crate::run::Block;
use crate::writer::Writer;

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
        let Some(group) = self.group_of(holder, store) else {
            return report.ignore(Reason::Group, hashes);
        };
        // Their events leave out hashes: those that are known say what is held.
        let masked = plan.fault.is_some() && group != MAIN && !profile.own_names;
        if let Some(reason) = plan.fault.filter(|_| !masked) {
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
        let count = hashes as usize;
        self.note_store(holder, tier, store, count);
        self.note_age(holder, tier, &batch.names[store.names.clone()][..count]);
        let target = self.target(holder, group, &profile, tier);
        let given = Given::by(&profile, lora, salt_of(batch, store));
        let computed = store.parent.is_none() && profile.computes_names(tier) && group == MAIN;
        if !store.has_content() && computed {
            return self.put_prefix(target, batch, store, plan.unit, report);
        }
        if !store.has_content() || masked {
            return self.put_named(target, batch, store, plan, given, report);
        }
        if plan.unit == 0 && plan.page.is_none() {
            return report.ignore(Reason::BlockSize, hashes);
        }
        let locals = &prepared.locals[plan.locals.clone()];
        let incoming = Incoming {
            batch,
            store,
            target,
            count: plan.count,
            unit: plan.unit.max(1) as usize,
            page: plan.page,
            lora: lora.unwrap_or_default(),
            given,
            inherits: profile.inherits_namespace(),
            own_names: profile.own_names,
            planned: (lora == named && group == MAIN).then_some((plan, locals)),
            taken: &[],
        };
        let outcome = self.take_in(&incoming, &profile);
        report.stored += outcome.stored;
        report.ignore(Reason::Ambiguous, outcome.ambiguous);
        report.ignore(Reason::BlockSize, outcome.misfit);
        report.ignore(Reason::OrphanDropped, outcome.dropped);
        report.note(Reason::Orphan, outcome.waiting);
    }

    pub(crate) fn target(
        &self,
        holder: u32,
        group: GroupId,
        profile: &Profile,
        tier: Tier,
    ) -> Target {
        Target {
            holder,
            group,
            tier,
            counting: profile.copies[tier as usize],
            chunk: profile.chunk_tokens[tier as usize] / self.block_size,
        }
    }

    /// Stores a whole prefix by names that say what is in it.
    fn put_prefix(
        &mut self,
        target: Target,
        batch: &Batch,
        store: &Store,
        unit: u32,
        report: &mut Report,
    ) {
        let mut names = &batch.names[store.names.clone()];
        if unit != 1 && store.block_size.is_some_and(|size| size > 0) {
            return report.ignore(Reason::BlockSize, names.len() as u64);
        }
        let space = Namespace {
            family: Family::FlexKv,
            ..Namespace::default()
        };
        let mut last = None;
        let key = |name: &Name| {
            last = Some(flexkv_chain(last, name.low()));
            last
        };
        let keys: Vec<u64> = names.iter().filter_map(key).collect();
        let (mut keys, mut parent) = (&keys[..], None);
        report.stored += names.len() as u64;
        while !keys.is_empty() {
            let piece = self.store.place(parent, &space, keys);
            self.hold(target, piece, &names[..piece.len()]);
            parent = Some(piece.last());
            (keys, names) = (&keys[piece.len()..], &names[piece.len()..]);
        }
    }

    /// Stores a page by the end of its digest, wherever in a prefix it is.
    fn put_digest(&mut self, target: Target, name: Name) {
        let space = Namespace {
            family: Family::Sglang,
            ..Namespace::default()
        };
        let keys = [sglang_key(name.low())];
        let piece = self.store.place(None, &space, &keys);
        self.hold(target, piece, &[name]);
        self.store.unpin();
    }

    /// Puts blocks that are known by name on a tier.
    fn put_named(
        &mut self,
        target: Target,
        batch: &Batch,
        store: &Store,
        plan: &Plan,
        given: Given<'_>,
        report: &mut Report,
    ) {
        // A placeholder for a chunk says nothing of the chunk's size, or 0.
        let sized = store.block_size.is_some_and(|size| size > 0);
        if sized && plan.unit == 0 && plan.page.is_none() {
            return report.ignore(Reason::BlockSize, store.names.len() as u64);
        }
        let chunked = target.chunk > 0;
        let length = if chunked { target.chunk } else { plan.unit };
        let pages = store.parent.is_none()
            && target.group == MAIN
            && self.profile(target.holder).names_digests();
        for &name in &batch.names[store.names.clone()] {
            if pages && name.wide() == 0 && !(sized && plan.unit != 1) {
                self.put_digest(target, name);
                report.stored += 1;
                continue;
            }
            let found = self.resolve(target.holder, name, given);
            let block = match found {
                Meaning::Page(page) if chunked || (sized && plan.unit > 0) => self.pages.ends(page),
                Meaning::Block(block) if chunked || plan.page.is_none() => Some(block),
                _ => None,
            };
            match (found, block) {
                (Meaning::Unknown, _) => report.ignore(Reason::Unresolved, 1),
                (Meaning::Ambiguous, _) => report.ignore(Reason::Ambiguous, 1),
                (_, Some(block)) => {
                    self.hold_known(target, block, length, name);
                    report.stored += 1;
                }
                (Meaning::Page(page), None) if !chunked && (!sized || plan.page.is_some()) => {
                    self.hold_page(target, page, name);
                    report.stored += 1;
                }
                _ => report.ignore(Reason::BlockSize, 1),
            }
            self.store.unpin();
        }
    }

    pub(crate) fn hold_known(&mut self, target: Target, block: Block, length: u32, name: Name) {
        let length = length.min(self.store.depth(block) + 1);
        if length > 1 {
            return self.hold_unit(target, block, length, name);
        }
        let (piece, _) = self.store.piece_up_to(block, 1);
        self.hold(target, piece, &[name]);
    }

    fn remove_event(&mut self, holder: u32, batch: &Batch, remove: &Remove, report: &mut Report) {
        let groups = &self.holders.get(holder).groups;
        let Some(group) = groups.remove(remove.group, remove.kind) else {
            return report.ignore(Reason::Group, remove.names.len() as u64);
        };
        let medium = remove.medium.map(|id| &*batch.texts[id as usize]);
        let tier = self.profile(holder).tier(medium, remove.remote);
        let tiers = tier.as_ref().map_or(&Tier::ALL[..], std::slice::from_ref);
        let mut names = &batch.names[remove.names.clone()];
        while let [name, rest @ ..] = names {
            let together = tier.map_or(0, |tier| self.release_piece(holder, group, tier, names));
            if together > 0 {
                report.removed += together as u64;
                names = &names[together..];
                continue;
            }
            names = rest;
            let mut removed = false;
            for &tier in tiers {
                removed |= self.take_copy(holder, group, tier, *name);
            }
            if removed {
                report.removed += 1;
            } else {
                report.ignore(Reason::UnknownBlock, 1);
            }
        }
    }
}

/// The salt that a store names: its first block's own, or the whole event's.
pub(crate) fn salt_of<'a>(batch: &'a Batch, store: &Store) -> Option<&'a str> {
    let own = store.salts(batch).first();
    let own = own.filter(|salt| salt.block == 0).map(|salt| salt.text);
    own.or(store.salt).map(|id| &*batch.texts[id as usize])
}

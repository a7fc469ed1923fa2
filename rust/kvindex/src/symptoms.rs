//! What is wrong with a source? What its events have shown, for a diagnosis.
//!
//! The writer counts while it applies; what the counts mean is said elsewhere.
//! Whether holders give their blocks the same names is looked up when somebody
//! asks, in a sample of the runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::claims::Claim;
use crate::error::Forked;
use crate::event::{Batch, Event, Reason, Store, Tier};
use crate::index::Index;
use crate::member::{Identity, Role};
use crate::mix::MixMap;
use crate::profile::PerTier;
use crate::report::{Report, Status};
use crate::run::Block;
use crate::sync::Ordering::Relaxed;
use crate::writer::Writer;

/// Runs whose first blocks are looked at for the names that holders give them.
const SAMPLE: u64 = 256;

/// What a holder's events have shown since it was registered or reset.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Hashes not applied as they stood, by reason.
    pub reasons: [u64; Reason::ALL.len()],
    /// Hashes that stores named on each tier.
    pub stored: PerTier<u64>,
    /// Those of them that came without tokens and without a size, on a tier for
    /// which no size of chunks is set.
    pub sizeless: u64,
    /// Batches, those that were seen before included.
    pub batches: u64,
    /// Batches whose numbers never came.
    pub missed: u64,
    /// An unknown medium.
    pub medium: Option<Box<str>>,
    /// A block size that does not fit.
    pub block_size: Option<u64>,
    /// An adapter without a name.
    pub lora_id: Option<i64>,
    /// How many batches of anybody there were when the last one came.
    last: u64,
}

impl Evidence {
    /// None yet, after so many batches of anybody.
    pub(crate) fn since(batches: u64) -> Self {
        Self {
            last: batches,
            ..Self::default()
        }
    }

    fn add(&mut self, report: &Report, batches: u64) {
        for (total, hashes) in self.reasons.iter_mut().zip(report.reasons) {
            *total += hashes;
        }
        if let Status::Gap(first, last) = report.status {
            self.missed = self.missed.saturating_add(last - first + 1);
        }
        self.batches += 1;
        self.last = batches;
    }
}

/// What may be wrong with one holder, or with a worker that never sent anything.
#[derive(Clone, Debug)]
pub struct Symptoms {
    /// The worker or the pool.
    pub name: Arc<str>,
    /// Whether it is a pool.
    pub pool: bool,
    /// The rank.
    pub rank: u32,
    /// What its events have shown.
    pub evidence: Evidence,
    /// Batches of anybody since its last one.
    pub silence: u64,
    /// Blocks that wait for their parent.
    pub waiting: u64,
    /// Batches seen before, in a row.
    pub duplicates: u64,
    /// The tiers with a limit of age: it is expected to store there.
    pub aged: PerTier<bool>,
    /// Of a sample of blocks, those that other workers of its kind hold, too.
    pub compared: u64,
    /// And those of them that one of these calls by the same name.
    pub agreeing: u64,
}

impl Index {
    /// What may be wrong with each holder, and with registered workers that never
    /// sent anything.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    pub fn symptoms(&self) -> Result<Vec<Symptoms>, Forked> {
        let writer = self.write()?;
        let batches = writer.totals.all_batches();
        let compared = writer.compare_names();
        let of_holder = |(number, holder): (u32, &crate::holder::Holder)| {
            let (compared, agreeing) = compared.get(&number).copied().unwrap_or_default();
            Symptoms {
                name: holder.name.clone(),
                pool: holder.pool,
                rank: holder.rank,
                evidence: holder.evidence.clone(),
                silence: batches - holder.evidence.last,
                waiting: holder.waiting.blocks,
                duplicates: holder.duplicates,
                aged: holder.profile.max_age.map(|limit| limit.is_some()),
                compared,
                agreeing,
            }
        };
        let mut all: Vec<Symptoms> = writer.holders.iter().map(of_holder).collect();
        for (name, party) in writer.holders.without_ranks() {
            all.push(Symptoms {
                name: name.clone(),
                pool: false,
                rank: 0,
                evidence: Evidence::default(),
                silence: batches - party.since,
                waiting: 0,
                duplicates: 0,
                aged: party.profile.max_age.map(|limit| limit.is_some()),
                compared: 0,
                agreeing: 0,
            });
        }
        Ok(all)
    }
}

impl Writer {
    /// Notes what a store names on a tier.
    pub(crate) fn note_store(&mut self, holder: u32, tier: Tier, store: &Store, count: usize) {
        let holder = self.holders.get_mut(holder);
        holder.evidence.stored[tier as usize] += count as u64;
        let sizeless = !store.has_content() && store.block_size == Some(0);
        if sizeless && holder.profile.chunk_tokens[tier as usize] == 0 {
            holder.evidence.sizeless += count as u64;
        }
    }

    /// Notes what became of a batch.
    pub(crate) fn note_batch(&mut self, holder: u32, batch: &Batch, report: &Report) {
        let batches = self.totals.all_batches() + 1;
        let block_size = u64::from(self.block_size);
        let holder = self.holders.get_mut(holder);
        let rare = [Reason::Medium, Reason::BlockSize, Reason::LoraId];
        if rare
            .iter()
            .any(|reason| report.reasons[*reason as usize] > 0)
        {
            for event in &batch.events {
                if let Event::Store(store) = event {
                    holder.note_example(batch, store, block_size);
                }
            }
        }
        holder.evidence.add(report, batches);
    }

    /// For each worker's rank, how many blocks of a sample other workers of its kind
    /// hold, too, and how many of them under a common name.
    fn compare_names(&self) -> MixMap<u32, (u64, u64)> {
        let mut compared: MixMap<u32, (u64, u64)> = MixMap::default();
        let runs = u64::from(self.store.runs().1);
        let step = runs.div_ceil(SAMPLE).max(1);
        for run in (0..runs).step_by(step as usize) {
            let names = self.names_of_first(run as u32);
            let worker = |holder: u32| &*self.holders.get(holder).name;
            let mut holders: MixMap<u8, BTreeSet<u32>> = MixMap::default();
            let mut callers: MixMap<(u8, u64), BTreeSet<&str>> = MixMap::default();
            for &(kind, holder, name) in &names {
                holders.entry(kind).or_default().insert(holder);
                let callers = callers.entry((kind, name)).or_default();
                callers.insert(worker(holder));
            }
            let common = callers.values().filter(|callers| callers.len() > 1);
            let agreeing: BTreeSet<&str> = common.flatten().copied().collect();
            for own in holders.values() {
                let workers: BTreeSet<&str> = own.iter().map(|holder| worker(*holder)).collect();
                for holder in own.iter().filter(|_| workers.len() > 1) {
                    let (seen, agreed) = compared.entry(*holder).or_default();
                    *seen += 1;
                    *agreed += u64::from(agreeing.contains(worker(*holder)));
                }
            }
        }
        compared
    }

    /// What workers' ranks call the first block of a run: each one's kind, number
    /// and name.
    fn names_of_first(&self, run: u32) -> Vec<(u8, u32, u64)> {
        let shared = &self.store.shared;
        let first = Block::new(run, 0);
        let mut names = Vec::new();
        for word in shared.claims(run) {
            let claim = Claim::unpack(word.load(Relaxed));
            let member = shared.members.record(claim.number())[0].load(Relaxed);
            let plain = |identity: &Identity| identity.role == Role::Plain && !identity.pool;
            let Some(identity) = Identity::unpack(member).filter(plain) else {
                continue;
            };
            let profile = &self.holders.get(identity.holder).profile;
            let member = self.members.get(claim.number());
            // Blocks that pages make up have no names.
            if claim.start > 0 || profile.own_names || !member.pages.is_empty() {
                continue;
            }
            for copy in member.copies.get(&self.store.places, shared, first) {
                names.push((profile.kind as u8, identity.holder, copy.name.low()));
            }
        }
        names
    }
}

impl crate::holder::Holder {
    /// Keeps one example of each thing that does not fit.
    fn note_example(&mut self, batch: &Batch, store: &Store, block_size: u64) {
        let text = |id: u32| &*batch.texts[id as usize];
        let medium = store.medium.map(text);
        if self.profile.tier(medium, store.remote).is_none() {
            self.evidence.medium = medium.map(Into::into);
        }
        let misfit = |size: &u64| !size.is_multiple_of(block_size);
        let size = store.block_size.filter(misfit);
        self.evidence.block_size = size.or(self.evidence.block_size);
        let unnamed = |id: &i64| self.profile.lora_name(*id).is_none();
        let id = store.lora_id.filter(|_| store.lora.is_none());
        self.evidence.lora_id = id.filter(unnamed).or(self.evidence.lora_id);
    }
}

//! The contract as plainly as it can be written: lists that are searched from
//! end to end, prefixes as vectors of their blocks' contents. It shares no
//! structure with the index, so that both are hardly wrong in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvindex::event::{Batch, Event, GroupKind, Name, Reason, Remove, Store, Tier};
use kvindex::profile::{Kind, Profile};
use kvindex::{Config, Origin, Report, Status};

use super::parties::{POOL, Party, key, party};
use super::rules::{
    advance, check_names, contents, count, extended, flexkv, given, ignore, main_removal,
    main_store,
};
use super::time::{Ages, Predicted};

/// What one block holds, and in which namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Content {
    pub(crate) lora: String,
    pub(crate) salt: String,
    /// For pairs one more than a block has.
    pub(crate) tokens: Vec<u32>,
    pub(crate) images: Vec<u64>,
    /// Of a block that FlexKV names there is nothing else.
    pub(crate) flexkv: Option<u64>,
}

/// A block: everything up to and including it.
pub(crate) type Path = Vec<Rc<Content>>;

/// Worker and rank, or pool and [`POOL`](super::parties::POOL).
pub(crate) type Key = (String, u32);

/// The copies of one block, or of several as one piece, under one name.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    pub(crate) tier: Tier,
    /// Blocks of one chunk of the tier when it was stored.
    pub(crate) chunk: u32,
    pub(crate) path: Path,
    /// How many blocks up to the last of the path; `None` = that one alone.
    pub(crate) unit: Option<usize>,
    pub(crate) name: Name,
    count: u32,
}

impl Copies {
    /// Whether they are copies of a block, too.
    pub(crate) fn cover(&self, block: &[Rc<Content>]) -> bool {
        block.len() + self.unit.unwrap_or(1) > self.path.len() && self.path.starts_with(block)
    }

    /// All blocks that they are copies of.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &[Rc<Content>]> {
        let last = self.path.len();
        (last + 1 - self.unit.unwrap_or(1)..=last).map(|end| &self.path[..end])
    }
}

/// One rank of one worker.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    pub(crate) copies: Vec<Copies>,
    pub(super) main: Option<u32>,
    pub(super) kinds: BTreeMap<u32, GroupKind>,
    pub(super) cursors: BTreeMap<String, u64>,
    pub(crate) seq: Option<u64>,
    pub(crate) duplicates: u64,
    pub(crate) predicted: Predicted,
    pub(super) ages: [Ages; 4],
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) epoch: Option<u64>,
    pub(super) profile: Profile,
}

/// One hash of a store.
#[derive(Clone, Debug)]
pub(super) struct Hash {
    name: Name,
    /// Tokens and images of its blocks.
    pub(super) blocks: Vec<(Vec<u32>, Vec<u64>)>,
    pub(super) salt: Option<String>,
    taken: bool,
}

/// A store with tokens that fit.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) holder: Key,
    tier: Tier,
    hashes: Vec<Hash>,
    parent: Option<Name>,
    pub(super) lora: Option<String>,
    pub(super) salt: Option<String>,
    extra_keys: bool,
}

impl Item {
    fn unit(&self) -> usize {
        self.hashes[0].blocks.len()
    }

    fn waiting(&self) -> u64 {
        self.hashes.iter().filter(|hash| !hash.taken).count() as u64
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Meaning {
    Block(Path),
    Unknown,
    Ambiguous,
}

/// The namespace that an event names; `None` = it does not say.
pub(super) type Given = (Option<String>, Option<String>);

/// The state that all events so far amount to.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: Config,
    pub(crate) workers: BTreeMap<Party, Worker>,
    /// Worker and pool.
    pub(crate) attached: BTreeSet<(String, String)>,
    pub(crate) holders: BTreeMap<Key, Holder>,
    pub(super) epochs: u64,
    /// What names mean, the oldest meaning first.
    bindings: Vec<(Name, Path)>,
    /// Stores that wait, the oldest first.
    pub(super) orphans: Vec<Item>,
    announced: Vec<Name>,
    /// Predictions so far.
    pub(super) calls: u64,
    /// When the batch under way came.
    pub(super) now: f64,
}

impl Model {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            workers: BTreeMap::new(),
            attached: BTreeSet::new(),
            holders: BTreeMap::new(),
            epochs: 0,
            bindings: Vec::new(),
            orphans: Vec::new(),
            announced: Vec::new(),
            calls: 0,
            now: 0.0,
        }
    }

    /// Index blocks of a holder that wait.
    pub(crate) fn waiting(&self, holder: &Key) -> u64 {
        let own = self.orphans.iter().filter(|item| item.holder == *holder);
        own.map(|item| item.waiting() * item.unit() as u64).sum()
    }

    /// Whether anybody holds a block.
    fn held(&self, block: &[Rc<Content>]) -> bool {
        let mut all = self.holders.values().flat_map(|holder| &holder.copies);
        all.any(|copies| copies.cover(block))
    }

    /// Ends what the names of blocks mean that nobody holds.
    pub(super) fn forget(&mut self) {
        let mut bindings = std::mem::take(&mut self.bindings);
        bindings.retain(|(_, path)| self.held(path));
        self.bindings = bindings;
    }

    pub(crate) fn apply(&mut self, batch: &Batch, origin: &Origin<'_>) -> Report {
        let key = key(origin.sender, batch.rank.unwrap_or(origin.rank));
        let mut report = Report {
            rank: if key.1 == POOL { 0 } else { key.1 },
            ..Report::default()
        };
        let hashes = batch.events.iter().map(|event| match event {
            Event::Store(store) => store.names.len() as u64,
            Event::Remove(remove) => remove.names.len() as u64,
            Event::Clear => 0,
            Event::Fault { hashes, .. } => *hashes,
        });
        let hashes = hashes.sum();
        let epoch = self.workers.get(&party(origin.sender));
        let epoch = epoch.and_then(|w| w.epoch);
        if self.config.registered_only && epoch.is_none() {
            ignore(&mut report, Reason::Unregistered, hashes);
            return report;
        }
        if origin.epoch.is_some() && origin.epoch != epoch {
            ignore(&mut report, Reason::Epoch, hashes);
            return report;
        }
        self.enter(&key);
        report.status = advance(self.holders.get_mut(&key).unwrap(), origin);
        if report.status == Status::Duplicate {
            ignore(&mut report, Reason::Duplicate, hashes);
            return report;
        }
        self.end_old(&key, self.now);
        self.apply_events(&key, batch, &mut report);
        report
    }

    fn apply_events(&mut self, key: &Key, batch: &Batch, report: &mut Report) {
        let is_clear = |event: &&Event| matches!(event, Event::Clear);
        let clears = batch.events.iter().filter(is_clear).count();
        for event in &batch.events {
            match event {
                Event::Store(store) => {
                    let before = report.reasons[Reason::Partial as usize];
                    if let Err(reason) = self.store(key, batch, store, report) {
                        let partial = report.reasons[Reason::Partial as usize] - before;
                        ignore(report, reason, store.names.len() as u64 - partial);
                    }
                }
                Event::Remove(remove) => self.remove_event(key, batch, remove, report),
                Event::Clear => {
                    let nth = report.cleared as usize;
                    let tiers = self.profile(key).cleared(nth, clears);
                    let kept = |tier: Tier| !tiers[tier as usize];
                    let holder = self.holders.get_mut(key).unwrap();
                    holder.copies.retain(|copies| kept(copies.tier));
                    for tier in Tier::ALL.into_iter().filter(|tier| !kept(*tier)) {
                        holder.ages[tier as usize].clear();
                    }
                    if !kept(Tier::Device) {
                        holder.predicted.clear();
                    }
                    self.orphans
                        .retain(|item| item.holder != *key || kept(item.tier));
                    self.forget();
                    report.cleared += 1;
                }
                Event::Fault { reason, hashes } => ignore(report, *reason, *hashes),
            }
            self.attach(report);
        }
    }

    fn store(
        &mut self,
        key: &Key,
        batch: &Batch,
        store: &Store,
        report: &mut Report,
    ) -> Result<(), Reason> {
        let profile = self.profile(key).clone();
        let names = &batch.names[store.names.clone()];
        check_names(names, store)?;
        let holder = self.holders.get_mut(key).unwrap();
        if !main_store(holder, store.group, store.kind) {
            return Err(Reason::Group);
        }
        let block = u64::from(self.config.block_size);
        let size = store.block_size.unwrap_or(block);
        let count = count(names, store, size)?;
        ignore(report, Reason::Partial, (names.len() - count) as u64);
        let names = &names[..count];
        let text = |id: u32| batch.texts[id as usize].to_string();
        let medium = store.medium.map(text);
        let tier = profile.tier(medium.as_deref(), store.remote);
        let tier = tier.ok_or(Reason::Medium)?;
        let lora = match (store.lora, store.lora_id) {
            (Some(lora), _) => Some(text(lora)),
            (None, Some(id)) => Some(profile.lora_name(id).ok_or(Reason::LoraId)?.to_owned()),
            (None, None) => None,
        };
        self.note_age(key, tier, names);
        let whole = size.is_multiple_of(block).then_some(size / block);
        let unit = whole.and_then(|blocks| u16::try_from(blocks).ok());
        let unit = usize::from(unit.unwrap_or(0));
        let salt = store.salt.map(text);
        let own_salt = |hash: usize| {
            let salts = store.salts(batch);
            let own = salts.iter().find(|salt| salt.block as usize == hash);
            own.map(|salt| text(salt.text))
        };
        if store.tokens.is_empty() {
            if unit == 0 && size > 0 {
                return Err(Reason::BlockSize);
            }
            let computes = matches!(tier, Tier::Host | Tier::Disk) && store.parent.is_none();
            if computes && profile.kind == Kind::FlexKv {
                if size > 0 && unit != 1 {
                    return Err(Reason::BlockSize);
                }
                self.put_prefix(key, tier, names, report);
                return Ok(());
            }
            let given = given(&profile, lora, own_salt(0).or(salt));
            self.put_named(key, tier, unit, names, &given, report);
            return Ok(());
        }
        if unit == 0 {
            return Err(Reason::BlockSize);
        }
        let hashes = (0..count).map(|hash| Hash {
            name: names[hash],
            blocks: contents(self.config.block_size as usize, batch, store, hash, unit),
            salt: own_salt(hash),
            taken: false,
        });
        let item = Item {
            holder: key.clone(),
            tier,
            hashes: hashes.collect(),
            parent: store.parent,
            lora,
            salt,
            extra_keys: store.extra_keys,
        };
        if count > 0 {
            let stored = self.take_in(&item, report);
            report.stored += stored;
        }
        Ok(())
    }

    /// Stores a whole prefix whose names say what is in it.
    fn put_prefix(&mut self, key: &Key, tier: Tier, names: &[Name], report: &mut Report) {
        let mut path = Path::new();
        for &name in names {
            path.push(flexkv(name.low()));
            self.hold(key, tier, &path, 1, name);
            report.stored += 1;
        }
    }

    fn put_named(
        &mut self,
        key: &Key,
        tier: Tier,
        unit: usize,
        names: &[Name],
        given: &Given,
        report: &mut Report,
    ) {
        let chunk = self.chunk(key, tier) as usize;
        let length = if chunk > 0 { chunk } else { unit };
        for &name in names {
            match self.resolve(key, name, given) {
                Meaning::Block(path) => {
                    self.hold(key, tier, &path, length, name);
                    report.stored += 1;
                }
                Meaning::Unknown => ignore(report, Reason::Unresolved, 1),
                Meaning::Ambiguous => ignore(report, Reason::Ambiguous, 1),
            }
        }
    }

    fn chunk(&self, key: &Key, tier: Tier) -> u32 {
        let tokens = self.profile(key).chunk_tokens[tier as usize];
        tokens / self.config.block_size
    }

    /// Adds a copy, and the name's meaning.
    fn hold(&mut self, key: &Key, tier: Tier, path: &Path, length: usize, name: Name) {
        let counting = self.profile(key).copies[tier as usize];
        let chunk = self.chunk(key, tier);
        let unit = Some(length.min(path.len())).filter(|length| *length > 1);
        let holder = self.holders.get_mut(key).unwrap();
        let known = holder.copies.iter_mut().find(|copies| {
            (copies.tier, copies.chunk, copies.unit) == (tier, chunk, unit)
                && copies.name.matches(name)
                && copies.path == *path
        });
        match known {
            Some(copies) => copies.count += u32::from(counting),
            None => holder.copies.push(Copies {
                tier,
                chunk,
                path: path.clone(),
                unit,
                name,
                count: 1,
            }),
        }
        let same = |(known, block): &(Name, Path)| *known == name && block == path;
        if !self.bindings.iter().any(same) {
            self.bindings.push((name, path.clone()));
        }
        self.announced.push(name);
    }

    /// Takes a store in as far as its place is known; returns what was stored.
    fn take_in(&mut self, item: &Item, report: &mut Report) -> u64 {
        let (key, tier) = (&item.holder, item.tier);
        let profile = self.profile(key).clone();
        let salt = item.hashes[0].salt.clone().or(item.salt.clone());
        let given = given(&profile, item.lora.clone(), salt);
        let is_root = |name: &Name| profile.root.is_some_and(|root| root.matches(*name));
        let parent = item.parent.filter(|name| !is_root(name));
        let by_name = tier != Tier::Device && !item.extra_keys;
        let mut at = None;
        let mut stored = 0;
        for (number, hash) in item.hashes.iter().enumerate() {
            let mut known = Meaning::Unknown;
            if by_name {
                known = self.resolve(key, hash.name, &given);
            }
            if known == Meaning::Unknown {
                let below = at.clone().unwrap_or_else(|| match parent {
                    None => Meaning::Block(Path::new()),
                    Some(name) => self.resolve(key, name, &given),
                });
                known = match below {
                    Meaning::Block(path) => Meaning::Block(extended(&profile, item, hash, path)),
                    Meaning::Ambiguous => Meaning::Ambiguous,
                    Meaning::Unknown if number == 0 => {
                        self.wait(item, by_name, &given, report);
                        continue;
                    }
                    Meaning::Unknown => continue,
                };
                if known == Meaning::Ambiguous {
                    ignore(report, Reason::Ambiguous, u64::from(!hash.taken));
                    continue;
                }
            } else if known == Meaning::Ambiguous {
                ignore(report, Reason::Ambiguous, u64::from(!hash.taken));
            }
            if let (Meaning::Block(path), false) = (&known, hash.taken) {
                self.hold(key, tier, path, item.unit(), hash.name);
                stored += 1;
            }
            at = Some(known);
        }
        stored
    }

    /// Lets the hashes before the first known one wait for their parent.
    fn wait(&mut self, item: &Item, by_name: bool, given: &Given, report: &mut Report) {
        let known = |hash: &Hash| self.resolve(&item.holder, hash.name, given) != Meaning::Unknown;
        let known = item.hashes.iter().position(known).filter(|_| by_name);
        let mut item = item.clone();
        item.hashes.truncate(known.unwrap_or(item.hashes.len()));
        let limit = u64::from(self.config.orphan_blocks);
        if (item.hashes.len() * item.unit()) as u64 > limit {
            return ignore(report, Reason::OrphanDropped, item.waiting());
        }
        let key = item.holder.clone();
        report.reasons[Reason::Orphan as usize] += item.waiting();
        self.orphans.push(item);
        while self.waiting(&key) > limit {
            let oldest = self.orphans.iter().position(|item| item.holder == key);
            let dropped = self.orphans.remove(oldest.unwrap()).waiting();
            ignore(report, Reason::OrphanDropped, dropped);
        }
    }

    /// Takes in what waited for the names that were announced, the oldest first,
    /// and then what waited for that.
    fn attach(&mut self, report: &mut Report) {
        while let Some(at) = self.orphans.iter().position(|item| self.is_ready(item)) {
            let item = self.orphans.remove(at);
            report.attached += self.take_in(&item, report);
        }
        self.announced.clear();
    }

    fn is_ready(&self, item: &Item) -> bool {
        let parent = item.parent.unwrap();
        let profile = self.profile(&item.holder);
        let salt = item.hashes[0].salt.clone().or(item.salt.clone());
        let given = given(profile, item.lora.clone(), salt);
        let announced = self.announced.iter().any(|name| name.matches(parent));
        announced
            && matches!(
                self.resolve(&item.holder, parent, &given),
                Meaning::Block(_)
            )
    }

    fn remove_event(&mut self, key: &Key, batch: &Batch, remove: &Remove, report: &mut Report) {
        let names = &batch.names[remove.names.clone()];
        if !main_removal(&self.holders[key], remove.group, remove.kind) {
            return ignore(report, Reason::Group, names.len() as u64);
        }
        let medium = remove.medium.map(|id| &*batch.texts[id as usize]);
        let tier = self.profile(key).tier(medium, remove.remote);
        let tiers = tier.map_or(Tier::ALL.to_vec(), |tier| vec![tier]);
        for &name in names {
            let mut removed = false;
            for &tier in &tiers {
                removed |= self.take_waiting(key, tier, name) || self.release(key, tier, name);
            }
            if removed {
                report.removed += 1;
            } else {
                ignore(report, Reason::UnknownBlock, 1);
            }
        }
    }

    /// Drops what waits of a holder on a tier under some names.
    pub(super) fn drop_waiting(&mut self, key: &Key, tier: Tier, names: &[u64]) {
        let own = |item: &&mut Item| item.holder == *key && item.tier == tier;
        for item in self.orphans.iter_mut().filter(own) {
            for hash in &mut item.hashes {
                hash.taken |= names.contains(&hash.name.low());
            }
        }
        self.orphans.retain(|item| item.waiting() > 0);
    }

    fn take_waiting(&mut self, key: &Key, tier: Tier, name: Name) -> bool {
        for (at, item) in self.orphans.iter_mut().enumerate() {
            if item.holder != *key || item.tier != tier {
                continue;
            }
            let mut waiting = item.hashes.iter_mut().filter(|hash| !hash.taken);
            if let Some(hash) = waiting.find(|hash| hash.name.matches(name)) {
                hash.taken = true;
                if item.waiting() == 0 {
                    self.orphans.remove(at);
                }
                return true;
            }
        }
        false
    }

    fn release(&mut self, key: &Key, tier: Tier, name: Name) -> bool {
        let holder = self.holders.get_mut(key).unwrap();
        let mut released = false;
        for copies in &mut holder.copies {
            if copies.tier == tier && copies.name.matches(name) {
                copies.count -= 1;
                released = true;
            }
        }
        holder.copies.retain(|copies| copies.count > 0);
        self.forget();
        released
    }

    fn resolve(&self, key: &Key, name: Name, given: &Given) -> Meaning {
        let holder = &self.holders[key];
        let bound = self.bindings.iter().filter(|entry| entry.0.matches(name));
        let mut live: Vec<&Path> = Vec::new();
        for (_, path) in bound {
            // A block that several of its names match is one meaning.
            if !live.contains(&path) {
                live.push(path);
            }
        }
        let holds = |path: &Path| {
            let mut copies = holder.copies.iter();
            copies.any(|copies| copies.path == *path && copies.name.matches(name))
        };
        let mut own: Vec<&Path> = live.iter().copied().filter(|path| holds(path)).collect();
        if own.is_empty() {
            let shared = !self.profile(key).own_names;
            let oldest = live.first().filter(|_| shared);
            return oldest.map_or(Meaning::Unknown, |path| Meaning::Block((*path).clone()));
        }
        let space = |path: &Path| {
            let last = path.last().unwrap();
            (last.lora.clone(), last.salt.clone())
        };
        let agrees = |path: &&Path| {
            let (lora, salt) = space(path);
            given.0.as_ref().is_none_or(|given| *given == lora)
                && given.1.as_ref().is_none_or(|given| *given == salt)
        };
        if own.len() > 1 {
            own.retain(agrees);
        }
        let Some(newest) = own.last().copied() else {
            return Meaning::Unknown;
        };
        if own.iter().all(|path| space(path) == space(newest)) {
            Meaning::Block(newest.clone())
        } else {
            Meaning::Ambiguous
        }
    }
}

//! The index and the model side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvindex::event::{Batch, Name};
use kvindex::key::namespace_seed;
use kvindex::profile::Profile;
use kvindex::{
    Blocks, Candidate, Config, Found, Index, Moment, Options, Origin, Prediction, Report, Sender,
    Walk,
};

use super::answer::{Prompt, Rows, Walked, chain_keys};
use super::model::{Content, Key, Model, Path};
use super::parties::key;
use super::{WEIGHTS, counts, rows};

/// An index and the model of it. Whatever is done to both must come out alike.
pub(crate) struct Both {
    pub(crate) index: Index,
    pub(crate) model: Model,
    walk: Walk,
    /// Prompts whose blocks FlexKV has named.
    pub(crate) flexkv: BTreeSet<Vec<u32>>,
    /// A worker that the model knows nothing of.
    pub(crate) stranger: &'static str,
}

impl Both {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            index: Index::new(config).unwrap(),
            model: Model::new(config),
            walk: Walk::default(),
            flexkv: BTreeSet::new(),
            stranger: "",
        }
    }

    #[track_caller]
    pub(crate) fn apply(&mut self, batch: Batch, origin: &Origin<'_>) -> Report {
        let expected = self.model.apply(&batch, origin);
        let prepared = self.index.prepare(batch, false).unwrap();
        let report = self.index.apply(&prepared, origin).unwrap();
        assert_eq!(format!("{report:?}"), format!("{expected:?}"));
        report
    }

    #[track_caller]
    pub(crate) fn register(&mut self, sender: Sender<'_>, profile: Profile) -> u64 {
        let epoch = match sender {
            Sender::Worker(worker) => self.index.register(worker, profile.clone()),
            Sender::Pool(pool) => self.index.register_pool(pool, profile.clone()),
        };
        let epoch = epoch.unwrap();
        assert_eq!(epoch, self.model.register(sender, profile));
        epoch
    }

    #[track_caller]
    pub(crate) fn remove(&mut self, sender: Sender<'_>) -> bool {
        let known = match sender {
            Sender::Worker(worker) => self.index.remove_worker(worker),
            Sender::Pool(pool) => self.index.remove_pool(pool),
        };
        assert_eq!(known.unwrap(), self.model.remove(sender));
        known.unwrap()
    }

    #[track_caller]
    pub(crate) fn reset(&mut self, sender: Sender<'_>, rank: u32) -> bool {
        let used = match sender {
            Sender::Worker(worker) => self.index.reset(worker, rank),
            Sender::Pool(pool) => self.index.reset_pool(pool),
        };
        assert_eq!(used.unwrap(), self.model.reset(&key(sender, rank)));
        used.unwrap()
    }

    #[track_caller]
    pub(crate) fn predict(&mut self, key: &Key, prompt: &Prompt, prediction: Prediction) {
        let blocks = Blocks::Tokens {
            tokens: &prompt.tokens,
            images: &prompt.images,
            seed: namespace_seed(&prompt.lora, &prompt.salt),
        };
        let predicted = self.index.predict(&blocks, &key.0, key.1, prediction);
        let expected = self.model.predict(key, prompt, prediction);
        assert_eq!(predicted.unwrap(), expected);
    }

    #[track_caller]
    pub(crate) fn expire(&mut self, now: f64) {
        let ended = self.index.expire(Moment::new(now).unwrap()).unwrap();
        assert_eq!(ended, self.model.expire(now));
    }

    /// Attaches a worker to a pool that is there.
    #[track_caller]
    pub(crate) fn attach(&mut self, worker: &str, pool: &str) {
        let there = self.model.workers.contains_key(&(pool.into(), true));
        assert_eq!(self.index.attach(worker, pool).is_ok(), there);
        if there {
            self.model.attached.insert((worker.into(), pool.into()));
        }
    }

    #[track_caller]
    pub(crate) fn detach(&mut self, worker: &str, pool: &str) -> bool {
        let attached = self.index.detach(worker, pool).unwrap();
        let pair = (worker.into(), pool.into());
        assert_eq!(attached, self.model.attached.remove(&pair));
        attached
    }

    /// Who holds how many leading blocks of a prompt.
    #[track_caller]
    pub(crate) fn find(&mut self, tokens: &[u32], lora: &str, salt: &str, walked: Walked) -> Rows {
        let prompt = Prompt {
            tokens: tokens.to_vec(),
            images: Vec::new(),
            lora: lora.into(),
            salt: salt.into(),
        };
        self.find_prompt(&prompt, walked)
    }

    /// Checks the holders' states and the answers about all that is held;
    /// `thorough` = about every prefix of it.
    #[track_caller]
    pub(crate) fn check(&mut self, thorough: bool) {
        let mut states = self.index.holders().unwrap();
        states.retain(|state| *state.worker != *self.stranger);
        states.sort_by_key(|state| (state.worker.clone(), state.rank));
        assert_eq!(states, self.model.states());
        let mut pools = self.index.pools().unwrap();
        pools.sort_by_key(|state| state.pool.clone());
        assert_eq!(pools, self.model.pool_states());
        for query in self.queries(thorough) {
            for walked in [Walked::Nearest, Walked::Cascade] {
                self.check_chain(&query, walked);
                self.check_prompt(&query, walked);
            }
        }
        for tokens in self.flexkv.clone() {
            for walked in [Walked::Nearest, Walked::Cascade] {
                self.find(&tokens, "", "", walked);
            }
        }
        for path in self.ends() {
            if thorough {
                self.check_names(&self.names(&path), Walked::Nearest);
                self.check_names(&self.names(&path), Walked::Cascade);
                if path[0].flexkv.is_none() {
                    self.check_explanation(&path);
                }
            }
        }
    }

    /// Checks the totals, for which the index drops what was cleared.
    #[track_caller]
    pub(crate) fn check_totals(&self, others: u64) {
        let blocks = self.model.blocks().len() as u64;
        assert_eq!(self.index.blocks().unwrap(), blocks + others);
        let totals = self.index.stats().unwrap();
        assert_eq!(totals.blocks, blocks + others);
        let states = self.model.states();
        let pools = self.model.pool_states();
        let tiers = states.iter().map(|state| state.tiers);
        let tiers = tiers.chain(pools.iter().map(|state| state.tiers));
        assert_eq!(totals.predicted, self.model.predicted());
        assert_eq!(totals.claims, tiers.flatten().sum::<u64>() + others);
        let orphans = states.iter().map(|state| state.orphans);
        let orphans = orphans.chain(pools.iter().map(|state| state.orphans));
        assert_eq!(totals.orphans, orphans.sum::<u64>());
        let strangers = u64::from(!self.stranger.is_empty());
        let parties = self.model.workers.keys();
        let workers = parties.filter(|(_, pool)| !pool).count() as u64;
        assert_eq!(totals.workers, workers + strangers);
        assert_eq!(totals.pools, pools.len() as u64);
        assert_eq!(totals.holders, self.model.holders.len() as u64 + strangers);
        assert_eq!(self.index.size_hint(), (totals.workers, totals.blocks));
    }

    /// The last blocks of all copies.
    fn ends(&self) -> BTreeSet<Path> {
        let holders = self.model.holders.values();
        let copies = holders.flat_map(|holder| &holder.copies);
        copies.map(|copies| copies.path.clone()).collect()
    }

    fn queries(&self, thorough: bool) -> BTreeSet<Path> {
        let mut ends = self.ends();
        // Their keys are nothing that a caller could have.
        ends.retain(|path| path[0].flexkv.is_none());
        let predicted = self.model.holders.values();
        ends.extend(predicted.flat_map(|own| own.predicted.keys().cloned()));
        let mut queries: BTreeSet<Path> = ends
            .iter()
            .filter(|path| {
                let mut longer = ends.range::<Path, _>(*path..).skip(1);
                thorough || !longer.next().is_some_and(|next| next.starts_with(path))
            })
            .cloned()
            .collect();
        for path in ends.iter().filter(|_| thorough) {
            queries.extend((1..path.len()).map(|end| path[..end].to_vec()));
            let mut beyond = path.clone();
            let tokens = vec![99; path[0].tokens.len()];
            beyond.push(Rc::new(Content {
                tokens,
                ..(*path[path.len() - 1]).clone()
            }));
            queries.insert(beyond);
        }
        queries
    }

    #[track_caller]
    fn check_chain(&mut self, path: &[Rc<Content>], walked: Walked) {
        let keys = chain_keys(path);
        let everybody = options(walked, None);
        let found = self
            .index
            .find(&Blocks::Chain(&keys), &everybody, &mut self.walk);
        let (expected, found) = (self.model.find(path, walked), found.unwrap());
        assert_eq!(rows(&found), expected, "{walked:?} {path:?}");
        let pools = (walked == Walked::Nearest).then(|| self.model.pool_depths(&[path.to_vec()]));
        assert_eq!(pools_of(&found), pools.unwrap_or_default(), "{path:?}");
        let candidates = self.candidates();
        let options = options(walked, Some(&candidates));
        let found = self
            .index
            .find(&Blocks::Chain(&keys), &options, &mut self.walk);
        let found = found.unwrap();
        let expected = self.model.candidates(path, walked, &candidates, &WEIGHTS);
        let rows = found.rows.iter().zip(&candidates).map(|(row, candidate)| {
            let holder = found.names.get(row.holder).map(|(_, rank)| rank);
            (candidate.rank.or(holder).unwrap_or(0), counts(row))
        });
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{walked:?} {path:?}");
    }

    #[track_caller]
    fn check_prompt(&mut self, path: &[Rc<Content>], walked: Walked) {
        let size = self.model.config.block_size as usize;
        let Some(prompt) = Prompt::of(path, size) else {
            return;
        };
        self.find_prompt(&prompt, walked);
    }

    #[track_caller]
    fn find_prompt(&mut self, prompt: &Prompt, walked: Walked) -> Rows {
        let blocks = Blocks::Tokens {
            tokens: &prompt.tokens,
            images: &prompt.images,
            seed: namespace_seed(&prompt.lora, &prompt.salt),
        };
        let options = options(walked, None);
        let found = self.index.find(&blocks, &options, &mut self.walk);
        let found = found.unwrap();
        let rows = rows(&found);
        let expected = self.model.find_prompt(prompt, walked, &WEIGHTS);
        assert_eq!(rows, expected, "{walked:?} {prompt:?}");
        if walked == Walked::Nearest {
            let size = self.model.config.block_size as usize;
            let [singles, pairs] = prompt.ways(size);
            let mut pools = self.model.pool_depths(&singles);
            for (pool, depth) in self.model.pool_depths(&pairs) {
                let known = pools.get_mut(&pool).unwrap();
                *known = depth.max(*known);
            }
            assert_eq!(pools_of(&found), pools, "{prompt:?}");
        }
        rows
    }

    #[track_caller]
    fn check_names(&mut self, names: &[Name], walked: Walked) {
        let found = self
            .index
            .find_names(names, &options(walked, None), &mut self.walk);
        let expected = self.model.find_names(names, walked);
        assert_eq!(rows(&found.unwrap()), expected, "{walked:?} {names:?}");
    }

    #[track_caller]
    fn check_explanation(&mut self, path: &[Rc<Content>]) {
        let keys = chain_keys(path);
        let mut keys_of: Vec<Key> = self.model.keys().cloned().collect();
        keys_of.push(("nobody".into(), 3));
        for key in keys_of {
            let blocks = Blocks::Chain(&keys);
            let told = self.index.explain(&blocks, &key.0, key.1, &mut self.walk);
            let told = told.unwrap();
            let candidate = candidate(&key.0, Some(key.1));
            let row = self
                .model
                .candidates(path, Walked::Nearest, &[candidate], &WEIGHTS);
            assert_eq!(counts(&told.row), row[0].1);
            assert_eq!(told.blocks, path.len() as u64);
            assert_eq!(
                told.pools
                    .iter()
                    .map(|(pool, depth)| (pool.to_string(), *depth))
                    .collect::<BTreeMap<_, _>>(),
                self.model.reached_depths(&key.0, path)
            );
            // Blocks that nobody holds may be known or not.
            let mut held = self.model.bits(&key, path);
            let known = told.known as usize;
            assert!(held[known..].iter().all(|tiers| *tiers == 0), "{path:?}");
            held.truncate(known);
            assert_eq!(told.held, held, "{key:?} {path:?}");
        }
    }

    /// A name for each block of a prefix, as anybody calls it.
    fn names(&self, path: &[Rc<Content>]) -> Vec<Name> {
        let holders = self.model.holders.values();
        let copies: Vec<_> = holders.flat_map(|holder| &holder.copies).collect();
        let name = |end: usize| {
            let named = copies.iter().find(|copies| copies.path == path[..end]);
            named.map_or(Name::from_integer(404), |copies| copies.name)
        };
        (1..=path.len()).map(name).collect()
    }

    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = vec![
            candidate("nobody", None),
            candidate("nobody", Some(5)),
            candidate("w1", None),
        ];
        for (worker, _) in self.model.workers.keys() {
            candidates.push(candidate(worker, None));
            candidates.push(candidate(worker, Some(1)));
        }
        candidates
    }
}

fn candidate(worker: &str, rank: Option<u32>) -> Candidate {
    Candidate {
        worker: worker.into(),
        rank,
    }
}

fn pools_of(found: &Found<'_>) -> BTreeMap<String, u32> {
    let pools = found.pools();
    pools
        .map(|(pool, depth)| (pool.to_string(), depth))
        .collect()
}

fn options(walked: Walked, candidates: Option<&[Candidate]>) -> Options<'_> {
    Options {
        candidates,
        weights: WEIGHTS,
        cascade: walked == Walked::Cascade,
    }
}

//! The index and the model side by side.

use std::collections::BTreeSet;
use std::rc::Rc;

use kvindex::event::{Batch, Name};
use kvindex::key::namespace_seed;
use kvindex::profile::Profile;
use kvindex::{Blocks, Candidate, Config, Index, Options, Origin, Report, Walk};

use super::answer::{Prompt, Rows, Walked, chain_keys};
use super::model::{Content, Key, Model, Path};
use super::{WEIGHTS, rows};

/// An index and the model of it. Whatever is done to both must come out alike.
pub(crate) struct Both {
    pub(crate) index: Index,
    pub(crate) model: Model,
    walk: Walk,
    /// A worker that the model knows nothing of.
    pub(crate) stranger: &'static str,
}

impl Both {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            index: Index::new(config).unwrap(),
            model: Model::new(config),
            walk: Walk::default(),
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
    pub(crate) fn register(&mut self, worker: &str, profile: Profile) -> u64 {
        let epoch = self.index.register(worker, profile.clone()).unwrap();
        assert_eq!(epoch, self.model.register(worker, profile));
        epoch
    }

    #[track_caller]
    pub(crate) fn remove_worker(&mut self, worker: &str) -> bool {
        let known = self.index.remove_worker(worker).unwrap();
        assert_eq!(known, self.model.remove_worker(worker));
        known
    }

    #[track_caller]
    pub(crate) fn reset(&mut self, worker: &str, rank: u32) -> bool {
        let used = self.index.reset(worker, rank).unwrap();
        assert_eq!(used, self.model.reset(worker, rank));
        used
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
        for query in self.queries(thorough) {
            for walked in [Walked::Nearest, Walked::Cascade] {
                self.check_chain(&query, walked);
                self.check_prompt(&query, walked);
            }
        }
        for path in self.ends() {
            if thorough {
                self.check_names(&self.names(&path), Walked::Nearest);
                self.check_names(&self.names(&path), Walked::Cascade);
                self.check_explanation(&path);
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
        let claims: u64 = states.iter().flat_map(|state| state.tiers).sum();
        assert_eq!(totals.claims, claims + others);
        let orphans: u64 = states.iter().map(|state| state.orphans).sum();
        assert_eq!(totals.orphans, orphans);
        let strangers = u64::from(!self.stranger.is_empty());
        assert_eq!(totals.workers, self.model.workers.len() as u64 + strangers);
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
        let ends = self.ends();
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
        let expected = self.model.find(path, walked);
        assert_eq!(rows(&found.unwrap()), expected, "{walked:?} {path:?}");
        let candidates = self.candidates();
        let options = options(walked, Some(&candidates));
        let found = self
            .index
            .find(&Blocks::Chain(&keys), &options, &mut self.walk);
        let found = found.unwrap();
        let expected = self.model.candidates(&expected, &candidates, &WEIGHTS);
        let rows = found.rows.iter().zip(&candidates).map(|(row, candidate)| {
            assert_eq!(row.depth(), row.tiers().iter().sum::<u32>());
            let holder = found.names.get(row.holder).map(|(_, rank)| rank);
            (candidate.rank.or(holder).unwrap_or(0), row.tiers())
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
        let rows = rows(&found.unwrap());
        let expected = self.model.find_prompt(prompt, walked, &WEIGHTS);
        assert_eq!(rows, expected, "{walked:?} {prompt:?}");
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
        let rows = self.model.find(path, Walked::Nearest);
        let mut keys_of: Vec<Key> = self.model.holders.keys().cloned().collect();
        keys_of.push(("nobody".into(), 3));
        for key in keys_of {
            let blocks = Blocks::Chain(&keys);
            let told = self.index.explain(&blocks, &key.0, key.1, &mut self.walk);
            let told = told.unwrap();
            let tiers = rows.get(&key).copied().unwrap_or_default();
            assert_eq!(told.row.tiers(), tiers);
            assert_eq!(told.blocks, path.len() as u64);
            // Blocks that nobody holds may be known or not.
            let mut held = self.model.bits(&key, path);
            let known = told.known as usize;
            assert!(held[known..].iter().all(|tiers| *tiers == 0), "{path:?}");
            held.truncate(if told.state.is_some() { known } else { 0 });
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
        let candidate = |worker: &str, rank| Candidate {
            worker: worker.into(),
            rank,
        };
        let mut candidates = vec![
            candidate("nobody", None),
            candidate("nobody", Some(5)),
            candidate("w1", None),
        ];
        for worker in self.model.workers.keys() {
            candidates.push(candidate(worker, None));
            candidates.push(candidate(worker, Some(1)));
        }
        candidates
    }
}

fn options(walked: Walked, candidates: Option<&[Candidate]>) -> Options<'_> {
    Options {
        candidates,
        weights: WEIGHTS,
        cascade: walked == Walked::Cascade,
    }
}

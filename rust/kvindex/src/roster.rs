//! The names of holders, as readers see them.
//!
//! Readers keep the copy that they last saw and take the lock only when the
//! version says that names have changed since.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::{AtomicU64, Mutex, Ordering};

type Name = Option<(Arc<str>, u32)>;

/// The names of all holders at one moment, by dense number.
#[derive(Debug, Default)]
pub struct Names {
    /// The roster that they are of.
    roster: Option<Arc<()>>,
    version: u64,
    holders: Vec<Name>,
    /// The ranks of each worker and their holders, ascending by rank.
    workers: HashMap<Arc<str>, Vec<(u32, u32)>>,
}

impl Names {
    fn new(roster: &Arc<()>, version: u64, names: &[Name]) -> Self {
        let mut workers: HashMap<Arc<str>, Vec<(u32, u32)>> = HashMap::new();
        for (holder, name) in names.iter().enumerate() {
            if let Some((worker, rank)) = name {
                let ranks = workers.entry(worker.clone()).or_default();
                ranks.push((*rank, holder as u32));
            }
        }
        for ranks in workers.values_mut() {
            ranks.sort_unstable();
        }
        Self {
            roster: Some(roster.clone()),
            version,
            holders: names.to_vec(),
            workers,
        }
    }

    /// The worker and rank of a holder; `None` where it is gone.
    pub fn get(&self, holder: u32) -> Option<(&Arc<str>, u32)> {
        let name = self.holders.get(holder as usize)?.as_ref();
        name.map(|(worker, rank)| (worker, *rank))
    }

    /// The ranks of a worker and their holders, ascending by rank.
    pub(crate) fn ranks(&self, worker: &str) -> &[(u32, u32)] {
        self.workers.get(worker).map_or(&[], Vec::as_slice)
    }
}

/// The names of all holders.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// Tells this roster from others.
    identity: Arc<()>,
    version: AtomicU64,
    inner: Mutex<(Vec<Name>, Arc<Names>)>,
}

impl Roster {
    /// Sets or clears the name of a holder.
    pub(crate) fn set(&self, holder: u32, name: Name) {
        let mut inner = self.inner.lock().expect("nothing panics with this lock");
        let names = &mut inner.0;
        if names.len() <= holder as usize {
            names.resize(holder as usize + 1, None);
        }
        names[holder as usize] = name;
        // ORDERING: Release pairs with the Acquire in `refresh`.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Brings a reader's copy up to date; whether it was not.
    #[inline]
    pub(crate) fn refresh(&self, known: &mut Arc<Names>) -> bool {
        let own = known.roster.as_ref();
        let own = own.is_some_and(|roster| Arc::ptr_eq(roster, &self.identity));
        // ORDERING: Acquire pairs with the Release in `set`.
        if own && self.version.load(Ordering::Acquire) == known.version {
            return false;
        }
        self.renew(known);
        true
    }

    #[cold]
    fn renew(&self, known: &mut Arc<Names>) {
        let mut inner = self.inner.lock().expect("nothing panics with this lock");
        let version = self.version.load(Ordering::Relaxed);
        if inner.1.version != version || inner.1.roster.is_none() {
            inner.1 = Arc::new(Names::new(&self.identity, version, &inner.0));
        }
        *known = inner.1.clone();
    }
}

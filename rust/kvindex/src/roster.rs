//! The names of holders, and which pools workers reach, as readers see them.
//!
//! Readers keep the copy that they last saw and take the lock only when the
//! version says that something has changed since.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::sync::{AtomicU64, Mutex, Ordering};

/// What a holder is called.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// The worker or the pool.
    pub(crate) text: Arc<str>,
    pub(crate) rank: u32,
    pub(crate) pool: bool,
    /// How many blocks each cache group but the main one needs before the point
    /// from which it goes on.
    pub(crate) needs: Arc<[u32]>,
}

/// The pools that a worker reaches, by their holders; `None` = all.
pub(crate) type Reach<'a> = Option<&'a [u32]>;

/// The names of all holders at one moment, by dense number.
#[derive(Debug, Default)]
pub struct Names {
    /// The roster that they are of.
    roster: Option<Arc<()>>,
    version: u64,
    holders: Vec<Option<Name>>,
    /// The ranks of each worker and their holders, ascending by rank.
    workers: HashMap<Arc<str>, Vec<(u32, u32)>>,
    pools: Vec<(Arc<str>, u32)>,
    /// The pools that attached workers reach.
    reach: HashMap<Arc<str>, Vec<u32>>,
}

impl Names {
    fn new(roster: &Arc<()>, version: u64, known: &Known) -> Self {
        let mut workers: HashMap<Arc<str>, Vec<(u32, u32)>> = HashMap::new();
        let mut pools = Vec::new();
        for (holder, name) in (0_u32..).zip(&known.holders) {
            match name {
                Some(name) if name.pool => pools.push((name.text.clone(), holder)),
                Some(name) => {
                    let ranks = workers.entry(name.text.clone()).or_default();
                    ranks.push((name.rank, holder));
                }
                None => {}
            }
        }
        for ranks in workers.values_mut() {
            ranks.sort_unstable();
        }
        let reached = |attached: &BTreeSet<Arc<str>>| {
            let reached = pools.iter().filter(|(pool, _)| attached.contains(pool));
            reached.map(|&(_, holder)| holder).collect()
        };
        let reach = known.attached.iter();
        let reach = reach.map(|(worker, pools)| (worker.clone(), reached(pools)));
        Self {
            roster: Some(roster.clone()),
            version,
            holders: known.holders.clone(),
            workers,
            reach: reach.collect(),
            pools,
        }
    }

    fn find(&self, holder: u32) -> Option<&Name> {
        self.holders.get(holder as usize)?.as_ref()
    }

    /// The worker and rank of a holder; `None` where it is gone, or a pool.
    pub fn get(&self, holder: u32) -> Option<(&Arc<str>, u32)> {
        let name = self.find(holder).filter(|name| !name.pool)?;
        Some((&name.text, name.rank))
    }

    /// What each cache group of a holder but the main one needs.
    pub(crate) fn needs(&self, holder: u32) -> &[u32] {
        self.find(holder).map_or(&[], |name| &name.needs)
    }

    /// The ranks of a worker and their holders, ascending by rank.
    pub(crate) fn ranks(&self, worker: &str) -> &[(u32, u32)] {
        self.workers.get(worker).map_or(&[], Vec::as_slice)
    }

    /// Whether there are any pools.
    pub fn has_pools(&self) -> bool {
        !self.pools.is_empty()
    }

    /// All pools and their holders.
    pub(crate) fn pools(&self) -> &[(Arc<str>, u32)] {
        &self.pools
    }

    /// The pools that a worker reaches, whether or not it is known.
    pub(crate) fn reach(&self, worker: &str) -> Reach<'_> {
        if self.reach.is_empty() {
            return None;
        }
        self.reach.get(worker).map(Vec::as_slice)
    }
}

/// What all readers' copies are made from.
#[derive(Debug, Default)]
struct Known {
    holders: Vec<Option<Name>>,
    /// The pools that workers are attached to, known or not.
    attached: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The last copy.
    names: Arc<Names>,
}

/// The names of all holders.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// Tells this roster from others.
    identity: Arc<()>,
    version: AtomicU64,
    known: Mutex<Known>,
}

impl Roster {
    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.lock().expect("nothing panics with this lock");
        let changed = change(&mut known);
        // ORDERING: Release pairs with the Acquire in `refresh`.
        self.version.fetch_add(1, Ordering::Release);
        changed
    }

    /// Sets or clears the name of a holder.
    pub(crate) fn set(&self, holder: u32, name: Option<Name>) {
        self.change(|known| {
            let names = &mut known.holders;
            if names.len() <= holder as usize {
                names.resize(holder as usize + 1, None);
            }
            names[holder as usize] = name;
        });
    }

    /// Sets what each cache group of a holder but the main one needs.
    pub(crate) fn set_needs(&self, holder: u32, needs: Vec<u32>) {
        self.change(|known| {
            if let Some(name) = &mut known.holders[holder as usize] {
                name.needs = needs.into();
            }
        });
    }

    /// Lets a worker reach a pool, and no other that it is not attached to.
    pub(crate) fn attach(&self, worker: &str, pool: &str) {
        self.change(|known| {
            let pools = known.attached.entry(worker.into()).or_default();
            pools.insert(pool.into());
        });
    }

    /// Takes that back; whether it was attached.
    pub(crate) fn detach(&self, worker: &str, pool: &str) -> bool {
        self.change(|known| {
            let Some(pools) = known.attached.get_mut(worker) else {
                return false;
            };
            let attached = pools.remove(pool);
            if pools.is_empty() {
                known.attached.remove(worker);
            }
            attached
        })
    }

    /// Detaches a worker from all pools; whether it was attached to any.
    pub(crate) fn detach_all(&self, worker: &str) -> bool {
        self.change(|known| known.attached.remove(worker).is_some())
    }

    /// Brings a reader's copy up to date; whether it was not.
    #[inline]
    pub(crate) fn refresh(&self, known: &mut Arc<Names>) -> bool {
        let own = known.roster.as_ref();
        let own = own.is_some_and(|roster| Arc::ptr_eq(roster, &self.identity));
        // ORDERING: Acquire pairs with the Release in `change`.
        if own && self.version.load(Ordering::Acquire) == known.version {
            return false;
        }
        self.renew(known);
        true
    }

    #[cold]
    fn renew(&self, names: &mut Arc<Names>) {
        let mut known = self.known.lock().expect("nothing panics with this lock");
        let version = self.version.load(Ordering::Relaxed);
        if known.names.version != version || known.names.roster.is_none() {
            known.names = Arc::new(Names::new(&self.identity, version, &known));
        }
        *names = known.names.clone();
    }
}

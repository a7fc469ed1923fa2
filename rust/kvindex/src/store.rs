//! The writer: appends, claims, gives up and sweeps.
//!
//! Runs hang below blocks of other runs. A block stays in its run while anybody
//! holds it, while a later block of the run is held, or while another run hangs
//! below it, so the way from any block to the root is always there.
//!
//! Claims of members that are gone are dropped when their run is next looked at
//! or by the sweep, whichever comes first: see [`Store::tidy`].

use std::sync::Arc;

use crate::arena::{Allocator, Table, class_for};
use crate::claims::{Claim, Range};
use crate::mix::MixMap;
use crate::namespace::{Namespace, Namespaces};
use crate::place::Places;
use crate::run::{BLOCKS, Block, COUNT, MAX_BLOCKS, Record, Shared, TAIL};
use crate::slots::MAX_RUNS;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::version;

const NO_PARENT: u64 = u64::MAX;

/// Consecutive blocks of one chain in one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) run: u32,
    pub(crate) start: u16,
    pub(crate) end: u16,
    /// Whether they were added just now, so that nobody holds them yet.
    pub(crate) fresh: bool,
}

impl Piece {
    pub(crate) fn range(&self) -> Range {
        self.start..self.end
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    pub(crate) fn first(&self) -> Block {
        Block::new(self.run, self.start)
    }

    pub(crate) fn last(&self) -> Block {
        Block::new(self.run, self.end - 1)
    }
}

/// What only the writer keeps about a run.
///
/// ```text
/// parent block | namespace, depth of the first block | sweep, runs that hang here
/// ```
struct Meta<'a>(&'a [AtomicU64]);

impl Meta<'_> {
    fn half(&self, word: usize, high: bool) -> u32 {
        (self.0[word].load(Relaxed) >> if high { 32 } else { 0 }) as u32
    }

    fn set(&self, word: usize, high: u32, low: u32) {
        self.0[word].store((u64::from(high) << 32) | u64::from(low), Relaxed);
    }

    fn parent(&self) -> Option<Block> {
        let word = self.0[0].load(Relaxed);
        (word != NO_PARENT).then(|| Block::from_word(word))
    }

    fn namespace(&self) -> u32 {
        self.half(1, true)
    }

    fn depth(&self) -> u32 {
        self.half(1, false)
    }

    fn swept(&self) -> u32 {
        self.half(2, true)
    }

    fn children(&self) -> u32 {
        self.half(2, false)
    }
}

/// The writer's view of the structure.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) shared: Arc<Shared>,
    pub(crate) places: Places,
    pub(crate) namespaces: Namespaces,
    pub(crate) free: Allocator,
    metas: Table<2>,
    free_runs: Vec<u32>,
    next_run: u32,
    /// How many runs and pages hang below a block.
    hanging: MixMap<Block, u32>,
    /// Distinct blocks held by anybody, as far as swept.
    held: u64,
    /// Grows with each member that goes: a run that was looked at since has no
    /// claims of it.
    sweep: u32,
    /// A block that must stay although nobody holds it yet.
    pinned: Option<Block>,
    /// Whether there may be blocks that only the pin keeps.
    loose: bool,
}

impl Store {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            places: Places::default(),
            namespaces: Namespaces::default(),
            free: Allocator::default(),
            metas: Table::default(),
            free_runs: Vec::new(),
            next_run: 0,
            hanging: MixMap::default(),
            held: 0,
            sweep: 0,
            pinned: None,
            loose: false,
        }
    }

    /// Distinct blocks held, as far as swept.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Runs in use, and the first number that never was.
    pub(crate) fn runs(&self) -> (u32, u32) {
        (self.next_run - self.free_runs.len() as u32, self.next_run)
    }

    /// Bytes of memory: in use, and in reserve besides.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let records = self.next_run as usize * (64 + 32) + self.hanging.capacity() * 13;
        let live = self.free.live_words * 8 + records + self.places.bytes();
        (live, (self.free.page_words - self.free.live_words) * 8)
    }

    fn meta(&self, run: u32) -> Meta<'_> {
        Meta(self.metas.record(run))
    }

    fn record(&self, run: u32) -> Record<'_> {
        self.shared.record(run)
    }

    /// The number of a block's namespace.
    pub(crate) fn namespace(&self, block: Block) -> &Namespace {
        self.namespaces.get(self.meta(block.run()).namespace())
    }

    /// The blocks before a block in its chain.
    pub(crate) fn depth(&self, block: Block) -> u32 {
        self.meta(block.run()).depth() + u32::from(block.offset())
    }

    /// The piece of a chain that ends with `last` and lies in its run, at most
    /// `length` blocks, and the block before it.
    pub(crate) fn piece_up_to(&self, last: Block, length: u32) -> (Piece, Option<Block>) {
        let end = last.offset() + 1;
        let start = end - length.min(u32::from(end)) as u16;
        let before = if start > 0 {
            Some(Block::new(last.run(), start - 1))
        } else {
            self.meta(last.run()).parent()
        };
        let piece = Piece {
            run: last.run(),
            start,
            end,
            fresh: false,
        };
        (piece, before)
    }

    /// Keeps a block in the structure until [`Store::unpin`].
    pub(crate) fn pin(&mut self, block: Block) {
        let before = self.pinned.replace(block);
        let before = before.filter(|before| self.loose && before.run() != block.run());
        if let Some(before) = before {
            self.trim(before.run());
        }
    }

    /// Lets go of the pinned block.
    pub(crate) fn unpin(&mut self) {
        if let Some(block) = self.pinned.take()
            && std::mem::take(&mut self.loose)
        {
            self.trim(block.run());
        }
    }

    /// Says that the blocks that were added last are all held now.
    pub(crate) fn fasten(&mut self) {
        self.loose = false;
    }

    /// Says that there may be blocks that only the pin keeps.
    pub(crate) fn loosen(&mut self) {
        self.loose = true;
    }

    /// Finds or adds the first blocks of a chain below a parent, as many as lie
    /// in one run. `keys` are chain keys.
    pub(crate) fn place(
        &mut self,
        parent: Option<Block>,
        namespace: &Namespace,
        keys: &[u64],
    ) -> Piece {
        if let Some(parent) = parent {
            self.pin(parent);
            self.tidy(parent.run());
        }
        self.find(parent, keys)
            .unwrap_or_else(|| self.add(parent, namespace, keys))
    }

    fn find(&mut self, parent: Option<Block>, keys: &[u64]) -> Option<Piece> {
        if let Some(parent) = parent {
            let next = usize::from(parent.offset()) + 1;
            if next < self.record(parent.run()).len()
                && self.shared.key(Block::new(parent.run(), next as u16)) == keys[0]
            {
                return Some(self.agreeing(parent.run(), next, keys));
            }
            if self.meta(parent.run()).children() == 0 {
                return None;
            }
        }
        let shared = &self.shared;
        let found = shared.heads.find(&shared.arena, keys[0], &shared.process);
        let run = found.expect("the writer waits for nobody")?;
        self.tidy(run).then(|| self.agreeing(run, 0, keys))
    }

    fn agreeing(&self, run: u32, start: usize, keys: &[u64]) -> Piece {
        let stored = self.record(run).blocks(&self.shared.arena);
        let stored = &stored.expect("the writer sees whole records")[start * 2..];
        let same = stored
            .chunks_exact(2)
            .zip(keys)
            .take_while(|(stored, key)| stored[0].load(Relaxed) == **key);
        Piece {
            run,
            start: start as u16,
            end: (start + same.count()) as u16,
            fresh: false,
        }
    }

    fn add(&mut self, parent: Option<Block>, namespace: &Namespace, keys: &[u64]) -> Piece {
        let extends = parent.filter(|parent| {
            let len = self.record(parent.run()).len();
            usize::from(parent.offset()) + 1 == len
                && len < MAX_BLOCKS
                && self.namespace(*parent) == namespace
        });
        let run = match extends {
            Some(parent) => parent.run(),
            None => self.add_run(parent, namespace),
        };
        self.loosen();
        let start = self.record(run).len();
        let count = keys.len().min(MAX_BLOCKS - start);
        self.append(run, &keys[..count]);
        if extends.is_none() {
            // Only now, so that whoever finds the run finds its blocks in it.
            let heads = &self.shared.heads;
            heads.insert(&self.shared.arena, &mut self.free, keys[0], run);
        }
        Piece {
            run,
            start: start as u16,
            end: (start + count) as u16,
            fresh: true,
        }
    }

    fn add_run(&mut self, parent: Option<Block>, namespace: &Namespace) -> u32 {
        let run = self.free_runs.pop().unwrap_or_else(|| {
            assert!(
                self.next_run < MAX_RUNS,
                "an index has fewer than 2^28 runs"
            );
            self.next_run += 1;
            self.next_run - 1
        });
        self.shared.runs.make(run);
        self.metas.make(run);
        let number = self.namespaces.enter(namespace);
        let depth = parent.map_or(0, |parent| self.depth(parent) + 1);
        let meta = self.meta(run);
        meta.0[0].store(parent.map_or(NO_PARENT, Block::word), Relaxed);
        meta.set(1, number, depth);
        meta.set(2, self.sweep, 0);
        if let Some(parent) = parent {
            self.hang(parent);
        }
        self.shared.families[namespace.family as usize].fetch_add(1, Relaxed);
        run
    }

    /// Says that one more run, or page, hangs below a block, which keeps it.
    pub(crate) fn hang(&mut self, block: Block) {
        let meta = self.meta(block.run());
        meta.set(2, meta.swept(), meta.children() + 1);
        *self.hanging.entry(block).or_default() += 1;
    }

    fn unhang(&mut self, block: Block) {
        let meta = self.meta(block.run());
        meta.set(2, meta.swept(), meta.children() - 1);
        let count = self.hanging.get_mut(&block).expect("something hung there");
        *count -= 1;
        if *count == 0 {
            self.hanging.remove(&block);
        }
    }

    /// Takes back what [`Store::hang`] said; the block may go.
    pub(crate) fn let_go(&mut self, block: Block) {
        self.unhang(block);
        self.trim(block.run());
    }

    fn append(&mut self, run: u32, keys: &[u64]) {
        let len = self.record(run).len();
        self.resize(run, len + keys.len());
        let address = self.record(run).blocks_address() + len as u64 * 2;
        let words = self.shared.arena.words(address, keys.len() * 2);
        // Readers do not look behind the length, so only its change is a write.
        for (words, key) in words.chunks_exact(2).zip(keys) {
            words[0].store(*key, Relaxed);
            words[1].store(0, Relaxed);
        }
        self.set_length(run, len + keys.len());
    }

    fn set_length(&self, run: u32, len: usize) {
        let record = self.record(run);
        let address = record.blocks_address();
        let tail = address + (len as u64 - 1) * 2;
        let tail = self.shared.arena.words(tail, 1)[0].load(Relaxed);
        version::begin(record.version());
        record.words[TAIL].store(tail, Relaxed);
        record.words[BLOCKS].store((address << 16) | len as u64, Relaxed);
        version::end(record.version());
    }

    /// Gives a run memory for that many blocks, where it has too little or far
    /// too much.
    fn resize(&mut self, run: u32, blocks: usize) {
        let record = self.shared.record(run);
        let (old, old_class) = (record.blocks_address(), record.blocks_class());
        let (len, capacity) = (record.len(), record.capacity());
        let class = class_for(blocks * 2);
        if len > 0 && capacity >= blocks && old_class < class + 6 {
            return;
        }
        let new = self.free.allocate(&self.shared.arena, class);
        if len > 0 {
            let target = self.shared.arena.words(new, len * 2);
            let source = self.shared.arena.words(old, len * 2);
            for (target, source) in target.iter().zip(source) {
                target.store(source.load(Relaxed), Relaxed);
            }
        }
        version::begin(record.version());
        record.words[BLOCKS].store((new << 16) | len as u64, Relaxed);
        let count = (record.count() as u64) << 32;
        record.words[COUNT].store(count | u64::from(class), Relaxed);
        version::end(record.version());
        if len > 0 {
            self.free.release(&self.shared.arena, old, old_class);
        }
    }

    /// Whether anybody holds a block; the run may go if nobody does.
    pub(crate) fn live(&mut self, block: Block) -> bool {
        let len = |store: &Self| store.record(block.run()).len();
        if !self.tidy(block.run()) || usize::from(block.offset()) >= len(self) {
            return false;
        }
        let range = block.offset()..block.offset() + 1;
        self.unheld(block.run(), &range) == 0
    }

    /// Counts blocks that somebody holds now and nobody did, and forgets their
    /// former names.
    pub(crate) fn revive(&mut self, run: u32, gaps: &[Range], fresh: bool) {
        for gap in gaps {
            self.held += u64::from(gap.end - gap.start);
            if !fresh {
                self.purge(run, gap);
            }
        }
    }

    fn purge(&mut self, run: u32, range: &Range) {
        let first = Block::new(run, range.start);
        let count = usize::from(range.end - range.start);
        self.places.purge(&self.shared, first, count);
    }

    /// To be called when claims on a range have gone: counts what nobody holds
    /// now and shortens the run.
    pub(crate) fn settle(&mut self, run: u32, range: &Range) {
        self.held -= self.unheld(run, range);
        if usize::from(range.end) == self.record(run).len() {
            self.trim(run);
        }
    }

    /// Says that claims of some member do not count any more.
    pub(crate) fn outdate(&mut self) {
        self.sweep = self.sweep.wrapping_add(1);
    }

    /// Drops a run's claims that do not count any more; whether the run is
    /// still there.
    pub(crate) fn tidy(&mut self, run: u32) -> bool {
        let meta = self.meta(run);
        if meta.swept() == self.sweep {
            return self.record(run).len() > 0;
        }
        meta.set(2, self.sweep, meta.children());
        let claims: Vec<u64> = self
            .shared
            .claims(run)
            .iter()
            .map(|word| word.load(Relaxed))
            .collect();
        let members = &self.shared.members;
        let alive =
            |word: &u64| members.record(Claim::unpack(*word).number())[0].load(Relaxed) != 0;
        let kept: Vec<u64> = claims.iter().copied().filter(alive).collect();
        if kept.len() < claims.len() {
            let len = self.record(run).len() as u16;
            let before = self.unheld(run, &(0..len));
            self.splice(run, 0..claims.len(), &kept);
            let after = self.unheld(run, &(0..len));
            self.held -= after - before;
            self.trim(run);
        }
        self.record(run).len() > 0
    }

    /// Shortens a run by the blocks at its tail that nothing needs, and then
    /// the run that it hung below.
    fn trim(&mut self, mut run: u32) {
        loop {
            let len = self.record(run).len();
            let keep = self.needed(run, len);
            if keep == len {
                return;
            }
            self.purge(run, &(keep as u16..len as u16));
            if keep > 0 {
                self.set_length(run, keep);
                self.resize(run, keep);
                return;
            }
            let Some(parent) = self.drop_run(run) else {
                return;
            };
            run = parent.run();
        }
    }

    /// How many blocks of a run something needs.
    fn needed(&mut self, run: u32, len: usize) -> usize {
        let mut keep = 0;
        for word in self.shared.claims(run) {
            keep = keep.max(usize::from(Claim::unpack(word.load(Relaxed)).end));
            if keep == len {
                return len;
            }
        }
        if let Some(pinned) = self.pinned.filter(|pinned| pinned.run() == run) {
            let pinned = usize::from(pinned.offset()) + 1;
            self.loose |= pinned > keep;
            keep = keep.max(pinned);
        }
        if self.meta(run).children() > 0 {
            let hangs = |end: &usize| {
                let block = Block::new(run, (*end - 1) as u16);
                self.hanging.contains_key(&block)
            };
            keep = (keep + 1..=len).rev().find(hangs).unwrap_or(keep);
        }
        keep
    }

    fn drop_run(&mut self, run: u32) -> Option<Block> {
        let record = self.shared.record(run);
        let head = self.shared.key(Block::new(run, 0));
        self.shared.heads.remove(&self.shared.arena, head);
        let (address, class) = (record.blocks_address(), record.blocks_class());
        version::begin(record.version());
        record.words[BLOCKS].store(0, Relaxed);
        record.words[COUNT].store(0, Relaxed);
        version::end(record.version());
        self.free.release(&self.shared.arena, address, class);
        self.free_runs.push(run);
        let (parent, number) = (self.meta(run).parent(), self.meta(run).namespace());
        let family = self.namespaces.get(number).family;
        self.shared.families[family as usize].fetch_sub(1, Relaxed);
        self.namespaces.leave(number);
        let parent = parent?;
        self.unhang(parent);
        Some(parent)
    }
}

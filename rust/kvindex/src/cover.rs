//! The writer's edits of claims: which part of a run a member holds.

use crate::arena::{ADDRESS_BITS, class_for, class_words};
use crate::claims::{Claim, Range, gaps, partition, touching};
use crate::run::{Block, CLAIMS, COUNT, INLINE, Record};
use crate::store::Store;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::version;

impl Store {
    /// Replaces some of a run's claims.
    pub(crate) fn splice(&mut self, run: u32, replaced: std::ops::Range<usize>, with: &[u64]) {
        let record = self.shared.record(run);
        let count = record.count();
        let new_count = count - replaced.len() + with.len();
        let (old, old_class) = (record.claims_address(), record.claims_class());
        let old_room = if old == 0 {
            INLINE
        } else {
            class_words(old_class)
        };
        let wanted = class_for(new_count);
        let fits = new_count <= old_room && (old == 0 || old_class < wanted + 6);
        if fits && (old == 0 || new_count > INLINE) {
            version::begin(record.version());
            let room = if old == 0 {
                record.inline()
            } else {
                self.shared.arena.words(old, old_room)
            };
            shift(
                &room[replaced.start..],
                count - replaced.start,
                replaced.len(),
                with,
            );
            set_count(record, new_count);
            version::end(record.version());
            return;
        }
        let source = record.claims(&self.shared.arena);
        let source = source.expect("the writer sees whole records");
        let mut words: Vec<u64> = source.iter().map(|word| word.load(Relaxed)).collect();
        words.splice(replaced, with.iter().copied());
        let (new, class) = if new_count <= INLINE {
            (0, 0)
        } else {
            (self.free.allocate(&self.shared.arena, wanted), wanted)
        };
        version::begin(record.version());
        let target = if new == 0 {
            record.inline()
        } else {
            self.shared.arena.words(new, new_count)
        };
        for (target, word) in target.iter().zip(words) {
            target.store(word, Relaxed);
        }
        let packed = new | (u64::from(class) << ADDRESS_BITS);
        record.words[CLAIMS].store(packed, Relaxed);
        set_count(record, new_count);
        version::end(record.version());
        if old != 0 {
            self.free.release(&self.shared.arena, old, old_class);
        }
    }

    /// Claims a range of a run for a member.
    pub(crate) fn cover(&mut self, run: u32, member: u32, range: &Range) {
        let claims = self.shared.claims(run);
        let word = |i: usize| claims[i].load(Relaxed);
        let met = touching(claims.len(), word, member, range);
        let mut merged = range.clone();
        if !met.is_empty() {
            merged.start = merged.start.min(Claim::unpack(word(met.start)).start);
            merged.end = merged.end.max(Claim::unpack(word(met.end - 1)).end);
        }
        self.splice(run, met, &[Claim::plain(member, &merged).pack()]);
    }

    /// Gives up a range of a run for a member; what it does not hold is no
    /// matter.
    pub(crate) fn uncover(&mut self, run: u32, member: u32, range: &Range) {
        let claims = self.shared.claims(run);
        let word = |i: usize| claims[i].load(Relaxed);
        let met = touching(claims.len(), word, member, range);
        // What is left of the first one that is met, and of the last.
        let (mut kept, mut count) = ([0; 2], 0);
        let (mut first, mut last) = (met.end, met.end);
        for i in met {
            let claim = Claim::unpack(word(i));
            if claim.end <= range.start || range.end <= claim.start {
                continue;
            }
            (first, last) = (first.min(i), i + 1);
            let before = claim.start..range.start;
            let after = range.end..claim.end;
            for part in [before, after] {
                if part.start < part.end {
                    kept[count] = Claim::plain(member, &part).pack();
                    count += 1;
                }
            }
        }
        self.splice(run, first..last.max(first), &kept[..count]);
    }

    /// Adds a word as it is; equal ones may stand side by side.
    pub(crate) fn add_word(&mut self, run: u32, word: u64) {
        let claims = self.shared.claims(run);
        let at = partition(claims.len(), |i| claims[i].load(Relaxed) < word);
        self.splice(run, at..at, &[word]);
    }

    /// Takes away one word that is there.
    pub(crate) fn remove_word(&mut self, run: u32, word: u64) {
        let claims = self.shared.claims(run);
        let at = partition(claims.len(), |i| claims[i].load(Relaxed) < word);
        debug_assert_eq!(claims[at].load(Relaxed), word, "the word is there");
        self.splice(run, at..at + 1, &[]);
    }

    /// Whether a member's plain words of a run cover any block of a range.
    pub(crate) fn overlaps(&self, run: u32, member: u32, range: &Range) -> bool {
        let claims = self.shared.claims(run);
        let word = |i: usize| claims[i].load(Relaxed);
        let mut met = touching(claims.len(), word, member, range).map(|i| Claim::unpack(word(i)));
        met.any(|claim| claim.start < range.end && range.start < claim.end)
    }

    /// The whole range that a plain word of a member covers around a block.
    pub(crate) fn claim_around(&self, run: u32, member: u32, offset: u16) -> Option<Range> {
        let claims = self.shared.claims(run);
        let word = |i: usize| claims[i].load(Relaxed);
        let block = offset..offset + 1;
        let met = touching(claims.len(), word, member, &block);
        let mut met = met.map(|i| Claim::unpack(word(i)).range());
        met.find(|range| range.contains(&offset))
    }

    /// Whether a member's words of a run cover a block.
    pub(crate) fn covers(&self, member: u32, block: Block) -> bool {
        let claims = self.shared.claims(block.run());
        let word = |i: usize| claims[i].load(Relaxed);
        let offset = block.offset();
        let first = partition(claims.len(), |i| {
            let claim = Claim::unpack(word(i));
            let passed = !claim.is_unit() && claim.end <= offset;
            claim.member < member || (claim.member == member && passed)
        });
        let own = (first..claims.len()).map(|i| Claim::unpack(word(i)));
        let mut own = own.take_while(|claim| claim.member == member);
        own.any(|claim| claim.range().contains(&offset))
    }

    /// How many blocks of a range nobody holds. The run must be tidy.
    pub(crate) fn unheld(&self, run: u32, range: &Range) -> u64 {
        let claims = self.shared.claims(run);
        if claims.is_empty() {
            return u64::from(range.end - range.start);
        }
        let gaps = self.uncovered(run, range);
        gaps.iter().map(|gap| u64::from(gap.end - gap.start)).sum()
    }

    /// The parts of a range that nobody holds. The run must be tidy.
    pub(crate) fn uncovered(&self, run: u32, range: &Range) -> Vec<Range> {
        let claims = self.shared.claims(run);
        let ranges = claims
            .iter()
            .map(|word| Claim::unpack(word.load(Relaxed)).range());
        let whole = |covered: &Range| covered.start <= range.start && range.end <= covered.end;
        if ranges.clone().any(|covered| whole(&covered)) {
            return Vec::new();
        }
        gaps(range, &mut ranges.collect::<Vec<_>>())
    }
}

fn set_count(record: Record<'_>, count: usize) {
    let class = u64::from(record.blocks_class());
    record.words[COUNT].store(((count as u64) << 32) | class, Relaxed);
}

/// Replaces the first `replaced` of `count` words, moving the rest.
fn shift(words: &[AtomicU64], count: usize, replaced: usize, with: &[u64]) {
    let tail = replaced..count;
    let copy = |from: usize| {
        let to = from - replaced + with.len();
        words[to].store(words[from].load(Relaxed), Relaxed);
    };
    if with.len() < replaced {
        tail.for_each(copy);
    } else if with.len() > replaced {
        tail.rev().for_each(copy);
    }
    for (target, word) in words.iter().zip(with) {
        target.store(*word, Relaxed);
    }
}

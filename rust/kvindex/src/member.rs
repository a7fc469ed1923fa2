//! Members: one tier of one holder, from one clear to the next.
//!
//! Claims name members, so that a clear is the end of a member: its word is set
//! to zero, which every reader sees at once, and the claims are dropped later.
//! A number is given out again when no claim of it is left.
//!
//! ```text
//! word   holder (32 bits) | tier (2) | role (2) | pool (1) | several groups (1)
//!        | group (10) | blocks a chunk (16); 0 = gone
//! ```

use crate::claims::UNIT;
use crate::copies::{Copies, Named};
use crate::event::Tier;
use crate::group::{GroupId, MAX_GROUPS};
use crate::mix::{MixMap, MixSet};
use crate::pages::PageId;
use crate::run::{Block, Shared};
use crate::sync::Ordering::Relaxed;
use crate::sync::{Ordering, fence};

/// What a member's claims mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Each block for itself.
    Plain = 1,
    /// Several blocks that are of use only together; its word is in the run of a
    /// unit's last block.
    Unit = 2,
    /// The parts of units in earlier runs: held, and credited by the unit word.
    Shadow = 3,
    /// Each block while all its pages are held: plain for readers, who need not
    /// know by what name it goes.
    Paged = 5,
}

/// The fields of a member's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) holder: u32,
    pub(crate) tier: Tier,
    pub(crate) role: Role,
    /// Whether the holder is a pool.
    pub(crate) pool: bool,
    /// Whether it is of the main group of a holder that has others, too.
    pub(crate) several: bool,
    /// The cache group.
    pub(crate) group: GroupId,
    /// Blocks of one chunk of the tier; 0 = no chunks.
    pub(crate) chunk: u32,
}

/// Set in the word of a pool's member.
const POOL: u64 = 1 << 27;
/// Set in the words of the main group's members where there are others.
const SEVERAL: u64 = 1 << 26;
const GROUP_SHIFT: u32 = 16;
const ROLE: u64 = 3 << 28;

impl Identity {
    pub(crate) fn pack(self) -> u64 {
        let role = self.role as u32 & 3;
        let low = ((self.tier as u32) << 30) | (role << 28) | self.chunk;
        let pool = if self.pool { POOL } else { 0 };
        let several = if self.several { SEVERAL } else { 0 };
        let group = u64::from(self.group) << GROUP_SHIFT;
        (u64::from(self.holder) << 32) | u64::from(low) | pool | several | group
    }

    /// The member's word without its role: units and single blocks of a chunked
    /// tier make its chunks together.
    pub(crate) fn alike(self) -> u64 {
        self.pack() & !(ROLE | SEVERAL)
    }

    /// `None` for a member that is gone.
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let role = match (word >> 28) & 3 {
            0 => return None,
            1 => Role::Plain,
            2 => Role::Unit,
            _ => Role::Shadow,
        };
        Some(Self {
            holder: (word >> 32) as u32,
            tier: Tier::ALL[(word >> 30) as usize & 3],
            role,
            pool: is_pool(word),
            several: word & SEVERAL != 0,
            group: group(word),
            chunk: chunk(word),
        })
    }
}

/// Whether a member's word is that of a plain member of a worker's tier without
/// chunks, and of its only cache group.
pub(crate) const fn is_single(word: u64) -> bool {
    word as u32 & 0x3fff_ffff == (Role::Plain as u32) << 28
}

/// The holder and tier of a member that is there.
pub(crate) const fn owner(word: u64) -> (u32, usize) {
    ((word >> 32) as u32, (word >> 30) as usize & 3)
}

/// Whether a member's word is that of a pool.
pub(crate) const fn is_pool(word: u64) -> bool {
    word & POOL != 0
}

/// Blocks of one chunk of a member's tier; 0 = no chunks.
pub(crate) const fn chunk(word: u64) -> u32 {
    word as u32 & ((1 << GROUP_SHIFT) - 1)
}

/// The cache group of a member.
pub(crate) const fn group(word: u64) -> GroupId {
    (word >> GROUP_SHIFT) as GroupId & MAX_GROUPS as GroupId
}

/// One unit that ends with a block, by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) length: u16,
    pub(crate) copies: Named,
}

/// What only the writer keeps about a member.
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) copies: Copies,
    /// The units that end with a block.
    pub(crate) units: MixMap<Block, Vec<Unit>>,
    /// The pages of which it has copies.
    pub(crate) pages: MixSet<PageId>,
}

/// All members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    slots: Vec<Member>,
    free: Vec<u32>,
    /// Gone since the sweep that is under way began; and before.
    ended: Vec<u32>,
    sweeping: Vec<u32>,
}

impl Members {
    /// A new member; the number carries [`UNIT`] where its words are unit words:
    /// they may overlap.
    pub(crate) fn begin(&mut self, shared: &Shared, identity: Identity) -> u32 {
        let number = if let Some(number) = self.free.pop() {
            let reused = shared.reuse.load(Relaxed) + 1;
            shared.reuse.store(reused, Relaxed);
            // ORDERING: Release pairs with the Acquire fence at the end of a
            // query: one that saw the new word sees that a number was reused.
            fence(Ordering::Release);
            number
        } else {
            self.slots.push(Member::default());
            (self.slots.len() - 1) as u32
        };
        shared.members.make(number);
        shared.members.record(number)[0].store(identity.pack(), Relaxed);
        match identity.role {
            Role::Plain | Role::Paged => number,
            Role::Unit | Role::Shadow => number | UNIT,
        }
    }

    /// Says that the holder of a member of the main group has others, too.
    pub(crate) fn mark_several(shared: &Shared, number: u32) {
        let word = &shared.members.record(number & !UNIT)[0];
        word.store(word.load(Relaxed) | SEVERAL, Relaxed);
    }

    /// Ends a member: none of its claims counts from now on.
    ///
    /// Returns what the writer kept about it.
    pub(crate) fn end(&mut self, shared: &Shared, number: u32) -> Member {
        let number = number & !UNIT;
        shared.members.record(number)[0].store(0, Relaxed);
        self.ended.push(number);
        std::mem::take(&mut self.slots[number as usize])
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let lists = |member: &Member| {
            let units = member.units.capacity() * 33 + member.units.len() * 40;
            member.copies.bytes() + units + member.pages.capacity() * 5
        };
        self.slots.iter().map(lists).sum()
    }

    pub(crate) fn get(&self, number: u32) -> &Member {
        &self.slots[(number & !UNIT) as usize]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Member {
        &mut self.slots[(number & !UNIT) as usize]
    }

    /// Whether claims of members that are gone may be left somewhere.
    pub(crate) fn to_sweep(&self) -> bool {
        !(self.ended.is_empty() && self.sweeping.is_empty())
    }

    /// Begins a sweep where none is under way; whether it did.
    pub(crate) fn begin_sweep(&mut self) -> bool {
        if !self.sweeping.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.sweeping, &mut self.ended);
        true
    }

    /// All runs were looked at: the numbers are free again.
    pub(crate) fn end_sweep(&mut self) {
        self.free.append(&mut self.sweeping);
    }
}

//! Memory that readers may look at any time: pages of atomic words.
//!
//! Pages are added and never returned while the index lives, so a reader that
//! follows an outdated address finds words that mean something else, never
//! memory that is gone. It notices by the version of what it was reading.
//!
//! ```text
//! address   page number (33 bits) | word in the page (15 bits)
//! Pages     directories of 64, 64, 128, 256, ... pages, each made on first use
//! Table     records of a power of two of words, by dense number
//! Arena     blocks in size classes of four steps a doubling: 4 5 6 7 8 10 12 ...
//! ```

use crate::sync::{AtomicU64, MODELLED, OnceLock, Ordering, zeroed};

/// log2 of the words of an ordinary page: 256 KiB.
const PAGE_BITS: u32 = if MODELLED { 4 } else { 15 };
const PAGE_WORDS: usize = 1 << PAGE_BITS;
/// Pages in the first directory.
const FIRST: u64 = if MODELLED { 2 } else { 64 };
/// Addresses are this wide; the rest of a word is free for other fields.
pub(crate) const ADDRESS_BITS: u32 = 48;

type Page = Box<[AtomicU64]>;

/// A growing list of pages that can be read while it grows.
#[derive(Debug)]
pub(crate) struct Pages {
    directories: [OnceLock<Box<[OnceLock<Page>]>>; 28],
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            directories: std::array::from_fn(|_| OnceLock::new()),
        }
    }
}

impl Pages {
    fn locate(number: u64) -> (usize, usize) {
        let shifted = number + FIRST;
        let top = shifted.ilog2();
        let directory = (top - FIRST.ilog2()) as usize;
        (directory, (shifted - (1 << top)) as usize)
    }

    fn get(&self, number: u64) -> Option<&[AtomicU64]> {
        let (directory, slot) = Self::locate(number);
        let slots = self.directories.get(directory)?.get()?;
        slots[slot].get().map(|page| &**page)
    }

    fn add(&self, number: u64, words: usize) {
        let (directory, slot) = Self::locate(number);
        let slots = self.directories[directory].get_or_init(|| {
            let size = FIRST << directory;
            (0..size).map(|_| OnceLock::new()).collect()
        });
        slots[slot].get_or_init(|| zeroed(words));
    }
}

/// Records of `1 << BITS` words each, by dense number.
#[derive(Debug, Default)]
pub(crate) struct Table<const BITS: u32> {
    pages: Pages,
}

impl<const BITS: u32> Table<BITS> {
    const PER_PAGE: u32 = PAGE_BITS - BITS;

    /// The words of a record; `None` where it was never made.
    pub(crate) fn get(&self, number: u32) -> Option<&[AtomicU64]> {
        let page = self.pages.get(u64::from(number >> Self::PER_PAGE))?;
        let start = (number as usize & ((1 << Self::PER_PAGE) - 1)) << BITS;
        Some(&page[start..start + (1 << BITS)])
    }

    /// The words of a whole page of records that were made, and the number of
    /// the first of them.
    pub(crate) fn page(&self, number: u32) -> (u32, &[AtomicU64]) {
        let page = self.pages.get(u64::from(number >> Self::PER_PAGE));
        let first = number >> Self::PER_PAGE << Self::PER_PAGE;
        (first, page.expect("the record was made"))
    }

    /// The words of a record that was made.
    pub(crate) fn record(&self, number: u32) -> &[AtomicU64] {
        self.get(number).expect("the record was made")
    }

    /// Makes sure that the record exists; fresh ones are zero.
    pub(crate) fn make(&self, number: u32) {
        self.pages
            .add(u64::from(number >> Self::PER_PAGE), PAGE_WORDS);
    }
}

/// The words of a size class.
pub(crate) const fn class_words(class: u8) -> usize {
    (4 + (class as usize & 3)) << (class >> 2)
}

/// The smallest size class of at least that many words.
pub(crate) fn class_for(words: usize) -> u8 {
    let mut class = (words.max(4).ilog2() as u8 - 2) * 4;
    while class_words(class) < words {
        class += 1;
    }
    class
}

/// What readers see of an arena.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pages: Pages,
}

impl Arena {
    /// The words at an address; `None` where address and length do not go
    /// together, as a reader may find them in the middle of a write.
    pub(crate) fn get(&self, address: u64, words: usize) -> Option<&[AtomicU64]> {
        let page = self.pages.get(address >> PAGE_BITS)?;
        let start = address as usize & (PAGE_WORDS - 1);
        page.get(start..start + words)
    }

    /// The words at an address that the writer knows to be right.
    pub(crate) fn words(&self, address: u64, words: usize) -> &[AtomicU64] {
        self.get(address, words).expect("a block of the arena")
    }
}

/// The writer's side of an arena: what is free.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// The first free block of each class; the next one's address is in its
    /// first word. 0 = none.
    free: [u64; 256],
    next_page: u64,
    page: u64,
    used: usize,
    /// Words in blocks that are in use.
    pub(crate) live_words: usize,
    /// Words in all pages.
    pub(crate) page_words: usize,
}

impl Default for Allocator {
    fn default() -> Self {
        Self {
            free: [0; 256],
            // Address 0 stays unused: it ends the lists of free blocks.
            next_page: 1,
            page: 0,
            used: PAGE_WORDS,
            live_words: 0,
            page_words: 0,
        }
    }
}

impl Allocator {
    /// A block of a size class; its words hold anything.
    pub(crate) fn allocate(&mut self, arena: &Arena, class: u8) -> u64 {
        let words = class_words(class);
        self.live_words += words;
        let head = self.free[usize::from(class)];
        if head != 0 {
            let next = arena.words(head, 1)[0].load(Ordering::Relaxed);
            self.free[usize::from(class)] = next;
            return head;
        }
        if words > PAGE_WORDS {
            return self.add_page(arena, words) << PAGE_BITS;
        }
        if self.used + words > PAGE_WORDS {
            self.retire(arena);
            self.page = self.add_page(arena, PAGE_WORDS);
            self.used = 0;
        }
        let address = (self.page << PAGE_BITS) | self.used as u64;
        self.used += words;
        address
    }

    /// Gives a block back for reuse.
    pub(crate) fn release(&mut self, arena: &Arena, address: u64, class: u8) {
        self.live_words -= class_words(class);
        self.push(arena, address, class);
    }

    fn push(&mut self, arena: &Arena, address: u64, class: u8) {
        let head = std::mem::replace(&mut self.free[usize::from(class)], address);
        arena.words(address, 1)[0].store(head, Ordering::Relaxed);
    }

    fn add_page(&mut self, arena: &Arena, words: usize) -> u64 {
        let number = self.next_page;
        self.next_page += 1;
        self.page_words += words;
        arena.pages.add(number, words);
        number
    }

    /// Files the unused rest of the current page under the classes that fit.
    fn retire(&mut self, arena: &Arena) {
        while PAGE_WORDS - self.used >= class_words(0) {
            let rest = PAGE_WORDS - self.used;
            let mut class = class_for(rest);
            if class_words(class) > rest {
                class -= 1;
            }
            let address = (self.page << PAGE_BITS) | self.used as u64;
            self.used += class_words(class);
            self.push(arena, address, class);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_classes_cover_every_size_within_a_quarter() {
        for words in 4..100_000 {
            let size = class_words(class_for(words));
            assert!(size >= words && size * 4 <= words * 5 + 4, "{words} {size}");
        }
    }

    #[test]
    fn test_blocks_do_not_overlap_and_come_back() {
        let (arena, mut free) = (Arena::default(), Allocator::default());
        let mut blocks = Vec::new();
        for round in 0..4 {
            for i in 0..3000 {
                let class = class_for(4 + (i * 7 + round) % 200);
                let address = free.allocate(&arena, class);
                for word in arena.words(address, class_words(class)) {
                    assert_eq!(word.swap(i as u64 + 1, Ordering::Relaxed) >> 32, 0);
                }
                blocks.push((address, class, i as u64 + 1));
            }
            for (address, class, mark) in blocks.drain(..) {
                for word in arena.words(address, class_words(class)) {
                    assert_eq!(word.load(Ordering::Relaxed), mark);
                }
                free.release(&arena, address, class);
            }
            assert_eq!(free.live_words, 0);
        }
        assert!(free.page_words <= 3000 * 256);
    }

    #[test]
    fn test_large_blocks_have_pages_of_their_own() {
        let (arena, mut free) = (Arena::default(), Allocator::default());
        let class = class_for(PAGE_WORDS * 3);
        let first = free.allocate(&arena, class);
        assert_eq!(
            arena.words(first, class_words(class)).len(),
            class_words(class)
        );
        free.release(&arena, first, class);
        assert_eq!(free.allocate(&arena, class), first);
    }
}

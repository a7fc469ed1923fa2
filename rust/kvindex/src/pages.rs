//! Which pages of a block are there? For sources whose pages are smaller than a
//! block.
//!
//! Pages lie outside the structure, each behind the one before it in its block:
//!
//! ```text
//! block 7 <- page e5 <- page e6 <- page e7 <- page e8: ends block 8
//!                                \ page f7
//! ```
//!
//! The block that a last page ends lies in the structure as long as the page is
//! known, whoever holds it, and a member claims it while it holds all its pages.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::copies::Named;
use crate::event::Name;
use crate::hold::Target;
use crate::incoming::{Incoming, Outcome, Place};
use crate::key::{BlockHasher, PageImage, chain, namespace_seed, page_key};
use crate::member::Role;
use crate::mix::MixMap;
use crate::namespace::{Family, Namespace};
use crate::prepare::Layout;
use crate::run::Block;
use crate::writer::Writer;

/// The number of a page.
pub(crate) type PageId = u32;

/// What one hash says of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) space: Namespace,
    /// One more than the page has, for pairs.
    pub(crate) tokens: Vec<u32>,
    pub(crate) images: Vec<PageImage>,
}

/// Where in a chain the next page begins: behind a block, or the root; and there
/// behind a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) block: Option<Block>,
    pub(crate) page: Option<PageId>,
}

#[derive(Debug)]
struct Page {
    /// The block that the page's block hangs below, and the page before it there.
    spot: Spot,
    /// Commits to the page and all before it.
    key: u64,
    content: Content,
    /// Tokens of the block up to the page's end.
    end: u32,
    /// The block that it ends.
    ends: Option<Block>,
    /// Pages right behind it in its block.
    next: Vec<PageId>,
    /// Who holds it, by member.
    copies: Vec<(u32, Named)>,
    /// What it is called while anybody holds it.
    names: Vec<Name>,
}

/// All pages that are known: those that somebody holds, and those before them.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    slots: Vec<Option<Page>>,
    free: Vec<PageId>,
    by_key: MixMap<u64, PageId>,
    /// What names mean, by what integers they compare equal with; the oldest first.
    names: MixMap<u64, Vec<(Name, PageId)>>,
    bindings: usize,
    /// The pages that end a block.
    ending: MixMap<Block, Vec<PageId>>,
}

impl Pages {
    fn get(&self, page: PageId) -> &Page {
        self.slots[page as usize].as_ref().expect("a known page")
    }

    fn get_mut(&mut self, page: PageId) -> &mut Page {
        self.slots[page as usize].as_mut().expect("a known page")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    fn is_known(&self, page: PageId) -> bool {
        self.slots[page as usize].is_some()
    }

    /// How many names are bound to pages.
    pub(crate) fn names(&self) -> usize {
        self.bindings
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let content = |page: &Page| page.content.tokens.len() * 4 + page.copies.capacity() * 32;
        let pages: usize = self.slots.iter().flatten().map(content).sum();
        let maps = self.by_key.capacity() * 13 + self.bindings * 64 + self.ending.capacity() * 40;
        pages + maps + self.slots.capacity() * size_of::<Option<Page>>()
    }

    /// The pages that a name means, the oldest meaning first.
    pub(crate) fn named(&self, name: Name) -> Vec<PageId> {
        let mut pages = Vec::new();
        for &(known, page) in self.names.get(&name.low()).into_iter().flatten() {
            // A page that several of its names match is one meaning.
            if known.matches(name) && !pages.contains(&page) {
                pages.push(page);
            }
        }
        pages
    }

    pub(crate) fn space(&self, page: PageId) -> &Namespace {
        &self.get(page).content.space
    }

    /// The block that a page ends, if it does.
    pub(crate) fn ends(&self, page: PageId) -> Option<Block> {
        self.get(page).ends
    }

    /// What lies right behind a page.
    pub(crate) fn behind(&self, page: PageId) -> Spot {
        let known = self.get(page);
        match known.ends {
            None => Spot {
                page: Some(page),
                ..known.spot
            },
            block => Spot { block, page: None },
        }
    }

    /// Tokens of the block in front of a spot.
    pub(crate) fn tokens_before(&self, spot: Spot) -> u32 {
        spot.page.map_or(0, |page| self.get(page).end)
    }

    /// Whether a member holds a page under a name.
    pub(crate) fn has(&self, page: PageId, member: u32, name: Name) -> bool {
        let mut copies = self.get(page).copies.iter();
        copies.any(|(owner, copy)| *owner == member && copy.name.matches(name))
    }

    /// The members that hold a page under a name.
    pub(crate) fn members(&self, page: PageId, name: Name) -> impl Iterator<Item = u32> {
        let copies = self.get(page).copies.iter();
        let copies = copies.filter(move |(_, copy)| copy.name.matches(name));
        copies.map(|(member, _)| *member)
    }

    fn holds(&self, page: PageId, member: u32) -> bool {
        let mut copies = self.get(page).copies.iter();
        copies.any(|(owner, _)| *owner == member)
    }

    /// Whether a member holds all pages of a block up to one.
    fn is_whole(&self, last: PageId, member: u32) -> bool {
        let mut next = Some(last);
        while let Some(page) = next {
            if !self.holds(page, member) {
                return false;
            }
            next = self.get(page).spot.page;
        }
        true
    }

    /// The blocks that a page is part of, and that are known.
    fn blocks_of(&self, page: PageId) -> Vec<Block> {
        let (mut blocks, mut stack) = (Vec::new(), vec![page]);
        while let Some(page) = stack.pop() {
            let page = self.get(page);
            blocks.extend(page.ends.filter(|block| !blocks.contains(block)));
            stack.extend(&page.next);
        }
        blocks
    }

    /// Whether a member holds all pages of a block, whichever pages they are.
    fn make_up(&self, block: Block, member: u32) -> bool {
        let mut ending = self.ending.get(&block).into_iter().flatten();
        ending.any(|&last| self.is_whole(last, member))
    }

    /// The tokens and the images of the block that ends with some content behind
    /// a spot.
    fn gather(&self, spot: Spot, last: &Content) -> (Vec<u32>, Vec<u64>) {
        let mut parts = vec![last];
        let mut next = spot.page;
        while let Some(page) = next {
            let page = self.get(page);
            parts.push(&page.content);
            next = page.spot.page;
        }
        let ahead = usize::from(last.space.family == Family::Pair);
        let (mut tokens, mut images) = (Vec::new(), Vec::new());
        for part in parts.iter().rev() {
            tokens.extend_from_slice(&part.tokens[..part.tokens.len() - ahead]);
            images.extend_from_slice(&part.images);
        }
        tokens.extend_from_slice(&last.tokens[last.tokens.len() - ahead..]);
        // An image that reaches over several pages is one.
        images.sort_unstable();
        images.dedup();
        (tokens, images.iter().map(|image| image.0).collect())
    }

    fn insert(&mut self, page: Page) -> PageId {
        let (key, before, ends) = (page.key, page.spot.page, page.ends);
        let id = self.free.pop().unwrap_or(self.slots.len() as PageId);
        if id as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[id as usize] = Some(page);
        self.by_key.insert(key, id);
        if let Some(before) = before {
            self.get_mut(before).next.push(id);
        }
        if let Some(block) = ends {
            self.ending.entry(block).or_default().push(id);
        }
        id
    }

    /// Takes a page out that nobody holds and nothing follows.
    fn remove(&mut self, id: PageId) -> Page {
        let page = self.slots[id as usize].take().expect("a known page");
        self.free.push(id);
        self.by_key.remove(&page.key);
        if let Some(before) = page.spot.page {
            self.get_mut(before).next.retain(|next| *next != id);
        }
        if let Some(block) = page.ends {
            let ending = self.ending.get_mut(&block).expect("it ends the block");
            ending.retain(|last| *last != id);
            if ending.is_empty() {
                self.ending.remove(&block);
            }
        }
        page
    }

    fn bind(&mut self, page: PageId, name: Name) {
        let names = &mut self.get_mut(page).names;
        if !names.contains(&name) {
            names.push(name);
            let meanings = self.names.entry(name.low());
            let meanings = meanings.or_insert_with(|| Vec::with_capacity(1));
            meanings.push((name, page));
            self.bindings += 1;
        }
    }

    /// Forgets the names of a page that nobody holds any more.
    fn unbind(&mut self, page: PageId) {
        for name in std::mem::take(&mut self.get_mut(page).names) {
            let meanings = self.names.get_mut(&name.low()).expect("it is bound");
            meanings.retain(|binding| *binding != (name, page));
            self.bindings -= 1;
            if meanings.is_empty() {
                self.names.remove(&name.low());
            }
        }
    }
}

impl Writer {
    /// Stores hashes that are pages, behind a spot; returns where the next one
    /// goes.
    pub(crate) fn extend_by_pages(
        &mut self,
        incoming: &Incoming<'_>,
        mut spot: Spot,
        hashes: Range<usize>,
        size: NonZeroU32,
        outcome: &mut Outcome,
    ) -> Place {
        let layout = Layout {
            batch: incoming.batch,
            store: incoming.store,
            count: incoming.count,
            unit: 1,
            block_size: size.get() as usize,
        };
        let above = self.space_before(spot);
        let spaces = layout.spaces(incoming.lora, incoming.inherits.then_some(&above));
        let mut made = Vec::new();
        let mut refused = None;
        for hash in hashes.clone() {
            let space = spaces.at(hash);
            // Nothing is known of a block that lies in two namespaces.
            let torn = spot
                .page
                .is_some_and(|page| self.pages.space(page) != space);
            let start = self.pages.tokens_before(spot);
            if torn || start + size.get() > self.block_size {
                let place = if torn { Place::Refused } else { Place::Misfit };
                outcome.refuse(place, incoming.left(hash..hashes.end));
                refused = Some(place);
                break;
            }
            let content = Content {
                space: space.clone(),
                tokens: layout.tokens(hash).to_vec(),
                images: layout.page_images(hash, start),
            };
            let page = self.page(spot, content, size);
            made.push(page);
            spot = self.pages.behind(page);
            if !incoming.is_taken(hash) {
                self.hold_page(incoming.target, page, incoming.names()[hash]);
                outcome.stored += 1;
            }
        }
        // Those that were taken only led to the others.
        for page in made.into_iter().rev() {
            if self.pages.is_known(page) {
                self.forget_page(page);
            }
        }
        refused.unwrap_or(match spot {
            Spot {
                page: Some(page), ..
            } => Place::Inside(page),
            Spot { block, .. } => block.map_or(Place::Root, Place::Below),
        })
    }

    fn space_before(&self, spot: Spot) -> Namespace {
        match spot {
            Spot {
                page: Some(page), ..
            } => self.pages.space(page).clone(),
            Spot {
                block: Some(block), ..
            } => self.store.namespace(block).clone(),
            _ => Namespace::default(),
        }
    }

    /// The page of that content behind a spot, made where there is none.
    pub(crate) fn page(&mut self, spot: Spot, content: Content, size: NonZeroU32) -> PageId {
        let seed = namespace_seed(&content.space.lora, &content.space.salt);
        let mut hasher = BlockHasher::new(seed);
        let local = hasher.local(&content.tokens, &mut []);
        let block_key = spot.block.map(|block| self.store.shared.key(block));
        let above = spot.page.map(|page| self.pages.get(page).key);
        let pairs = content.space.family == Family::Pair;
        let key = page_key(above.or(block_key), pairs, local, &content.images);
        if let Some(&known) = self.pages.by_key.get(&key) {
            return known;
        }
        let end = self.pages.tokens_before(spot) + size.get();
        let mut ends = None;
        if end == self.block_size {
            let (tokens, mut images) = self.pages.gather(spot, &content);
            let local = hasher.local(&tokens, &mut images);
            let keys = [chain(block_key, local)];
            let block = self.store.place(spot.block, &content.space, &keys).first();
            self.store.hang(block);
            ends = Some(block);
        }
        if let (Some(block), None) = (spot.block, spot.page) {
            self.store.hang(block);
        }
        self.pages.insert(Page {
            spot,
            key,
            content,
            end,
            ends,
            next: Vec::new(),
            // Mostly one holder, by one name.
            copies: Vec::with_capacity(1),
            names: Vec::with_capacity(1),
        })
    }

    /// Stores a page under a name.
    pub(crate) fn hold_page(&mut self, target: Target, page: PageId, name: Name) {
        let member = self.member(target, Role::Paged);
        if !self.orphans.is_empty() {
            self.announced.push(name);
        }
        let held = self.pages.holds(page, member);
        let copies = &mut self.pages.get_mut(page).copies;
        let same = |(owner, copy): &&mut (u32, Named)| *owner == member && copy.name.matches(name);
        match copies.iter_mut().find(same) {
            Some((_, copy)) => copy.count += u32::from(target.counting),
            None => copies.push((member, Named { name, count: 1 })),
        }
        self.pages.bind(page, name);
        if held {
            return;
        }
        self.members.get_mut(member).pages.insert(page);
        for block in self.pages.blocks_of(page) {
            if !self.store.covers(member, block) && self.pages.make_up(block, member) {
                self.claim_paged(target, member, block);
            }
        }
    }

    fn claim_paged(&mut self, target: Target, member: u32, block: Block) {
        let range = block.offset()..block.offset() + 1;
        self.store.tidy(block.run());
        let gaps = self.store.uncovered(block.run(), &range);
        self.store.revive(block.run(), &gaps, false);
        if !self.held_besides(target, member, block) {
            let holder = self.holders.get_mut(target.holder);
            *holder.held_mut(target.group, target.tier) += 1;
        }
        self.store.cover(block.run(), member, &range);
    }

    /// Takes one copy of all pages that a member holds under a name; whether
    /// there was any.
    pub(crate) fn release_pages(&mut self, target: Target, member: u32, name: Name) -> bool {
        let mut pages = self.pages.named(name);
        pages.retain(|&page| self.pages.has(page, member, name));
        for &page in &pages {
            let copies = &mut self.pages.get_mut(page).copies;
            for (owner, copy) in copies.iter_mut() {
                copy.count -= u32::from(*owner == member && copy.name.matches(name));
            }
            copies.retain(|(_, copy)| copy.count > 0);
            if !self.pages.holds(page, member) {
                self.members.get_mut(member).pages.remove(&page);
                for block in self.pages.blocks_of(page) {
                    let covered = self.store.covers(member, block);
                    if covered && !self.pages.make_up(block, member) {
                        self.store.tidy(block.run());
                        self.unclaim(target, member, block);
                    }
                }
                self.forget_page(page);
            }
        }
        !pages.is_empty()
    }

    /// Drops all copies of pages of a member that has ended.
    pub(crate) fn drop_pages(&mut self, member: u32, pages: impl IntoIterator<Item = PageId>) {
        for page in pages {
            let copies = &mut self.pages.get_mut(page).copies;
            copies.retain(|(owner, _)| *owner != member);
            self.forget_page(page);
        }
    }

    /// Forgets the names of a page that nobody holds, and the page, and those
    /// before it, where nothing follows.
    pub(crate) fn forget_page(&mut self, page: PageId) {
        let mut next = Some(page);
        while let Some(page) = next {
            let known = self.pages.get(page);
            if !known.copies.is_empty() {
                return;
            }
            self.pages.unbind(page);
            if !self.pages.get(page).next.is_empty() {
                return;
            }
            let gone = self.pages.remove(page);
            if let Some(block) = gone.ends {
                self.store.let_go(block);
            }
            if let (Some(block), None) = (gone.spot.block, gone.spot.page) {
                self.store.let_go(block);
            }
            next = gone.spot.page;
        }
    }
}

//! Blocks that leave from the middle of chains, and come back.

use super::{Block, Direction, Event, Fleet, Random, Stream};

/// The removals that punch holes into a fleet's chains: of the inner blocks one
/// in `one_in`, each chain's in one event.
pub(crate) fn punched(fleet: &Fleet, one_in: usize) -> impl Iterator<Item = Event> + '_ {
    let mut random = Random::new(fleet.seed ^ 0x401e);
    (0..fleet.families).flat_map(move |number| {
        let family = fleet.family(number);
        let punch = |member: usize| {
            let chain = family.chain(member);
            let inner = chain.get(1..chain.len() - 1).unwrap_or_default();
            let holes = inner.iter().filter(|_| random.below(one_in) == 0);
            let worker = family.members[member].worker;
            Event::remove(worker, fleet.names, holes)
        };
        let events: Vec<Event> = (0..family.members.len()).map(punch).collect();
        events.into_iter().filter(|event| !event.blocks.is_empty())
    })
}

/// Chains that lose blocks anywhere, get some of them back, and are cut short,
/// all as an engine may do it: it never stores below what it does not hold.
#[derive(Debug)]
pub(crate) struct Holes<'a> {
    fleet: &'a Fleet,
    random: Random,
    chains: Vec<Chain>,
}

/// One worker's chain, and which of its blocks the worker holds.
#[derive(Debug)]
struct Chain {
    worker: u32,
    blocks: Vec<Block>,
    held: Vec<bool>,
}

impl<'a> Holes<'a> {
    pub(crate) fn new(fleet: &'a Fleet) -> Self {
        let mut chains = Vec::new();
        for family in (0..fleet.families).map(|number| fleet.family(number)) {
            for (number, member) in family.members.iter().enumerate() {
                let blocks = family.chain(number);
                chains.push(Chain {
                    worker: member.worker,
                    held: vec![true; blocks.len()],
                    blocks,
                });
            }
        }
        Self {
            fleet,
            random: Random::new(fleet.seed ^ 0x401e5),
            chains,
        }
    }

    /// The stores with which it begins.
    pub(crate) fn stores(&self) -> impl Iterator<Item = Event> + 'a {
        Stream::new(self.fleet, Direction::Store)
    }

    /// Every chain, with all that was ever stored of it.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &[Block]> {
        self.chains.iter().map(|chain| &chain.blocks[..])
    }

    /// One round of changes: each chain in turn, in another order each time.
    pub(crate) fn round(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.random.shuffle(&mut self.chains);
        for chain in &mut self.chains {
            chain.lose(self.fleet, &mut self.random, &mut events);
            chain.regain(self.fleet, &mut self.random, &mut events);
            chain.shorten(self.fleet, &mut self.random, &mut events);
        }
        events
    }
}

impl Chain {
    /// Single blocks, one in 20, the first and the last one among them.
    fn lose(&mut self, fleet: &Fleet, random: &mut Random, events: &mut Vec<Event>) {
        let mut lost = Vec::new();
        for (held, block) in self.held.iter_mut().zip(&self.blocks) {
            if *held && random.below(20) == 0 {
                *held = false;
                lost.push(*block);
            }
        }
        random.shuffle(&mut lost);
        events.push(Event::remove(self.worker, fleet.names, lost.iter()));
    }

    /// Three of five stretches that are missing below a block that is held.
    fn regain(&mut self, fleet: &Fleet, random: &mut Random, events: &mut Vec<Event>) {
        let mut at = 0;
        while at < self.held.len() {
            let stretch = self.held[at..].iter().take_while(|held| !**held).count();
            let end = at + stretch;
            let has_parent = at == 0 || self.held[at - 1];
            if stretch > 0 && has_parent && random.below(5) < 3 {
                self.held[at..end].fill(true);
                let event = Event::store(self.worker, fleet.names, &self.blocks, at, end);
                events.push(event);
            }
            at = end + 1;
        }
    }

    /// One chain in five, from its leaf on.
    fn shorten(&mut self, fleet: &Fleet, random: &mut Random, events: &mut Vec<Event>) {
        if random.below(5) > 0 {
            return;
        }
        let keep = random.below(self.blocks.len());
        let cut = (keep..self.blocks.len()).rev();
        let cut: Vec<usize> = cut.filter(|&at| self.held[at]).collect();
        let blocks = cut.iter().map(|&at| &self.blocks[at]);
        events.push(Event::remove(self.worker, fleet.names, blocks));
        self.held[keep..].fill(false);
    }
}

//! A fleet's events in the order in which an index gets them.

use std::ops::Range;
use std::rc::Rc;

use super::{Block, Event, Family, Fleet, Random};

/// Blocks an event.
const STEP: usize = 8;
/// Chains that are on their way at once.
const WINDOW: usize = 2_000;

/// Which way along the chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Stores from the root on; 5 % are delivered twice.
    Store,
    /// Removals from the leaf on.
    Remove,
}

/// The events of a fleet, a random one of the open chains at a time.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    fleet: &'a Fleet,
    direction: Direction,
    random: Random,
    families: Range<u64>,
    waiting: Vec<Open>,
    open: Vec<Open>,
    again: Option<Event>,
}

/// A member's chain, and how many of its blocks are done.
#[derive(Debug)]
struct Open {
    family: Rc<Family>,
    member: usize,
    done: usize,
}

impl<'a> Stream<'a> {
    /// Those of the whole fleet.
    pub(crate) fn new(fleet: &'a Fleet, direction: Direction) -> Self {
        Self::of(fleet, direction, 0..fleet.families)
    }

    /// Those of some of its families.
    pub(crate) fn of(fleet: &'a Fleet, direction: Direction, families: Range<u64>) -> Self {
        Self {
            fleet,
            direction,
            random: Random::new(fleet.seed ^ direction as u64),
            families,
            waiting: Vec::new(),
            open: Vec::new(),
            again: None,
        }
    }

    /// Opens chains as long as there is room and there are any.
    fn fill(&mut self) {
        while self.open.len() < WINDOW {
            if let Some(next) = self.waiting.pop() {
                self.open.push(next);
            } else if let Some(next) = self.families.next() {
                let family = Rc::new(self.fleet.family(next));
                let members = 0..family.members.len();
                self.waiting.extend(members.map(|member| Open {
                    family: family.clone(),
                    member,
                    done: 0,
                }));
            } else {
                return;
            }
        }
    }
}

impl Iterator for Stream<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.again.take() {
            return Some(event);
        }
        self.fill();
        if self.open.is_empty() {
            return None;
        }
        let at = self.random.below(self.open.len());
        let (event, ended) = self.open[at].advance(self.fleet, self.direction);
        if ended {
            self.open.swap_remove(at);
        }
        if self.direction == Direction::Store && self.random.below(20) == 0 {
            self.again = Some(event.clone());
        }
        Some(event)
    }
}

impl Open {
    fn length(&self) -> usize {
        self.family.shared.len() + self.family.members[self.member].tail.len()
    }

    fn block(&self, at: usize) -> &Block {
        let shared = &self.family.shared;
        match shared.get(at) {
            Some(block) => block,
            None => &self.family.members[self.member].tail[at - shared.len()],
        }
    }

    /// The chain's next event, and whether it is its last.
    fn advance(&mut self, fleet: &Fleet, direction: Direction) -> (Event, bool) {
        let worker = self.family.members[self.member].worker;
        let (length, names) = (self.length(), fleet.names);
        let (from, to) = (self.done, (self.done + STEP).min(length));
        self.done = to;
        let event = match direction {
            Direction::Store => {
                let start = from.saturating_sub(1);
                let chain: Vec<Block> = (start..to).map(|at| *self.block(at)).collect();
                Event::store(worker, names, &chain, from - start, to - start)
            }
            Direction::Remove => {
                let blocks = (from..to).map(|at| self.block(length - 1 - at));
                Event::remove(worker, names, blocks)
            }
        };
        (event, to == length)
    }
}

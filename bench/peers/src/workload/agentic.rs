//! Sessions that grow turn by turn, fork, and are trimmed from the tail.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::{Block, Event, Names, Random, grow};

/// Workers.
const WORKERS: usize = 128;
/// Sessions at a time, a worker.
const SESSIONS: usize = 16;
/// Prompts that sessions begin with.
const PROMPTS: usize = 32;
/// The most blocks that one event stores.
const CHUNK: usize = 64;
/// How many blocks a worker frees at a time.
const TRIM: usize = 32;

/// The events of engines that keep what fits and drop the oldest session's tail.
#[derive(Debug)]
pub(crate) struct Agentic {
    random: Random,
    /// Blocks that a worker has room for.
    room: usize,
    /// Blocks that are still to be stored.
    left: u64,
    prompts: Vec<Vec<Block>>,
    workers: Vec<Worker>,
    sessions: Vec<Session>,
    ready: VecDeque<Event>,
}

#[derive(Debug, Default)]
struct Worker {
    /// By how many sessions each held block is used.
    users: FxHashMap<u64, u32>,
    /// Chains of sessions that have ended, the oldest first.
    ended: VecDeque<Vec<Block>>,
}

#[derive(Debug)]
struct Session {
    worker: usize,
    chain: Vec<Block>,
    /// How many of its blocks are stored.
    stored: usize,
    /// Single blocks of an answer that are still to come.
    answer: usize,
    turns: usize,
}

impl Agentic {
    /// Workers with room for so many claims, and so many blocks for them.
    pub(crate) fn new(seed: u64, claims: u64, blocks: u64) -> Self {
        let mut random = Random::new(seed);
        let prompt = |_| {
            let mut prompt = Vec::new();
            let length = random.log_uniform(32, 256);
            grow(&mut prompt, length, &mut random);
            prompt
        };
        let prompts = (0..PROMPTS).map(prompt).collect();
        let mut agentic = Self {
            random,
            room: claims as usize / WORKERS,
            left: blocks,
            prompts,
            workers: (0..WORKERS).map(|_| Worker::default()).collect(),
            sessions: Vec::new(),
            ready: VecDeque::new(),
        };
        for number in 0..WORKERS * SESSIONS {
            agentic.begin(number % WORKERS);
        }
        agentic
    }

    /// Workers.
    pub(crate) const fn workers() -> u32 {
        WORKERS as u32
    }

    /// Claims that are held now.
    pub(crate) fn claims(&self) -> u64 {
        let held = self.workers.iter().map(|worker| worker.users.len() as u64);
        held.sum()
    }

    /// What the sessions that go on have stored.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &[Block]> {
        let sessions = self.sessions.iter();
        sessions.map(|session| &session.chain[..session.stored])
    }

    fn begin(&mut self, worker: usize) {
        let prompt = self.random.below(PROMPTS);
        let session = self.session(worker, self.prompts[prompt].clone());
        self.sessions.push(session);
    }

    /// A session that begins with a chain, of which its worker may hold a part.
    fn session(&mut self, worker: usize, chain: Vec<Block>) -> Session {
        let users = &mut self.workers[worker].users;
        let held = |block: &&Block| users.contains_key(&block.chain);
        let stored = chain.iter().take_while(held).count();
        for block in &chain[..stored] {
            *users.entry(block.chain).or_default() += 1;
        }
        Session {
            worker,
            chain,
            stored,
            answer: 0,
            turns: 4 + self.random.below(9),
        }
    }

    /// Lets one session do its next step.
    fn step(&mut self) {
        let at = self.random.below(self.sessions.len());
        let session = &mut self.sessions[at];
        if session.stored < session.chain.len() {
            let end = session.chain.len().min(session.stored + CHUNK);
            return self.store(at, end);
        }
        if session.answer > 0 {
            session.answer -= 1;
            grow(&mut session.chain, 1, &mut self.random);
            let end = session.chain.len();
            return self.store(at, end);
        }
        if session.turns == 0 {
            return self.end(at);
        }
        session.turns -= 1;
        let length = 8 + self.random.below(57);
        grow(&mut session.chain, length, &mut self.random);
        session.answer = 4 + self.random.below(13);
        if self.random.below(10) == 0 {
            self.fork(at);
        }
    }

    /// Stores a session's blocks up to `end`, where its worker lacks them.
    fn store(&mut self, at: usize, end: usize) {
        let session = &mut self.sessions[at];
        let worker = &mut self.workers[session.worker];
        let from = session.stored;
        for block in &session.chain[from..end] {
            *worker.users.entry(block.chain).or_default() += 1;
        }
        session.stored = end;
        self.left = self.left.saturating_sub((end - from) as u64);
        let number = session.worker as u32;
        let event = Event::store(number, Names::Common, &session.chain, from, end);
        self.ready.push_back(event);
        let number = session.worker;
        self.trim(number);
    }

    /// Another session goes on from somewhere in this one, one in three elsewhere.
    fn fork(&mut self, at: usize) {
        let session = &self.sessions[at];
        let length = 1 + self.random.below(session.stored.max(1));
        let chain = session.chain[..length].to_vec();
        let worker = match self.random.below(3) {
            0 => self.random.below(WORKERS),
            _ => session.worker,
        };
        // It takes the place of another one, or sessions would pile up.
        let other = self.random.below(self.sessions.len());
        if other != at {
            let fork = self.session(worker, chain);
            let old = std::mem::replace(&mut self.sessions[other], fork);
            self.retire(old);
        }
    }

    fn end(&mut self, at: usize) {
        let old = self.sessions.swap_remove(at);
        self.begin(old.worker);
        self.retire(old);
    }

    fn retire(&mut self, mut old: Session) {
        old.chain.truncate(old.stored);
        self.workers[old.worker].ended.push_back(old.chain);
    }

    /// Frees blocks of ended sessions, the oldest first, from the leaf on.
    fn trim(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        while worker.users.len() > self.room
            && let Some(chain) = worker.ended.front_mut()
        {
            let mut freed = Vec::new();
            while freed.len() < TRIM
                && let Some(block) = chain.pop()
            {
                let users = worker.users.get_mut(&block.chain).expect("is held");
                *users -= 1;
                if *users == 0 {
                    worker.users.remove(&block.chain);
                    freed.push(block);
                }
            }
            if chain.is_empty() {
                worker.ended.pop_front();
            }
            if !freed.is_empty() {
                let event = Event::remove(number as u32, Names::Common, freed.iter());
                self.ready.push_back(event);
            }
        }
    }
}

impl Iterator for Agentic {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && self.left > 0 {
            self.step();
        }
        self.ready.pop_front()
    }
}

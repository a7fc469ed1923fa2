//! Readers against writers: what a half written answer would break.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use common::race::{Random, run, threads};
use common::said::{Said, batch, remove, store};
use common::{EVERYBODY, apply, config, counts, origin, rows};
use kvindex::key::{BlockHasher, SEED, chain};
use kvindex::profile::{Kind, Profile};
use kvindex::{Blocks, Candidate, Found, Index, Options, Prepared, Row, Walk};

/// Kinds of chains; a worker only ever stores chains of its own kind.
const TAGS: u64 = 4;
/// Workers of each writer and tag.
const WORKERS: u64 = 6;
/// Blocks of the prefix that stays.
const PREFIX: u64 = 64;
/// Chains of each tag and the most blocks of one.
const CHAINS: u64 = 6;
const LONGEST: u64 = 300;

/// A chain whose first blocks are those of the prefix.
struct Line {
    tag: u64,
    shared: u64,
    names: Vec<u64>,
    tokens: Vec<u32>,
    keys: Vec<u64>,
    /// The most blocks that anybody was ever about to hold.
    longest: AtomicU64,
}

impl Line {
    fn new(number: u64, shared: u64, length: u64) -> Self {
        let own = |i: u64| (number + 1) * 1000 + i;
        let names = (0..length).map(|i| if i < shared { i + 1 } else { own(i) });
        let names: Vec<u64> = names.collect();
        let tokens: Vec<u32> = names.iter().map(|name| *name as u32).collect();
        let mut hasher = BlockHasher::new(SEED);
        let mut last = None;
        let key = |token: &u32| {
            let key = chain(last, hasher.local(&[*token], &mut []));
            last = Some(key);
            key
        };
        Self {
            tag: number % TAGS,
            shared,
            keys: tokens.iter().map(key).collect(),
            names,
            tokens,
            longest: AtomicU64::new(0),
        }
    }

    /// Stores some of its blocks.
    fn stored(&self, start: u64, end: u64, medium: &'static str) -> Said {
        let (from, to) = (start as usize, end as usize);
        let said = store(self.names[from..to].iter().copied(), &self.tokens[from..to]);
        let said = said.on(medium);
        match from {
            0 => said.into(),
            from => said.below(self.names[from - 1]).into(),
        }
    }

    fn find(&self, index: &Index, walk: &mut Walk, random: &mut Random) -> Rows {
        let blocks = match random.below(3) {
            0 => Blocks::Tokens {
                tokens: &self.tokens,
                images: &[],
                seed: SEED,
            },
            _ => Blocks::Chain(&self.keys),
        };
        rows(&index.find(&blocks, &EVERYBODY, walk).unwrap())
    }
}

type Rows = BTreeMap<(String, u32), [u32; 6]>;

/// A second store is a second copy on the first of these only.
fn medium(random: &mut Random) -> &'static str {
    ["GPU", "DISK", "NETWORK"][random.below(3) as usize]
}

/// Lines of every tag, half of them with a part of the prefix.
fn lines() -> Vec<Line> {
    let mut random = Random::of(1000);
    let mut line = |number: u64| {
        let shared = random.below(PREFIX + 1) * (number / TAGS % 2);
        let longest = if random.one_in(3) { 20 } else { LONGEST };
        Line::new(number, shared, shared + 1 + random.below(longest))
    };
    (0..TAGS * CHAINS).map(&mut line).collect()
}

/// Workers that hold the prefix and never change, with their depths by tier.
fn settle(index: &Index) -> Vec<(&'static str, [u64; 2])> {
    let prefix = Line::new(1_000_000, PREFIX, PREFIX);
    let device = prefix.stored(0, PREFIX, "GPU");
    apply(index, "stays-device", batch([device]));
    let first = prefix.stored(0, 40, "GPU");
    let second = prefix.stored(30, PREFIX, "CPU");
    apply(index, "stays-both", batch([first, second]));
    let host = prefix.stored(0, PREFIX, "CPU");
    apply(index, "stays-host", batch([host]));
    vec![
        ("stays-device", [PREFIX, 0]),
        ("stays-both", [40, PREFIX - 40]),
        ("stays-host", [0, PREFIX]),
    ]
}

/// The workers of one writer; each removal gives a place a new name.
struct Crew {
    writer: u64,
    lives: Vec<AtomicU64>,
}

impl Crew {
    fn new(writer: u64) -> Self {
        let lives = (0..WORKERS * TAGS).map(|_| AtomicU64::new(0)).collect();
        Self { writer, lives }
    }

    fn name(&self, place: u64) -> String {
        let life = self.lives[place as usize].load(Ordering::Relaxed);
        format!("tag{}-{}-{place}-{life}", place % TAGS, self.writer)
    }

    fn step(&self, index: &Index, lines: &[Line], random: &mut Random) {
        let place = random.below(WORKERS * TAGS);
        let worker = self.name(place);
        let line = random.below(CHAINS) * TAGS + place % TAGS;
        let line = &lines[line as usize];
        let end = 1 + random.below(line.names.len() as u64);
        match random.below(200) {
            0 => {
                index.remove_worker(&worker).unwrap();
                self.lives[place as usize].fetch_add(1, Ordering::Relaxed);
            }
            1 => {
                apply(index, &worker, batch([Said::Cleared]));
            }
            2..60 => {
                let names = line.names[..end as usize].iter().copied();
                let start = random.below(end) as usize;
                let said = remove(names.skip(start)).on(medium(random));
                apply(index, &worker, batch([said.into()]));
            }
            60..90 => {
                let names = line.names.iter().rev().copied();
                let said = remove(names).on(medium(random));
                apply(index, &worker, batch([said.into()]));
            }
            _ => {
                let start = random.below(2) * random.below(end);
                line.longest.fetch_max(end, Ordering::Relaxed);
                let said = line.stored(start, end, medium(random));
                apply(index, &worker, batch([said]));
            }
        }
    }
}

fn check(line: &Line, rows: &Rows, settled: &[(&str, [u64; 2])]) {
    for (worker, tiers) in settled {
        let [device, host] = *tiers;
        let on_device = device.min(line.shared);
        let on_host = (line.shared - on_device).min(host);
        let row = rows.get(&((*worker).to_owned(), 0)).copied();
        let expected = [on_device as u32, on_host as u32, 0, 0, 0, 0];
        assert_eq!(row.unwrap_or_default(), expected, "{worker}");
    }
    for ((worker, _), tiers) in rows {
        let Some(tag) = worker.strip_prefix("tag") else {
            continue;
        };
        let own = tag.starts_with(&line.tag.to_string());
        let depth = u64::from(tiers.iter().sum::<u32>());
        let most = if own {
            line.longest.load(Ordering::Relaxed).max(line.shared)
        } else {
            line.shared
        };
        assert!(
            depth <= most,
            "{worker}: {depth} of tag {}, {most}",
            line.tag
        );
    }
}

#[test]
fn test_what_stays_is_found_whole_and_nobody_gets_the_blocks_of_others() {
    let (index, lines) = (Index::new(config(1)).unwrap(), lines());
    let settled = settle(&index);
    let before = index.stats().unwrap();
    let crews: Vec<Crew> = (0..threads()).map(Crew::new).collect();
    run(
        threads(),
        |writer, random| crews[writer as usize].step(&index, &lines, random),
        |walk, random| {
            let line = &lines[random.below(TAGS * CHAINS) as usize];
            let rows = line.find(&index, walk, random);
            check(line, &rows, &settled);
        },
    );
    for crew in &crews {
        for place in 0..WORKERS * TAGS {
            index.remove_worker(&crew.name(place)).unwrap();
        }
    }
    let after = index.stats().unwrap();
    let left = (after.blocks, after.claims, after.names, after.runs);
    let expected = (before.blocks, before.claims, before.names, before.runs);
    assert_eq!(left, expected, "only what stays is left");
}

#[test]
fn test_candidates_are_answered_in_order_while_workers_come_and_go() {
    let (index, lines) = (Index::new(config(1)).unwrap(), lines());
    let settled = settle(&index);
    let crews: Vec<Crew> = (0..threads()).map(Crew::new).collect();
    run(
        threads(),
        |writer, random| crews[writer as usize].step(&index, &lines, random),
        |walk, random| {
            let line = &lines[random.below(TAGS * CHAINS) as usize];
            let mut workers: Vec<String> = vec!["nobody".into()];
            workers.extend(settled.iter().map(|(worker, _)| (*worker).to_owned()));
            for _ in 0..4 {
                let crew = &crews[random.below(crews.len() as u64) as usize];
                workers.push(crew.name(random.below(WORKERS * TAGS)));
            }
            let candidate = |worker: &String| Candidate {
                worker: worker.as_str().into(),
                rank: None,
            };
            let candidates: Vec<Candidate> = workers.iter().map(candidate).collect();
            let options = Options {
                candidates: Some(&candidates),
                ..EVERYBODY
            };
            let found = index
                .find(&Blocks::Chain(&line.keys), &options, walk)
                .unwrap();
            assert_eq!(found.rows.len(), workers.len());
            let named = workers.into_iter().map(|worker| (worker, 0));
            let rows: Rows = named.zip(found.rows.iter().map(counts)).collect();
            check(line, &rows, &settled);
        },
    );
}

/// Workers that store one whole line at a time on the device, in one batch, and
/// lose it as a whole. On other tiers blocks that are known by name are put one
/// after the other.
#[test]
fn test_blocks_of_one_batch_are_seen_all_or_not_at_all() {
    let (index, lines) = (Index::new(config(1)).unwrap(), lines());
    let settled = settle(&index);
    let crews: Vec<Crew> = (0..threads()).map(Crew::new).collect();
    // A line that somebody else always has, and one that comes and goes.
    let wholes = [Line::new(2_000_000, 0, 50), Line::new(2_000_001, 0, 120)];
    let stays = wholes[0].stored(0, 50, "GPU");
    apply(&index, "stays", batch([stays]));
    let write = |writer: u64, random: &mut Random| {
        if random.one_in(2) {
            return crews[writer as usize].step(&index, &lines, random);
        }
        let worker = format!("whole-{writer}-{}", random.below(4));
        match random.below(4) {
            0 => {
                index.remove_worker(&worker).unwrap();
            }
            1 => {
                apply(&index, &worker, batch([Said::Cleared]));
            }
            _ => {
                let whole = &wholes[random.below(2) as usize];
                let said = whole.stored(0, whole.names.len() as u64, "GPU");
                apply(&index, &worker, batch([said]));
            }
        }
    };
    run(threads(), write, |walk, random| {
        let whole = &wholes[random.below(2) as usize];
        let rows = whole.find(&index, walk, random);
        for ((worker, _), tiers) in rows {
            let depth = tiers.iter().sum::<u32>() as usize;
            assert_eq!(depth, whole.names.len(), "{worker}");
        }
        let line = &lines[random.below(TAGS * CHAINS) as usize];
        check(line, &line.find(&index, walk, random), &settled);
    });
}

/// Workers and blocks of a run that many share.
const CROWD: u64 = 300;
const SHARED: u64 = 16;

/// A worker that comes and goes, and all that it ever says.
struct Visitor {
    name: String,
    stored: Prepared,
    /// Its tail, and everything: the last block first.
    removed: [Prepared; 2],
    cleared: Prepared,
    /// Names it without giving it a block.
    nothing: Prepared,
}

impl Visitor {
    /// One of two tails for each visitor in turn.
    fn new(index: &Index, lines: &[Line; 2], number: u64) -> Self {
        let tail = number as usize % 2;
        let line = &lines[tail];
        let removed = |from: u64| {
            let names = line.names[from as usize..].iter().rev();
            remove(names.copied()).into()
        };
        let prepare = |said: Said| index.prepare(batch([said]), false).unwrap();
        Self {
            name: format!("{}-{number}", ["a", "b"][tail]),
            stored: prepare(line.stored(0, line.names.len() as u64, "GPU")),
            removed: [SHARED, 0].map(|from| prepare(removed(from))),
            cleared: prepare(Said::Cleared),
            nothing: prepare(remove([]).into()),
        }
    }

    fn say(&self, index: &Index, said: &Prepared) {
        index.apply(said, &origin(&self.name)).unwrap();
    }
}

/// Has a second store be no second copy, so that one removal is enough.
fn without_copies(index: &Index, worker: &str) {
    let profile = Profile {
        copies: [false; 4],
        ..Profile::new(Kind::Auto)
    };
    index.register(worker, profile).unwrap();
}

/// The first letter of a row's worker: `a` and `b` for visitors by their tail.
fn letter(found: &Found<'_>, row: &Row) -> u8 {
    let (worker, _) = found.names.get(row.holder).expect("a holder's name");
    worker.as_bytes()[0]
}

/// A crowd that stays in one run, behind visitors that take turns with two
/// tails. Nobody's number is given out again, which would have readers try once
/// more whatever else they saw.
#[test]
fn test_a_crowded_run_is_read_whole_while_it_is_written() {
    let index = Index::new(config(1)).unwrap();
    let lines = [2, 3].map(|number| Line::new(number, SHARED, SHARED + 8));
    let visitor = |number| Visitor::new(&index, &lines, number);
    let visitors: Vec<Visitor> = (0..8).map(visitor).collect();
    for visitor in &visitors {
        without_copies(&index, &visitor.name);
        visitor.say(&index, &visitor.stored);
    }
    for number in 0..CROWD {
        let stored = lines[0].stored(0, SHARED, "GPU");
        apply(&index, &format!("stays-{number}"), batch([stored]));
    }
    let write = |_, random: &mut Random| {
        let visitor = &visitors[random.below(8) as usize];
        match random.below(4) {
            0 => visitor.say(&index, &visitor.removed[0]),
            1 => visitor.say(&index, &visitor.removed[1]),
            _ => visitor.say(&index, &visitor.stored),
        }
    };
    run(1, write, |walk, random| {
        let tail = random.below(2) as usize;
        let keys = Blocks::Chain(&lines[tail].keys);
        let found = index.find(&keys, &EVERYBODY, walk).unwrap();
        let mut stay = 0;
        for row in found.rows {
            let letter = letter(&found, row);
            if letter == b's' {
                assert_eq!(row.tiers(), [SHARED as u32, 0, 0, 0]);
                stay += 1;
            } else if letter != b"ab"[tail] {
                assert!(row.depth() <= SHARED as u32, "{row:?} of the other tail");
            }
        }
        assert_eq!(stay, CROWD, "all of the crowd");
    });
}

/// Few workers that leave all the time, each with a number that another one had.
#[test]
fn test_nobody_is_taken_for_who_had_the_number_before() {
    let index = Index::new(config(1)).unwrap();
    let lines = [4, 5].map(|number| Line::new(number, 0, SHARED + 8));
    let visitor = |number| Visitor::new(&index, &lines, number);
    let visitors: Vec<Visitor> = (0..6).map(visitor).collect();
    let write = |_, random: &mut Random| {
        let visitor = &visitors[random.below(6) as usize];
        match random.below(8) {
            0 => {
                index.remove_worker(&visitor.name).unwrap();
            }
            1 => visitor.say(&index, &visitor.nothing),
            2 => visitor.say(&index, &visitor.cleared),
            _ => visitor.say(&index, &visitor.stored),
        }
    };
    run(1, write, |walk, random| {
        let tail = random.below(2) as usize;
        let keys = Blocks::Chain(&lines[tail].keys);
        let found = index.find(&keys, &EVERYBODY, walk).unwrap();
        for row in found.rows {
            assert_eq!(letter(&found, row), b"ab"[tail]);
            assert_eq!(row.tiers(), [SHARED as u32 + 8, 0, 0, 0]);
        }
    });
}

/// The first tokens below a block whose keys lie in one part of the head table.
fn near(parent: Option<u64>) -> impl Iterator<Item = (u32, u64)> {
    let mut hasher = BlockHasher::new(SEED);
    let key = move |token: u32| chain(parent, hasher.local(&[token], &mut []));
    let keys = (0..).map(key).zip(0..);
    keys.filter(|(key, _)| key >> 56 == 7)
        .map(|(key, token)| (token, key))
}

/// A chain that stays, of one run a block, and roots that come and go in the
/// same part of the head table.
#[test]
fn test_runs_are_found_while_others_come_and_go_beside_them() {
    const RUNS: u64 = 48;
    let index = Index::new(config(1)).unwrap();
    let mut keys: Vec<u64> = Vec::new();
    for run in 0..RUNS {
        // What hangs below a block first continues its run.
        let (token, key) = near(keys.last().copied()).next().unwrap();
        for (name, token) in [(1000 + run, u32::MAX), (1 + run, token)] {
            let said = store([name], &[token]);
            let said = if run == 0 { said } else { said.below(run) };
            apply(&index, "stays", batch([said.into()]));
        }
        keys.push(key);
    }
    without_copies(&index, "comes");
    let prepare = |said: Said| index.prepare(batch([said]), false).unwrap();
    let come = (2000..).zip(near(None).skip(1).take(128));
    let said = come.map(|(name, (token, _))| {
        let stored = store([name], &[token]);
        [prepare(stored.into()), prepare(remove([name]).into())]
    });
    let said: Vec<[Prepared; 2]> = said.collect();
    let write = |_, random: &mut Random| {
        let said = &said[random.below(said.len() as u64) as usize];
        let said = &said[random.below(2) as usize];
        index.apply(said, &origin("comes")).unwrap();
    };
    run(1, write, |walk, _| {
        let found = index.find(&Blocks::Chain(&keys), &EVERYBODY, walk);
        assert_eq!(found.unwrap().rows[0].tiers(), [RUNS as u32, 0, 0, 0]);
    });
    assert!(index.stats().unwrap().runs >= 2 * RUNS);
}

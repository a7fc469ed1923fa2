use std::collections::{HashMap, HashSet};

use kvindex::key::{BlockHasher, SEED, chain};

use super::{
    Action, Agentic, Direction, Event, Fleet, Holes, Names, Sharing, Stream, punched, tokens,
};

const CLAIMS: u64 = 40_000;

fn fleet() -> Fleet {
    Fleet::new(5, CLAIMS, Sharing::Mixed, Names::Common)
}

/// Plays events as an engine would see them; returns who holds what in the end.
///
/// # Panics
///
/// Where a worker stores below a block that it does not hold, or removes what it
/// does not hold.
fn played(events: impl Iterator<Item = Event>) -> HashSet<(u32, u64)> {
    let mut held = HashSet::new();
    for event in events {
        let claim = |name: u64| (event.worker, name);
        match event.action {
            Action::Store(parent) => {
                assert!(parent.is_none_or(|parent| held.contains(&claim(parent))));
                held.extend(event.blocks.iter().map(|(_, name)| claim(*name)));
            }
            Action::Remove => {
                for (_, name) in &event.blocks {
                    assert!(held.remove(&claim(*name)));
                }
            }
        }
    }
    held
}

#[test]
fn a_block_has_the_hashes_that_kvindex_computes() {
    let family = fleet().family(0);
    let mut parent = None;
    for block in family.chain(0) {
        let local = BlockHasher::new(SEED).local(&tokens(block.content), &mut []);
        assert_eq!(block.local, local);
        assert_eq!(block.chain, chain(parent, local));
        parent = Some(block.chain);
    }
}

#[test]
fn the_same_seed_makes_the_same_stream() {
    let fleet = fleet();
    let first: Vec<Event> = Stream::new(&fleet, Direction::Store).collect();
    let second: Vec<Event> = Stream::new(&fleet, Direction::Store).collect();
    assert_eq!(first, second);
    let other = Fleet::new(6, CLAIMS, Sharing::Mixed, Names::Common);
    let other = Stream::new(&other, Direction::Store);
    assert_ne!(first[0], other.take(1).next().expect("has events"));
}

#[test]
fn a_fleet_stores_as_many_claims_and_blocks_as_it_says() {
    let fleet = fleet();
    let held = played(Stream::new(&fleet, Direction::Store));
    assert_eq!(held.len() as u64, fleet.claims);
    assert!(fleet.claims >= CLAIMS);
    let distinct: HashSet<u64> = held.iter().map(|(_, name)| *name).collect();
    assert_eq!(distinct.len() as u64, fleet.distinct);
}

#[test]
fn a_fleet_removes_from_the_leaves_on_and_leaves_nothing() {
    let fleet = fleet();
    let stores = Stream::new(&fleet, Direction::Store);
    let removals = Stream::new(&fleet, Direction::Remove);
    assert_eq!(played(stores.chain(removals)), HashSet::new());
}

#[test]
fn one_store_in_twenty_is_delivered_twice() {
    let fleet = fleet();
    let stored: usize = Stream::new(&fleet, Direction::Store)
        .map(|event| event.blocks.len())
        .sum();
    let again = stored as f64 / fleet.claims as f64 - 1.0;
    assert!((0.04..0.06).contains(&again), "{again}");
}

#[test]
fn families_are_of_the_sizes_that_are_promised() {
    let fleet = Fleet::new(5, 4_000_000, Sharing::Mixed, Names::Common);
    let mut degrees: HashMap<usize, u64> = HashMap::new();
    for shape in (0..fleet.families).map(|number| fleet.shape(number)) {
        assert!((8..512).contains(&shape.shared));
        assert!(shape.tails.iter().all(|tail| (4..=64).contains(tail)));
        *degrees.entry(shape.tails.len()).or_default() += 1;
    }
    let share = |degree| degrees[&degree] as f64 / fleet.families as f64;
    assert!((0.46..0.54).contains(&share(1)));
    assert!((0.31..0.39).contains(&share(8)));
    assert!((0.12..0.18).contains(&share(64)));
}

#[test]
fn the_members_of_a_family_are_different_workers() {
    let fleet = fleet();
    for family in (0..fleet.families).map(|number| fleet.family(number)) {
        let members = family.members.iter().map(|member| member.worker);
        let workers: HashSet<u32> = members.collect();
        assert_eq!(workers.len(), family.members.len());
    }
}

#[test]
fn a_larger_fleet_begins_with_the_smaller_one() {
    let (small, large) = (
        fleet(),
        Fleet::new(5, 4 * CLAIMS, Sharing::Mixed, Names::Common),
    );
    for number in 0..small.families {
        assert_eq!(small.family(number).shared, large.family(number).shared);
    }
}

#[test]
fn names_are_common_or_each_workers_own() {
    let block = fleet().family(0).shared[0];
    assert_eq!(Names::Common.name(1, &block), Names::Common.name(2, &block));
    assert_ne!(Names::Own.name(1, &block), Names::Own.name(2, &block));
}

#[test]
fn holes_are_inner_blocks_and_about_as_many_as_asked_for() {
    let fleet = fleet();
    let stores = Stream::new(&fleet, Direction::Store);
    let held = played(stores.chain(punched(&fleet, 50)));
    let share = 1.0 - held.len() as f64 / fleet.claims as f64;
    assert!((0.015..0.025).contains(&share), "{share}");
    let family = fleet.family(0);
    let chain = family.chain(0);
    let worker = family.members[0].worker;
    for end in [chain[0], chain[chain.len() - 1]] {
        assert!(held.contains(&(worker, fleet.names.name(worker, &end))));
    }
}

#[test]
fn rounds_of_holes_are_what_an_engine_may_do() {
    let fleet = fleet();
    let mut holes = Holes::new(&fleet);
    let mut events: Vec<Event> = holes.stores().collect();
    for _ in 0..3 {
        events.extend(holes.round());
    }
    let came_back = events
        .iter()
        .rev()
        .any(|event| event.action != Action::Remove);
    assert!(came_back);
    assert!(played(events.into_iter()).len() < fleet.claims as usize);
}

#[test]
fn sessions_fork_and_keep_to_their_room() {
    let mut work = Agentic::new(3, 300_000, 500_000);
    let mut events: Vec<Event> = Vec::new();
    events.extend(work.by_ref());
    let removals = events.iter().filter(|event| event.action == Action::Remove);
    assert!(removals.count() > 100);
    let held = played(events.into_iter());
    assert_eq!(held.len() as u64, work.claims());
    assert!(work.claims() < 500_000);
    let known: HashSet<u64> = held.into_iter().map(|(_, name)| name).collect();
    for last in work.chains().filter_map(<[_]>::last) {
        assert!(known.contains(&Names::Common.name(0, last)));
    }
}

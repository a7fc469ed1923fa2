//! Small stories with the answers worked out by hand: the index and the model
//! of the other tests must both give them.

mod common;

use common::agree::Both;
use common::answer::Walked;
use common::said::{Said, Stored, batch, remove, store};
use common::{config, origin};
use kvindex::Sender::Worker;
use kvindex::event::{Name, Reason};
use kvindex::profile::{Kind, Profile};
use kvindex::{Config, Origin, Report, Status};

fn both() -> Both {
    Both::new(config(1))
}

#[track_caller]
fn apply(both: &mut Both, worker: &str, said: impl Into<Said>) -> Report {
    let report = both.apply(batch([said.into()]), &origin(worker));
    both.check(true);
    report
}

/// Depths by tier of rank 0 of a worker for a prompt without a namespace.
#[track_caller]
fn tiers(both: &mut Both, worker: &str, tokens: &[u32]) -> [u32; 4] {
    let rows = both.find(tokens, "", "", Walked::Nearest);
    let row = rows.get(&(worker.into(), 0)).copied();
    let [device, host, disk, external, ..] = row.unwrap_or_default();
    [device, host, disk, external]
}

#[track_caller]
fn depth(both: &mut Both, worker: &str, tokens: &[u32]) -> u32 {
    tiers(both, worker, tokens).iter().sum()
}

/// The same with a namespace.
#[track_caller]
fn depth_in(both: &mut Both, lora: &str, salt: &str, tokens: &[u32]) -> u32 {
    let rows = both.find(tokens, lora, salt, Walked::Nearest);
    let row = rows.get(&("w".into(), 0)).copied();
    row.unwrap_or_default().iter().sum()
}

/// A byte string of 32 bytes that ends with a number.
fn bytes(first: u8, low: u64) -> Name {
    let mut bytes = [first; 32];
    bytes[24..].copy_from_slice(&low.to_be_bytes());
    Name::from_bytes(&bytes)
}

fn named(name: Name, tokens: &[u32]) -> Stored {
    let names = vec![name];
    Stored {
        names,
        ..store([], tokens)
    }
}

#[track_caller]
fn assert_reason(report: &Report, reason: Reason, hashes: u64) {
    assert_eq!(report.reasons[reason as usize], hashes, "{}", reason.name());
}

#[test]
fn test_depths_follow_tiers_and_forks() {
    let mut both = both();
    let report = apply(&mut both, "a", store([1, 2, 3], &[1, 2, 3]));
    assert_eq!(report.stored, 3);
    apply(&mut both, "b", store([1, 2], &[1, 2]));
    apply(&mut both, "b", store([9], &[9]).below(2).on("CPU"));
    assert_eq!(tiers(&mut both, "a", &[1, 2, 3]), [3, 0, 0, 0]);
    assert_eq!(tiers(&mut both, "b", &[1, 2, 3]), [2, 0, 0, 0]);
    assert_eq!(tiers(&mut both, "a", &[1, 2, 9]), [2, 0, 0, 0]);
    assert_eq!(tiers(&mut both, "b", &[1, 2, 9]), [2, 1, 0, 0]);
    assert_eq!(tiers(&mut both, "a", &[2]), [0; 4]);
    assert_eq!(both.index.blocks().unwrap(), 4);
    assert!(both.remove(Worker("a")));
    assert_eq!(tiers(&mut both, "a", &[1, 2, 3]), [0; 4]);
    assert_eq!(tiers(&mut both, "b", &[1, 2, 3]), [2, 0, 0, 0]);
    assert_eq!(both.index.blocks().unwrap(), 3);
    assert!(!both.remove(Worker("a")), "it is gone");
}

#[test]
fn test_a_block_that_comes_back_joins_what_never_left() {
    let mut both = both();
    apply(&mut both, "w", store([1, 2, 3, 4], &[1, 2, 3, 4]));
    apply(&mut both, "w", remove([2]));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3, 4]), 1);
    apply(&mut both, "w", store([2], &[2]).below(1));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3, 4]), 4);
    let report = apply(&mut both, "w", remove([2, 3, 7, 4]));
    assert_eq!((report.removed, report.ignored), (3, 1));
    assert_reason(&report, Reason::UnknownBlock, 1);
    assert_eq!(depth(&mut both, "w", &[1, 2, 3, 4]), 1);
}

#[test]
fn test_equal_content_below_another_history_is_another_block() {
    let mut both = both();
    apply(&mut both, "w", store([1, 2, 3], &[5, 5, 5]));
    assert_eq!(depth(&mut both, "w", &[5, 5, 5, 5]), 3);
    apply(&mut both, "w", remove([3]));
    assert_eq!(depth(&mut both, "w", &[5, 5, 5, 5]), 2);
    apply(&mut both, "v", store([4, 6], &[6, 5]));
    assert_eq!(depth(&mut both, "v", &[5, 5]), 0);
    assert_eq!(depth(&mut both, "w", &[6, 5]), 0);
}

#[test]
fn test_copies_are_counted_where_the_profile_says_so() {
    let mut both = both();
    for medium in ["GPU", "DISK"] {
        apply(&mut both, "w", store([1], &[1]).on(medium));
        apply(&mut both, "w", store([1], &[1]).on(medium));
    }
    apply(&mut both, "w", remove([1]).on("DISK"));
    apply(&mut both, "w", remove([1]).on("GPU"));
    assert_eq!(tiers(&mut both, "w", &[1]), [1, 0, 0, 0]);
    let report = apply(&mut both, "w", remove([1]).on("DISK"));
    assert_eq!(
        report.ignored, 1,
        "on a disk a second store is no second copy"
    );
    apply(&mut both, "w", remove([1]).on("GPU"));
    assert_eq!(tiers(&mut both, "w", &[1]), [0; 4]);
}

#[test]
fn test_a_copy_belongs_to_its_name() {
    let mut both = both();
    apply(&mut both, "w", store([1], &[1]));
    apply(&mut both, "w", store([2], &[1]));
    apply(&mut both, "w", remove([2]));
    assert_eq!(depth(&mut both, "w", &[1]), 1);
    assert_eq!(apply(&mut both, "w", remove([2])).ignored, 1);
    apply(&mut both, "w", remove([1]));
    assert_eq!(depth(&mut both, "w", &[1]), 0);
}

#[test]
fn test_one_name_for_several_blocks_gives_up_one_copy_of_each() {
    let mut both = both();
    apply(&mut both, "w", store([1], &[1]).salt("s"));
    apply(&mut both, "w", store([1], &[1]).salt("t"));
    // Nobody can tell below which of them.
    let report = apply(&mut both, "w", store([2], &[2]).below(1));
    assert_reason(&report, Reason::Ambiguous, 1);
    apply(&mut both, "w", store([2], &[2]).below(1).salt("t"));
    assert_eq!(depth_in(&mut both, "", "s", &[1, 2]), 1);
    assert_eq!(depth_in(&mut both, "", "t", &[1, 2]), 2);
    let report = apply(&mut both, "w", remove([1]));
    assert_eq!(report.removed, 1);
    assert_eq!(depth_in(&mut both, "", "s", &[1, 2]), 0);
    assert_eq!(depth_in(&mut both, "", "t", &[1, 2]), 0);
}

#[test]
fn test_namespaces_are_inherited_except_from_sglang() {
    for (kind, inherited) in [(Kind::Vllm, true), (Kind::Sglang, false)] {
        let mut both = both();
        both.register(Worker("w"), Profile::new(kind));
        apply(&mut both, "w", store([1], &[1]).lora("x").salt("s"));
        apply(&mut both, "w", store([2], &[2]).below(1));
        let expected = if inherited { 2 } else { 1 };
        assert_eq!(depth_in(&mut both, "x", "s", &[1, 2]), expected);
        assert_eq!(depth_in(&mut both, "x", "", &[1, 2]), 0);
        apply(&mut both, "w", store([3], &[3]).below(1).salt("t"));
        assert_eq!(depth_in(&mut both, "x", "s", &[1, 3]), 1);
    }
}

#[test]
fn test_orphans_wait_and_are_attached_in_order() {
    let mut both = both();
    let report = apply(&mut both, "w", store([3], &[3]).below(2));
    assert_reason(&report, Reason::Orphan, 1);
    assert_eq!((report.stored, report.ignored), (0, 0));
    apply(&mut both, "w", store([2], &[2]).below(1));
    // A removal takes what waits first.
    assert_eq!(apply(&mut both, "w", remove([3])).removed, 1);
    let report = apply(&mut both, "v", store([1], &[1]));
    assert_eq!((report.stored, report.attached), (1, 1));
    assert_eq!(
        depth(&mut both, "w", &[1, 2, 3]),
        0,
        "it does not hold block 0"
    );
    apply(&mut both, "w", store([1], &[1]));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3]), 2);
}

#[test]
fn test_oldest_orphans_are_pushed_out() {
    let mut both = Both::new(Config {
        orphan_blocks: 2,
        ..config(1)
    });
    apply(&mut both, "w", store([2], &[2]).below(1));
    apply(&mut both, "w", store([3], &[3]).below(1));
    let report = apply(&mut both, "w", store([4], &[4]).below(1));
    assert_reason(&report, Reason::OrphanDropped, 1);
    let report = apply(&mut both, "w", store([5, 6, 7], &[5, 6, 7]).below(1));
    assert_reason(&report, Reason::OrphanDropped, 3);
    assert_eq!(apply(&mut both, "w", store([1], &[1])).attached, 2);
    assert_eq!(depth(&mut both, "w", &[1, 2]), 1);
    assert_eq!(depth(&mut both, "w", &[1, 3]), 2);
}

#[test]
fn test_a_block_without_tokens_moves_by_its_name() {
    let mut both = both();
    apply(&mut both, "w", store([1, 2], &[1, 2]));
    apply(&mut both, "w", store([1, 2], &[]).on("CPU").sized(0));
    apply(&mut both, "w", remove([1, 2]).on("GPU"));
    assert_eq!(tiers(&mut both, "w", &[1, 2]), [0, 2, 0, 0]);
    apply(&mut both, "w", remove([1, 2]).on("CPU"));
    let report = apply(&mut both, "w", store([1], &[]).on("CPU"));
    assert_reason(&report, Reason::Unresolved, 1);
}

#[test]
fn test_a_unit_counts_as_a_whole() {
    let mut both = both();
    apply(&mut both, "w", store([4], &[1, 2, 3, 4]).on("CPU").sized(4));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3]), 0);
    assert_eq!(tiers(&mut both, "w", &[1, 2, 3, 4]), [0, 4, 0, 0]);
    apply(&mut both, "w", store([1], &[1]));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3]), 1);
    assert_eq!(tiers(&mut both, "w", &[1, 2, 3, 4, 5]), [1, 3, 0, 0]);
    apply(&mut both, "w", remove([4]).on("CPU"));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3, 4]), 1);
}

#[test]
fn test_chunks_count_where_they_are_held_whole() {
    let mut both = both();
    let chunk_tokens = [0, 2, 0, 0];
    both.register(
        Worker("w"),
        Profile {
            chunk_tokens,
            ..Profile::new(Kind::Vllm)
        },
    );
    apply(&mut both, "w", store([1, 2, 3, 4], &[1, 2, 3, 4]));
    apply(&mut both, "w", store([2], &[]).on("CPU"));
    apply(&mut both, "w", remove([1, 2, 3, 4]).on("GPU"));
    assert_eq!(tiers(&mut both, "w", &[1, 2, 3, 4]), [0, 2, 0, 0]);
    assert_eq!(depth(&mut both, "w", &[1]), 0);
    apply(&mut both, "w", store([3], &[3]).below(2).on("CPU"));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3, 4]), 2);
    apply(&mut both, "w", store([4], &[4]).below(3).on("CPU"));
    assert_eq!(depth(&mut both, "w", &[1, 2, 3, 4]), 4);
}

#[test]
fn test_a_cascade_never_returns_to_a_nearer_tier() {
    let mut both = both();
    apply(&mut both, "w", store([1], &[1]));
    apply(&mut both, "w", store([2], &[2]).below(1).on("CPU"));
    apply(&mut both, "w", store([3], &[3]).below(2));
    assert_eq!(tiers(&mut both, "w", &[1, 2, 3]), [2, 1, 0, 0]);
    let rows = both.find(&[1, 2, 3], "", "", Walked::Cascade);
    assert_eq!(rows[&("w".into(), 0)], [1, 1, 0, 0, 0, 0]);
}

#[test]
fn test_integers_match_the_ends_of_byte_strings() {
    let mut both = both();
    apply(&mut both, "w", named(bytes(1, 7), &[1]));
    apply(&mut both, "w", named(bytes(2, 7), &[2]));
    apply(&mut both, "w", store([u64::MAX], &[3]).below(7));
    assert_eq!(
        depth(&mut both, "w", &[2, 3]),
        2,
        "the newest of both meanings"
    );
    let mut removal = remove([]);
    removal.names = vec![bytes(1, 7)];
    apply(&mut both, "w", removal);
    assert_eq!(depth(&mut both, "w", &[1]), 0);
    assert_eq!(depth(&mut both, "w", &[2, 3]), 2);
    assert_eq!(apply(&mut both, "w", remove([7])).removed, 1);
    assert_eq!(depth(&mut both, "w", &[2, 3]), 0);
}

#[test]
fn test_an_integer_for_a_block_with_a_byte_string_is_a_name_of_its_own() {
    let mut both = both();
    apply(&mut both, "w", named(bytes(1, 7), &[1]));
    apply(&mut both, "w", store([7], &[1]).on("CPU"));
    let mut moved = named(bytes(2, 7), &[]).on("DISK");
    moved.size = None;
    assert_eq!(apply(&mut both, "w", moved).stored, 1);
    assert_eq!(tiers(&mut both, "w", &[1]), [1, 0, 0, 0]);
}

#[test]
fn test_numbers_decide_what_is_new() {
    let mut both = both();
    let send = |both: &mut Both, seq: u64, source: &str| {
        let origin = Origin {
            source,
            seq: Some(seq),
            ..origin("w")
        };
        both.apply(batch([store([seq], &[seq as u32]).into()]), &origin)
            .status
    };
    assert_eq!(send(&mut both, 5, ""), Status::Ok);
    assert_eq!(send(&mut both, 5, ""), Status::Duplicate);
    assert_eq!(send(&mut both, 4, ""), Status::Duplicate);
    assert_eq!(send(&mut both, 4, "other"), Status::Ok);
    assert_eq!(send(&mut both, 8, ""), Status::Gap(6, 7));
    assert!(both.reset(Worker("w"), 0));
    assert_eq!(send(&mut both, 1, ""), Status::Ok);
}

#[test]
fn test_events_of_an_ended_epoch_change_nothing() {
    let mut both = both();
    let old = both.register(Worker("w"), Profile::new(Kind::Vllm));
    assert_eq!(both.register(Worker("w"), Profile::new(Kind::Vllm)), old);
    assert!(both.remove(Worker("w")));
    let late = Origin {
        epoch: Some(old),
        ..origin("w")
    };
    let report = both.apply(batch([store([1], &[1]).into()]), &late);
    assert_reason(&report, Reason::Epoch, 1);
    assert!(both.register(Worker("w"), Profile::new(Kind::Vllm)) > old);
    let report = both.apply(batch([store([1], &[1]).into()]), &late);
    assert_reason(&report, Reason::Epoch, 1);
    both.check(true);
}

#[test]
fn test_two_clears_of_one_vllm_batch_are_of_two_pools() {
    let mut both = both();
    both.register(Worker("w"), Profile::new(Kind::Vllm));
    for medium in ["GPU", "CPU", "DISK", "EXTERNAL"] {
        apply(&mut both, "w", store([1], &[1]).on(medium));
    }
    apply(&mut both, "w", Said::Cleared);
    assert_eq!(tiers(&mut both, "w", &[1]), [0, 0, 1, 0]);
    let report = both.apply(batch([Said::Cleared, Said::Cleared]), &origin("w"));
    assert_eq!(report.cleared, 2);
    assert_eq!(tiers(&mut both, "w", &[1]), [0, 0, 0, 1]);
}

#[test]
fn test_blocks_in_units_of_several_forks_are_counted_once() {
    let mut both = both();
    let trunk: Vec<u32> = (1..=20).collect();
    apply(&mut both, "other", store(1..=20, &trunk));
    let long: Vec<u32> = (1..=10).chain([100]).collect();
    apply(&mut both, "w", store([200], &long).sized(11));
    apply(&mut both, "w", store([201], &[4, 101]).sized(2).below(3));
    apply(&mut both, "w", store([1], &[1]));
    for block in 2..=20 {
        apply(
            &mut both,
            "w",
            store([block], &[block as u32]).below(block - 1),
        );
    }
    both.check_totals(0);
    assert_eq!(apply(&mut both, "w", remove(1..=20)).removed, 20);
    both.check_totals(0);
}

#[test]
fn test_a_name_that_ends_several_units_ends_each_once() {
    let mut both = both();
    apply(&mut both, "w", store(1..=4, &[1, 2, 3, 4]));
    apply(
        &mut both,
        "w",
        named(bytes(1, 7), &[3, 4]).sized(2).below(2),
    );
    apply(
        &mut both,
        "w",
        named(bytes(1, 7), &[2, 3, 4]).sized(3).below(1),
    );
    apply(
        &mut both,
        "w",
        named(bytes(2, 7), &[3, 4]).sized(2).below(2),
    );
    assert_eq!(apply(&mut both, "w", remove([7])).removed, 1);
    apply(&mut both, "w", remove(1..=4));
    assert_eq!(both.index.blocks().unwrap(), 0);
}

#[test]
fn test_a_name_that_matches_two_of_a_block_takes_one_copy_of_each() {
    let mut both = both();
    for first in [1, 2, 1, 2] {
        apply(&mut both, "w", named(bytes(first, 7), &[1]));
    }
    apply(&mut both, "w", remove([7]));
    assert_eq!(depth(&mut both, "w", &[1]), 1);
    apply(&mut both, "w", remove([7]));
    assert_eq!(depth(&mut both, "w", &[1]), 0);
}

#[test]
fn test_a_block_size_beyond_all_bounds_is_a_fault_of_its_event() {
    let mut both = both();
    let report = apply(&mut both, "w", store(1..=4, &[1, 2, 3, 4]).sized(u64::MAX));
    assert_reason(&report, Reason::Tokens, 4);
}

#[test]
fn test_what_waits_finds_its_parent_by_its_first_salt() {
    let mut both = both();
    let send = |both: &mut Both, stored: Stored| {
        both.apply(batch([stored.into()]), &origin("w"));
    };
    send(&mut both, store([10], &[10]).below(1).block_salt(0, "s"));
    send(&mut both, store([10], &[10]).below(1).block_salt(0, "t"));
    send(&mut both, store([11], &[11]).below(10).block_salt(0, "s"));
    assert_eq!(apply(&mut both, "w", store([1], &[1])).attached, 3);
}

#[test]
fn test_a_further_name_on_a_disk_is_stored_once() {
    let mut both = both();
    for name in [1, 2, 2] {
        apply(&mut both, "w", store([name], &[1]).on("DISK"));
    }
    apply(&mut both, "w", remove([1, 2]).on("DISK"));
    assert_eq!(depth(&mut both, "w", &[1]), 0);
}

#[test]
fn test_units_are_counted_as_blocks_are() {
    for (medium, left) in [("CPU", 2), ("DISK", 0)] {
        let mut both = both();
        for _ in 0..2 {
            apply(&mut both, "w", store([2], &[1, 2]).on(medium).sized(2));
        }
        apply(&mut both, "w", remove([2]).on(medium));
        assert_eq!(depth(&mut both, "w", &[1, 2]), left, "{medium}");
    }
}

#[test]
fn test_a_unit_stays_while_one_of_its_names_has_a_copy() {
    let mut both = both();
    for name in [2, 3] {
        apply(&mut both, "w", store([name], &[1, 2]).on("CPU").sized(2));
    }
    apply(&mut both, "w", remove([2]).on("CPU"));
    assert_eq!(depth(&mut both, "w", &[1, 2]), 2);
    apply(&mut both, "w", remove([3]).on("CPU"));
    assert_eq!(both.index.blocks().unwrap(), 0);
}

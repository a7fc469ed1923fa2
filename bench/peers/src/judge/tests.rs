use super::{Judge, Verdict};
use crate::workload::{Block, Event, Names, Random, grow};

fn chain(seed: u64, length: usize) -> Vec<Block> {
    let mut chain = Vec::new();
    grow(&mut chain, length, &mut Random::new(seed));
    chain
}

fn stored(chain: &[Block], worker: u32) -> Event {
    Event::store(worker, Names::Common, chain, 0, chain.len())
}

fn removed(blocks: &[Block], worker: u32) -> Event {
    Event::remove(worker, Names::Common, blocks.iter())
}

#[test]
fn a_worker_is_as_deep_as_it_has_stored() {
    let chain = chain(1, 8);
    let mut judge = Judge::default();
    judge.apply(&stored(&chain[..5], 3));
    judge.apply(&stored(&chain, 7));
    assert_eq!(judge.depths(&chain), [(3, 5), (7, 8)]);
    assert_eq!(judge.depths(&chain[..4]), [(3, 4), (7, 4)]);
}

#[test]
fn a_hole_ends_the_depth_and_coming_back_restores_it() {
    let chain = chain(2, 8);
    let mut judge = Judge::default();
    judge.apply(&stored(&chain, 1));
    judge.apply(&removed(&chain[3..4], 1));
    assert_eq!(judge.depths(&chain), [(1, 3)]);
    judge.apply(&Event::store(1, Names::Common, &chain, 3, 4));
    assert_eq!(judge.depths(&chain), [(1, 8)]);
}

#[test]
fn what_is_stored_twice_is_gone_after_one_removal() {
    let chain = chain(3, 2);
    let mut judge = Judge::default();
    judge.apply(&stored(&chain, 1));
    judge.apply(&stored(&chain, 1));
    judge.apply(&removed(&chain, 1));
    assert_eq!(judge.depths(&chain), []);
}

#[test]
fn a_worker_without_the_first_block_has_no_depth() {
    let chain = chain(4, 4);
    let mut judge = Judge::default();
    judge.apply(&stored(&chain, 1));
    judge.apply(&removed(&chain[..1], 1));
    assert_eq!(judge.depths(&chain), []);
    assert_eq!(judge.depths(&[]), []);
}

#[test]
fn equal_answers_in_another_order_are_right() {
    let mut verdict = Verdict::default();
    verdict.add(&[(1, 4), (2, 3)], vec![(2, 3), (5, 0), (1, 4)]);
    let right = Verdict {
        of: 1,
        ..Verdict::default()
    };
    assert_eq!(verdict, right);
}

#[test]
fn a_wrong_answer_is_counted_once_and_by_its_worst_row() {
    let mut verdict = Verdict::default();
    verdict.add(&[(1, 4), (2, 9), (3, 2)], vec![(1, 6), (3, 2), (8, 1)]);
    let wrong = Verdict {
        of: 1,
        wrong: 1,
        too_many: 2,
        too_few: 9,
    };
    assert_eq!(verdict, wrong);
}

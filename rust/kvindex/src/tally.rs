//! From ranges of blocks on some tiers to a depth and to blocks by tier.

use std::ops::Range;

/// Sorted disjoint ranges of blocks, for each tier.
pub(crate) type Tiers = [Vec<Range<u32>>; 4];

/// Sorts ranges and joins those that meet or touch.
pub(crate) fn join(ranges: &mut Vec<Range<u32>>) {
    if ranges.len() < 2 {
        return;
    }
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let meets = next.start <= range.end;
        if meets {
            range.end = range.end.max(next.end);
        }
        meets
    });
}

/// Keeps the aligned chunks that joined ranges cover whole.
pub(crate) fn whole_chunks(ranges: &mut Vec<Range<u32>>, chunk: u32) {
    for range in ranges.iter_mut() {
        *range = range.start.next_multiple_of(chunk)..range.end / chunk * chunk;
    }
    ranges.retain(|range| range.start < range.end);
}

/// Counts the blocks from 0 on that any tier has, each for the first one. Ranges
/// are sorted and disjoint.
pub(crate) fn nearest<const N: usize>(tiers: [&[Range<u32>]; N]) -> [u32; N] {
    let mut counts = [0; N];
    let mut cursors = [0; N];
    let mut at = 0;
    loop {
        // Up to where the tier that is found stays the nearest.
        let mut limit = u32::MAX;
        let mut found = None;
        for (tier, ranges) in tiers.iter().enumerate() {
            let cursor = &mut cursors[tier];
            while ranges.get(*cursor).is_some_and(|range| range.end <= at) {
                *cursor += 1;
            }
            let Some(range) = ranges.get(*cursor) else {
                continue;
            };
            if range.start <= at {
                found = Some((tier, range.end.min(limit)));
                break;
            }
            limit = limit.min(range.start);
        }
        let Some((tier, end)) = found else {
            return counts;
        };
        counts[tier] += end - at;
        at = end;
    }
}

/// Counts the blocks of a walk that goes from each tier to the next and never
/// back.
pub(crate) fn cascade(tiers: &Tiers) -> [u32; 4] {
    let mut at = 0;
    tiers.each_ref().map(|ranges| {
        let range = ranges.iter().find(|range| range.contains(&at));
        let count = range.map_or(0, |range| range.end - at);
        at += count;
        count
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tiers() -> impl Strategy<Value = Vec<Vec<(u32, u32)>>> {
        let range = (0_u32..24, 1_u32..8).prop_map(|(start, len)| (start, start + len));
        prop::collection::vec(prop::collection::vec(range, 0..4), 4)
    }

    fn joined(raw: &[Vec<(u32, u32)>]) -> Tiers {
        std::array::from_fn(|tier| {
            let mut ranges = raw[tier].iter().map(|&(start, end)| start..end).collect();
            join(&mut ranges);
            ranges
        })
    }

    proptest! {
        #[test]
        fn test_nearest_agrees_with_a_walk_block_by_block(raw in tiers()) {
            let mut counts = [0; 4];
            for block in 0.. {
                let has = |tier: &Vec<(u32, u32)>| {
                    tier.iter().any(|&(start, end)| start <= block && block < end)
                };
                let Some(tier) = raw.iter().position(has) else { break };
                counts[tier] += 1;
            }
            prop_assert_eq!(nearest(joined(&raw).each_ref().map(Vec::as_slice)), counts);
        }

        #[test]
        fn test_cascade_agrees_with_a_walk_block_by_block(raw in tiers()) {
            let (mut counts, mut block) = ([0; 4], 0);
            for (tier, ranges) in raw.iter().enumerate() {
                while ranges.iter().any(|&(start, end)| start <= block && block < end) {
                    counts[tier] += 1;
                    block += 1;
                }
            }
            prop_assert_eq!(cascade(&joined(&raw)), counts);
        }

        #[test]
        fn test_only_whole_aligned_chunks_are_kept(raw in tiers(), chunk in 1_u32..6) {
            let mut ranges = joined(&raw)[0].clone();
            whole_chunks(&mut ranges, chunk);
            for block in 0..40 {
                let first = block / chunk * chunk;
                let whole = (first..first + chunk).all(|block| {
                    raw[0].iter().any(|&(start, end)| start <= block && block < end)
                });
                let kept = ranges.iter().any(|range| range.contains(&block));
                prop_assert_eq!(kept, whole);
            }
        }
    }
}

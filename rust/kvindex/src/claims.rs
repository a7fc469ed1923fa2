//! Who holds which part of a run: sorted words, one a range.
//!
//! ```text
//! plain word   member (32 bits)                  | start (16) | end (16)
//! unit word    member (32 bits, the top one set) | length (16) | end (16)
//! ```
//!
//! A member is one tier of one holder, from one clear to the next. A plain word
//! says that the member holds the blocks from start up to, not including, end;
//! the plain words of one member are disjoint, apart and ascending. A unit word
//! says that it holds `length` blocks up to `end` as one piece, of which some
//! may lie in earlier runs. Unit words of one member may overlap.

/// Set in the member of a unit word.
pub(crate) const UNIT: u32 = 1 << 31;

/// Blocks from the first up to, not including, the second.
pub(crate) type Range = std::ops::Range<u16>;

/// The fields of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Whose it is; with [`UNIT`] set for unit words.
    pub member: u32,
    /// The first block, or a unit's length.
    pub start: u16,
    /// Behind the last block.
    pub end: u16,
}

impl Claim {
    pub(crate) const fn plain(member: u32, range: &Range) -> Self {
        Self {
            member,
            start: range.start,
            end: range.end,
        }
    }

    pub(crate) const fn unpack(word: u64) -> Self {
        Self {
            member: (word >> 32) as u32,
            start: (word >> 16) as u16,
            end: word as u16,
        }
    }

    pub(crate) const fn pack(self) -> u64 {
        ((self.member as u64) << 32) | ((self.start as u64) << 16) | self.end as u64
    }

    pub(crate) const fn is_unit(self) -> bool {
        self.member & UNIT != 0
    }

    /// The dense number of the member.
    pub(crate) const fn number(self) -> u32 {
        self.member & !UNIT
    }

    /// The blocks of this run that the word is about.
    pub(crate) const fn range(self) -> Range {
        if self.is_unit() {
            self.end.saturating_sub(self.start)..self.end
        } else {
            self.start..self.end
        }
    }
}

/// Where the plain words of a member that meet or touch a range lie in a sorted
/// list of `len` words.
pub(crate) fn touching(
    len: usize,
    word: impl Fn(usize) -> u64,
    member: u32,
    range: &Range,
) -> std::ops::Range<usize> {
    // The first word of the member that ends at or behind the range's start.
    let first = partition(len, |i| {
        let claim = Claim::unpack(word(i));
        (claim.member, claim.end) < (member, range.start)
    });
    let mut last = first;
    while last < len {
        let claim = Claim::unpack(word(last));
        if claim.member != member || claim.start > range.end {
            break;
        }
        last += 1;
    }
    first..last
}

/// The number of leading indices for which `before` holds; it never holds again
/// after it failed once.
pub(crate) fn partition(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The parts of `range` that none of the given ranges covers, in order.
/// `ranges` is sorted in place.
pub(crate) fn gaps(range: &Range, ranges: &mut [Range]) -> Vec<Range> {
    ranges.sort_unstable_by_key(|covered| covered.start);
    let mut found = Vec::new();
    let mut at = range.start;
    for covered in ranges.iter() {
        if covered.start >= range.end {
            break;
        }
        if covered.start > at {
            found.push(at..covered.start);
        }
        at = at.max(covered.end);
    }
    if at < range.end {
        found.push(at..range.end);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_gaps_are_what_no_range_covers() {
        let all = |ranges: &[Range]| -> Vec<(u16, u16)> {
            let found = gaps(&(2..10), &mut ranges.to_vec());
            found.into_iter().map(|gap| (gap.start, gap.end)).collect()
        };
        assert_eq!(all(&[]), [(2, 10)]);
        assert_eq!(all(&[1..10, 4..9]), []);
        assert_eq!(all(&[5..6, 0..3, 8..12]), [(3, 5), (6, 8)]);
        assert_eq!(all(&[3..9, 4..5]), [(2, 3), (9, 10)]);
    }

    #[test]
    fn test_touching_finds_neighbours_of_the_same_member_only() {
        let words: Vec<u64> = [(1, 0, 4), (2, 0, 2), (2, 4, 6), (2, 8, 9), (3, 0, 4)]
            .map(|(member, start, end)| Claim { member, start, end }.pack())
            .to_vec();
        let find = |member, range: Range| touching(words.len(), |i| words[i], member, &range);
        assert_eq!(find(2, 2..4), 1..3);
        assert_eq!(find(2, 3..4), 2..3);
        assert_eq!(find(2, 6..8), 2..4);
        assert_eq!(find(2, 10..11), 4..4);
        assert_eq!(find(0, 0..9), 0..0);
    }
}

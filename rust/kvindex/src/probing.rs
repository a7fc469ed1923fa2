//! Tables whose entries lie in the first free slot from their home on: what
//! those of readers and of the writer have in common.

/// The slot behind one, around the end of a table.
pub(crate) fn after(at: usize, slots: usize) -> usize {
    if at + 1 == slots { 0 } else { at + 1 }
}

/// Moves entries behind a slot that gets empty back, as far as their home lets,
/// so that no marks of former entries are needed; returns the slot that is to be
/// emptied in the end. `home` is that of the entry in a slot, `None` for an
/// empty one; `copy` takes from and to.
pub(crate) fn close(
    slots: usize,
    mut gap: usize,
    home: impl Fn(usize) -> Option<usize>,
    copy: impl Fn(usize, usize),
) -> usize {
    // Distances are counted around the end of the table.
    let distance = |from: usize, to: usize| {
        if to >= from {
            to - from
        } else {
            to + slots - from
        }
    };
    let mut at = after(gap, slots);
    while let Some(home) = home(at) {
        if distance(home, at) >= distance(gap, at) {
            copy(at, gap);
            gap = at;
        }
        at = after(at, slots);
    }
    gap
}

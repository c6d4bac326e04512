//! Where to cut sorted runs so that exactly so many elements lie before the cuts.
//!
//! Problem. A part of the result of a merge is made of a part of each run.
//!
//! Idea. Of each run it is known between which positions its cut lies. Each round looks at some elements of
//! these ranges at equal distances, all runs at once. Sorted, they tell of each of them how many elements
//! come before it, to within a distance for each run; if that is less than `rank` whatever lies between,
//! it comes before the cut, if it is not less, behind. What remains uncertain is about three distances a run, so
//! with sixteen looks a run a round leaves a fifth.
//!
//! Invariants. Equal elements are told apart by their run, then by their position, so the cuts are unique.
//!
//! Reference: Varman, Scheufler, Iyer, Ricard, 1991; Frederickson, Johnson, 1982, for the weights.

use crate::order::Order;

/// Elements that a round looks at, for each run.
const LOOKS: usize = 16;

/// Between which positions the cut of a run lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// Elements before this one come before the cut.
    pub(super) least: usize,
    /// Elements from this one on come behind.
    pub(super) most: usize,
}

/// At which positions of a range a round looks: the first one, how many, and the distance.
pub(super) fn looks(range: Range, distance: usize) -> (usize, usize) {
    let first = range.least + (distance - 1) / 2;
    (first, range.most.saturating_sub(first).div_ceil(distance))
}

/// Narrows the ranges, knowing the elements at `looks` of each of them, run by run in `seen`. With a
/// distance of 1 nothing remains uncertain.
pub(super) fn narrow<O: Order>(
    ranges: &mut [Range],
    rank: usize,
    distance: usize,
    seen: &[O::Item],
) {
    let mut all: Vec<(O::Item, usize, usize)> = Vec::with_capacity(seen.len());
    let mut items = seen.iter();
    for (run, range) in ranges.iter().enumerate() {
        let (first, count) = looks(*range, distance);
        all.extend(
            items
                .by_ref()
                .take(count)
                .enumerate()
                .map(|(n, item)| (*item, run, first + n * distance)),
        );
    }
    // Stable: runs are in order, and positions in a run.
    all.sort_by(|a, b| O::before(b.0, a.0).cmp(&O::before(a.0, b.0)));
    // Of each run: elements that are known to come before the one looked at, and those that may.
    let mut before: Vec<Range> = ranges
        .iter()
        .map(|&range| match looks(range, distance) {
            (_, 0) => range,
            (first, _) => Range { least: range.least, most: first },
        })
        .collect();
    let ends: Vec<usize> = ranges.iter().map(|range| range.most).collect();
    let mut sums = before.iter().fold((0, 0), |sum, one| (sum.0 + one.least, sum.1 + one.most));
    for (_, run, at) in all {
        let one = &mut before[run];
        // Of its own run it is known.
        if sums.0 - one.least + at >= rank {
            ranges[run].most = ranges[run].most.min(at);
        } else if sums.1 < rank {
            ranges[run].least = at + 1;
        }
        let next = match at + distance < ends[run] {
            true => at + distance,
            false => ends[run],
        };
        sums = (sums.0 - one.least + at + 1, sums.1 - one.most + next);
        *one = Range { least: at + 1, most: next };
    }
}

/// The positions in each run before which the first `rank` elements of all runs lie.
pub fn select<O: Order>(runs: &[&[O::Item]], rank: usize) -> Vec<usize> {
    let mut ranges: Vec<Range> =
        runs.iter().map(|run| Range { least: 0, most: run.len().min(rank) }).collect();
    let mut seen = Vec::new();
    loop {
        let left: usize = ranges.iter().map(|range| range.most - range.least).sum();
        if left == 0 {
            return ranges.into_iter().map(|range| range.least).collect();
        }
        let distance = left.div_ceil(LOOKS * runs.len());
        seen.clear();
        for (run, range) in runs.iter().zip(&ranges) {
            let (first, count) = looks(*range, distance);
            seen.extend((0..count).map(|n| run[first + n * distance]));
        }
        narrow::<O>(&mut ranges, rank, distance, &seen);
    }
}

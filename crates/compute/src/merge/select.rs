//! Cuts of sorted runs such that exactly a given number of elements lie before the cuts.
//!
//! Problem: a part of the result of a merge consists of a part of each run.
//!
//! Approach: for each run, a range of positions contains its cut. Each round samples elements of
//! these ranges at equal distances, in all runs together. After sorting, the number of elements
//! before each sample is known to within one distance per run. If it is less than `rank` whatever
//! the elements in between are, the sample is before the cut; if it is at least `rank`, after it.
//! The uncertain part is about three distances per run, so with sixteen samples per run a round
//! leaves a fifth.
//!
//! Invariants: equal elements are ordered by their run, then by their position, so the cuts are
//! unique.
//!
//! Reference: Varman, Scheufler, Iyer, Ricard, 1991; Frederickson, Johnson, 1982, for the weights.

use crate::order::Order;

/// Number of samples of a round, for each run.
const LOOKS: usize = 16;

/// Range of positions that contains the cut of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// Elements before this one are before the cut.
    pub(super) least: usize,
    /// Elements from this one on are after the cut.
    pub(super) most: usize,
}

/// The samples of a range in a round: the position of the first one, and their number.
pub(super) fn looks(range: Range, distance: usize) -> (usize, usize) {
    let first = range.least + (distance - 1) / 2;
    (first, range.most.saturating_sub(first).div_ceil(distance))
}

/// Narrows the ranges, given the elements at the samples of each range.
///
/// `seen` has the samples, run by run. With a distance of 1 the result is exact.
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
    // The sort is stable: it preserves the order of runs, and of positions in a run.
    all.sort_by(|a, b| O::before(b.0, a.0).cmp(&O::before(a.0, b.0)));
    // For each run: number of elements that are certainly, and possibly, before the current sample.
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
        // The count in the sample's own run is exact.
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

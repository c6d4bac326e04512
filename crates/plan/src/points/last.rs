//! Writes of points that are listed several times.
//!
//! Problem: the requests of a round go to the disk in any order, several concurrently; if an
//! element has several values, the last one must remain. Approach: the others are not written: the
//! parts covered by a later run of the list are removed from the earlier ones, so that requests are
//! disjoint. Copies into a mapping do not need this: they run one after another.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::plan::Direction;

/// Points that are adjacent on both sides, or one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Address of the first point, relative to its spot.
    pub at: i64,
    /// Address of the first point in the caller's array.
    pub user: i64,
    /// Number of points.
    pub points: i64,
}

/// The stretches for requests, in any order; those of a write are disjoint.
///
/// `step` is the distance from one point to the next.
pub(super) fn requested(all: Vec<Stretch>, step: i64, direction: Direction) -> Vec<Stretch> {
    let apart = |pair: &[Stretch]| pair[0].at + pair[0].points * step <= pair[1].at;
    match direction == Direction::Read || all.windows(2).all(apart) {
        true => all,
        false => last(&all, step),
    }
}

/// The remainders of stretches if only the last one counts for each point.
///
/// They are in the order of the file.
fn last(all: &[Stretch], step: i64) -> Vec<Stretch> {
    let mut covered: BTreeMap<i64, i64> = BTreeMap::new();
    let mut left = Vec::new();
    for stretch in all.iter().rev() {
        let (start, end) = (stretch.at, stretch.at + stretch.points * step);
        let before = covered.range(..start).next_back().filter(|(_, high)| **high >= start);
        let (mut low, mut next) = (before.map_or(start, |(low, _)| *low), start);
        let mut put = |from: i64, to: i64| {
            if from < to {
                let (at, user) = (from, stretch.user + (from - start));
                left.push(Stretch { at, user, points: (to - from) / step });
            }
        };
        while let Some((first, high)) = covered.range(low..=end).next().map(|(a, b)| (*a, *b)) {
            put(next, first);
            next = next.max(high);
            covered.remove(&first);
            low = low.min(first);
        }
        put(next, end);
        covered.insert(low, next.max(end));
    }
    left.sort_unstable_by_key(|stretch: &Stretch| stretch.at);
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// Compares the result with writing one element after another.
        #[test]
        fn each_point_is_written_once_and_by_the_last(
            runs in prop::collection::vec((0_i64..40, 1_i64..12), 0..30),
            step in 1_i64..9,
        ) {
            let mut all = Vec::new();
            let mut user = 0;
            for (at, points) in runs {
                all.push(Stretch { at: at * step, user, points });
                user += points * step;
            }
            let mut expected = vec![None; 60];
            for s in &all {
                (0..s.points).for_each(|k| expected[(s.at / step + k) as usize] = Some(s.user + k * step));
            }
            let mut written = vec![None; 60];
            for s in last(&all, step) {
                for k in 0..s.points {
                    let old = written[(s.at / step + k) as usize].replace(s.user + k * step);
                    prop_assert_eq!(old, None);
                }
            }
            prop_assert_eq!(written, expected);
        }
    }
}

//! What requests write of points that are listed several times.
//!
//! Problem. The requests of a round go to the disk in any order, several at once; of several values for one element
//! the last one has to win. Idea. The others are not written: what a later run of the list covers is cut off
//! the earlier ones, so that no two requests meet. Copies into a mapping need none of this: they go one after another.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::plan::Direction;

/// Points that lie one behind the other on both sides, or one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Address of the first one, as its spot counts them.
    pub at: i64,
    /// Its address in the caller's array.
    pub user: i64,
    /// How many.
    pub points: i64,
}

/// Stretches as requests have them, in any order: those of a write are apart. From one point to the next it is `step`.
pub(super) fn requested(all: Vec<Stretch>, step: i64, direction: Direction) -> Vec<Stretch> {
    let apart = |pair: &[Stretch]| pair[0].at + pair[0].points * step <= pair[1].at;
    match direction == Direction::Read || all.windows(2).all(apart) {
        true => all,
        false => last(&all, step),
    }
}

/// What is left of stretches if of each point only the last one counts, in the order of the file.
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
        /// Against writing one element after another.
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

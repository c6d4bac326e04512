//! Division of elements among owners: the owner and the round of each element of a rank.
//!
//! Approach: the elements of an array, counted in C order, are cut into *bins* of equal width; each
//! bin has an owner and a round. The number of elements in each bin, added up over all ranks,
//! determines the cuts that give owners about equal numbers of elements. One pass of counting and
//! one of moving then arranges a rank's elements in the order in which it sends them. Elements for
//! one destination stay in order.
//!
//! Source: schedule construction of No and Choudhary, *Techniques to provide run-time support for solving irregular
//! problems*, section 3.1.1 (reordered indirection array, communication coalescing).

use alloc::vec;
use alloc::vec::Vec;

use super::grid::Divide;
use crate::error::PlanError;

fn outside(position: usize, value: i64, len: i64) -> PlanError {
    PlanError::BadIndex { axis: 0, position: position as u64, value, len }
}

/// The bin of an element; None outside all bins.
fn bin(divide: Divide, bins: usize, element: i64) -> Option<usize> {
    if element < 0 {
        return None;
    }
    usize::try_from(divide.of(element).0).ok().filter(|bin| *bin < bins)
}

/// Maximum number of bins of an owner.
const BINS: i64 = 1 << 12;
/// Maximum number of bins in total; with many owners, each has fewer.
const ENOUGH: i64 = 1 << 18;
/// Minimum number of bins of an owner, so that owners differ by about a thirtieth.
const LEAST: i64 = 32;

/// Number of elements of a bin, and number of bins.
///
/// Bins consist of whole `unit`s (chunks, shards) of elements. The number of ranks has no effect,
/// because they add up their counts.
pub fn bins(elements: i64, unit: i64, owners: u32) -> (i64, i64) {
    let ceil = |a: i64, b: i64| (a.max(1) - 1) / b.max(1) + 1;
    let owners = i64::from(owners.max(1));
    let most = (BINS * owners).min(ENOUGH).max(LEAST * owners);
    let unit = unit.max(1);
    let width = unit.saturating_mul(ceil(ceil(elements, unit), most));
    (width, ceil(elements, width))
}

/// Number of rounds in which owners with a buffer of `chunk` bytes each move `total` bytes.
pub fn rounds(total: i64, owners: u32, chunk: i64) -> i64 {
    let each = i128::from(owners.max(1)) * i128::from(chunk.max(1));
    i64::try_from((i128::from(total.max(1)) - 1) / each + 1).unwrap_or(i64::MAX)
}

/// Number of elements in each bin of `width` elements.
pub fn count(elements: &[i64], width: i64, bins: usize) -> Result<Vec<i64>, PlanError> {
    let divide = Divide::by(width.max(1));
    let mut counts = vec![0; bins];
    for (k, element) in elements.iter().enumerate() {
        let len = width.saturating_mul(bins as i64);
        let bin = bin(divide, bins, *element).ok_or_else(|| outside(k, *element, len))?;
        counts[bin] += 1;
    }
    Ok(counts)
}

/// The part of each element, and the number of elements of each part.
fn parts_of(
    elements: &[i64],
    width: i64,
    part: &[u32],
    parts: usize,
) -> Result<(Vec<u32>, Vec<i64>), PlanError> {
    if part.iter().any(|part| *part as usize >= parts) {
        return Err(PlanError::BadLayout("a bin of a part that does not exist".into()));
    }
    let by = Divide::by(width.max(1));
    let len = width.saturating_mul(part.len() as i64);
    let mut of = vec![0_u32; elements.len()];
    let mut counts = vec![0_i64; parts];
    for (k, (element, of)) in elements.iter().zip(&mut of).enumerate() {
        let bin = bin(by, part.len(), *element).ok_or_else(|| outside(k, *element, len))?;
        *of = part[bin];
        counts[*of as usize] += 1;
    }
    Ok((of, counts))
}

/// The place of each element in the order of parts, and the number of elements of each part.
///
/// `part` has the part of each bin. Elements of one part have consecutive places, in their own
/// order, beginning at the part's entry of `first`.
pub fn divide(
    elements: &[i64],
    width: i64,
    part: &[u32],
    first: &[i64],
) -> Result<(Vec<i64>, Vec<i64>), PlanError> {
    let (of, counts) = parts_of(elements, width, part, first.len())?;
    let ends = first.iter().zip(&counts).all(|(first, n)| first.checked_add(*n).is_some());
    if !ends {
        return Err(PlanError::TooLarge("a place"));
    }
    let mut following = first.to_vec();
    let place = |of: u32| {
        let place = &mut following[of as usize];
        *place += 1;
        *place - 1
    };
    Ok((of.into_iter().map(place).collect(), counts))
}

/// The first place of each part, if parts are stored one after another.
pub fn starts(counts: &[i64]) -> Vec<i64> {
    let mut sum = 0_i64;
    let start = |count: &i64| {
        sum = sum.saturating_add(*count);
        sum - *count
    };
    counts.iter().map(start).collect()
}

/// Cuts bins into `owners * rounds` parts of about equal sums, in the order of the file.
///
/// The part of each bin is `round * owners + owner`, and the parts of an owner follow each other.
pub fn cut(sums: &[i64], owners: usize, rounds: usize) -> Vec<u32> {
    let total = sums.iter().fold(0_i64, |all, n| all.saturating_add(*n));
    let parts = (owners * rounds).max(1) as i128;
    let mut below = 0_i64;
    let part = |n: &i64| {
        // The middle of the bin decides, so that a bin goes to the part that has most of it.
        let middle = i128::from(below) + i128::from(*n) / 2;
        below = below.saturating_add(*n);
        let piece = match total {
            0 => 0,
            total => (middle * parts / i128::from(total)).min(parts - 1) as usize,
        };
        let (owner, round) = (piece / rounds.max(1), piece % rounds.max(1));
        (round * owners + owner) as u32
    };
    sums.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_go_in_the_order_of_their_parts_and_keep_their_own() {
        let elements: Vec<i64> = (0..1000).map(|k| (k * 7919) % 400).collect();
        let sums = count(&elements, 10, 40).unwrap();
        for (owners, rounds) in [(1, 1), (3, 1), (3, 2), (7, 5)] {
            let part = cut(&sums, owners, rounds);
            // An owner's bins follow each other, and so do its rounds.
            let by_owner: Vec<usize> =
                part.iter().map(|p| *p as usize % owners * rounds + *p as usize / owners).collect();
            assert!(by_owner.windows(2).all(|pair| pair[0] <= pair[1]));
            let mut counts = vec![0; owners * rounds];
            for (part, n) in part.iter().zip(&sums) {
                counts[*part as usize] += n;
            }
            let (places, told) = divide(&elements, 10, &part, &starts(&counts)).unwrap();
            assert_eq!(counts, told);
            // Places within a part are consecutive, whatever the starts of parts.
            let apart: Vec<i64> = (0..owners as i64 * rounds as i64).map(|k| k << 40).collect();
            let (others, _) = divide(&elements, 10, &part, &apart).unwrap();
            for (place, other) in places.iter().zip(&others) {
                let (part, at) = ((other >> 40) as usize, other & ((1 << 40) - 1));
                assert_eq!(starts(&counts)[part] + at, *place);
            }
            let mut order = vec![usize::MAX; elements.len()];
            for (k, place) in places.iter().enumerate() {
                order[*place as usize] = k;
            }
            let mut at = 0;
            for (number, n) in counts.iter().enumerate() {
                let own = &order[at..at + *n as usize];
                assert!(own.windows(2).all(|pair| pair[0] < pair[1]));
                for k in own {
                    let bin = elements[*k] / 10;
                    assert_eq!(number, part[bin as usize] as usize);
                }
                at += *n as usize;
            }
            assert_eq!(1000, at);
            if owners * rounds <= 6 {
                assert!(counts.iter().max() <= Some(&(2 * 1000 / (owners * rounds) as i64)));
            }
        }
    }

    #[test]
    fn bins_are_whole_units_and_fewer_for_more_ranks() {
        assert_eq!((1, 100), bins(100, 1, 4));
        assert_eq!((60, 2), bins(100, 60, 4));
        // 4 Ki bins per owner, of whole units; at most 4 Mi counts of all ranks; at least 64.
        assert_eq!((1 << 16, 1 << 14), bins(1 << 30, 1, 4));
        assert_eq!((66_000, 16_269), bins(1 << 30, 1000, 4));
        assert_eq!((1 << 12, 1 << 18), bins(1 << 30, 1, 256));
        assert_eq!((336, 3_195_661), bins(1 << 30, 1, 100_000));
        assert_eq!((1, 1), bins(0, 1, 4));
    }

    #[test]
    fn rounds_are_as_many_as_buffers_need() {
        assert_eq!([1, 1, 1, 2], [0, 1, 32, 33].map(|total| rounds(total, 4, 8)));
        assert_eq!(i64::MAX, rounds(i64::MAX, 1, 1));
    }

    #[test]
    fn elements_outside_are_named() {
        assert_eq!(Err(outside(1, 40, 40)), count(&[39, 40], 10, 4));
        assert_eq!(Err(outside(0, -1, 40)), count(&[-1], 10, 4));
        assert_eq!(Err(outside(0, 40, 40)), divide(&[40], 10, &[0; 4], &[0]).map(|_| ()));
        assert!(divide(&[0], 10, &[1], &[0]).is_err());
        assert!(divide(&[0], 10, &[0], &[i64::MAX]).is_err());
        assert_eq!(vec![0, 0], cut(&[0, 0], 2, 1));
    }
}

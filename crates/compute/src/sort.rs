//! Sorting in memory.
//!
//! Problem: NumPy sorts on one thread, and its vector code does not pay off on every processor.
//!
//! Approach: Rust's sort of plain words is as fast as anything that fits on a page. Lines are
//! sorted in place, each by one thread. If there are fewer lines than threads, all threads first
//! cut a line in two at an element near its median, repeatedly until each thread has a part.
//!
//! Invariants: the result depends on the elements alone; only elements with equal bits are equal.
//!
//! Tried and rejected: cutting a line into equal parts and merging them later. This saves the first
//! pass, but doubles the runs on disk, each read in requests of half the size, and needs another
//! round of the merge.
//!
//! Tried and rejected: distribution by leading bits, counted from the range of each part (MSD
//! radix), on all threads: 17 ns per element instead of 18 (random float64), 26 instead of 16 if
//! digits are uneven, 22 instead of 32 for pairs of words, and twice the memory. Also rejected:
//! quicksort that divides 64-bit words by vectors of eight (AVX-512, a permutation and two stores)
//! down to 256 words: 16 ns instead of 19, because the short parts, which are sorted by the
//! library, take nearly all of the time; and it needs unsafe code.
//!
//! Reference: ipnsort of Rust's standard library, a quicksort without branches on comparisons.

use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError};

use outcore_io::cpu::side_by_side;

use crate::order::Order;

/// Calls `work` with each part of `part` items, on `lanes` threads.
pub fn each_part<T: Send>(
    items: &mut [T],
    part: usize,
    lanes: usize,
    work: impl Fn(&mut [T]) + Sync,
) {
    let parts = Mutex::new(items.chunks_mut(part.max(1)));
    side_by_side(lanes, &|_| loop {
        let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        match next {
            Some(part) => work(part),
            None => break,
        }
    });
}

/// Sorts in place.
pub fn sort<O: Order>(items: &mut [O::Item]) {
    // Only elements with equal bits are equal, so a stable sort is not needed.
    items.sort_unstable_by(|a, b| match (O::before(*a, *b), O::before(*b, *a)) {
        (true, _) => Ordering::Less,
        (_, true) => Ordering::Greater,
        _ => Ordering::Equal,
    });
}

/// Minimum number of elements of a line that justifies two threads.
const LONG: usize = 1 << 16;
/// Number of sampled elements for one near the median.
const LOOKS: usize = 2048;

/// Sorts each line of `line` elements, in place, on `lanes` threads.
///
/// `made` is called first with each part of the elements.
pub fn sort_lines<O: Order>(
    items: &mut [O::Item],
    line: usize,
    lanes: usize,
    made: impl Fn(&mut [O::Item]) + Sync,
) {
    let line = line.max(1);
    if lanes < 2 || line < LONG || items.len() / line >= lanes {
        return each_part(items, line, lanes, |line| {
            made(line);
            sort::<O>(line);
        });
    }
    each_part(items, LONG, lanes, made);
    for line in items.chunks_mut(line) {
        let mut parts = vec![line];
        while parts.len() < lanes {
            parts = parts.into_iter().flat_map(|part| halves::<O>(part, lanes)).collect();
        }
        let parts = Mutex::new(parts.into_iter());
        side_by_side(lanes, &|_| loop {
            let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(part) = next else { break };
            sort::<O>(part);
        });
    }
}

/// Cuts elements in two parts; no element of the second comes before any of the first.
fn halves<O: Order>(items: &mut [O::Item], lanes: usize) -> [&mut [O::Item]; 2] {
    if items.len() < LOOKS {
        return [items, &mut []];
    }
    let mut seen: Vec<O::Item> = items.iter().step_by(items.len() / LOOKS).copied().collect();
    sort::<O>(&mut seen);
    let pivot = seen[seen.len() / 2];
    // Each thread partitions a part; then the elements before the pivot are gathered at the front.
    let part = items.len().div_ceil(lanes);
    let cuts = Mutex::new(vec![0; items.len().div_ceil(part)]);
    let parts = Mutex::new(items.chunks_mut(part).enumerate());
    side_by_side(lanes, &|_| loop {
        let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((number, part)) = next else { break };
        let cut = partition::<O>(part, pivot);
        cuts.lock().unwrap_or_else(PoisonError::into_inner)[number] = cut;
    });
    let mut before = 0;
    for (number, cut) in
        cuts.into_inner().unwrap_or_else(PoisonError::into_inner).iter().enumerate()
    {
        let begin = number * part;
        // Swap the shorter one of two ranges: the elements in between, and those before the pivot
        // here.
        let count = (begin - before).min(*cut);
        let (front, back) = items.split_at_mut(begin + cut - count);
        front[before..before + count].swap_with_slice(&mut back[..count]);
        before += cut;
    }
    let (first, second) = items.split_at_mut(before);
    [first, second]
}

/// Moves the elements before `pivot` to the front, without branches; returns their number.
fn partition<O: Order>(items: &mut [O::Item], pivot: O::Item) -> usize {
    let mut before = 0;
    for n in 0..items.len() {
        let item = items[n];
        items.swap(n, before);
        before += usize::from(O::before(item, pivot));
    }
    before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::order::{Plain, Words};

    fn sorted(mut all: Vec<[u64; 2]>, line: usize) -> Vec<[u64; 2]> {
        all.chunks_mut(line).for_each(<[_]>::sort);
        all
    }

    proptest! {
        #[test]
        fn parts_of_a_cut_line_are_apart(
            few in 1..5000u64, len in LOOKS..20_000, lanes in 1..6usize, seed in any::<u64>(),
        ) {
            let number = |n: u64| (n ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            let mut all: Vec<u64> = (0..len as u64).map(|n| number(n) % few).collect();
            let mut expected = all.clone();
            let [first, second] = halves::<Plain<u64>>(&mut all, lanes);
            prop_assert!(first.iter().max() < second.iter().min() || first.is_empty());
            expected.sort();
            all.sort();
            prop_assert_eq!(expected, all);
        }
    }

    #[test]
    fn a_cut_line_has_parts_of_about_the_same_length() {
        let mut word = 1u64;
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word
        };
        let mut all: Vec<u64> = (0..100_000).map(|_| next()).collect();
        let [first, second] = halves::<Plain<u64>>(&mut all, 2);
        assert!(first.len().abs_diff(second.len()) < 10_000, "{} {}", first.len(), second.len());
    }

    #[test]
    fn lines_are_sorted_by_any_number_of_threads() {
        for (len, line) in [(10, 3), (200_000, 200_000), (200_001, 100_000), (150_000, 10_000)] {
            for modulus in [1, 7, 1 << 40] {
                let number = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % modulus;
                let all: Vec<[u64; 2]> = (0..len).map(|n| [number(n), len - n]).collect();
                let encoded: Vec<_> = all.iter().map(|[key, place]| [*key, place + 1]).collect();
                for lanes in [1, 2, 3, 8] {
                    let mut found = all.clone();
                    let made = |part: &mut [[u64; 2]]| part.iter_mut().for_each(|one| one[1] += 1);
                    sort_lines::<Words<u64, 2>>(&mut found, line, lanes, made);
                    assert_eq!(sorted(encoded.clone(), line), found, "{len} {line} {lanes}");
                }
            }
        }
    }
}

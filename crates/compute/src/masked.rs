//! Selection of elements of a block by a mask.
//!
//! Problem: listing the positions of a mask and visiting them takes 16 bytes of memory for each
//! selected element, and more time than copying it. Approach: if a mask selects elements of almost
//! every page, the block is in memory anyway and is walked together with the mask: 64 bytes of the
//! mask become the bits of a word, which select the elements to copy. Parts are counted first to
//! determine the places of their elements, and are then processed in parallel.
//!
//! Invariant: the result is that of one pass from the first element to the last, for any number of
//! threads.

use crate::nonzero::count;
use crate::sort::each_part;

/// Number of mask bytes that become a word of bits.
const WORD: usize = 64;
/// Number of mask bytes in a part; its elements fit the second-level cache.
const PART: usize = 1 << 15;
/// Number of parts that a thread takes at a time.
const TOGETHER: usize = 4;
/// Maximum number of selected elements of a word that are visited bit by bit.
///
/// With more, all elements are walked.
const FEW: u32 = 20;

/// A bit for each of up to 64 bytes, set if the byte is not zero.
fn bits(some: &[u8]) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let (words, rest) = some.as_chunks::<8>();
    let mut all = 0;
    for (k, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The highest bit of each byte that is not zero; then these bits packed together.
        let high = (((word & LOW) + LOW) | word) & !LOW;
        all |= ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * k);
    }
    for (k, one) in rest.iter().enumerate() {
        all |= u64::from(*one != 0) << (8 * words.len() + k);
    }
    all
}

/// Counts the nonzero bytes of a mask, and the intervals of `unit` bytes that contain one.
///
/// The work is divided over `lanes` threads.
pub fn extent(mask: &[u8], unit: usize, lanes: usize) -> (usize, usize) {
    let unit = unit.max(1);
    let mut parts: Vec<(&[u8], usize, usize)> =
        mask.chunks(unit * PART.div_ceil(unit)).map(|part| (part, 0, 0)).collect();
    each_part(&mut parts, TOGETHER, lanes, |some| {
        for (mask, chosen, touched) in some {
            for stretch in mask.chunks(unit) {
                let here = count(stretch);
                *chosen += here;
                *touched += usize::from(here > 0);
            }
        }
    });
    parts.iter().fold((0, 0), |(chosen, touched), part| (chosen + part.1, touched + part.2))
}

struct Part<'a, T> {
    mask: &'a [u8],
    block: &'a [T],
    count: usize,
    out: &'a mut [T],
    right: bool,
}

impl<T: Copy> Part<'_, T> {
    fn fill(&mut self) {
        let mut left = &mut *self.out;
        for (some, values) in self.mask.chunks(WORD).zip(self.block.chunks(WORD)) {
            let mut bits = bits(some);
            let number = bits.count_ones() as usize;
            let Some((here, behind)) = left.split_at_mut_checked(number) else { return };
            if number == values.len() {
                here.copy_from_slice(values);
            } else if number as u32 <= FEW {
                for (slot, k) in here.iter_mut().zip(core::iter::from_fn(|| {
                    let k = bits.trailing_zeros() as usize;
                    bits &= bits.wrapping_sub(1);
                    Some(k)
                })) {
                    if let Some(value) = values.get(k) {
                        *slot = *value;
                    }
                }
            } else {
                let mut at = 0;
                for (k, value) in values.iter().enumerate() {
                    if let Some(slot) = here.get_mut(at) {
                        *slot = *value;
                    }
                    at += (bits >> k) as usize & 1;
                }
            }
            left = behind;
        }
        self.right = left.is_empty();
    }
}

/// Copies the elements of a block that the mask selects to the front of `out`.
///
/// Returns their number, or None if they do not fit in `out`, or if the mask is changed at the same
/// time. The work is divided over `lanes` threads.
fn take<T: Copy + Send + Sync>(
    block: &[T],
    mask: &[u8],
    out: &mut [T],
    lanes: usize,
) -> Option<usize> {
    let both = mask.chunks(PART).zip(block.chunks(PART));
    let mut parts: Vec<Part<T>> = both
        .map(|(mask, block)| Part { mask, block, count: 0, out: &mut [], right: false })
        .collect();
    let count_all =
        |some: &mut [Part<T>]| some.iter_mut().for_each(|part| part.count = count(part.mask));
    each_part(&mut parts, TOGETHER, lanes, count_all);
    let mut left = out;
    let mut number = 0;
    for part in &mut parts {
        (part.out, left) = left.split_at_mut_checked(part.count)?;
        number += part.count;
    }
    each_part(&mut parts, TOGETHER, lanes, |some| some.iter_mut().for_each(Part::fill));
    parts.iter().all(|part| part.right).then_some(number)
}

/// Variant of [`take`] for elements of `item` bytes.
///
/// `item` is 1, 2, 4, 8 or 16; None for other sizes, and if the mask has another length.
pub fn take_bytes(
    (block, item): (&[u8], usize),
    mask: &[u8],
    out: &mut [u8],
    lanes: usize,
) -> Option<usize> {
    fn of<const N: usize>(
        block: &[u8],
        mask: &[u8],
        out: &mut [u8],
        lanes: usize,
    ) -> Option<usize> {
        let (block, rest) = block.as_chunks::<N>();
        let same = rest.is_empty() && block.len() == mask.len();
        same.then(|| take(block, mask, out.as_chunks_mut::<N>().0, lanes)).flatten()
    }
    match item {
        1 => of::<1>(block, mask, out, lanes),
        2 => of::<2>(block, mask, out, lanes),
        4 => of::<4>(block, mask, out, lanes),
        8 => of::<8>(block, mask, out, lanes),
        16 => of::<16>(block, mask, out, lanes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask_of(number: usize, every: usize) -> Vec<u8> {
        let chosen = |k: usize| k.wrapping_mul(2_654_435_761) >> 3 & 0xffff < 0x10000 / every;
        (0..number).map(|k| if chosen(k) { 1 + (k % 255) as u8 } else { 0 }).collect()
    }

    #[test]
    fn what_is_taken_is_that_of_one_pass() {
        for number in [0, 1, 63, 64, 65, 70_001, 200_000] {
            for every in [1, 2, 3, 10, 977] {
                let mask = mask_of(number, every);
                for item in [1, 2, 4, 8, 16] {
                    let block: Vec<u8> = (0..number * item).map(|k| (k * 7 % 251) as u8).collect();
                    let expected: Vec<u8> = block
                        .chunks(item)
                        .zip(&mask)
                        .filter(|(_, one)| **one != 0)
                        .flat_map(|(value, _)| value.to_vec())
                        .collect();
                    for lanes in [1, 3] {
                        let mut out = vec![0xEE; expected.len() + item];
                        let found = take_bytes((&block, item), &mask, &mut out, lanes);
                        assert_eq!(found, Some(expected.len() / item), "{number} {every} {item}");
                        assert!(out[..expected.len()] == expected);
                        assert!(out[expected.len()..].iter().all(|one| *one == 0xEE));
                        if !expected.is_empty() {
                            let few = &mut out[..expected.len() - 1];
                            assert_eq!(take_bytes((&block, item), &mask, few, lanes), None);
                        }
                    }
                }
            }
        }
        assert_eq!(take_bytes((&[0; 9], 3), &[1; 3], &mut [0; 9], 1), None);
        assert_eq!(take_bytes((&[0; 9], 4), &[1; 2], &mut [0; 9], 1), None);
    }

    #[test]
    fn stretches_are_counted() {
        for number in [0, 1, 1000, 100_000] {
            for every in [1, 10, 977] {
                for unit in [1, 7, 64, 1024, 50_000] {
                    let mask = mask_of(number, every);
                    let chosen = mask.iter().filter(|one| **one != 0).count();
                    let touched = mask.chunks(unit).filter(|s| s.iter().any(|one| *one != 0));
                    assert_eq!(extent(&mask, unit, 2), (chosen, touched.count()));
                }
            }
        }
    }
}

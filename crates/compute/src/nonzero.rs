//! Where a mask is not zero.
//!
//! Problem. NumPy finds the places of a mask with one thread, which takes half of a gather by a mask. Idea. The
//! mask is cut into parts; those that are chosen are counted in each, so that each part knows where in the result its
//! places go, and then parts are done side by side. Within a part each byte writes its place, and only one that
//! is chosen moves on: no branch depends on it.
//!
//! Invariant. The result is that of one pass from the first byte to the last, for any number of threads.

use crate::sort::each_part;

/// Bytes of a part: their places stay in the second-level cache.
const PART: usize = 1 << 15;
/// Parts that a thread takes at once.
const TOGETHER: usize = 8;
/// Bytes that are skipped at once where nothing is chosen.
const BLOCK: usize = 64;

/// How many bytes are not zero.
pub(crate) fn count(mask: &[u8]) -> usize {
    // Sums of few bytes fit a byte, of which processors add up many at once.
    let block = |some: &[u8]| some.iter().fold(0_u8, |sum, one| sum + u8::from(*one != 0));
    mask.chunks(128).map(|some| usize::from(block(some))).sum()
}

struct Part<'a> {
    mask: &'a [u8],
    first: i64,
    count: usize,
    out: &'a mut [i64],
    right: bool,
}

impl Part<'_> {
    fn fill(&mut self) {
        let mut at = 0;
        for (block, some) in self.mask.chunks(BLOCK).enumerate() {
            if some.iter().fold(0, |all, one| all | one) == 0 {
                continue;
            }
            let first = self.first + (block * BLOCK) as i64;
            for (k, one) in some.iter().enumerate() {
                if let Some(place) = self.out.get_mut(at) {
                    *place = first + k as i64;
                }
                at += usize::from(*one != 0);
            }
        }
        self.right = at == self.out.len();
    }
}

/// Fills `out` with the places of the bytes that are not zero, ascending, on so many threads. False if `out` has not
/// as many elements as there are, or others change the mask meanwhile.
pub fn places(mask: &[u8], lanes: usize, out: &mut [i64]) -> bool {
    let mut parts: Vec<Part> = mask
        .chunks(PART)
        .enumerate()
        .map(|(k, mask)| {
            let first = (k * PART) as i64;
            Part { mask, first, count: 0, out: &mut [], right: false }
        })
        .collect();
    let count_all =
        |some: &mut [Part]| some.iter_mut().for_each(|part| part.count = count(part.mask));
    each_part(&mut parts, TOGETHER, lanes, count_all);
    let mut left = out;
    for part in &mut parts {
        if part.count > left.len() {
            return false;
        }
        (part.out, left) = left.split_at_mut(part.count);
    }
    if !left.is_empty() {
        return false;
    }
    each_part(&mut parts, TOGETHER, lanes, |some| some.iter_mut().for_each(Part::fill));
    parts.iter().all(|part| part.right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_one_pass() {
        for (number, every) in
            [(0, 1), (1, 1), (70_000, 1), (70_001, 10), (200_000, 977), (65, 100)]
        {
            let chosen = |k: usize| k.wrapping_mul(2_654_435_761).is_multiple_of(every);
            let mask: Vec<u8> =
                (0..number).map(|k| if chosen(k) { 1 + (k % 255) as u8 } else { 0 }).collect();
            let expected: Vec<i64> =
                (0..number).filter(|k| mask[*k] != 0).map(|k| k as i64).collect();
            for lanes in [1, 2, 3] {
                let mut out = vec![-1; expected.len()];
                assert!(places(&mask, lanes, &mut out));
                assert!(expected == out, "{number} {every} {lanes}");
                let mut more = vec![0; expected.len() + 1];
                assert!(!places(&mask, lanes, &mut more));
                if let Some(fewer) = out.split_last_mut().map(|(_, fewer)| fewer) {
                    assert!(!places(&mask, lanes, fewer));
                }
            }
        }
    }
}

//! Positions of nonzero bytes of a mask.
//!
//! Problem: NumPy finds the positions of a mask with one thread, which takes half the time of a
//! gather by a mask. Approach: the mask is cut into parts. The selected bytes of each part are
//! counted, which determines the places of its positions in the result, and parts are then
//! processed in parallel. Within a part each byte writes its position, but only a selected byte
//! advances: no branch depends on it.
//!
//! Invariant: the result is that of one pass from the first byte to the last, for any number of
//! threads.

use crate::sort::each_part;

/// Bytes of a part; their positions fit the second-level cache.
const PART: usize = 1 << 15;
/// Number of parts that a thread takes at a time.
const TOGETHER: usize = 8;
/// Number of bytes that are skipped in one step if none is selected.
const BLOCK: usize = 64;

/// Counts the nonzero bytes.
pub(crate) fn count(mask: &[u8]) -> usize {
    // Sums of few bytes fit a byte, and a processor adds many of these in one step.
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

/// Fills `out` with the positions of the nonzero bytes, ascending, on `lanes` threads.
///
/// Returns false if `out` has another length, or if another thread changes the mask during the
/// call.
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

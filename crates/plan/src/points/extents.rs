//! Extents of a file that the points of a window touch, and their places in a slot.
//!
//! Approach: a disk reads whole pages. Each page that contains a point is marked, and neighbouring
//! pages, including small gaps between them, form one extent: data sieving without sorting the
//! points. Extents are packed in the slot, each aligned with a block, so that direct reads can use
//! them.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::list::Points;
use crate::address::round_up;

/// An interval of a file that is read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte in the file, at the border of a block.
    pub low: i64,
    /// One past its last byte.
    pub high: i64,
    /// Place of its first byte in the slot.
    pub at: i64,
}

/// Parameters for making extents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sieve {
    /// File address of address 0 of the points.
    pub base: i64,
    /// Bytes from the first to the last byte of the block of a point.
    pub block: i64,
    /// Extents begin at multiples of this, a power of two.
    pub unit: i64,
    /// Gaps below this many bytes are read, too.
    pub gap: i64,
    /// End of the array in the file; nothing is read past it.
    pub end: i64,
}

/// Disjoint extents of one window, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extents {
    pub list: Vec<Extent>,
    /// Bytes of the slot up to the end of the last extent.
    pub end: i64,
}

impl Extents {
    /// The extents of a window, packed into a slot from byte `at` on.
    pub fn of(
        points: &Points,
        range: Range<usize>,
        inside: bool,
        sieve: &Sieve,
        at: i64,
    ) -> Extents {
        let mut extents = Extents { list: Vec::new(), end: round_up(at, sieve.unit) };
        let number = range.len();
        let address = |k: usize| {
            let address = if inside { points.inside(k) } else { points.file[k] };
            sieve.base + address
        };
        let bytes = |k: usize| points.count(k).saturating_mul(sieve.block);
        let first = range.clone().map(address).min().unwrap_or(0);
        let units = ((1_i64 << points.bits.min(40)) + sieve.block) / sieve.unit + 2;
        let mut open: Option<(i64, i64)> = None;
        if (number as i64).saturating_mul(8) < units {
            let mut found: Vec<(i64, i64)> =
                range.clone().map(|k| (address(k), bytes(k))).collect();
            found.sort_unstable();
            for (low, bytes) in found {
                extents.join(&mut open, low, low + bytes, sieve);
            }
        } else {
            let base = first & -sieve.unit;
            let mut marks = vec![0_u64; (units as usize).div_ceil(64)];
            let shift = sieve.unit.trailing_zeros();
            let mut mark = |unit: i64| marks[unit as usize / 64] |= 1 << (unit % 64);
            for k in range.clone() {
                let low = address(k) - base;
                let (unit, last) = (low >> shift, (low + bytes(k) - 1) >> shift);
                mark(unit);
                // Most blocks lie in one page.
                for unit in unit + 1..=last {
                    mark(unit);
                }
            }
            for (number, mut word) in marks.into_iter().enumerate() {
                while word != 0 {
                    let bit = word.trailing_zeros();
                    let run = (word >> bit).trailing_ones();
                    let low = base + (number as i64 * 64 + i64::from(bit)) * sieve.unit;
                    extents.join(&mut open, low, low + i64::from(run) * sieve.unit, sieve);
                    word = match bit + run {
                        64.. => 0,
                        end => word >> end << end,
                    };
                }
            }
        }
        extents.close(open, sieve);
        extents
    }

    fn join(&mut self, open: &mut Option<(i64, i64)>, low: i64, high: i64, sieve: &Sieve) {
        let low = low & -sieve.unit;
        let high = round_up(high, sieve.unit).min(sieve.end);
        match open {
            Some((_, end)) if low - *end < sieve.gap.max(1) => *end = high.max(*end),
            _ => self.close(open.replace((low, high)), sieve),
        }
    }

    fn close(&mut self, open: Option<(i64, i64)>, sieve: &Sieve) {
        if let Some((low, high)) = open {
            self.list.push(Extent { low, high, at: self.end });
            self.end += round_up(high - low, sieve.unit);
        }
    }

    /// Place in the slot of a byte of the file that is in one of the extents.
    pub fn place(&self, byte: i64) -> i64 {
        let number = match self.list.len() {
            1 => 0,
            _ => self.list.partition_point(|extent| extent.low <= byte).max(1) - 1,
        };
        let extent = self.list[number];
        extent.at + byte - extent.low
    }
}

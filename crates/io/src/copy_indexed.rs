//! Copies of blocks whose addresses are listed.
//!
//! Problem. Elements that are chosen one by one are anywhere in memory: each costs a miss of the
//! caches, and of the processor's page table cache (TLB). Idea. Addresses are known in advance, so
//! the lines of a block are prefetched some blocks ahead; the processor then waits for many at the
//! same time.
//!
//! Invariants: only bytes that the move names are read or written, one block after another: if
//! several blocks have the same destination, the last one stays. The caller guarantees that the
//! memory is valid (`check.rs` of the plan proves it).

#![allow(unsafe_code)]

use outcore_plan::{Addresses, IndexedMove};

use crate::copy::{Loops, Side};
use crate::error::StorageError;

/// Distance of the prefetch in blocks.
const AHEAD: usize = 24;

/// The blocks of a move.
pub struct Blocks<'a> {
    one: &'a IndexedMove,
    /// The copy of one block, relative to its addresses.
    block: Loops,
}

impl<'a> Blocks<'a> {
    /// Makes the blocks of a move of a checked round.
    pub fn new(one: &'a IndexedMove) -> Result<Blocks<'a>, StorageError> {
        let block = Loops::new((0, &one.src_stride), (0, &one.dst_stride), &one.count, one.item)?;
        Ok(Blocks { one, block })
    }

    /// Returns the first touched byte and the end of the last on one side, relative to its base.
    pub fn span(&self, side: Side) -> (i64, i64) {
        let (at, points) = match side {
            Side::Source => (self.one.src_at, &self.one.src_points),
            Side::Destination => (self.one.dst_at, &self.one.dst_points),
        };
        let (low, high) = match self.one.counts.list() {
            None => points.span(self.one.points),
            Some(counts) => {
                let item = self.one.item;
                let mut span = (i64::MAX, i64::MIN);
                for (k, blocks) in counts.iter().enumerate() {
                    let (first, more) = (points.of(k), i64::from(*blocks) - 1);
                    // An unchecked move may have any values.
                    let last = first.saturating_add(more.saturating_mul(item));
                    span = (span.0.min(first), span.1.max(last));
                }
                span
            }
        };
        let (first, end) = self.block.span(side);
        (at + low + first as i64, at + high + end as i64)
    }

    /// Runs the copy.
    ///
    /// # Safety All bytes that the move names are readable relative to `src`, or writable relative
    /// to `dst`, and the two sides do not overlap.
    pub unsafe fn run(&self, src: *const u8, dst: *mut u8) {
        let one = self.one;
        let (src, dst) =
            (src.wrapping_offset(one.src_at as isize), dst.wrapping_offset(one.dst_at as isize));
        let row = |addresses: &Addresses| Row {
            first: addresses.of(0),
            stride: if one.points > 1 { addresses.of(1) - addresses.of(0) } else { 0 },
        };
        if let Some(counts) = one.counts.list() {
            // SAFETY: the caller's promise: runs consist of consecutive blocks, without axes.
            return unsafe { self.runs(src, dst, counts) };
        }
        // SAFETY: the caller's promise, for any addresses of the two sides.
        unsafe {
            match (one.src_points.list(), one.dst_points.list()) {
                (Some(from), Some(to)) => self.sized(src, dst, List(from), List(to)),
                (Some(from), None) => self.sized(src, dst, List(from), row(&one.dst_points)),
                (None, Some(to)) => self.sized(src, dst, row(&one.src_points), List(to)),
                (None, None) => {
                    self.sized(src, dst, row(&one.src_points), row(&one.dst_points));
                }
            }
        }
    }

    /// Copies runs of blocks, each a stretch of bytes.
    ///
    /// # Safety
    /// As [`run`](Blocks::run); blocks have no axes.
    unsafe fn runs(&self, src: *const u8, dst: *mut u8, counts: &[u32]) {
        let (from, to, item) = (&self.one.src_points, &self.one.dst_points, self.one.item as usize);
        for (k, blocks) in counts.iter().enumerate() {
            let src = src.wrapping_offset(from.of(k) as isize);
            let dst = dst.wrapping_offset(to.of(k) as isize);
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(src, dst, *blocks as usize * item) };
        }
    }

    /// # Safety
    /// As [`run`](Blocks::run).
    unsafe fn sized(&self, src: *const u8, dst: *mut u8, from: impl At, to: impl At) {
        let plain = self.block.axes().is_empty();
        // SAFETY: as the caller's.
        unsafe {
            match self.block.run_bytes() {
                1 if plain => self.elements::<u8>(src, dst, from, to),
                2 if plain => self.elements::<u16>(src, dst, from, to),
                4 if plain => self.elements::<u32>(src, dst, from, to),
                8 if plain => self.elements::<u64>(src, dst, from, to),
                12 if plain => self.elements::<[u32; 3]>(src, dst, from, to),
                16 if plain => self.elements::<u128>(src, dst, from, to),
                24 if plain => self.elements::<[u64; 3]>(src, dst, from, to),
                32 if plain => self.elements::<[u64; 4]>(src, dst, from, to),
                _ => {
                    for k in 0..self.one.points {
                        self.ahead(src, dst, k, from, to);
                        let to = dst.wrapping_offset(to.of(k));
                        self.block.run(src.wrapping_offset(from.of(k)), to);
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`run`](Blocks::run), for blocks of one `T`, anywhere in memory.
    unsafe fn elements<T: Copy>(&self, src: *const u8, dst: *mut u8, from: impl At, to: impl At) {
        for k in 0..self.one.points {
            self.ahead(src, dst, k, from, to);
            // SAFETY: the caller's promise.
            unsafe {
                let element = src.wrapping_offset(from.of(k)).cast::<T>().read_unaligned();
                dst.wrapping_offset(to.of(k)).cast::<T>().write_unaligned(element);
            }
        }
    }

    /// Prefetches both sides of a later block; the processor prefetches regular rows by itself.
    #[inline(always)]
    fn ahead<F: At, T: At>(&self, src: *const u8, dst: *mut u8, k: usize, from: F, to: T) {
        let soon = k + AHEAD;
        if soon < self.one.points {
            if F::LISTED {
                prefetch(src.wrapping_offset(from.of(soon)));
            }
            if T::LISTED {
                prefetch(dst.wrapping_offset(to.of(soon)));
            }
        }
    }
}

/// Addresses of one side.
trait At: Copy {
    const LISTED: bool;

    fn of(self, k: usize) -> isize;
}

#[derive(Clone, Copy)]
struct Row {
    first: i64,
    stride: i64,
}

#[derive(Clone, Copy)]
struct List<'a>(&'a [i64]);

impl At for Row {
    const LISTED: bool = false;

    #[inline(always)]
    fn of(self, k: usize) -> isize {
        (self.first + k as i64 * self.stride) as isize
    }
}

impl At for List<'_> {
    const LISTED: bool = true;

    #[inline(always)]
    fn of(self, k: usize) -> isize {
        self.0[k] as isize
    }
}

#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch faults nowhere.
    unsafe {
        std::arch::x86_64::_mm_prefetch(at.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

//! Transposition by strips.
//!
//! Problem: tiles in a buffer (`copy_tile`) are copied three times, and move to the next row of the
//! destination after few bytes, each time to another page.
//!
//! Idea: if both sides are contiguous along their own axis, a strip of two cache lines of the
//! source, some hundred rows long, is processed from top to bottom. The rows that make up a whole
//! line of the destination are transposed together in registers. So each line of both sides is
//! touched once, and rows of the destination are written in long stretches. A strip has at most as
//! many rows as the page table cache (TLB) has pages.

#![allow(unsafe_code)]

use crate::copy_row::{copy_row, Axis};

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes in a row of a strip.
const WIDTH: usize = 2 * LINE;
/// Rows of a strip.
const ROWS: usize = 512;

/// Returns whether a plane of such items can be copied in strips.
pub(crate) fn serves<T>(across: Axis, along: Axis) -> bool {
    let item = size_of::<T>() as isize;
    across.src == item && along.dst == item && matches!(item, 2 | 4 | 8 | 16)
}

/// Copies `across` x `along`: the source is contiguous along `across`, the destination along
/// `along`.
///
/// # Safety Every item of the two loops is readable from `src` and writable at `dst`, without
/// overlap; `T` is plain data of the item's size, and [`serves`] holds.
pub(crate) unsafe fn plane<T: Copy>(src: *const u8, dst: *mut u8, across: Axis, along: Axis) {
    let item = size_of::<T>();
    let (width, height) = (WIDTH / item, LINE / item);
    let place = |x: usize, y: usize| {
        let (x, y) = (x as isize, y as isize);
        let from = src.wrapping_offset(x * across.src + y * along.src);
        (from, dst.wrapping_offset(x * across.dst + y * along.dst))
    };
    for top in (0..along.n).step_by(ROWS) {
        let bottom = along.n.min(top + ROWS);
        let whole = top + (bottom - top) / height * height;
        let mut left = 0;
        while left + width <= across.n {
            for y in (top..whole).step_by(height) {
                let (from, to) = place(left, y);
                // SAFETY: `width` x `height` items of the caller's loops.
                unsafe { block::<T>(from, to, along.src, across.dst) };
            }
            left += width;
        }
        // The remaining items at the right and at the bottom.
        for x in 0..across.n {
            let first = if x < left { whole } else { top };
            let (from, to) = place(x, first);
            let column = Axis { n: bottom - first, src: along.src, dst: along.dst };
            // SAFETY: items of the caller's loops.
            unsafe { copy_row::<T>(from, to, column) };
        }
    }
}

/// Transposes one line of items from each of two lines.
///
/// Rows are `from` bytes apart in the source, and `to` bytes in the destination.
///
/// # Safety
/// As [`plane`], for `WIDTH` bytes across and `LINE` bytes along.
#[inline(always)]
unsafe fn block<T: Copy>(src: *const u8, dst: *mut u8, from: isize, to: isize) {
    let item = size_of::<T>();
    let (width, height) = ((WIDTH / item) as isize, (LINE / item) as isize);
    // SAFETY: all addresses are inside the block. Loads, shuffles and stores move bits unchanged.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match item {
            4 => return turn_4(src, dst, from, to),
            8 => return turn_8(src, dst, from, to),
            _ => {}
        }
        let item = item as isize;
        for x in 0..width {
            for y in 0..height {
                let value = src.offset(y * from + x * item).cast::<T>().read_unaligned();
                dst.offset(x * to + y * item).cast::<T>().write_unaligned(value);
            }
        }
    }
}

/// A block of 4-byte items, 4 x 4 at a time.
///
/// # Safety
/// As [`block`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn turn_4(src: *const u8, dst: *mut u8, from: isize, to: isize) {
    use std::arch::x86_64::{
        _mm_loadu_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps,
    };
    for x in (0..(WIDTH / 4) as isize).step_by(4) {
        for y in (0..(LINE / 4) as isize).step_by(4) {
            // SAFETY: four rows of four items inside the block.
            unsafe {
                let row = |k: isize| _mm_loadu_ps(src.offset((y + k) * from + 4 * x).cast());
                let put = |k: isize, v| _mm_storeu_ps(dst.offset((x + k) * to + 4 * y).cast(), v);
                let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
                let (lo01, lo23) = (_mm_unpacklo_ps(r0, r1), _mm_unpacklo_ps(r2, r3));
                let (hi01, hi23) = (_mm_unpackhi_ps(r0, r1), _mm_unpackhi_ps(r2, r3));
                put(0, _mm_movelh_ps(lo01, lo23));
                put(1, _mm_movehl_ps(lo23, lo01));
                put(2, _mm_movelh_ps(hi01, hi23));
                put(3, _mm_movehl_ps(hi23, hi01));
            }
        }
    }
}

/// A block of 8-byte items, 2 x 2 at a time.
///
/// # Safety
/// As [`block`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn turn_8(src: *const u8, dst: *mut u8, from: isize, to: isize) {
    use std::arch::x86_64::{_mm_loadu_pd, _mm_storeu_pd, _mm_unpackhi_pd, _mm_unpacklo_pd};
    for x in (0..(WIDTH / 8) as isize).step_by(2) {
        for y in (0..(LINE / 8) as isize).step_by(2) {
            // SAFETY: two rows of two items inside the block.
            unsafe {
                let row = |k: isize| _mm_loadu_pd(src.offset((y + k) * from + 8 * x).cast());
                let put = |k: isize, v| _mm_storeu_pd(dst.offset((x + k) * to + 8 * y).cast(), v);
                let (r0, r1) = (row(0), row(1));
                put(0, _mm_unpacklo_pd(r0, r1));
                put(1, _mm_unpackhi_pd(r0, r1));
            }
        }
    }
}

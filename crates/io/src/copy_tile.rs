//! Transposition by tiles.
//!
//! Problem: if the source is contiguous along one axis and the destination along another, a plain
//! loop touches a new cache line for every element on one side. Rows at a distance of a power of
//! two also share the same few places of the cache, so that a line is evicted before its next
//! element is needed.
//!
//! Idea: gather a square tile row by row into a buffer (whole source lines), transpose it into a
//! second buffer (both stay in the first-level cache), and write that out row by row (whole
//! destination lines). Inside the cache both sides are contiguous, so strips in registers transpose
//! it (`copy_strips`).

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::copy_row::{copy_row, Axis};
use crate::copy_strips;

/// Bytes of one buffer: two of them fit the first-level cache.
const TILE_BYTES: usize = 16 << 10;

/// Returns the edge of a tile in items: a power of two whose square fits the buffer.
const fn edge(item: usize) -> usize {
    match item {
        1 | 2 => 64 * (2 / item),
        3..=4 => 64,
        5..=16 => 32,
        _ => 16,
    }
}

/// Copies `across` x `along`: the source is contiguous along `across`, the destination along
/// `along`.
///
/// # Safety Every item of the two loops is readable from `src` and writable at `dst`, without
/// overlap; `T` is plain data of the item's size.
pub(crate) unsafe fn plane<T: Copy>(src: *const u8, dst: *mut u8, across: Axis, along: Axis) {
    let size = size_of::<T>();
    let edge = edge(size);
    debug_assert!(edge * edge * size <= TILE_BYTES);
    #[repr(align(64))]
    struct Tile([MaybeUninit<u8>; TILE_BYTES]);
    let (mut gathered, mut turned) =
        (Tile([MaybeUninit::uninit(); TILE_BYTES]), Tile([MaybeUninit::uninit(); TILE_BYTES]));
    let (a, b) = (gathered.0.as_mut_ptr().cast::<T>(), turned.0.as_mut_ptr().cast::<T>());
    let tile = |x0: usize, y0: usize| {
        let (width, height) = (edge.min(across.n - x0), edge.min(along.n - y0));
        let item = size as isize;
        // SAFETY: rows of at most `edge` items, at most `edge` of them, fit the buffers; the source
        // and destination rows are parts of the caller's loops.
        unsafe {
            for y in 0..height {
                let (x, y_all) = (x0 as isize, (y0 + y) as isize);
                let from = src.wrapping_offset(x * across.src + y_all * along.src);
                let row = Axis { n: width, src: across.src, dst: item };
                copy_row::<T>(from, a.add(y * edge).cast(), row);
            }
            turn::<T>(a, b, edge, width, height);
            for x in 0..width {
                let (x_all, y) = ((x0 + x) as isize, y0 as isize);
                let to = dst.wrapping_offset(x_all * across.dst + y * along.dst);
                let row = Axis { n: height, src: item, dst: along.dst };
                copy_row::<T>(b.add(x * edge).cast(), to, row);
            }
        }
    };
    // Blocks of 8 x 8 tiles touch few enough pages for the page table cache (TLB).
    let block = 8 * edge;
    for x_block in (0..across.n).step_by(block) {
        for y_block in (0..along.n).step_by(block) {
            for x0 in (x_block..across.n.min(x_block + block)).step_by(edge) {
                for y0 in (y_block..along.n.min(y_block + block)).step_by(edge) {
                    tile(x0, y0);
                }
            }
        }
    }
}

/// `b[x][y] = a[y][x]`, both with rows of `edge` items.
///
/// # Safety
/// Both hold `edge * edge` items; the first `height` rows of `a` have `width` items set.
unsafe fn turn<T: Copy>(a: *const T, b: *mut T, edge: usize, width: usize, height: usize) {
    let (item, row) = (size_of::<T>() as isize, (edge * size_of::<T>()) as isize);
    let across = Axis { n: width, src: item, dst: row };
    let along = Axis { n: height, src: row, dst: item };
    // SAFETY: all indices are below `edge`, and every item that is read was set.
    unsafe {
        if copy_strips::serves::<T>(across, along) {
            return copy_strips::plane::<T>(a.cast(), b.cast(), across, along);
        }
        for x in 0..width {
            for y in 0..height {
                *b.add(x * edge + y) = *a.add(y * edge + x);
            }
        }
    }
}

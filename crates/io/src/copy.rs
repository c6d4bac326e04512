//! Strided and transposing copies: the only place that moves elements in memory.
//!
//! Problem: an n-dimensional section, any strides on either side (including negative and zero
//! ones), any item size, at the speed of memory.
//!
//! Idea: [`Loops`] brings a copy into a normal form. Axes of length one are removed; axes are
//! reversed so that the destination is written upwards, and sorted by destination stride;
//! neighbours that continue each other are merged; an innermost axis that is contiguous on both
//! sides becomes a longer item. One of three kernels copies the rest: runs of bytes (memcpy;
//! `copy_stream` for long ones, which bypass the caches), rows of small items (typed loops), or, if
//! source and destination differ in their innermost axis, a transposition. It works on strips in
//! registers (`copy_strips`), or on tiles in a buffer in the first-level cache (`copy_tile`), so
//! that both sides are touched in whole cache lines.
//!
//! Invariants: only bytes that the description names are read or written, each destination byte
//! once; nothing is allocated. The caller guarantees that the memory is valid (`check.rs` of the
//! plan proves it).

#![allow(unsafe_code)]

pub use crate::copy_row::Side;
use crate::copy_row::{copy_row, Axis};
use crate::copy_stream;
use crate::error::StorageError;
use crate::{copy_strips, copy_tile};

/// Most axes after normalisation; more axes, each with two or more elements, have at least 8 G
/// elements.
const MOST_AXES: usize = 32;

/// A copy in normal form: addresses relative to two base addresses that are passed when it runs.
#[derive(Debug, Clone, Copy)]
pub struct Loops {
    axes: [Axis; MOST_AXES],
    len: usize,
    src_at: isize,
    dst_at: isize,
    item: usize,
    empty: bool,
    past: bool,
}

impl Loops {
    /// Makes a copy of `count` elements of `item` bytes; axes in any order, strides in bytes.
    ///
    /// The arithmetic must not overflow, which holds for every move of a checked round.
    pub fn new(
        src: (i64, &[i64]),
        dst: (i64, &[i64]),
        count: &[i64],
        item: i64,
    ) -> Result<Loops, StorageError> {
        let zero = Axis { n: 0, src: 0, dst: 0 };
        let mut loops = Loops {
            axes: [zero; MOST_AXES],
            len: 0,
            src_at: src.0 as isize,
            dst_at: dst.0 as isize,
            item: usize::try_from(item).unwrap_or(0),
            empty: item <= 0 || count.iter().any(|n| *n <= 0),
            past: false,
        };
        if src.1.len() != count.len() || dst.1.len() != count.len() {
            return Err(StorageError::BadJob("a move whose strides and counts differ".into()));
        }
        if loops.empty {
            return Ok(loops);
        }
        for ((n, src), dst) in count.iter().zip(src.1).zip(dst.1) {
            if *n > 1 {
                if loops.len == MOST_AXES {
                    loops.merge();
                }
                loops.push(Axis { n: *n as usize, src: *src as isize, dst: *dst as isize })?;
            }
        }
        loops.merge();
        Ok(loops)
    }

    /// Adds a loop, reversed if necessary so that it writes upwards.
    fn push(&mut self, mut axis: Axis) -> Result<(), StorageError> {
        if self.len == MOST_AXES {
            return Err(StorageError::BadJob(format!("a move with more than {MOST_AXES} axes")));
        }
        if axis.dst < 0 {
            let last = (axis.n - 1) as isize;
            self.src_at += last * axis.src;
            self.dst_at += last * axis.dst;
            axis.src = -axis.src;
            axis.dst = -axis.dst;
        }
        self.axes[self.len] = axis;
        self.len += 1;
        Ok(())
    }

    /// Sorts the loops by destination stride, innermost last, and merges loops that continue each
    /// other.
    fn merge(&mut self) {
        self.axes[..self.len].sort_unstable_by_key(|axis| std::cmp::Reverse(axis.dst));
        let mut kept = 0;
        for k in 0..self.len {
            let inner = self.axes[k];
            if kept > 0 {
                let outer = self.axes[kept - 1];
                let n = inner.n as isize;
                if outer.src == n * inner.src && outer.dst == n * inner.dst {
                    self.axes[kept - 1] = Axis { n: outer.n * inner.n, ..inner };
                    continue;
                }
            }
            self.axes[kept] = inner;
            kept += 1;
        }
        self.len = kept;
        while let Some(inner) = self.axes[..self.len].last() {
            let item = self.item as isize;
            if inner.src != item || inner.dst != item {
                break;
            }
            self.item *= inner.n;
            self.len -= 1;
        }
    }

    /// Marks this copy as a part of one of `all` bytes: if these exceed the caches, it bypasses
    /// them.
    pub fn of(mut self, all: u64) -> Loops {
        self.past = all >= copy_stream::CACHES;
        self
    }

    /// Number of bytes to copy.
    pub fn bytes(&self) -> usize {
        if self.empty {
            return 0;
        }
        self.axes().iter().fold(self.item, |bytes, axis| bytes.saturating_mul(axis.n))
    }

    /// Bytes in one contiguous run.
    pub fn run_bytes(&self) -> usize {
        self.item
    }

    pub(crate) fn axes(&self) -> &[Axis] {
        &self.axes[..self.len]
    }

    /// Returns the first touched byte and the end of the last on one side, relative to its base.
    pub fn span(&self, side: Side) -> (isize, isize) {
        let (mut low, mut high) = match side {
            Side::Source => (self.src_at, self.src_at),
            Side::Destination => (self.dst_at, self.dst_at),
        };
        if self.empty {
            return (low, low);
        }
        for axis in self.axes() {
            let reach = (axis.n - 1) as isize * axis.on(side);
            low += reach.min(0);
            high += reach.max(0);
        }
        (low, high + self.item as isize)
    }

    /// Splits the copy across the loop that reaches farthest on `side`; `None` if it cannot be
    /// split.
    ///
    /// A single long run is split at a multiple of 4096 bytes.
    pub fn halves(&self, side: Side) -> Option<(Loops, Loops)> {
        if self.empty {
            return None;
        }
        let reach = |axis: &Axis| (axis.n - 1) as u64 * axis.on(side).unsigned_abs() as u64;
        let widest = (0..self.len).max_by_key(|k| reach(&self.axes[*k]));
        let (mut lower, mut upper) = (*self, *self);
        let Some(k) = widest else {
            let cut = (self.item / 2).next_multiple_of(4096);
            if cut >= self.item {
                return None;
            }
            lower.item = cut;
            upper.item = self.item - cut;
            upper.src_at += cut as isize;
            upper.dst_at += cut as isize;
            return Some((lower, upper));
        };
        let axis = self.axes[k];
        let cut = axis.n / 2;
        lower.axes[k].n = cut;
        upper.axes[k].n = axis.n - cut;
        upper.src_at += cut as isize * axis.src;
        upper.dst_at += cut as isize * axis.dst;
        lower.drop_single(k);
        upper.drop_single(k);
        Some((lower, upper))
    }

    /// Removes loop `k` if it has only one iteration.
    fn drop_single(&mut self, k: usize) {
        if self.axes[k].n == 1 {
            self.axes.copy_within(k + 1..self.len, k);
            self.len -= 1;
            self.merge();
        }
    }

    /// Calls `work` on pieces for which `small` is true, in the order of their addresses on `side`.
    pub fn pieces<E>(
        &self,
        side: Side,
        small: &dyn Fn(&Loops) -> bool,
        work: &mut dyn FnMut(&Loops) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.empty {
            return Ok(());
        }
        match if small(self) { None } else { self.halves(side) } {
            None => work(self),
            Some((lower, upper)) => {
                lower.pieces(side, small, work)?;
                upper.pieces(side, small, work)
            }
        }
    }

    /// Runs the copy.
    ///
    /// # Safety
    /// All bytes named by [`span`](Loops::span) of the source, relative to `src`, are readable;
    /// those of the destination are writable, and the two do not overlap.
    pub unsafe fn run(&self, src: *const u8, dst: *mut u8) {
        if self.empty {
            return;
        }
        // SAFETY: the first addresses are inside the spans that the caller guarantees; kernels
        // touch only bytes that the loops name, which are inside the spans too.
        unsafe {
            let (src, dst) = (src.offset(self.src_at), dst.offset(self.dst_at));
            match self.item {
                1 => self.small::<[u8; 1]>(src, dst),
                2 => self.small::<u16>(src, dst),
                3 => self.small::<[u8; 3]>(src, dst),
                4 => self.small::<u32>(src, dst),
                6 => self.small::<[u16; 3]>(src, dst),
                8 => self.small::<u64>(src, dst),
                12 => self.small::<[u32; 3]>(src, dst),
                16 => self.small::<u128>(src, dst),
                24 => self.small::<[u64; 3]>(src, dst),
                32 => self.small::<[u64; 4]>(src, dst),
                _ => self.runs(src, dst),
            }
        }
    }

    /// Runs of bytes.
    ///
    /// # Safety
    /// As [`run`](Loops::run).
    unsafe fn runs(&self, src: *const u8, dst: *mut u8) {
        let one = Axis { n: 1, src: 0, dst: 0 };
        let (outer, row) = match self.axes() {
            [outer @ .., row] => (outer, *row),
            [] => (&[][..], one),
        };
        let ahead = ahead(self.item);
        each(outer, src, dst, &mut |mut src, mut dst| {
            for _ in 0..row.n {
                prefetch(src.wrapping_offset(ahead * row.src), self.item);
                // SAFETY: one run of the loops; a prefetch reads nothing.
                unsafe {
                    if self.past && self.item >= copy_stream::LONG {
                        copy_stream::stream(src, dst, self.item);
                    } else {
                        std::ptr::copy_nonoverlapping(src, dst, self.item);
                    }
                }
                src = src.wrapping_offset(row.src);
                dst = dst.wrapping_offset(row.dst);
            }
        });
    }

    /// Copies items that are small enough for registers.
    ///
    /// # Safety
    /// As [`run`](Loops::run); `T` is `item` bytes of plain data.
    unsafe fn small<T: Copy>(&self, src: *const u8, dst: *mut u8) {
        if let Some((outer, across, along)) = self.transposed() {
            let outer = &outer[..self.len - 2];
            return each(outer, src, dst, &mut |src, dst| {
                // SAFETY: the two loops of this iteration, inside the spans of the whole.
                unsafe {
                    match copy_strips::serves::<T>(across, along) {
                        true => copy_strips::plane::<T>(src, dst, across, along),
                        false => copy_tile::plane::<T>(src, dst, across, along),
                    }
                }
            });
        }
        let one = Axis { n: 1, src: 0, dst: 0 };
        let mut axes = self.axes;
        let len = self.len;
        // A short innermost loop costs more than it copies: make a longer loop the innermost one.
        if len >= 2 && axes[len - 1].n < 8 && axes[len - 2].n > axes[len - 1].n {
            axes.swap(len - 2, len - 1);
        }
        let (outer, rows, row) = match len {
            0 => (&axes[..0], one, one),
            1 => (&axes[..0], one, axes[0]),
            _ => (&axes[..len - 2], axes[len - 2], axes[len - 1]),
        };
        let reach = row.src.unsigned_abs().saturating_mul(row.n);
        let ahead = ahead(reach);
        let apart = rows.src.unsigned_abs() > reach;
        each(outer, src, dst, &mut |mut src, mut dst| {
            for _ in 0..rows.n {
                if apart {
                    prefetch(src.wrapping_offset(ahead * rows.src), reach);
                }
                // SAFETY: one row of the loops; `wrapping_offset` past the last row is not
                // dereferenced.
                unsafe { copy_row::<T>(src, dst, row) };
                src = src.wrapping_offset(rows.src);
                dst = dst.wrapping_offset(rows.dst);
            }
        });
    }

    /// Splits the loops if the source is contiguous along another axis than the destination.
    ///
    /// Returns the outer loops, the axis of the source, and the axis of the destination.
    fn transposed(&self) -> Option<([Axis; MOST_AXES], Axis, Axis)> {
        let along = *self.axes().last()?;
        if along.src.unsigned_abs() < 64 || along.n < 8 {
            return None;
        }
        let near = |k: &usize| (self.axes[*k].src.unsigned_abs(), std::cmp::Reverse(*k));
        let k = (0..self.len - 1).filter(|k| self.axes[*k].src != 0).min_by_key(near)?;
        let across = self.axes[k];
        if across.n < 8 || across.src.unsigned_abs() * 2 > along.src.unsigned_abs() {
            return None;
        }
        let mut outer = self.axes;
        outer.copy_within(k + 1..self.len, k);
        Some((outer, across, along))
    }
}

/// Returns how many runs in advance to prefetch: about 4 KiB.
fn ahead(run: usize) -> isize {
    (4096 / run.max(1)).clamp(1, 16) as isize
}

/// Prefetches the beginning of a run that does not continue the previous one.
///
/// The processor prefetches only contiguous data by itself, and would wait for the first line of
/// each run (measured: ten columns take 0.74 of the time, runs of 256 bytes 0.88, dense rows the
/// same).
#[inline]
fn prefetch(run: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..bytes.div_ceil(64).min(8) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a prefetch reads nothing and faults nowhere, whatever the address.
        unsafe { _mm_prefetch(run.wrapping_add(64 * line).cast(), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (run, bytes);
}

/// Runs the outer loops, and calls `work` for each iteration.
fn each(axes: &[Axis], src: *const u8, dst: *mut u8, work: &mut dyn FnMut(*const u8, *mut u8)) {
    match axes {
        [] => work(src, dst),
        [axis, rest @ ..] => {
            for i in 0..axis.n as isize {
                let (src, dst) =
                    (src.wrapping_offset(i * axis.src), dst.wrapping_offset(i * axis.dst));
                each(rest, src, dst, work);
            }
        }
    }
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;

//! One loop of a strided copy.

#![allow(unsafe_code)]

/// One loop: iterations, and byte strides of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) n: usize,
    pub(crate) src: isize,
    pub(crate) dst: isize,
}

/// Side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side that is read.
    Source,
    /// The side that is written.
    Destination,
}

impl Axis {
    pub(crate) fn on(&self, side: Side) -> isize {
        match side {
            Side::Source => self.src,
            Side::Destination => self.dst,
        }
    }
}

/// Copies one row of items.
///
/// # Safety
/// `row.n` items at its strides are readable from `src` and writable at `dst`, without overlap.
#[inline]
pub(crate) unsafe fn copy_row<T: Copy>(src: *const u8, dst: *mut u8, row: Axis) {
    let Axis { n, src: s, dst: d } = row;
    let size = size_of::<T>() as isize;
    let (mut src, mut dst) = (src.cast::<T>(), dst.cast::<T>());
    // SAFETY: the caller's promise covers every item; pointers past the last are not dereferenced.
    unsafe {
        if s == size && d == size {
            std::ptr::copy_nonoverlapping(src.cast::<u8>(), dst.cast::<u8>(), n * size as usize);
        } else if s == 0 && d == size {
            let value = src.read_unaligned();
            for i in 0..n {
                dst.add(i).write_unaligned(value);
            }
        } else if d == size {
            for _ in 0..n / 4 {
                let four = [
                    src.read_unaligned(),
                    src.byte_offset(s).read_unaligned(),
                    src.byte_offset(2 * s).read_unaligned(),
                    src.byte_offset(3 * s).read_unaligned(),
                ];
                dst.cast::<[T; 4]>().write_unaligned(four);
                src = src.wrapping_byte_offset(4 * s);
                dst = dst.add(4);
            }
            for _ in 0..n % 4 {
                dst.write_unaligned(src.read_unaligned());
                src = src.wrapping_byte_offset(s);
                dst = dst.add(1);
            }
        } else {
            for _ in 0..n {
                dst.write_unaligned(src.read_unaligned());
                src = src.wrapping_byte_offset(s);
                dst = dst.wrapping_byte_offset(d);
            }
        }
    }
}

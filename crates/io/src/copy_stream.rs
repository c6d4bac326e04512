//! Copies of long runs that bypass the caches.
//!
//! Problem. A store to a line that is not in the cache reads the line first, so a copy moves three
//! bytes for each one that it copies. If two threads or several ranks copy concurrently, memory
//! bandwidth is the limit.
//!
//! Idea. Streaming stores write whole lines without reading them. Four pages are copied in
//! parallel: a single stream of addresses does not keep memory busy. The C library does the same,
//! but only for runs of at least the size of all caches (240 MB on the measured machine).
//!
//! Measured, 2 cores: a copy of a gigabyte out of a mapping takes 0.76 of the time with two
//! threads, 0.95 with one, 0.87 with four ranks.

#![allow(unsafe_code)]

/// Smaller copies stay in the caches, where the caller finds them.
pub(crate) const CACHES: u64 = 32 << 20;
/// Shorter runs use `memcpy`.
pub(crate) const LONG: usize = 2 << 20;

const LINE: usize = 64;
const PAGE: usize = 4096;
/// Pages that are copied in parallel.
const SIDE: usize = 4;

/// Copies bytes.
///
/// # Safety
/// `len` bytes are readable from `src` and writable at `dst`, and do not overlap.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn stream(src: *const u8, dst: *mut u8, len: usize) {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128, _MM_HINT_T0,
    };
    const WORD: usize = size_of::<__m128i>();
    let head = dst.align_offset(LINE).min(len);
    let blocks = (len - head) / (SIDE * PAGE);
    let end = head + blocks * SIDE * PAGE;
    // SAFETY: all offsets are below `len`; destinations of streaming stores are aligned to lines. A
    // prefetch never faults. The fence orders the stores before all later ones.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        for block in (head..end).step_by(SIDE * PAGE) {
            for line in (block..block + PAGE).step_by(LINE) {
                for at in (line..line + SIDE * PAGE).step_by(PAGE) {
                    let (from, to) = (src.add(at), dst.add(at));
                    _mm_prefetch(from.wrapping_add(AHEAD).cast(), _MM_HINT_T0);
                    let words: [__m128i; LINE / WORD] =
                        std::array::from_fn(|k| _mm_loadu_si128(from.add(k * WORD).cast()));
                    for (k, word) in words.into_iter().enumerate() {
                        _mm_stream_si128(to.add(k * WORD).cast(), word);
                    }
                }
            }
        }
        _mm_sfence();
        std::ptr::copy_nonoverlapping(src.add(end), dst.add(end), len - end);
    }
}

/// Distance of the prefetch of source lines, bytes.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 4 * LINE;

/// Copies bytes.
///
/// # Safety
/// `len` bytes are readable from `src` and writable at `dst`, and do not overlap.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn stream(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: as promised.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_no_other_is_touched() {
        let room = 3 * SIDE * PAGE + 1000;
        let src: Vec<u8> = (0..room).map(|k| (k * 7 + k / 251) as u8).collect();
        for (from, to, len) in [
            (0, 0, 0),
            (1, 0, 1),
            (0, 3, 63),
            (5, 1, 64),
            (0, 0, SIDE * PAGE),
            (3, 64, SIDE * PAGE),
            (3, 63, SIDE * PAGE + 1),
            (9, 7, 2 * SIDE * PAGE + 500),
            (64, 1, 3 * SIDE * PAGE),
        ] {
            let mut dst = vec![255_u8; room];
            // SAFETY: both ranges have `len` bytes.
            unsafe { stream(src[from..].as_ptr(), dst[to..].as_mut_ptr(), len) };
            assert_eq!(&src[from..from + len], &dst[to..to + len]);
            assert!(dst[..to].iter().chain(&dst[to + len..]).all(|byte| *byte == 255));
        }
    }
}

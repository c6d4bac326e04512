//! Memory that processes share, at addresses where the kernel can map it in huge pages.
//!
//! Problem. Shared memory comes in pages of 4 KiB: a disk that reads a mebibyte into it is given 256
//! places instead of one (measured, four ranks reading a gigabyte into slots: 1.1 s, and 0.7 s into
//! huge pages), and copies out of it miss the TLB. The switches of the system that would change that
//! are off almost everywhere.
//!
//! Idea. A program may ask for it itself: `MADV_COLLAPSE` (Linux 6.1) puts pages together whatever the
//! switches say, if they are mapped at a multiple of 2 MiB. So mappings begin there ([`Segment`]), and
//! whoever uses the pages long enough has them put together ([`gather`]).
//!
//! Invariant. Content stays what it is; where the kernel knows nothing of this (or is not Linux), nothing
//! happens.

#![allow(unsafe_code)]

use crate::error::errno;
use crate::page::GRANULE;

/// Since Linux 6.1; not in all versions of `libc`.
const MADV_COLLAPSE: i32 = 25;

/// Reserves addresses from a multiple of [`GRANULE`] on, without access: where they begin, and how many.
///
/// # Errors
/// The error number of `mmap`.
pub(crate) fn reserve(len: usize) -> Result<(*mut u8, usize), i32> {
    let reserved = len
        .max(1)
        .checked_next_multiple_of(GRANULE)
        .and_then(|bytes| bytes.checked_add(GRANULE))
        .ok_or(libc::EOVERFLOW)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: reserves addresses of the kernel's choice, without access.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) }
        .cast::<u8>();
    if base as *mut libc::c_void == libc::MAP_FAILED {
        return Err(errno());
    }
    let head = base.align_offset(GRANULE);
    // SAFETY: `head < GRANULE`, the slack of the reservation; both pieces given back lie in it.
    let start = unsafe {
        let start = base.add(head);
        if head > 0 {
            libc::munmap(base.cast(), head);
        }
        libc::munmap(start.add(reserved - GRANULE).cast(), GRANULE - head);
        start
    };
    Ok((start, reserved - GRANULE))
}

/// A shared mapping: of a file, or of memory that only this process and its children see.
#[derive(Debug)]
pub struct Segment {
    start: *mut u8,
    len: usize,
    reserved: usize,
}

// SAFETY: an address; who looks at the memory sees to it that nobody else writes there.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps `len` bytes of a file, to be read and written; without one, new memory.
    ///
    /// # Errors
    /// The error number of `mmap`.
    pub fn map(file: Option<i32>, len: usize) -> Result<Segment, i32> {
        let (start, reserved) = reserve(len)?;
        let segment = Segment { start, len, reserved };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = if file.is_some() { 0 } else { libc::MAP_ANONYMOUS };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | kind;
        let fd = file.unwrap_or(-1);
        // SAFETY: replaces our own reservation, which is long enough and has no users yet.
        let mapped = unsafe { libc::mmap(start.cast(), len.max(1), access, flags, fd, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(errno());
        }
        Ok(segment)
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Bytes that were asked for.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`; nobody uses it any more.
        unsafe { libc::munmap(self.start.cast(), self.reserved) };
    }
}

/// Puts pages of shared memory together to huge ones, and says how many bytes are in such now. What is
/// in them stays.
///
/// # Safety
/// `bytes` bytes from `start` on are of a shared mapping that lives as long as the call.
pub(crate) unsafe fn gather(start: *mut u8, bytes: usize) -> usize {
    if cfg!(not(target_os = "linux")) {
        return 0;
    }
    let first = (start as usize).next_multiple_of(GRANULE);
    let end = (start as usize + bytes) / GRANULE * GRANULE;
    let mut gathered = 0;
    for at in (first..end).step_by(GRANULE) {
        let granule = at as *mut u8;
        // The kernel looks at what is mapped, and all pages are mapped when the first one was touched.
        // SAFETY: within the range of the caller.
        unsafe { granule.read_volatile() };
        // SAFETY: whole pages of the caller's mapping; their content stays.
        if unsafe { libc::madvise(granule.cast(), GRANULE, MADV_COLLAPSE) } == 0 {
            gathered += GRANULE;
        } else if matches!(errno(), libc::EINVAL | libc::ENOMEM) {
            break; // not known to this kernel or this kind of memory; no huge page to be had
        }
    }
    gathered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE;

    #[test]
    fn mappings_begin_at_a_multiple_and_keep_what_is_in_them() {
        let len = 3 * GRANULE + 5 * PAGE;
        let segment = Segment::map(None, len).unwrap();
        assert_eq!((0, len), (segment.as_ptr() as usize % GRANULE, segment.len()));
        // SAFETY: the mapping, which nobody else uses.
        let bytes = unsafe { std::slice::from_raw_parts_mut(segment.as_ptr(), len) };
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        // SAFETY: a part of the mapping, which ends within a granule.
        let gathered = unsafe { gather(segment.as_ptr().add(PAGE), len - 2 * PAGE) };
        // Zero where the kernel has no huge pages for this.
        assert!(gathered <= 2 * GRANULE && gathered.is_multiple_of(GRANULE));
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }

    #[test]
    fn a_file_is_seen_through_all_mappings() {
        let file = crate::backend::memory::file(&vec![3; GRANULE]).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (one, other) = (Segment::map(Some(fd), GRANULE), Segment::map(Some(fd), GRANULE));
        let (one, other) = (one.unwrap(), other.unwrap());
        // SAFETY: bytes of mappings that nobody else uses.
        unsafe {
            one.as_ptr().add(7).write(9);
            gather(one.as_ptr(), GRANULE);
            let seen = [6, 7].map(|at| other.as_ptr().add(at).read_volatile());
            assert_eq!([3, 9], seen);
        }
        assert_eq!(libc::EBADF, Segment::map(Some(-1), PAGE).unwrap_err());
    }
}

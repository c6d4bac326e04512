//! Memory shared by processes, at addresses where the kernel can map it in huge pages.
//!
//! Problem. Shared memory comes in pages of 4 KiB: a disk that reads a mebibyte into it gets 256
//! memory segments instead of one (measured, four ranks reading a gigabyte into slots: 1.1 s, and
//! 0.7 s into huge pages), and copies out of it miss the TLB. The system settings that would change
//! that are off almost everywhere.
//!
//! Idea. A program may request it itself: `MADV_COLLAPSE` (Linux 6.1) combines pages regardless of
//! the settings, if they are mapped at a multiple of 2 MiB. So mappings begin there ([`Segment`]),
//! and code that uses the pages long enough has them combined ([`gather`]).
//!
//! Invariant. The content does not change; if the kernel does not support it (or is not Linux),
//! nothing happens.

#![allow(unsafe_code)]

use crate::error::errno;
use crate::page::GRANULE;

/// Since Linux 6.1; not in all versions of `libc`.
const MADV_COLLAPSE: i32 = 25;

/// Reserves addresses from a multiple of [`GRANULE`] on, without access; returns start and length.
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
    // SAFETY: reserves addresses chosen by the kernel, without access.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) }
        .cast::<u8>();
    if base as *mut libc::c_void == libc::MAP_FAILED {
        return Err(errno());
    }
    let head = base.align_offset(GRANULE);
    // SAFETY: `head < GRANULE`, the slack of the reservation; both unmapped pieces are inside it.
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

/// A shared mapping of a file, or of memory that only this process and its children see.
#[derive(Debug)]
pub struct Segment {
    start: *mut u8,
    len: usize,
    reserved: usize,
}

// SAFETY: an address; the code that accesses the memory ensures that there are no concurrent
// writes.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps `len` bytes of a file for reading and writing; without a file, new memory.
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

    /// Requested bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which is no longer used.
        unsafe { libc::munmap(self.start.cast(), self.reserved) };
    }
}

/// Combines pages of shared memory into huge ones; returns the bytes that are now in huge pages.
///
/// The content does not change.
///
/// # Safety
/// `bytes` bytes from `start` on belong to a shared mapping that lives as long as the call.
pub(crate) unsafe fn gather(start: *mut u8, bytes: usize) -> usize {
    if cfg!(not(target_os = "linux")) {
        return 0;
    }
    let first = (start as usize).next_multiple_of(GRANULE);
    let end = (start as usize + bytes) / GRANULE * GRANULE;
    let mut gathered = 0;
    for at in (first..end).step_by(GRANULE) {
        let granule = at as *mut u8;
        // The kernel requires mapped pages, and touching the first one maps all.
        // SAFETY: within the range of the caller.
        unsafe { granule.read_volatile() };
        // SAFETY: whole pages of the caller's mapping; their content stays.
        if unsafe { libc::madvise(granule.cast(), GRANULE, MADV_COLLAPSE) } == 0 {
            gathered += GRANULE;
        } else if matches!(errno(), libc::EINVAL | libc::ENOMEM) {
            break; // not supported by this kernel or kind of memory, or no huge page is free
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
        // SAFETY: the mapping, which no other code uses.
        let bytes = unsafe { std::slice::from_raw_parts_mut(segment.as_ptr(), len) };
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        // SAFETY: a part of the mapping, which ends within a granule.
        let gathered = unsafe { gather(segment.as_ptr().add(PAGE), len - 2 * PAGE) };
        // Zero if the kernel has no huge pages for this memory.
        assert!(gathered <= 2 * GRANULE && gathered.is_multiple_of(GRANULE));
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }

    #[test]
    fn a_file_is_seen_through_all_mappings() {
        let file = crate::backend::memory::file(&vec![3; GRANULE]).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (one, other) = (Segment::map(Some(fd), GRANULE), Segment::map(Some(fd), GRANULE));
        let (one, other) = (one.unwrap(), other.unwrap());
        // SAFETY: bytes of mappings that no other code uses.
        unsafe {
            one.as_ptr().add(7).write(9);
            gather(one.as_ptr(), GRANULE);
            let seen = [6, 7].map(|at| other.as_ptr().add(at).read_volatile());
            assert_eq!([3, 9], seen);
        }
        assert_eq!(libc::EBADF, Segment::map(Some(-1), PAGE).unwrap_err());
    }
}

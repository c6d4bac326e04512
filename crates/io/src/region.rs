//! Pieces of memory from the system: anonymous ones, and parts of shared mappings.

#![allow(unsafe_code)]

use std::path::Path;
use std::ptr::NonNull;

use crate::error::StorageError;
use crate::page::GRANULE;

/// Buffers of at least this many bytes are aligned to huge pages and request them. Direct I/O into
/// small pages is three times slower: a request then has hundreds of memory segments.
const HUGE_FROM: usize = 1 << 20;

/// A piece of anonymous memory.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
}

// SAFETY: a region is plain memory with a single owner.
unsafe impl Send for Region {}
// SAFETY: as above; a shared reference gives no access to the memory.
unsafe impl Sync for Region {}

impl Region {
    /// The memory, to read.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: anonymous memory, so initialised, and owned by this value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The memory, to write.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Splits the region into the first `bytes`, whole pages, and the rest.
    pub(crate) fn cut(mut self, bytes: usize) -> (Region, Option<Region>) {
        let rest = self.bytes.saturating_sub(bytes);
        if rest == 0 {
            return (self, None);
        }
        // SAFETY: `bytes` is less than the size of the region.
        let start = unsafe { self.start.add(bytes) };
        self.bytes = bytes;
        (self, Some(Region { start, bytes: rest }))
    }

    pub(crate) fn map(bytes: usize) -> Result<Region, StorageError> {
        let refused = || StorageError::last("mmap", Path::new(""));
        let huge = bytes >= HUGE_FROM;
        let slack = if huge { GRANULE } else { 0 };
        let Some(mapped) = bytes.checked_add(slack) else {
            return Err(StorageError::io("mmap", Path::new(""), libc::ENOMEM));
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address chosen by the kernel.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) }
            .cast::<u8>();
        if base as *mut libc::c_void == libc::MAP_FAILED {
            return Err(refused());
        }
        let head = if huge { base.align_offset(GRANULE) } else { 0 };
        // SAFETY: `head <= slack`, so all pieces are in the mapping just made, which no other code
        // uses; unmapped parts are not used afterwards.
        let start = unsafe {
            let start = base.add(head);
            if head > 0 {
                libc::munmap(base.cast(), head);
            }
            if slack > head {
                libc::munmap(start.add(bytes).cast(), slack - head);
            }
            if huge {
                // A failure is harmless: small pages work as well, only slower.
                libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
            }
            start
        };
        NonNull::new(start).map(|start| Region { start, bytes }).ok_or_else(refused)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region is one of our mappings, or whole pages of one, and this is its only
        // owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Address and size of reclaimable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reclaimable {
    pub(crate) start: usize,
    pub(crate) bytes: u64,
}

impl Reclaimable {
    /// Removes the pages from the mapping. If the kernel refuses, the memory stays, and is no
    /// longer counted.
    pub(crate) fn remove(self) {
        #[cfg(target_os = "linux")]
        let _ = self.advise(libc::MADV_REMOVE);
    }

    pub(crate) fn advise(self, advice: i32) -> Result<(), i32> {
        let start = self.start as *mut libc::c_void;
        // SAFETY: whole pages of a mapping that lives; no code relies on their content
        // (`of_pages`).
        match unsafe { libc::madvise(start, self.bytes as usize, advice) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }
}

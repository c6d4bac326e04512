//! Memory of other owners that is reclaimable while it is not in use.
//!
//! Problem. Slots of a collective call are kept for the next one, because new shared memory is
//! expensive. Counted as in use, they would take their bytes from all other work, although they
//! contain nothing; and a user could not find the cause of a budget error.
//!
//! Idea. [`Pages`] counts memory that another part of the program mapped, as in use or as
//! reclaimable. Reclaimable memory is within the limit, but no request fails because of it. When
//! the memory is needed, its pages are removed from the mapping (`MADV_REMOVE`), which stays;
//! before it is used again they are populated again. Systems other than Linux cannot remove pages
//! from a shared mapping: there reclaimable memory stays counted as in use.
//!
//! Invariants. Pinned pages have memory: a full `/dev/shm` is an error of `pin`, not a later signal
//! (kernels before 5.14 cannot report it). Pages are removed under the lock of the arena, so a
//! thread that pins them does not lose them.

#![allow(unsafe_code)]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::StorageError;
use crate::pool::{Arena, Reservation};
use crate::region::Reclaimable;
use crate::segment;

/// True if this system can remove pages from a shared mapping.
const RECLAIMS: bool = cfg!(target_os = "linux");

/// Since Linux 5.14; not in all versions of `libc`.
const MADV_POPULATE_WRITE: i32 = 23;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Held,
    Unpinned,
    Released,
}

/// Pages of a shared mapping, counted as in use or as reclaimable.
#[derive(Debug)]
pub struct Pages {
    arena: Arena,
    region: Reclaimable,
    now: Mutex<Now>,
}

impl Reservation {
    /// Applies the reservation to the pages from `start` on.
    ///
    /// # Safety
    /// They are pages of a shared mapping with no other owner, as many as are counted, and live as
    /// long as the result. While they are reclaimable, no code relies on their content.
    pub unsafe fn of_pages(self, start: *mut u8) -> Pages {
        let (arena, bytes) = self.into_parts();
        Pages {
            arena,
            region: Reclaimable { start: start as usize, bytes },
            now: Mutex::new(Now::Held),
        }
    }
}

impl Pages {
    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.region.bytes
    }

    /// Makes the pages reclaimable, if the system supports it.
    pub fn unpin(&self) {
        let mut now = self.now();
        if !RECLAIMS || *now != Now::Held || !self.arena.ours() {
            return;
        }
        *now = Now::Unpinned;
        let mut state = self.arena.state();
        state.used = state.used.saturating_sub(self.region.bytes);
        state.reclaimable.push(self.region);
        // The limit may have been lowered in the meantime.
        self.arena.settle(state);
    }

    /// Counts the pages as in use again, with memory behind them; returns whether their content is
    /// preserved.
    ///
    /// # Errors
    /// `Budget` if they do not fit the budget, `Io` if the system has no memory for them. They then
    /// stay reclaimable.
    pub fn pin(&self, what: &'static str) -> Result<bool, StorageError> {
        let mut now = self.now();
        if *now != Now::Unpinned || !self.arena.ours() {
            return Ok(true);
        }
        let mut state = self.arena.state();
        state.admit(what, self.region.bytes)?;
        let there = state.reclaimable.iter().position(|region| *region == self.region);
        if let Some(place) = there {
            state.reclaimable.remove(place);
        }
        state.take(self.region.bytes);
        self.arena.settle(state);
        *now = Now::Held;
        if there.is_some() {
            return Ok(true);
        }
        let populated = self.region.advise(MADV_POPULATE_WRITE);
        match populated {
            // This kernel does not support it.
            Ok(()) | Err(libc::EINVAL) => Ok(false),
            Err(errno) => {
                drop(now);
                self.unpin();
                let errno = if errno == libc::EFAULT { libc::ENOSPC } else { errno };
                Err(StorageError::io("memory shared between ranks", Path::new(""), errno))
            }
        }
    }

    /// Combines them into huge pages if the kernel supports it; returns the bytes in huge pages.
    pub fn gather(&self) -> u64 {
        let now = self.now();
        if *now != Now::Held || !self.arena.ours() {
            return 0;
        }
        // SAFETY: pages of a shared mapping that lives (`of_pages`); while they are pinned they are
        // not removed.
        unsafe { segment::gather(self.region.start as *mut u8, self.region.bytes as usize) as u64 }
    }

    /// Ends the counting.
    pub fn release(&self) {
        let mut now = self.now();
        let before = std::mem::replace(&mut *now, Now::Released);
        if !self.arena.ours() {
            return;
        }
        let mut state = self.arena.state();
        match before {
            Now::Held => state.used = state.used.saturating_sub(self.region.bytes),
            Now::Unpinned => state.reclaimable.retain(|region| *region != self.region),
            Now::Released => {}
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE;

    /// Shared memory of this process.
    struct Mapped(*mut u8, usize);

    impl Mapped {
        fn new(pages: usize) -> Mapped {
            let (bytes, protection) = (pages * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping.
            let start =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
            assert_ne!(libc::MAP_FAILED, start);
            Mapped(start.cast(), bytes)
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: the mapping, which no other code uses.
            unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
        }

        fn held(&self, arena: &Arena) -> Pages {
            let counted = arena.reserve("slots", self.1 as u64).unwrap();
            // SAFETY: a shared mapping that outlives the pages in these tests.
            unsafe { counted.of_pages(self.0) }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: the mapping made above.
            unsafe { libc::munmap(self.0.cast(), self.1) };
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn unpinned_pages_are_reclaimed_and_come_back() {
        let (arena, mut memory) = (Arena::new(10 * PAGE as u64), Mapped::new(6));
        let pages = memory.held(&arena);
        memory.bytes().fill(7);
        assert_eq!(6 * PAGE as u64, arena.used());
        assert!(arena.reserve("x", 5 * PAGE as u64).is_err());
        pages.unpin();
        assert_eq!((0, 10 * PAGE as u64), (arena.used(), arena.available()));
        // There is enough memory for both, so the pages stay.
        drop(arena.reserve("x", 4 * PAGE as u64).unwrap());
        assert!(pages.pin("slots").unwrap());
        assert!(memory.bytes().iter().all(|byte| *byte == 7));
        pages.unpin();
        let other = arena.reserve("x", 5 * PAGE as u64).unwrap();
        assert_eq!(5 * PAGE as u64, arena.committed());
        assert!(memory.bytes().iter().all(|byte| *byte == 0));
        assert!(pages.pin("slots").is_err());
        drop(other);
        assert!(!pages.pin("slots").unwrap());
        memory.bytes().fill(8);
        assert_eq!(6 * PAGE as u64, arena.used());
        drop(pages);
        assert_eq!((0, 0), (arena.used(), arena.committed()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_lower_limit_takes_unpinned_pages_at_once() {
        let (arena, memory) = (Arena::new(10 * PAGE as u64), Mapped::new(6));
        let pages = memory.held(&arena);
        pages.unpin();
        arena.set_limit(3 * PAGE as u64);
        assert_eq!(0, arena.committed());
        let late = memory.held(&Arena::new(10 * PAGE as u64));
        late.arena.set_limit(PAGE as u64);
        late.unpin();
        assert_eq!((0, 0), (late.arena.used(), late.arena.committed()));
    }
}

//! Memory of others that gives way while it is not in use.
//!
//! Problem. Slots of a collective are kept for the next one, because new shared memory is dear. Kept
//! as held they would take their bytes from everything that is done meanwhile, although nothing is in
//! them; and whoever is refused for that cannot know whom to ask.
//!
//! Idea. [`Pages`] counts memory that somebody mapped as held, or as reclaimable: then it is within the limit,
//! but nobody is refused for it. When the room is needed its pages are taken out of the mapping
//! (`MADV_REMOVE`), which stays; before it is used again they are put back. Systems other than Linux
//! cannot take pages out of a shared mapping: there what is reclaimable stays held.
//!
//! Invariants. While pages are held they have memory: a full `/dev/shm` is an error of `pin`,
//! not a signal later (kernels before 5.14 cannot tell). Pages are taken out under the lock of the
//! arena, so nobody who takes them back loses them.

#![allow(unsafe_code)]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::StorageError;
use crate::pool::{Arena, Reservation};
use crate::region::Reclaimable;
use crate::segment;

/// Whether this system can take pages out of a shared mapping.
const RECLAIMS: bool = cfg!(target_os = "linux");

/// Since Linux 5.14; not in all versions of `libc`.
const MADV_POPULATE_WRITE: i32 = 23;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Held,
    Unpinned,
    Released,
}

/// Pages of a shared mapping that are counted: as held, or as reclaimable.
#[derive(Debug)]
pub struct Pages {
    arena: Arena,
    region: Reclaimable,
    now: Mutex<Now>,
}

impl Reservation {
    /// What is counted are the pages from `start` on.
    ///
    /// # Safety
    /// They are pages of a shared mapping that nobody else has, as many as are counted, and live as long
    /// as the result. While they are reclaimable nobody relies on what is in them.
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

    /// From now on they give way, where the system lets them.
    pub fn unpin(&self) {
        let mut now = self.now();
        if !RECLAIMS || *now != Now::Held || !self.arena.ours() {
            return;
        }
        *now = Now::Unpinned;
        let mut state = self.arena.state();
        state.used = state.used.saturating_sub(self.region.bytes);
        state.reclaimable.push(self.region);
        // The limit may have been lowered meanwhile.
        self.arena.settle(state);
    }

    /// Holds them again, with memory behind them, and says whether they still have what was in them.
    ///
    /// # Errors
    /// They do not fit the budget; the system has no memory for them. They are not held then.
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
            // Not known to this kernel.
            Ok(()) | Err(libc::EINVAL) => Ok(false),
            Err(errno) => {
                drop(now);
                self.unpin();
                let errno = if errno == libc::EFAULT { libc::ENOSPC } else { errno };
                Err(StorageError::io("memory shared between ranks", Path::new(""), errno))
            }
        }
    }

    /// Puts them together to huge pages where the kernel does that, and says how many bytes are in such.
    pub fn gather(&self) -> u64 {
        let now = self.now();
        if *now != Now::Held || !self.arena.ours() {
            return 0;
        }
        // SAFETY: pages of a shared mapping that lives (`of_pages`); while they are held nobody takes
        // them out.
        unsafe { segment::gather(self.region.start as *mut u8, self.region.bytes as usize) as u64 }
    }

    /// Counts them no longer.
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
            // SAFETY: the mapping, which nobody else uses.
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
        // There is room for both: they stay.
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

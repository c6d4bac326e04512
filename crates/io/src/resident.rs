//! Which pages of mapped files are resident, and a bound on them.
//!
//! Problem: pages of a mapped file count as memory of the process once they are touched, but
//! unmapping them after each access makes the next one pay for the page faults again.
//!
//! Idea: granules of 2 MiB (what the kernel may map at one fault) are remembered when they are
//! touched and stay mapped. They count in the arena like buffers kept for reuse: at most half of the
//! budget, given back oldest first, and given up when somebody needs the room.
//!
//! Invariants: a granule counts once; one that is pinned by a running copy is not given back; all
//! addresses in the list belong to live mappings (`forget` is called before unmapping).

use std::collections::{HashSet, VecDeque};
use std::sync::PoisonError;

use crate::pool::Arena;

/// The unit of counting, and the alignment of mappings: a huge page.
pub const GRANULE: usize = 2 << 20;

/// Granules touched, by address.
#[derive(Debug, Default)]
pub(crate) struct Resident {
    touched: HashSet<usize>,
    oldest_first: VecDeque<usize>,
    pinned: Vec<(usize, usize)>,
}

/// Keeps a range of a mapping counted and resident while it is being copied.
#[derive(Debug)]
pub struct Pinned<'a> {
    arena: &'a Arena,
    range: (usize, usize),
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut resident = self.arena.resident().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = resident.pinned.iter().position(|range| *range == self.range) {
            resident.pinned.swap_remove(index);
        }
    }
}

impl Arena {
    /// See [`Mapping::pin`](crate::mapping::Mapping::pin); `first..end` are addresses.
    pub(crate) fn pin(&self, first: usize, end: usize) -> Pinned<'_> {
        let range = (first / GRANULE, end.div_ceil(GRANULE));
        let mut resident = self.resident().lock().unwrap_or_else(PoisonError::into_inner);
        resident.pinned.push(range);
        let mut fresh = 0u64;
        for granule in range.0..range.1 {
            if resident.touched.insert(granule) {
                resident.oldest_first.push_back(granule);
                fresh += 1;
            }
        }
        if fresh > 0 {
            let excess = self.count_mapped(fresh * GRANULE as u64);
            let freed = resident.evict(excess);
            self.uncount_mapped(freed);
        }
        Pinned { arena: self, range }
    }

    /// Gives back at least `bytes` of mapped pages, if there are so many that are not in use.
    pub(crate) fn evict_mapped(&self, bytes: u64) {
        let mut resident = self.resident().lock().unwrap_or_else(PoisonError::into_inner);
        let freed = resident.evict(bytes);
        self.uncount_mapped(freed);
    }

    /// Drops a mapping's granules from the count: it is about to be unmapped.
    pub(crate) fn forget_pages(&self, first: usize, end: usize) {
        if !self.ours() {
            return;
        }
        let gone = first / GRANULE..end.div_ceil(GRANULE);
        let mut resident = self.resident().lock().unwrap_or_else(PoisonError::into_inner);
        let before = resident.touched.len();
        resident.touched.retain(|granule| !gone.contains(granule));
        if resident.touched.len() < before {
            resident.oldest_first.retain(|granule| !gone.contains(granule));
            self.uncount_mapped(((before - resident.touched.len()) * GRANULE) as u64);
        }
    }
}

impl Resident {
    /// Gives back granules, oldest first, until `excess` bytes are free. Returns the bytes freed.
    fn evict(&mut self, excess: u64) -> u64 {
        let wanted = excess.div_ceil(GRANULE as u64);
        let (mut freed, mut looked_at, all) = (0u64, 0usize, self.oldest_first.len());
        // Neighbours in the list are mostly neighbours in the file: one call gives back a run.
        let mut run = 0usize..0usize;
        while freed < wanted && looked_at < all {
            looked_at += 1;
            let Some(granule) = self.oldest_first.pop_front() else { break };
            if self.pinned.iter().any(|(lo, hi)| (*lo..*hi).contains(&granule)) {
                self.oldest_first.push_back(granule);
                continue;
            }
            self.touched.remove(&granule);
            freed += 1;
            if granule == run.end {
                run.end += 1;
            } else {
                give_back(&run);
                run = granule..granule + 1;
            }
        }
        give_back(&run);
        freed * GRANULE as u64
    }
}

/// Unmaps the pages of a run of granules; the page cache keeps them.
fn give_back(run: &std::ops::Range<usize>) {
    if !run.is_empty() {
        let bytes = run.len() * GRANULE;
        // SAFETY: the run lies in live mappings of files (the list's invariant), where this drops
        // page table entries only: the content stays, changed pages stay changed.
        unsafe {
            libc::madvise((run.start * GRANULE) as *mut libc::c_void, bytes, libc::MADV_DONTNEED)
        };
    }
}

//! Which pages of mapped files are resident, and a bound on them.
//!
//! Problem: pages of a mapped file count as memory of the process once they are touched, but
//! unmapping them after each access makes the next one pay for the page faults again.
//!
//! Idea: granules of 2 MiB (what the kernel may map at one fault) are remembered when they are
//! touched and stay mapped. They count in the arena like buffers kept for reuse, and are given up
//! when somebody needs the room. Which ones is left to chance: accesses mostly sweep, again and
//! again, and under a sweep longer than the bound "oldest first" would give back exactly what is
//! wanted next.
//!
//! Invariants: a granule counts once; one that is pinned by a running copy is not given back; all
//! addresses in the list belong to live mappings (`forget` is called before unmapping).

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::sync::PoisonError;

use crate::pool::Arena;

/// The unit of counting, and the alignment of mappings: a huge page.
pub const GRANULE: usize = 2 << 20;

/// Granules touched, by number (address / [`GRANULE`]).
#[derive(Debug, Default)]
pub(crate) struct Resident {
    /// In no order.
    touched: Vec<usize>,
    /// Where each of them is in that list.
    places: HashMap<usize, usize>,
    pinned: Vec<(usize, usize)>,
    /// State of the generator that picks.
    chance: u64,
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
            if resident.add(granule) {
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
        let mut number = 0;
        // Whichever is shorter: the mapping, or the list.
        if gone.len() < resident.touched.len() {
            gone.for_each(|granule| number += u64::from(resident.remove(granule)));
        } else {
            let touched = resident.touched.clone();
            let mine = touched.into_iter().filter(|granule| gone.contains(granule));
            mine.for_each(|granule| number += u64::from(resident.remove(granule)));
        }
        self.uncount_mapped(number * GRANULE as u64);
    }
}

impl Resident {
    fn add(&mut self, granule: usize) -> bool {
        let place = self.touched.len();
        if let Entry::Vacant(vacant) = self.places.entry(granule) {
            vacant.insert(place);
            self.touched.push(granule);
            return true;
        }
        false
    }

    fn remove(&mut self, granule: usize) -> bool {
        let Some(place) = self.places.remove(&granule) else { return false };
        self.touched.swap_remove(place);
        if let Some(moved) = self.touched.get(place) {
            self.places.insert(*moved, place);
        }
        true
    }

    /// Gives back granules until `excess` bytes are free. Returns the bytes freed.
    fn evict(&mut self, excess: u64) -> u64 {
        let wanted = excess.div_ceil(GRANULE as u64);
        let (mut freed, mut misses) = (0u64, 0u32);
        // Pinned ones are few; should they be all there is, it ends nevertheless.
        while freed < wanted && !self.touched.is_empty() && misses < 64 {
            self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = (self.chance >> 33) as usize % self.touched.len();
            let granule = self.touched[place];
            if self.pinned.iter().any(|(lo, hi)| (*lo..*hi).contains(&granule)) {
                misses += 1;
                continue;
            }
            self.remove(granule);
            give_back(granule);
            freed += 1;
        }
        freed * GRANULE as u64
    }
}

/// Unmaps the pages of a granule; the page cache keeps them.
fn give_back(granule: usize) {
    // SAFETY: the granule lies in a live mapping of a file (the list's invariant), where this drops
    // page table entries only: the content stays, changed pages stay changed.
    unsafe {
        libc::madvise((granule * GRANULE) as *mut libc::c_void, GRANULE, libc::MADV_DONTNEED)
    };
}

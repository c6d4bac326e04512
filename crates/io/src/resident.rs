//! Resident pages of mapped files, and a bound on them.
//!
//! Problem: pages of a mapped file count as memory of the process once they are touched, but
//! unmapping them after each access makes the next one pay for the page faults again.
//!
//! Idea: granules of 2 MiB (the most that the kernel maps at one fault) are recorded when they are
//! touched and stay mapped. They count in the arena like buffers cached for reuse, and are unmapped
//! when the memory is needed. The evicted granule is chosen at random: accesses mostly sweep
//! repeatedly, and in a sweep longer than the bound, evicting the oldest first would unmap exactly
//! the granules that are needed next.
//!
//! Invariants: a granule counts once; a granule that a running copy pins is not unmapped; all
//! addresses in the list belong to live mappings (`forget` is called before unmapping).

#![allow(unsafe_code)]

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::ops::Range;

use crate::page::GRANULE;

/// Touched granules, by number (address / [`GRANULE`]).
#[derive(Debug, Default)]
pub(crate) struct Resident {
    /// Granule numbers, in no order.
    touched: Vec<usize>,
    /// Index of each granule in that list.
    places: HashMap<usize, usize>,
    pinned: Vec<(usize, usize)>,
    /// State of the random number generator.
    chance: u64,
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

    /// Keeps granules resident while they are copied; returns how many were not resident.
    pub(crate) fn pin(&mut self, range: (usize, usize)) -> u64 {
        self.pinned.push(range);
        (range.0..range.1).map(|granule| u64::from(self.add(granule))).sum()
    }

    /// Ends one [`pin`](Resident::pin).
    pub(crate) fn unpin(&mut self, range: (usize, usize)) {
        if let Some(index) = self.pinned.iter().position(|pinned| *pinned == range) {
            self.pinned.swap_remove(index);
        }
    }

    /// Removes the granules of a mapping from the list; returns their number.
    pub(crate) fn forget(&mut self, gone: Range<usize>) -> u64 {
        // Iterate over the shorter one: the mapping or the list.
        if gone.len() < self.touched.len() {
            return gone.map(|granule| u64::from(self.remove(granule))).sum();
        }
        let touched = self.touched.clone();
        let mine = touched.into_iter().filter(|granule| gone.contains(granule));
        mine.map(|granule| u64::from(self.remove(granule))).sum()
    }

    /// Unmaps granules until `excess` bytes are free; returns the bytes freed.
    pub(crate) fn evict(&mut self, excess: u64) -> u64 {
        let wanted = excess.div_ceil(GRANULE as u64);
        let (mut freed, mut misses) = (0u64, 0u32);
        // Pinned granules are few; the limit on misses ends the loop even if only they remain.
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
    // SAFETY: the granule is in a live mapping of a file (invariant of the list). There this call
    // drops only page table entries: the content remains, including changed pages.
    unsafe {
        libc::madvise((granule * GRANULE) as *mut libc::c_void, GRANULE, libc::MADV_DONTNEED)
    };
}

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

#![allow(unsafe_code)]

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::ops::Range;

use crate::page::GRANULE;

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

    /// Keeps granules while they are copied; returns how many were not resident.
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

    /// Takes the granules of a mapping out of the list; returns how many there were.
    pub(crate) fn forget(&mut self, gone: Range<usize>) -> u64 {
        // Whichever is shorter: the mapping, or the list.
        if gone.len() < self.touched.len() {
            return gone.map(|granule| u64::from(self.remove(granule))).sum();
        }
        let touched = self.touched.clone();
        let mine = touched.into_iter().filter(|granule| gone.contains(granule));
        mine.map(|granule| u64::from(self.remove(granule))).sum()
    }

    /// Gives back granules until `excess` bytes are free. Returns the bytes freed.
    pub(crate) fn evict(&mut self, excess: u64) -> u64 {
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

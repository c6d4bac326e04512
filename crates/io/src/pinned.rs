//! Pages of mapped files that a running copy keeps resident.

use std::sync::PoisonError;

use crate::page::GRANULE;
use crate::pool::Arena;

/// Keeps a range of a mapping counted and resident while it is being copied.
#[derive(Debug)]
pub struct Pinned<'a> {
    arena: &'a Arena,
    range: (usize, usize),
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut resident = self.arena.resident().lock().unwrap_or_else(PoisonError::into_inner);
        resident.unpin(self.range);
    }
}

impl Arena {
    /// See [`Mapping::pin`](crate::mapping::Mapping::pin); `first..end` are addresses.
    pub(crate) fn pin(&self, first: usize, end: usize) -> Pinned<'_> {
        let range = (first / GRANULE, end.div_ceil(GRANULE));
        let mut resident = self.resident().lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = resident.pin(range);
        if fresh > 0 {
            let excess = self.count_mapped(fresh * GRANULE as u64);
            let freed = resident.evict(excess);
            self.uncount_mapped(freed);
        }
        Pinned { arena: self, range }
    }

    /// Removes the granules of a mapping from the count: the mapping is about to be unmapped.
    pub(crate) fn forget_pages(&self, first: usize, end: usize) {
        if !self.ours() {
            return;
        }
        let gone = first / GRANULE..end.div_ceil(GRANULE);
        let mut resident = self.resident().lock().unwrap_or_else(PoisonError::into_inner);
        let number = resident.forget(gone);
        self.uncount_mapped(number * GRANULE as u64);
    }
}

//! The memory budget of the process, and the buffers that live in it.
//!
//! Problem: an out-of-core program promises to stay within so many bytes. Allocating per call
//! cannot promise that, and it is slow: memory given back to the system must be zeroed, and on a
//! virtual machine even fetched from the host, before it can be used again.
//!
//! Idea: one [`Arena`] counts every byte that is held, as a [`Buffer`] (memory of the arena) or as a
//! [`Reservation`] (memory that somebody else holds). Buffers that are dropped stay mapped in a free
//! list, which is given up when the room is needed. So are decoded chunks (`chunk_cache.rs`), in
//! memory that the arena may reclaim.
//!
//! Invariants: bytes held + kept for reuse + reclaimable (of others too, `reclaimable.rs`) + mapped pages
//! (`resident.rs`) stay within the limit; whoever asks for memory sees only what is held; a request that does not fit is refused at
//! once (waiting for others could wait for ever); after a fork the child has its own, empty arena and
//! never touches the lock of its parent's.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chunk_shelf::{Chunk, ChunkCache, PART};
use crate::error::{BudgetFailure, StorageError};
pub use crate::page::PAGE;
use crate::region::{Reclaimable, Region};
use crate::resident::Resident;
use crate::{probe, process};

/// A budget of memory: a handle, cheap to clone. Usually [`Arena::global`].
#[derive(Debug, Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pid: u32,
    state: Mutex<State>,
    resident: Mutex<Resident>,
    chunks: ChunkCache,
}

#[derive(Debug)]
pub(crate) struct State {
    limit: u64,
    pub(crate) used: u64,
    peak: u64,
    kept: u64,
    reclaimable_bytes: u64,
    mapped: u64,
    free: Vec<Region>,
    /// What its owners do not need now (`reclaimable.rs`).
    pub(crate) reclaimable: Vec<Reclaimable>,
}

/// Bytes counted as held until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    arena: Arena,
    bytes: u64,
}

/// Memory of the arena: aligned to pages (to huge pages from 1 MiB on). Its content is unspecified
/// at first. Dropping it hands the memory back for reuse.
#[derive(Debug)]
pub struct Buffer {
    arena: Arena,
    region: Option<Region>,
    len: usize,
}

static GLOBAL: AtomicPtr<Arena> = AtomicPtr::new(std::ptr::null_mut());

impl Arena {
    /// An arena of its own, for tests and embedders.
    pub fn new(limit: u64) -> Arena {
        let (free, reclaimable) = (Vec::new(), Vec::new());
        let state = State {
            limit,
            used: 0,
            peak: 0,
            kept: 0,
            reclaimable_bytes: 0,
            mapped: 0,
            free,
            reclaimable,
        };
        let (state, resident) = (Mutex::new(state), Mutex::default());
        let (pid, chunks) = (std::process::id(), ChunkCache::default());
        Arena { shared: Arc::new(Shared { pid, state, resident, chunks }) }
    }

    /// The arena of this process. Its limit is a quarter of what its control group and the
    /// machine leave it until [`set_limit`](Arena::set_limit) is called. A forked child gets a new one.
    pub fn global() -> Arena {
        let now = GLOBAL.load(Ordering::Acquire);
        // SAFETY: the pointer is null or was leaked below and is never freed.
        if let Some(arena) = unsafe { now.as_ref() } {
            if arena.shared.pid == process::id() {
                return arena.clone();
            }
        }
        let fresh = Box::into_raw(Box::new(Arena::new(probe::memory().default_budget())));
        match GLOBAL.compare_exchange(now, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked, valid for ever.
            Ok(_) => unsafe { (*fresh).clone() },
            Err(theirs) => {
                // SAFETY: `fresh` was not published; `theirs` was leaked by another thread.
                unsafe {
                    drop(Box::from_raw(fresh));
                    (*theirs).clone()
                }
            }
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the budget, bytes. What is held already stays; new requests must fit.
    pub fn set_limit(&self, bytes: u64) {
        let mut state = self.state();
        let shrinks = bytes < state.limit;
        state.limit = bytes;
        self.settle(state);
        self.trim_chunks();
        if shrinks {
            // Room is short: chunks that come again are no reason to keep them.
            self.chunks().shelf().forget_names();
        }
    }

    /// The budget, bytes.
    pub fn limit(&self) -> u64 {
        self.state().limit
    }

    /// Bytes held now, by buffers and reservations.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Bytes that are kept for reuse and given up when the room is needed.
    pub fn kept(&self) -> u64 {
        self.state().kept
    }

    /// Bytes that a new request could get.
    pub fn available(&self) -> u64 {
        let state = self.state();
        state.limit.saturating_sub(state.used)
    }

    /// The largest [`used`](Arena::used) since the start or the last reset.
    pub fn peak(&self) -> u64 {
        self.state().peak
    }

    /// Starts a new measurement of the peak.
    pub fn reset_peak(&self) {
        let mut state = self.state();
        state.peak = state.used;
    }

    /// Gives the memory that is kept for reuse back to the system.
    pub fn trim(&self) {
        let mut state = self.state();
        state.kept = 0;
        let dropped = std::mem::take(&mut state.free);
        drop(state);
        drop(dropped);
    }

    /// Counts `bytes` as held. `what` names the use, for the error.
    pub fn reserve(&self, what: &'static str, bytes: u64) -> Result<Reservation, StorageError> {
        self.reserve_leaving(what, bytes, 0)
    }

    /// Counts `bytes` as held if so many more (`left`) stay free.
    pub fn reserve_leaving(
        &self,
        what: &'static str,
        bytes: u64,
        left: u64,
    ) -> Result<Reservation, StorageError> {
        let mut state = self.state();
        state.admit(what, bytes.saturating_add(left))?;
        state.take(bytes);
        self.settle(state);
        Ok(Reservation { arena: self.clone(), bytes })
    }

    /// A buffer of at least `bytes` bytes; counted in whole pages.
    pub fn buffer(&self, what: &'static str, bytes: usize) -> Result<Buffer, StorageError> {
        let whole = bytes.max(1).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        let mut state = self.state();
        state.admit(what, whole as u64)?;
        let reused = state.reuse(whole);
        state.take(whole as u64);
        if let Some((region, surplus)) = reused {
            drop(state);
            drop(surplus);
            return Ok(Buffer { arena: self.clone(), region: Some(region), len: bytes });
        }
        self.settle(state);
        match Region::map(whole) {
            Ok(region) => Ok(Buffer { arena: self.clone(), region: Some(region), len: bytes }),
            Err(error) => {
                self.state().used -= whole as u64;
                Err(error)
            }
        }
    }

    /// Gives up what is kept for reuse, then decoded chunks, then mapped pages, then what others have unpinned,
    /// until all fits the limit again.
    pub(crate) fn settle(&self, mut state: MutexGuard<'_, State>) {
        let dropped = state.make_room();
        let (excess, reclaimable_bytes, mapped) =
            (state.excess(), state.reclaimable_bytes, state.mapped);
        drop(state);
        drop(dropped);
        if excess > 0 && reclaimable_bytes > 0 {
            self.give_way(excess);
        }
        let excess = excess.saturating_sub(reclaimable_bytes);
        if excess > 0 && mapped > 0 {
            self.evict_mapped(excess.min(mapped));
        }
        if excess > mapped {
            let mut state = self.state();
            let excess = state.excess();
            state.recall(excess);
        }
    }

    /// Memory for something that gives way at once (`give_way`): counted within the limit, but
    /// nobody is refused for it, so it is not held. `None` if others need the room.
    pub(crate) fn unpin(&self, bytes: usize) -> Option<Region> {
        let whole = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let mut state = self.state();
        let parts = [state.reclaimable_bytes, state.mapped, state.unpinned_bytes()];
        let others = parts.into_iter().fold(state.used, u64::saturating_add);
        if others.saturating_add(whole as u64) > state.limit {
            return None;
        }
        let reused = state.reuse(whole);
        state.reclaimable_bytes += whole as u64;
        let dropped = state.make_room();
        drop(state);
        drop(dropped);
        if let Some((region, surplus)) = reused {
            drop(surplus);
            return Some(region);
        }
        let fresh = Region::map(whole).ok();
        if fresh.is_none() {
            self.state().reclaimable_bytes -= whole as u64;
        }
        fresh
    }

    /// Takes back what was reclaimable; returns its bytes.
    pub(crate) fn take_back(&self, region: Region) -> u64 {
        let bytes = region.bytes as u64;
        let mut state = self.state();
        state.reclaimable_bytes = state.reclaimable_bytes.saturating_sub(bytes);
        let surplus = state.keep(region);
        drop(state);
        drop(surplus);
        bytes
    }

    /// All bytes, whoever has them.
    #[cfg(test)]
    pub(crate) fn committed(&self) -> u64 {
        self.state().all()
    }

    /// The decoded chunks that are kept.
    pub(crate) fn chunks(&self) -> &ChunkCache {
        &self.shared.chunks
    }

    /// Pages of mapped files that are resident, bytes; given back when the room is needed.
    pub fn mapped(&self) -> u64 {
        self.state().mapped
    }

    pub(crate) fn resident(&self) -> &Mutex<Resident> {
        &self.shared.resident
    }

    /// Counts mapped pages; returns by how much they are now too many.
    pub(crate) fn count_mapped(&self, bytes: u64) -> u64 {
        let mut state = self.state();
        state.mapped += bytes;
        let most = state.limit - state.limit / 8;
        let over = state.mapped.saturating_sub(most);
        state.excess().saturating_sub(state.kept).saturating_sub(state.reclaimable_bytes).max(over)
    }

    /// Counts mapped pages as given back; buffers kept for reuse, and decoded chunks, go where it is
    /// still too much.
    pub(crate) fn uncount_mapped(&self, bytes: u64) {
        let mut state = self.state();
        state.mapped = state.mapped.saturating_sub(bytes);
        let dropped = state.make_room();
        let excess = state.excess().min(state.reclaimable_bytes);
        drop(state);
        drop(dropped);
        if excess > 0 {
            self.give_way(excess);
        }
    }

    /// Gives back at least `bytes` of mapped pages, if there are so many that are not in use.
    pub(crate) fn evict_mapped(&self, bytes: u64) {
        let mut resident = self.resident().lock().unwrap_or_else(PoisonError::into_inner);
        let freed = resident.evict(bytes);
        self.uncount_mapped(freed);
    }

    /// Chunks give way until so many bytes are free, or none is left.
    pub(crate) fn give_way(&self, bytes: u64) {
        let mut left = bytes;
        // Some may have no memory yet, and get none now.
        while left > 0 {
            let gone = self.chunks().evict(left);
            if gone.is_empty() {
                return;
            }
            left = left.saturating_sub(self.release_chunks(gone));
        }
    }

    /// After the limit was changed.
    fn trim_chunks(&self) {
        let (cache, most) = (self.chunks(), self.limit() / PART);
        let gone = cache.oldest(&mut cache.shelf(), |shelf, _| shelf.bytes > most);
        self.release_chunks(gone);
    }

    /// Takes back the memory of chunks that are no longer on the shelf; returns how much it was.
    pub(crate) fn release_chunks(&self, gone: Vec<Arc<Chunk>>) -> u64 {
        gone.iter().filter_map(|chunk| chunk.take()).map(|region| self.take_back(region)).sum()
    }

    /// Whether two handles are of the same arena.
    pub(crate) fn same(&self, other: &Arena) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether this process made the arena; otherwise its lock may be held by a thread that a fork
    /// left behind.
    pub(crate) fn ours(&self) -> bool {
        self.shared.pid == process::id()
    }
}

impl State {
    pub(crate) fn admit(&self, what: &'static str, bytes: u64) -> Result<(), StorageError> {
        match self.used.checked_add(bytes) {
            Some(sum) if sum <= self.limit => Ok(()),
            _ => Err(StorageError::Budget(BudgetFailure {
                what,
                needed: bytes,
                limit: self.limit,
                used: self.used,
            })),
        }
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
        self.peak = self.peak.max(self.used);
    }

    /// Bytes over the limit, all together.
    fn excess(&self) -> u64 {
        self.all().saturating_sub(self.limit)
    }

    fn all(&self) -> u64 {
        let parts = [self.kept, self.reclaimable_bytes, self.mapped, self.unpinned_bytes()];
        parts.into_iter().fold(self.used, u64::saturating_add)
    }

    /// Takes kept regions out, oldest first, until all fits. The caller drops them after the lock.
    fn make_room(&mut self) -> Vec<Region> {
        let mut out = Vec::new();
        while self.excess() > 0 && !self.free.is_empty() {
            let region = self.free.remove(0);
            self.kept -= region.bytes as u64;
            out.push(region);
        }
        out
    }

    /// A kept region of `whole` bytes, or one that is at most a quarter (or a few pages) larger, cut
    /// to size; what was cut off is for the caller to drop after the lock. So a buffer counts as what
    /// was asked for, and an operation holds no more than it may. Sizes that come by turns soon find a
    /// region each.
    fn reuse(&mut self, whole: usize) -> Option<(Region, Option<Region>)> {
        let most = whole.saturating_add((whole / 4).max(4 * PAGE));
        let (index, bytes) = self
            .free
            .iter()
            .enumerate()
            .filter(|(_, region)| (whole..=most).contains(&region.bytes))
            .map(|(index, region)| (index, region.bytes as u64))
            .min_by_key(|(index, bytes)| (*bytes, usize::MAX - *index))?;
        self.kept -= bytes;
        Some(self.free.remove(index).cut(whole))
    }

    /// Accepts a region back; returns it when there is no room to keep it.
    fn give_back(&mut self, region: Region) -> Option<Region> {
        self.used = self.used.saturating_sub(region.bytes as u64);
        self.keep(region)
    }

    /// Keeps a region for reuse; returns it when there is no room.
    fn keep(&mut self, region: Region) -> Option<Region> {
        let bytes = region.bytes as u64;
        if self.all().saturating_add(bytes) > self.limit {
            return Some(region);
        }
        self.kept += bytes;
        self.free.push(region);
        None
    }
}

impl State {
    /// Bytes that are reclaimable to their owners.
    fn unpinned_bytes(&self) -> u64 {
        self.reclaimable.iter().map(|region| region.bytes).sum()
    }

    /// Takes pages back, oldest first, until so many bytes are free, or none is left.
    fn recall(&mut self, bytes: u64) {
        let mut freed = 0;
        while freed < bytes && !self.reclaimable.is_empty() {
            let region = self.reclaimable.remove(0);
            region.remove();
            freed += region.bytes;
        }
    }
}

impl Reservation {
    /// Bytes counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back a part: from now on `bytes` are counted. Cannot grow.
    pub fn shrink(&mut self, bytes: u64) {
        if bytes < self.bytes && self.arena.ours() {
            let mut state = self.arena.state();
            state.used = state.used.saturating_sub(self.bytes - bytes);
        }
        self.bytes = self.bytes.min(bytes);
    }
}

impl Reservation {
    /// The arena, and the bytes, which stay counted.
    pub(crate) fn into_parts(mut self) -> (Arena, u64) {
        (self.arena.clone(), std::mem::take(&mut self.bytes))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

impl Buffer {
    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ref().map_or(NonNull::dangling().as_ptr(), |region| region.start.as_ptr())
    }

    /// Bytes asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte was asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory, to read.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the region holds at least `len` initialised bytes (anonymous memory is zeroed)
        // and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The memory, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            if self.arena.ours() {
                let surplus = self.arena.state().give_back(region);
                drop(surplus);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_reused_and_counted() {
        let arena = Arena::new(16 << 20);
        let small = arena.buffer("a test", 5000).unwrap();
        assert_eq!(0, small.as_ptr() as usize % PAGE);
        assert_eq!(8192, arena.used());
        let large = arena.buffer("a test", 3 << 20).unwrap();
        assert_eq!(0, large.as_ptr() as usize % crate::page::GRANULE);
        let was = large.as_ptr();
        drop(large);
        assert_eq!((8192, 3 << 20), (arena.used(), arena.kept()));
        let again = arena.buffer("a test", (3 << 20) - 100).unwrap();
        assert_eq!(was, again.as_ptr());
        assert_eq!((3 << 20) - 100, again.len());
        drop((small, again));
        assert_eq!(0, arena.used());
        assert_eq!(8192 + (3 << 20), arena.peak());
    }

    #[test]
    fn a_buffer_counts_as_what_was_asked_for_also_in_memory_used_again() {
        let arena = Arena::new(16 << 20);
        for (first, then) in [(12 * PAGE, 11 * PAGE), (3 << 20, (5 << 20) / 2)] {
            drop(arena.buffer("a test", first).unwrap());
            arena.reset_peak();
            let mut again = arena.buffer("a test", then).unwrap();
            again.as_mut_slice()[then - 1] = 1;
            assert_eq!((then as u64, then as u64, 0), (arena.used(), arena.peak(), arena.kept()));
            drop(again);
            assert_eq!((0, then as u64), (arena.used(), arena.kept()));
            arena.trim();
        }
    }

    #[test]
    fn the_budget_holds_and_kept_memory_makes_room() {
        let arena = Arena::new(8 << 20);
        drop(arena.buffer("a test", 6 << 20).unwrap());
        assert_eq!(6 << 20, arena.kept());
        let held = arena.reserve("a test", 5 << 20).unwrap();
        assert_eq!((5 << 20, 0), (arena.used(), arena.kept()));
        let error = arena.buffer("a window", 4 << 20).unwrap_err();
        let expected =
            BudgetFailure { what: "a window", needed: 4 << 20, limit: 8 << 20, used: 5 << 20 };
        assert_eq!(StorageError::Budget(expected), error);
        drop(held);
        assert_eq!(0, arena.used());
        arena.buffer("a window", 4 << 20).unwrap();
        assert!(arena.reserve_leaving("a test", 6 << 20, (2 << 20) + 1).is_err());
        let held = arena.reserve_leaving("a test", 6 << 20, 2 << 20).unwrap();
        assert_eq!((6 << 20, 2 << 20), (held.bytes(), arena.available()));
        drop(held);
        assert!(arena.buffer("a window", usize::MAX).is_err());
        arena.set_limit(1 << 20);
        assert_eq!(0, arena.kept());
    }

    #[test]
    fn many_threads_never_pass_the_limit() {
        let arena = Arena::new(4 << 20);
        std::thread::scope(|scope| {
            for seed in 0..4usize {
                let arena = arena.clone();
                scope.spawn(move || {
                    for k in 0..500 {
                        let bytes = (seed * 7919 + k * 104_729) % (3 << 20) + 1;
                        if let Ok(mut buffer) = arena.buffer("a test", bytes) {
                            buffer.as_mut_slice()[bytes - 1] = 1;
                            let state = arena.state(); // both at one moment
                            assert!(state.used + state.kept <= 4 << 20);
                        }
                    }
                });
            }
        });
        assert_eq!(0, arena.used());
        assert!(arena.peak() <= 4 << 20);
    }

    #[test]
    fn a_forked_child_has_its_own_arena() {
        let mine = Arena::global();
        let buffer = mine.buffer("a test", 4096).unwrap();
        let lock = mine.state();
        // SAFETY: the child only touches memory, and leaves without running destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // The parent's lock is held here for ever: none of this may wait for it.
            drop(buffer);
            let theirs = Arena::global();
            let fresh = theirs.used() == 0 && theirs.buffer("a test", 4096).is_ok();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!fresh)) };
        }
        drop(lock);
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(0, status);
    }
}

//! The memory budget of the process, and the buffers that live in it.
//!
//! Problem: an out-of-core program must stay within a fixed number of bytes. Allocation for each
//! call cannot guarantee that, and it is slow: memory released to the system must be zeroed, and on
//! a virtual machine even fetched from the host, before it can be used again.
//!
//! Idea: one [`Arena`] counts every byte in use, as a [`Buffer`] (memory of the arena) or as a
//! [`Reservation`] (memory allocated elsewhere). Dropped buffers stay mapped in a free list, which
//! is released when the memory is needed. The same holds for decoded chunks (`chunk_cache.rs`), in
//! memory that the arena may reclaim.
//!
//! Invariants: the sum of reserved bytes, bytes cached for reuse, reclaimable bytes (of other
//! owners too, `reclaimable.rs`) and mapped pages (`resident.rs`) stays within the limit. A request
//! for memory is limited only by reserved bytes. A request that does not fit fails immediately
//! (waiting for others could take for ever). After a fork the child has its own, empty arena and
//! never touches the lock of its parent's arena.

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
    /// Pages that their owners do not need now (`reclaimable.rs`).
    pub(crate) reclaimable: Vec<Reclaimable>,
}

/// Bytes counted as in use until this value is dropped.
#[derive(Debug)]
pub struct Reservation {
    arena: Arena,
    bytes: u64,
}

/// Memory of the arena, aligned to pages (to huge pages from 1 MiB on).
///
/// The content is unspecified at first. Dropping a buffer returns its memory for reuse.
#[derive(Debug)]
pub struct Buffer {
    arena: Arena,
    region: Option<Region>,
    len: usize,
}

static GLOBAL: AtomicPtr<Arena> = AtomicPtr::new(std::ptr::null_mut());

impl Arena {
    /// Makes a separate arena, for tests and embedders.
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

    /// Returns the arena of this process; a forked child gets a new one.
    ///
    /// Until [`set_limit`](Arena::set_limit) is called, the limit is a quarter of the memory that
    /// the machine and the control group of the process leave it.
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

    /// Sets the budget in bytes. Memory in use stays valid; new requests must fit.
    pub fn set_limit(&self, bytes: u64) {
        let mut state = self.state();
        let shrinks = bytes < state.limit;
        state.limit = bytes;
        self.settle(state);
        self.trim_chunks();
        if shrinks {
            // Memory is short: that a chunk is read again is no longer a reason to cache it.
            self.chunks().shelf().forget_names();
        }
    }

    /// Budget in bytes.
    pub fn limit(&self) -> u64 {
        self.state().limit
    }

    /// Bytes in use now, by buffers and reservations.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Bytes that are cached for reuse, and released when the memory is needed.
    pub fn kept(&self) -> u64 {
        self.state().kept
    }

    /// Bytes that a new request can get.
    pub fn available(&self) -> u64 {
        let state = self.state();
        state.limit.saturating_sub(state.used)
    }

    /// The largest [`used`](Arena::used) since the start or the last reset.
    pub fn peak(&self) -> u64 {
        self.state().peak
    }

    /// Restarts the measurement of the peak.
    pub fn reset_peak(&self) {
        let mut state = self.state();
        state.peak = state.used;
    }

    /// Releases the memory that is cached for reuse to the system.
    pub fn trim(&self) {
        let mut state = self.state();
        state.kept = 0;
        let dropped = std::mem::take(&mut state.free);
        drop(state);
        drop(dropped);
    }

    /// Counts `bytes` as in use. `what` names the use, for the error.
    pub fn reserve(&self, what: &'static str, bytes: u64) -> Result<Reservation, StorageError> {
        self.reserve_leaving(what, bytes, 0)
    }

    /// Counts `bytes` as in use if `left` more bytes stay free.
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

    /// Returns a buffer of at least `bytes` bytes, counted in whole pages.
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

    /// Releases memory until everything fits the limit: first memory cached for reuse, then decoded
    /// chunks, then mapped pages, then reclaimable pages of other owners.
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

    /// Returns memory that is reclaimable at any time (`give_way`); `None` if others need it.
    ///
    /// The memory counts within the limit, but no request fails because of it, so it does not count
    /// as in use.
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

    /// Takes reclaimable memory back; returns its bytes.
    pub(crate) fn take_back(&self, region: Region) -> u64 {
        let bytes = region.bytes as u64;
        let mut state = self.state();
        state.reclaimable_bytes = state.reclaimable_bytes.saturating_sub(bytes);
        let surplus = state.keep(region);
        drop(state);
        drop(surplus);
        bytes
    }

    /// Sum of all counted bytes.
    #[cfg(test)]
    pub(crate) fn committed(&self) -> u64 {
        self.state().all()
    }

    /// Cache of decoded chunks.
    pub(crate) fn chunks(&self) -> &ChunkCache {
        &self.shared.chunks
    }

    /// Bytes of resident pages of mapped files, unmapped when the memory is needed.
    pub fn mapped(&self) -> u64 {
        self.state().mapped
    }

    pub(crate) fn resident(&self) -> &Mutex<Resident> {
        &self.shared.resident
    }

    /// Counts mapped pages; returns the bytes that now exceed the limit.
    pub(crate) fn count_mapped(&self, bytes: u64) -> u64 {
        let mut state = self.state();
        state.mapped += bytes;
        let most = state.limit - state.limit / 8;
        let over = state.mapped.saturating_sub(most);
        state.excess().saturating_sub(state.kept).saturating_sub(state.reclaimable_bytes).max(over)
    }

    /// Counts mapped pages as released; if the sum is still too large, releases cached buffers and
    /// decoded chunks.
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

    /// Unmaps at least `bytes` of mapped pages, or all that are not in use.
    pub(crate) fn evict_mapped(&self, bytes: u64) {
        let mut resident = self.resident().lock().unwrap_or_else(PoisonError::into_inner);
        let freed = resident.evict(bytes);
        self.uncount_mapped(freed);
    }

    /// Evicts decoded chunks until `bytes` are free, or none is left.
    pub(crate) fn give_way(&self, bytes: u64) {
        let mut left = bytes;
        // A chunk without memory yet frees nothing, and will get none now.
        while left > 0 {
            let gone = self.chunks().evict(left);
            if gone.is_empty() {
                return;
            }
            left = left.saturating_sub(self.release_chunks(gone));
        }
    }

    /// Evicts chunks after a change of the limit.
    fn trim_chunks(&self) {
        let (cache, most) = (self.chunks(), self.limit() / PART);
        let gone = cache.oldest(&mut cache.shelf(), |shelf, _| shelf.bytes > most);
        self.release_chunks(gone);
    }

    /// Takes back the memory of chunks that are no longer on the shelf; returns its bytes.
    pub(crate) fn release_chunks(&self, gone: Vec<Arc<Chunk>>) -> u64 {
        gone.iter().filter_map(|chunk| chunk.take()).map(|region| self.take_back(region)).sum()
    }

    /// Returns whether two handles are of the same arena.
    pub(crate) fn same(&self, other: &Arena) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns whether this process made the arena. If not, a thread that does not exist in this
    /// forked child may hold the lock.
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

    /// Bytes by which the sum of all counted bytes exceeds the limit.
    fn excess(&self) -> u64 {
        self.all().saturating_sub(self.limit)
    }

    fn all(&self) -> u64 {
        let parts = [self.kept, self.reclaimable_bytes, self.mapped, self.unpinned_bytes()];
        parts.into_iter().fold(self.used, u64::saturating_add)
    }

    /// Removes cached regions, oldest first, until everything fits. The caller drops them after
    /// releasing the lock.
    fn make_room(&mut self) -> Vec<Region> {
        let mut out = Vec::new();
        while self.excess() > 0 && !self.free.is_empty() {
            let region = self.free.remove(0);
            self.kept -= region.bytes as u64;
            out.push(region);
        }
        out
    }

    /// Returns a cached region of `whole` bytes, or one that is at most a quarter (or a few pages)
    /// larger, cut to size. The caller drops the part that was cut off after releasing the lock.
    ///
    /// So a buffer counts as the bytes that were requested, and an operation never holds more than
    /// it may. If a few sizes alternate, each soon has its own region.
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

    /// Takes a region back; returns it if there is no room to cache it.
    fn give_back(&mut self, region: Region) -> Option<Region> {
        self.used = self.used.saturating_sub(region.bytes as u64);
        self.keep(region)
    }

    /// Caches a region for reuse; returns it if there is no room.
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
    /// Bytes of reclaimable pages of other owners.
    fn unpinned_bytes(&self) -> u64 {
        self.reclaimable.iter().map(|region| region.bytes).sum()
    }

    /// Takes reclaimable pages back, oldest first, until `bytes` are free, or none is left.
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

    /// Reduces the reservation to `bytes`; cannot grow it.
    pub fn shrink(&mut self, bytes: u64) {
        if bytes < self.bytes && self.arena.ours() {
            let mut state = self.arena.state();
            state.used = state.used.saturating_sub(self.bytes - bytes);
        }
        self.bytes = self.bytes.min(bytes);
    }
}

impl Reservation {
    /// Splits off the arena and the bytes, which stay counted.
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

    /// Requested bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no bytes were requested.
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
                            let state = arena.state(); // read both under one lock
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
            // The parent's lock stays locked here for ever: none of these calls may wait for it.
            drop(buffer);
            let theirs = Arena::global();
            let fresh = theirs.used() == 0 && theirs.buffer("a test", 4096).is_ok();
            // SAFETY: ends the child immediately.
            unsafe { libc::_exit(i32::from(!fresh)) };
        }
        drop(lock);
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(0, status);
    }
}

//! A cache of decoded chunks, for the next access to another part of them.
//!
//! Problem. A chunk can only be decoded whole, so a program that reads it column by column decodes
//! it again for each column. But a copy in memory may be older than the file, and cached memory is
//! missing elsewhere.
//!
//! Idea. A cached chunk is named after the bytes that it was decoded from: a [`Stamp`] of the open
//! file (device, inode, size, times), the position in the file, and the codecs. Each access opens
//! its files, takes their stamps, and finds only chunks that were decoded from exactly these bytes.
//! So the cache needs no notice of changes, not even of changes by this process: a file that was
//! changed or replaced has another stamp, and its old chunks are never found again. They are
//! evicted when they are the oldest.
//!
//! This holds only if a later change must alter the stamp. The clock of file times ticks every few
//! milliseconds, and a `write` takes the time once, before it copies the bytes. So a chunk is
//! cached only if its file had not changed for [`QUIET`] when the stamp was taken, before the chunk
//! was read; and only on file systems of this machine alone, whose times come from this machine's
//! clock and are never outdated.
//!
//! The arena may reclaim the memory: a request for memory that is short evicts chunks, oldest
//! first, and waits at most until a copy out of one of them has ended.
//!
//! Chunks are cached if an access uses only a part of them (a caller that read the whole does not
//! need the rest), and if all chunks of that access fit: a longer sweep would find none of them
//! when it starts again. At first there is room for few chunks, in memory that is reused: new
//! memory costs as much as a fast codec. The room grows when a chunk is decoded that was evicted
//! earlier, and would have been found in a larger cache. A sweep that needs more room, and small
//! accesses after many evictions without a hit, record only the names of their chunks; the chunks
//! are cached when they are read again.
//!
//! Indexes of shards are cached in the same way, under keys that no chunk has. Otherwise an access
//! to one chunk of a million would read and check all entries each time.
//!
//! Invariants. Only whole, successfully decoded chunks are found. A chunk's lock is held for a
//! copy, never while waiting for memory or a disk. All memory belongs to the arena, so a forked
//! child starts with an empty cache.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use outcore_plan::{Plan, Stored};

pub use crate::chunk_shelf::CacheUse;
pub(crate) use crate::chunk_shelf::{Chunk, Key};
use crate::chunk_shelf::{Shelf, MOST, PART, START};
use crate::claim;
use crate::codec::Pipeline;
use crate::error::StorageError;
use crate::exec::report::Report;
use crate::files::{FileTable, OpenFile};
use crate::page::PAGE;
use crate::pool::Arena;
pub use crate::stamp::Stamp;

/// Smallest cached chunk: a smaller one is decoded as fast as it is found, and memory comes in
/// pages.
const LEAST: usize = PAGE;
/// A stamp, and whether data read after it may be cached under it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    stamp: Stamp,
    settled: bool,
}

impl Seen {
    /// Takes the stamp of a file before data is read from it.
    pub(crate) fn now(file: &OpenFile, arena: &Arena) -> Result<Seen, StorageError> {
        let found = file.stat()?;
        let stamp = Stamp::of(&found);
        let quiet = i128::from(arena.chunks().quiet.load(Ordering::Relaxed));
        Ok(Seen { stamp, settled: stamp.age() >= quiet })
    }
}

impl Key {
    pub(crate) fn new(seen: Seen, stored: &Stored, decoded: usize, pipeline: &Pipeline) -> Key {
        let stored = (stored.offset, stored.len, stored.mask);
        Key { stamp: seen.stamp, stored, decoded, codecs: Arc::clone(pipeline.specs()) }
    }

    /// Makes the key of an index that was found in a range of bytes of a file.
    pub(crate) fn of_index(seen: Seen, (at, len): (i64, i64), decoded: usize) -> Key {
        Key { stamp: seen.stamp, stored: (at, len, u32::MAX), decoded, codecs: Arc::new([]) }
    }
}

impl Arena {
    /// Returns how an access to chunks of `bytes` bytes, decoded, should use the cache.
    pub fn cache_use(&self, bytes: i64) -> CacheUse {
        match u64::try_from(bytes) {
            Ok(bytes) if bytes > self.limit() / PART => CacheUse::Find,
            Ok(bytes) if bytes > START => CacheUse::Again,
            Ok(_) => CacheUse::Keep,
            Err(_) => CacheUse::Never,
        }
    }

    /// Returns the number of cached chunks and their bytes, which count as free memory.
    pub fn kept_chunks(&self) -> (usize, u64) {
        let shelf = self.chunks().shelf();
        (shelf.chunks.len(), shelf.bytes)
    }

    /// Sets the time for which a file must have been unchanged before its chunks are cached; for
    /// tests.
    pub fn keep_chunks_after(&self, quiet: Duration) {
        let nanoseconds = u64::try_from(quiet.as_nanos()).unwrap_or(u64::MAX);
        self.chunks().quiet.store(nanoseconds, Ordering::Relaxed);
    }

    /// Caches a copy of a chunk that was decoded from `file` in the state `seen`, if that state is
    /// settled, the copy is likely to be used, and there is room.
    pub(crate) fn keep_chunk(
        &self,
        file: &OpenFile,
        (seen, key): (Seen, Key),
        bytes: &[u8],
        usage: CacheUse,
    ) {
        let cache = self.chunks();
        if matches!(usage, CacheUse::Never | CacheUse::Find) {
            return;
        }
        if !seen.settled || bytes.len() < LEAST || !claim::is_local(file) {
            return;
        }
        let chunk = Arc::new(Chunk { memory: RwLock::new(None), len: bytes.len() });
        let (pages, most) = (chunk.pages(), self.limit() / PART);
        if pages > most {
            return;
        }
        // A thread that needs this memory waits until the bytes are there. This thread may wait for
        // other chunks meanwhile: they were on the shelf before this one, so there is no circular
        // wait.
        let mut memory = chunk.memory.write().unwrap_or_else(PoisonError::into_inner);
        let gone = {
            let shelf = &mut *cache.shelf();
            if shelf.chunks.contains_key(&key) {
                return;
            }
            let Some(room) = shelf.room(&key, pages, most, usage) else { return };
            let full = |shelf: &Shelf, _| shelf.bytes + pages > room || shelf.chunks.len() >= MOST;
            let gone = cache.oldest(shelf, full);
            shelf.fruitless += gone.len();
            shelf.turn += 1;
            shelf.turns.insert(shelf.turn, key.clone());
            shelf.chunks.insert(key.clone(), (shelf.turn, Arc::clone(&chunk)));
            shelf.bytes += pages;
            cache.number.store(shelf.chunks.len(), Ordering::Relaxed);
            gone
        };
        self.release_chunks(gone);
        match self.unpin(bytes.len()) {
            Some(mut region) => {
                region.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                *memory = Some(region);
            }
            None => self.forget(&key, &chunk),
        }
    }

    /// Removes a chunk that got no memory from the shelf.
    fn forget(&self, key: &Key, chunk: &Arc<Chunk>) {
        let cache = self.chunks();
        let shelf = &mut *cache.shelf();
        let ours = shelf.chunks.get(key).filter(|(_, found)| Arc::ptr_eq(found, chunk));
        if let Some(turn) = ours.map(|(turn, _)| *turn) {
            shelf.turns.remove(&turn);
            shelf.chunks.remove(key);
            shelf.bytes -= chunk.pages();
            cache.number.store(shelf.chunks.len(), Ordering::Relaxed);
        }
    }
}

/// Counts the reads and decodes of a plan that the cache now saves.
///
/// # Errors
/// Errors of the plan, and of system calls on the files.
pub fn spared(
    plan: &Plan,
    files: &FileTable,
    pipeline: &Pipeline,
    arena: &Arena,
) -> Result<Report, StorageError> {
    let mut spared = Report::default();
    if arena.chunks().is_empty() || pipeline.is_empty() {
        return Ok(spared);
    }
    let mut stamps = HashMap::new();
    for k in 0..plan.rounds() {
        for read in plan.round(k)?.chunk_reads.iter().filter(|read| read.partly) {
            let number = read.stored.file;
            let file = files.open(number)?;
            let Some(file) = file.kept() else { continue };
            let seen = match stamps.get(&number) {
                Some(seen) => *seen,
                None => *stamps.entry(number).or_insert(Seen::now(file, arena)?),
            };
            let key = Key::new(seen, &read.stored, read.len as usize, pipeline);
            if arena.chunks().has(&key) {
                spared.reads += 1;
                spared.read_bytes += read.stored.len;
                spared.decodes += 1;
                spared.kept += 1;
            }
        }
    }
    Ok(spared)
}

#[cfg(test)]
mod tests;

//! A chunk cache: decoded chunks that are kept for the next access to another part of them.
//!
//! Problem. A chunk can only be decoded whole, and whoever reads it column by column decodes it again
//! for each column. But a copy in memory may be older than the file, and memory that is kept is missed
//! by somebody else.
//!
//! Idea. What is kept is named after the bytes it was decoded from: a [`Stamp`] of the open file
//! (device, inode, size, times), the place in it, and the codecs. Each access opens its files, asks
//! them for their stamps, and finds what was decoded from exactly these bytes or nothing. So nobody
//! tells the cache of a change, ours included: a file that was changed, or replaced, has another
//! stamp, and what was kept of it is never found again. It goes when it is the oldest.
//!
//! A stamp is only worth that if a later change must alter it. The clock of file times ticks every few
//! milliseconds, and a `write` takes the time once, before it copies the bytes. So a chunk is kept
//! only if its file had been left alone for [`QUIET`] when its stamp was taken, before it was read;
//! and only on file systems of this machine alone, whose times are ours and never outdated.
//!
//! The arena may reclaim the memory: whoever reserves or takes memory of which there is not enough
//! makes chunks give way, oldest first, and waits at most until a copy out of one of them has ended.
//!
//! Kept are chunks of which an access uses a part (who read the whole will not come back for the
//! rest), if all chunks of that access fit: a longer sweep would find none of them when it begins anew.
//! There is room for few at first, in memory that is used again and again: new memory costs as much as
//! a fast codec. It grows when a chunk is decoded that was here before, and would have been found in a
//! larger cache. A sweep over more than that, and small accesses of which none found anything for a
//! while, only leave the names of their chunks; they are kept when they come again.
//!
//! Indexes of shards are kept the same way, under keys that no chunk has: who wants one chunk of a
//! million has to read and check all entries otherwise, each time.
//!
//! Invariants. Only whole, successfully decoded chunks are found. A chunk's lock is held for a copy,
//! never while waiting for memory or a disk. Everything is in the arena, so a forked child begins
//! without any.

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

/// Smaller chunks are decoded as fast as they are found, and memory comes in pages.
const LEAST: usize = PAGE;
/// A stamp, and whether what is read from now on may be kept under it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    stamp: Stamp,
    settled: bool,
}

impl Seen {
    /// The stamp of a file now, for what will be read after this.
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

    /// Of something else than a chunk that was found in so many bytes of a file.
    pub(crate) fn of_index(seen: Seen, (at, len): (i64, i64), decoded: usize) -> Key {
        Key { stamp: seen.stamp, stored: (at, len, u32::MAX), decoded, codecs: Arc::new([]) }
    }
}

impl Arena {
    /// What an access to chunks of so many bytes, decoded, should do with the cache.
    pub fn cache_use(&self, bytes: i64) -> CacheUse {
        match u64::try_from(bytes) {
            Ok(bytes) if bytes > self.limit() / PART => CacheUse::Find,
            Ok(bytes) if bytes > START => CacheUse::Again,
            Ok(_) => CacheUse::Keep,
            Err(_) => CacheUse::Never,
        }
    }

    /// Decoded chunks that are kept now, and their bytes. They count as free memory.
    pub fn kept_chunks(&self) -> (usize, u64) {
        let shelf = self.chunks().shelf();
        (shelf.chunks.len(), shelf.bytes)
    }

    /// Changes for how long nobody may have changed a file of which chunks are kept; for tests.
    pub fn keep_chunks_after(&self, quiet: Duration) {
        let nanoseconds = u64::try_from(quiet.as_nanos()).unwrap_or(u64::MAX);
        self.chunks().quiet.store(nanoseconds, Ordering::Relaxed);
    }

    /// Keeps a copy of a chunk that was decoded from what `seen` says of `file`, if that is certain,
    /// promises to be of use, and there is room.
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
        // Whoever needs this memory waits until the bytes are there. We may wait for others
        // meanwhile: they were on the shelf before this one, so nobody waits in a circle.
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

    /// Takes a chunk from the shelf that got no memory.
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

/// What a plan would read and decode, but for chunks that are kept now.
///
/// # Errors
/// The plan's, and what the system says of the files.
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

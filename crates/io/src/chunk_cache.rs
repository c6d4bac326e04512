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

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outcore_plan::{Plan, Stored};

use crate::claim;
use crate::codec::{CodecSpec, Pipeline};
use crate::error::StorageError;
use crate::exec::Report;
use crate::files::{FileTable, OpenFile};
use crate::pool::{Arena, Region, PAGE};

/// For so long nobody changed a file of which chunks are kept. Longer than a tick of the clock, and
/// than one call of `write` takes on a busy disk.
const QUIET: Duration = Duration::from_secs(2);
/// Chunks have this part of the budget at most: one sixteenth of the free memory by default.
const PART: u64 = 4;
/// Bytes of chunks before there is a reason for more: a few times what HDF5 has for a dataset.
const START: u64 = 32 << 20;
/// Smaller chunks are decoded as fast as they are found, and memory comes in pages.
const LEAST: usize = PAGE;
/// Each is a mapping of its own, of which a process has some ten thousands.
const MOST: usize = 4096;
/// When so many have gone since one was last found, keeping chunks at their first use is a waste.
const FRUITLESS: usize = 32;

/// What an access does with chunks that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    /// It reads and decodes all chunks itself.
    Never,
    /// It uses those it finds.
    Find,
    /// It keeps chunks that come again as well.
    Again,
    /// It keeps chunks at their first use.
    Keep,
}

/// A state of a file: any change of its bytes makes another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: i128,
    changed: i128,
}

/// A stamp, and whether what is read from now on may be kept under it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    stamp: Stamp,
    settled: bool,
}

/// Names the bytes that a chunk was decoded from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    stamp: Stamp,
    /// Where in the file, how many bytes, filter mask.
    stored: (i64, i64, u32),
    decoded: usize,
    codecs: Arc<[CodecSpec]>,
}

/// A decoded chunk; empty once it gave way.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    memory: RwLock<Option<Region>>,
    len: usize,
}

/// The chunks that are kept in memory which the arena may reclaim.
#[derive(Debug)]
pub(crate) struct ChunkCache {
    shelf: Mutex<Shelf>,
    /// Chunks on the shelf, so that nobody looks into an empty one.
    number: AtomicUsize,
    /// `QUIET` in nanoseconds.
    quiet: AtomicU64,
}

#[derive(Debug, Default)]
struct Shelf {
    chunks: HashMap<Key, (u64, Arc<Chunk>)>,
    /// Keys by the turn in which they were last used.
    turns: BTreeMap<u64, Key>,
    turn: u64,
    bytes: u64,
    /// Bytes beyond `START` that would have been of use so far.
    grown: u64,
    /// Chunks that made room for others since one was last found.
    fruitless: usize,
    /// Hashes of keys that made room for others, or never got it, and their order.
    gone: HashSet<u64>,
    left: VecDeque<u64>,
}

impl Default for ChunkCache {
    fn default() -> ChunkCache {
        let quiet = AtomicU64::new(QUIET.as_nanos() as u64);
        ChunkCache { shelf: Mutex::default(), number: AtomicUsize::new(0), quiet }
    }
}

impl Stamp {
    /// Of what the system says of a file.
    pub(crate) fn of(found: &libc::stat) -> Stamp {
        let nanoseconds =
            |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        #[allow(clippy::unnecessary_cast, reason = "these types differ between systems")]
        Stamp {
            device: found.st_dev as u64,
            inode: found.st_ino as u64,
            size: found.st_size,
            modified: nanoseconds(found.st_mtime as i64, found.st_mtime_nsec as i64),
            changed: nanoseconds(found.st_ctime as i64, found.st_ctime_nsec as i64),
        }
    }

    /// Whether a change from now on must make another one: nobody changed the file for a while.
    pub(crate) fn is_settled(&self) -> bool {
        self.age() >= QUIET.as_nanos() as i128
    }

    /// Nanoseconds since the last change; negative for a time in the future, which says nothing.
    fn age(&self) -> i128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as i128 - self.modified.max(self.changed)
    }

    /// Of its parts: device, inode, size, and the times of bytes and of the file in nanoseconds.
    pub fn new((device, inode): (u64, u64), size: i64, modified: i128, changed: i128) -> Stamp {
        Stamp { device, inode, size, modified, changed }
    }
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
}

impl Key {
    /// Of something else than a chunk that was found in so many bytes of a file.
    pub(crate) fn of_index(seen: Seen, (at, len): (i64, i64), decoded: usize) -> Key {
        Key { stamp: seen.stamp, stored: (at, len, u32::MAX), decoded, codecs: Arc::new([]) }
    }
}

impl Chunk {
    /// Does something with the bytes, unless they gave way. Must be short, and take no memory.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map(|region| work(&region.as_slice()[..self.len]))
    }

    /// Takes the memory, as soon as nobody copies out of it.
    fn take(&self) -> Option<Region> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn pages(&self) -> u64 {
        self.len.next_multiple_of(PAGE) as u64
    }
}

impl Shelf {
    /// Remembers a chunk that is not here.
    fn remember(&mut self, key: &Key) {
        let hash = self.chunks.hasher().hash_one(key);
        if self.gone.insert(hash) {
            self.left.push_back(hash);
        }
        if self.left.len() > MOST {
            if let Some(hash) = self.left.pop_front() {
                self.gone.remove(&hash);
            }
        }
    }

    /// How many bytes may be here, of `most`, if this chunk is to be kept; if not, it is remembered.
    fn room(&mut self, key: &Key, pages: u64, most: u64, usage: CacheUse) -> Option<u64> {
        let hash = self.chunks.hasher().hash_one(key);
        if self.gone.remove(&hash) {
            if self.bytes + pages > START + self.grown {
                self.grown = (self.grown + pages).min(most);
            }
        } else if usage != CacheUse::Keep || self.fruitless >= FRUITLESS {
            self.remember(key);
            return None;
        }
        Some((START + self.grown).min(most).max(pages))
    }
}

impl ChunkCache {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is nothing to be found.
    pub(crate) fn is_empty(&self) -> bool {
        self.number.load(Ordering::Relaxed) == 0
    }

    /// The chunk that was decoded from these bytes.
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<Chunk>> {
        let shelf = &mut *self.shelf();
        shelf.turn += 1;
        let (turn, chunk) = shelf.chunks.get_mut(key)?;
        if let Some(key) = shelf.turns.remove(turn) {
            *turn = shelf.turn;
            shelf.turns.insert(*turn, key);
        }
        shelf.fruitless = 0;
        Some(Arc::clone(chunk))
    }

    fn has(&self, key: &Key) -> bool {
        self.shelf().chunks.contains_key(key)
    }

    /// Takes chunks from the shelf, oldest first, while there is `too_much`.
    fn oldest(&self, shelf: &mut Shelf, too_much: impl Fn(&Shelf, u64) -> bool) -> Vec<Arc<Chunk>> {
        let (mut gone, mut freed) = (Vec::new(), 0);
        while too_much(shelf, freed) {
            let Some((_, key)) = shelf.turns.pop_first() else { break };
            shelf.remember(&key);
            if let Some((_, chunk)) = shelf.chunks.remove(&key) {
                freed += chunk.pages();
                shelf.bytes -= chunk.pages();
                gone.push(chunk);
            }
        }
        self.number.store(shelf.chunks.len(), Ordering::Relaxed);
        gone
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
        self.release(gone);
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

    /// Chunks give way until so many bytes are free, or none is left.
    pub(crate) fn give_way(&self, bytes: u64) {
        let (cache, mut left) = (self.chunks(), bytes);
        // Some may have no memory yet, and get none now.
        while left > 0 {
            let gone = {
                let shelf = &mut *cache.shelf();
                let gone = cache.oldest(shelf, |_, freed| freed < left);
                // Room is short: begin anew.
                shelf.grown = 0;
                shelf.gone.clear();
                shelf.left.clear();
                gone
            };
            if gone.is_empty() {
                return;
            }
            left = left.saturating_sub(self.release(gone));
        }
    }

    /// After the limit was changed.
    pub(crate) fn trim_chunks(&self) {
        let (cache, most) = (self.chunks(), self.limit() / PART);
        let gone = cache.oldest(&mut cache.shelf(), |shelf, _| shelf.bytes > most);
        self.release(gone);
    }

    /// Takes back the memory of chunks that are no longer on the shelf; returns how much it was.
    fn release(&self, gone: Vec<Arc<Chunk>>) -> u64 {
        gone.iter().filter_map(|chunk| chunk.take()).map(|region| self.take_back(region)).sum()
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

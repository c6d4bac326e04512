//! Decoded chunks on a shelf, and the order of their eviction: data only, for the arena to evict.
//! `chunk_cache.rs` decides which chunks are cached.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::codec::spec::CodecSpec;
use crate::page::PAGE;
use crate::region::Region;
use crate::stamp::{Stamp, QUIET};

/// Divisor of the budget for cached chunks: by default they have one sixteenth of the free memory.
pub(crate) const PART: u64 = 4;
/// Bytes of chunks that are cached without further reason: a few times the cache of an HDF5
/// dataset.
pub(crate) const START: u64 = 32 << 20;
/// Largest number of chunks: each is a separate mapping, of which a process can have some ten
/// thousand.
pub(crate) const MOST: usize = 4096;
/// After this number of evictions without a hit, chunks are no longer cached at first use.
pub(crate) const FRUITLESS: usize = 32;

/// Use of cached chunks by an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    /// Reads and decodes all chunks itself.
    Never,
    /// Uses cached chunks.
    Find,
    /// Also caches chunks that are read again.
    Again,
    /// Caches chunks at their first use.
    Keep,
}

/// Identity of the bytes that a chunk was decoded from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) stamp: Stamp,
    /// Offset in the file, number of bytes, filter mask.
    pub(crate) stored: (i64, i64, u32),
    pub(crate) decoded: usize,
    pub(crate) codecs: Arc<[CodecSpec]>,
}

/// A decoded chunk; empty after its eviction.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) memory: RwLock<Option<Region>>,
    pub(crate) len: usize,
}

/// The chunks in reclaimable memory of an arena.
#[derive(Debug)]
pub(crate) struct ChunkCache {
    shelf: Mutex<Shelf>,
    /// Number of chunks on the shelf, so that an empty one is not searched.
    pub(crate) number: AtomicUsize,
    /// [`QUIET`] in nanoseconds.
    pub(crate) quiet: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) chunks: HashMap<Key, (u64, Arc<Chunk>)>,
    /// Keys by the turn of their last use.
    pub(crate) turns: BTreeMap<u64, Key>,
    pub(crate) turn: u64,
    pub(crate) bytes: u64,
    /// Bytes beyond `START` that would have been useful so far.
    grown: u64,
    /// Chunks evicted since the last hit.
    pub(crate) fruitless: usize,
    /// Hashes of keys that were evicted, or never cached, and their order.
    gone: HashSet<u64>,
    left: VecDeque<u64>,
}

impl Default for ChunkCache {
    fn default() -> ChunkCache {
        let quiet = AtomicU64::new(QUIET.as_nanos() as u64);
        ChunkCache { shelf: Mutex::default(), number: AtomicUsize::new(0), quiet }
    }
}

impl Chunk {
    /// Calls `work` with the bytes unless they were evicted; `work` must be short, and allocate
    /// nothing.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map(|region| work(&region.as_slice()[..self.len]))
    }

    /// Takes the memory as soon as no thread copies out of it.
    pub(crate) fn take(&self) -> Option<Region> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn pages(&self) -> u64 {
        self.len.next_multiple_of(PAGE) as u64
    }
}

impl Shelf {
    /// Records the name of a chunk that is not cached.
    pub(crate) fn remember(&mut self, key: &Key) {
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

    /// Forgets all names, so that no chunk counts as read again.
    pub(crate) fn forget_names(&mut self) {
        self.grown = 0;
        self.gone.clear();
        self.left.clear();
    }

    /// Returns the bytes, at most `most`, that the shelf may have if this chunk is to be cached;
    /// otherwise records its name.
    pub(crate) fn room(
        &mut self,
        key: &Key,
        pages: u64,
        most: u64,
        usage: CacheUse,
    ) -> Option<u64> {
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
    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the cache is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.number.load(Ordering::Relaxed) == 0
    }

    /// Returns the chunk that was decoded from these bytes.
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

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.shelf().chunks.contains_key(key)
    }

    /// Removes chunks, oldest first, while `too_much` is true.
    pub(crate) fn oldest(
        &self,
        shelf: &mut Shelf,
        too_much: impl Fn(&Shelf, u64) -> bool,
    ) -> Vec<Arc<Chunk>> {
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

    /// Removes chunks, oldest first, until `bytes` are free, or none is left.
    pub(crate) fn evict(&self, bytes: u64) -> Vec<Arc<Chunk>> {
        let shelf = &mut *self.shelf();
        let gone = self.oldest(shelf, |_, freed| freed < bytes);
        shelf.forget_names(); // memory is short
        gone
    }
}

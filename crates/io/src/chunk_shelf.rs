//! Decoded chunks on a shelf, and which of them go first: data only, for the arena to evict.
//! `chunk_cache.rs` decides what comes here.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::codec::spec::CodecSpec;
use crate::page::PAGE;
use crate::region::Region;
use crate::stamp::{Stamp, QUIET};

/// Chunks have this part of the budget at most: one sixteenth of the free memory by default.
pub(crate) const PART: u64 = 4;
/// Bytes of chunks before there is a reason for more: a few times what HDF5 has for a dataset.
pub(crate) const START: u64 = 32 << 20;
/// Each is a mapping of its own, of which a process has some ten thousands.
pub(crate) const MOST: usize = 4096;
/// When so many have gone since one was last found, keeping chunks at their first use is a waste.
pub(crate) const FRUITLESS: usize = 32;

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

/// Names the bytes that a chunk was decoded from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) stamp: Stamp,
    /// Where in the file, how many bytes, filter mask.
    pub(crate) stored: (i64, i64, u32),
    pub(crate) decoded: usize,
    pub(crate) codecs: Arc<[CodecSpec]>,
}

/// A decoded chunk; empty once it gave way.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) memory: RwLock<Option<Region>>,
    pub(crate) len: usize,
}

/// The chunks that an arena has reclaimable memory to.
#[derive(Debug)]
pub(crate) struct ChunkCache {
    shelf: Mutex<Shelf>,
    /// Chunks on the shelf, so that nobody looks into an empty one.
    pub(crate) number: AtomicUsize,
    /// `QUIET` in nanoseconds.
    pub(crate) quiet: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) chunks: HashMap<Key, (u64, Arc<Chunk>)>,
    /// Keys by the turn in which they were last used.
    pub(crate) turns: BTreeMap<u64, Key>,
    pub(crate) turn: u64,
    pub(crate) bytes: u64,
    /// Bytes beyond `START` that would have been of use so far.
    grown: u64,
    /// Chunks that made room for others since one was last found.
    pub(crate) fruitless: usize,
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

impl Chunk {
    /// Does something with the bytes, unless they gave way. Must be short, and take no memory.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map(|region| work(&region.as_slice()[..self.len]))
    }

    /// Takes the memory, as soon as nobody copies out of it.
    pub(crate) fn take(&self) -> Option<Region> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn pages(&self) -> u64 {
        self.len.next_multiple_of(PAGE) as u64
    }
}

impl Shelf {
    /// Remembers a chunk that is not here.
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

    /// Begins anew: no chunk counts as one that comes again.
    pub(crate) fn forget_names(&mut self) {
        self.grown = 0;
        self.gone.clear();
        self.left.clear();
    }

    /// How many bytes may be here, of `most`, if this chunk is to be kept; if not, it is remembered.
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

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.shelf().chunks.contains_key(key)
    }

    /// Takes chunks from the shelf, oldest first, while there is `too_much`.
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

    /// Takes chunks from the shelf, oldest first, until so many bytes are free, or none is left.
    pub(crate) fn evict(&self, bytes: u64) -> Vec<Arc<Chunk>> {
        let shelf = &mut *self.shelf();
        let gone = self.oldest(shelf, |_, freed| freed < bytes);
        shelf.forget_names(); // room is short
        gone
    }
}

//! Shards: files that hold many chunks and an index (Zarr v3 `sharding_indexed`).
//!
//! The index has an (offset, length) pair of little-endian u64 per chunk of the shard in C order,
//! all ones for a missing chunk, at the start or the end of the file, followed by its CRC-32C if
//! the metadata specify it. Offsets count from the start of the file.
//!
//! A change of encoded chunks makes a new shard: the new chunks, then the old ones that stay
//! (copied by the kernel, in the order of their offsets), then the index, then a rename. Several
//! chunks of one shard in one batch share one such rewrite; the whole shard is locked in the
//! meantime. Publishing of a shard starts when the last expected chunk has been written, while
//! others are being encoded.
//!
//! Chunks without codecs are written in place once they exist. The first write to a shard creates
//! all of its chunks together, in C order, so that a shard is rewritten once and not for each
//! batch. A writer in place holds a shared lock of the shard; a rewrite holds an exclusive one.
//!
//! An access to some chunks of a shard needs their entries, but must read and check all of them
//! because of the checksum. Therefore indexes are cached like decoded chunks (`chunk_cache`): under
//! a key with the file's state, in reclaimable memory.
//!
//! Crash model: as in `files`, with shards instead of chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outcore_plan::{ChunkTable, Stored};

use super::files::{
    bytes_a_file, damaged, lock_ranges, open_if_there, open_many, vanishing, write_fill, PATIENT,
    THREADS,
};
use super::listing::{self, Listed};
use super::publish::Publisher;
use super::root::{Identity, Root};
use super::table::disjoint;
use super::unsynced::{Unsynced, Writing};
use super::{
    Cells, ChunkSink, ChunkSize, ChunkStore, InPlace, Naming, Resolved, BYTES_A_CHUNK, LARGEST_BOX,
};
use crate::backend::sys;
use crate::beneath::Beneath;
use crate::chunk_cache::{CacheUse, Key, Seen};
use crate::durable::TempFile;
use crate::error::StorageError;
use crate::files::{FileTable, OpenFile};
use crate::lock::{FileLock, Mode, Patience};
use crate::pool::{Arena, PAGE};

/// Storage of the index of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexFormat {
    /// Set if it is at the end of the file, otherwise it is at the start.
    pub at_end: bool,
    /// Set if its CRC-32C follows.
    pub crc32c: bool,
}

/// A store of chunks in shards.
#[derive(Debug)]
pub struct ShardStore {
    naming: Naming,
    lock: PathBuf,
    grid: Vec<i64>,
    shard_grid: Vec<i64>,
    per_shard: Vec<i64>,
    chunks: usize,
    index: IndexFormat,
    size: ChunkSize,
    root: Root,
    unsynced: Arc<Unsynced>,
}

/// Bytes of one entry of an index.
const ENTRY: usize = 16;
const CRC: usize = 4;

/// Offset and length of one chunk in its shard; `None` if it is missing.
type Entry = Option<(i64, i64)>;

/// An existing shard.
#[derive(Debug)]
struct Shard {
    file: OpenFile,
    /// Bytes of the file when it was opened.
    len: i64,
    entries: Vec<Entry>,
}

/// The part of a shard that an access needs: path of the shard, and positions of chunks in its
/// index.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    places: Vec<usize>,
}

impl ShardStore {
    /// Makes a store with shards of `per_shard` chunks per axis, for an array with `grid` chunks
    /// per axis; `lock` is an existing file of the array alone (its metadata).
    ///
    /// # Errors
    /// `Unavailable` for shards of more than 4 194 304 chunks, `BadJob` for shapes that do not fit.
    pub fn new(
        naming: Naming,
        lock: PathBuf,
        grid: Vec<i64>,
        per_shard: Vec<i64>,
        index: IndexFormat,
        size: ChunkSize,
    ) -> Result<ShardStore, StorageError> {
        if per_shard.len() != grid.len() || per_shard.iter().any(|&n| n < 1) {
            let why = format!("shards of {per_shard:?} chunks in a grid of {grid:?}");
            return Err(StorageError::BadJob(why));
        }
        let chunks = per_shard.iter().try_fold(1i64, |n, &c| n.checked_mul(c));
        let Some(chunks) = chunks.filter(|&n| n <= LARGEST_BOX) else {
            let why = format!("{per_shard:?} chunks per shard are more than {LARGEST_BOX}");
            return Err(StorageError::Unavailable { what: "a shard of this size", why });
        };
        let shard_grid = grid.iter().zip(&per_shard).map(|(&n, &p)| n / p + (n % p).min(1));
        let shard_grid = shard_grid.collect();
        let (root, unsynced) = (Root::new(&naming.root, None), Unsynced::new(&naming.root));
        let chunks = chunks as usize;
        Ok(ShardStore {
            naming,
            lock,
            grid,
            shard_grid,
            per_shard,
            chunks,
            index,
            size,
            root,
            unsynced,
        })
    }

    /// Sets the identity of an array whose metadata were read before.
    #[must_use]
    pub fn known(self, identity: Option<Identity>) -> ShardStore {
        ShardStore { root: Root::new(&self.naming.root, identity), ..self }
    }

    /// Returns the bytes of the index, including its checksum.
    fn index_bytes(&self) -> i64 {
        (self.chunks * ENTRY + if self.index.crc32c { CRC } else { 0 }) as i64
    }

    /// Returns the shards that a box of chunks touches.
    fn shards(&self, cells: &Cells) -> Cells {
        let lo: Vec<i64> = cells.lo.iter().zip(&self.per_shard).map(|(&c, &p)| c / p).collect();
        let end = cells.lo.iter().zip(&cells.count).zip(&self.per_shard);
        let count = end.zip(&lo).map(|(((&c, &n), &p), &lo)| match n {
            0 => 0,
            n => (c + n - 1) / p + 1 - lo,
        });
        Cells { count: count.collect(), lo }
    }

    /// Returns the shard of a chunk, and the chunk's position in its index.
    fn place(&self, chunk: &[i64]) -> (Vec<i64>, usize) {
        let shard: Vec<i64> = chunk.iter().zip(&self.per_shard).map(|(&c, &p)| c / p).collect();
        let inside = chunk.iter().zip(&self.per_shard);
        let place = inside.fold(0, |at, (&c, &p)| at * p + c % p);
        (shard, place as usize)
    }

    /// Returns whether position `k` of a shard is a chunk of the array: shards reach over its upper
    /// edges.
    fn in_array(&self, shard: &[i64], k: usize) -> bool {
        let mut rest = k as i64;
        (0..shard.len()).rev().all(|d| {
            let inside = rest % self.per_shard[d];
            rest /= self.per_shard[d];
            shard[d] * self.per_shard[d] + inside < self.grid[d]
        })
    }

    fn open(
        &self,
        folder: Option<&Beneath>,
        path: &Path,
        writable: bool,
    ) -> Result<Option<Shard>, StorageError> {
        let Some((file, len)) = open_if_there(folder, path, writable)? else {
            return Ok(None);
        };
        let room = self.room(path, len)?;
        let raw = self.index(&file, room)?;
        let (pairs, _) = raw.as_chunks::<ENTRY>();
        let entry = |(k, pair)| self.entry(path, k, pair, room);
        let entries = pairs.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(Shard { file, len, entries }))
    }

    /// Opens a shard for some of its chunks. The checked index is cached for the next access,
    /// unless this one uses most of it.
    fn open_part(
        &self,
        folder: Option<&Beneath>,
        part: &Part,
        writable: bool,
    ) -> Result<Option<Shard>, StorageError> {
        let path = &part.path;
        if writable {
            // All entries are needed to check that none overlap.
            let Some(Shard { file, len, entries }) = self.open(folder, path, true)? else {
                return Ok(None);
            };
            disjoint(entries.iter().flatten().copied().collect(), path)?;
            let entries = part.places.iter().map(|&k| entries[k]).collect();
            return Ok(Some(Shard { file, len, entries }));
        }
        let Some((file, len)) = open_if_there(folder, path, false)? else {
            return Ok(None);
        };
        let room = self.room(path, len)?;
        let wanted = |raw: &[u8]| {
            let (pairs, _) = raw.as_chunks::<ENTRY>();
            let entries = part.places.iter().map(|&k| self.entry(path, k, &pairs[k], room));
            entries.collect::<Result<Vec<_>, _>>()
        };
        // Reading a small index takes no longer than searching the cache.
        let small = self.chunks * ENTRY < PAGE;
        if small || part.places.len() > self.chunks / 2 {
            let entries = wanted(&self.checked_index(&file, room)?)?;
            return Ok(Some(Shard { file, len, entries }));
        }
        let arena = Arena::global();
        let seen = Seen::now(&file, &arena)?;
        let key = Key::of_index(seen, (room.0, room.1 - room.0), self.chunks * ENTRY);
        let kept = if arena.chunks().is_empty() { None } else { arena.chunks().find(&key) };
        if let Some(entries) = kept.and_then(|kept| kept.with(wanted)) {
            return Ok(Some(Shard { file, len, entries: entries? }));
        }
        let raw = self.checked_index(&file, room)?;
        let entries = wanted(&raw)?;
        arena.keep_chunk(&file, (seen, key), &raw, CacheUse::Keep);
        Ok(Some(Shard { file, len, entries }))
    }

    /// Returns the stored entries of an index after checking each.
    fn checked_index(
        &self,
        file: &OpenFile,
        room: (i64, i64, i64),
    ) -> Result<Vec<u8>, StorageError> {
        let raw = self.index(file, room)?;
        let (pairs, _) = raw.as_chunks::<ENTRY>();
        for (k, pair) in pairs.iter().enumerate() {
            self.entry(file.path(), k, pair, room)?;
        }
        Ok(raw)
    }

    /// Returns begin and end of the index of a shard, and the file's length.
    fn room(&self, path: &Path, len: i64) -> Result<(i64, i64, i64), StorageError> {
        let index_bytes = self.index_bytes();
        let Some(index_at) = len.checked_sub(index_bytes).filter(|&at| at >= 0) else {
            let why = format!("the shard has {len} bytes, its index alone has {index_bytes}");
            return Err(damaged(path, None, why));
        };
        let index_at = if self.index.at_end { index_at } else { 0 };
        Ok((index_at, index_at + index_bytes, len))
    }

    /// Returns the stored entries of an index.
    fn index(
        &self,
        file: &OpenFile,
        (index_at, end, _): (i64, i64, i64),
    ) -> Result<Vec<u8>, StorageError> {
        let (path, index_bytes) = (file.path(), end - index_at);
        let mut raw = vec![0u8; index_bytes as usize];
        let read = sys::read_at(file.fd(), &mut raw, index_at)
            .map_err(|errno| StorageError::io_at("read", path, index_at, index_bytes, errno))?;
        if read < raw.len() {
            return Err(file.short(index_at, raw.len()));
        }
        let crc = raw.split_off(self.chunks * ENTRY);
        if self.index.crc32c && crc != ::crc32c::crc32c(&raw).to_le_bytes() {
            let why = "the checksum of the shard's index is wrong".to_owned();
            return Err(damaged(path, Some(index_at), why));
        }
        Ok(raw)
    }

    /// Returns one checked entry of an index; `room` is begin and end of the index, and the file's
    /// length.
    fn entry(
        &self,
        path: &Path,
        k: usize,
        pair: &[u8; ENTRY],
        room: (i64, i64, i64),
    ) -> Result<Entry, StorageError> {
        let word = |at: usize| {
            let bytes: [u8; 8] = std::array::from_fn(|i| pair[at + i]);
            u64::from_le_bytes(bytes)
        };
        let (offset, len) = (word(0), word(8));
        if (offset, len) == (u64::MAX, u64::MAX) {
            return Ok(None);
        }
        let (index_at, index_end, file_len) = room;
        let extent = i64::try_from(offset).ok().zip(i64::try_from(len).ok());
        let why = match extent {
            Some((_, len)) if len < 1 || len > self.size.limit => {
                format!("is outside 1..={} bytes", self.size.limit)
            }
            Some((_, len)) if !self.size.encoded && len != self.size.decoded => {
                format!("is not {} bytes", self.size.decoded)
            }
            Some((offset, len)) if offset.checked_add(len).is_some_and(|end| end <= file_len) => {
                if offset + len <= index_at || offset >= index_end {
                    return Ok(extent);
                }
                "overlaps the index".to_owned()
            }
            _ => format!("is outside the file, which has {file_len} bytes"),
        };
        let why = format!("chunk {k} of the shard, {len} bytes from byte {offset} on, {why}");
        Err(damaged(path, i64::try_from(offset).ok(), why))
    }

    /// Prepares a new shard with `expected` new chunks, to replace the existing one.
    fn rewrite(&self, shard: &[i64], expected: usize) -> Result<Rewrite, StorageError> {
        let path = self.naming.path(shard);
        let folder = self.root.folder()?;
        let old = self.open(Some(&folder), &path, false)?;
        if let Some(old) = &old {
            disjoint(old.entries.iter().flatten().copied().collect(), &path)?;
        }
        let front = if self.index.at_end { 0 } else { self.index_bytes() };
        let fresh = Mutex::new(Fresh { temp: None, entries: BTreeMap::new() });
        let (next, left) = (AtomicI64::new(front), AtomicUsize::new(expected));
        Ok(Rewrite { folder, path, old, next, left, fresh })
    }

    /// Writes the index and queues the shard for publishing.
    fn publish(
        &self,
        temp: TempFile,
        entries: &[Entry],
        end: i64,
        publisher: &Publisher,
    ) -> Result<(), StorageError> {
        let mut raw = Vec::with_capacity(self.index_bytes() as usize);
        for entry in entries {
            let (offset, len) =
                entry.map_or((u64::MAX, u64::MAX), |(offset, len)| (offset as u64, len as u64));
            raw.extend_from_slice(&offset.to_le_bytes());
            raw.extend_from_slice(&len.to_le_bytes());
        }
        if self.index.crc32c {
            raw.extend_from_slice(&::crc32c::crc32c(&raw).to_le_bytes());
        }
        let index_at = if self.index.at_end { end } else { 0 };
        temp.write(&raw, index_at)?;
        publisher.push(temp, false)
    }

    /// Gives a shard all of its chunks; missing ones are filled with `fill`.
    fn complete(
        &self,
        shard: &[i64],
        fill: &[u8],
        publisher: &Publisher,
    ) -> Result<(), StorageError> {
        let rewrite = self.rewrite(shard, 0)?;
        let (path, len) = (&rewrite.path, self.size.decoded);
        let there = |k: usize| rewrite.old.as_ref().and_then(|old| old.entries[k]);
        let wanted: Vec<usize> = (0..self.chunks).filter(|&k| self.in_array(shard, k)).collect();
        if wanted.iter().all(|&k| there(k).is_some()) {
            return Ok(());
        }
        let front = rewrite.next.load(Ordering::Relaxed);
        let too_large = || StorageError::BadJob("a shard has more than 2^63 bytes".into());
        let body = len.checked_mul(wanted.len() as i64).ok_or_else(too_large)?;
        let end = front.checked_add(body).ok_or_else(too_large)?;
        let temp = TempFile::below(&rewrite.folder, path)?;
        write_fill(&temp, front, body, fill)?;
        let mut entries = vec![None; self.chunks];
        for (rank, &k) in wanted.iter().enumerate() {
            let at = front + rank as i64 * len;
            if let Some((from, _)) = there(k) {
                rewrite.copy(&temp, from, at, len)?;
            }
            entries[k] = Some((at, len));
        }
        self.publish(temp, &entries, end, publisher)
    }

    fn lock_shards(
        &self,
        cells: &Cells,
        mode: Mode,
        patience: Patience<'_>,
    ) -> Result<FileLock, StorageError> {
        let ranges = lock_ranges(&self.shards(cells), &self.shard_grid)?;
        FileLock::acquire_all(&self.lock, &ranges, mode, patience)
    }
}

/// A rewrite of one shard.
#[derive(Debug)]
struct Rewrite {
    folder: Arc<Beneath>,
    path: PathBuf,
    old: Option<Shard>,
    /// Offset of the next chunk.
    next: AtomicI64,
    /// Number of new chunks that have not been added yet.
    left: AtomicUsize,
    fresh: Mutex<Fresh>,
}

/// Committed chunks so far.
#[derive(Debug)]
struct Fresh {
    temp: Option<TempFile>,
    entries: BTreeMap<usize, (i64, i64)>,
}

impl Rewrite {
    /// Adds a chunk; returns `true` if it was the last expected one, and all are written.
    fn add(&self, k: usize, bytes: &[u8]) -> Result<bool, StorageError> {
        let len = bytes.len() as i64;
        let (fd, at) = {
            let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
            let at = self.next.fetch_add(len, Ordering::Relaxed);
            fresh.entries.insert(k, (at, len));
            let temp = match &mut fresh.temp {
                Some(temp) => temp,
                none => none.insert(TempFile::below(&self.folder, &self.path)?),
            };
            (temp.fd(), at)
        };
        // The file stays open: the thread that takes it has seen the end of all expected writes, or
        // owns the sink.
        let fail = |errno| StorageError::io_at("write", &self.path, at, len, errno);
        sys::write_at(fd, bytes, at).map_err(fail)?;
        let mut left = self.left.load(Ordering::Acquire);
        while left > 0 {
            match self.left.compare_exchange(left, left - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(left == 1),
                Err(now) => left = now,
            }
        }
        Err(StorageError::BadJob(format!("chunk {k} of a shard that is complete")))
    }

    fn copy(&self, temp: &TempFile, from: i64, to: i64, len: i64) -> Result<(), StorageError> {
        let Some(old) = &self.old else {
            return Err(StorageError::BadJob("nothing to copy from".into()));
        };
        let fail = |errno| StorageError::io_at("copy", &self.path, from, len, errno);
        match sys::copy_range(old.file.fd(), from, temp.fd().as_raw_fd(), to, len).map_err(fail)? {
            copied if copied == len => Ok(()),
            _ => Err(old.file.short(from, len as usize)),
        }
    }

    /// Completes the shard, if any chunk was added, and queues it for publishing.
    fn finish(&self, store: &ShardStore, publisher: &Publisher) -> Result<(), StorageError> {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(temp) = fresh.temp.take() else {
            return Ok(());
        };
        let mut entries: Vec<Entry> = vec![None; store.chunks];
        let mut end = self.next.load(Ordering::Relaxed);
        if let Some(old) = &self.old {
            let stays = |k: &usize| !fresh.entries.contains_key(k);
            let kept = old.entries.iter().enumerate().filter(|(k, _)| stays(k));
            let mut kept: Vec<(i64, i64, usize)> =
                kept.filter_map(|(k, entry)| entry.map(|(at, len)| (at, len, k))).collect();
            kept.sort_unstable();
            // Contiguous chunks are copied together.
            for run in kept.chunk_by(|a, b| a.0 + a.1 == b.0) {
                let from = run[0].0;
                let len = run.iter().map(|chunk| chunk.1).sum();
                self.copy(&temp, from, end, len)?;
                for &(at, len, k) in run {
                    entries[k] = Some((end + at - from, len));
                }
                end += len;
            }
        }
        for (&k, &entry) in &fresh.entries {
            entries[k] = Some(entry);
        }
        store.publish(temp, &entries, end, publisher)
    }
}

/// Bytes of an entry of an index: as stored, as checked, and where extents are compared; and while
/// a shard is rewritten: the new chunks, the old ones in their order, the new index.
const INDEX: u64 = size_of::<Entry>() as u64;
const FOUND: u64 = 2 * ENTRY as u64;
const RENEWED: u64 = 48;
const FINISHED: u64 = INDEX + 24 + ENTRY as u64;

impl ChunkStore for ShardStore {
    fn held_bytes(&self, cells: &Cells, replacing: bool) -> u64 {
        let shards = self.shards(cells).len() as u64;
        let at_once = shards.min(THREADS as u64);
        let mut entries = shards * INDEX + at_once * FOUND;
        if replacing {
            entries = entries.max(shards * (INDEX + RENEWED) + at_once * FINISHED);
        }
        entries * self.chunks as u64
            + cells.len() as u64 * BYTES_A_CHUNK
            + shards * bytes_a_file(&self.naming, self.grid.len())
    }

    fn open_files(&self, files: i64, write: bool) -> i64 {
        // The existing shard, the same while it is rewritten, and the new one.
        files.saturating_mul(if write { 3 } else { 1 })
    }

    fn resolve_some(
        &self,
        cells: &Cells,
        writable: bool,
        wanted: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Resolved, StorageError> {
        // For each shard: positions of the wanted chunks in its index and in the box.
        let mut shards: BTreeMap<Vec<i64>, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (at, cell) in cells.iter().enumerate().filter(|(_, cell)| wanted(cell)) {
            let (shard, k) = self.place(&cell);
            let (places, cells) = shards.entry(shard).or_default();
            places.push(k);
            cells.push(at);
        }
        let (parts, places): (Vec<Part>, Vec<Vec<usize>>) = shards
            .into_iter()
            .map(|(shard, (places, cells))| {
                (Part { path: self.naming.path(&shard), places }, cells)
            })
            .unzip();
        let mut files = FileTable::new(Vec::new(), writable);
        let folder = self.root.folder_if_there()?;
        let opened = open_many(&parts, |part| self.open_part(folder.as_deref(), part, writable))?;
        self.root.confirm(cells)?;
        let mut stored: Vec<Option<Stored>> = vec![None; cells.len()];
        for (places, shard) in places.into_iter().zip(opened) {
            let Some(Shard { file, len, entries }) = shard else { continue };
            disjoint(entries.iter().flatten().copied().collect(), file.path())?;
            let file = files.adopt(file, len)?;
            for (at, entry) in places.into_iter().zip(entries) {
                stored[at] = entry.map(|(offset, len)| Stored { file, offset, len, mask: 0 });
            }
        }
        let table = ChunkTable { lo: cells.lo.clone(), count: cells.count.clone(), stored };
        Ok(Resolved { table, files })
    }

    fn list(
        &self,
        lo_and_count: (&[i64], &[i64]),
        most: usize,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Listed>, StorageError> {
        listing::list(&self.naming, lo_and_count, most, interrupted)
    }

    fn lock(&self, cells: &Cells, patience: Patience<'_>) -> Result<FileLock, StorageError> {
        self.lock_shards(cells, Mode::Exclusive, patience)
    }

    fn begin<'a>(
        &'a self,
        cells: &Cells,
        expected: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Box<dyn ChunkSink + 'a>, StorageError> {
        let mut numbers = BTreeMap::new();
        for cell in cells.iter().filter(|cell| expected(cell)) {
            *numbers.entry(self.place(&cell).0).or_insert(0) += 1;
        }
        let mut rewrites = BTreeMap::new();
        for (shard, number) in numbers {
            let rewrite = self.rewrite(&shard, number)?;
            rewrites.insert(shard, rewrite);
        }
        let publisher = Publisher::new(&self.unsynced);
        Ok(Box::new(ShardSink { store: self, cells: cells.clone(), rewrites, publisher }))
    }

    fn in_place_some(
        &self,
        cells: &Cells,
        fill: &[u8],
        wanted: &dyn Fn(&[i64]) -> bool,
        patience: Patience<'_>,
    ) -> Result<InPlace, StorageError> {
        if self.size.encoded {
            return Err(StorageError::BadJob("encoded chunks cannot be written in place".into()));
        }
        self.unsynced.trim()?;
        let chosen: Vec<bool> = cells.iter().map(|cell| wanted(&cell)).collect();
        let of = cells.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
        let shards: BTreeSet<Vec<i64>> = of.map(|(cell, _)| self.place(&cell).0).collect();
        for _ in 0..PATIENT {
            let guard = self.lock_shards(cells, Mode::Shared, patience)?;
            let resolved = self.resolve_some(cells, true, wanted)?;
            if resolved.table.stored.iter().zip(&chosen).all(|(at, chosen)| at.is_some() || !chosen)
            {
                let paths = shards.iter().map(|shard| self.naming.path(shard)).collect();
                let writing = Writing { unsynced: Arc::clone(&self.unsynced), paths };
                return Ok(InPlace { resolved, guard: Some(guard), writing });
            }
            drop(guard);
            let _alone = self.lock_shards(cells, Mode::Exclusive, patience)?;
            let publisher = Publisher::new(&self.unsynced);
            for shard in &shards {
                self.complete(shard, fill, &publisher)?;
            }
            publisher.finish()?;
        }
        Err(vanishing(&self.naming.root))
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.unsynced.flush()
    }
}

#[derive(Debug)]
struct ShardSink<'a> {
    store: &'a ShardStore,
    cells: Cells,
    rewrites: BTreeMap<Vec<i64>, Rewrite>,
    publisher: Publisher,
}

impl ChunkSink for ShardSink<'_> {
    fn commit(&self, chunk: &[i64], mask: u32, bytes: &[u8]) -> Result<(), StorageError> {
        let bad = || {
            StorageError::BadJob(format!(
                "chunk {chunk:?} with filter mask {mask:#x} in a batch of shards {:?}",
                self.cells
            ))
        };
        if mask != 0 || bytes.is_empty() || !self.cells.contains(chunk) {
            return Err(bad());
        }
        let (shard, k) = self.store.place(chunk);
        let rewrite = self.rewrites.get(&shard).ok_or_else(bad)?;
        if rewrite.add(k, bytes)? {
            rewrite.finish(self.store, &self.publisher)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), StorageError> {
        let ShardSink { store, rewrites, publisher, .. } = *self;
        rewrites.values().try_for_each(|rewrite| rewrite.finish(store, &publisher))?;
        publisher.finish()
    }
}

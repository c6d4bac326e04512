//! Chunks that are found and stored through the format's own library (HDF5).
//!
//! Problem. The table of chunks belongs to HDF5, which is reached through the code of a format, one thread at
//! a time; the executor runs on several threads.
//!
//! Idea. A chunk store like those of the core, which calls that code ([`Library`]) rarely: `fetch` (where are
//! the chunks of a box) and `commit` (store these encoded chunks). Encoded chunks are collected and passed on
//! in portions of some megabytes.
//!
//! A chunk moves whenever the library stores it again, and its old place is soon used for another chunk. So
//! an access that finds chunks through the table holds the library's own lock from before the look-up until
//! it has read or written them ([`Table::share`], [`Table::hold`]).
//!
//! Invariants. Rows of the format are validated before they are used. An exception of the format passes
//! through the core and is raised unchanged.

use std::fmt::Debug;
use std::ops;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outcore_io::flush::{Flushes, Trouble};
use outcore_io::lock::{FileLock, Mode, Patience, Range};
use outcore_io::pool::PAGE;
use outcore_io::store::listing::Listed;
use outcore_io::store::{table, Cells, ChunkSink, ChunkSize, Resolved};
use outcore_io::{Arena, Buffer, FileTable, OpenFile, StorageError};

use crate::error::Fault;
use crate::guard::{Guard, Held};
use crate::terms::pages;

/// Encoded bytes that are collected before they are passed to the format.
pub const HANDFUL: usize = 8 << 20;

/// The chunks of one HDF5 dataset.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    log: Option<PathBuf>,
    library: Arc<dyn Library>,
    guard: Option<Guard>,
    /// True if the stored array was already made as long as the array.
    stretched: AtomicBool,
    size: ChunkSize,
    flushes: Flushes,
}

/// Returns the bytes for making a missing chunk: the chunk, and a copy that is passed to the format.
pub fn to_make(chunk: i64) -> i64 {
    pages(chunk).saturating_mul(2)
}

/// Encoded chunks to pass to the format: their bytes one after another in counted memory.
#[derive(Debug, Default)]
pub struct Staged {
    buffer: Option<Buffer>,
    used: usize,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    cell: Vec<i64>,
    mask: u32,
    bytes: ops::Range<usize>,
}

impl Staged {
    /// Allocates memory for chunks of `wanted` bytes together, or for `least` if others hold the rest.
    fn with_room(wanted: usize, least: usize) -> Result<Staged, StorageError> {
        let arena = Arena::global();
        let wanted = wanted.max(least);
        let buffer = match arena.buffer("encoded chunks", wanted) {
            Err(StorageError::Budget(_)) if wanted > least => {
                arena.buffer("encoded chunks", least)?
            }
            other => other?,
        };
        Ok(Staged { buffer: Some(buffer), used: 0, rows: Vec::new() })
    }

    /// Returns the bytes of the longest chunk.
    pub fn longest(&self) -> usize {
        self.rows.iter().map(|row| row.bytes.len()).max().unwrap_or(0)
    }

    fn room(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.as_slice().len() - self.used)
    }

    /// Copies a chunk after the others. There is enough memory for it.
    fn push(&mut self, cell: &[i64], mask: u32, bytes: &[u8]) {
        let place = self.used..self.used + bytes.len();
        if let Some(buffer) = &mut self.buffer {
            buffer.as_mut_slice()[place.clone()].copy_from_slice(bytes);
        }
        self.used = place.end;
        self.rows.push(Row { cell: cell.to_vec(), mask, bytes: place });
    }

    fn clear(&mut self) {
        self.used = 0;
        self.rows.clear();
    }

    fn bytes(&self, row: &Row) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer.as_slice()[row.bytes.clone()])
    }

    /// Returns the chunk with this number: grid coordinates, filter mask, bytes. None past the last chunk.
    pub fn chunk(&self, number: usize) -> Option<(&[i64], u32, &[u8])> {
        self.rows.get(number).map(|row| (&row.cell[..], row.mask, self.bytes(row)))
    }
}

/// Operations of a format on the table of chunks of its library.
pub trait Library: Debug + Send + Sync {
    /// Returns the places of the chunks of a box, in rows as [`table::from_rows`] reads them; `locked` if the
    /// caller holds the library's lock.
    ///
    /// # Errors
    /// The errors that the format raises.
    fn fetch(&self, cells: &Cells, locked: bool) -> Result<Vec<i64>, StorageError>;

    /// Returns the places of the stored chunks of a box, in C order; `locked` as for `fetch`.
    ///
    /// # Errors
    /// The errors that the format raises.
    fn stored(&self, lo: &[i64], count: &[i64], locked: bool) -> Result<Listed, StorageError>;

    /// Returns whether the format can store chunks.
    fn commits(&self) -> bool;

    /// Stores chunks; returns their memory.
    ///
    /// # Errors
    /// The errors that the format raises.
    fn commit(&self, chunks: Staged) -> Result<Staged, StorageError>;

    /// Loads the table, if there is one to load. Returns the additional bytes that loading it again takes,
    /// `new` chunks later.
    ///
    /// # Errors
    /// The errors that the format raises; a refusal of memory is passed on as such.
    fn load(&self, new: i64) -> Result<i64, Fault>;

    /// Returns whether the stored array may be shorter than the array.
    fn stretches(&self) -> bool;

    /// Makes the stored array as long as the array.
    ///
    /// # Errors
    /// The errors that the format raises.
    fn stretch(&self) -> Result<(), StorageError>;
}

impl Table {
    /// Creates the table of the chunks that `library` has in the file at `path`, and in `log` while the file
    /// is being changed. Without a guard, the caller ensures that no other program changes the file.
    pub fn new(
        path: PathBuf,
        log: Option<PathBuf>,
        library: Arc<dyn Library>,
        guard: Option<Guard>,
        size: ChunkSize,
    ) -> Table {
        let (stretched, flushes) = (AtomicBool::new(false), Flushes::default());
        Table { path, log, library, guard, stretched, size, flushes }
    }

    /// Returns whether the stored array may be shorter than the array.
    pub fn is_short(&self) -> bool {
        self.library.stretches() && !self.stretched.load(Ordering::Acquire)
    }

    /// Makes the stored array as long as the array, before the first write: other programs would not see data
    /// past the stored shape. The caller locks out other writers ([`Table::lock`]).
    pub fn stretch(&self) -> Result<(), StorageError> {
        if self.is_short() {
            self.library.stretch()?;
            self.stretched.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Loads the table, if there is one to load. Returns the additional bytes that loading it again takes,
    /// `new` chunks later.
    pub fn load(&self, new: i64) -> Result<i64, Fault> {
        self.library.load(new)
    }

    /// Returns the places of the stored chunks of a box, in C order; `locked` as for `resolve`.
    pub fn list(
        &self,
        (lo, count): (&[i64], &[i64]),
        locked: bool,
    ) -> Result<Listed, StorageError> {
        self.library.stored(lo, count, locked)
    }

    /// Passes chunks to the format; returns their memory, empty.
    fn store(&self, staged: Staged) -> Result<Staged, StorageError> {
        if !self.library.commits() {
            return Err(StorageError::ReadOnly { path: self.path.clone() });
        }
        let largest = staged.rows.iter().map(|row| row.bytes.len()).max().unwrap_or(0);
        let _object = Arena::global().reserve("an encoded chunk", largest as u64)?;
        let mut staged = self.library.commit(staged)?;
        staged.clear();
        Ok(staged)
    }

    /// Stores the missing chunks of a box, every element equal to `fill`.
    fn create_missing(&self, missing: Vec<Vec<i64>>, fill: &[u8]) -> Result<(), StorageError> {
        let Some((first, others)) = missing.split_first() else {
            return Ok(());
        };
        let bytes = usize::try_from(self.size.decoded).unwrap_or(usize::MAX);
        // Both buffers are available, or neither is used.
        drop(Arena::global().reserve("creating a chunk", to_make(self.size.decoded) as u64)?);
        let mut staged = Staged::with_room(bytes, bytes)?;
        if let (Some(buffer), false) = (&mut staged.buffer, fill.is_empty()) {
            for item in buffer.as_mut_slice()[..bytes].chunks_mut(fill.len()) {
                item.copy_from_slice(&fill[..item.len()]);
            }
        }
        // All chunks have the same bytes.
        let row = |cell: &Vec<i64>| Row { cell: cell.clone(), mask: 0, bytes: 0..bytes };
        staged.rows.push(row(first));
        staged.rows.extend(others.iter().map(row));
        self.store(staged).map(drop)
    }
}

impl Table {
    /// Returns the current places of the chunks of a box, and the open file; `locked` if the caller holds the
    /// library's lock.
    pub fn resolve(
        &self,
        cells: &Cells,
        writable: bool,
        locked: bool,
    ) -> Result<Resolved, StorageError> {
        let rows = self.library.fetch(cells, locked)?;
        let mut paths = vec![self.path.clone()];
        let (here, there) = match &self.log {
            Some(_) => table::in_log(rows),
            None => (rows, None),
        };
        paths.extend(self.log.clone());
        let files = FileTable::new(paths, writable);
        let len = files.open(0)?.len()?;
        let mut table = table::from_rows(cells, &here, self.size, 0, len, &self.path)?;
        if let Some((log, rows)) = self.log.as_ref().zip(there) {
            let len = files.open(1)?.len()?;
            let other = table::from_rows(cells, &rows, self.size, 1, len, log)?;
            let both = table.stored.iter_mut().zip(other.stored);
            both.for_each(|(here, there)| *here = here.take().or(there));
        }
        Ok(Resolved { table, files })
    }

    /// Locks out other writers. The library's own tables change with every chunk that moves, so a file has
    /// one writer at a time. Without a guard, the caller ensures this.
    pub fn lock(&self, patience: Patience<'_>) -> Result<Option<FileLock>, StorageError> {
        if self.guard.is_none() {
            return Ok(None);
        }
        FileLock::acquire(&self.path, Range::CONTENT, Mode::Exclusive, patience).map(Some)
    }

    /// As [`Guard::share`], if there is a guard.
    pub fn share(&self, patience: Patience<'_>) -> Result<Option<FileLock>, StorageError> {
        let Some(guard) = &self.guard else { return Ok(None) };
        guard.share(&self.path, patience)
    }

    /// Locks out programs that use the HDF5 library, from the look-up of chunks until they are stored again.
    /// The caller locks out other writers that use outcore ([`Table::lock`]).
    pub fn hold(&self) -> Result<Option<Held>, StorageError> {
        let Some(guard) = &self.guard else { return Ok(None) };
        guard.keeper.hold().map(Some)
    }

    /// Accepts encoded chunks of at most `largest` bytes, within `room` bytes of memory as soon as that
    /// number is known: at least two such chunks, in whole pages.
    pub fn begin<'a>(&'a self, largest: usize, room: &'a AtomicUsize) -> Box<dyn ChunkSink + 'a> {
        Box::new(Sink { table: self, largest, room, staged: Mutex::default() })
    }

    /// Creates the missing chunks of a box that are `wanted`, so that they can be written in place while the
    /// lock is held.
    pub fn in_place(
        &self,
        cells: &Cells,
        fill: &[u8],
        wanted: &dyn Fn(&[i64]) -> bool,
        patience: Patience<'_>,
    ) -> Result<(Resolved, Option<FileLock>), StorageError> {
        let missing = |found: &Resolved| -> Vec<Vec<i64>> {
            let chunks = cells.iter().zip(&found.table.stored);
            let missing = chunks.filter(|(cell, at)| at.is_none() && wanted(cell));
            missing.map(|(cell, _)| cell).collect()
        };
        loop {
            let shared = self.share(patience)?;
            let locked = shared.as_ref().is_some_and(FileLock::flocked);
            let found = self.resolve(cells, true, locked)?;
            if missing(&found).is_empty() {
                return Ok((found, shared));
            }
            drop((found, shared));
            let _guard = self.lock(patience)?;
            // If a program creates one of them in the meantime, it writes elements into it.
            let held = self.hold()?;
            let now = self.resolve(cells, true, held.is_some())?;
            let missing = missing(&now);
            drop(now);
            self.create_missing(missing, fill)?;
        }
    }

    /// Waits until the written data is on the disk.
    pub fn flush(&self) -> Result<(), StorageError> {
        self.flushes.flush(|| {
            let file = OpenFile::open(&self.path, true).map_err(Trouble::Untried)?;
            file.settle()
        })
    }
}

/// Collects encoded chunks and passes them to the format.
struct Sink<'a> {
    table: &'a Table,
    largest: usize,
    room: &'a AtomicUsize,
    staged: Mutex<Staged>,
}

impl Sink<'_> {
    fn hand_over(&self, staged: &mut Staged) -> Result<(), StorageError> {
        if !staged.rows.is_empty() {
            *staged = self.table.store(std::mem::take(staged))?;
        }
        Ok(())
    }
}

impl ChunkSink for Sink<'_> {
    fn commit(&self, chunk: &[i64], mask: u32, bytes: &[u8]) -> Result<(), StorageError> {
        let mut staged = lock(&self.staged);
        if staged.room() < bytes.len() {
            self.hand_over(&mut staged)?;
        }
        if staged.room() < bytes.len() {
            // Release the memory before requesting more.
            *staged = Staged::default();
            // One chunk exists twice while it is passed to the format.
            let object = self.largest.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
            let wanted = self.room.load(Ordering::Relaxed).saturating_sub(object) & !(PAGE - 1);
            *staged = Staged::with_room(wanted, bytes.len())?;
        }
        staged.push(chunk, mask, bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), StorageError> {
        let mut staged = lock(&self.staged);
        self.hand_over(&mut staged)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

//! Chunks that are found and stored through the format's own library (HDF5).
//!
//! Problem. The table of chunks belongs to HDF5, which is reached through Python; the executor runs
//! without the GIL, on several threads.
//!
//! Idea. A chunk store like those of the core, which takes the GIL for the two calls it needs:
//! `fetch` (where are the chunks of a box) and `commit` (store these encoded chunks). Encoded chunks
//! are collected and handed over some megabytes at a time.
//!
//! Chunks move whenever the library stores them anew, and their old place soon belongs to others. So
//! whoever finds chunks through the table holds the library's own lock from before he looks them up
//! until he has read or written them ([`PyTable::share`], [`PyTable::hold`]).
//!
//! Invariants. Rows from Python are checked before they are believed. An exception of the format travels
//! through the core and is raised as it was.

use std::ops;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use outcore_io::error::Foreign;
use outcore_io::flush::{Flushes, Trouble};
use outcore_io::lock::{FileLock, Mode, Patience, Range};
use outcore_io::pool::PAGE;
use outcore_io::store::listing::Listed;
use outcore_io::store::{table, Cells, ChunkSink, ChunkSize, Resolved};
use outcore_io::{Arena, Buffer, FileTable, OpenFile, StorageError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::Fault;
use crate::guard::Guard;
use crate::nesting;
use crate::terms::pages;

/// Encoded bytes that are collected before they are handed to the format.
pub const HANDFUL: usize = 8 << 20;

/// The chunks of one HDF5 dataset.
#[derive(Debug)]
pub struct PyTable {
    path: PathBuf,
    log: Option<PathBuf>,
    calls: Calls,
    /// What is stored was made as long as the array.
    stretched: AtomicBool,
    size: ChunkSize,
    flushes: Flushes,
}

/// The library's lock for writing, until it is dropped.
#[must_use]
pub struct Held(Py<PyAny>);

impl Drop for Held {
    fn drop(&mut self) {
        // Giving a lock back closes a descriptor: nothing that could be told to anybody.
        nesting::python(|py| self.0.call0(py).map(drop).unwrap_or_default());
    }
}

/// What making a missing chunk takes: the chunk, and the same on its way to the format.
pub fn to_make(chunk: i64) -> i64 {
    pages(chunk).saturating_mul(2)
}

/// Encoded chunks on their way to the format: their bytes one behind the other in counted memory.
#[derive(Debug, Default)]
struct Staged {
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
    /// Room for chunks of `wanted` bytes together, or for `least` if others hold the rest.
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

    fn room(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.as_slice().len() - self.used)
    }

    /// Copies a chunk behind the others. There is room for it.
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
}

/// The callables of a `TableSource`.
#[derive(Debug)]
pub struct Calls {
    /// `fetch(lo, count, locked)`.
    pub fetch: Py<PyAny>,
    /// `stored(lo, count, locked)`.
    pub stored: Py<PyAny>,
    /// `commit(chunks)`.
    pub commit: Option<Py<PyAny>>,
    /// `load(new)`.
    pub load: Option<Py<PyAny>>,
    /// `stretch()`.
    pub stretch: Option<Py<PyAny>>,
    /// How the file is kept from others.
    pub guard: Option<Guard>,
}

/// Grid coordinates, filter mask, bytes.
type PyRow<'py> = (Bound<'py, PyTuple>, u32, Bound<'py, PyBytes>);

/// What `commit` is given: makes one bytes object at a time, so that the chunks exist only once.
#[pyclass(module = "outcore._core", frozen)]
struct EncodedChunks {
    staged: Mutex<Staged>,
    next: AtomicUsize,
}

#[pymethods]
impl EncodedChunks {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<PyRow<'py>>> {
        let staged = lock(&self.staged);
        let Some(row) = staged.rows.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(None);
        };
        let cell = PyTuple::new(py, &row.cell)?;
        Ok(Some((cell, row.mask, PyBytes::new(py, staged.bytes(row)))))
    }
}

impl PyTable {
    /// From the callables of a `TableSource`.
    pub fn new(path: PathBuf, log: Option<PathBuf>, calls: Calls, size: ChunkSize) -> PyTable {
        let (stretched, flushes) = (AtomicBool::new(false), Flushes::default());
        PyTable { path, log, calls, stretched, size, flushes }
    }

    /// Whether what is stored may be shorter than the array.
    pub fn is_short(&self) -> bool {
        self.calls.stretch.is_some() && !self.stretched.load(Ordering::Acquire)
    }

    /// Makes what is stored as long as the array, before the first write: what is written behind the
    /// stored shape nobody else would see. The caller keeps other writers out ([`PyTable::lock`]).
    pub fn stretch(&self) -> Result<(), StorageError> {
        if let Some(stretch) = self.calls.stretch.as_ref().filter(|_| self.is_short()) {
            nesting::python(|py| stretch.call0(py).map(drop)).map_err(foreign)?;
            self.stretched.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Loads the table, if there is one to load; returns what loading it again takes beside it, `new`
    /// chunks later.
    pub fn load(&self, new: i64) -> Result<i64, Fault> {
        let Some(load) = &self.calls.load else { return Ok(0) };
        nesting::python(|py| {
            let loaded = load.bind(py).call1((new,)).and_then(|bytes| bytes.extract());
            loaded.map_err(|error| Fault::of_python(py, error))
        })
    }

    fn rows(&self, cells: &Cells, locked: bool) -> PyResult<Vec<i64>> {
        nesting::python(|py| {
            let lo = PyTuple::new(py, &cells.lo)?;
            let count = PyTuple::new(py, &cells.count)?;
            let rows = self.calls.fetch.bind(py).call1((lo, count, locked))?;
            let rows: Bound<'_, PyArray2<i64>> = rows.cast_into()?;
            let view = rows.readonly();
            Ok(view.as_array().iter().copied().collect())
        })
    }

    /// Places of the chunks of a box that are stored, in C order; `locked` as for `resolve`.
    pub fn list(
        &self,
        (lo, count): (&[i64], &[i64]),
        locked: bool,
    ) -> Result<Listed, StorageError> {
        let found = Python::attach(|py| {
            let (lo, count) = (PyTuple::new(py, lo)?, PyTuple::new(py, count)?);
            let places = self.calls.stored.bind(py).call1((lo, count, locked))?;
            let places: Bound<'_, PyArray1<i64>> = places.cast_into()?;
            Ok(Listed::from_places(places.readonly().as_array().iter().copied()))
        });
        found.map_err(foreign)?
    }

    /// Hands chunks to the format; gives their memory back, empty.
    fn store(&self, staged: Staged) -> Result<Staged, StorageError> {
        let Some(commit) = &self.calls.commit else {
            return Err(StorageError::ReadOnly { path: self.path.clone() });
        };
        let largest = staged.rows.iter().map(|row| row.bytes.len()).max().unwrap_or(0);
        let _object = Arena::global().reserve("an encoded chunk", largest as u64)?;
        nesting::python(|py| {
            let chunks = EncodedChunks { staged: Mutex::new(staged), next: AtomicUsize::new(0) };
            let chunks = Bound::new(py, chunks)?;
            let done = commit.bind(py).call1((&chunks,));
            // Taken out before anything else: the traceback of a failure keeps `chunks` alive.
            let mut staged = std::mem::take(&mut *lock(&chunks.get().staged));
            staged.clear();
            done.map(|_| staged)
        })
        .map_err(foreign)
    }

    /// Stores the missing chunks of a box, every element equal to `fill`.
    fn create_missing(&self, missing: Vec<Vec<i64>>, fill: &[u8]) -> Result<(), StorageError> {
        let Some((first, others)) = missing.split_first() else {
            return Ok(());
        };
        let bytes = usize::try_from(self.size.decoded).unwrap_or(usize::MAX);
        // Both or none.
        drop(Arena::global().reserve("a chunk to be made", to_make(self.size.decoded) as u64)?);
        let mut staged = Staged::with_room(bytes, bytes)?;
        if let (Some(buffer), false) = (&mut staged.buffer, fill.is_empty()) {
            for item in buffer.as_mut_slice()[..bytes].chunks_mut(fill.len()) {
                item.copy_from_slice(&fill[..item.len()]);
            }
        }
        // All of them are the same bytes.
        let row = |cell: &Vec<i64>| Row { cell: cell.clone(), mask: 0, bytes: 0..bytes };
        staged.rows.push(row(first));
        staged.rows.extend(others.iter().map(row));
        self.store(staged).map(drop)
    }
}

impl PyTable {
    /// Where the chunks of a box are now, and the open file; `locked` if the caller holds the
    /// library's lock.
    pub fn resolve(
        &self,
        cells: &Cells,
        writable: bool,
        locked: bool,
    ) -> Result<Resolved, StorageError> {
        let rows = self.rows(cells, locked).map_err(foreign)?;
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

    /// Keeps other writers out. The library's own tables change with every chunk that moves, so
    /// there is one writer a file. Without a guard, whoever gave the table has seen to it.
    pub fn lock(&self, patience: Patience<'_>) -> Result<Option<FileLock>, StorageError> {
        if self.calls.guard.is_none() {
            return Ok(None);
        }
        FileLock::acquire(&self.path, Range::CONTENT, Mode::Exclusive, patience).map(Some)
    }

    /// As [`Guard::share`], if there is a guard.
    pub fn share(&self, patience: Patience<'_>) -> Result<Option<FileLock>, StorageError> {
        let Some(guard) = &self.calls.guard else { return Ok(None) };
        guard.share(&self.path, patience, foreign)
    }

    /// Keeps programs that use the HDF5 library out from the look-up of chunks until they are stored
    /// anew. The caller keeps other writers of ours out ([`PyTable::lock`]).
    pub fn hold(&self) -> Result<Option<Held>, StorageError> {
        let Some(guard) = &self.calls.guard else { return Ok(None) };
        let held = nesting::python(|py| guard.hold.call0(py));
        held.map(|release| Some(Held(release))).map_err(foreign)
    }

    /// Takes encoded chunks of at most `largest` bytes, within `room` bytes of memory as soon as that
    /// is known: at least two such chunks, in whole pages.
    pub fn begin<'a>(&'a self, largest: usize, room: &'a AtomicUsize) -> Box<dyn ChunkSink + 'a> {
        Box::new(Sink { table: self, largest, room, staged: Mutex::default() })
    }

    /// Makes the chunks of a box exist, so that they can be written in place for as long as the lock
    /// is held.
    pub fn in_place(
        &self,
        cells: &Cells,
        fill: &[u8],
        patience: Patience<'_>,
    ) -> Result<(Resolved, Option<FileLock>), StorageError> {
        loop {
            let shared = self.share(patience)?;
            let locked = shared.as_ref().is_some_and(FileLock::flocked);
            let found = self.resolve(cells, true, locked)?;
            if found.table.stored.iter().all(Option::is_some) {
                return Ok((found, shared));
            }
            drop((found, shared));
            let _guard = self.lock(patience)?;
            // A program that makes one of them meanwhile writes elements into it.
            let held = self.hold()?;
            let now = self.resolve(cells, true, held.is_some())?;
            let missing = cells.iter().zip(&now.table.stored);
            let missing = missing.filter(|(_, at)| at.is_none()).map(|(cell, _)| cell).collect();
            drop(now);
            self.create_missing(missing, fill)?;
        }
    }

    /// Waits until what was written is on the disk.
    pub fn flush(&self) -> Result<(), StorageError> {
        self.flushes.flush(|| {
            let file = OpenFile::open(&self.path, true).map_err(Trouble::Untried)?;
            file.settle()
        })
    }
}

/// The checksum of HDF5's own structures.
#[pyfunction]
pub fn lookup3(data: &[u8]) -> u32 {
    outcore_io::lookup3::lookup3(data)
}

/// Collects encoded chunks and hands them to the format.
struct Sink<'a> {
    table: &'a PyTable,
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
            // Give the memory back before asking for more.
            *staged = Staged::default();
            // One chunk exists twice while it is handed over.
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

/// What the format raised.
pub fn foreign(error: PyErr) -> StorageError {
    let text = format!("the format raised {error}");
    StorageError::Foreign(Foreign { text, raised: Arc::new(error) })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Chunks that are found and stored through the format's own library (HDF5).
//!
//! Problem. The table of chunks belongs to HDF5, which is reached through Python; the executor runs
//! without the GIL, on several threads.
//!
//! Idea. A chunk store like those of the core, which takes the GIL for the two calls it needs: `fetch` (where are the chunks of a
//! box) and `commit` (store these encoded chunks). Encoded chunks are collected and handed over some
//! megabytes at a time.
//!
//! Invariants. Rows from Python are checked before they are believed. An exception of the format is
//! kept and raised as it was; the core sees only that something failed.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{PyArray2, PyArrayMethods};
use outcore_io::lock::{FileLock, Mode, Patience, Range};
use outcore_io::store::{table, Cells, ChunkSink, ChunkSize, Resolved};
use outcore_io::{Arena, FileTable, OpenFile, Reservation, StorageError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// Encoded bytes that are collected before they are handed to the format.
const HANDFUL: usize = 16 << 20;

/// The chunks of one HDF5 dataset.
#[derive(Debug)]
pub struct PyTable {
    path: PathBuf,
    fetch: Py<PyAny>,
    commit: Option<Py<PyAny>>,
    size: ChunkSize,
    raised: Mutex<Option<PyErr>>,
}

type Encoded = (Vec<i64>, u32, Vec<u8>);

impl PyTable {
    /// From the callables of a `TableSource`.
    pub fn new(
        path: PathBuf,
        fetch: Py<PyAny>,
        commit: Option<Py<PyAny>>,
        size: ChunkSize,
    ) -> PyTable {
        PyTable { path, fetch, commit, size, raised: Mutex::new(None) }
    }

    /// The exception behind the last failure, if Python raised one.
    pub fn take_raised(&self) -> Option<PyErr> {
        lock(&self.raised).take()
    }

    fn failed(&self, error: PyErr) -> StorageError {
        let text = format!("the format raised {error}");
        *lock(&self.raised) = Some(error);
        StorageError::BadJob(text)
    }

    fn rows(&self, cells: &Cells) -> PyResult<Vec<i64>> {
        Python::attach(|py| {
            let lo = PyTuple::new(py, &cells.lo)?;
            let count = PyTuple::new(py, &cells.count)?;
            let rows = self.fetch.bind(py).call1((lo, count))?;
            let rows: Bound<'_, PyArray2<i64>> = rows.cast_into()?;
            let view = rows.readonly();
            Ok(view.as_array().iter().copied().collect())
        })
    }

    fn store(&self, chunks: &[Encoded]) -> Result<(), StorageError> {
        let Some(commit) = &self.commit else {
            return Err(StorageError::ReadOnly { path: self.path.clone() });
        };
        Python::attach(|py| {
            let list = PyList::empty(py);
            for (cell, mask, bytes) in chunks {
                let row = (PyTuple::new(py, cell)?, *mask, PyBytes::new(py, bytes));
                list.append(row)?;
            }
            commit.bind(py).call1((list,)).map(|_| ())
        })
        .map_err(|error| self.failed(error))
    }

    /// Stores the missing chunks of a box, every element equal to `fill`.
    fn create_missing(&self, missing: Vec<Vec<i64>>, fill: &[u8]) -> Result<(), StorageError> {
        let bytes = usize::try_from(self.size.decoded).unwrap_or(usize::MAX);
        let at_once = (HANDFUL / bytes.max(1)).max(1);
        for group in missing.chunks(at_once) {
            let held = bytes.saturating_mul(2 * group.len());
            let _held = Arena::global().reserve("new chunks", held as u64)?;
            let chunk = fill.repeat(bytes / fill.len().max(1));
            let rows: Vec<Encoded> =
                group.iter().map(|cell| (cell.clone(), 0, chunk.clone())).collect();
            self.store(&rows)?;
        }
        Ok(())
    }
}

impl PyTable {
    /// Where the chunks of a box are now, and the open file.
    pub fn resolve(&self, cells: &Cells, writable: bool) -> Result<Resolved, StorageError> {
        let rows = self.rows(cells).map_err(|error| self.failed(error))?;
        let files = FileTable::new(vec![self.path.clone()], writable);
        let len = files.open(0)?.len()?;
        let table = table::from_rows(cells, &rows, self.size, 0, len, &self.path)?;
        Ok(Resolved { table, files })
    }

    /// Keeps other writers out. The library's own tables change with every chunk that moves, so
    /// there is one writer a file.
    pub fn lock(&self, patience: Patience<'_>) -> Result<FileLock, StorageError> {
        FileLock::acquire(&self.path, Range::WHOLE, Mode::Exclusive, patience)
    }

    /// Keeps writers of encoded chunks out while such chunks are looked up and read: a chunk that is
    /// stored anew moves, and its old place soon belongs to another chunk, whose bytes would decode
    /// as well. Where files cannot be locked, reading goes on without.
    pub fn share(&self, patience: Patience<'_>) -> Result<Option<FileLock>, StorageError> {
        if !self.size.encoded {
            return Ok(None);
        }
        match FileLock::acquire(&self.path, Range::WHOLE, Mode::Shared, patience) {
            Ok(guard) => Ok(Some(guard)),
            Err(error @ (StorageError::Locked { .. } | StorageError::Cancelled)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Takes encoded chunks.
    pub fn begin(&self) -> Box<dyn ChunkSink + '_> {
        Box::new(Sink { table: self, held: Mutex::default() })
    }

    /// Makes the chunks of a box exist, so that they can be written in place.
    pub fn in_place(
        &self,
        cells: &Cells,
        fill: &[u8],
        patience: Patience<'_>,
    ) -> Result<Resolved, StorageError> {
        let found = self.resolve(cells, true)?;
        if found.table.stored.iter().all(Option::is_some) {
            return Ok(found);
        }
        let _guard = self.lock(patience)?;
        let now = self.resolve(cells, true)?;
        let missing = cells.iter().zip(&now.table.stored);
        let missing = missing.filter(|(_, at)| at.is_none()).map(|(cell, _)| cell).collect();
        self.create_missing(missing, fill)?;
        self.resolve(cells, true)
    }

    /// Waits until what was written is on the disk.
    pub fn flush(&self) -> Result<(), StorageError> {
        OpenFile::open(&self.path, true)?.sync()
    }
}

/// Collects encoded chunks and hands them to the format.
struct Sink<'a> {
    table: &'a PyTable,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    chunks: Vec<Encoded>,
    bytes: usize,
    counted: Vec<Reservation>,
}

impl Sink<'_> {
    fn hand_over(&self, held: &mut Held) -> Result<(), StorageError> {
        let taken = std::mem::take(held);
        if taken.chunks.is_empty() {
            Ok(())
        } else {
            self.table.store(&taken.chunks)
        }
    }
}

impl ChunkSink for Sink<'_> {
    fn commit(&self, chunk: &[i64], mask: u32, bytes: &[u8]) -> Result<(), StorageError> {
        let mut held = lock(&self.held);
        if held.bytes + bytes.len() > HANDFUL {
            self.hand_over(&mut held)?;
        }
        // Twice: here, and as the bytes object that Python is given.
        match Arena::global().reserve("encoded chunks", 2 * bytes.len() as u64) {
            Ok(reservation) => held.counted.push(reservation),
            Err(error) => {
                if held.chunks.is_empty() {
                    return Err(error);
                }
                self.hand_over(&mut held)?;
                let again = Arena::global().reserve("encoded chunks", 2 * bytes.len() as u64)?;
                held.counted.push(again);
            }
        }
        held.bytes += bytes.len();
        held.chunks.push((chunk.to_vec(), mask, bytes.to_vec()));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), StorageError> {
        let mut held = lock(&self.held);
        self.hand_over(&mut held)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

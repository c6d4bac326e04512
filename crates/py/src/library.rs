//! The callables of a format whose library owns the table of chunks (HDF5), for calls from the core.
//!
//! Each takes the GIL for one call. An exception passes through the core and is raised unchanged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use outcore_access::guard::{Held, Keeper};
use outcore_access::table::{Library, Staged};
use outcore_io::codec::{Decode, Fault as Refused};
use outcore_io::store::listing::Listed;
use outcore_io::store::Cells;
use outcore_io::StorageError;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};

use crate::calls::python;
use crate::errors::foreign;

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
}

impl Library for Calls {
    fn fetch(&self, cells: &Cells, locked: bool) -> Result<Vec<i64>, StorageError> {
        let rows = python(|py| {
            let lo = PyTuple::new(py, &cells.lo)?;
            let count = PyTuple::new(py, &cells.count)?;
            let rows = self.fetch.bind(py).call1((lo, count, locked))?;
            let rows: Bound<'_, PyArray2<i64>> = rows.cast_into()?;
            let view = rows.readonly();
            Ok(view.as_array().iter().copied().collect())
        });
        rows.map_err(foreign)
    }

    fn stored(&self, lo: &[i64], count: &[i64], locked: bool) -> Result<Listed, StorageError> {
        let found = Python::attach(|py| {
            let (lo, count) = (PyTuple::new(py, lo)?, PyTuple::new(py, count)?);
            let places = self.stored.bind(py).call1((lo, count, locked))?;
            let places: Bound<'_, PyArray1<i64>> = places.cast_into()?;
            Ok(Listed::from_places(places.readonly().as_array().iter().copied()))
        });
        found.map_err(foreign)?
    }

    fn commits(&self) -> bool {
        self.commit.is_some()
    }

    fn commit(&self, staged: Staged) -> Result<Staged, StorageError> {
        let Some(commit) = &self.commit else { return Ok(staged) };
        python(|py| {
            let chunks = EncodedChunks::of(py, staged);
            let chunks = Bound::new(py, chunks)?;
            let done = commit.bind(py).call1((&chunks,));
            // Taken out before anything else: the traceback of a failure keeps `chunks` alive.
            let staged = std::mem::take(&mut *lock(&chunks.get().staged));
            done.map(|_| staged)
        })
        .map_err(foreign)
    }

    fn load(&self, new: i64) -> Result<i64, outcore_access::Fault> {
        let Some(load) = &self.load else { return Ok(0) };
        python(|py| {
            let loaded = load.bind(py).call1((new,)).and_then(|bytes| bytes.extract());
            loaded.map_err(|error| foreign(error).into())
        })
    }

    fn stretches(&self) -> bool {
        self.stretch.is_some()
    }

    fn stretch(&self) -> Result<(), StorageError> {
        let Some(stretch) = &self.stretch else { return Ok(()) };
        python(|py| stretch.call0(py).map(drop)).map_err(foreign)
    }
}

/// Grid coordinates, filter mask, bytes.
type PyRow<'py> = (Bound<'py, PyTuple>, u32, Bound<'py, PyAny>);

/// The argument of `commit`. The bytes of a chunk are valid until the next one is requested: all use the same
/// memory, so that the chunks exist only once, and no memory is allocated and released for each.
#[pyclass(module = "outcore._core", frozen)]
struct EncodedChunks {
    staged: Mutex<Staged>,
    next: AtomicUsize,
    bytes: Py<PyArray1<u8>>,
}

impl EncodedChunks {
    fn of(py: Python<'_>, staged: Staged) -> EncodedChunks {
        let bytes = PyArray1::zeros(py, [staged.longest()], false).unbind();
        EncodedChunks { staged: Mutex::new(staged), next: AtomicUsize::new(0), bytes }
    }
}

#[pymethods]
impl EncodedChunks {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<PyRow<'py>>> {
        let staged = lock(&self.staged);
        let chunk = staged.chunk(self.next.fetch_add(1, Ordering::Relaxed));
        let Some((cell, mask, bytes)) = chunk else { return Ok(None) };
        let memory = self.bytes.bind(py);
        let len = bytes.len();
        if let Some(place) = memory.readwrite().as_slice_mut()?.get_mut(..len) {
            place.copy_from_slice(bytes);
        }
        let given = memory.get_item(PySlice::new(py, 0, len as isize, 1))?;
        Ok(Some((PyTuple::new(py, cell)?, mask, given)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A filter that the format's library decodes: `decode` of a `TableSource`, with the options of the codec.
#[derive(Debug)]
pub struct Filter {
    /// `decode(options, stored, nbytes)`.
    pub decode: Py<PyAny>,
    /// Options of the `Codec`.
    pub options: Py<PyAny>,
}

impl Decode for Filter {
    fn decode(&self, input: &[u8], output: &mut [u8]) -> Result<(), Refused> {
        python(|py| {
            let arguments = (&self.options, PyBytes::new(py, input), output.len());
            let bytes: Bound<'_, PyArray1<u8>> = self
                .decode
                .bind(py)
                .call1(arguments)
                .and_then(|decoded| Ok(decoded.cast_into()?))
                .map_err(|error| refused(py, error))?;
            let bytes = bytes.readonly();
            match bytes.as_slice() {
                Ok(bytes) if bytes.len() == output.len() => {
                    output.copy_from_slice(bytes);
                    Ok(())
                }
                _ => Err(Refused::Bad(format!(
                    "the chunk does not decode to {} bytes",
                    output.len()
                ))),
            }
        })
    }
}

/// Converts an error of the library about a chunk; an interrupt is raised unchanged.
fn refused(py: Python<'_>, error: PyErr) -> Refused {
    match error.is_instance_of::<PyException>(py) {
        true => Refused::Bad(error.value(py).to_string()),
        false => Refused::Other(Box::new(foreign(error))),
    }
}

/// The callables of a `Guard`.
#[derive(Debug)]
pub struct Locks {
    /// Completes, or discards, an interrupted change of the file.
    pub recover: Py<PyAny>,
    /// Takes the library's lock for writing; the returned callable releases it.
    pub hold: Py<PyAny>,
}

impl Keeper for Locks {
    fn recover(&self) -> Result<(), StorageError> {
        python(|py| self.recover.call0(py).map(drop)).map_err(foreign)
    }

    fn hold(&self) -> Result<Held, StorageError> {
        let release = python(|py| self.hold.call0(py)).map_err(foreign)?;
        Ok(Box::new(Release(release)))
    }
}

/// Releases the library's lock when it is dropped.
struct Release(Py<PyAny>);

impl Drop for Release {
    fn drop(&mut self) {
        // Releasing a lock closes a descriptor: a failure could not be reported to anybody.
        python(|py| self.0.call0(py).map(drop).unwrap_or_default());
    }
}

/// Return the checksum that HDF5 uses for its own structures.
#[pyfunction]
pub fn lookup3(data: &[u8]) -> u32 {
    outcore_io::lookup3::lookup3(data)
}

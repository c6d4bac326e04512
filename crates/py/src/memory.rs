//! The memory budget, seen from Python.

#![allow(unsafe_code)]

use std::os::raw::c_int;
use std::sync::Mutex;
use std::time::Duration;

use outcore_access::loops;
use outcore_io::{Arena, Segment};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::buffers;
use crate::errors::Fault;

/// The budget of this process, bytes.
#[pyfunction]
pub fn memory_limit() -> u64 {
    Arena::global().limit()
}

/// Sets the budget of this process, bytes.
#[pyfunction]
pub fn set_memory_limit(limit: u64) {
    Arena::global().set_limit(limit);
}

/// Bytes held now, bytes that are free, and the most that was ever held.
#[pyfunction]
pub fn memory_state() -> (u64, u64, u64) {
    let arena = Arena::global();
    (arena.used(), arena.available(), arena.peak())
}

/// Starts to measure the peak anew.
#[pyfunction]
pub fn reset_memory_peak() {
    Arena::global().reset_peak();
}

/// Decoded chunks that are kept, and their bytes.
#[pyfunction]
pub fn kept_chunks() -> (usize, u64) {
    Arena::global().kept_chunks()
}

/// Changes for how many seconds nobody may have changed a file of which chunks are kept; for tests.
#[pyfunction]
pub fn keep_chunks_after(seconds: f64) -> PyResult<()> {
    let quiet = Duration::try_from_secs_f64(seconds);
    Arena::global().keep_chunks_after(quiet.map_err(|e| PyValueError::new_err(e.to_string()))?);
    Ok(())
}

/// Memory that Python code holds, counted against the budget until released.
#[pyclass(module = "outcore._core", frozen)]
pub struct Reservation {
    held: Mutex<Held>,
}

enum Held {
    Nothing,
    Bytes(outcore_io::Reservation),
    /// Of an array, which lives as long.
    Pages(outcore_io::Pages, #[allow(dead_code, reason = "kept alive")] Py<PyAny>),
}

const SHARED: &str = "memory shared between ranks";

#[pymethods]
impl Reservation {
    /// Count `nbytes` for `what` (a word of a fixed list, else "a task"). What loops over blocks were
    /// promised stays free, unless this is a part of it (`promised`).
    #[new]
    #[pyo3(signature = (what, nbytes, promised = false))]
    fn new(what: &str, nbytes: u64, promised: bool) -> PyResult<Reservation> {
        // The core names purposes by static words.
        let what = match what {
            "blocks" => "blocks()",
            "convert" => "convert",
            "shared" => SHARED,
            "metadata" => "a metadata document",
            "exchange" => "messages between ranks",
            "collective" => "messages of a collective access",
            _ => "a task",
        };
        let held = match promised {
            true => Arena::global().reserve(what, nbytes),
            false => loops::reserve(what, nbytes),
        };
        let held = held.map_err(Fault::from)?;
        Ok(Reservation { held: Mutex::new(Held::Bytes(held)) })
    }

    /// Bytes counted; 0 once released.
    #[getter]
    fn nbytes(&self) -> u64 {
        match &*self.lock() {
            Held::Nothing => 0,
            Held::Bytes(held) => held.bytes(),
            Held::Pages(pages, _) => pages.bytes(),
        }
    }

    /// Give the bytes back. Doing so twice does nothing.
    fn release(&self) {
        *self.lock() = Held::Nothing;
    }

    /// What is counted is `memory`: bytes of a shared mapping, on pages that have nothing else.
    fn of_pages(&self, memory: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = memory.cast::<numpy::PyUntypedArray>()?;
        let (start, bytes) = (buffers::memory(array).data, memory.len()? as u64);
        let held = &mut *self.lock();
        match std::mem::replace(held, Held::Nothing) {
            Held::Bytes(counted)
                if counted.bytes() == bytes
                    && (start as usize).is_multiple_of(outcore_io::pool::PAGE) =>
            {
                // SAFETY: the caller's promise; the array is kept with the pages.
                let pages = unsafe { counted.of_pages(start) };
                *held = Held::Pages(pages, memory.clone().unbind());
                Ok(())
            }
            other => {
                *held = other;
                Err(PyValueError::new_err("what is counted is not this memory"))
            }
        }
    }

    /// The memory is not needed now; it is kept until something else needs it.
    fn unpin(&self) {
        if let Held::Pages(pages, _) = &*self.lock() {
            pages.unpin();
        }
    }

    /// The memory is needed again; tells whether these are still the same pages with the same content.
    /// Raises where there is no room now.
    fn pin(&self) -> PyResult<bool> {
        match &*self.lock() {
            Held::Pages(pages, _) => Ok(pages.pin(SHARED).map_err(Fault::from)?),
            _ => Ok(true),
        }
    }

    /// Have the memory in huge pages where the system does that; tells how many bytes are. What is in
    /// it stays.
    fn gather(&self, py: Python<'_>) -> u64 {
        py.detach(|| match &*self.lock() {
            Held::Pages(pages, _) => pages.gather(),
            _ => 0,
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, _ended: &Bound<'_, pyo3::types::PyTuple>) {
        self.release();
    }
}

/// Memory that other processes may map too, at addresses where the system can use huge pages. What
/// looks at its `bytes` keeps it alive.
#[pyclass(module = "outcore._core", frozen)]
pub struct SharedMemory(Segment);

#[pymethods]
impl SharedMemory {
    /// Map `nbytes` of the file with this descriptor, which may be closed afterwards; without one new
    /// memory, which only this process sees. Raises OSError.
    #[new]
    #[pyo3(signature = (nbytes, file = None))]
    fn new(nbytes: usize, file: Option<i32>) -> PyResult<SharedMemory> {
        let segment = Segment::map(file, nbytes);
        Ok(SharedMemory(segment.map_err(std::io::Error::from_raw_os_error)?))
    }

    /// The bytes, which may be written.
    fn bytes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// What `bytes` gives.
    ///
    /// # Safety
    /// `view` is a buffer that Python fills and releases.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, bytes) = (slf.get().0.as_ptr(), slf.get().0.len());
        // SAFETY: the mapping lives as long as its object, to which the view takes a reference.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), bytes as isize, 0, flags)
        };
        if status == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

impl Reservation {
    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

//! The memory budget in its Python form.

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

/// Return the budget of this process in bytes.
#[pyfunction]
pub fn memory_limit() -> u64 {
    Arena::global().limit()
}

/// Set the budget of this process in bytes.
#[pyfunction]
pub fn set_memory_limit(limit: u64) {
    Arena::global().set_limit(limit);
}

/// Return the bytes held now, the free bytes, and the most that was ever held.
#[pyfunction]
pub fn memory_state() -> (u64, u64, u64) {
    let arena = Arena::global();
    (arena.used(), arena.available(), arena.peak())
}

/// Restart the measurement of the peak.
#[pyfunction]
pub fn reset_memory_peak() {
    Arena::global().reset_peak();
}

/// Return the number of cached decoded chunks, and their bytes.
#[pyfunction]
pub fn kept_chunks() -> (usize, u64) {
    Arena::global().kept_chunks()
}

/// Change for how many seconds a file must be unchanged before its chunks are cached; for tests.
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
    /// Pages of an array, which is kept alive with them.
    Pages(outcore_io::Pages, #[allow(dead_code, reason = "kept alive")] Py<PyAny>),
}

const SHARED: &str = "memory shared between ranks";

#[pymethods]
impl Reservation {
    /// Count `nbytes` for `what` (a purpose of a fixed list, else "a task"). Memory that was promised to
    /// loops over blocks stays free, unless this is a part of it (`promised`).
    #[new]
    #[pyo3(signature = (what, nbytes, promised = false))]
    fn new(what: &str, nbytes: u64, promised: bool) -> PyResult<Reservation> {
        // The core names purposes by static strings.
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

    /// Number of counted bytes; 0 once released.
    #[getter]
    fn nbytes(&self) -> u64 {
        match &*self.lock() {
            Held::Nothing => 0,
            Held::Bytes(held) => held.bytes(),
            Held::Pages(pages, _) => pages.bytes(),
        }
    }

    /// Release the bytes. Another call does nothing.
    fn release(&self) {
        *self.lock() = Held::Nothing;
    }

    /// State that the counted bytes are `memory`: bytes of a shared mapping, on pages that hold nothing else.
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
                Err(PyValueError::new_err("the counted bytes are not this memory"))
            }
        }
    }

    /// Record that the memory is not needed now; it is kept until another purpose needs it.
    fn unpin(&self) {
        if let Held::Pages(pages, _) = &*self.lock() {
            pages.unpin();
        }
    }

    /// Record that the memory is needed again; return whether these are still the same pages with the same
    /// content. Raise an error if memory is too short now.
    fn pin(&self) -> PyResult<bool> {
        match &*self.lock() {
            Held::Pages(pages, _) => Ok(pages.pin(SHARED).map_err(Fault::from)?),
            _ => Ok(true),
        }
    }

    /// Move the memory to huge pages if the system does that; return how many bytes are there. The content is
    /// preserved.
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

/// Memory that other processes may map too, at addresses where the system can use huge pages. Views of its
/// `bytes` keep it alive.
#[pyclass(module = "outcore._core", frozen)]
pub struct SharedMemory(Segment);

#[pymethods]
impl SharedMemory {
    /// Map `nbytes` of the file with this descriptor, which may be closed afterwards; without one, map new
    /// memory, which only this process sees. Raises OSError.
    #[new]
    #[pyo3(signature = (nbytes, file = None))]
    fn new(nbytes: usize, file: Option<i32>) -> PyResult<SharedMemory> {
        let segment = Segment::map(file, nbytes);
        Ok(SharedMemory(segment.map_err(std::io::Error::from_raw_os_error)?))
    }

    /// Return the bytes, which may be written.
    fn bytes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// Fills the buffer that `bytes` returns.
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

//! The memory budget, seen from Python.

use std::sync::Mutex;
use std::time::Duration;

use outcore_io::Arena;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::Fault;
use crate::loops;

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
    held: Mutex<Option<outcore_io::Reservation>>,
}

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
            "shared" => "memory shared between ranks",
            "exchange" => "messages between ranks",
            _ => "a task",
        };
        let left = if promised { 0 } else { loops::promised() };
        let held = Arena::global().reserve_leaving(what, nbytes, left).map_err(Fault::from)?;
        Ok(Reservation { held: Mutex::new(Some(held)) })
    }

    /// Bytes counted; 0 once released.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.lock().as_ref().map_or(0, outcore_io::Reservation::bytes)
    }

    /// Give the bytes back. Doing so twice does nothing.
    fn release(&self) {
        self.lock().take();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, _ended: &Bound<'_, pyo3::types::PyTuple>) {
        self.release();
    }
}

impl Reservation {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<outcore_io::Reservation>> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

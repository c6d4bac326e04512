//! Calls inside calls, as Python sees them: see `outcore_access::nesting`.

use outcore_access::nesting::{self, Callback};
use pyo3::prelude::*;

use crate::errors::Fault;

/// Runs Python code in the midst of an access, on any of its threads.
pub fn python<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    let _callback = Callback::begin();
    Python::attach(work)
}

/// A change of a file that Python code of this thread makes, for as long as the block lasts: a call that
/// comes in between, from a handler of a signal, must not wait for its locks.
#[pyclass(module = "outcore._core", frozen)]
pub struct Changing((u64, u64));

#[pymethods]
impl Changing {
    #[new]
    fn new(device: u64, inode: u64) -> Changing {
        Changing((device, inode))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        nesting::begin_change(slf.get().0);
        slf
    }

    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, _ended: &Bound<'_, pyo3::types::PyTuple>) {
        nesting::end_change(self.0);
    }
}

/// Whether this thread is in the midst of reading chunks of a file, which keeps it from being changed.
#[pyfunction]
pub fn reads_here(device: u64, inode: u64) -> bool {
    nesting::reads_here(device, inode)
}

/// Raises what a nested call gets that cannot have what it needs.
#[pyfunction]
pub fn refuse_nested(path: &str, what: &str) -> PyResult<()> {
    Err(Fault::from(nesting::refused(path, what)).into())
}

/// Whether this thread is in the midst of a call.
#[pyfunction]
pub fn is_inside() -> bool {
    nesting::is_inside()
}

/// A call of Python code of ours that holds locks, for as long as the block lasts.
#[pyclass(module = "outcore._core", frozen)]
pub struct Call;

#[pymethods]
impl Call {
    #[new]
    fn new() -> Call {
        Call
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        nesting::begin();
        slf
    }

    #[pyo3(signature = (*_ended))]
    fn __exit__(&self, _ended: &Bound<'_, pyo3::types::PyTuple>) {
        nesting::end();
    }
}

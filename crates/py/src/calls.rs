//! Calls inside calls, in their Python form: see `outcore_access::nesting`.

use outcore_access::nesting::{self, Callback};
use pyo3::prelude::*;

use crate::errors::Fault;

/// Runs Python code during an access, on any of its threads.
pub fn python<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    let _callback = Callback::begin();
    Python::attach(work)
}

/// A change of a file by Python code of this thread, for the duration of the block: a nested call, from a
/// signal handler, must not wait for its locks.
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

/// Return whether this thread is reading chunks of a file, which must not be changed during that.
#[pyfunction]
pub fn reads_here(device: u64, inode: u64) -> bool {
    nesting::reads_here(device, inode)
}

/// Raise the error of a nested call that cannot have a resource.
#[pyfunction]
pub fn refuse_nested(path: &str, what: &str) -> PyResult<()> {
    Err(Fault::from(nesting::refused(path, what)).into())
}

/// Return whether a call is in progress on this thread.
#[pyfunction]
pub fn is_inside() -> bool {
    nesting::is_inside()
}

/// A call of Python code of outcore that holds locks, for the duration of the block.
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

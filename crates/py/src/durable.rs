//! Files that appear complete in one step, temporary names and files that killed processes left: see
//! `outcore_io::durable` and `outcore_io::temporary`.
//!
//! Errors of the operating system are raised as plain `OSError`: the caller adds the operation and its
//! object.

use std::ffi::OsString;
use std::path::PathBuf;

use outcore_io::durable::{self, Writer};
use outcore_io::temporary::{self, Age};
use outcore_io::StorageError;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::errors::Fault;

/// Converts an error of the operating system, with its message.
fn plain<T>(py: Python<'_>, result: Result<T, StorageError>) -> PyResult<T> {
    result.map_err(|error| match error {
        StorageError::Io(failure) => {
            let words = || py.import("os")?.call_method1("strerror", (failure.errno,))?.extract();
            let path = failure.path.into_os_string();
            match words() {
                Ok::<String, _>(words) => PyOSError::new_err((failure.errno, words, path)),
                Err(error) => error,
            }
        }
        other => Fault::from(other).into(),
    })
}

/// A file under a temporary name, until `publish` gives it its own name; `close` removes a file that was not
/// published.
#[pyclass(module = "outcore._core")]
pub struct TempFile {
    file: Option<durable::TempFile>,
    exclusive: bool,
}

impl TempFile {
    fn open(&self) -> PyResult<&durable::TempFile> {
        self.file
            .as_ref()
            .ok_or_else(|| PyValueError::new_err("the file was already published or removed"))
    }
}

#[pymethods]
impl TempFile {
    #[new]
    #[pyo3(signature = (path, exclusive, library=false))]
    fn new(py: Python<'_>, path: PathBuf, exclusive: bool, library: bool) -> PyResult<TempFile> {
        let writer = if library { Writer::Library } else { Writer::Descriptor };
        let made = py.detach(|| durable::TempFile::replacing(&path, exclusive, writer));
        Ok(TempFile { file: Some(plain(py, made)?), exclusive })
    }

    /// Return the file descriptor, which the file keeps.
    fn fileno(&self) -> PyResult<i32> {
        self.open().map(durable::TempFile::fd)
    }

    /// Temporary name of the file.
    #[getter]
    fn name(&self) -> PyResult<OsString> {
        self.open().map(|file| file.path().as_os_str().to_owned())
    }

    /// Give the file its name, durably.
    fn publish(&mut self, py: Python<'_>) -> PyResult<()> {
        self.open()?;
        let (file, exclusive) = (self.file.take(), self.exclusive);
        let published = py.detach(|| file.map_or(Ok(()), |file| file.publish(exclusive)));
        plain(py, published)
    }

    /// Remove the file, unless it has its name.
    fn close(&mut self, py: Python<'_>) {
        let file = self.file.take();
        py.detach(|| drop(file));
    }
}

/// Allocate blocks for bytes `start..end` of an open file; new bytes read as zeros.
#[pyfunction]
pub fn allocate(py: Python<'_>, file: i32, start: i64, end: i64) -> PyResult<()> {
    plain(py, py.detach(|| durable::reserve(file, "".as_ref(), start, end)))
}

/// Make the names in the folder of `path` durable.
#[pyfunction]
pub fn fsync_folder(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    plain(py, py.detach(|| durable::sync_folder_of(&path)))
}

/// Give a complete file or folder the name `target`, durably; return the new place of what had that name
/// before, if any.
#[pyfunction]
pub fn move_into_place(
    py: Python<'_>,
    fresh: PathBuf,
    target: PathBuf,
    aside: PathBuf,
    exclusive: bool,
) -> PyResult<Option<OsString>> {
    let moved = py.detach(|| durable::move_into_place(&fresh, &target, &aside, exclusive));
    Ok(plain(py, moved)?.map(PathBuf::into_os_string))
}

/// Return a temporary name next to `path`, for this machine.
#[pyfunction]
pub fn temporary_name(path: PathBuf, mark: &str) -> OsString {
    temporary::name(&path, mark).into_os_string()
}

/// Mark an open temporary folder as one whose creator is alive.
#[pyfunction]
pub fn hold_temporary(folder: i32) {
    temporary::hold(folder);
}

/// Remove all files that killed processes left for `path` on this machine, of any age.
#[pyfunction]
pub fn remove_left(py: Python<'_>, path: PathBuf) {
    py.detach(|| temporary::remove_left(&path, Age::Any));
}

/// Remove one such file or folder, if no process holds it and it is old; `folder` is an open folder that
/// contains `path`.
#[pyfunction]
#[pyo3(signature = (path, folder=None))]
pub fn remove_orphan(py: Python<'_>, path: PathBuf, folder: Option<i32>) {
    py.detach(|| temporary::remove_orphan(&path, folder, Age::Hour));
}

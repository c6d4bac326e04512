//! Temporary names and what killed makers left: see `outcore_io::temporary`.

use std::ffi::OsString;
use std::path::PathBuf;

use outcore_io::temporary::{self, Age};
use pyo3::prelude::*;

fn age(young: bool) -> Age {
    if young {
        Age::Any
    } else {
        Age::Hour
    }
}

/// A temporary name beside `path`, of this machine.
#[pyfunction]
pub fn temporary_name(path: PathBuf, mark: &str) -> OsString {
    temporary::name(&path, mark).into_os_string()
}

/// Marks an open temporary file, or folder, as one whose maker lives.
#[pyfunction]
pub fn hold_temporary(file: i32) {
    temporary::hold(file);
}

/// Removes what killed makers left for `path` on this machine; also what is young, if asked.
#[pyfunction]
pub fn remove_left(py: Python<'_>, path: PathBuf, young: bool) {
    py.detach(|| temporary::remove_left(&path, age(young)));
}

/// Removes one such thing, if nobody holds it and it is old; `folder` is an open one in which `path` is.
#[pyfunction]
#[pyo3(signature = (path, folder=None))]
pub fn remove_orphan(py: Python<'_>, path: PathBuf, folder: Option<i32>) {
    py.detach(|| temporary::remove_orphan(&path, folder, Age::Hour));
}

//! Writes of a value of another type than the array's, cast by NumPy part by part: see
//! `outcore_access::cast`.

#![allow(unsafe_code)]

use numpy::PyArrayDescr;
use outcore_access::cast::{Cast, Piece};
use outcore_access::Hints;
use outcore_io::StorageError;
use outcore_plan::Section;
use pyo3::prelude::*;

use crate::buffers::{self, Memory};
use crate::calls::python;
use crate::errors::{foreign, Fault};
use crate::open::Open;

/// A value in memory, with strides along the axes of a section.
pub struct Value {
    /// The element for the first index of the section.
    pub memory: Memory,
    /// The type of an element.
    pub dtype: Py<PyArrayDescr>,
}

/// Writes a section of `size` elements.
pub fn write(
    py: Python<'_>,
    (open, hints): (&Open, &Hints),
    value: &Value,
    section: &Section,
    size: i64,
) -> Result<(), Fault> {
    open.outside(py, |signals| {
        let assign = |piece: &Piece<'_>, into: &mut [u8]| -> Result<(), outcore_access::Fault> {
            Ok(cast(open, value, piece, into)?)
        };
        let strides = &value.memory.strides;
        Cast { open, hints, strides, assign: &assign }.write(section, size, signals)
    })
}

/// Assigns a part of the value to packed elements of the array's type, as NumPy does. NumPy releases the GIL
/// while it casts numbers, so threads cast concurrently.
fn cast(
    open: &Open,
    value: &Value,
    piece: &Piece<'_>,
    into: &mut [u8],
) -> Result<(), StorageError> {
    let bytes = piece.count.iter().fold(open.described.item(), |all, n| all.saturating_mul(*n));
    if usize::try_from(bytes).map_or(true, |bytes| bytes > into.len()) {
        let text = format!("a cast of {bytes} bytes does not fit into {} bytes", into.len());
        return Err(StorageError::BadJob(text));
    }
    let Memory { data, strides } = &value.memory;
    let from =
        Memory { data: data.wrapping_offset(piece.shift as isize), strides: strides.clone() };
    let to = Memory { data: into.as_mut_ptr(), strides: piece.strides.to_vec() };
    let done = python(|py| {
        // SAFETY: `from` covers elements of the value, which is referenced by the Python frame that waits for
        // this call; `to` is packed into `into`, which was found large enough. The views end here.
        unsafe {
            let from = buffers::view(py, &from, piece.count, value.dtype.bind(py))?;
            let to = buffers::view(py, &to, piece.count, open.described.dtype.bind(py))?;
            buffers::assign(&to, &from)
        }
    });
    done.map_err(foreign)
}

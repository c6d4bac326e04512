//! Sections of an array, and the memory that they are read into or written from.
//!
//! Invariant. The arrays whose memory the core uses are referenced on this stack until it is done.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering;
use std::sync::Arc;

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_access::{placed, Access};
use outcore_io::exec::User;
use outcore_plan::{nests, Direction, Section};
use pyo3::prelude::*;

use super::handle::Handle;
use crate::buffers::{self, Memory};
use crate::casting::{self, Value};
use crate::errors::{Class, Fault};
use crate::key::{self, Selection};
use crate::layout::Described;
use crate::open::{Held, Open};

impl Handle {
    /// Calls `tell` with an access that moves nothing.
    pub(super) fn look<T>(
        &self,
        key: &Bound<'_, PyAny>,
        write: bool,
        tell: impl FnOnce(&Open, &Access) -> PyResult<T>,
    ) -> PyResult<T> {
        let open = if write { self.open_for_writing()? } else { self.open()? };
        let selection = key::parse(key, open.shape(), &self.path)?;
        let strides = open.described.packed(&selection.shape());
        let walk = selection.walk(&strides);
        let access = Access {
            direction: if write { Direction::Write } else { Direction::Read },
            section: &selection.section,
            strides: &walk.strides,
            data: User::none(),
            hints: &self.hints,
        };
        tell(&open, &access)
    }

    /// Returns a section with the memory into which it will be read: `out`, or a new array.
    pub fn wanted<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Wanted<'py>> {
        let open = self.open()?;
        let selection = key::parse(key, open.shape(), &self.path)?;
        let (shape, size) = (selection.shape(), selection.size()?);
        let (memory, array) = match out {
            Some(out) => {
                let array = check_out(&open.described, out, &shape)?;
                (buffers::memory(array), array.clone())
            }
            None => {
                let array = made_for(py, &open, &selection)?;
                (buffers::memory(&array), array)
            }
        };
        let scalar = selection.scalar && out.is_none();
        Ok(Wanted { open, selection, size, memory, array, scalar })
    }

    /// Returns a section, and the array for threads that read or write it.
    pub fn held_section(&self, key: &Bound<'_, PyAny>) -> PyResult<(Held, Section)> {
        let held = self.held()?;
        let section = key::parse(key, held.open.shape(), &self.path)?.section;
        Ok((held, section))
    }

    /// Moves a selection between the file and memory whose axes are the axes of the result.
    pub(super) fn transfer(
        &self,
        py: Python<'_>,
        open: &Arc<Open>,
        direction: Direction,
        selection: &Selection,
        size: i64,
        memory: &Memory,
    ) -> Result<(), Fault> {
        if size == 0 || open.described.item() == 0 {
            return Ok(());
        }
        let walk = selection.walk(&memory.strides);
        let (section, item) = (&selection.section, open.described.item());
        let access = Access {
            direction,
            section,
            strides: &walk.strides,
            // SAFETY: the memory was found, or made, for this selection, and the Python frame that waits for
            // this call refers to it; results and `out` may be written.
            data: unsafe { memory.user(walk.shift, section, &walk.strides, item) },
            hints: &self.hints,
        };
        open.run(py, &access)
    }

    pub(super) fn assign(
        &self,
        py: Python<'_>,
        open: &Arc<Open>,
        selection: &Selection,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let dtype = open.described.dtype.bind(py);
        let array = match value.cast::<PyUntypedArray>() {
            Ok(array) => array.clone(),
            Err(_) => buffers::converted(value, dtype)?,
        };
        let size = selection.size()?;
        if selection.scalar && array.ndim() > 0 {
            let path = &self.path;
            let text = format!(
                "one element of '{path}' cannot be set to an array of shape {:?}; use a slice, or \
                 value.item()",
                array.shape()
            );
            return Err(Fault::new(Class::Usage, "broadcast", text).at(path).into());
        }
        let memory = buffers::broadcast(&array, &selection.shape(), &self.path)?;
        if size == 0 {
            return Ok(());
        }
        open.admit(&selection.section)?;
        let written = if array.dtype().is_equiv_to(dtype) {
            self.transfer(py, open, Direction::Write, selection, size, &memory)
        } else {
            let walk = selection.walk(&memory.strides);
            let data = memory.data.wrapping_offset(walk.shift as isize);
            let memory = Memory { data, strides: walk.strides };
            let value = Value { memory, dtype: array.dtype().unbind() };
            casting::write(py, (open, &self.hints), &value, &selection.section, size)
        };
        // Before the caller releases `open`, so that a write to an idle state is counted.
        self.written.fetch_add(1, Ordering::SeqCst);
        Ok(written?)
    }
}

/// A section to read, and its memory.
pub struct Wanted<'py> {
    /// The array.
    pub open: Arc<Open>,
    /// The selection.
    pub selection: Selection,
    /// Number of elements.
    pub size: i64,
    /// Memory for the elements.
    pub memory: Memory,
    array: Bound<'py, PyUntypedArray>,
    /// True if the caller gets an element.
    scalar: bool,
}

impl<'py> Wanted<'py> {
    /// Returns the result for the caller, after the read.
    pub fn result(&self) -> PyResult<Bound<'py, PyAny>> {
        match self.scalar {
            true => buffers::scalar(self.array.clone()),
            false => Ok(self.array.clone().into_any()),
        }
    }

    /// Returns whether there is nothing to read.
    pub fn is_nothing(&self) -> bool {
        self.size == 0 || self.open.described.item() == 0
    }
}

/// Makes a new array for a section. A large one has the same offset within pages of memory as the section has
/// within pages of the file, so that the disk can write into it.
pub(super) fn made_for<'py>(
    py: Python<'py>,
    open: &Open,
    selection: &Selection,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    open.admit(&selection.section)?;
    let described = &open.described;
    let (dtype, shape) = (described.dtype.bind(py), selection.shape());
    match placed(&described.layout, &selection.section, selection.size()?) {
        Some(at) => buffers::empty_at(py, &shape, dtype, described.fortran, at),
        None => buffers::empty(py, &shape, dtype, described.fortran),
    }
}

/// Returns `out`, if the section can be read into it.
pub(super) fn check_out<'a, 'py>(
    described: &Described,
    out: &'a Bound<'py, PyAny>,
    shape: &[i64],
) -> PyResult<&'a Bound<'py, PyUntypedArray>> {
    let path = &described.path;
    let bad = |text: String| Fault::new(Class::Usage, "out-mismatch", text).at(path);
    let Ok(array) = out.cast::<PyUntypedArray>() else {
        return Err(bad(format!(
            "out= for '{path}' is not a numpy.ndarray; pass one, or omit out="
        ))
        .into());
    };
    let dtype = described.dtype.bind(out.py());
    if buffers::shape(array) != shape || !array.dtype().is_equiv_to(dtype) {
        let text = format!(
            "out= has shape {:?} and dtype {}, but the section of '{path}' has shape {shape:?} and \
             dtype {dtype}; pass an array with the same shape and dtype",
            buffers::shape(array),
            array.dtype(),
        );
        return Err(bad(text).into());
    }
    if !buffers::writeable(array) {
        return Err(bad(format!("out= for '{path}' is read-only; pass a writable array")).into());
    }
    // Checked for the whole array: the pieces in which chunks are read might each be free of overlap.
    let strides = buffers::memory(array).strides;
    if !shape.contains(&0) && !nests(described.item(), shape, &strides) {
        let text = format!(
            "elements of out= for '{path}' share memory, or may share it: shape {shape:?}, byte \
             strides {strides:?}; pass an array without overlap (numpy.empty, or slices and \
             transposes of one), or read without out= and assign the result"
        );
        return Err(bad(text).into());
    }
    Ok(array)
}

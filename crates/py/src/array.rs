//! `_core.Array`: one array on disk, as `DiskArray` uses it.
//!
//! Each call parses its key, finds the memory on the Python side (a new result, `out`, the value to
//! be written), and lets [`crate::access`] plan and run without the GIL.
//!
//! Invariants. The arrays whose memory the core uses are referenced on this stack until it is done.
//! `state` is locked only for moments in which the GIL is held, so a fork (which holds the GIL as
//! well) never finds it locked. After a fork the child opens the files anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_plan::{nests, Direction, Layout};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PySliceMethods, PyTuple};

use crate::access::{Access, Open};
use crate::buffers::{self, Memory};
use crate::cast::Cast;
use crate::errors::{Class, Fault};
use crate::hints::Wishes;
use crate::key::{self, Selection};
use crate::layout::{describe, Described};

/// An array on disk.
#[pyclass(module = "outcore._core", frozen)]
pub struct Array {
    described: Arc<Described>,
    shape: Vec<i64>,
    writable: bool,
    wishes: Wishes,
    state: Mutex<State>,
}

enum State {
    Open(Arc<Open>),
    Closed,
}

#[pymethods]
impl Array {
    /// From an `ArrayInfo`, whether it may be written, and `Hints`.
    #[new]
    fn new(info: &Bound<'_, PyAny>, writable: bool, hints: &Bound<'_, PyAny>) -> PyResult<Array> {
        let described = Arc::new(describe(info)?);
        let wishes = Wishes::read(hints)?;
        let shape = match &described.layout {
            Layout::Strided(strided) => strided.shape.clone(),
            Layout::Chunked(chunked) => chunked.shape.clone(),
        };
        let open = Open::new(described.clone(), writable)?;
        let state = Mutex::new(State::Open(Arc::new(open)));
        Ok(Array { described, shape, writable, wishes, state })
    }

    /// Read a section into a new array, or into `out`.
    #[pyo3(signature = (key, out = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open()?;
        let selection = key::parse(key, &self.shape, &self.described.path)?;
        let (shape, size) = (selection.shape(), selection.size()?);
        if let Some(out) = out {
            let array = self.check_out(out, &shape)?;
            self.transfer(py, &open, Direction::Read, &selection, size, &buffers::memory(array))?;
            return Ok(out.clone());
        }
        let dtype = self.described.dtype.bind(py);
        let result = buffers::empty(py, &shape, dtype, self.described.fortran)?;
        self.transfer(py, &open, Direction::Read, &selection, size, &buffers::memory(&result))?;
        if selection.scalar {
            buffers::scalar(result)
        } else {
            Ok(result.into_any())
        }
    }

    /// Write a section: NumPy's assignment, in slabs if a cast is needed.
    fn write(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let open = self.open_for_writing()?;
        let selection = key::parse(key, &self.shape, &self.described.path)?;
        self.assign(py, &open, &selection, value)
    }

    /// Write the part `part` (slices of step 1) of the section `key`.
    fn write_part(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        part: &Bound<'_, PyTuple>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let open = self.open_for_writing()?;
        let mut selection = key::parse(key, &self.shape, &self.described.path)?;
        let shape = selection.shape();
        for (k, (slice, length)) in part.iter().zip(shape).enumerate() {
            let found = slice.cast::<PySlice>()?.indices(length as isize)?;
            selection = selection.part(k, found.start as i64, found.slicelength as i64)?;
        }
        self.assign(py, &open, &selection, value)
    }

    /// The shape of the result of a key.
    fn shape_of<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, key::parse(key, &self.shape, &self.described.path)?.shape())
    }

    /// What an access would do, as the fields of `Report`.
    #[pyo3(signature = (key, write = false))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        write: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let open = if write { self.open_for_writing()? } else { self.open()? };
        let selection = key::parse(key, &self.shape, &self.described.path)?;
        let direction = if write { Direction::Write } else { Direction::Read };
        let strides = self.packed(&selection.shape());
        let walk = selection.walk(&strides);
        let access = Access {
            direction,
            section: &selection.section,
            strides: &walk.strides,
            data: std::ptr::null_mut(),
            wishes: &self.wishes,
        };
        crate::report::explain(py, &self.described.path, &open, &access)
    }

    /// What was really read, written and copied since the array was opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::report::stats(py, &*self.open()?)
    }

    /// Ask the system to bring a section into its cache.
    fn prefetch(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let open = self.open()?;
        let selection = key::parse(key, &self.shape, &self.described.path)?;
        if selection.size()? == 0 {
            return Ok(());
        }
        let strides = self.packed(&selection.shape());
        let walk = selection.walk(&strides);
        let access = Access {
            direction: Direction::Read,
            section: &selection.section,
            strides: &walk.strides,
            data: std::ptr::null_mut(),
            wishes: &self.wishes,
        };
        open.prefetch(py, &access)?;
        Ok(())
    }

    /// What is written from now on will be flushed: it may go to the disk at once.
    fn expect_flush(&self) -> PyResult<()> {
        self.open()?.expect_flush();
        Ok(())
    }

    /// Hand what was written to the disk; wait for it if `durable`.
    fn flush(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        let open = self.open_for_writing()?;
        Ok(open.flush(py, durable)?)
    }

    /// Let go of the files. Accesses that are running finish first.
    fn close(&self) {
        *self.lock() = State::Closed;
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        matches!(*self.lock(), State::Closed)
    }

    /// Bytes of buffer that one operation may hold now.
    fn budget(&self) -> u64 {
        self.wishes.budget()
    }
}

impl Array {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<Arc<Open>, Fault> {
        let mut state = self.lock();
        let State::Open(open) = &*state else {
            let path = &self.described.path;
            let text = format!("'{path}' is closed. Open it again with outcore.open().");
            return Err(Fault::new(Class::Usage, "closed", text).at(path));
        };
        if open.pid == std::process::id() {
            return Ok(open.clone());
        }
        // A forked child: locks inside the parent's tables may have been held at the fork, and
        // dropping them could touch them. They are left alone, a few descriptors for the child's
        // life.
        let fresh = Arc::new(Open::new(self.described.clone(), self.writable)?);
        let old = std::mem::replace(&mut *state, State::Open(fresh.clone()));
        std::mem::forget(old);
        Ok(fresh)
    }

    fn open_for_writing(&self) -> Result<Arc<Open>, Fault> {
        if self.writable {
            return self.open();
        }
        let path = &self.described.path;
        let text = format!("'{path}' was opened with mode 'r'. Use 'r+' to write.");
        Err(Fault::new(Class::Usage, "read-only", text).at(path))
    }

    /// Byte strides of a packed array of this shape, in the order of the file.
    fn packed(&self, shape: &[i64]) -> Vec<i64> {
        packed(shape, self.described.item(), self.described.fortran)
    }

    fn check_out<'a, 'py>(
        &self,
        out: &'a Bound<'py, PyAny>,
        shape: &[i64],
    ) -> PyResult<&'a Bound<'py, PyUntypedArray>> {
        let path = &self.described.path;
        let bad = |text: String| Fault::new(Class::Usage, "out-mismatch", text).at(path);
        let Ok(array) = out.cast::<PyUntypedArray>() else {
            return Err(bad(format!("out= for '{path}' must be a numpy.ndarray")).into());
        };
        let dtype = self.described.dtype.bind(out.py());
        if buffers::shape(array) != shape || !array.dtype().is_equiv_to(dtype) {
            let text = format!(
                "out= has shape {:?} and dtype {}, but the section of '{path}' has shape \
                 {shape:?} and dtype {dtype}. They must be the same.",
                buffers::shape(array),
                array.dtype(),
            );
            return Err(bad(text).into());
        }
        if !buffers::writeable(array) {
            return Err(bad(format!("out= for '{path}' is read-only")).into());
        }
        // Of the whole: the pieces in which chunks are read may each be without overlap.
        let strides = buffers::memory(array).strides;
        if !shape.contains(&0) && !nests(self.described.item(), shape, &strides) {
            let text = format!(
                "elements of out= for '{path}' share memory, or may do so: shape {shape:?}, byte \
                 strides {strides:?}. Pass an array whose elements are all its own (numpy.empty, or \
                 slices and transposes of one), or read without out= and assign the result."
            );
            return Err(bad(text).into());
        }
        Ok(array)
    }

    /// Moves a selection between the file and memory whose axes are those of the result.
    fn transfer(
        &self,
        py: Python<'_>,
        open: &Arc<Open>,
        direction: Direction,
        selection: &Selection,
        size: i64,
        memory: &Memory,
    ) -> Result<(), Fault> {
        if size == 0 || self.described.item() == 0 {
            return Ok(());
        }
        let walk = selection.walk(&memory.strides);
        let access = Access {
            direction,
            section: &selection.section,
            strides: &walk.strides,
            data: memory.data.wrapping_offset(walk.shift as isize),
            wishes: &self.wishes,
        };
        open.run(py, &access)
    }

    fn assign(
        &self,
        py: Python<'_>,
        open: &Arc<Open>,
        selection: &Selection,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let dtype = self.described.dtype.bind(py);
        let array = match value.cast::<PyUntypedArray>() {
            Ok(array) => array.clone(),
            Err(_) => buffers::converted(value, dtype)?,
        };
        let size = selection.size()?;
        if selection.scalar && array.ndim() > 0 {
            let path = &self.described.path;
            let text = format!(
                "one element of '{path}' cannot take an array of shape {:?}. Use a slice, or \
                 value.item().",
                array.shape()
            );
            return Err(Fault::new(Class::Usage, "broadcast", text).at(path).into());
        }
        let memory = buffers::broadcast(&array, &selection.shape(), &self.described.path)?;
        if size == 0 {
            return Ok(());
        }
        if array.dtype().is_equiv_to(dtype) {
            return Ok(self.transfer(py, open, Direction::Write, selection, size, &memory)?);
        }
        let cast = Cast {
            described: &self.described,
            wishes: &self.wishes,
            open,
            walk: selection.walk(&memory.strides),
            data: memory.data,
            from: array.dtype().unbind(),
        };
        Ok(cast.write(py, &selection.section, size)?)
    }
}

/// Byte strides of a packed array.
pub fn packed(shape: &[i64], item: i64, fortran: bool) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    let mut step = item;
    let mut place = |d: usize| {
        strides[d] = step;
        step = step.saturating_mul(shape[d].max(1));
    };
    if fortran {
        (0..shape.len()).for_each(&mut place);
    } else {
        (0..shape.len()).rev().for_each(&mut place);
    }
    strides
}

impl Described {
    /// Bytes of an element.
    pub fn item(&self) -> i64 {
        match &self.layout {
            Layout::Strided(strided) => strided.item,
            Layout::Chunked(chunked) => chunked.item,
        }
    }
}

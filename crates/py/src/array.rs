//! `_core.Array`: one array on disk, as `DiskArray` uses it.
//!
//! Each call parses its key, finds the memory on the Python side (a new result, `out`, the value to
//! be written), and lets `outcore_access` plan and run without the GIL.
//!
//! The metadata may change under the accesses of other threads (`append`, `resize`). What is open
//! then is replaced ([`Array::adopt`]) and, if accesses still run on it or a flush is due, retired: it
//! is flushed with the rest, and goes once it is idle. So a flush covers every write that returned
//! before, whichever of them it went to.
//!
//! Invariants. The arrays whose memory the core uses are referenced on this stack until it is done.
//! `state` is locked only for moments in which the GIL is held, so a fork (which holds the GIL as
//! well) never finds it locked. After a fork the child opens the files anew.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{
    PyArray1, PyArrayDescrMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods,
};
use outcore_access::described::Source;
use outcore_access::{placed, Access, Hints, InParts};
use outcore_io::exec::User;
use outcore_io::process;
use outcore_plan::collective::{section_words, ArrayDescriptor};
use outcore_plan::{nests, Direction, Method};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PySliceMethods, PyTuple};

use crate::block_loops::{self, Loop};
use crate::buffers::{self, Memory};
use crate::casting::{self, Value};
use crate::errors::{Class, Fault};
use crate::hints;
use crate::indexed::Asked;
use crate::key::{self, Axis, Selection};
use crate::layout::{describe, Described};
use crate::open::Open;
use crate::two_phase::Held;

/// An array on disk.
#[pyclass(module = "outcore._core", frozen)]
pub struct Array {
    path: String,
    writable: bool,
    hints: Hints,
    state: Arc<Mutex<State>>,
    /// Writes that ended.
    written: Arc<AtomicU64>,
    /// Of these, so many are on the disk.
    safe: Arc<AtomicU64>,
}

enum State {
    Open {
        current: Arc<Open>,
        /// From before the metadata changed. Nobody gets hold of them any more, except a flush.
        retired: Vec<Arc<Open>>,
    },
    Closed,
}

#[pymethods]
impl Array {
    /// From an `ArrayInfo`, whether it may be written, and `Hints`.
    #[new]
    fn new(info: &Bound<'_, PyAny>, writable: bool, hints: &Bound<'_, PyAny>) -> PyResult<Array> {
        let described = Arc::new(describe(info)?);
        let hints = hints::read(hints)?;
        let path = described.path.clone();
        Ok(Array::around(Open::new(described, writable)?, path, writable, hints))
    }

    /// The array with other metadata, for as long as these are not yet adopted.
    fn beside(&self, info: &Bound<'_, PyAny>) -> PyResult<Array> {
        let open = self.open()?.beside(Arc::new(describe(info)?), self.writable)?;
        Ok(Array::around(open, self.path.clone(), self.writable, self.hints.clone()))
    }

    /// A part of the array with other axes: an array of its own, whose writes wait for those of this one
    /// where they must.
    fn view(&self, info: &Bound<'_, PyAny>, hints: &Bound<'_, PyAny>) -> PyResult<Array> {
        let open = self.open()?.view(Arc::new(describe(info)?), self.writable)?;
        let path = open.described.path.clone();
        Ok(Array::around(open, path, self.writable, hints::read(hints)?))
    }

    /// The same array, in all but the way of access: through windows (data sieving).
    fn sieving(&self) -> Array {
        let hints = self.sieving_hints();
        let (state, written, safe) = (self.state.clone(), self.written.clone(), self.safe.clone());
        Array { path: self.path.clone(), writable: self.writable, hints, state, written, safe }
    }

    /// From now on the metadata are these. Accesses that are running finish with the old ones.
    fn adopt(&self, info: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.closed() {
            return Ok(()); // By another thread.
        }
        let described = Arc::new(describe(info)?);
        let fresh = Arc::new(self.open()?.beside(described, self.writable)?);
        // Dropped after the lock: what ends with it may run Python code.
        let mut gone = Vec::new();
        if let State::Open { current, retired } = &mut *self.lock() {
            retired.push(std::mem::replace(current, fresh));
            if !self.owes() {
                gone.extend(retired.extract_if(.., |open| is_idle(open)));
            }
        }
        drop(gone);
        Ok(())
    }

    /// Read a section into a new array, or into `out`.
    #[pyo3(signature = (key, out = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = self.wanted(py, key, out)?;
        let Wanted { open, selection, size, memory, .. } = &wanted;
        self.transfer(py, open, Direction::Read, selection, *size, memory)?;
        wanted.result()
    }

    /// A new array for a section.
    fn empty<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open()?;
        let selection = key::parse(key, open.shape(), &self.path)?;
        Ok(made_for(py, &open, &selection)?.into_any())
    }

    /// Write a section: NumPy's assignment, in slabs if a cast is needed.
    fn write(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let open = self.open_for_writing()?;
        let selection = key::parse(key, open.shape(), &self.path)?;
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
        let mut selection = key::parse(key, open.shape(), &self.path)?;
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
        let open = self.open()?;
        PyTuple::new(py, key::parse(key, open.shape(), &self.path)?.shape())
    }

    /// Where something is stored: the shape of a unit (a chunk, or a shard), and the places of those that
    /// are there, counted in C order of their grid. None if elements lie in files as they are.
    #[allow(clippy::type_complexity, reason = "a row of plain numbers for Python")]
    fn stored<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Vec<i64>, Bound<'py, PyArray1<i64>>)>> {
        let found = self.open()?.stored(py)?;
        Ok(found.map(|(unit, listed)| (unit, PyArray1::from_slice(py, &listed.places))))
    }

    /// From now on other ranks of this node write the file at the same time; `end_concurrent_writers` ends it, once
    /// for each call.
    fn expect_concurrent_writers(&self) {
        self.hints.concurrent_writers.fetch_add(1, Ordering::Relaxed);
    }

    /// One reason less to expect others.
    fn end_concurrent_writers(&self) {
        self.hints.concurrent_writers.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many reasons there are to expect others.
    #[getter]
    fn concurrent_writers(&self) -> u32 {
        self.hints.concurrent_writers.load(Ordering::Relaxed)
    }

    /// What a collective has to know of the array: `collective::ArrayDescriptor` as words.
    fn descriptor(&self) -> PyResult<Vec<i64>> {
        let open = self.open()?;
        let shard = match &open.described.source {
            Some(Source::Files { shard: Some(shard), .. }) => Some(&shard.per_shard[..]),
            _ => None,
        };
        Ok(ArrayDescriptor::of(&open.described.layout, shard).words())
    }

    /// Figures of the disk that holds the array, measured, learned or assumed: the gap that is cheaper to
    /// read than to skip, in bytes; nanoseconds a request; bytes per second of one, and of a stream.
    fn disk(&self) -> PyResult<(i64, i64, i64, i64)> {
        let figures = self.open()?.disk().0;
        Ok((figures.gap, figures.latency_ns, figures.device, figures.stream))
    }

    /// Bytes of a page if large writes pass the page cache, because it would not hold them; else 0.
    fn past_cache(&self) -> PyResult<i64> {
        Ok(self.open()?.past_cache(&self.hints))
    }

    /// The section of a key as words (start, count, step per axis), and what the result has of each
    /// axis: for each result axis the axis of the array and whether it is reversed, or None.
    #[allow(clippy::type_complexity, reason = "a row of plain numbers for Python")]
    #[pyo3(signature = (key, write = false))]
    fn section_of(
        &self,
        key: &Bound<'_, PyAny>,
        write: bool,
    ) -> PyResult<(Vec<i64>, Vec<Option<(usize, bool)>>, bool)> {
        let open = if write { self.open_for_writing()? } else { self.open()? };
        let found = key::parse(key, open.shape(), &self.path)?;
        found.size()?;
        let axis = |axis: &Axis| match *axis {
            Axis::New => None,
            Axis::Of(number, reversed) => Some((number, reversed)),
        };
        let axes = found.axes.iter().map(axis).collect();
        Ok((section_words(&found.section), axes, found.scalar))
    }

    /// Plan an access without making it: the fields of `Report`. With `assumed`, so many bytes count as free.
    #[pyo3(signature = (key, write = false, assumed = None))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        write: bool,
        assumed: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let hints = assumed.map(|memory| self.hints.assuming(memory));
        self.look(key, write, |open, access| {
            let access = Access { hints: hints.as_ref().unwrap_or(access.hints), ..*access };
            crate::report::explain(py, &self.path, open, &access)
        })
    }

    /// The same in a few numbers (`report::counts`).
    #[pyo3(signature = (key, write = false))]
    fn counts(&self, py: Python<'_>, key: &Bound<'_, PyAny>, write: bool) -> PyResult<[i64; 5]> {
        self.look(key, write, |open, access| crate::report::counts(py, open, access))
    }

    /// Read the elements that lists along some axes name into an array: its first axis are the points, the others
    /// those of the array that are not indexed (`indexed::Asked`).
    fn read_points(
        &self,
        py: Python<'_>,
        axes: Vec<usize>,
        lists: Vec<PyReadonlyArray1<'_, i64>>,
        mode: &str,
        rest: Vec<i64>,
        out: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let open = self.open()?;
        let shape = buffers::shape(out);
        check_out(&open.described, out.as_any(), &shape)?;
        let asked = Asked { axes: &axes, lists: &lists, mode, rest: &rest };
        asked.run(py, (&open, &self.hints), out, Direction::Read)
    }

    /// Write the elements that lists along some axes name; of several values for one element the last wins.
    fn write_points(
        &self,
        py: Python<'_>,
        axes: Vec<usize>,
        lists: Vec<PyReadonlyArray1<'_, i64>>,
        mode: &str,
        rest: Vec<i64>,
        value: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let asked = Asked { axes: &axes, lists: &lists, mode, rest: &rest };
        self.changed(|open, hints| asked.run(py, (open, hints), value, Direction::Write))
    }

    /// What reading, or writing, such elements would do, as the fields of `Report`.
    fn explain_points<'py>(
        &self,
        py: Python<'py>,
        axes: Vec<usize>,
        lists: Vec<PyReadonlyArray1<'py, i64>>,
        mode: &str,
        rest: Vec<i64>,
        write: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let open = if write { self.open_for_writing()? } else { self.open()? };
        let asked = Asked { axes: &axes, lists: &lists, mode, rest: &rest };
        let direction = if write { Direction::Write } else { Direction::Read };
        asked.explain(py, (&open, &self.hints), direction)
    }

    /// What it would cost in nanoseconds, and the share that is cached, in thousandths .
    #[pyo3(signature = (key, write = false, cold = false))]
    fn price(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        write: bool,
        cold: bool,
    ) -> PyResult<(i64, i64)> {
        self.look(key, write, |open, access| Ok(open.price(py, access, cold)?))
    }

    /// Whether a write of a section would leave gaps between pages that a flush then writes along.
    fn leaves_gaps(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.look(key, true, |open, access| Ok(open.leaves_gaps(py, access)?))
    }

    /// What was really read, written and copied since the array was opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::report::stats(py, &*self.open()?)
    }

    /// What that took all threads, in seconds.
    fn seconds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::report::seconds(py, &*self.open()?)
    }

    /// Ask the system to bring a section into its cache.
    fn prefetch(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let open = self.open()?;
        let selection = key::parse(key, open.shape(), &self.path)?;
        if selection.size()? == 0 {
            return Ok(());
        }
        let strides = open.described.packed(&selection.shape());
        let walk = selection.walk(&strides);
        let access = Access {
            direction: Direction::Read,
            section: &selection.section,
            strides: &walk.strides,
            data: User::none(),
            hints: &self.hints,
        };
        open.prefetch(py, &access)?;
        Ok(())
    }

    /// What is written from now on will be flushed: it may go to the disk at once.
    fn expect_flush(&self) -> PyResult<()> {
        self.open()?.expect_flush();
        Ok(())
    }

    /// Do what a flush does before it waits for the disk: ranks that flush one file do so together. Tells
    /// how many writes ended by then; and the file (device and inode), if a flush of it by any process of
    /// this machine is one of ours as well. With `send`, what was written begins its way to the disk.
    #[pyo3(signature = (send = false))]
    fn before_flush(&self, py: Python<'_>, send: bool) -> PyResult<(u64, Option<(i64, i64)>)> {
        if self.closed() {
            return Ok((0, None)); // The flush says what that means.
        }
        let written = self.written.load(Ordering::SeqCst);
        let file = self.open_for_writing()?.before_flush(py, send)?;
        let lone = matches!(&*self.lock(), State::Open { retired, .. } if retired.is_empty());
        let words = |(device, inode): (u64, u64)| (device.cast_signed(), inode.cast_signed());
        Ok((written, file.filter(|_| lone).map(words)))
    }

    /// Another process has flushed the file that `before_flush` told, and so many writes with it.
    fn flushed_by_another(&self, written: u64) -> PyResult<()> {
        if !self.closed() {
            self.open()?.flushed_by_another();
        }
        self.safe.fetch_max(written, Ordering::SeqCst);
        Ok(())
    }

    /// Pages between sparse writes that flushes wrote along, unchanged.
    fn gap_pages(&self) -> PyResult<u64> {
        Ok(self.open()?.filled())
    }

    /// How often what was written was put on the disk by this array.
    fn flushes(&self) -> PyResult<i64> {
        Ok(self.open()?.done().flushes)
    }

    /// Hand what was written to the disk; wait for it if `durable`. Does nothing once the array is
    /// closed, if nothing is owed.
    fn flush(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        if self.closed() && !self.owes() {
            return Ok(());
        }
        let current = self.open_for_writing().map_err(|fault| match self.closed() {
            true => self.closed_too_early(),
            false => fault,
        })?;
        let written = self.written.load(Ordering::SeqCst);
        // Those that are idle by now have been written to for the last time.
        let retired: Vec<(bool, Arc<Open>)> = match &*self.lock() {
            State::Open { retired, .. } => {
                retired.iter().map(|open| (is_idle(open), open.clone())).collect()
            }
            State::Closed => return Err(self.closed_too_early().into()),
        };
        let mut result = current.flush(py, durable);
        for (_, open) in &retired {
            result = result.and(open.flush(py, durable));
        }
        result?;
        if durable {
            self.safe.fetch_max(written, Ordering::SeqCst);
            // They go with `retired`, after the lock.
            if let State::Open { retired: kept, .. } = &mut *self.lock() {
                let gone = |open: &Arc<Open>| {
                    retired.iter().any(|(idle, other)| *idle && Arc::ptr_eq(open, other))
                };
                kept.retain(|open| !gone(open));
            }
        }
        Ok(())
    }

    /// Release the files. Accesses that are running finish first.
    fn close(&self) {
        let open = std::mem::replace(&mut *self.lock(), State::Closed);
        drop(open); // After the lock: it may run Python code.
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        matches!(*self.lock(), State::Closed)
    }

    /// Begin a loop over blocks; see `block_loops::begin`. `writes_to` is the array to which the caller
    /// copies each block, if he does.
    #[pyo3(signature = (choose, writes_to = None))]
    fn begin_loop(
        &self,
        py: Python<'_>,
        choose: &Bound<'_, PyAny>,
        writes_to: Option<&Bound<'_, Array>>,
    ) -> PyResult<Loop> {
        let open = self.open()?;
        let target = writes_to.map(|target| target.get().open_for_writing()).transpose()?;
        let choose = &choose.clone().unbind();
        let array = (&open, self.path.as_str(), &self.hints);
        Ok(block_loops::begin(py, array, choose, target.as_ref())?)
    }

    /// Bytes of buffer that one operation may hold now.
    fn budget(&self) -> u64 {
        self.hints.budget()
    }

    /// A budget with which any section can be read, beside what others hold.
    fn enough(&self) -> PyResult<i64> {
        Ok(self.open()?.enough(Direction::Read, &self.hints, 0))
    }
}

impl Array {
    fn around(open: Open, path: String, writable: bool, hints: Hints) -> Array {
        let state = State::Open { current: Arc::new(open), retired: Vec::new() };
        let (state, written, safe) = (Arc::new(Mutex::new(state)), Arc::default(), Arc::default());
        Array { path, writable, hints, state, written, safe }
    }

    /// Whether a write ended that no flush has covered.
    fn owes(&self) -> bool {
        self.safe.load(Ordering::SeqCst) < self.written.load(Ordering::SeqCst)
    }

    fn closed_too_early(&self) -> Fault {
        let path = &self.path;
        let text = format!(
            "'{path}' was closed before a flush of what was written to it, perhaps by another \
             thread: it may not be on the disk yet. Call flush() before close(); if a crash of the \
             machine must not lose it, open it again with outcore.open() and write it again."
        );
        Fault::new(Class::Usage, "closed", text).at(path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<Arc<Open>, Fault> {
        let mut state = self.lock();
        let State::Open { current, retired } = &mut *state else {
            let path = &self.path;
            let text = format!("'{path}' is closed. Open it again with outcore.open().");
            return Err(Fault::new(Class::Usage, "closed", text).at(path));
        };
        if current.pid == process::id() {
            return Ok(current.clone());
        }
        // A forked child: locks inside the parent's tables may have been held at the fork, and
        // dropping them could touch them. They are left alone, a few descriptors for the child's
        // life.
        let fresh = Arc::new(Open::new(current.described.clone(), self.writable)?);
        std::mem::forget(std::mem::replace(current, fresh.clone()));
        std::mem::forget(std::mem::take(retired));
        Ok(fresh)
    }

    fn open_for_writing(&self) -> Result<Arc<Open>, Fault> {
        if self.writable {
            return self.open();
        }
        let path = &self.path;
        let text = format!("'{path}' was opened with mode 'r'. Use 'r+' to write.");
        Err(Fault::new(Class::Usage, "read-only", text).at(path))
    }

    /// Calls `tell` with an access that moves nothing.
    fn look<T>(
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

    /// A section with the memory into which it is to be read: `out`, or a new array.
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

    /// Makes a change of what is open: it counts as a write.
    pub fn changed(&self, work: impl FnOnce(&Open, &Hints) -> PyResult<()>) -> PyResult<()> {
        let open = self.open_for_writing()?;
        let done = work(&open, &self.hints);
        // Before `open` is released: what was written to something idle is counted.
        self.written.fetch_add(1, Ordering::SeqCst);
        done
    }

    /// What an owner uses in threads of its own; `exclusive` as this array alone has it.
    pub fn held(&self) -> Result<Held, Fault> {
        let (hints, written) = (self.hints.clone(), self.written.clone());
        let exclusive = hints.exclusive;
        Ok(Held { open: self.open()?, hints, exclusive, written, whole: InParts::default() })
    }

    /// The array, as it was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The hints of who reads through windows.
    pub fn sieving_hints(&self) -> Hints {
        Hints { method: Some(Method::Window), ..self.hints.clone() }
    }

    /// The hints of the user for this array.
    pub fn hints(&self) -> &Hints {
        &self.hints
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
        if size == 0 || open.described.item() == 0 {
            return Ok(());
        }
        let walk = selection.walk(&memory.strides);
        let (section, item) = (&selection.section, open.described.item());
        let access = Access {
            direction,
            section,
            strides: &walk.strides,
            // SAFETY: the memory was found, or made, for this selection, and the Python frame that waits
            // for us refers to it; results and `out` may be written.
            data: unsafe { memory.user(walk.shift, section, &walk.strides, item) },
            hints: &self.hints,
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
        let dtype = open.described.dtype.bind(py);
        let array = match value.cast::<PyUntypedArray>() {
            Ok(array) => array.clone(),
            Err(_) => buffers::converted(value, dtype)?,
        };
        let size = selection.size()?;
        if selection.scalar && array.ndim() > 0 {
            let path = &self.path;
            let text = format!(
                "one element of '{path}' cannot take an array of shape {:?}. Use a slice, or \
                 value.item().",
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
        // Before the caller releases `open`: what was written to something idle is counted.
        self.written.fetch_add(1, Ordering::SeqCst);
        Ok(written?)
    }
}

/// A section that is to be read, and its memory.
pub struct Wanted<'py> {
    /// The array.
    pub open: Arc<Open>,
    /// What of it.
    pub selection: Selection,
    /// Elements.
    pub size: i64,
    /// Where they go.
    pub memory: Memory,
    array: Bound<'py, PyUntypedArray>,
    /// The caller gets an element.
    scalar: bool,
}

impl<'py> Wanted<'py> {
    /// What the caller gets, once it was read.
    pub fn result(&self) -> PyResult<Bound<'py, PyAny>> {
        match self.scalar {
            true => buffers::scalar(self.array.clone()),
            false => Ok(self.array.clone().into_any()),
        }
    }

    /// Whether there is nothing to read.
    pub fn is_nothing(&self) -> bool {
        self.size == 0 || self.open.described.item() == 0
    }
}

/// Whether nobody uses what is retired, and so nobody ever will again.
fn is_idle(open: &Arc<Open>) -> bool {
    Arc::strong_count(open) == 1
}

/// A new array for a section: a large one lies in pages of memory as its section lies in those of the
/// file, so that the disk can put it there.
fn made_for<'py>(
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

/// `out`, if the section can be read into it.
fn check_out<'a, 'py>(
    described: &Described,
    out: &'a Bound<'py, PyAny>,
    shape: &[i64],
) -> PyResult<&'a Bound<'py, PyUntypedArray>> {
    let path = &described.path;
    let bad = |text: String| Fault::new(Class::Usage, "out-mismatch", text).at(path);
    let Ok(array) = out.cast::<PyUntypedArray>() else {
        return Err(bad(format!("out= for '{path}' must be a numpy.ndarray")).into());
    };
    let dtype = described.dtype.bind(out.py());
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
    if !shape.contains(&0) && !nests(described.item(), shape, &strides) {
        let text = format!(
            "elements of out= for '{path}' share memory, or may do so: shape {shape:?}, byte \
             strides {strides:?}. Pass an array whose elements are all its own (numpy.empty, or \
             slices and transposes of one), or read without out= and assign the result."
        );
        return Err(bad(text).into());
    }
    Ok(array)
}

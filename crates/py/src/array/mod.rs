//! `_core.Array`: one array on disk, as `DiskArray` uses it.
//!
//! Each call parses its key, finds the memory on the Python side (a new result, `out`, the value to write),
//! and lets `outcore_access` plan and run without the GIL. The open state and the writes to flush are in the
//! [`Handle`].

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1, PyUntypedArray};
use outcore_access::described::Source;
use outcore_access::Access;
use outcore_io::exec::User;
use outcore_plan::collective::{section_words, ArrayDescriptor};
use outcore_plan::Direction;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PySliceMethods, PyTuple};

use self::handle::Handle;
pub use self::sections::Wanted;
use self::sections::{check_out, made_for};
use crate::block_loops::{self, Loop};
use crate::buffers;
use crate::hints;
use crate::index_lists::Asked;
use crate::key::{self, Axis};
use crate::layout::describe;
use crate::open::Open;

mod handle;
mod sections;

/// An array on disk.
#[pyclass(module = "outcore._core", frozen)]
pub struct Array(Handle);

impl Deref for Array {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.0
    }
}

#[pymethods]
impl Array {
    /// Open from an `ArrayInfo`, whether it may be written, and `Hints`.
    #[new]
    fn new(info: &Bound<'_, PyAny>, writable: bool, hints: &Bound<'_, PyAny>) -> PyResult<Array> {
        let described = Arc::new(describe(info)?);
        let hints = hints::read(hints)?;
        let path = described.path.clone();
        Ok(Array(Handle::new(Open::new(described, writable)?, path, writable, hints)))
    }

    /// Open the array with other metadata, for use until these are adopted.
    fn beside(&self, info: &Bound<'_, PyAny>) -> PyResult<Array> {
        let open = self.open()?.beside(Arc::new(describe(info)?), self.writable)?;
        Ok(Array(Handle::new(open, self.path.clone(), self.writable, self.hints.clone())))
    }

    /// Open a part of the array with other axes: a separate array, whose writes wait for the writes of this
    /// one where necessary.
    fn view(&self, info: &Bound<'_, PyAny>, hints: &Bound<'_, PyAny>) -> PyResult<Array> {
        let open = self.open()?.view(Arc::new(describe(info)?), self.writable)?;
        let path = open.described.path.clone();
        Ok(Array(Handle::new(open, path, self.writable, hints::read(hints)?)))
    }

    /// Return the same array with another access method: through windows (data sieving).
    fn sieving(&self) -> Array {
        Array(self.0.sieving())
    }

    /// Use these metadata from now on. Running accesses finish with the old ones.
    fn adopt(&self, info: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.adopt(info)
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

    /// Make a new array for a section.
    fn empty<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open()?;
        let selection = key::parse(key, open.shape(), &self.path)?;
        Ok(made_for(py, &open, &selection)?.into_any())
    }

    /// Write a section, as NumPy's assignment does; in slabs if a cast is needed.
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

    /// Return the shape of the result of a key.
    fn shape_of<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let open = self.open()?;
        PyTuple::new(py, key::parse(key, open.shape(), &self.path)?.shape())
    }

    /// Return the shape of a unit (a chunk, or a shard), and the places of the stored units, counted in C
    /// order of their grid. None if elements are stored without chunks.
    #[allow(clippy::type_complexity, reason = "a row of plain numbers for Python")]
    fn stored<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Vec<i64>, Bound<'py, PyArray1<i64>>)>> {
        let found = self.open()?.stored(py)?;
        Ok(found.map(|(unit, listed)| (unit, PyArray1::from_slice(py, &listed.places))))
    }

    /// Announce that from now on other ranks of this node write the file at the same time. Each call needs a
    /// call of `end_concurrent_writers`.
    fn expect_concurrent_writers(&self) {
        self.hints.concurrent_writers.fetch_add(1, Ordering::Relaxed);
    }

    /// End one announcement of concurrent writers.
    fn end_concurrent_writers(&self) {
        self.hints.concurrent_writers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of announcements of concurrent writers.
    #[getter]
    fn concurrent_writers(&self) -> u32 {
        self.hints.concurrent_writers.load(Ordering::Relaxed)
    }

    /// Return what a collective needs to know of the array: `collective::ArrayDescriptor` as int64.
    fn descriptor(&self) -> PyResult<Vec<i64>> {
        let open = self.open()?;
        let shard = match &open.described.source {
            Some(Source::Files { shard: Some(shard), .. }) => Some(&shard.per_shard[..]),
            _ => None,
        };
        Ok(ArrayDescriptor::of(&open.described.layout, shard).words())
    }

    /// Return the parameters of the disk that holds the array, measured, learned or assumed: the gap that
    /// costs less to read than to skip, in bytes; nanoseconds per request; bytes per second of one request,
    /// and of a stream.
    fn disk(&self) -> PyResult<(i64, i64, i64, i64)> {
        let figures = self.open()?.disk().0;
        Ok((figures.gap, figures.latency_ns, figures.device, figures.stream))
    }

    /// Return the bytes of a page if large writes bypass the page cache because it is too small for them;
    /// otherwise 0.
    fn past_cache(&self) -> PyResult<i64> {
        Ok(self.open()?.past_cache(&self.hints))
    }

    /// Return the section of a key as numbers (start, count, step per axis), and, for each axis of the
    /// result, the axis of the array and whether it is reversed, or None.
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

    /// Plan an access without making it: the fields of `Report`. With `assumed`, that many bytes count as
    /// free.
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

    /// Plan an access without making it, as a few numbers (`report::counts`).
    #[pyo3(signature = (key, write = false))]
    fn counts(&self, py: Python<'_>, key: &Bound<'_, PyAny>, write: bool) -> PyResult<[i64; 5]> {
        self.look(key, write, |open, access| crate::report::counts(py, open, access))
    }

    /// Read the elements that lists along some axes choose into an array. Its first axis is the points; the
    /// others are the axes of the array that are not indexed (`indexed::Asked`).
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

    /// Write the elements that lists along some axes choose; if there are several values for one element, the
    /// last wins.
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

    /// Return what reading, or writing, such elements would do, as the fields of `Report`.
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

    /// Return the cost in nanoseconds, and the share that is cached, in thousandths.
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

    /// Return whether a write of a section would leave gaps between pages that a flush then writes along.
    fn leaves_gaps(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.look(key, true, |open, access| Ok(open.leaves_gaps(py, access)?))
    }

    /// Return what was read, written and copied since the array was opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::report::stats(py, &*self.open()?)
    }

    /// Return the time that this took all threads together, in seconds.
    fn seconds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::report::seconds(py, &*self.open()?)
    }

    /// Ask the operating system to bring a section into its cache.
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

    /// Announce that written data will be flushed: it may be sent to the disk immediately.
    fn expect_flush(&self) -> PyResult<()> {
        self.open()?.expect_flush();
        Ok(())
    }

    /// Perform the part of a flush before the wait for the disk: ranks that flush one file do so together.
    /// Return the number of writes that had ended, and the file (device and inode) if a flush of it by any
    /// process of this machine covers ours. With `send`, start writing all data to the disk.
    #[pyo3(signature = (send = false))]
    fn before_flush(&self, py: Python<'_>, send: bool) -> PyResult<(u64, Option<(i64, i64)>)> {
        self.0.before_flush(py, send)
    }

    /// Record that another process has flushed the file that `before_flush` returned, and this many writes
    /// with it.
    fn flushed_by_another(&self, written: u64) -> PyResult<()> {
        self.0.flushed_by_another(written)
    }

    /// Return the number of pages between sparse writes that flushes wrote along, unchanged.
    fn gap_pages(&self) -> PyResult<u64> {
        Ok(self.open()?.filled())
    }

    /// Return how often this array put written data on the disk.
    fn flushes(&self) -> PyResult<i64> {
        Ok(self.open()?.done().flushes)
    }

    /// Pass the written data to the disk; wait for it if `durable`. Do nothing if the array is closed and no
    /// write is left to flush.
    fn flush(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        self.0.flush(py, durable)
    }

    /// Release the files. Running accesses finish first.
    fn close(&self) {
        self.0.close();
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.0.closed()
    }

    /// Begin a loop over blocks; see `block_loops::begin`. `writes_to` is the array to which the caller
    /// copies each block, if any.
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

    /// Return the bytes of buffer that one operation may hold now.
    fn budget(&self) -> u64 {
        self.hints.budget()
    }

    /// Return a budget with which any section can be read, in addition to the bytes that others hold.
    fn enough(&self) -> PyResult<i64> {
        Ok(self.open()?.enough(Direction::Read, &self.hints, 0))
    }
}

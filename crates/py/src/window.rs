//! The parts of a distributed array that this process can see, and the locks of a part: one-sided accesses.
//!
//! A call of 1 KiB takes about as long as two calls from Python. So everything from a key to the copied bytes
//! is one call. If an access needs more than is here (parts on other nodes, casts), the call returns that,
//! and the caller takes a longer path.

#![allow(unsafe_code)]

use std::time::Duration;

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_io::slot::{copy_placed, Placed};
use outcore_io::word_locks::WordLocks as Locks;
use outcore_plan::distribution::{Ghost, Located};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};

use crate::buffers::{self, Memory};
use crate::distribution::{ghosts, sections, Distribution, Sections};
use crate::errors::{detached, Class, Fault};
use crate::key::{self, Axis, Selection, Walk};

/// Copies of at least this many bytes are made without the GIL.
const LONG: i64 = 1 << 16;
/// Name of the array in messages.
const NAME: &str = "the distributed array";

/// The part of one rank.
struct Part {
    memory: Memory,
    shape: Vec<i64>,
    /// Keeps the memory in its place.
    _array: Py<PyAny>,
}

/// Parts of a distributed array that are in memory of this process, or shared with it.
#[pyclass(module = "outcore._core", frozen)]
pub struct Window {
    distribution: Py<Distribution>,
    ghosts: Vec<Ghost>,
    dtype: Py<PyArrayDescr>,
    item: i64,
    me: i64,
    /// Part of each rank; None for ranks on other nodes.
    parts: Vec<Option<Part>>,
}

/// The result of `pieces`: shape of the result, the key that makes the section of it, ranks, members, places.
type Pieces<'py> =
    (Vec<i64>, Bound<'py, PyTuple>, bool, Vec<Vec<i64>>, Sections<'py>, Sections<'py>);

/// Copies of an access: the part, and the place in it; the patch specifies the place in the section.
type Copies<'a> = Vec<(&'a Part, &'a Located)>;

#[pymethods]
impl Window {
    /// Create from `parts`: the memory of each rank, ghosts included; None where it is not visible.
    #[new]
    fn new(
        distribution: &Bound<'_, Distribution>,
        widths: Vec<(i64, i64)>,
        dtype: &Bound<'_, PyArrayDescr>,
        me: i64,
        parts: Vec<Option<Bound<'_, PyUntypedArray>>>,
    ) -> PyResult<Window> {
        let made = &distribution.get().made;
        let widths = ghosts(&widths);
        let mut kept = Vec::with_capacity(parts.len());
        for (rank, array) in parts.into_iter().enumerate() {
            let Some(array) = array else {
                kept.push(None);
                continue;
            };
            let shape = buffers::shape(&array);
            let expected = made.local_shape(rank as i64, &widths).map_err(Fault::from)?;
            if shape != expected || !array.dtype().is_equiv_to(dtype) || !buffers::writeable(&array)
            {
                let text = "the memory is not the part of its rank; please report this";
                return Err(Fault::new(Class::Internal, "internal", text).into());
            }
            let memory = buffers::memory(&array);
            kept.push(Some(Part { memory, shape, _array: array.into_any().unbind() }));
        }
        Ok(Window {
            distribution: distribution.clone().unbind(),
            ghosts: widths,
            dtype: dtype.clone().unbind(),
            item: dtype.itemsize() as i64,
            me,
            parts: kept,
        })
    }

    /// Return the elements of a section, in a new array or in `out`; None if they cannot be copied here: some
    /// are on another node, or `out` does not have the dtype and shape, or shares memory with the parts.
    #[pyo3(signature = (key, out = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (selection, patches) = self.asked(py, key)?;
        let mut copies: Copies<'_> = Vec::with_capacity(patches.len());
        for patch in &patches {
            let near = patch.ranks.iter().find(|rank| **rank == self.me);
            let Some(part) = near.into_iter().chain(&patch.ranks).find_map(|rank| self.part(*rank))
            else {
                return Ok(None);
            };
            copies.push((part, patch));
        }
        let (array, scalar) = match out {
            None => {
                let dtype = self.dtype.bind(py);
                (buffers::empty(py, &selection.shape(), dtype, false)?, selection.scalar)
            }
            Some(given) => {
                let Some(array) = self.fits(py, given, &selection) else { return Ok(None) };
                if !buffers::writeable(&array) {
                    return Ok(None);
                }
                (array, false)
            }
        };
        self.copy(py, &copies, &array, &selection, true)?;
        let array = array.into_any();
        Ok(Some(if scalar { array.get_item(PyTuple::empty(py))? } else { array }))
    }

    /// Set the elements of a section, in all copies; if that is not possible here, do nothing and return
    /// false.
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (selection, patches) = self.asked(py, key)?;
        let Some(array) = self.fits(py, values, &selection) else { return Ok(false) };
        let mut copies: Copies<'_> = Vec::with_capacity(patches.len());
        for patch in &patches {
            for rank in &patch.ranks {
                let Some(part) = self.part(*rank) else { return Ok(false) };
                copies.push((part, patch));
            }
        }
        self.copy(py, &copies, &array, &selection, false)?;
        Ok(true)
    }

    /// Return the meaning of a key: the shape of its result; a key that makes of such a result an array with
    /// one ascending axis for each axis of the section; whether the result is a scalar; and for each patch
    /// the ranks that have it, its members of the section, and the places where they are stored.
    fn pieces<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Pieces<'py>> {
        let (selection, patches) = self.asked(py, key)?;
        let ndim = selection.section.ndim();
        let members = sections(py, patches.iter().map(|patch| &patch.members), ndim)?;
        let stored = sections(py, patches.iter().map(|patch| &patch.stored), ndim)?;
        let ranks = patches.into_iter().map(|patch| patch.ranks).collect();
        let back = back(py, &selection)?;
        Ok((selection.shape(), back, selection.scalar, ranks, members, stored))
    }
}

impl Window {
    fn part(&self, rank: i64) -> Option<&Part> {
        usize::try_from(rank).ok().and_then(|rank| self.parts.get(rank)?.as_ref())
    }

    fn asked(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<(Selection, Vec<Located>)> {
        let made = &self.distribution.bind(py).get().made;
        let selection = key::parse(key, made.shape(), NAME)?;
        let patches = made.locate(&selection.section, &self.ghosts).map_err(Fault::from)?;
        Ok((selection, patches))
    }

    /// Returns the array, if it has this dtype and shape, and shares no memory with the parts.
    fn fits<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'py, PyAny>,
        selection: &Selection,
    ) -> Option<Bound<'py, PyUntypedArray>> {
        let array = given.cast::<PyUntypedArray>().ok()?.clone();
        let shape = buffers::shape(&array);
        if shape != selection.shape() || !array.dtype().is_equiv_to(self.dtype.bind(py)) {
            return None;
        }
        let spread = |memory: &Memory, shape: &[i64]| {
            // SAFETY: only its addresses are used.
            let user = unsafe { memory.whole(shape, self.item) };
            let (low, high) = user.bounds();
            (user.address() + low, user.address() + high)
        };
        let (low, high) = spread(&buffers::memory(&array), &shape);
        let apart = |part: &Part| {
            let (first, last) = spread(&part.memory, &part.shape);
            high <= first || last <= low
        };
        self.parts.iter().flatten().all(apart).then_some(array)
    }

    fn copy(
        &self,
        py: Python<'_>,
        copies: &Copies<'_>,
        array: &Bound<'_, PyUntypedArray>,
        selection: &Selection,
        gets: bool,
    ) -> PyResult<()> {
        let (memory, shape) = (buffers::memory(array), buffers::shape(array));
        let walk = selection.walk(&memory.strides);
        let run = || {
            for (part, patch) in copies {
                self.copy_patch(part, patch, &memory, &shape, &walk, gets)?;
            }
            Ok(())
        };
        if selection.size()?.saturating_mul(self.item) < LONG {
            Ok(run()?)
        } else {
            Ok(detached(py, run)?)
        }
    }

    fn copy_patch(
        &self,
        part: &Part,
        patch: &Located,
        memory: &Memory,
        shape: &[i64],
        walk: &Walk,
        gets: bool,
    ) -> Result<(), Fault> {
        let along = |section: &outcore_plan::Section, strides: &[i64]| {
            let both = || section.ranges().iter().zip(strides);
            let at: i64 = both().map(|(range, stride)| range.start * stride).sum();
            (at, both().map(|(range, stride)| range.step * stride).collect::<Vec<i64>>())
        };
        let (at, strides) = along(&patch.members, &walk.strides);
        // SAFETY: the caller's array has this shape and is kept alive by the caller's reference; it shares
        // nothing with the parts. The program must order concurrent accesses of other ranks (fences, locks).
        let memory = unsafe { memory.whole(shape, self.item) };
        let user = Placed { memory, at: walk.shift + at, strides: &strides };
        let (at, strides) = along(&patch.stored, &part.memory.strides);
        // SAFETY: the array of the part has this shape and is kept with it; as above.
        let memory = unsafe { part.memory.whole(&part.shape, self.item) };
        let stored = Placed { memory, at, strides: &strides };
        let (source, target) = if gets { (&stored, &user) } else { (&user, &stored) };
        copy_placed(source, target, &patch.members.shape(), self.item).map_err(Fault::from)?;
        Ok(())
    }
}

/// Returns a key that turns the result of a selection into an array with one ascending axis for each axis of
/// the section: new axes are removed, axes that integers removed are added, reversed ones are reversed again.
fn back<'py>(py: Python<'py>, selection: &Selection) -> PyResult<Bound<'py, PyTuple>> {
    let mut items: Vec<Bound<'py, PyAny>> = Vec::new();
    let mut next = 0;
    for axis in &selection.axes {
        match *axis {
            Axis::New => items.push(0_i64.into_pyobject(py)?.into_any()),
            Axis::Of(d, reversed) => {
                items.extend((next..d).map(|_| py.None().into_bound(py)));
                let step = if reversed { Some(-1_i64) } else { None };
                let slice = py.get_type::<PySlice>().call1((py.None(), py.None(), step))?;
                items.push(slice);
                next = d + 1;
            }
        }
    }
    items.extend((next..selection.section.ndim()).map(|_| py.None().into_bound(py)));
    items.push(py.Ellipsis().into_bound(py));
    PyTuple::new(py, items)
}

/// The locks of one part, in memory that processes share.
#[pyclass(module = "outcore._core", frozen)]
pub struct WordLocks {
    locks: Locks,
    /// Keeps the memory in its place.
    _memory: PyBuffer<u8>,
}

#[pymethods]
impl WordLocks {
    /// Attach to the locks in `memory`, which starts out as zeros and is used for nothing else.
    #[new]
    fn new(memory: PyBuffer<u8>) -> PyResult<WordLocks> {
        let base = memory.buf_ptr().cast::<u8>();
        let usable = !memory.readonly() && memory.is_c_contiguous();
        // SAFETY: the buffer is held as long as the locks, so its memory stays; `outcore.ranks.dist` uses it
        // only for locks.
        let locks = unsafe { Locks::attach(base, memory.len_bytes()) };
        match locks {
            Some(locks) if usable => Ok(WordLocks { locks, _memory: memory }),
            _ => {
                let text = "the memory cannot hold locks; please report this";
                Err(Fault::new(Class::Internal, "internal", text).into())
            }
        }
    }

    /// Number of locks.
    #[getter]
    fn count(&self) -> usize {
        self.locks.count()
    }

    /// Return the holder of a lock; 0: none.
    fn holder(&self, at: usize) -> u32 {
        self.locks.holder(at)
    }

    /// Take a lock as `who`, waiting at most `seconds`: return 0, or the holder.
    fn take(&self, py: Python<'_>, at: usize, who: u32, seconds: f64) -> u32 {
        let now = self.locks.take(at, who, Duration::ZERO);
        let Err(holder) = now else { return 0 };
        if seconds <= 0.0 {
            return holder;
        }
        let patience = Duration::from_secs_f64(seconds.min(60.0));
        py.detach(|| self.locks.take(at, who, patience)).err().unwrap_or(0)
    }

    /// Take a lock from `holder`, which no longer exists; return whether `who` has it now.
    fn seize(&self, at: usize, holder: u32, who: u32) -> bool {
        self.locks.seize(at, holder, who)
    }

    /// Release a lock; return whether `who` still had it.
    fn give(&self, at: usize, who: u32) -> bool {
        self.locks.give(at, who)
    }
}

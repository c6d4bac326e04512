//! `_core.IndexSchedule`: an index that is prepared once for many arrays; also how ranks divide listed
//! elements.
//!
//! Invariant. The calling frame references lists and memory until the core is done.

#![allow(unsafe_code)]

use numpy::{
    PyArray1, PyArrayDescrMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods,
};
use outcore_access::indexed::IndexSchedule as Core;
use outcore_access::Hints;
use outcore_io::exec::User;
use outcore_plan::collective::ExchangeCosts;
use outcore_plan::points::choice::{self, Owned, Stored, Wanted};
use outcore_plan::points::divide;
use outcore_plan::{Direction, Rates};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::Array;
use crate::buffers;
use crate::errors::{detached, Class, Fault};
use crate::index_lists::{usage, Asked};
use crate::open::Open;

/// An index that was prepared for arrays of one layout, and for packed arrays in memory.
#[pyclass(module = "outcore._core", frozen)]
pub struct IndexSchedule {
    core: Core,
    /// Number of points, and lengths of the axes that are not indexed.
    shape: Vec<i64>,
}

#[pymethods]
impl IndexSchedule {
    /// Create from an index in the form of `Array.read_points`.
    #[new]
    fn new(
        py: Python<'_>,
        array: &Bound<'_, Array>,
        axes: Vec<usize>,
        lists: Vec<PyReadonlyArray1<'_, i64>>,
        mode: &str,
        rest: Vec<i64>,
    ) -> PyResult<IndexSchedule> {
        let array = array.get();
        let open = array.held()?.open;
        let asked = Asked { axes: &axes, lists: &lists, mode, rest: &rest };
        let (core, shape) = asked.with(&open, None, |index| {
            let shape = asked.shape(index)?;
            Ok((open.schedule(py, index, array.hints())?, shape))
        })?;
        Ok(IndexSchedule { core, shape })
    }

    /// Bytes of memory that it occupies.
    #[getter]
    fn nbytes(&self) -> usize {
        self.core.bytes()
    }

    /// Number of points, and lengths of the axes that are not indexed.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Return whether it was made for arrays of this layout.
    fn serves(&self, array: &Bound<'_, Array>) -> PyResult<bool> {
        Ok(self.core.serves(&array.get().held()?.open))
    }

    /// Read the elements of an array into a packed one.
    fn read(
        &self,
        py: Python<'_>,
        array: &Bound<'_, Array>,
        out: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let array = array.get();
        let open = array.held()?.open;
        self.run(py, (&open, array.hints()), out, Direction::Read)
    }

    /// Write a packed array to the elements; if there are several values for one element, the last wins.
    fn write(
        &self,
        py: Python<'_>,
        array: &Bound<'_, Array>,
        value: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        array.get().changed(|open, hints| self.run(py, (open, hints), value, Direction::Write))
    }
}

impl IndexSchedule {
    fn run(
        &self,
        py: Python<'_>,
        (open, hints): (&Open, &Hints),
        array: &Bound<'_, PyUntypedArray>,
        direction: Direction,
    ) -> PyResult<()> {
        let (path, described) = (&open.described.path, &open.described);
        let (dtype, memory) = (described.dtype.bind(py), buffers::memory(array));
        let packed = outcore_access::described::packed(&self.shape, described.item(), false);
        let alike = buffers::shape(array) == self.shape && array.dtype().is_equiv_to(dtype);
        let strides = memory.strides.iter().zip(&packed).zip(&self.shape);
        // For an array without elements, any strides are accepted.
        let mut strides = strides.filter(|_| !self.shape.contains(&0));
        let writable = direction == Direction::Write || buffers::writeable(array);
        if !alike || !writable || strides.any(|((a, b), n)| *n > 1 && a != b) {
            let text = format!(
                "the array has shape {:?} and dtype {}, but the schedule has shape {:?}, and \
                 '{path}' has dtype {dtype}; pass an array with the same shape and dtype, packed \
                 in C order",
                buffers::shape(array),
                array.dtype(),
                self.shape
            );
            return Err(Fault::new(Class::Usage, "out-mismatch", text).at(path).into());
        }
        if self.shape.contains(&0) || described.item() == 0 {
            return Ok(());
        }
        let bytes = self.shape.iter().product::<i64>() * described.item();
        // SAFETY: the array is packed and has this shape; the frame that waits for this call refers to it. An
        // array that is read into may be written.
        let data = unsafe { User::new(memory.data, 0, bytes) };
        Ok(open.run_schedule(py, &self.core, (direction, data, hints))?)
    }
}

/// Return the number of elements of a bin, and the number of bins: a bin is a whole number of units of
/// elements.
#[pyfunction]
pub fn bins_of(elements: i64, unit: i64, owners: u32) -> (i64, i64) {
    divide::bins(elements, unit, owners)
}

/// Return the number of rounds in which owners with a buffer of `chunk` bytes each move `total` bytes.
#[pyfunction]
pub fn rounds_of(total: i64, owners: u32, chunk: i64) -> i64 {
    divide::rounds(total, owners, chunk)
}

/// Return the number of elements in each bin of `width` elements.
#[pyfunction]
pub fn count_bins<'py>(
    py: Python<'py>,
    elements: PyReadonlyArray1<'py, i64>,
    width: i64,
    bins: usize,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let list = slice(&elements)?;
    let counts = detached(py, || divide::count(list, width, bins).map_err(Fault::from))?;
    Ok(PyArray1::from_vec(py, counts))
}

/// Cut bins into parts of about equal sums; return `round * owners + owner` for each bin.
#[pyfunction]
pub fn cut_bins<'py>(
    py: Python<'py>,
    sums: PyReadonlyArray1<'py, i64>,
    owners: usize,
    rounds: usize,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    Ok(PyArray1::from_vec(py, divide::cut(slice(&sums)?, owners, rounds)))
}

/// Return the place of each element in the order of the parts, from `first` of each part on, and the number
/// of elements in each part.
#[pyfunction]
#[allow(clippy::type_complexity, reason = "a pair of arrays for Python")]
pub fn divide_elements<'py>(
    py: Python<'py>,
    elements: PyReadonlyArray1<'py, i64>,
    width: i64,
    part: PyReadonlyArray1<'py, u32>,
    first: PyReadonlyArray1<'py, i64>,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>)> {
    let list = slice(&elements)?;
    let part = part.as_slice().map_err(|_| usage("", "parts must be contiguous".into()))?;
    let first = slice(&first)?;
    let (places, counts) =
        detached(py, || divide::divide(list, width, part, first).map_err(Fault::from))?;
    Ok((PyArray1::from_vec(py, places), PyArray1::from_vec(py, counts)))
}

/// Return the approximate number of blocks that elements touch, if each bin has `counts` of them: a bin has
/// `each` blocks.
#[pyfunction]
pub fn touched_blocks(counts: PyReadonlyArray1<'_, i64>, each: i64) -> PyResult<i64> {
    let sum = |sum: i64, n: &i64| sum.saturating_add(choice::touched(each, *n));
    Ok(slice(&counts)?.iter().fold(0, sum))
}

/// Return the cost in nanoseconds of moving elements of lists by each rank independently (None: not
/// possible), through owners, and through owners one step ahead; and the name of the cheapest.
///
/// `wanted`: for each rank elements, jumps, blocks and the share that is cached; `stored`: bytes of a row and
/// of a block, touched blocks, all blocks, and whether they are encoded; `owned`: owners, steps, whether all
/// ranks share memory, and whether the indices must still be sent to the owners; `disk`: as `Array.disk`.
#[pyfunction]
#[pyo3(signature = (wanted, stored, owned, *, oversubscription, disk, write))]
pub fn list_prices(
    wanted: Vec<(i64, i64, i64, i64)>,
    stored: (i64, i64, i64, i64, bool),
    owned: (i64, i64, bool, bool),
    oversubscription: i64,
    disk: (i64, i64, i64, i64),
    write: bool,
) -> (Option<i64>, i64, i64, &'static str) {
    let rank = |(elements, jumps, blocks, cached)| Wanted { elements, jumps, blocks, cached };
    let wanted: Vec<Wanted> = wanted.into_iter().map(rank).collect();
    let (row, block, blocks, all, encoded) = stored;
    let (owners, steps, near, untold) = owned;
    let (_, latency_ns, device, stream) = disk;
    let lists = choice::Lists {
        wanted: &wanted,
        stored: Stored { row, block, encoded, blocks, all },
        owned: Owned { owners, steps, near, untold },
        costs: ExchangeCosts::shared(oversubscription),
        rates: Rates { latency_ns, device, stream, ..Rates::MEASURED },
    };
    let prices = lists.prices(write);
    (prices.direct, prices.collective, prices.pipelined, prices.cheapest().name())
}

fn slice<'a>(list: &'a PyReadonlyArray1<'_, i64>) -> PyResult<&'a [i64]> {
    list.as_slice().map_err(|_| usage("", "lists must be contiguous".into()))
}

//! Stencils: a pass of many steps over blocks in memory.
//!
//! Blocks are contiguous arrays of float32 or float64, the slowest axis of the file first; complex blocks are
//! arrays of pairs.

use numpy::{
    Element, PyArrayDescrMethods, PyReadonlyArrayDyn, PyReadwriteArray1, PyReadwriteArrayDyn,
    PyUntypedArray, PyUntypedArrayMethods,
};
use outcore_compute::stencil::{
    Boundary, Ordered, Problem, RankFilter, Real, Refused, Shaped, Sweep, Tap,
};
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};

fn refused(why: &str) -> Fault {
    Fault::new(Class::Internal, "bad-block", format!("a kernel received {why}; please report this"))
}

impl From<Refused> for Fault {
    fn from(why: Refused) -> Fault {
        refused(why.0)
    }
}

enum Either {
    Single(Sweep<f32>),
    Double(Sweep<f64>),
}

/// Many steps of a stencil in one pass over an array.
#[pyclass(name = "StencilPass", module = "outcore._core", frozen)]
pub struct StencilPass {
    sweep: Either,
}

macro_rules! either {
    ($either:expr, $sweep:ident => $what:expr) => {
        match $either {
            Either::Single($sweep) => $what,
            Either::Double($sweep) => $what,
        }
    };
}

/// Offsets along each axis, real and imaginary part of the weight.
type Taps = Vec<(Vec<i64>, f64, f64)>;

#[pymethods]
impl StencilPass {
    #[new]
    #[pyo3(signature = (shape, taps, boundary, *, width, double, fill, levels, rows, columns, measured))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        shape: Vec<usize>,
        taps: Taps,
        boundary: Vec<String>,
        width: usize,
        double: bool,
        fill: (f64, f64),
        levels: usize,
        rows: usize,
        columns: Option<usize>,
        measured: Option<(i64, i64)>,
    ) -> PyResult<StencilPass> {
        let boundary: Option<Vec<Boundary>> =
            boundary.iter().map(|name| Boundary::of(name)).collect();
        let boundary = boundary.ok_or_else(|| refused("an unknown boundary"))?;
        let problem = Problem {
            shape,
            width,
            boundary,
            fill,
            taps: taps
                .into_iter()
                .map(|(offset, re, im)| Tap { offset, weight: (re, im) })
                .collect(),
            levels,
            rows,
            columns,
            measured,
        };
        let sweep = if double {
            Either::Double(Sweep::new(problem).map_err(Fault::from)?)
        } else {
            Either::Single(Sweep::new(single(problem)).map_err(Fault::from)?)
        };
        Ok(StencilPass { sweep })
    }

    /// Number of positions of the whole pass.
    #[getter]
    fn positions(&self) -> i64 {
        either!(&self.sweep, sweep => sweep.positions())
    }

    /// Return the rows of the last level that these positions complete; for a ring, counting continues beyond
    /// its end.
    fn ready(&self, start: i64, stop: i64) -> (i64, i64) {
        either!(&self.sweep, sweep => sweep.ready(start, stop))
    }

    /// Number of values that are kept from call to call.
    #[getter]
    fn kept(&self) -> usize {
        either!(&self.sweep, sweep => sweep.kept())
    }

    /// Number of values that a thread works with.
    #[getter]
    fn scratch(&self) -> usize {
        either!(&self.sweep, sweep => sweep.scratch())
    }

    /// Advance all levels by the positions from `start` to `stop`.
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        py: Python<'_>,
        new: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        kept: &Bound<'_, PyAny>,
        scratch: &Bound<'_, PyAny>,
        changes: PyReadwriteArray1<'_, f64>,
        start: i64,
        stop: i64,
    ) -> PyResult<()> {
        let work = Work { new, out, kept, scratch, range: (start, stop) };
        either!(&self.sweep, sweep => work.run(py, sweep, changes))
    }
}

fn single(problem: Problem<f64>) -> Problem<f32> {
    let pair = |(re, im): (f64, f64)| (re as f32, im as f32);
    let taps = problem.taps.into_iter();
    Problem {
        shape: problem.shape,
        width: problem.width,
        boundary: problem.boundary,
        fill: pair(problem.fill),
        taps: taps.map(|tap| Tap { offset: tap.offset, weight: pair(tap.weight) }).collect(),
        levels: problem.levels,
        rows: problem.rows,
        columns: problem.columns,
        measured: problem.measured,
    }
}

struct Work<'a, 'py> {
    new: &'a Bound<'py, PyAny>,
    out: &'a Bound<'py, PyAny>,
    kept: &'a Bound<'py, PyAny>,
    scratch: &'a Bound<'py, PyAny>,
    range: (i64, i64),
}

impl Work<'_, '_> {
    fn run<T: Real + Element>(
        &self,
        py: Python<'_>,
        sweep: &Sweep<T>,
        mut changes: PyReadwriteArray1<'_, f64>,
    ) -> PyResult<()> {
        let not_packed = |_| refused("a block that is not contiguous");
        let new: PyReadonlyArrayDyn<'_, T> = self.new.extract()?;
        let mut out: PyReadwriteArrayDyn<'_, T> = self.out.extract()?;
        let mut kept: PyReadwriteArrayDyn<'_, T> = self.kept.extract()?;
        let mut scratch: PyReadwriteArrayDyn<'_, T> = self.scratch.extract()?;
        let new = new.as_slice().map_err(not_packed)?;
        let out = out.as_slice_mut().map_err(not_packed)?;
        let kept = kept.as_slice_mut().map_err(not_packed)?;
        let scratch = scratch.as_slice_mut().map_err(not_packed)?;
        let changes = changes.as_slice_mut().map_err(not_packed)?;
        let range = self.range;
        Ok(detached(py, || Ok(sweep.run(new, out, kept, scratch, changes, range)?))?)
    }
}

struct RankWork<'a, 'py> {
    block: &'a Bound<'py, PyAny>,
    out: &'a Bound<'py, PyAny>,
    first: &'a [usize],
    scratch: &'a Bound<'py, PyAny>,
}

impl RankWork<'_, '_> {
    fn run<T: Ordered + Element>(&self, py: Python<'_>, filter: &RankFilter) -> PyResult<()> {
        let not_packed = |_| refused("a block that is not contiguous");
        let block: PyReadonlyArrayDyn<'_, T> = self.block.extract()?;
        let mut out: PyReadwriteArrayDyn<'_, T> = self.out.extract()?;
        let mut scratch: PyReadwriteArrayDyn<'_, T> = self.scratch.extract()?;
        let shape = block.shape().to_vec();
        let out_shape = out.shape().to_vec();
        let elements = block.as_slice().map_err(not_packed)?;
        let out = out.as_slice_mut().map_err(not_packed)?;
        let scratch = scratch.as_slice_mut().map_err(not_packed)?;
        let first = self.first;
        Ok(detached(py, || {
            let block = Shaped { elements, shape: &shape };
            Ok(filter.run(block, out, &out_shape, first, scratch)?)
        })?)
    }
}

/// The element of a rank in the window around each element.
#[pyclass(name = "RankFilter", module = "outcore._core", frozen)]
pub struct Rank {
    filter: RankFilter,
}

#[pymethods]
impl Rank {
    #[new]
    fn new(size: Vec<usize>, rank: usize) -> PyResult<Rank> {
        Ok(Rank { filter: RankFilter::new(&size, rank).map_err(Fault::from)? })
    }

    /// Number of elements that a thread works with.
    #[getter]
    fn scratch(&self) -> usize {
        self.filter.scratch()
    }

    /// Filter into `out`: the window of its first element begins at `first` in the block.
    fn run(
        &self,
        py: Python<'_>,
        block: &Bound<'_, PyUntypedArray>,
        out: &Bound<'_, PyAny>,
        first: Vec<usize>,
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let dtype = block.dtype();
        let work = RankWork { block: block.as_any(), out, first: &first, scratch };
        match (dtype.kind(), dtype.itemsize()) {
            (b'f', 4) => work.run::<f32>(py, &self.filter),
            (b'f', 8) => work.run::<f64>(py, &self.filter),
            (b'i', 1) => work.run::<i8>(py, &self.filter),
            (b'i', 2) => work.run::<i16>(py, &self.filter),
            (b'i', 4) => work.run::<i32>(py, &self.filter),
            (b'i', 8) => work.run::<i64>(py, &self.filter),
            (b'u', 1) => work.run::<u8>(py, &self.filter),
            (b'u', 2) => work.run::<u16>(py, &self.filter),
            (b'u', 4) => work.run::<u32>(py, &self.filter),
            (b'u', 8) => work.run::<u64>(py, &self.filter),
            _ => Err(refused("elements without an order").into()),
        }
    }
}

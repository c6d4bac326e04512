//! Stencils: a pass of many steps over blocks in memory.
//!
//! Blocks are contiguous arrays of float32 or float64, the slowest axis of the file first; complex ones come as
//! pairs.

use numpy::{Element, PyReadonlyArrayDyn, PyReadwriteArray1, PyReadwriteArrayDyn};
use outcore_compute::stencil::{Boundary, Ordered, Problem, RankFilter, Real, Refused, Sweep, Tap};
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};

fn refused(why: &str) -> Fault {
    Fault::new(Class::Internal, "bad-block", format!("a kernel got {why}. Please report"))
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

    /// Positions of the whole pass.
    #[getter]
    fn positions(&self) -> i64 {
        either!(&self.sweep, sweep => sweep.positions())
    }

    /// Rows of the last level that positions make; of a ring they count on beyond its end.
    fn ready(&self, start: i64, stop: i64) -> (i64, i64) {
        either!(&self.sweep, sweep => sweep.ready(start, stop))
    }

    /// Numbers that are kept from call to call.
    #[getter]
    fn kept(&self) -> usize {
        either!(&self.sweep, sweep => sweep.kept())
    }

    /// Numbers that a lane works with.
    #[getter]
    fn scratch(&self) -> usize {
        either!(&self.sweep, sweep => sweep.scratch())
    }

    /// Advances all levels by the positions from `start` to `stop`.
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

/// A filter of any type of elements.
macro_rules! rank_filters {
    ($($name:ident $type:ty: $dtype:literal),*) => {
        enum AnyRank {
            $($name(RankFilter<$type>),)*
        }

        impl AnyRank {
            fn new(dtype: &str, window: Window, fill: &Bound<'_, PyAny>) -> PyResult<AnyRank> {
                match dtype {
                    $($dtype => {
                        let fill: $type = fill.extract()?;
                        Ok(AnyRank::$name(window.filter(fill).map_err(Fault::from)?))
                    })*
                    _ => Err(refused("elements without an order").into()),
                }
            }

            fn scratch(&self) -> usize {
                match self {
                    $(AnyRank::$name(filter) => filter.scratch(),)*
                }
            }

            fn run(&self, py: Python<'_>, work: &RankWork<'_, '_>) -> PyResult<()> {
                match self {
                    $(AnyRank::$name(filter) => work.run(py, filter),)*
                }
            }
        }
    };
}

rank_filters!(
    F4 f32: "f4", F8 f64: "f8",
    I1 i8: "i1", I2 i16: "i2", I4 i32: "i4", I8 i64: "i8",
    U1 u8: "u1", U2 u16: "u2", U4 u32: "u4", U8 u64: "u8"
);

struct Window {
    shape: Vec<usize>,
    size: Vec<usize>,
    origin: Vec<i64>,
    boundary: Vec<String>,
    rank: usize,
}

impl Window {
    fn filter<T: Ordered>(self, fill: T) -> Result<RankFilter<T>, Refused> {
        let Window { shape, size, origin, boundary, rank } = self;
        let boundary: Option<Vec<Boundary>> =
            boundary.iter().map(|name| Boundary::of(name)).collect();
        let boundary = boundary.ok_or(Refused("an unknown boundary"))?;
        RankFilter::new(&shape, &size, &origin, boundary, fill, rank)
    }
}

struct RankWork<'a, 'py> {
    block: &'a Bound<'py, PyAny>,
    begin: i64,
    out: &'a Bound<'py, PyAny>,
    range: (i64, i64),
    scratch: &'a Bound<'py, PyAny>,
}

impl RankWork<'_, '_> {
    fn run<T: Ordered + Element>(&self, py: Python<'_>, filter: &RankFilter<T>) -> PyResult<()> {
        let not_packed = |_| refused("a block that is not contiguous");
        let block: PyReadonlyArrayDyn<'_, T> = self.block.extract()?;
        let mut out: PyReadwriteArrayDyn<'_, T> = self.out.extract()?;
        let mut scratch: PyReadwriteArrayDyn<'_, T> = self.scratch.extract()?;
        let block = block.as_slice().map_err(not_packed)?;
        let out = out.as_slice_mut().map_err(not_packed)?;
        let scratch = scratch.as_slice_mut().map_err(not_packed)?;
        let (begin, range) = (self.begin, self.range);
        Ok(detached(py, || Ok(filter.run(block, begin, out, range, scratch)?))?)
    }
}

/// The element of a rank in the window around each element.
#[pyclass(name = "RankFilter", module = "outcore._core", frozen)]
pub struct Rank {
    filter: AnyRank,
}

#[pymethods]
impl Rank {
    #[new]
    #[pyo3(signature = (dtype, shape, size, origin, boundary, fill, rank))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        dtype: &str,
        shape: Vec<usize>,
        size: Vec<usize>,
        origin: Vec<i64>,
        boundary: Vec<String>,
        fill: &Bound<'_, PyAny>,
        rank: usize,
    ) -> PyResult<Rank> {
        let window = Window { shape, size, origin, boundary, rank };
        Ok(Rank { filter: AnyRank::new(dtype, window, fill)? })
    }

    /// Elements that a lane works with.
    #[getter]
    fn scratch(&self) -> usize {
        self.filter.scratch()
    }

    /// Filters the rows from `start` to `stop` into `out`; `block` has the rows from `begin` on.
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        py: Python<'_>,
        block: &Bound<'_, PyAny>,
        begin: i64,
        out: &Bound<'_, PyAny>,
        start: i64,
        stop: i64,
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.filter.run(py, &RankWork { block, begin, out, range: (start, stop), scratch })
    }
}

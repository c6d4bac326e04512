//! Distributions: many indices, or all sections of a rank, in one call.
//!
//! Sections are passed as one array of int64: start, count and step for each section and axis.

use numpy::ndarray::{Array1, Array2, Array3};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyReadonlyArray2};
use outcore_plan::distribution::{self as plan, Align, Ghost, Mapping, Pattern};
use outcore_plan::{PlanError, Range, Section};
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};
use crate::key;

/// Ranks arranged in a box.
#[pyclass(module = "outcore._core", frozen)]
pub struct Grid {
    grid: plan::Grid,
}

#[pymethods]
impl Grid {
    #[new]
    fn new(shape: Vec<i64>) -> PyResult<Grid> {
        Ok(Grid { grid: plan::Grid::new(shape).map_err(Fault::from)? })
    }

    /// Create a grid of `size` ranks in `ndim` axes, with lengths as equal as possible.
    #[staticmethod]
    fn balanced(size: i64, ndim: usize) -> PyResult<Grid> {
        Ok(Grid { grid: plan::Grid::balanced(size, ndim).map_err(Fault::from)? })
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.grid.shape().to_vec()
    }

    #[getter]
    fn size(&self) -> i64 {
        self.grid.size()
    }

    fn coordinates(&self, rank: i64) -> PyResult<Vec<i64>> {
        Ok(self.grid.coordinates(rank).map_err(Fault::from)?)
    }

    fn rank(&self, coordinates: Vec<i64>) -> PyResult<i64> {
        Ok(self.grid.rank(&coordinates).map_err(Fault::from)?)
    }
}

/// One axis: kind, block size, block lengths, axis of the grid, and the alignment's stride, offset
/// and extent.
type Axis = (String, Option<i64>, Vec<i64>, Option<usize>, i64, i64, Option<i64>);

fn mapping(axis: Axis) -> Result<Mapping, Fault> {
    let (kind, size, lengths, axis, stride, offset, extent) = axis;
    let pattern = match (kind.as_str(), size) {
        ("*", _) => Pattern::Whole,
        ("block", size) => Pattern::Block(size),
        ("cyclic", size) => Pattern::Cyclic(size.unwrap_or(1)),
        ("general", _) => Pattern::General(lengths),
        _ => {
            let text = format!(
                "invalid distribution: format {kind:?} is unknown; give 'block', 'cyclic', \
                 'general' or '*'"
            );
            return Err(Fault::new(Class::Distribution, "bad-distribution", text));
        }
    };
    Ok(Mapping { pattern, axis, align: Align { stride, offset, extent } })
}

pub(crate) fn ghosts(widths: &[(i64, i64)]) -> Vec<Ghost> {
    widths.iter().map(|(low, high)| Ghost { low: *low, high: *high }).collect()
}

/// A distribution: the owner of each index.
#[pyclass(module = "outcore._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct Distribution {
    pub(crate) made: plan::Distribution,
}

#[pymethods]
impl Distribution {
    #[new]
    fn new(shape: Vec<i64>, grid: &Grid, axes: Vec<Axis>) -> PyResult<Distribution> {
        let mappings = axes.into_iter().map(mapping).collect::<Result<_, _>>()?;
        let made = plan::Distribution::new(shape, grid.grid.clone(), mappings);
        Ok(Distribution { made: made.map_err(Fault::from)? })
    }

    fn __str__(&self) -> String {
        self.made.to_string()
    }

    /// Axes of the grid along which all ranks have the same elements.
    #[getter]
    fn replicated(&self) -> Vec<usize> {
        self.made.replicated()
    }

    fn is_owner(&self, rank: i64) -> PyResult<bool> {
        Ok(self.made.is_owner(rank).map_err(Fault::from)?)
    }

    /// Return the owners of many indices, one index per row.
    fn owners<'py>(
        &self,
        py: Python<'py>,
        indices: PyReadonlyArray2<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let rows = Rows::of(&indices);
        let each = detached(py, || {
            let owners = rows.iter().map(|row| self.made.owner(row));
            Ok(owners.collect::<Result<Vec<i64>, PlanError>>()?)
        })?;
        Ok(Array1::from_vec(each).into_pyarray(py))
    }

    /// Return the places at which the owners store many indices.
    fn local_indices<'py>(
        &self,
        py: Python<'py>,
        indices: PyReadonlyArray2<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray2<i64>>> {
        self.translated(py, &indices, |index| self.made.local_index(index))
    }

    /// Return the indices of the elements that `rank` stores at many places.
    fn global_indices<'py>(
        &self,
        py: Python<'py>,
        rank: i64,
        places: PyReadonlyArray2<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray2<i64>>> {
        self.translated(py, &places, |place| self.made.global_index(rank, place))
    }

    fn local_shape(&self, rank: i64, widths: Vec<(i64, i64)>) -> PyResult<Vec<i64>> {
        Ok(self.made.local_shape(rank, &ghosts(&widths)).map_err(Fault::from)?)
    }

    /// Return the sections that a rank has, and the places where it stores them.
    fn pieces<'py>(
        &self,
        py: Python<'py>,
        rank: i64,
        widths: Vec<(i64, i64)>,
        all: bool,
    ) -> PyResult<(Sections<'py>, Sections<'py>)> {
        let pieces =
            detached(py, || self.made.pieces(rank, &ghosts(&widths), all).map_err(Fault::from))?;
        let ndim = self.made.shape().len();
        let global = sections(py, pieces.iter().map(|piece| &piece.global), ndim)?;
        Ok((global, sections(py, pieces.iter().map(|piece| &piece.local), ndim)?))
    }

    /// Return a key of NumPy as start, count and step of each axis, and the axes of the result: number of the
    /// axis of the array and whether it is reversed, or None.
    fn section_of(&self, key: &Bound<'_, PyAny>, what: &str) -> PyResult<(Vec<Words>, Axes)> {
        let found = key::parse(key, self.made.shape(), what)?;
        found.size()?;
        let axis = |axis: &key::Axis| match *axis {
            key::Axis::New => None,
            key::Axis::Of(number, reversed) => Some((number, reversed)),
        };
        let words = found.section.ranges().iter().map(|r| (r.start, r.count, r.step));
        Ok((words.collect(), found.axes.iter().map(axis).collect()))
    }

    /// Return the part of a section that a rank has: numbers of members, and the places where it stores them.
    fn patches<'py>(
        &self,
        py: Python<'py>,
        rank: i64,
        widths: Vec<(i64, i64)>,
        all: bool,
        section: Vec<Words>,
    ) -> PyResult<(Sections<'py>, Sections<'py>)> {
        let ranges = section.iter().map(|(start, count, step)| Range::new(*start, *count, *step));
        let section = Section::new(ranges.collect::<Result<_, _>>().map_err(Fault::from)?);
        let found = detached(py, || {
            self.made.patches(rank, &ghosts(&widths), all, &section).map_err(Fault::from)
        })?;
        let ndim = self.made.shape().len();
        let members = sections(py, found.iter().map(|patch| &patch.members), ndim)?;
        Ok((members, sections(py, found.iter().map(|patch| &patch.local), ndim)?))
    }
}

/// Start, count and step.
type Words = (i64, i64, i64);
type Axes = Vec<Option<(usize, bool)>>;

impl Distribution {
    fn translated<'py>(
        &self,
        py: Python<'py>,
        from: &PyReadonlyArray2<'py, i64>,
        one: impl Fn(&[i64]) -> Result<Vec<i64>, PlanError> + Sync,
    ) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let (rows, ndim) = (Rows::of(from), self.made.shape().len());
        let flat = detached(py, || {
            let mut flat = Vec::with_capacity(rows.count * ndim);
            for row in rows.iter() {
                flat.extend(one(row)?);
            }
            Ok(flat)
        })?;
        let shaped = Array2::from_shape_vec((rows.count, ndim), flat);
        Ok(shaped.map_err(impossible)?.into_pyarray(py))
    }
}

/// Sections, one per row: start, count and step for each axis.
pub(crate) type Sections<'py> = Bound<'py, PyArray3<i64>>;

/// Rows of an array, copied, because Python may change the array at the same time.
struct Rows {
    flat: Vec<i64>,
    count: usize,
    width: usize,
}

impl Rows {
    fn of(array: &PyReadonlyArray2<'_, i64>) -> Rows {
        let array = array.as_array();
        let (count, width) = array.dim();
        Rows { flat: array.iter().copied().collect(), count, width }
    }

    fn iter(&self) -> impl Iterator<Item = &[i64]> {
        (0..self.count).map(|k| &self.flat[k * self.width..(k + 1) * self.width])
    }
}

fn impossible(error: impl std::fmt::Display) -> Fault {
    Fault::new(Class::Internal, "panic", format!("an array has an impossible shape: {error}"))
}

pub(crate) fn sections<'py, 'a>(
    py: Python<'py>,
    sections: impl ExactSizeIterator<Item = &'a Section>,
    ndim: usize,
) -> Result<Sections<'py>, Fault> {
    let count = sections.len();
    let ranges = sections.flat_map(Section::ranges);
    let flat: Vec<i64> = ranges.flat_map(|r| [r.start, r.count, r.step]).collect();
    let shaped = Array3::from_shape_vec((count, ndim, 3), flat);
    Ok(shaped.map_err(impossible)?.into_pyarray(py))
}

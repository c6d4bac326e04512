//! Elements that are chosen by index lists: from Python's request to `outcore_access`.
//!
//! Invariant. The calling frame references lists and memory until the core is done. Others may change a list
//! in the meantime: the executor checks every address that was computed from it.

#![allow(unsafe_code)]

use numpy::{PyArrayDescrMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use outcore_access::{Hints, IndexedAccess};
use outcore_io::exec::User;
use outcore_plan::{Direction, Index, Lists, Range, Section};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::buffers;
use crate::errors::{Class, Fault};
use crate::open::Open;
use crate::report;

/// An index in its Python form.
pub struct Asked<'a, 'py> {
    /// The indexed axes, ascending.
    pub axes: &'a [usize],
    /// Their lists.
    pub lists: &'a [PyReadonlyArray1<'py, i64>],
    /// Combination of the lists: "points", "outer" or "flat".
    pub mode: &'a str,
    /// Start, count and step of every axis of the array.
    pub rest: &'a [i64],
}

pub fn usage(path: &str, text: String) -> PyErr {
    Fault::new(Class::Usage, "bad-index", text).at(path).into()
}

impl Asked<'_, '_> {
    /// Passes the index to `work`, with the strides of an array whose first axis is the points, and whose
    /// other axes are the axes of the array that are not indexed.
    pub fn with<T>(
        &self,
        open: &Open,
        strides: Option<&[i64]>,
        work: impl FnOnce(&Index) -> Result<T, Fault>,
    ) -> PyResult<T> {
        let path = &open.described.path;
        let ndim = open.shape().len();
        if self.rest.len() != 3 * ndim || self.axes.iter().any(|axis| *axis >= ndim) {
            return Err(usage(path, format!("an index for {ndim} axes needs {ndim} ranges")));
        }
        let ranges = self.rest.chunks(3).enumerate().map(|(d, words)| {
            let (count, shape) = (words[1], open.shape()[d]);
            let whole = Range::new(0, shape.min(1), 1);
            if self.axes.contains(&d) {
                whole
            } else {
                Range::new(words[0], count, words[2])
            }
        });
        let ranges: Result<Vec<Range>, _> = ranges.collect();
        let rest = Section::new(ranges.map_err(Fault::from)?);
        rest.within(open.shape()).map_err(Fault::from)?;
        let lists: Result<Vec<&[i64]>, _> = self.lists.iter().map(|list| list.as_slice()).collect();
        let lists = lists.map_err(|_| usage(path, "lists must be contiguous".into()))?;
        let lists = match (self.mode, lists.as_slice()) {
            ("points", lists) => Lists::Points(lists),
            ("outer", lists) => Lists::Outer(lists),
            ("flat", [list]) => Lists::Flat(list),
            (mode, _) => {
                return Err(usage(path, format!("the mode of index lists {mode:?} is unknown")))
            }
        };
        // By default, the strides of a new, packed array.
        let packed = || {
            let mut shape = vec![1];
            let kept = (0..ndim).filter(|d| !self.axes.contains(d));
            shape.extend(kept.map(|d| rest.ranges()[d].count));
            let mut strides =
                outcore_access::described::packed(&shape, open.described.item(), false);
            strides[0] = shape.iter().product::<i64>() * open.described.item();
            strides
        };
        let given = strides.map_or_else(packed, <[i64]>::to_vec);
        let mut along = given.iter().copied();
        let point = along.next().unwrap_or(0);
        let strides: Vec<i64> = (0..ndim)
            .map(|d| if self.axes.contains(&d) { 0 } else { along.next().unwrap_or(0) })
            .collect();
        let index = Index { axes: self.axes, lists, rest: &rest, point, strides: &strides };
        Ok(work(&index)?)
    }

    /// Returns the number of points, and the lengths of the axes that are not indexed.
    pub fn shape(&self, index: &Index) -> Result<Vec<i64>, Fault> {
        let kept = index.rest.ranges().iter().enumerate();
        let kept = kept.filter(|(d, _)| !self.axes.contains(d)).map(|(_, range)| range.count);
        let number = i64::try_from(index.len()?).unwrap_or(i64::MAX);
        Ok(std::iter::once(number).chain(kept).collect())
    }

    /// Moves the elements between the files and an array, whose first axis is the points.
    pub fn run(
        &self,
        py: Python<'_>,
        (open, hints): (&Open, &Hints),
        array: &Bound<'_, PyUntypedArray>,
        direction: Direction,
    ) -> PyResult<()> {
        let (path, described) = (&open.described.path, &open.described);
        let (shape, memory) = (buffers::shape(array), buffers::memory(array));
        let dtype = described.dtype.bind(py);
        self.with(open, Some(&memory.strides), |index| {
            let expected = self.shape(index)?;
            if shape != expected || !array.dtype().is_equiv_to(dtype) {
                let text = format!(
                    "the array has shape {shape:?} and dtype {}, but the elements of '{path}' have \
                     shape {expected:?} and dtype {dtype}; pass an array with the same shape and \
                     dtype",
                    array.dtype()
                );
                return Err(Fault::new(Class::Usage, "out-mismatch", text).at(path));
            }
            if shape.contains(&0) || described.item() == 0 {
                return Ok(());
            }
            let (low, high) = index.reach(&described.layout)?;
            // SAFETY: the array has this shape and these strides, so its elements are in low..high around the
            // first one; the frame that waits for this call refers to it. The caller made sure that an array
            // that is read into may be written.
            let data = unsafe { User::new(memory.data, low, high) };
            let asked = IndexedAccess { direction, index: *index, data, hints };
            open.run_indexed(py, &asked)
        })
    }

    /// Returns the cost of moving them, as the fields of a `Report`.
    pub fn explain<'py>(
        &self,
        py: Python<'py>,
        (open, hints): (&Open, &Hints),
        direction: Direction,
    ) -> PyResult<Bound<'py, PyDict>> {
        let survey = self.with(open, None, |index| {
            let asked = IndexedAccess { direction, index: *index, data: User::none(), hints };
            open.survey_indexed(py, &asked)
        })?;
        let points = self.with(open, None, |index| Ok(index.len()?))?;
        let text = format!("{points} listed elements along axes {:?}", self.axes);
        report::fields(py, open, hints, (direction, &text), survey)
    }
}

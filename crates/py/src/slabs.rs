//! Slabs of whole arrays; slabs of sections are computed where they are used.

use outcore_plan::slabs;
use pyo3::prelude::*;

/// Return the shape of the slabs of at most `most` elements of an array: whole axes, the first of `axes`
/// first.
#[pyfunction]
pub fn slab_shape(shape: Vec<i64>, axes: Vec<usize>, most: i64) -> Vec<i64> {
    slabs::thickness(&shape, &axes, most)
}

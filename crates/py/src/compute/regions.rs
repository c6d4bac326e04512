//! Rows in several regions of memory.

use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use outcore_compute::regions::{self, Listed, Missing};
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};

fn wrong(text: &str) -> Fault {
    Fault::new(Class::Internal, "broken-plan", text.to_owned())
}

fn missing(Missing(k): Missing) -> Fault {
    wrong(&format!("place {k} of a list is not in any region"))
}

fn listed<'a>(numbers: Option<&'a PyReadonlyArray1<'_, i64>>) -> Result<Listed<'a>, Fault> {
    match numbers.map(PyReadonlyArray1::as_slice) {
        None => Ok(Listed::All),
        Some(Ok(rows)) => Ok(Listed::Some(rows)),
        Some(Err(_)) => Err(wrong("numbers of rows must be contiguous")),
    }
}

/// Copy rows out of regions: the row at `places[k]` (the number of a region, shifted by 40 bits, plus the row
/// in it) to row `k` of `rows`, or to row `numbers[k]`. All are bytes; a row has `row` of them.
#[pyfunction]
#[pyo3(signature = (regions, places, rows, row, numbers = None))]
pub fn take_rows(
    py: Python<'_>,
    regions: Vec<PyReadonlyArray1<'_, u8>>,
    places: PyReadonlyArray1<'_, i64>,
    rows: &Bound<'_, PyArray1<u8>>,
    row: usize,
    numbers: Option<PyReadonlyArray1<'_, i64>>,
) -> PyResult<()> {
    let sources: Result<Vec<&[u8]>, _> = regions.iter().map(|one| one.as_slice()).collect();
    let sources = sources.map_err(|_| wrong("regions must be contiguous"))?;
    let places = places.as_slice().map_err(|_| wrong("places must be contiguous"))?;
    let mut rows = rows.try_readwrite().map_err(|_| wrong("rows must be writable"))?;
    let rows = rows.as_slice_mut().map_err(|_| wrong("rows must be contiguous"))?;
    let listed = listed(numbers.as_ref())?;
    Ok(detached(py, || regions::take(&sources, places, listed, rows, row).map_err(missing))?)
}

/// Copy rows into regions, the reverse of `take_rows`. No other region may have the same bytes.
#[pyfunction]
#[pyo3(signature = (regions, places, rows, row, numbers = None))]
pub fn put_rows(
    py: Python<'_>,
    mut regions: Vec<PyReadwriteArray1<'_, u8>>,
    places: PyReadonlyArray1<'_, i64>,
    rows: PyReadonlyArray1<'_, u8>,
    row: usize,
    numbers: Option<PyReadonlyArray1<'_, i64>>,
) -> PyResult<()> {
    let targets: Result<Vec<&mut [u8]>, _> =
        regions.iter_mut().map(|one| one.as_slice_mut()).collect();
    let mut targets = targets.map_err(|_| wrong("regions must be contiguous"))?;
    let places = places.as_slice().map_err(|_| wrong("places must be contiguous"))?;
    let rows = rows.as_slice().map_err(|_| wrong("rows must be contiguous"))?;
    let listed = listed(numbers.as_ref())?;
    Ok(detached(py, || regions::put(&mut targets, places, listed, rows, row).map_err(missing))?)
}

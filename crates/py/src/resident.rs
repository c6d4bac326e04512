//! From the typical sections of a new array to layouts with costs.

use std::path::PathBuf;

use outcore_access::terms::rates_below;
use outcore_plan::resident::{choose, largest_chunk, Chosen, Offer, Site, Typical};
use pyo3::prelude::*;

use crate::errors::{detached, Fault};

/// Requests in thousandths, bytes, nanoseconds.
type TakenWords = (i64, i64, i64);
/// Order, chunks, cost of each of the typical sections, nanoseconds of all.
type Layout = (&'static str, Option<Vec<i64>>, Vec<TakenWords>, i64);
/// Latency and rate of the disk, their origin, and the largest chunk.
type Disk = (i64, i64, &'static str, i64);

/// Return the layouts of a new array below `folder`, the recommended one first; and the parameters that were
/// used.
///
/// `typical`: shapes of sections, and how often each occurs. `offer`: whether the format has plain order, the
/// same in Fortran order, chunks, the same in Fortran order, and a file for each chunk.
#[pyfunction]
pub fn resident_layouts(
    py: Python<'_>,
    folder: PathBuf,
    shape: Vec<i64>,
    item: i64,
    typical: Vec<(Vec<i64>, i64)>,
    offer: (bool, bool, bool, bool, bool),
    budget: i64,
) -> PyResult<(Vec<Layout>, Disk)> {
    let (plain, plain_fortran, chunks, chunks_fortran, files) = offer;
    let offer = Offer { plain, plain_fortran, chunks, chunks_fortran, files };
    let typical: Vec<Typical> =
        typical.into_iter().map(|(shape, times)| Typical { shape, times }).collect();
    let (rates, origin) = rates_below(&folder);
    let found = detached(py, || {
        let site = Site { shape: &shape, item, offer, rates: &rates, budget };
        choose(&site, &typical).map_err(Fault::from)
    })?;
    let largest = largest_chunk(&rates, budget, item);
    let disk = (rates.latency_ns, rates.device, origin.name(), largest);
    Ok((found.into_iter().map(words).collect(), disk))
}

fn words(one: Chosen) -> Layout {
    let order = if one.form.fortran { "F" } else { "C" };
    let taken = one.taken.iter().map(|t| (t.requests, t.bytes, t.ns)).collect();
    (order, one.form.chunk, taken, one.ns)
}

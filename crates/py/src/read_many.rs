//! Sections of many arrays in one call.
//!
//! Problem. A few kilobytes out of the page cache take two microseconds; to come from Python, release
//! the GIL and come back takes as long again, for each of two hundred arrays.
//!
//! Idea. All keys and all memory first, with the GIL; then all reads, without it (`outcore_access::many`).

#![allow(unsafe_code)]

use outcore_access::{many, Access};
use outcore_plan::Direction;
use pyo3::prelude::*;

use crate::array::{Array, Wanted};
use crate::errors::{detached, Fault};
use crate::interrupt::Signals;
use crate::key::Walk;

/// An array, a key, and where to read it to.
type Request<'py> = (Bound<'py, Array>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// Reads sections of many arrays: those that are small and not cached `lanes` at a time, beginning at
/// the part of the list that `turn` (number, of how many) names. With `cached`, only if all are in the
/// page cache: otherwise None, and what was read counts for nothing.
#[pyfunction]
#[pyo3(signature = (requests, *, cached = false, lanes = 1, turn = None))]
pub fn read_many<'py>(
    py: Python<'py>,
    requests: Vec<Request<'py>>,
    cached: bool,
    lanes: usize,
    turn: Option<(usize, usize)>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let turn = turn.unwrap_or((0, 1));
    let mut results = Vec::with_capacity(requests.len());
    let mut rest = &requests[..];
    while !rest.is_empty() {
        // If it is not the first that is missing, most are there.
        let number = if cached && results.is_empty() { 1 } else { rest.len() };
        let (some, after) = rest.split_at(number);
        rest = after;
        let mut wanted = Vec::with_capacity(some.len());
        for (array, key, out) in some {
            wanted.push(array.get().wanted(py, key, out.as_ref())?);
        }
        if !run(py, some, &wanted, cached, lanes, turn)? {
            return Ok(None);
        }
        for one in &wanted {
            results.push(one.result(true)?);
        }
    }
    Ok(Some(results))
}

/// Reads; says whether all was cached.
fn run(
    py: Python<'_>,
    requests: &[Request<'_>],
    wanted: &[Wanted<'_>],
    cached: bool,
    lanes: usize,
    turn: (usize, usize),
) -> Result<bool, Fault> {
    let walks: Vec<Walk> =
        wanted.iter().map(|one| one.selection.walk(&one.memory.strides)).collect();
    let mut jobs: Vec<(&outcore_access::Open, Access)> = Vec::with_capacity(wanted.len());
    for ((one, walk), (array, ..)) in wanted.iter().zip(&walks).zip(requests) {
        if !one.is_nothing() {
            let section = &one.selection.section;
            let item = one.open.described.item();
            let access = Access {
                direction: Direction::Read,
                section,
                strides: &walk.strides,
                // SAFETY: the array was found, or made, for this section, and `wanted` refers to it.
                data: unsafe { one.memory.user(walk.shift, section, &walk.strides, item) },
                hints: array.get().hints(),
            };
            jobs.push((&**one.open, access));
        }
    }
    let signals = Signals::default();
    let result = detached(py, || {
        Ok(match cached {
            false => many::read(&jobs, lanes, turn, &signals).map(|()| true),
            true => many::read_if_cached(&jobs, &signals),
        })
    });
    match signals.take() {
        Some(raised) => Err(raised.into()),
        None => Ok(result??),
    }
}

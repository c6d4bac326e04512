//! Sections of many arrays in one call.
//!
//! Problem. A few kilobytes out of the page cache take two microseconds; to come from Python, release
//! the GIL and come back takes as long again, for each of two hundred arrays. Cold, one read after the
//! other waits two hundred times for the disk, which could serve a dozen at once; and where several
//! ranks read parts of the same files in the same order, all of them wait for the same file.
//!
//! Idea. All keys and all memory first, with the GIL; then all reads, without it. Small sections that
//! are not cached are read by a few threads, which take them in turn, and each rank begins elsewhere in
//! the list. Large ones have depth of their own and go one after the other.
//!
//! Invariants. Nothing is read side by side that goes into the same memory: what is listed later is
//! read later. The first failure ends the call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use outcore_io::cpu;
use outcore_plan::{is_cached, Direction};
use pyo3::prelude::*;

use crate::access::{reach, Access, Open};
use crate::array::{Array, Wanted};
use crate::errors::{detached, Fault};
use crate::interrupt::Interrupts;
use crate::key::Walk;
use crate::terms;

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
    let mut jobs: Vec<(&Open, Access)> = Vec::with_capacity(wanted.len());
    for ((one, walk), (array, ..)) in wanted.iter().zip(&walks).zip(requests) {
        if !one.is_nothing() {
            let access = Access {
                direction: Direction::Read,
                section: &one.selection.section,
                strides: &walk.strides,
                data: one.memory.data.wrapping_offset(walk.shift as isize),
                hints: array.get().hints(),
            };
            jobs.push((&*one.open, access));
        }
    }
    let interrupts = Interrupts::default();
    let result = detached(py, || match cached {
        false => each(&jobs, lanes, turn, &interrupts).map(|()| true),
        true => {
            for (open, access) in &jobs {
                let there = open.if_cached(access, &interrupts);
                if !there.map_err(|fault| open.failure(fault))? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    });
    match interrupts.take() {
        Some(raised) => Err(raised.into()),
        None => result,
    }
}

/// Reads all of them.
fn each(
    jobs: &[(&Open, Access)],
    lanes: usize,
    turn: (usize, usize),
    interrupts: &Interrupts,
) -> Result<(), Fault> {
    let one = |(open, access): &(&Open, Access)| {
        open.read(access, interrupts).map_err(|f| open.failure(f))
    };
    let is_small = |(open, access): &&(&Open, Access)| {
        let bytes = access.section.count().unwrap_or(i64::MAX);
        open.is_plain() && bytes.saturating_mul(open.described.item()) < terms::SMALL
    };
    if lanes < 2 || !jobs.iter().any(|job| is_small(&job) && is_cold(job)) || share_memory(jobs) {
        return jobs.iter().try_for_each(one);
    }
    let (small, large): (Vec<_>, Vec<_>) = jobs.iter().partition(is_small);
    let first = small.len() * turn.0 / turn.1.max(1);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    cpu::side_by_side(lanes.min(small.len()), &|_| {
        while !failed.load(Ordering::Relaxed) {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= small.len() {
                return;
            }
            if let Err(fault) = one(small[(first + k) % small.len()]) {
                failed.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
            }
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => large.into_iter().try_for_each(one),
    }
}

fn is_cold((open, access): &(&Open, Access)) -> bool {
    !is_cached(open.cached(access.section, access.hints).into())
}

/// Whether any two of them go into memory that overlaps, or may.
fn share_memory(jobs: &[(&Open, Access)]) -> bool {
    let place = |(open, access): &(&Open, Access)| {
        let (low, high) = reach(access.section, access.strides, open.described.item());
        let data = access.data as i64;
        (data + low, data + high)
    };
    let mut places: Vec<(i64, i64)> = jobs.iter().map(place).collect();
    places.sort_unstable();
    places.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

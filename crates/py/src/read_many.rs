//! Sections of many arrays in one call.
//!
//! Problem. Reading a few kilobytes out of the page cache takes two microseconds; the call from Python,
//! releasing the GIL and returning take as long again, for each of two hundred arrays.
//!
//! Idea. First all keys and all memory, with the GIL; then all reads, without it (`outcore_access::many`).

#![allow(unsafe_code)]

use outcore_access::{many, Access, Hints};
use outcore_plan::Direction;
use pyo3::prelude::*;

use crate::array::{Array, Wanted};
use crate::errors::{detached, Fault};
use crate::interrupt::Signals;
use crate::key::Walk;

/// An array, a key, and the array to read it into.
type Request<'py> = (Bound<'py, Array>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// Reads of sections of several arrays: this many small ones concurrently, beginning at the part of the
/// list that `turn` (number and count of parts) specifies.
#[derive(Clone, Copy)]
struct Manner {
    lanes: usize,
    turn: (usize, usize),
    /// True to read through windows (data sieving).
    sieve: bool,
}

/// Read sections of many arrays. Small ones that are not cached are read `lanes` at a time, beginning at the
/// part of the list that `turn` (number and count of parts) specifies.
#[pyfunction]
#[pyo3(signature = (requests, *, lanes = 1, turn = None))]
pub fn read_many<'py>(
    py: Python<'py>,
    requests: Vec<Request<'py>>,
    lanes: usize,
    turn: Option<(usize, usize)>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let manner = Manner { lanes, turn: turn.unwrap_or((0, 1)), sieve: false };
    Ok(results(wanted(py, &requests, &manner, false)?)?.unwrap_or_default())
}

/// Read sections of several arrays that need no plan: with `"direct"` and `"sieve"` all of them; otherwise
/// those in the page cache, or those that rank `rank` of `ranks` can read in less time than a plan takes, if
/// `oversubscription` thousandths of the ranks share a processor. None if that does not cover everything:
/// then nothing that was read counts.
#[pyfunction]
#[pyo3(signature = (requests, method, *, rank, ranks, oversubscription))]
pub fn read_early<'py>(
    py: Python<'py>,
    requests: Vec<Request<'py>>,
    method: &str,
    rank: usize,
    ranks: usize,
    oversubscription: i64,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let manner = Manner { lanes: LANES, turn: (rank, ranks), sieve: method == "sieve" };
    if method == "direct" || manner.sieve {
        return results(wanted(py, &requests, &manner, false)?);
    }
    let mut found = Vec::with_capacity(requests.len());
    // If the first is not missing, most are probably cached.
    for some in [&requests[..requests.len().min(1)], &requests[requests.len().min(1)..]] {
        match wanted(py, some, &manner, true)? {
            Some(read) => found.extend(read),
            None if is_cheap(py, &requests, (ranks as i64, oversubscription))? => {
                return results(wanted(py, &requests, &manner, false)?);
            }
            None => return Ok(None),
        }
    }
    results(Some(found))
}

/// Number of small sections that a rank reads from the disk concurrently.
const LANES: usize = 4;

fn results<'py>(wanted: Option<Vec<Wanted<'py>>>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let all = wanted.map(|all| all.iter().map(|one| one.result()).collect());
    all.transpose()
}

/// Returns whether reading everything takes less time than a plan.
fn is_cheap(
    py: Python<'_>,
    requests: &[Request<'_>],
    (ranks, oversubscription): (i64, i64),
) -> PyResult<bool> {
    let sections = requests.iter().map(|(array, key, _)| array.get().held_section(key));
    let sections = sections.collect::<PyResult<Vec<_>>>()?;
    let signals = Signals::default();
    let cheap = detached(py, || {
        let all = sections.iter().map(|(held, section)| (&**held.open, section, &held.hints));
        let all: Vec<_> = all.collect();
        Ok(many::reads_sooner(&all, (ranks, oversubscription), &signals))
    });
    match signals.take() {
        Some(raised) => Err(raised),
        None => Ok(cheap?),
    }
}

/// Reads everything; with `cached`, only if all is in the page cache.
fn wanted<'py>(
    py: Python<'py>,
    requests: &[Request<'py>],
    manner: &Manner,
    cached: bool,
) -> PyResult<Option<Vec<Wanted<'py>>>> {
    let mut wanted = Vec::with_capacity(requests.len());
    for (array, key, out) in requests {
        wanted.push(array.get().wanted(py, key, out.as_ref())?);
    }
    Ok(run(py, requests, &wanted, manner, cached)?.then_some(wanted))
}

/// Reads; returns whether it did: with `cached`, whether all was cached.
fn run(
    py: Python<'_>,
    requests: &[Request<'_>],
    wanted: &[Wanted<'_>],
    manner: &Manner,
    cached: bool,
) -> Result<bool, Fault> {
    let walks: Vec<Walk> =
        wanted.iter().map(|one| one.selection.walk(&one.memory.strides)).collect();
    let hints: Vec<Hints> = match manner.sieve {
        true => requests.iter().map(|(array, ..)| array.get().sieving_hints()).collect(),
        false => vec![],
    };
    let mut jobs: Vec<(&outcore_access::Open, Access)> = Vec::with_capacity(wanted.len());
    for (number, (one, walk)) in wanted.iter().zip(&walks).enumerate() {
        if !one.is_nothing() {
            let section = &one.selection.section;
            let item = one.open.described.item();
            let access = Access {
                direction: Direction::Read,
                section,
                strides: &walk.strides,
                // SAFETY: the array was found, or made, for this section, and `wanted` refers to it.
                data: unsafe { one.memory.user(walk.shift, section, &walk.strides, item) },
                hints: hints.get(number).unwrap_or_else(|| requests[number].0.get().hints()),
            };
            jobs.push((&**one.open, access));
        }
    }
    let signals = Signals::default();
    let result = detached(py, || {
        Ok(match cached {
            false => many::read(&jobs, manner.lanes, manner.turn, &signals).map(|()| true),
            true => many::read_if_cached(&jobs, &signals),
        })
    });
    match signals.take() {
        Some(raised) => Err(raised.into()),
        None => Ok(result??),
    }
}

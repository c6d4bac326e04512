//! The record that a rank sends to the others at the start of a collective, and the values that plans need of
//! all records.

use std::sync::{Arc, OnceLock};

use numpy::PyUntypedArray;
use outcore_access::disk_agreement::{self, Known};
use outcore_access::Hints;
use outcore_io::Arena;
use outcore_plan::assign::Solver;
use outcore_plan::collective::{
    self as plan, Choice, Cut, Method, Said, Settings, Stage, Wanted, Why,
};
use outcore_plan::Section;
use pyo3::prelude::*;

use crate::array::Array;
use crate::buffers;
use crate::errors::{detached, Fault};
use crate::interrupt::Signals;
use crate::open::Held;

/// Data of an item: names of its array and its file, numbers of the array, numbers of the section.
type Words = (i64, i64, Vec<i64>, Vec<i64>);

/// A method and its reason, which is a word and two numbers.
pub(crate) type Decided = (&'static str, Reason);
pub(crate) type Reason = (&'static str, i64, i64);

/// Return the settings of a rank, as numbers of its record. `hints`: the hints that count on this rank;
/// `accesses`: arrays and keys that it brings. With `done` it has read what it requested; with `far` there
/// are ranks on other nodes.
#[pyfunction]
#[pyo3(signature = (method, hints, ranks, accesses, *, done = false, far = false))]
pub fn settings(
    py: Python<'_>,
    method: i64,
    hints: &Bound<'_, PyAny>,
    ranks: i64,
    accesses: Vec<(Bound<'_, Array>, Bound<'_, PyAny>)>,
    done: bool,
    far: bool,
) -> PyResult<Vec<i64>> {
    let number = |name: &str| hints.getattr(name)?.extract::<Option<i64>>();
    let text = |name: &str| hints.getattr(name)?.extract::<String>();
    let (mut cached, mut gap, mut durable) = (1000, 0, false);
    let brought = held(&accesses)?;
    for (held, section) in &brought {
        if !done && !section.is_empty() {
            let share = py.detach(|| held.open.cached(section, &held.hints));
            cached = i64::from(share).min(cached);
        }
        gap = held.open.disk().0.gap.max(gap);
        durable |= held.hints.sync;
    }
    let known = match done {
        true => Known::default(),
        false => py.detach(|| disk_agreement::known(&parts(&brought))),
    };
    let arena = Arena::global();
    let limit = i64::try_from(arena.limit()).unwrap_or(i64::MAX);
    let free = i64::try_from(arena.available()).unwrap_or(i64::MAX);
    let settings = Settings {
        method: Method::of_number(method),
        offered: plan::offered(free.min(limit), number("memory")?, far),
        io_ranks: number("io_ranks")?.filter(|few| *few != 0).unwrap_or(ranks),
        cut: cut_of(&text("domains")?),
        refuses_overlap: text("overlap")? == "error",
        durable,
        stripe: number("stripe")?.filter(|stripe| *stripe != 0).unwrap_or(plan::ALIGN),
        cached,
        groups: number("io_groups")?.filter(|groups| *groups != 0).unwrap_or(1),
        gap,
        solver: solver_of(&text("assign")?),
        disk: known.disk,
        timed: known.timed,
        untried: known.untried,
    };
    Ok(settings.words().to_vec())
}

/// Returns arrays and sections of accesses.
fn held(accesses: &[(Bound<'_, Array>, Bound<'_, PyAny>)]) -> PyResult<Vec<(Held, Section)>> {
    accesses.iter().map(|(array, key)| array.get().held_section(key)).collect()
}

fn parts(brought: &[(Held, Section)]) -> Vec<(&outcore_access::Open, &Section, &Hints)> {
    brought.iter().map(|(held, section)| (&**held.open, section, &held.hints)).collect()
}

/// Try the disk of these accesses before all ranks plan (`Records.agree_on_disks`).
#[pyfunction]
pub fn try_disk(
    py: Python<'_>,
    accesses: Vec<(Bound<'_, Array>, Bound<'_, PyAny>)>,
) -> PyResult<()> {
    let brought = held(&accesses)?;
    Ok(detached(py, || Ok(disk_agreement::try_disk(&parts(&brought), &Signals::default())?))?)
}

/// Return the number of parts into which the memory of a rank is divided; a slot is one of them.
#[pyfunction]
pub fn slot_shares(far: bool) -> i64 {
    plan::slot_shares(far)
}

pub(crate) fn cut_of(name: &str) -> Cut {
    match name {
        "fixed" => Cut::Fixed,
        "bounding" => Cut::Bounding,
        "cyclic" => Cut::Cyclic,
        _ => Cut::Requested,
    }
}

fn solver_of(name: &str) -> Solver {
    match name {
        "greedy" => Solver::Greedy,
        "matching" => Solver::Matching,
        "exact" => Solver::Exact,
        _ => Solver::Balanced,
    }
}

/// Converts the reason of a choice to a word and numbers.
pub(crate) fn reason(why: Why) -> Reason {
    match why {
        Why::Asked => ("asked", 0, 0),
        Why::FewTouchFiles(few) => ("few-touch-files", few, 0),
        Why::OneRank => ("one-rank", 0, 0),
        Why::NoMemory(slot, room) => ("no-memory", slot, room),
        Why::InOrder { undecided, instead_of } => {
            let word = if undecided { "undecided" } else { "in-order" };
            (word, instead_of.map_or(0, |method| method as i64), 0)
        }
        Why::Cached => ("cached", 0, 0),
        Why::SharedBlocks => ("shared-blocks", 0, 0),
        Why::TooSmall => ("too-small", 0, 0),
        Why::Cheaper(alone, both) => ("cheaper", alone, both),
    }
}

pub(crate) fn chosen(choice: Choice) -> Decided {
    (choice.method.name(), reason(choice.why))
}

/// Return this rank's record, with at least as many numbers as `failed_record`. `items`: names of the array
/// and its file, numbers of the array (`Array.descriptor`), and of the section. With `done` this rank has
/// read what it requested.
#[pyfunction]
#[pyo3(signature = (call, settings, items, done = false))]
pub fn record(
    py: Python<'_>,
    call: i64,
    settings: Vec<i64>,
    items: Vec<Words>,
    done: bool,
) -> PyResult<Bound<'_, PyUntypedArray>> {
    let stage = if done { Stage::Done } else { Stage::Ready };
    let said = |(name, file, descriptor, section)| Said { name, file, descriptor, section };
    let items: Vec<Said> = items.into_iter().map(said).collect();
    buffers::array_of(py, &plan::record(call, stage, &settings, &items).map_err(Fault::from)?)
}

/// Return the record of a rank that has what it requested, and sends its items only if others request
/// something; or of a call without items. `name`: it has one section of the array with this name.
#[pyfunction]
#[pyo3(signature = (call, settings, name = None))]
pub fn brief_record(
    py: Python<'_>,
    call: i64,
    settings: Vec<i64>,
    name: Option<i64>,
) -> PyResult<Bound<'_, PyUntypedArray>> {
    buffers::array_of(py, &plan::unsaid(call, &settings, name).map_err(Fault::from)?)
}

/// Return the record of a rank that could not make its record.
#[pyfunction]
pub fn failed_record(py: Python<'_>) -> PyResult<Bound<'_, PyUntypedArray>> {
    buffers::array_of(py, &plan::failed())
}

/// The records of all ranks.
#[pyclass(module = "outcore._core", frozen)]
pub struct Records {
    pub(crate) records: Arc<plan::Records>,
    pub(crate) arrays: OnceLock<Vec<Wanted>>,
}

impl Records {
    /// Returns why memory is too short for two phases.
    pub fn lacks(&self, slot: i64) -> Option<Why> {
        self.records.lacking(slot)
    }

    /// Returns the arrays; none before `compare`.
    pub fn wanted(&self) -> &[Wanted] {
        self.arrays.get().map_or(&[], Vec::as_slice)
    }

    /// Returns whether any array is stored in encoded blocks.
    pub fn encoded(&self) -> bool {
        self.wanted().iter().any(|wanted| wanted.descriptor.encoded)
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.records.ranks()
    }
}

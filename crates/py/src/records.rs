//! `_core.Records`: what ranks told each other at the start of a collective.

#![allow(unsafe_code)]

use std::sync::{Arc, OnceLock};

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_access::disk_agreement::{self, Known};
use outcore_access::Hints;
use outcore_io::Arena;
use outcore_plan::assign::Solver;
use outcore_plan::collective::{
    self as plan, Choice, Cut, Decision, Method, Mismatch, Owners, Said, Settings, Stage, Wanted,
    Why,
};
use outcore_plan::Section;
use pyo3::prelude::*;

use crate::array::Array;
use crate::assign::{answer, Answer};
use crate::buffers;
use crate::collective::Collective;
use crate::errors::{detached, Class, Fault};
use crate::interrupt::Signals;
use crate::key;
use crate::two_phase::Held;

/// Of an item: names of its array and its file, words of the array, words of the section.
type Words = (i64, i64, Vec<i64>, Vec<i64>);

/// A method, and why: a word and two numbers that belong to it.
pub(crate) type Decided = (&'static str, Reason);
type Reason = (&'static str, i64, i64);

/// The settings of a rank, as words of its record. `hints`: those that count on this rank; `accesses`: arrays
/// and keys that it brings. With `done` it has read what it wants; with `far` there are ranks on other nodes.
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

/// Arrays and sections of accesses.
fn held(accesses: &[(Bound<'_, Array>, Bound<'_, PyAny>)]) -> PyResult<Vec<(Held, Section)>> {
    let one = |(array, key): &(Bound<'_, Array>, Bound<'_, PyAny>)| {
        let held = array.get().held()?;
        let section = key::parse(key, held.open.shape(), array.get().path())?.section;
        Ok((held, section))
    };
    accesses.iter().map(one).collect()
}

fn parts(brought: &[(Held, Section)]) -> Vec<(&outcore_access::Open, &Section, &Hints)> {
    brought.iter().map(|(held, section)| (&**held.open, section, &held.hints)).collect()
}

/// Tries the disk of these accesses before all ranks plan (`Records.agree_on_disks`).
#[pyfunction]
pub fn try_disk(
    py: Python<'_>,
    accesses: Vec<(Bound<'_, Array>, Bound<'_, PyAny>)>,
) -> PyResult<()> {
    let brought = held(&accesses)?;
    Ok(detached(py, || Ok(disk_agreement::try_disk(&parts(&brought), &Signals::default())?))?)
}

/// Into so many parts the memory of a rank is divided, of which a slot is one.
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

/// Why a method was chosen, as a word and numbers.
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

/// The records of all ranks.
#[pyclass(module = "outcore._core", frozen)]
pub struct Records {
    records: Arc<plan::Records>,
    arrays: OnceLock<Vec<Wanted>>,
}

pub(crate) fn array_of<'py>(
    py: Python<'py>,
    words: &[i64],
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = buffers::empty(py, &[words.len() as i64], &numpy::dtype::<i64>(py), false)?;
    // SAFETY: the array is new, dense, and of as many words; nobody else knows it yet.
    unsafe {
        let data = buffers::memory(&array).data.cast::<i64>();
        std::ptr::copy_nonoverlapping(words.as_ptr(), data, words.len());
    }
    Ok(array)
}

/// This rank's record, at least as many words as `failed_record` has. `items`: names of the array
/// and its file, words of the array (`Array.descriptor`), and of the section. With `done` this rank has read
/// what it wants.
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
    array_of(py, &plan::record(call, stage, &settings, &items).map_err(Fault::from)?)
}

/// The record of a rank that has what it wants, and says its items only if others want something; or of a
/// call without items. `name`: it has one section of the array that is called so.
#[pyfunction]
#[pyo3(signature = (call, settings, name = None))]
pub fn brief_record(
    py: Python<'_>,
    call: i64,
    settings: Vec<i64>,
    name: Option<i64>,
) -> PyResult<Bound<'_, PyUntypedArray>> {
    array_of(py, &plan::unsaid(call, &settings, name).map_err(Fault::from)?)
}

/// What a rank says that could not make its record.
#[pyfunction]
pub fn failed_record(py: Python<'_>) -> PyResult<Bound<'_, PyUntypedArray>> {
    array_of(py, &plan::failed())
}

#[pymethods]
impl Records {
    /// From an array of int64, a row for each rank.
    #[new]
    fn new(rows: &Bound<'_, PyUntypedArray>) -> PyResult<Records> {
        let word = rows.dtype().itemsize() == 8 && rows.dtype().kind() == b'i';
        if rows.ndim() != 2 || !word || !rows.is_c_contiguous() {
            let text = "records are a dense array of int64, a row for each rank".to_owned();
            return Err(Fault::new(Class::Internal, "bad-record", text).into());
        }
        // SAFETY: the array is dense and of this type and length; NumPy aligns its own, and others are
        // read unaligned below.
        let words: Vec<i64> = unsafe {
            let data = buffers::memory(rows).data.cast::<i64>().cast_const();
            (0..rows.len()).map(|k| data.add(k).read_unaligned()).collect()
        };
        let records = plan::Records::new(words, rows.shape()[1]).map_err(Fault::from)?;
        Ok(Records { records: Arc::new(records), arrays: OnceLock::new() })
    }

    /// Whether any rank failed, whether all made the same call, and the words of the longest record.
    #[getter]
    fn verdict(&self) -> (bool, bool, i64) {
        (self.records.any_failed(), self.records.same_call(), self.records.longest())
    }

    /// Version and call of each rank.
    fn calls(&self) -> Vec<(i64, i64)> {
        self.records.calls().collect()
    }

    /// One of the settings, of all ranks.
    fn setting(&self, number: usize) -> Vec<i64> {
        self.records.setting(number).collect()
    }

    /// The method that each rank asks for.
    #[getter]
    fn methods(&self) -> Vec<&'static str> {
        self.records.methods().map(Method::name).collect()
    }

    /// Plans from now on with what ranks of this one's node found out about its disks. Tells the ranks that have to
    /// try a disk (`try_disk`) before all plan, because none on their node knows it.
    fn agree_on_disks(&self, nodes: Vec<i64>, rank: usize) -> Vec<u32> {
        if let Some(node) = nodes.get(rank) {
            disk_agreement::adopt(&self.records.timed_disks(&nodes, *node));
        }
        self.records.triers(&nodes)
    }

    /// Bytes that a slot of any rank may have.
    #[getter]
    fn offered(&self) -> i64 {
        self.records.offered()
    }

    /// In how many groups so many owners take turns.
    fn groups(&self, owners: i64) -> i64 {
        self.records.groups(owners)
    }

    /// Whether any rank refuses that ranks write the same elements.
    #[getter]
    fn refuses_overlap(&self) -> bool {
        self.records.refuses_overlap()
    }

    /// Whether any rank wants what is written to be on the disk.
    #[getter]
    fn durable(&self) -> bool {
        self.records.durable()
    }

    /// Whether all ranks made the same call, and have what they want by the same method. With `one`, each
    /// must have brought one section of the same array.
    fn settled(&self, one: bool) -> bool {
        self.records.all_done(one)
    }

    /// How ranks read if nothing has to be planned for that; None if it has.
    fn unplanned(&self) -> Option<Decided> {
        self.records.unplanned(self.encoded()).map(chosen)
    }

    /// What a hint leaves of `"auto"`; None if there is something to choose.
    fn few_touch_files(&self) -> Option<Decided> {
        self.records.few_touch_files().map(chosen)
    }

    /// Why there is no memory for two phases with slots of so many bytes; None if there is.
    fn lacking(&self, slot: i64) -> Option<Reason> {
        self.records.lacking(slot).map(reason)
    }

    /// What all ranks do with a plan: whether there is a way; and the choice, or why that way must be
    /// two-phase. None: what is cheapest.
    #[pyo3(signature = (plan, *, write))]
    fn decide(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Collective>,
        write: bool,
    ) -> (bool, Option<Decided>) {
        let plan = &plan.get().plan;
        match py.detach(|| self.records.decide(plan.slot_bytes(), plan.order(write))) {
            Decision::Chosen(choice) => (true, Some(chosen(choice))),
            Decision::ByPrice => (true, None),
            Decision::NoMemory(why) => (false, why.map(|why| ("two-phase", reason(why)))),
        }
    }

    /// The plan; slots of `slot` bytes at most but for blocks, no tile smaller than `least`.
    fn planned(&self, py: Python<'_>, slot: i64, least: i64, write: bool) -> PyResult<Collective> {
        let plan = py.detach(|| {
            plan::Collective::of_records(&self.records, self.wanted(), (slot, least), write)
        });
        Ok(Collective { plan: Arc::new(plan.map_err(Fault::from)?) })
    }

    /// Which arrays were given to which ranks, as `assign` tells it; None if nothing was assigned.
    fn assigned(&self, py: Python<'_>, write: bool) -> PyResult<Option<Answer>> {
        let given = py.detach(|| {
            let owners = Owners::new(&self.records, self.wanted(), write);
            owners.assigned(&self.records, self.wanted(), self.records.solver())
        });
        Ok(given.map_err(Fault::from)?.map(answer))
    }

    /// Of how many arrays a rank wants anything, at most.
    fn most_arrays(&self, py: Python<'_>) -> i64 {
        py.detach(|| plan::most_arrays(self.wanted(), self.records.ranks()))
    }

    /// Whether any rank has still to say its items.
    #[getter]
    fn unsaid(&self) -> bool {
        self.records.any_unsaid()
    }

    /// Reads all items. None if they fit together; otherwise what is odd (`"descriptor"`, `"array"`,
    /// `"method"`), and on which ranks. With `one`, all ranks must have brought one section of the same array.
    fn compare(&self, py: Python<'_>, one: bool) -> PyResult<Option<(&'static str, Vec<u32>)>> {
        match py.detach(|| self.records.arrays(one)) {
            Ok(arrays) => {
                let _ = self.arrays.set(arrays);
                let other = self.records.methods().position(|one| one != self.records.asked());
                Ok(other.map(|rank| ("method", vec![rank as u32])))
            }
            Err(Mismatch::ArrayDescriptor(rank)) => Ok(Some(("descriptor", vec![rank]))),
            Err(Mismatch::Array(ranks)) => Ok(Some(("array", ranks))),
            Err(Mismatch::Words(error)) => Err(Fault::from(error).into()),
        }
    }

    /// Names of the arrays, in the order in which they were brought.
    #[getter]
    fn names(&self) -> Vec<i64> {
        self.wanted().iter().map(|wanted| wanted.name).collect()
    }

    /// The same ranks and settings, as if they had brought this array alone.
    fn alone(&self, array: usize) -> Records {
        let wanted: Vec<Wanted> = self.wanted().get(array).into_iter().cloned().collect();
        Records { records: Arc::clone(&self.records), arrays: OnceLock::from(wanted) }
    }

    /// Ranks that have an array.
    fn have(&self, array: usize) -> Vec<u32> {
        self.wanted().get(array).map_or_else(Vec::new, |wanted| wanted.have.clone())
    }

    /// Bytes that each rank wants of each array: of all ranks of the first array, then of the next.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let ranks = self.records.ranks();
        let each = self.wanted().iter().flat_map(|wanted| wanted.requests(ranks));
        array_of(py, &each.collect::<Vec<i64>>())
    }
}

impl Records {
    /// Why there is no memory for two phases.
    pub fn lacks(&self, slot: i64) -> Option<Why> {
        self.records.lacking(slot)
    }

    /// The arrays; none before `compare`.
    pub fn wanted(&self) -> &[Wanted] {
        self.arrays.get().map_or(&[], Vec::as_slice)
    }

    /// Whether any array is stored in blocks that are encoded.
    fn encoded(&self) -> bool {
        self.wanted().iter().any(|wanted| wanted.descriptor.encoded)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.records.ranks()
    }
}

//! `_core.Collective`: the plan of a collective, and the copies between slots and the ranks' arrays.
//!
//! The loop over rounds is in Python, because it exchanges the messages. This file answers the questions of
//! each round (which tile, which ranks request parts of it) and makes the copies, without the GIL.

#![allow(unsafe_code)]

use std::sync::Arc;

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use outcore_access::exchange::{Exchange, UserArray};
use outcore_io::exec::User;
use outcore_plan::collective::{
    self as plan, Access, Agreed, ArrayDescriptor, ExchangeCosts, Job, Overlap, Prices, Share,
};
use outcore_plan::{Direction, PlanError, Section};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::buffers;
use crate::errors::{detached, Class, Fault};
use crate::records::{chosen, cut_of, Decided, Records};

/// Start, count and step of each axis.
type Ranges = Vec<(i64, i64, i64)>;

/// Data of an array: its own numbers, those of its accesses, the shares of its owners.
pub(crate) type Words = (Vec<i64>, Vec<i64>, Vec<(u32, i64)>);

/// The plan of a collective.
#[pyclass(module = "outcore._core", frozen)]
pub struct Collective {
    pub(crate) plan: Arc<plan::Collective>,
}

fn ranges(section: &Section) -> Ranges {
    section.ranges().iter().map(|r| (r.start, r.count, r.step)).collect()
}

fn wrong(text: String) -> Fault {
    Fault::new(Class::Internal, "broken-plan", text)
}

pub(crate) fn job(
    descriptor: &[i64],
    accesses: &[i64],
    shares: &[(u32, i64)],
) -> Result<Job, PlanError> {
    let descriptor = ArrayDescriptor::from_words(descriptor)?;
    let each = 2 + 3 * descriptor.shape.len();
    let access = |words: &[i64]| {
        let section = plan::section_from_words(&words[2..], &descriptor.shape)?;
        let number = |n: i64| u32::try_from(n).map_err(|_| PlanError::TooLarge("a rank"));
        Ok(Access { rank: number(words[0])?, item: number(words[1])?, section })
    };
    if !accesses.len().is_multiple_of(each) {
        let text =
            format!("{} numbers are not a whole number of accesses of {each}", accesses.len());
        return Err(PlanError::BadLayout(text));
    }
    let accesses = accesses.chunks_exact(each).map(access).collect::<Result<_, PlanError>>()?;
    let shares = shares.iter().map(|(rank, part)| Share { rank: *rank, part: *part }).collect();
    Ok(Job { descriptor, accesses, shares })
}

#[pymethods]
impl Collective {
    /// Create from `jobs`: for each array its numbers (`Array.descriptor`), its accesses (rank, item,
    /// section; the numbers of all one after another), and the shares of its owners.
    #[new]
    #[pyo3(signature = (jobs, *, ranks, slot, gap, align, least, cut, write = false))]
    #[allow(clippy::too_many_arguments, reason = "named in Python; each is one thing agreed on")]
    fn new(
        py: Python<'_>,
        jobs: Vec<Words>,
        ranks: u32,
        slot: i64,
        gap: i64,
        align: i64,
        least: i64,
        cut: &str,
        write: bool,
    ) -> PyResult<Collective> {
        let agreed = Agreed { ranks, slot, gap, align, least, cut: cut_of(cut), write };
        let plan = py.detach(|| {
            let jobs =
                jobs.iter().map(|(descriptor, accesses, shares)| job(descriptor, accesses, shares));
            plan::Collective::new(jobs.collect::<Result<_, _>>()?, &agreed)
        });
        Ok(Collective { plan: Arc::new(plan.map_err(Fault::from)?) })
    }

    /// Number of rounds.
    #[getter]
    fn rounds(&self) -> i64 {
        self.plan.rounds()
    }

    /// Bytes of the largest batch.
    #[getter]
    fn slot_bytes(&self) -> i64 {
        self.plan.slot_bytes()
    }

    /// Return whether accesses share elements; None if there were too many to find out.
    fn overlap(&self, py: Python<'_>) -> Option<bool> {
        match py.detach(|| self.plan.overlap()) {
            Overlap::Never => Some(false),
            Overlap::Somewhere => Some(true),
            Overlap::Unknown => None,
        }
    }

    /// True if written data must be put in its place in the order of the ranks.
    #[getter]
    fn in_order(&self) -> bool {
        self.plan.in_order()
    }

    /// Return what a rank writes if it omits elements that later ranks write: number of the array, of the
    /// item, and section; None if no rank omits anything.
    fn given(&self, rank: u32) -> Option<Vec<(u32, u32, Ranges)>> {
        let row = |(array, item, section): (u32, u32, &Section)| (array, item, ranges(section));
        self.plan.leaves_out().then(|| self.plan.given(rank).into_iter().map(row).collect())
    }

    /// Bytes that all ranks write together, without elements that later ranks overwrite.
    #[getter]
    fn given_bytes(&self) -> i64 {
        self.plan.given_bytes()
    }

    /// Return the cheapest method, and its reason. `own`: cost of each rank's accesses, and the share that is
    /// cached; `parts`: cost of the accesses of all owners. If `records` show that ranks lack memory,
    /// two-phase is excluded.
    #[pyo3(signature = (own, parts, nodes, *, oversubscription, arrays, write, records = None))]
    #[allow(clippy::too_many_arguments, reason = "named in Python; each is one thing agreed on")]
    fn cheapest(
        &self,
        py: Python<'_>,
        own: Vec<(i64, i64)>,
        parts: i64,
        nodes: Vec<i64>,
        oversubscription: i64,
        arrays: i64,
        write: bool,
        records: Option<&Bound<'_, Records>>,
    ) -> Decided {
        let costs = ExchangeCosts::shared(oversubscription);
        let prices = Prices { own, parts, costs, nodes, arrays };
        let lacking = records.and_then(|records| records.get().lacks(self.plan.slot_bytes()));
        let decided = py.detach(|| {
            let moved = self.plan.exchanged(&prices.nodes);
            prices.cheapest(&moved, write, lacking, self.plan.order(write))
        });
        chosen(decided)
    }

    /// Return the cost of two-phase, in nanoseconds summed over the ranks; arguments as for `cheapest`.
    #[pyo3(signature = (own, parts, nodes, *, oversubscription, arrays, write))]
    #[allow(clippy::too_many_arguments, reason = "named in Python; each is one thing agreed on")]
    fn two_phase_price(
        &self,
        own: Vec<(i64, i64)>,
        parts: i64,
        nodes: Vec<i64>,
        oversubscription: i64,
        arrays: i64,
        write: bool,
    ) -> i64 {
        let costs = ExchangeCosts::shared(oversubscription);
        let moved = self.plan.exchanged(&nodes);
        Prices { own, parts, costs, nodes, arrays }.two_phase(&moved, write)
    }

    /// Return the number of slots of each rank, if two may have `offered` bytes each.
    fn slots(&self, offered: i64) -> i64 {
        self.plan.slots(offered)
    }

    /// Number of arrays.
    #[getter]
    fn arrays(&self) -> usize {
        self.plan.arrays()
    }

    /// Return the bytes of an element of an array.
    fn item(&self, array: u32) -> i64 {
        self.plan.job(array).map_or(0, |job| job.descriptor.item)
    }

    /// Bytes that all ranks request.
    #[getter]
    fn wanted_bytes(&self) -> i64 {
        self.plan.wanted_bytes()
    }

    /// Return whether, in the file of an array, no element of another rank is stored between the elements of
    /// a rank.
    fn apart(&self, py: Python<'_>, array: u32) -> bool {
        py.detach(|| self.plan.apart(array))
    }

    /// Return the parts that a rank owns, as boxes: number of the array, and section.
    fn parts(&self, rank: u32) -> Vec<(u32, Ranges)> {
        self.plan.parts(rank).iter().map(|(array, section)| (*array, ranges(section))).collect()
    }

    /// Return the parts that a rank owns, reduced to the requested elements, with the number of elements in
    /// each that are requested or written.
    fn needed(&self, rank: u32) -> Vec<(u32, Ranges, i64)> {
        let needed = self.plan.needed(rank);
        needed.iter().map(|(array, section, useful)| (*array, ranges(section), *useful)).collect()
    }

    /// Return the ranks that own anything.
    fn owners(&self) -> Vec<u32> {
        self.plan.owners().collect()
    }

    /// Return the number of tiles of a rank.
    fn tiles(&self, owner: u32) -> i64 {
        self.plan.tiles(owner)
    }

    /// Return the bounding sections of an array, and the number of accesses in each.
    fn regions(&self, array: u32) -> Vec<(Ranges, usize)> {
        let regions = self.plan.regions(array).iter();
        regions.map(|region| (ranges(&region.section), region.members.len())).collect()
    }

    /// Return the first, and one past the last, of the tiles that an owner has in its slot in round `k`.
    fn batch(&self, owner: u32, k: i64) -> (i64, i64) {
        let batch = self.plan.batch(owner, k);
        (batch.start, batch.end)
    }

    /// Return those of the given owners that have a tile in their slot in round `k`.
    fn busy(&self, k: i64, mut owners: Vec<u32>) -> Vec<u32> {
        owners.retain(|owner| !self.plan.batch(*owner, k).is_empty());
        owners
    }

    /// Return the offset in bytes of tile `n` in the slot of an owner.
    fn place(&self, owner: u32, n: i64) -> i64 {
        self.plan.place(owner, n)
    }

    /// Return the number of the array, and the section, of tile `n` of an owner.
    fn tile(&self, owner: u32, n: i64) -> Option<(u32, Ranges)> {
        self.plan.tile(owner, n).map(|tile| (tile.array, ranges(&tile.section)))
    }

    /// Return what the owner must read of its tile: the smallest section that holds all requested elements
    /// (None if there are none), the number of its elements, the number of requested elements (counted once
    /// per request), and the number of pieces.
    fn wanted(&self, py: Python<'_>, owner: u32, n: i64) -> Option<(Ranges, i64, i64, usize)> {
        let held = py.detach(|| self.plan.held_tile(owner, n))?;
        Some((ranges(&held.section), held.elements, held.useful, held.parts.len()))
    }

    /// Return the bytes that each rank requests of a range of an owner's tiles, one number per rank.
    fn counts(&self, py: Python<'_>, owner: u32, tiles: (i64, i64), ranks: usize) -> Vec<i64> {
        py.detach(|| self.plan.bytes_of_tiles(owner, tiles.0..tiles.1, ranks))
    }

    /// Copy what `rank` requests from (`write`: writes to) the tiles that owners have in their slots in round
    /// `k`. `slots`: owner and its slot, bytes. `items`: the rank's arrays by number, each with the axes of
    /// the array on disk, in ascending order. Return the number of bytes.
    #[pyo3(signature = (k, rank, slots, items, write = false))]
    fn copy(
        &self,
        py: Python<'_>,
        k: i64,
        rank: u32,
        slots: Vec<(u32, Bound<'_, PyUntypedArray>)>,
        items: &Bound<'_, PyList>,
        write: bool,
    ) -> PyResult<usize> {
        let (arrays, slots) = (arrays(items)?, slots.iter());
        let slots = slots.map(|(owner, array)| Ok((*owner, bytes_of(array)?)));
        let slots = slots.collect::<Result<Vec<_>, Fault>>()?;
        let round = self.round(k, write, None);
        Ok(detached(py, || Ok(round.copy(rank, &slots, &arrays)?))?)
    }

    /// Pack what ranks request of the owner's tiles of round `k` into `packed`, one rank after another in the
    /// order of `ranks`; or, to `write`, unpack their data, a later rank over an earlier one. `packet`: only
    /// the packet with this number, of packets of at most this many bytes. Return the number of bytes.
    #[pyo3(signature = (owner, k, slot, ranks, packed, write = false, packet = None))]
    #[allow(clippy::too_many_arguments, reason = "one end and the other")]
    fn pack(
        &self,
        py: Python<'_>,
        owner: u32,
        k: i64,
        slot: &Bound<'_, PyUntypedArray>,
        ranks: Vec<u32>,
        packed: &Bound<'_, PyUntypedArray>,
        write: bool,
        packet: Option<(usize, i64)>,
    ) -> PyResult<usize> {
        let (slot, packed) = (bytes_of(slot)?, bytes_of(packed)?);
        let round = self.round(k, write, packet);
        Ok(detached(py, || Ok(round.pack(owner, slot, &ranks, packed)?))?)
    }

    /// Make the copies at the other end: copy what came from the owners, one after another, into the rank's
    /// arrays; or pack the data for them. `packet` as for `pack`. Return the number of bytes.
    #[pyo3(signature = (k, rank, owners, packed, items, write = false, packet = None))]
    #[allow(clippy::too_many_arguments, reason = "one end and the other")]
    fn unpack(
        &self,
        py: Python<'_>,
        k: i64,
        rank: u32,
        owners: Vec<u32>,
        packed: &Bound<'_, PyUntypedArray>,
        items: &Bound<'_, PyList>,
        write: bool,
        packet: Option<(usize, i64)>,
    ) -> PyResult<usize> {
        let (arrays, packed) = (arrays(items)?, bytes_of(packed)?);
        let round = self.round(k, write, packet);
        Ok(detached(py, || Ok(round.unpack(rank, &owners, packed, &arrays)?))?)
    }
}

impl Collective {
    fn round(&self, k: i64, write: bool, packet: Option<(usize, i64)>) -> Exchange<'_> {
        let direction = if write { Direction::Write } else { Direction::Read };
        Exchange { plan: &self.plan, k, direction, packet }
    }
}

/// Returns the memory of a one-dimensional array of bytes: a slot, or messages.
pub(crate) fn bytes_of<'a>(array: &'a Bound<'_, PyUntypedArray>) -> Result<User<'a>, Fault> {
    let sane = array.ndim() == 1 && array.dtype().itemsize() == 1 && buffers::writeable(array);
    if !sane || buffers::memory(array).strides != [1] && array.len() > 1 {
        return Err(wrong("a slot must be a writable array of bytes".to_owned()));
    }
    // SAFETY: the array has that length, and may be written; the caller refers to it until the copies are
    // done. Slots are accessed by their users between two synchronisations of all ranks.
    Ok(unsafe { User::new(buffers::memory(array).data, 0, array.len() as i64) })
}

/// Returns the arrays of a rank.
fn arrays<'a>(items: &'a Bound<'_, PyList>) -> PyResult<Vec<UserArray<'a>>> {
    let mut found = Vec::with_capacity(items.len());
    for item in items {
        let array = item.cast::<PyUntypedArray>()?;
        let (memory, shape) = (buffers::memory(array), buffers::shape(array));
        let item = array.dtype().itemsize() as i64;
        // SAFETY: all elements are there; the list, and so the caller, refers to the array until the copies
        // are done. Arrays that are read into were made for that.
        let data = unsafe { memory.whole(&shape, item) };
        found.push(UserArray { data, shape, strides: memory.strides, item });
    }
    Ok(found)
}

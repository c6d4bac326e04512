//! `_core.Owner` and the other functions that one rank needs in the rounds of a two-phase collective: its
//! accesses as an owner, its messages, its costs, its flushes.

#![allow(unsafe_code)]

use std::sync::Arc;

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use outcore_access::two_phase as core;
use outcore_io::exec::User;
use outcore_plan::collective::{self as plan, Owed, Peers, Turn, Way};
use pyo3::prelude::*;

use crate::array::Array;
use crate::background::Background;
use crate::buffers::{self, Memory};
use crate::collective::Collective;
use crate::errors::{detached, Fault};
use crate::interrupt::Signals;
use crate::key;
use crate::open::Held;

struct Inner {
    plan: Arc<plan::Collective>,
    rank: u32,
    arrays: Vec<Option<Held>>,
    rewrites: Option<bool>,
}

impl Inner {
    fn with<T>(&self, work: impl FnOnce(&core::Owner) -> T) -> T {
        let arrays: Vec<_> =
            self.arrays.iter().map(|held| held.as_ref().map(Held::owned)).collect();
        let (rank, rewrites) = (self.rank, self.rewrites);
        work(&core::Owner { plan: &self.plan, rank, arrays: &arrays, rewrites })
    }
}

/// A rank as an owner: reads and writes the tiles that it has in its slots.
#[pyclass(module = "outcore._core", frozen)]
pub struct Owner(Arc<Inner>);

/// Tiles of a round that are written from a slot.
#[pyclass(module = "outcore._core", frozen)]
pub struct Batch {
    tiles: Arc<core::Batch>,
    slot: Slot,
    array: Py<PyAny>,
}

#[pymethods]
impl Batch {
    /// Method of writing each tile: `"whole"`, `"rewritten"` (missing elements are read first) or `"in parts"`.
    #[getter]
    fn ways(&self) -> Vec<&'static str> {
        let word = |way| match way {
            Way::Whole => "whole",
            Way::Rewritten => "rewritten",
            Way::InParts => "in parts",
        };
        self.tiles.ways().map(word).collect()
    }
}

/// Memory of a slot, for as long as its array exists.
#[derive(Clone)]
struct Slot {
    memory: Memory,
    len: usize,
}

impl Slot {
    fn of(array: &Bound<'_, PyUntypedArray>) -> Result<Slot, Fault> {
        crate::collective::bytes_of(array)?;
        Ok(Slot { memory: buffers::memory(array), len: array.len() })
    }

    fn user(&self) -> User<'_> {
        // SAFETY: the array has that many bytes, and the user of this value refers to it until it is done.
        // The plan determines which rank uses a slot in which round, and ranks synchronise in between.
        unsafe { User::new(self.memory.data, 0, self.len as i64) }
    }
}

#[pymethods]
impl Owner {
    /// Create from `arrays`: the arrays of the plan, by number; None for an array that this rank has not
    /// opened. `rewrites`: whether tiles with holes are read first and written whole; None: if that costs
    /// less. `exclusive`: numbers of the arrays that only the ranks of the plan write.
    #[new]
    #[pyo3(signature = (plan, rank, arrays, rewrites = None, exclusive = None))]
    fn new(
        plan: &Bound<'_, Collective>,
        rank: u32,
        arrays: Vec<Option<Bound<'_, Array>>>,
        rewrites: Option<bool>,
        exclusive: Option<Vec<usize>>,
    ) -> PyResult<Owner> {
        let held = |array: Option<Bound<'_, Array>>| array.map(|a| a.get().held()).transpose();
        let mut arrays = arrays.into_iter().map(held).collect::<Result<Vec<_>, Fault>>()?;
        for (number, array) in arrays.iter_mut().enumerate() {
            let Some(held) = array else { continue };
            held.exclusive = exclusive.as_ref().is_some_and(|all| all.contains(&number));
        }
        Ok(Owner(Arc::new(Inner { plan: plan.get().plan.clone(), rank, arrays, rewrites })))
    }

    /// Start to read the requested elements of the tiles of round `k` into a slot, after `after` has ended.
    #[pyo3(signature = (k, slot, after = None))]
    fn read(
        &self,
        py: Python<'_>,
        k: i64,
        slot: &Bound<'_, PyUntypedArray>,
        after: Option<&Bound<'_, Background>>,
    ) -> PyResult<Background> {
        let (place, inner) = (Slot::of(slot)?, self.0.clone());
        let before = after.map(|one| one.get().progress());
        let kept = vec![slot.clone().into_any().unbind()];
        Ok(Background::start(py, kept, move || {
            if let Some(before) = before {
                before.wait();
            }
            Ok(inner.with(|owner| owner.read(k, place.user(), &Signals::default()))?)
        }))
    }

    /// Return the tiles of round `k`, to be written from a slot.
    fn batch(&self, py: Python<'_>, k: i64, slot: &Bound<'_, PyUntypedArray>) -> PyResult<Batch> {
        let place = Slot::of(slot)?;
        let tiles =
            detached(py, || Ok(self.0.with(|owner| owner.batch(k, &Signals::default()))?))?;
        Ok(Batch { tiles: Arc::new(tiles), slot: place, array: slot.clone().into_any().unbind() })
    }

    /// Start to write the tiles `writes`, if there are any, and then to read the elements of the tiles
    /// `holes` that no rank writes; both may use the same slot.
    #[pyo3(signature = (writes, holes))]
    fn write(
        &self,
        py: Python<'_>,
        writes: Option<&Bound<'_, Batch>>,
        holes: &Bound<'_, Batch>,
    ) -> Background {
        let nothing = |batch: &Bound<'_, Batch>| batch.get().tiles.is_empty();
        if writes.is_none_or(nothing) && !holes.get().tiles.has_holes() {
            return Background::ended();
        }
        let inner = self.0.clone();
        let words = |batch: &Bound<'_, Batch>| {
            let batch = batch.get();
            (batch.tiles.clone(), batch.slot.clone())
        };
        let (first, (tiles, slot)) = (writes.map(words), words(holes));
        let mut kept = vec![holes.get().array.clone_ref(py)];
        kept.extend(writes.map(|batch| batch.get().array.clone_ref(py)));
        Background::start(py, kept, move || {
            let signals = Signals::default();
            inner.with(|owner| {
                if let Some((tiles, slot)) = &first {
                    owner.write(tiles, slot.user(), &signals)?;
                }
                owner.read_holes(&tiles, slot.user(), &signals)
            })?;
            Ok(())
        })
    }

    /// Return the cost of accessing this rank's part of the arrays, in nanoseconds; with `cold`, as if
    /// nothing were cached.
    #[pyo3(signature = (*, write, cold = false))]
    fn price(&self, py: Python<'_>, write: bool, cold: bool) -> PyResult<i64> {
        let price = || Ok(self.0.with(|owner| owner.price(write, cold, &Signals::default())));
        Ok(detached(py, price)?)
    }
}

/// Return the cost of accesses (an array, a key) that this rank makes independently, in nanoseconds, and the
/// least share that is cached, in thousandths. An access whose cost cannot be computed counts as more
/// expensive than any other.
#[pyfunction]
#[pyo3(signature = (accesses, *, write, cold = false))]
pub fn own_price(
    py: Python<'_>,
    accesses: Vec<(Bound<'_, Array>, Bound<'_, PyAny>)>,
    write: bool,
    cold: bool,
) -> PyResult<(i64, i64)> {
    let mut found = Vec::with_capacity(accesses.len());
    let mut closed = 0_i64;
    for (array, key) in &accesses {
        match array.get().held() {
            Ok(held) => {
                let section = key::parse(key, held.open.shape(), array.get().path())?.section;
                found.push((held, section));
            }
            Err(_) => closed += plan::IMPOSSIBLE,
        }
    }
    let (cost, cached) = detached(py, || {
        let all: Vec<_> = found.iter().map(|(held, s)| (held.owned(), s.clone())).collect();
        Ok(core::own_price(&all, write, cold, &Signals::default()))
    })?;
    Ok((cost.saturating_add(closed), if closed > 0 { 0 } else { cached }))
}

/// Data that a rank sends and receives in a round, in parts that fit its buffer.
#[pyclass(module = "outcore._core", frozen)]
pub struct Messages(plan::Messages);

#[pymethods]
impl Messages {
    /// Create for round `k`. `owns`: the tiles of this rank, `me`, are exchanged, with the ranks `partners`;
    /// `owners`: the owners with whose tiles it exchanges.
    #[new]
    #[pyo3(signature = (plan, k, *, ranks, me, owns, partners, owners, write))]
    #[allow(clippy::too_many_arguments, reason = "named in Python; each is one thing")]
    fn new(
        py: Python<'_>,
        plan: &Bound<'_, Collective>,
        k: i64,
        ranks: usize,
        me: u32,
        owns: bool,
        partners: Vec<u32>,
        owners: Vec<u32>,
        write: bool,
    ) -> Messages {
        let plan = plan.get().plan.clone();
        let peers = Peers { ranks, me, owns, partners: &partners, owners: &owners };
        Messages(py.detach(|| plan::Messages::new(&plan, k, &peers, write)))
    }

    /// Number of parts that this rank needs, in a form of which the largest of any rank counts.
    #[getter]
    fn need(&self) -> u32 {
        self.0.need()
    }

    /// Return the largest number of bytes that this rank sends and receives at the same time.
    fn largest(&self, need: u32) -> i64 {
        self.0.largest(need)
    }

    /// Return part `number`: bytes for each rank and from each rank, and the number of the packet if messages
    /// have several; None past the last part.
    #[allow(clippy::type_complexity, reason = "a row of plain numbers for Python")]
    fn part<'py>(
        &self,
        py: Python<'py>,
        need: u32,
        number: usize,
    ) -> PyResult<Option<(Bound<'py, PyUntypedArray>, Bound<'py, PyUntypedArray>, Option<usize>)>>
    {
        let Some(part) = self.0.part(need, number) else { return Ok(None) };
        Ok(Some((
            buffers::array_of(py, &part.sent)?,
            buffers::array_of(py, &part.received)?,
            part.packet,
        )))
    }
}

/// Writes of a rank to an array that are not flushed yet: whether it asks for a flush, and device and inode
/// of the file, or whether it has separate files.
type Words = (bool, bool, Option<(i64, i64)>);

/// Return when each rank (on these nodes) flushes each array: 0 with the first, 1 after them, 2 not at all.
/// `said`: what ranks state about each array.
#[pyfunction]
pub fn flush_turns(nodes: Vec<i64>, said: Vec<Vec<Words>>) -> Vec<Vec<u8>> {
    let owed = |(asked, owes, file): Words| {
        let owed = match (owes, file) {
            (false, _) => Owed::Nothing,
            (true, None) => Owed::Own,
            (true, Some((device, inode))) => Owed::File(device, inode),
        };
        (asked, owed)
    };
    let said: Vec<Vec<_>> =
        said.into_iter().map(|ranks| ranks.into_iter().map(owed).collect()).collect();
    let number = |turn| match turn {
        Turn::First => 0,
        Turn::Then => 1,
        Turn::Spared => 2,
    };
    plan::turns(&nodes, &said).into_iter().map(|of| of.into_iter().map(number).collect()).collect()
}

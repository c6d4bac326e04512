//! An owner's accesses in the rounds of a two-phase collective: from the tiles in its slot to sections.
//!
//! Problem. In each round an owner reads, or writes, the tiles that it has in its slot, by the method that
//! costs least in the current state of page cache and disk, while other rounds are exchanged.
//!
//! Idea. `plan::collective` determines the place of each tile in the slot and the method of its access
//! (`holes`), from costs that are computed here; each part becomes an [`Access`] to memory in the slot. Tiles
//! of a batch are accessed concurrently.
//!
//! Invariants. Nothing outside the slot is accessed: each access gets only the bytes of its part, checked
//! against the slot. Parts of one tile are written one after another, in the order of the ranks.
//!
//! Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
//! Arrays", sections 3.1 and 3.2.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use outcore_io::cpu;
use outcore_io::exec::User;
use outcore_io::slot;
use outcore_plan::collective::{Collective, Held, Way, IMPOSSIBLE};
use outcore_plan::{Direction, Section};

use crate::error::Fault;
use crate::habit::InParts;
use crate::hints::{Cache, Hints};
use crate::interrupt::Interrupts;
use crate::many;
use crate::open::Open;
use crate::step::{reach, Access};
use crate::terms;

/// Number of tiles of a batch, or of small parts of one, that are accessed concurrently.
const LANES: usize = 4;

/// An array that an owner has open.
pub struct Owned<'a> {
    /// The array.
    pub open: &'a Open,
    /// Hints of this rank.
    pub hints: &'a Hints,
    /// True if only the ranks of the collective write the array. This is not a hint for this rank's accesses,
    /// for which the other owners are other processes.
    pub exclusive: bool,
    /// Number of writes that ended.
    pub written: &'a AtomicU64,
    /// The collective's write, of which all rounds are parts.
    pub whole: &'a InParts,
}

/// A rank as an owner.
pub struct Owner<'a> {
    /// The plan, which determines the owner of each tile in each round.
    pub plan: &'a Collective,
    /// Number of this rank.
    pub rank: u32,
    /// The arrays of the plan; None for an array that this rank has not opened (it then owns nothing of it).
    pub arrays: &'a [Option<Owned<'a>>],
    /// True: tiles with holes are read first and written whole. None: only if that costs less.
    pub rewrites: Option<bool>,
}

/// Tiles that are written from a slot, and the method for each.
#[derive(Debug, Default)]
pub struct Batch(Vec<(Place, Held, Way)>);

impl Batch {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how its tiles are written.
    pub fn ways(&self) -> impl Iterator<Item = Way> + '_ {
        self.0.iter().map(|(.., way)| *way)
    }

    /// Returns whether any of it is read before it is written.
    pub fn has_holes(&self) -> bool {
        self.ways().any(|way| way == Way::Rewritten)
    }
}

/// Place of a tile in the slot.
#[derive(Debug)]
struct Place {
    at: i64,
    strides: Vec<i64>,
}

/// A part of a tile and its memory in the slot.
struct Part<'a> {
    array: &'a Owned<'a>,
    section: &'a Section,
    strides: Vec<i64>,
    data: User<'a>,
}

impl Owner<'_> {
    /// Reads the requested elements of the tiles of round `k` into the slot.
    ///
    /// # Errors
    /// The first error of any access, with the name of its array.
    pub fn read(&self, k: i64, slot: User, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        let tiles: Vec<_> = self.tiles(k).collect();
        let mut wanted = Vec::with_capacity(tiles.len());
        for (place, held) in &tiles {
            let array = self.array(held.tile.array)?;
            let reads = held.reads(|section| {
                array.price(Direction::Read, section, false, interrupts).map(|(cost, _)| cost)
            })?;
            let part = |section| self.part(array, (place, held), section, slot);
            wanted.push(reads.into_iter().map(part).collect::<Result<Vec<Part>, Fault>>()?);
        }
        let small = |parts: &Vec<Part>| parts.iter().map(Part::bytes).sum::<i64>() < terms::SMALL;
        if wanted.iter().all(small) {
            let all: Vec<&Part> = wanted.iter().flatten().collect();
            return read_parts(&all, interrupts);
        }
        side_by_side(&wanted, |parts| read_parts(&parts.iter().collect::<Vec<_>>(), interrupts))
    }

    /// Determines how the tiles of round `k` are written.
    ///
    /// # Errors
    /// An access whose cost cannot be computed.
    pub fn batch(&self, k: i64, interrupts: &dyn Interrupts) -> Result<Batch, Fault> {
        let mut batch = Vec::new();
        for (place, held) in self.tiles(k) {
            let array = self.array(held.tile.array)?;
            let in_order = self.plan.in_order();
            let way = held.way(in_order, array.exclusive, |direction, section| {
                array.price(direction, section, false, interrupts).map(|(cost, _)| cost)
            })?;
            let way = match (way, self.rewrites) {
                (Way::InParts, Some(true)) => Way::Rewritten,
                (Way::Rewritten, Some(false)) => Way::InParts,
                _ => way,
            };
            batch.push((place, held, way));
        }
        Ok(Batch(batch))
    }

    /// Reads the elements of these tiles that no rank writes into the slot, from which the tiles are written
    /// back.
    ///
    /// # Errors
    /// The first error of any access, with the name of its array.
    pub fn read_holes(
        &self,
        batch: &Batch,
        slot: User,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        side_by_side(&batch.0, |(place, held, way)| {
            if *way != Way::Rewritten {
                return Ok(());
            }
            let array = self.array(held.tile.array)?;
            let part = self.part(array, (place, held), &held.section, slot)?;
            // If the read bypassed the page cache, the write would read the same pages again.
            let keeping = Hints { cache: Cache::Keep, ..array.hints.clone() };
            let hints = if array.hints.cache == Cache::Auto { &keeping } else { array.hints };
            let access = Access { hints, ..part.access(Direction::Read) };
            array.open.run(&access, interrupts).map_err(|fault| array.open.failure(fault))
        })
    }

    /// Writes these tiles from the slot.
    ///
    /// # Errors
    /// The first error of any access, with the name of its array.
    pub fn write(
        &self,
        batch: &Batch,
        slot: User,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        side_by_side(&batch.0, |(place, held, way)| {
            let array = self.array(held.tile.array)?;
            let sections = match way {
                Way::Whole | Way::Rewritten => std::slice::from_ref(&held.section),
                Way::InParts => &held.parts,
            };
            for section in sections {
                let part = self.part(array, (place, held), section, slot)?;
                let ended =
                    array.open.run_part(&part.access(Direction::Write), array.whole, interrupts);
                array.written.fetch_add(1, Ordering::SeqCst);
                ended.map_err(|fault| array.open.failure(fault))?;
            }
            Ok(())
        })
    }

    /// Returns the cost of accessing this rank's part of the arrays; with `cold`, as if nothing were in the
    /// page cache.
    pub fn price(&self, write: bool, cold: bool, interrupts: &dyn Interrupts) -> i64 {
        let array = |number: u32| self.arrays.get(number as usize).and_then(Option::as_ref);
        let exclusive = |number| array(number).is_some_and(|array| array.exclusive);
        let price = |number, direction, section: &Section| match array(number) {
            Some(array) => {
                array.price(direction, section, cold, interrupts).map(|(cost, _)| Some(cost))
            }
            None => Ok(None),
        };
        self.plan.owner_price(self.rank, write, exclusive, price)
    }

    /// Returns the tiles of round `k` from which ranks request anything.
    fn tiles(&self, k: i64) -> impl Iterator<Item = (Place, Held)> + '_ {
        self.plan.batch(self.rank, k).filter_map(|n| {
            let held = self.plan.held_tile(self.rank, n)?;
            // An array without bytes has no tiles.
            let job = self.plan.job(held.tile.array).filter(|job| job.descriptor.item > 0)?;
            let order = &job.descriptor.order;
            let strides = slot::packed(&held.tile.section, order, job.descriptor.item);
            Some((Place { at: self.plan.place(self.rank, n), strides }, held))
        })
    }

    fn array(&self, number: u32) -> Result<&Owned<'_>, Fault> {
        let array = self.arrays.get(number as usize).and_then(Option::as_ref);
        array.ok_or_else(|| slot::wrong(format!("array {number} is not open on this rank")).into())
    }

    fn part<'a>(
        &self,
        array: &'a Owned<'a>,
        (place, held): (&Place, &Held),
        section: &'a Section,
        slot: User<'a>,
    ) -> Result<Part<'a>, Fault> {
        array.open.admit(section)?;
        let item = array.open.described.item();
        let (at, strides) =
            slot::within(section, &held.tile.section, &place.strides).ok_or_else(|| {
                slot::wrong(format!("section {section} is not inside tile {}", held.tile.section))
            })?;
        let (low, high) = reach(section, &strides, item);
        let data = slot.shifted(place.at.saturating_add(at)).within(low, high)?;
        Ok(Part { array, section, strides, data })
    }
}

impl Owned<'_> {
    /// Returns the cost of an access in nanoseconds, and the share of it that is cached, in thousandths.
    pub fn price(
        &self,
        direction: Direction,
        section: &Section,
        cold: bool,
        interrupts: &dyn Interrupts,
    ) -> Result<(i64, i64), Fault> {
        let priced = self.open.price_of(direction, section, (self.hints, cold), interrupts);
        priced.map_err(|fault| self.open.failure(fault))
    }
}

/// Returns the cost of accesses that a rank makes independently, in nanoseconds, and the least share that is
/// cached, in thousandths.
pub fn own_price(
    accesses: &[(Owned, Section)],
    write: bool,
    cold: bool,
    interrupts: &dyn Interrupts,
) -> (i64, i64) {
    let direction = if write { Direction::Write } else { Direction::Read };
    let (mut total, mut least) = (0_i64, 1000);
    for (array, section) in accesses {
        if section.is_empty() || array.open.described.item() == 0 {
            continue;
        }
        let priced = array.price(direction, section, cold, interrupts);
        let (cost, cached) = priced.unwrap_or((IMPOSSIBLE, 0));
        (total, least) = (total.saturating_add(cost), least.min(cached));
    }
    (total, least)
}

impl<'a> Part<'a> {
    fn access(&'a self, direction: Direction) -> Access<'a> {
        let Part { array, section, strides, data } = self;
        Access { direction, section, strides, data: *data, hints: array.hints }
    }

    fn bytes(&self) -> i64 {
        let item = self.array.open.described.item();
        self.section.count().unwrap_or(i64::MAX).saturating_mul(item)
    }
}

fn read_parts(parts: &[&Part], interrupts: &dyn Interrupts) -> Result<(), Fault> {
    let mut jobs: Vec<(&Open, Access)> = Vec::with_capacity(parts.len());
    for part in parts {
        jobs.push((part.array.open, part.access(Direction::Read)));
    }
    many::read(&jobs, LANES, (0, 1), interrupts)
}

/// Calls `work` with each of them, some concurrently; the first failure ends it.
fn side_by_side<T: Sync>(
    all: &[T],
    work: impl Fn(&T) -> Result<(), Fault> + Sync,
) -> Result<(), Fault> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    cpu::side_by_side(LANES.min(all.len()), &|_| {
        while !failed.load(Ordering::Relaxed) {
            let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            if let Err(fault) = work(one) {
                failed.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
            }
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;

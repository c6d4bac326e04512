//! Accesses to elements that are chosen one by one.
//!
//! Problem. A list may be larger than memory, and in any order. Idea. The access is made in slabs, each with
//! a separate plan. Elements in the page cache are copied in the order of the list, so slabs are small.
//! Accesses to the disk and to chunks are first ordered by windows of the file, so slabs are as large as the
//! budget allows: an element that is requested twice in one slab is read once.
//!
//! Invariants. If there are several values for one element, the last one wins: slabs are written one after
//! another, and a slab keeps the order within each window. All indices are checked before the first byte is
//! written.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use outcore_io::exec::{CacheUse, User};
use outcore_io::{probe, Arena, FileTable, Reservation, StorageError};
use outcore_plan::points::Chosen;
use outcore_plan::{
    is_cached, Direction, Index, Layout, Method, Part, Plan, Points, Request, Section, Strided,
};

use crate::admission::Mode;
use crate::described::Source;
use crate::error::Fault;
use crate::hints::{Cache, Hints};
use crate::interrupt::Interrupts;
use crate::nesting::Reading;
use crate::open::{Open, Place};
use crate::part::Context;
use crate::step::{Access, Step};
use crate::survey::Survey;
use crate::terms;

/// Points of a slab that is copied in the order of the list.
const COPIED: usize = 1 << 18;
/// Bytes for ordering each point: addresses on both sides, and as many while they are sorted.
const ORDERED: u64 = 48;
/// Minimum number of points that are ordered together.
const FEWEST: usize = 1 << 8;
/// Size of windows of strided arrays, as a power of two: some megabytes, which the caches of two processors
/// hold.
const WINDOW: u32 = 22;
/// Blocks of at least this many bytes are accessed as sections: each keeps a disk busy alone.
const LARGE: i64 = 256 << 10;
/// Number of samples of the page cache.
const LOOKS: usize = 16;
/// Bytes of one sample.
const LOOK: i64 = 64 << 10;
/// Share of an array's pages, in thousandths, from which it counts as in memory; the other pages are read one
/// by one.
const RESIDES: u32 = 999;

/// The request.
#[derive(Clone, Copy)]
pub struct IndexedAccess<'a> {
    /// Read or write.
    pub direction: Direction,
    /// The elements, and the strides of the caller's array.
    pub index: Index<'a>,
    /// The caller's array from its first point on; none if nothing will be moved.
    pub data: User<'a>,
    /// Hints.
    pub hints: &'a Hints,
}

/// An index that was prepared for repeated use with arrays of one layout: checked, and ordered by windows.
pub struct IndexSchedule {
    slabs: Vec<(Arc<Points>, Reservation)>,
    cell: Section,
    strides: Vec<i64>,
    reach: (i64, i64),
    /// Layout for which the addresses were computed.
    layout: Layout,
    shard: Option<Vec<i64>>,
}

impl IndexSchedule {
    /// Returns the bytes of memory that it occupies.
    pub fn bytes(&self) -> usize {
        self.slabs.iter().map(|(points, _)| points.bytes()).sum()
    }

    /// Returns whether it can be used for an array.
    pub fn serves(&self, open: &Open) -> bool {
        let same = match (&self.layout, &open.described.layout) {
            // The place of the elements in the file does not matter, and neither does the file.
            (Layout::Strided(one), Layout::Strided(other)) => {
                let lens = |parts: &[Part]| parts.iter().map(|part| part.len).collect::<Vec<_>>();
                (&one.shape, one.item, &one.strides) == (&other.shape, other.item, &other.strides)
                    && (one.parts.len() == 1 && other.parts.len() == 1
                        || lens(&one.parts) == lens(&other.parts))
            }
            (Layout::Chunked(one), Layout::Chunked(other)) => {
                (&one.shape, one.item, &one.chunk, &one.strides, one.encoded)
                    == (&other.shape, other.item, &other.chunk, &other.strides, other.encoded)
            }
            _ => false,
        };
        same && self.shard.as_deref() == open.per_shard()
    }
}

impl Open {
    /// Moves the elements between the files and the caller's memory.
    pub fn run_indexed(
        &self,
        asked: &IndexedAccess,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        self.counted(asked.direction, || {
            self.each_indexed(asked, Mode::Run, interrupts, &mut |access, step| {
                self.run_step(access, step, interrupts)
            })
        })?;
        if asked.direction == Direction::Read {
            let IndexedAccess { index, data, .. } = asked;
            let points = i64::try_from(index.len()?).unwrap_or(i64::MAX);
            let ranges = index.rest.ranges().iter().zip(index.strides).enumerate();
            let regular = ranges.filter(|(d, _)| !index.axes.contains(d));
            let regular = regular.map(|(_, (range, stride))| (range.count, *stride));
            let axes: Vec<_> = std::iter::once((points, index.point)).chain(regular).collect();
            self.finish_strings_at(*data, &axes)?;
        }
        Ok(())
    }

    /// Returns what [`Open::run_indexed`] would need.
    pub fn survey_indexed(
        &self,
        asked: &IndexedAccess,
        interrupts: &dyn Interrupts,
    ) -> Result<Survey, Fault> {
        let mut survey = None;
        self.each_indexed(asked, Mode::Look, interrupts, &mut |_, step| {
            self.tell(&mut survey, &step)
        })?;
        Ok(survey.unwrap_or_else(Survey::of_nothing))
    }

    /// Prepares an index. The index describes the caller's array as packed.
    ///
    /// # Errors
    /// An invalid index; `Budget` if the schedule does not fit the budget.
    pub fn schedule(&self, index: &Index, hints: &Hints) -> Result<IndexSchedule, Fault> {
        let layout = &self.described.layout;
        index.check(self.shape())?;
        let (number, cell) = (index.places(layout)?, index.cell(layout)?);
        let lists = AllLists { open: self, index, hints, shard: self.per_shard() };
        let mut slabs = Vec::new();
        if !cell.is_empty() {
            // Order as for writes: that order serves reads as well.
            let (bits, distinct) = (lists.bits(Direction::Write), lists.distinct(Direction::Write));
            for slab in lists.slabs(number) {
                // The memory of runs is known once they are found.
                let bytes = (slab.len() as u64).saturating_mul(ORDERED);
                let mut held = Arena::global().reserve("a schedule of listed elements", bytes)?;
                let points = lists.points(slab, bits, distinct)?;
                held.shrink(points.bytes() as u64);
                slabs.push((points, held));
            }
        }
        Ok(IndexSchedule {
            slabs,
            cell,
            strides: index.strides.to_vec(),
            reach: index.reach(layout)?,
            layout: layout.clone(),
            shard: self.per_shard().map(<[i64]>::to_vec),
        })
    }

    /// Moves the elements of a schedule between the files and a packed array.
    ///
    /// # Errors
    /// `BadJob` if the schedule was made for another layout; the errors of the access.
    pub fn run_schedule(
        &self,
        schedule: &IndexSchedule,
        (direction, data, hints): (Direction, User, &Hints),
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        if !schedule.serves(self) {
            let text = "the schedule was made for an array of another layout".to_owned();
            return Err(StorageError::BadJob(text).into());
        }
        let IndexSchedule { slabs, cell, strides, reach, .. } = schedule;
        let access = Access { direction, section: cell, strides, data, hints };
        let one = One { open: self, access: &access, reach: *reach, mode: Mode::Run, interrupts };
        let done = self.counted(direction, || {
            for (points, _) in slabs {
                let looks = |k: usize| (self.described.files.len() < 2).then(|| points.address(k));
                one.slab(points, &mut Cached::of(&looks, points.runs()), &mut |access, step| {
                    self.run_step(access, step, interrupts)
                })?;
            }
            Ok(())
        });
        done.map_err(|fault| fault.at_least(self.enough(direction, hints, 0)))?;
        if direction == Direction::Read {
            let item = self.described.item();
            self.finish_strings_at(data, &[(data.bounds().1 / item.max(1), item)])?;
        }
        Ok(())
    }

    /// Counts a write.
    fn counted(
        &self,
        direction: Direction,
        run: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match direction {
            Direction::Write => self.write_in_parts(run),
            Direction::Read => run(),
        }
    }

    /// Returns the chunks in a shard along each axis, if chunks are in shards.
    fn per_shard(&self) -> Option<&[i64]> {
        match &self.described.source {
            Some(Source::Files { shard: Some(shard), .. }) => Some(&shard.per_shard),
            _ => None,
        }
    }

    fn each_indexed(
        &self,
        asked: &IndexedAccess,
        mode: Mode,
        interrupts: &dyn Interrupts,
        work: &mut dyn FnMut(&Access, Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let done = self.each_indexed_step(asked, mode, interrupts, work);
        match mode {
            Mode::Run => done.map_err(|fault| {
                let lists = (FEWEST as u64 * ORDERED) as i64;
                fault.at_least(self.enough(asked.direction, asked.hints, lists))
            }),
            Mode::Look | Mode::Nested => done,
        }
    }

    fn each_indexed_step(
        &self,
        asked: &IndexedAccess,
        mode: Mode,
        interrupts: &dyn Interrupts,
        work: &mut dyn FnMut(&Access, Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let layout = &self.described.layout;
        let IndexedAccess { direction, index, data, hints } = *asked;
        index.check(self.shape())?;
        let (number, cell) = (index.places(layout)?, index.cell(layout)?);
        if number == 0 || cell.is_empty() {
            return Ok(());
        }
        let access = Access { direction, section: &cell, strides: index.strides, data, hints };
        let reach = index.reach(layout)?;
        let one = One { open: self, access: &access, reach, mode, interrupts };
        let lists = AllLists { open: self, index: &index, hints, shard: self.per_shard() };
        let looks = |k: usize| {
            let point = index.place(layout, None, k..k + 1, 0).ok()?;
            Some(point.address(0))
        };
        let mut cached = Cached::of(&looks, number);
        let mut copied = false;
        if let (Layout::Strided(strided), Place::Files(files)) = (layout, &self.place) {
            if index.block()?.saturating_mul(strided.item) >= LARGE {
                return one.sections(&index, work);
            }
            copied = one.copied(strided, files, &mut cached);
        }
        let distinct = lists.distinct(direction);
        let (bits, each) = (lists.bits(direction), if copied { COPIED } else { usize::MAX });
        for slab in lists.slabs(number).flat_map(|slab| pieces(slab, each)) {
            let mut held = None;
            if mode != Mode::Look {
                let bytes = (slab.len() as u64).saturating_mul(ORDERED);
                mode.step(interrupts, || {
                    held =
                        Some(Arena::global().reserve("the addresses of listed elements", bytes)?);
                    Ok(())
                })?;
            }
            let index = &lists.index;
            let points = match copied {
                true => Arc::new(index.place(layout, lists.shard, slab, bits)?),
                false => lists.points(slab, bits, distinct)?,
            };
            one.slab(&points, &mut cached, work)?;
            drop(held);
        }
        Ok(())
    }
}

/// Returns consecutive parts of at most `most` points.
fn pieces(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(most).map(move |first| first..end.min(first.saturating_add(most)))
}

/// An index, and the array for which its points are computed.
struct AllLists<'a> {
    open: &'a Open,
    index: &'a Index<'a>,
    hints: &'a Hints,
    shard: Option<&'a [i64]>,
}

impl AllLists<'_> {
    /// Returns parts of the list whose ordered points fit a quarter of the budget.
    fn slabs(&self, number: usize) -> impl Iterator<Item = Range<usize>> {
        let most = terms::budget(self.hints).max(0) as u64 / 4 / ORDERED;
        let most = usize::try_from(most).unwrap_or(usize::MAX).clamp(FEWEST, u32::MAX as usize);
        pieces(0..number, most)
    }

    /// Returns the size of a window as a power of two, so that several windows fit the budget. For writes to
    /// chunks, one window holds everything, so that no chunk is encoded twice.
    fn bits(&self, direction: Direction) -> u32 {
        let chunked = matches!(self.open.described.layout, Layout::Chunked(_));
        let whole = direction == Direction::Write || self.hints.method == Some(Method::Chunks);
        if chunked && whole {
            return 62;
        }
        let share = (terms::budget(self.hints) / 16).max(1 << 12);
        WINDOW.min(63 - share.leading_zeros())
    }

    /// Returns the size of an element if the distinct elements of each chunk must be counted, to know whether
    /// all of the chunk is replaced.
    fn distinct(&self, direction: Direction) -> Option<i64> {
        let chunked = matches!(self.open.described.layout, Layout::Chunked(_));
        let counts = chunked && direction == Direction::Write;
        counts.then(|| self.open.described.item().max(1))
    }

    /// Returns points in the order of their windows; with `distinct`, the size of an element, distinct
    /// elements are counted.
    fn points(
        &self,
        range: Range<usize>,
        bits: u32,
        distinct: Option<i64>,
    ) -> Result<Arc<Points>, Fault> {
        let layout = &self.open.described.layout;
        Ok(Arc::new(self.index.ordered(layout, self.shard, range, (bits, distinct))?))
    }
}

/// The share of elements that is in the page cache, determined on first use.
struct Cached<'a> {
    /// Returns the address of an element in the concatenation of the parts.
    address: &'a dyn Fn(usize) -> Option<i64>,
    number: usize,
    found: Option<Option<u32>>,
}

impl<'a> Cached<'a> {
    fn of(address: &'a dyn Fn(usize) -> Option<i64>, number: usize) -> Cached<'a> {
        Cached { address, number, found: None }
    }

    /// Returns file, offset there, and bytes left in its part, of some elements at regular distances in the
    /// list.
    fn places<'p>(
        &'p self,
        layout: &'p Strided,
        base: i64,
    ) -> impl Iterator<Item = Option<(u32, i64, i64)>> + 'p {
        let step = (self.number / LOOKS).max(1);
        (0..LOOKS.min(self.number))
            .map(move |look| terms::locate(layout, (self.address)(look * step)?.checked_add(base)?))
    }

    fn share(
        &mut self,
        layout: &Strided,
        files: &FileTable,
        (base, len): (i64, i64),
    ) -> Option<u32> {
        if let Some(found) = self.found {
            return found;
        }
        let look = || {
            let (mut sum, mut looks) = (0, 0);
            for place in self.places(layout, base) {
                let (file, offset, room) = place?;
                let file = files.open(file).ok()?;
                sum += probe::cached(file.fd(), offset, len.min(room))?;
                looks += 1;
            }
            sum.checked_div(looks)
        };
        let found = look();
        self.found = Some(found);
        found
    }

    /// Returns whether more than a quarter of the elements is on the disk, estimated from a few of them; the
    /// others are holes.
    fn stored(&self, layout: &Strided, files: &FileTable, base: i64) -> bool {
        let stored = self.places(layout, base).filter(|place| {
            let Some((file, offset, room)) = *place else { return true };
            let Ok(file) = files.open(file) else { return true };
            !probe::hole(file.fd(), offset, layout.item.min(room))
        });
        4 * stored.count() > LOOKS.min(self.number)
    }
}

/// An access in progress.
#[derive(Clone, Copy)]
struct One<'a> {
    open: &'a Open,
    /// Access to the block of each point.
    access: &'a Access<'a>,
    /// Byte range of the caller's array.
    reach: (i64, i64),
    mode: Mode,
    interrupts: &'a dyn Interrupts,
}

impl One<'_> {
    /// Accesses one section after another: large blocks are planned separately.
    fn sections(
        &self,
        index: &Index,
        work: &mut dyn FnMut(&Access, Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for k in 0..index.len()? {
            let section = index.section(k, self.open.shape())?;
            let data = self.access.data.shifted((k as i64).saturating_mul(index.point));
            let access = Access { section: &section, data, ..*self.access };
            self.open.each(&access, self.mode, self.interrupts, &mut |step| work(&access, step))?;
        }
        Ok(())
    }

    /// Returns whether elements are copied out of a mapping in the order of the list.
    fn copied(&self, layout: &Strided, files: &FileTable, cached: &mut Cached) -> bool {
        let hints = self.access.hints;
        if self.access.direction == Direction::Write || hints.cache == Cache::Bypass {
            return false;
        }
        if !self.open.found.mappable(files) {
            return false;
        }
        // All of the array may then be resident at the same time.
        let bytes = layout.parts.iter().fold(0_i64, |all, part| all.saturating_add(part.len));
        let many = (cached.number as i64).saturating_mul(LOOK) >= bytes;
        let mut mapped = || match hints.method {
            None => {
                let share = cached.share(layout, files, self.look(layout));
                share.is_some_and(|permille| is_cached(permille.into()))
            }
            method => method == Some(Method::Mapped),
        };
        let small = u64::try_from(bytes).is_ok_and(|bytes| bytes <= Arena::global().limit() / 2);
        if small {
            return mapped();
        }
        // Mapping what is in memory needs no more memory. The check takes some time, which a few points are
        // not worth.
        let resides = |part: &Part| {
            let file = files.open(part.file).ok()?;
            Some(probe::cached(file.fd(), part.offset, part.len)? >= RESIDES)
        };
        many && mapped() && layout.parts.iter().all(|part| resides(part) == Some(true))
    }

    /// Returns the first byte of the block of a point, relative to the point, and the bytes of a sample
    /// there.
    fn look(&self, layout: &Strided) -> (i64, i64) {
        let block = self.access.section.ranges().iter().zip(&layout.strides);
        let base = block.map(|(range, stride)| range.start * stride).sum();
        let elements = self.access.section.count().unwrap_or(1);
        (base, elements.saturating_mul(layout.item).min(LOOK))
    }

    /// Plans and accesses some points.
    fn slab(
        &self,
        points: &Arc<Points>,
        cached: &mut Cached,
        work: &mut dyn FnMut(&Access, Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (open, access) = (self.open, self.access);
        match (&open.described.layout, &open.place) {
            (Layout::Strided(layout), Place::Files(files)) => {
                self.mode.step(self.interrupts, || {
                    let guard = open.keep_out(files, access, self.mode, self.interrupts)?;
                    let _reading = Reading::of(guard.as_ref());
                    work(access, self.step(layout, files, points, cached)?)
                })?;
                self.interrupts.stop()
            }
            (Layout::Chunked(layout), Place::Chunks(chunks)) => {
                let (described, found, interrupts) =
                    (&*open.described, &open.found, self.interrupts);
                let context = Context { layout, described, found, interrupts };
                let points = (points, self.reach);
                chunks.each_listed(&context, access, points, self.mode, &mut |step| {
                    work(access, step)
                })
            }
            // `new` pairs them.
            _ => Err(StorageError::BadJob("layout and files do not match".into()).into()),
        }
    }

    /// Returns the plan of some points of a strided array.
    fn step<'f>(
        &'f self,
        layout: &Strided,
        files: &'f FileTable,
        points: &Arc<Points>,
        cached: &mut Cached,
    ) -> Result<Step<'f>, Fault> {
        let began = Instant::now();
        let (open, access, hints) = (self.open, self.access, self.access.hints);
        let look = self.look(layout);
        let share = match hints.cache {
            Cache::Bypass => None,
            _ => cached.share(layout, files, look),
        };
        let budget = terms::budget(hints);
        let mut terms = terms::terms(hints, &open.found, files, share, None, budget);
        terms.flushed = open.flushed(access);
        if access.direction == Direction::Write && !is_cached(terms.cached_permille) {
            terms.stored = cached.stored(layout, files, look.0);
        }
        let Access { direction, section, strides, data, .. } = *access;
        let request = Request {
            layout: &open.described.layout,
            table: None,
            section,
            user_stride: strides,
            direction,
        };
        let chosen = Chosen { points, windows: 0..points.windows().len() };
        let plan = Plan::indexed(&request, &chosen, &terms)
            .map_err(|error| terms::refused(error, hints, 0))?;
        Ok(Step {
            plan,
            files,
            data,
            section,
            cached: share,
            sink: None,
            tables: 0,
            chunk_cache: CacheUse::Never,
            alone: None,
            times: 1,
            reach: self.reach,
            planned: began.elapsed(),
        })
    }
}

#[cfg(test)]
mod tests;

//! Accesses to elements that are chosen one by one.
//!
//! Problem. A list may be larger than memory is, and in any order. Idea. It is done in slabs, each a plan of its
//! own. Elements in the page cache are copied in the order of the list, so slabs are small; what comes from the disk,
//! from chunks, or goes to them is ordered by windows of the file first, so slabs are as large as the budget
//! allows: whatever is asked for twice in one slab is read once.
//!
//! Invariants. Of several values for one element the last one wins: slabs are written one after another, and a
//! slab keeps the order within each window. All indices are checked before the first byte is written.

use std::ops::Range;
use std::sync::Arc;

use outcore_io::exec::{CacheUse, User};
use outcore_io::{probe, Arena, FileTable, StorageError};
use outcore_plan::planner::Chosen;
use outcore_plan::{is_cached, Direction, Index, Layout, Method, Plan, Points, Request, Strided};

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
/// Bytes that ordering takes for each point: addresses on both sides, and as many while they are sorted.
const ORDERED: u64 = 48;
/// Windows of strided arrays, as a power of two: some megabytes, which the caches of two processors hold.
const WINDOW: u32 = 22;
/// Blocks of so many bytes are sections: each keeps a disk busy by itself.
const LARGE: i64 = 256 << 10;
/// Looks at the page cache.
const LOOKS: usize = 16;
/// Bytes of one look.
const LOOK: i64 = 64 << 10;

/// What is asked.
#[derive(Clone, Copy)]
pub struct IndexedAccess<'a> {
    /// Read or write.
    pub direction: Direction,
    /// The elements, and how the caller's array is walked.
    pub index: Index<'a>,
    /// The caller's array from its first point on; none if nothing will be moved.
    pub data: User<'a>,
    /// Hints.
    pub hints: &'a Hints,
}

impl Open {
    /// Moves the elements between the files and the caller's memory.
    pub fn run_indexed(
        &self,
        asked: &IndexedAccess,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        let run = || {
            self.each_indexed(asked, Mode::Run, interrupts, &mut |access, step| {
                self.run_step(access, step, interrupts)
            })
        };
        match asked.direction {
            Direction::Write => self.write_in_parts(run),
            Direction::Read => run(),
        }
    }

    /// What that would take.
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

    fn each_indexed(
        &self,
        asked: &IndexedAccess,
        mode: Mode,
        interrupts: &dyn Interrupts,
        work: &mut dyn FnMut(&Access, Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let layout = &self.described.layout;
        asked.index.check(self.shape())?;
        let number = asked.index.places(layout)?;
        let cell = asked.index.cell(layout)?;
        if number == 0 || cell.is_empty() {
            return Ok(());
        }
        let access = Access {
            direction: asked.direction,
            section: &cell,
            strides: asked.index.strides,
            data: asked.data,
            hints: asked.hints,
        };
        let one = One { open: self, asked, access: &access, mode, interrupts };
        match (layout, &self.place) {
            (Layout::Strided(strided), Place::Files(files)) => {
                let block = asked.index.block()?.saturating_mul(strided.item);
                match block < LARGE {
                    true => one.strided(strided, files, number, work),
                    false => one.sections(work),
                }
            }
            (Layout::Chunked(chunked), Place::Chunks(chunks)) => {
                let shard = match &self.described.source {
                    Some(Source::Files { shard: Some(shard), .. }) => Some(&shard.per_shard[..]),
                    _ => None,
                };
                let (described, found) = (&*self.described, &self.found);
                let context = Context { layout: chunked, described, found, interrupts };
                // What is written lies in whole chunks: none is made twice.
                let whole = access.direction == Direction::Write
                    || access.hints.method == Some(Method::Chunks);
                let bits = if whole { 62 } else { one.bits() };
                for slab in one.slabs(number) {
                    let (points, _held) = one.points(shard, slab, bits, true)?;
                    let points = (&points, asked.index.reach(layout)?);
                    chunks.each_listed(&context, &access, points, mode, &mut |step| {
                        work(&access, step)
                    })?;
                }
                Ok(())
            }
            // `new` pairs them.
            _ => Err(StorageError::BadJob("layout and files do not match".into()).into()),
        }
    }
}

/// One access, on its way.
#[derive(Clone, Copy)]
struct One<'a> {
    open: &'a Open,
    asked: &'a IndexedAccess<'a>,
    access: &'a Access<'a>,
    mode: Mode,
    interrupts: &'a dyn Interrupts,
}

impl<'a> One<'a> {
    /// Stretches of the list whose ordered points fit a quarter of the budget.
    fn slabs(&self, number: usize) -> impl Iterator<Item = Range<usize>> {
        let most = terms::budget(self.access.hints).max(0) as u64 / 4 / ORDERED;
        let most = usize::try_from(most).unwrap_or(usize::MAX).clamp(1 << 8, u32::MAX as usize);
        (0..number).step_by(most).map(move |first| first..(first + most).min(number))
    }

    /// The bits of a window: so that some fit the budget.
    fn bits(&self) -> u32 {
        let share = (terms::budget(self.access.hints) / 16).max(1 << 12);
        WINDOW.min(63 - share.leading_zeros())
    }

    /// One section after another: what is large is planned by itself.
    fn sections(&self, work: &mut dyn FnMut(&Access, Step) -> Result<(), Fault>) -> Result<(), Fault> {
        let index = &self.asked.index;
        for k in 0..index.len()? {
            let section = index.section(k, self.open.shape())?;
            let shift = (k as i64).saturating_mul(index.point);
            let data = self.access.data.shifted(shift);
            let access = Access { section: &section, data, ..*self.access };
            self.open.each(&access, self.mode, self.interrupts, &mut |step| work(&access, step))?;
        }
        Ok(())
    }

    /// Points of the list, counted in the budget, and what counts them.
    fn points(
        &self,
        shard: Option<&[i64]>,
        range: Range<usize>,
        bits: u32,
        ordered: bool,
    ) -> Result<(Arc<Points>, Option<outcore_io::Reservation>), Fault> {
        let held = match self.mode {
            Mode::Look => None,
            _ => {
                let bytes = (range.len() as u64).saturating_mul(ORDERED);
                Some(Arena::global().reserve("the addresses of listed elements", bytes)?)
            }
        };
        let layout = &self.open.described.layout;
        let mut points = self.asked.index.place(layout, shard, range, bits)?;
        if ordered {
            let write = self.access.direction == Direction::Write;
            points.order(write.then_some(self.open.described.item().max(1)));
        }
        Ok((Arc::new(points), held))
    }

    fn strided(
        &self,
        layout: &'a Strided,
        files: &FileTable,
        number: usize,
        work: &mut dyn FnMut(&Access, Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let hints = self.access.hints;
        let cached = self.cached(layout, files, number);
        let copied = self.access.direction == Direction::Read
            && hints.cache != Cache::Bypass
            && (hints.method == Some(Method::Mapped)
                || hints.method.is_none() && cached.is_some_and(|c| is_cached(c.into())))
            && self.resides(layout);
        let bits = self.bits();
        let slabs: Box<dyn Iterator<Item = Range<usize>>> = match copied {
            true => {
                let slabs = (0..number).step_by(COPIED);
                Box::new(slabs.map(move |first| first..(first + COPIED).min(number)))
            }
            false => Box::new(self.slabs(number)),
        };
        for slab in slabs {
            self.mode.step(self.interrupts, || {
                let guard =
                    self.open.keep_out(files, self.access, self.mode, self.interrupts)?;
                let _reading = Reading::of(guard.as_ref());
                let (points, _held) = self.points(None, slab.clone(), bits, !copied)?;
                let step = self.step(layout, files, &points, cached)?;
                work(self.access, step)
            })?;
            self.interrupts.stop()?;
        }
        Ok(())
    }

    /// The plan of some points.
    fn step<'f>(
        &'f self,
        layout: &Strided,
        files: &'f FileTable,
        points: &Arc<Points>,
        cached: Option<u32>,
    ) -> Result<Step<'f>, Fault> {
        let (open, access, hints) = (self.open, self.access, self.access.hints);
        let budget = terms::budget(hints);
        let mut terms = terms::terms(hints, &open.found, files, cached, None, budget);
        terms.flushed = open.flushed(access);
        if access.direction == Direction::Write && !is_cached(terms.cached_permille) {
            terms.stored = self.stored(layout, files, points);
        }
        let request = Request {
            layout: &open.described.layout,
            table: None,
            section: access.section,
            user_stride: access.strides,
            direction: access.direction,
        };
        let chosen = Chosen { points, windows: 0..points.windows().len() };
        let plan = Plan::indexed(&request, &chosen, &terms)
            .map_err(|error| terms::refused(error, hints, 0))?;
        let (sink, tables, chunk_cache) = (None, 0, CacheUse::Never);
        let Access { section, data, .. } = *access;
        let reach = self.asked.index.reach(&open.described.layout)?;
        let (alone, times) = (None, 1);
        Ok(Step { plan, files, data, section, cached, sink, tables, chunk_cache, alone, times, reach })
    }

    /// Whether all of the array may be resident at once, so that it can be touched in any order.
    fn resides(&self, layout: &Strided) -> bool {
        let bytes = layout.parts.iter().fold(0_i64, |all, part| all.saturating_add(part.len));
        u64::try_from(bytes).is_ok_and(|bytes| bytes <= Arena::global().limit() / 2)
    }

    /// The share of the elements that is in the page cache, in thousandths, from a few of them.
    fn cached(&self, layout: &Strided, files: &FileTable, number: usize) -> Option<u32> {
        let (mut sum, mut looks) = (0, 0);
        let len = (self.access.section.count().ok()? * layout.item).min(LOOK);
        for look in 0..LOOKS.min(number) {
            let (file, offset, room) = self.place(layout, look * (number / LOOKS).max(1))?;
            let file = files.open(file).ok()?;
            sum += probe::cached(file.fd(), offset, len.min(room))?;
            looks += 1;
        }
        sum.checked_div(looks)
    }

    /// Whether more than a quarter of the elements is on the disk, so far as a few of them tell; the others are
    /// holes.
    fn stored(&self, layout: &Strided, files: &FileTable, points: &Points) -> bool {
        let number = points.len();
        let mut stored = 0;
        for look in 0..LOOKS.min(number) {
            let Some((file, offset, room)) = self.place(layout, look * (number / LOOKS).max(1))
            else {
                return true;
            };
            let Ok(file) = files.open(file) else { return true };
            stored += usize::from(!probe::hole(file.fd(), offset, layout.item.min(room)));
        }
        4 * stored > LOOKS.min(number)
    }

    /// File, offset there, and bytes left in its part, of point `k` of the list.
    fn place(&self, layout: &Strided, k: usize) -> Option<(u32, i64, i64)> {
        let all = &self.open.described.layout;
        let one = self.asked.index.place(all, None, k..k + 1, 0).ok()?;
        let block = self.access.section.ranges().iter().zip(&layout.strides);
        let base: i64 = block.map(|(range, stride)| range.start * stride).sum();
        terms::locate(layout, one.address(0) + base)
    }
}

//! A batch of chunks: its content, the requested part of it, and its plan.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use outcore_io::exec::{CacheUse, Sink, User};
use outcore_io::lock::Patience;
use outcore_io::store::{Cells, Resolved};
use outcore_io::{probe, Arena, FileRef, FileTable, Reservation, StorageError};
use outcore_plan::points::Chosen;
use outcore_plan::points::Window;
use outcore_plan::{
    is_cached, ChunkTable, Chunked, Coding, Direction, Faults, Plan, PlanError, Points, Request,
    Section, Stored,
};

use crate::admission::Mode;
use crate::described::{Described, Source};
use crate::error::Fault;
use crate::guard::patiently;
use crate::interrupt::Interrupts;
use crate::step::{reach, Access, Step};
use crate::terms::{self, Found};

/// Samples of the page cache per batch, and bytes per sample.
const LOOKS: usize = 8;
const LOOK: i64 = 64 << 10;

/// State that the steps of an access share.
pub struct Context<'a> {
    /// The layout.
    pub layout: &'a Chunked,
    /// The array.
    pub described: &'a Described,
    /// Known properties of its files.
    pub found: &'a Found,
    /// Check for Ctrl-C.
    pub interrupts: &'a dyn Interrupts,
}

/// A batch of one access.
pub struct Part<'a> {
    /// The array, and the check for Ctrl-C.
    pub context: &'a Context<'a>,
    /// The request.
    pub access: &'a Access<'a>,
    /// The part of the section in these chunks.
    pub section: &'a Section,
    /// The chunks.
    pub cells: &'a Cells,
    /// The caller's element for index `[0, ..., 0]` of the part.
    pub data: User<'a>,
    /// Memory that coding takes, if chunks go through codecs.
    pub codecs: Option<Coding>,
    /// Bytes that the plan may hold.
    pub budget: i64,
    /// Bytes of the tables, in addition.
    pub tables: i64,
    /// Budget that is enough for the plan, whatever is stored.
    pub least: i64,
    /// True if other batches belong to the same access.
    pub more_follow: bool,
    /// Use of the cached decoded chunks.
    pub chunk_cache: CacheUse,
    /// Mode: look, or run.
    pub mode: Mode,
    /// Number of batches like this one, including this one.
    pub times: i64,
    /// Elements that are chosen one by one: the section is then the section of the block of each.
    pub listed: Option<PartPoints<'a>>,
}

/// Points of a batch.
#[derive(Clone)]
pub struct PartPoints<'a> {
    /// All points of the access, in the order of their windows.
    pub points: &'a Arc<Points>,
    /// Windows of the batch.
    pub windows: Range<usize>,
    /// Lowest byte and one past the highest byte of the caller's array that these points use.
    pub reach: (i64, i64),
}

impl PartPoints<'_> {
    /// Returns the windows of the batch that are in a chunk.
    fn inside(&self, chunk: &[i64]) -> &[Window] {
        let windows = &self.points.windows()[self.windows.clone()];
        let number = self.points.grid().number(chunk);
        let first = windows.partition_point(|window| self.points.cell(window) < number);
        let end = windows.partition_point(|window| self.points.cell(window) <= number);
        &windows[first..end]
    }
}

impl Part<'_> {
    /// As [`patiently`], for the array of the batch.
    pub fn patiently<T>(
        &self,
        attempt: impl FnMut(Patience) -> Result<T, StorageError>,
    ) -> Result<T, Fault> {
        patiently(&self.context.described.path, self.context.interrupts, attempt)
    }

    /// Counts the tables before they exist; if the mode only looks, no memory needs to be free for them.
    pub fn reserve_tables(&self) -> Result<Option<Reservation>, Fault> {
        let what = "the table of chunks";
        if self.budget < 0 {
            let needed = self.tables.saturating_add(self.least);
            let error = PlanError::BudgetTooSmall { what, needed, budget: 0 };
            return Err(terms::refused(error, self.access.hints, self.ours(0)).into());
        }
        if self.mode == Mode::Look {
            return Ok(None);
        }
        Ok(Some(Arena::global().reserve(what, self.tables as u64)?))
    }

    /// Returns whether a budget that is enough for this batch is enough for the whole access, and for a
    /// repetition of it: a chunk that is missing now, and is written in part, is read the next time.
    pub fn lasts(&self) -> bool {
        let whole = |cell: &Vec<i64>| !self.touches(cell) || self.covers(cell);
        let reads = self.access.direction == Direction::Read;
        !self.more_follow && (reads || self.cells.iter().all(|cell| whole(&cell)))
    }

    /// Returns how much of the memory that is held now is ours. Memory that is held for an access of which
    /// this one is a part is reported by that access.
    pub fn ours(&self, tables: i64) -> i64 {
        match self.mode {
            Mode::Nested => i64::MAX,
            Mode::Look => 0,
            Mode::Run => tables,
        }
    }

    /// Returns whether the section contains an element of a chunk.
    pub fn touches(&self, cell: &[i64]) -> bool {
        let listed = |listed: &PartPoints| !listed.inside(cell).is_empty();
        self.listed.as_ref().is_none_or(listed) && self.all_axes(cell, |held, _| held > 0)
    }

    /// As [`Part::touches`], for chunks of the batch: most sections skip none of them.
    pub fn wanted(&self) -> impl Fn(&[i64]) -> bool + '_ {
        let mut ranges = self.section.ranges().iter().zip(&self.context.layout.chunk);
        let dense = self.listed.is_none() && ranges.all(|(range, n)| range.step <= *n);
        move |cell: &[i64]| dense || self.touches(cell)
    }

    /// Returns whether the section contains all elements of a chunk that are in the array.
    pub fn covers(&self, cell: &[i64]) -> bool {
        let layout = self.context.layout;
        let has = |d: &usize| {
            let low = cell[*d] * layout.chunk[*d];
            layout.chunk[*d].min(layout.shape[*d] - low)
        };
        let listed = |listed: &PartPoints| {
            let all = listed.points.grid().axes().iter().map(has).product::<i64>();
            matches!(listed.inside(cell), [window] if window.distinct as i64 == all)
        };
        self.listed.as_ref().is_none_or(listed) && self.all_axes(cell, |held, has| held == has)
    }

    /// Returns whether `test` holds for all axes of a chunk that have ranges: it gets the number of indices
    /// in the section, and the number in the array.
    pub fn all_axes(&self, cell: &[i64], test: impl Fn(i64, i64) -> bool) -> bool {
        let layout = self.context.layout;
        let axes =
            cell.iter().zip(self.section.ranges()).zip(layout.chunk.iter().zip(&layout.shape));
        let indexed = self.listed.as_ref().map_or(&[][..], |listed| listed.points.grid().axes());
        let axes = axes.enumerate().filter(|(d, _)| !indexed.contains(d));
        let mut axes = axes.map(|(_, ((k, r), (c, n)))| {
            let (low, high) = (k * c, ((k + 1) * c).min(*n));
            // Number of steps of the range below an index.
            let below = |i: i64| (((i - r.start).max(0) + r.step - 1) / r.step).min(r.count);
            (below(high) - below(low), high - low)
        });
        axes.all(|(held, has)| test(held, has))
    }

    /// Plans the batch, and passes the plan to `work`.
    pub fn step(
        &self,
        resolved: &Resolved,
        sink: Option<&Sink>,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let began = Instant::now();
        let (access, context) = (self.access, self.context);
        let cached = cached(&resolved.table, &resolved.files);
        let (hints, files) = (access.hints, &resolved.files);
        let mut terms = terms::terms(hints, context.found, files, cached, self.codecs, self.budget);
        if access.direction == Direction::Write && !is_cached(terms.cached_permille) {
            terms.stored = on_disk(&resolved.table, files);
        }
        // Chunks in separate files: a page of one file is never next to another chunk.
        let own = matches!(&context.described.source, Some(Source::Files { shard: None, .. }));
        if access.direction == Direction::Write && self.codecs.is_none() && own {
            let (array, direction) = (&context.described.layout, access.direction);
            terms = terms::past_cache(terms, hints, context.found, array, direction);
        }
        // The files of the chunks are opened, and so mapped, for this batch.
        let chunks = resolved.table.stored.iter().flatten().count() / files.len().max(1);
        terms.faults = Some(Faults::of_new(i64::try_from(chunks).unwrap_or(i64::MAX)));
        let request = Request {
            layout: &context.described.layout,
            table: Some(&resolved.table),
            section: self.section,
            user_stride: access.strides,
            direction: access.direction,
        };
        let planned = match &self.listed {
            Some(PartPoints { points, windows, .. }) => {
                let chosen = Chosen { points, windows: windows.clone() };
                Plan::indexed(&request, &chosen, &terms)
            }
            None => Plan::new(&request, &terms),
        };
        let plan = planned.map_err(|error| match error {
            PlanError::BudgetTooSmall { what, needed, budget } => {
                let least = if self.lasts() { 0 } else { self.least };
                let needed = needed.max(least).saturating_add(self.tables);
                let error = PlanError::BudgetTooSmall { what, needed, budget };
                terms::refused(error, hints, self.ours(self.tables))
            }
            error => error,
        })?;
        work(Step {
            plan,
            files: &resolved.files,
            data: self.data,
            section: self.section,
            cached,
            sink,
            tables: self.tables,
            chunk_cache: self.chunk_cache,
            alone: None,
            times: self.times,
            reach: match &self.listed {
                Some(listed) => listed.reach,
                None => reach(self.section, access.strides, context.described.item()),
            },
            planned: began.elapsed(),
        })
    }
}

/// Returns the share of stored chunks that is in the page cache, in thousandths, from a few of them.
fn cached(table: &ChunkTable, files: &FileTable) -> Option<u32> {
    let stored: Vec<_> = table.stored.iter().flatten().collect();
    if stored.is_empty() {
        return Some(1000);
    }
    let step = stored.len().div_ceil(LOOKS);
    let (mut sum, mut number) = (0, 0);
    for at in stored.iter().step_by(step) {
        let file = files.open(at.file).ok()?;
        sum += probe::cached(file.fd(), at.offset, at.len.min(LOOK))?;
        number += 1;
    }
    Some(sum / number)
}

/// Returns whether any of the chunks is on the disk, estimated from a few of them; the others are holes.
fn on_disk(table: &ChunkTable, files: &FileTable) -> bool {
    let stored: Vec<_> = table.stored.iter().flatten().collect();
    let mut few = stored.iter().step_by(stored.len().div_ceil(LOOKS).max(1));
    let hole = |file: FileRef, at: &Stored| probe::hole(file.fd(), at.offset, at.len);
    few.any(|at| files.open(at.file).map_or(true, |file| !hole(file, at)))
}

#[cfg(test)]
mod tests;

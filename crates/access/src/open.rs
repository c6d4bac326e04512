//! An array that is open in this process, and what an access to it needs.
//!
//! Idea. [`Open`] holds what an open array needs. `Open::each` (`steps`) produces the steps of an access,
//! one plan and the files it numbers at a time; reading and writing (`run`), flushing (`flush`),
//! explaining and prefetching are different things to do with each step.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use outcore_io::backend::{self, Chosen};
use outcore_io::disks::{self, Figures, Origin};
use outcore_io::exec::Report;
use outcore_io::gaps::Written;
use outcore_io::pool::PAGE;
use outcore_io::store::listing::Listed;
use outcore_io::{Arena, FileTable};
use outcore_plan::{Chunked, Direction, Layout, Section};

use crate::chunks::Chunks;
use crate::described::{Described, Source};
use crate::error::Fault;
use crate::habit::Habit;
use crate::hints::{Cache, Hints};
use crate::interrupt::Interrupts;
use crate::part::Context;
use crate::step::Access;
use crate::terms::{self, Found};
use crate::windows::Windows;

mod flush;
mod run;
mod steps;

/// An array that is open in this process.
pub struct Open {
    /// The process it belongs to.
    pub pid: u32,
    /// The array.
    pub described: Arc<Described>,
    pub(crate) place: Place,
    engine: OnceLock<Chosen>,
    pub(crate) found: Found,
    habit: Habit,
    /// What was written in place since the last flush.
    written: Written,
    /// Pages of gaps that flushes made dirty.
    filled: AtomicU64,
    /// Who writes in place, and who through windows that are written back.
    windows: Arc<Windows>,
    done: Arc<Mutex<Report>>,
}

pub(crate) enum Place {
    Files(Box<FileTable>),
    Chunks(Box<Chunks>),
}

/// Pages that a budget which does for any access has beside the least one: of files, and of chunks.
const PLAIN_SLACK: i64 = 4;
const CODED_SLACK: i64 = 16;

/// Writes of this process, begun and ended.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// A number that changes with every write of this process.
pub fn writes() -> u64 {
    WRITES.load(Ordering::SeqCst)
}

impl Open {
    /// The same array as its metadata say from now on, while accesses to what they said before may
    /// still run: writes of both wait for each other where they must, and what is done is counted in
    /// one place.
    pub fn beside(&self, described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        let (windows, done) = (Arc::clone(&self.windows), Arc::clone(&self.done));
        Ok(Open { windows, done, ..Open::new(described, writable)? })
    }

    /// The same elements with other metadata: writes of both wait for each other where they must, and
    /// each counts what is done by itself.
    pub fn view(&self, described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        Ok(Open { windows: Arc::clone(&self.windows), ..Open::new(described, writable)? })
    }

    /// Opens nothing yet: files are opened when they are first used.
    pub fn new(described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        let place = match (&described.layout, &described.source) {
            (Layout::Chunked(layout), Some(source)) => {
                let chunks = Chunks::new(layout, source, &described.pipeline);
                Place::Chunks(Box::new(chunks.map_err(|e| Fault::from(e).at(&described.path))?))
            }
            _ => Place::Files(Box::new(described.table(writable))),
        };
        let (engine, found, habit) = (OnceLock::new(), Found::default(), Habit::default());
        let (windows, done) = (Arc::default(), Arc::default());
        let (written, filled) = (Written::default(), AtomicU64::new(0));
        let pid = std::process::id();
        Ok(Open { pid, described, place, engine, found, habit, written, filled, windows, done })
    }

    /// The figures of the disk that holds the array, and where they come from.
    pub fn disk(&self) -> (Figures, Origin) {
        let found = self.disk_number().and_then(disks::figures);
        found.unwrap_or_else(|| (terms::assumed(), Origin::Assumed))
    }

    /// The number of the disk that holds the array.
    pub fn disk_number(&self) -> Option<u64> {
        let path = match &self.place {
            Place::Files(files) => files.path(0).ok(),
            Place::Chunks(_) => None,
        };
        // An array in a file (`a.h5::/x`) is where the file is.
        let outer = self.described.path.split("::").next().unwrap_or_default();
        self.found.device(path.unwrap_or(Path::new(outer)))
    }

    /// Bytes of a page if large writes pass the page cache, because it would not hold them; else 0.
    pub fn past_cache(&self, hints: &Hints) -> i64 {
        let terms = match (&self.place, &self.described.source) {
            (Place::Files(files), _) => terms::terms(hints, &self.found, files, None, None, 0),
            // Before the first chunk is there, a file of the array's own tells what the disk wants.
            (Place::Chunks(_), Some(Source::Files { shard: None, lock, .. }))
                if self.described.pipeline.is_empty() =>
            {
                terms::of_new_files(hints, &self.found, lock)
            }
            (Place::Chunks(_), _) => return 0,
        };
        let (array, direction) = (&self.described.layout, Direction::Write);
        let terms = terms::past_cache(terms, hints, &self.found, array, direction);
        i64::from(terms.scarce && hints.method.is_none()) * terms.block
    }

    /// The engine for this array.
    pub fn engine(&self, hints: &Hints) -> &Chosen {
        self.engine.get_or_init(|| {
            backend::choose(match hints.engine.as_str() {
                "threads" => backend::Choice::Threads,
                "uring" => backend::Choice::Uring,
                _ => backend::Choice::Auto,
            })
        })
    }

    /// Whether the elements lie in files as they are, not in chunks.
    pub fn is_plain(&self) -> bool {
        matches!(self.place, Place::Files(_))
    }

    /// The grid of shards, if chunks lie in shards.
    pub fn shards(&self) -> Option<&Chunked> {
        match &self.place {
            Place::Files(_) => None,
            Place::Chunks(chunks) => chunks.shards(),
        }
    }

    /// Refuses a section that no access takes on, before there is memory for it.
    pub fn admit(&self, section: &Section) -> Result<(), Fault> {
        match &self.described.layout {
            Layout::Chunked(layout) => layout.admit(section).map_err(|e| self.failure(e.into())),
            Layout::Strided(_) => Ok(()),
        }
    }

    /// Where something is stored (`Chunks::stored`); None if the elements lie in files as they are.
    pub fn stored(&self, interrupts: &dyn Interrupts) -> Result<Option<(Vec<i64>, Listed)>, Fault> {
        let (Layout::Chunked(layout), Place::Chunks(chunks)) =
            (&self.described.layout, &self.place)
        else {
            return Ok(None);
        };
        let (described, found) = (&*self.described, &self.found);
        chunks.stored(&Context { layout, described, found, interrupts }).map(Some)
    }

    /// A failure with the name of the array.
    pub fn failure(&self, fault: Fault) -> Fault {
        fault.at(&self.described.path)
    }

    /// A budget that does for a chunk of an access, with `more` bytes that it holds besides, and for what
    /// others hold.
    pub fn enough(&self, direction: Direction, hints: &Hints, more: i64) -> i64 {
        let least = terms::pages(self.least(direction)).saturating_add(terms::pages(more));
        // What threads and tables hold for a moment depends on the budget: this does for both.
        let pages = if self.is_plain() { PLAIN_SLACK } else { CODED_SLACK };
        let least = least.saturating_add(least / 8).saturating_add(pages * PAGE as i64);
        let arena = Arena::global();
        let by_hint = hints.memory.is_some_and(|hint| hint <= arena.available());
        let others = if by_hint { 0 } else { i64::try_from(arena.used()).unwrap_or(i64::MAX) };
        least.saturating_add(others)
    }

    /// The share of a section that is in the page cache, in thousandths; 0 where nobody knows, or where
    /// accesses go past it.
    pub fn cached(&self, section: &Section, hints: &Hints) -> u32 {
        match (&self.described.layout, &self.place) {
            (Layout::Strided(layout), Place::Files(files)) if hints.cache != Cache::Bypass => {
                terms::cached(layout, section, files).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Bytes of buffer with which any section can be read, or written.
    pub fn least(&self, direction: Direction) -> i64 {
        match (&self.described.layout, &self.place) {
            (Layout::Chunked(layout), Place::Chunks(chunks)) => {
                chunks.least(layout, &self.described, direction)
            }
            _ => PAGE as i64,
        }
    }

    /// The same for many reads, also if others change the file meanwhile. What the first of them would
    /// keep is there afterwards. In a turn of the caller's.
    pub fn least_to_read(&self) -> Result<i64, Fault> {
        self.least_for_many(Direction::Read, 0)
    }

    /// The same for writes of `elements` in all, of another type: cast one at a time at least.
    pub fn least_to_cast(&self, elements: i64) -> Result<i64, Fault> {
        let cast = terms::pages(self.described.item());
        Ok(self.least_for_many(Direction::Write, elements)?.saturating_add(cast))
    }

    fn least_for_many(&self, direction: Direction, new: i64) -> Result<i64, Fault> {
        let again = match &self.place {
            Place::Files(_) => 0,
            Place::Chunks(chunks) => chunks.prepare(new)?,
        };
        Ok(terms::pages(self.least(direction).saturating_add(again)))
    }

    fn count(&self, done: &Report) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).add(done);
    }

    /// Whether a flush will follow, so far as one can know.
    pub(crate) fn flushed(&self, access: &Access) -> bool {
        access.direction == Direction::Write && (access.hints.sync || self.habit.flushed())
    }

    /// What was really done since the array was opened.
    pub fn done(&self) -> Report {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Length of each axis.
    pub fn shape(&self) -> &[i64] {
        self.described.shape()
    }
}

#[cfg(test)]
mod tests;

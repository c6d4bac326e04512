//! An array that is open in this process, with the state that accesses to it need.
//!
//! Idea. [`Open`] holds the state of an open array. `Open::each` (`steps`) produces the steps of an access,
//! one plan with its files at a time. Reading and writing (`run`), flushing (`flush`), explaining and
//! prefetching process these steps in different ways.

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
    /// Process to which it belongs.
    pub pid: u32,
    /// The array.
    pub described: Arc<Described>,
    pub(crate) place: Place,
    engine: OnceLock<Chosen>,
    pub(crate) found: Found,
    habit: Habit,
    /// Ranges written in place since the last flush.
    written: Written,
    /// Pages of gaps that flushes made dirty.
    filled: AtomicU64,
    /// Turns of writes in place, and of writes through windows.
    windows: Arc<Windows>,
    done: Arc<Mutex<Report>>,
}

pub(crate) enum Place {
    Files(Box<FileTable>),
    Chunks(Box<Chunks>),
}

/// Pages that a budget that is enough for any access has in addition to the least one: of files, and of
/// chunks.
const PLAIN_SLACK: i64 = 4;
const CODED_SLACK: i64 = 16;

/// Number of writes of this process that began, plus the number that ended.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Returns a number that changes with every write of this process.
pub fn writes() -> u64 {
    WRITES.load(Ordering::SeqCst)
}

impl Open {
    /// Opens the same array with new metadata, while accesses that use the old metadata may still run. Writes
    /// of both wait for each other where necessary, and their work is counted together.
    pub fn beside(&self, described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        let (windows, done) = (Arc::clone(&self.windows), Arc::clone(&self.done));
        Ok(Open { windows, done, ..Open::new(described, writable)? })
    }

    /// Opens the same elements with other metadata. Writes of both wait for each other where necessary, and
    /// the work of each is counted separately.
    pub fn view(&self, described: Arc<Described>, writable: bool) -> Result<Open, Fault> {
        Ok(Open { windows: Arc::clone(&self.windows), ..Open::new(described, writable)? })
    }

    /// Opens no file yet: files are opened when they are first used.
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

    /// Returns the parameters of the disk that holds the array, and their origin.
    pub fn disk(&self) -> (Figures, Origin) {
        let found = self.disk_number().and_then(disks::figures);
        found.unwrap_or_else(|| (terms::assumed(), Origin::Assumed))
    }

    /// Returns the number of the disk that holds the array.
    pub fn disk_number(&self) -> Option<u64> {
        let path = match &self.place {
            Place::Files(files) => files.path(0).ok(),
            Place::Chunks(_) => None,
        };
        // An array inside a file (`a.h5::/x`) is on the disk of the file.
        let outer = self.described.path.split("::").next().unwrap_or_default();
        self.found.device(path.unwrap_or(Path::new(outer)))
    }

    /// Returns the bytes of a page if large writes bypass the page cache because it is too small for them;
    /// otherwise 0.
    pub fn past_cache(&self, hints: &Hints) -> i64 {
        let terms = match (&self.place, &self.described.source) {
            (Place::Files(files), _) => terms::terms(hints, &self.found, files, None, None, 0),
            // Before the first chunk exists, another file of the array shows what the disk requires.
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

    /// Returns the engine for this array.
    pub fn engine(&self, hints: &Hints) -> &Chosen {
        self.engine.get_or_init(|| {
            backend::choose(match hints.engine.as_str() {
                "threads" => backend::Choice::Threads,
                "uring" => backend::Choice::Uring,
                _ => backend::Choice::Auto,
            })
        })
    }

    /// Returns whether the elements are stored in files without chunks.
    pub fn is_plain(&self) -> bool {
        matches!(self.place, Place::Files(_))
    }

    /// Returns the grid of shards, if chunks are in shards.
    pub fn shards(&self) -> Option<&Chunked> {
        match &self.place {
            Place::Files(_) => None,
            Place::Chunks(chunks) => chunks.shards(),
        }
    }

    /// Returns an error for a section that no access accepts, before memory is allocated for it.
    pub fn admit(&self, section: &Section) -> Result<(), Fault> {
        match &self.described.layout {
            Layout::Chunked(layout) => layout.admit(section).map_err(|e| self.failure(e.into())),
            Layout::Strided(_) => Ok(()),
        }
    }

    /// Returns the stored chunks (`Chunks::stored`); None if the elements are stored without chunks.
    pub fn stored(&self, interrupts: &dyn Interrupts) -> Result<Option<(Vec<i64>, Listed)>, Fault> {
        let (Layout::Chunked(layout), Place::Chunks(chunks)) =
            (&self.described.layout, &self.place)
        else {
            return Ok(None);
        };
        let (described, found) = (&*self.described, &self.found);
        chunks.stored(&Context { layout, described, found, interrupts }).map(Some)
    }

    /// Adds the name of the array to a failure.
    pub fn failure(&self, fault: Fault) -> Fault {
        fault.at(&self.described.path)
    }

    /// Returns a budget that is enough for a chunk of an access, for `more` bytes that the access holds in
    /// addition, and for the bytes that others hold.
    pub fn enough(&self, direction: Direction, hints: &Hints, more: i64) -> i64 {
        let least = terms::pages(self.least(direction)).saturating_add(terms::pages(more));
        // Temporary memory of threads and tables depends on the budget: this amount is enough for both.
        let pages = if self.is_plain() { PLAIN_SLACK } else { CODED_SLACK };
        let least = least.saturating_add(least / 8).saturating_add(pages * PAGE as i64);
        let arena = Arena::global();
        let by_hint = hints.memory.is_some_and(|hint| hint <= arena.available());
        let others = if by_hint { 0 } else { i64::try_from(arena.used()).unwrap_or(i64::MAX) };
        least.saturating_add(others)
    }

    /// Returns the share of a section that is in the page cache, in thousandths; 0 if it is unknown, or if
    /// accesses bypass the page cache.
    pub fn cached(&self, section: &Section, hints: &Hints) -> u32 {
        match (&self.described.layout, &self.place) {
            (Layout::Strided(layout), Place::Files(files)) if hints.cache != Cache::Bypass => {
                terms::cached(layout, section, files).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Returns the bytes of buffer with which any section can be read, or written.
    pub fn least(&self, direction: Direction) -> i64 {
        match (&self.described.layout, &self.place) {
            (Layout::Chunked(layout), Place::Chunks(chunks)) => {
                chunks.least(layout, &self.described, direction)
            }
            _ => PAGE as i64,
        }
    }

    /// As [`Open::least`] for many reads, also if others change the file in the meantime. Afterwards the
    /// tables that the first read would cache are loaded. Call it in a turn.
    pub fn least_to_read(&self) -> Result<i64, Fault> {
        self.least_for_many(Direction::Read, 0)
    }

    /// As [`Open::least`] for writes of `elements` in total, of another type, cast one at a time at least.
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

    /// Returns whether a flush is expected to follow.
    pub(crate) fn flushed(&self, access: &Access) -> bool {
        access.direction == Direction::Write && (access.hints.sync || self.habit.flushed())
    }

    /// Returns the work that was performed since the array was opened.
    pub fn done(&self) -> Report {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the length of each axis.
    pub fn shape(&self) -> &[i64] {
        self.described.shape()
    }
}

#[cfg(test)]
mod tests;

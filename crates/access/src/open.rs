//! One access: from a section and memory to plans that run.
//!
//! Problem. A strided array is one plan; a chunked one is a walk over batches of chunks, each of
//! which must be found (and, to be written, locked) before it can be planned.
//!
//! Idea. [`Open`] holds what an open array needs. `Open::each` produces the steps of an access,
//! one plan and the files it numbers at a time; reading, writing, explaining and prefetching are
//! different things to do with each step.
//!
//! Invariants. Memory of the caller is touched by `exec::run` only, within the bounds computed from shape
//! and strides.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use outcore_io::backend::{self, Chosen};
use outcore_io::disks::{self, Figures, Origin};
use outcore_io::exec::{self, CacheUse, Job, Report, Times, User};
use outcore_io::gaps::{self, Written};
use outcore_io::lock::FileLock;
use outcore_io::pool::PAGE;
use outcore_io::store::listing::Listed;
use outcore_io::{strings, Arena, Claim, FileRef, FileTable, StorageError};
use outcore_plan::{
    is_cached, trial, Chunked, Direction, Faults, Layout, Plan, Request, Section, Strided, Terms,
};

use crate::admission::{self, Mode};
use crate::chunks::Chunks;
use crate::described::{Described, Source};
use crate::error::Fault;
use crate::guard;
use crate::habit::{Habit, InParts};
use crate::hints::{Cache, Hints};
use crate::interrupt::Interrupts;
use crate::learning;
use crate::nesting::Reading;
use crate::part::Context;
use crate::prefetch;
use crate::step::{home, reach, Access, Alone, Step};
use crate::terms::{self, Found};
use crate::windows::{Turn, Windows};

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

    /// Moves the section between the files and the caller's memory.
    pub fn run(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        let write = access.direction == Direction::Write;
        match write {
            true => self.write_in_parts(|| self.run_as(Mode::Run, access, interrupts)),
            false => {
                self.run_as(Mode::Run, access, interrupts)?;
                self.finish_strings(access)
            }
        }
    }

    /// Fills up the strings of a section that was read, where the file ends them in another way.
    fn finish_strings(&self, access: &Access) -> Result<(), Fault> {
        let counts = access.section.ranges().iter().map(|range| range.count);
        let axes: Vec<(i64, i64)> = counts.zip(access.strides.iter().copied()).collect();
        self.finish_strings_at(access.data, &axes)
    }

    /// As [`Open::finish_strings`], for elements that lie so far apart along so many axes.
    pub(crate) fn finish_strings_at(&self, data: User, axes: &[(i64, i64)]) -> Result<(), Fault> {
        let item = usize::try_from(self.described.item()).unwrap_or(0);
        Ok(strings::finish(data, axes, item, &self.described.strings)?)
    }

    /// Writes a part of a write of several, which count as one.
    pub fn run_part(
        &self,
        access: &Access,
        of: &InParts,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        let (flushed, first) = self.habit.part(of);
        let hints = Hints { sync: access.hints.sync || flushed, ..access.hints.clone() };
        let access = Access { hints: &hints, ..*access };
        self.as_one(first, || self.run_as(Mode::Run, &access, interrupts))
    }

    /// Reads the section if it is in the page cache, and says whether it did. Chunks are never cached: they may have to be decoded.
    pub fn run_if_cached(
        &self,
        access: &Access,
        interrupts: &dyn Interrupts,
    ) -> Result<bool, Fault> {
        if !self.is_plain() || access.hints.cache == Cache::Bypass {
            return Ok(false);
        }
        let mut if_cached = true;
        self.each(access, Mode::Run, interrupts, &mut |step| {
            if_cached = step.cached.is_some_and(|permille| is_cached(permille.into()));
            if if_cached {
                self.run_step(access, step, interrupts)?;
            }
            Ok(())
        })?;
        if if_cached {
            self.finish_strings(access)?;
        }
        Ok(if_cached)
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

    /// Writes in parts: `work` makes what it writes and hands it to [`Open::run_nested`], inside
    /// turns of its own. Counts as one write.
    pub fn write_in_parts(&self, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        self.as_one(true, work)
    }

    /// What was written counts as a write of its own, or (`one` is false) with another.
    fn as_one(&self, one: bool, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        WRITES.fetch_add(1, Ordering::SeqCst);
        let result = work();
        WRITES.fetch_add(1, Ordering::SeqCst);
        if one {
            self.habit.write();
        }
        result
    }

    /// Moves the section, for a caller who is in a turn.
    pub fn run_nested(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        self.run_as(Mode::Nested, access, interrupts)
    }

    /// Whether the section could be moved now, for a caller who is in a turn.
    ///
    /// # Errors
    /// As moving it, before the first byte.
    pub fn look(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        self.each(access, Mode::Look, interrupts, &mut |_| Ok(()))
    }

    fn run_as(
        &self,
        mode: Mode,
        access: &Access,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        self.each(access, mode, interrupts, &mut |step| match mode {
            Mode::Run => self.run_tried(access, step, interrupts),
            _ => self.run_step(access, step, interrupts),
        })
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

    /// Asks the system to read ahead what the section needs.
    pub fn prefetch(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        let mut left = prefetch::MOST;
        let done = self
            .each(access, Mode::Look, interrupts, &mut |step| prefetch::ahead(&step, &mut left));
        match done {
            Err(fault) if left == 0 && fault.is_cancelled() && !interrupts.raised() => Ok(()),
            done => done,
        }
    }

    /// Hands what was written to the disk, and waits for it.
    pub fn flush(&self) -> Result<(), Fault> {
        self.habit.flush();
        let began = Instant::now();
        let flushed = self.put_on_disk();
        let times = Times { io: exec::nanoseconds(began.elapsed()), ..Times::default() };
        self.count(&Report { flushes: 1, times, ..Report::default() });
        flushed
    }

    fn put_on_disk(&self) -> Result<(), Fault> {
        match &self.place {
            Place::Files(files) => {
                let filled = self.fill_gaps(files, false);
                files.sync()?;
                filled
            }
            Place::Chunks(chunks) => Ok(chunks.flush()?),
        }
    }

    /// Does what a flush does before it waits for the disk: makes gaps between written pages dirty where
    /// that makes fewer and larger requests (`gaps`), and with `send` lets all begin its way to the disk.
    /// Tells the file (device and inode) if a flush of it by any process of this machine is one of ours.
    pub fn before_flush(&self, send: bool) -> Result<Option<(u64, u64)>, Fault> {
        match &self.place {
            Place::Files(files) => {
                self.fill_gaps(files, send)?;
                Ok(files.shared_flush())
            }
            Place::Chunks(_) => Ok(None),
        }
    }

    /// Another process has flushed the file that `before_flush` told.
    pub fn flushed_by_another(&self) {
        self.habit.flush();
    }

    fn fill_gaps(&self, files: &FileTable, send: bool) -> Result<(), Fault> {
        let prices = self.found.prices(files);
        let pages = self.written.fill(files, &prices, &Arena::global(), send)?;
        self.filled.fetch_add(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Pages of gaps that flushes made dirty since the array was opened.
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
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

    /// Calls `work` for each step of the access. Unless it only looks, chunks to be written are
    /// locked and created.
    pub(crate) fn each(
        &self,
        access: &Access,
        mode: Mode,
        interrupts: &dyn Interrupts,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let done = self.each_step(access, mode, interrupts, work);
        match mode {
            // Its turn is over, so what is held now others hold.
            Mode::Run => {
                done.map_err(|fault| fault.at_least(self.enough(access.direction, access.hints, 0)))
            }
            Mode::Look | Mode::Nested => done,
        }
    }

    fn each_step(
        &self,
        access: &Access,
        mode: Mode,
        interrupts: &dyn Interrupts,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match (&self.described.layout, &self.place) {
            (Layout::Strided(layout), Place::Files(files)) => {
                // In the turn: who waits for one must not keep a writer of the file out.
                mode.step(interrupts, || {
                    let guard = self.keep_out(files, access, mode, interrupts)?;
                    let _reading = Reading::of(guard.as_ref());
                    self.dense(layout, files, access, mode, work)
                })
            }
            (Layout::Chunked(layout), Place::Chunks(chunks)) => {
                let context =
                    Context { layout, described: &self.described, found: &self.found, interrupts };
                chunks.each(&context, access, mode, work)
            }
            // `new` pairs them.
            _ => Err(StorageError::BadJob("layout and files do not match".into()).into()),
        }
    }

    /// Before elements are written in place into a file of a library: keeps it out of the file.
    pub(crate) fn keep_out(
        &self,
        files: &FileTable,
        access: &Access,
        mode: Mode,
        interrupts: &dyn Interrupts,
    ) -> Result<Option<FileLock>, Fault> {
        let guard = match &self.described.guard {
            Some(guard) if access.direction == Direction::Write && mode != Mode::Look => guard,
            _ => return Ok(None),
        };
        let path = files.path(0)?;
        guard::patiently(&self.described.path, interrupts, |patience| guard.share(path, patience))
    }

    /// Runs a step, a small part of it first if it reads from a disk that is not known, and that matters.
    fn run_tried(
        &self,
        access: &Access,
        step: Step,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        let (Layout::Strided(layout), Place::Files(files)) = (&self.described.layout, &self.place)
        else {
            return self.run_step(access, step, interrupts);
        };
        let run = |part: &Access| {
            self.dense(layout, files, part, Mode::Run, &mut |step| {
                self.run_step(part, step, interrupts)
            })
        };
        if access.direction == Direction::Write {
            // What overwrites pages and stays in the page cache costs the same on any disk.
            let matters = self.flushed(access) || step.plan.cost().reads > 0;
            let reads = if matters { self.untried(access.section, access.hints) } else { 0 };
            if reads < trial::WORTH {
                return self.run_step(access, step, interrupts);
            }
            drop(step);
            self.try_disk(access.section, reads, access.hints, interrupts);
            return run(access);
        }
        let reads = learning::untried(layout, &self.found, access, &step);
        if reads < trial::WORTH {
            return self.run_step(access, step, interrupts);
        }
        drop(step);
        learning::in_parts(layout, access, reads, &|| self.surprises(), &mut |part| run(part))
    }

    /// Whether the disk is not what was assumed.
    fn surprises(&self) -> bool {
        self.disk().1 == Origin::Learned
    }

    /// Requests that a read of a section takes, if they are scattered over a disk that nobody knows; else 0.
    pub fn untried(&self, section: &Section, hints: &Hints) -> i64 {
        let (Layout::Strided(layout), Place::Files(files)) = (&self.described.layout, &self.place)
        else {
            return 0;
        };
        if section.is_empty() || self.disk_number().is_none_or(disks::is_known) {
            return 0;
        }
        let strides = self.described.packed(&section.shape());
        let (direction, strides) = (Direction::Read, &strides[..]);
        let access = Access { direction, section, strides, data: User::none(), hints };
        let mut reads = 0;
        // What cannot be read is said by the access itself.
        let _ = self.dense(layout, files, &access, Mode::Look, &mut |step| {
            reads = learning::untried(layout, &self.found, &access, &step);
            Ok(())
        });
        reads
    }

    /// Reads a few elements of a section to learn what its disk is like; `reads` is what [`Open::untried`] told.
    /// Whatever is in the way of that is in the way of the access, too, and said there.
    pub fn try_disk(
        &self,
        section: &Section,
        reads: i64,
        hints: &Hints,
        interrupts: &dyn Interrupts,
    ) {
        let (Layout::Strided(layout), Place::Files(files)) = (&self.described.layout, &self.place)
        else {
            return;
        };
        let mut tried = Vec::new();
        let _ = learning::try_disk(layout, section, reads, &|| self.surprises(), &mut |few| {
            let bytes = few.count()?.saturating_mul(layout.item);
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let mut buffer = Arena::global().buffer("a trial of a disk", bytes)?;
            let strides = self.described.packed(&few.shape());
            let data = User::of(buffer.as_mut_slice(), 0);
            let direction = Direction::Read;
            let access = Access { direction, section: few, strides: &strides, data, hints };
            tried.push(few.clone());
            self.dense(layout, files, &access, Mode::Run, &mut |step| {
                self.run_step(&access, step, interrupts)
            })
        });
        // Not between two trials: what a throttled device saves up in a pause makes it look fast.
        tried.iter().for_each(|few| terms::forget(layout, few, files));
    }

    /// The one step of an access to a dense array.
    fn dense(
        &self,
        layout: &Strided,
        files: &FileTable,
        access: &Access,
        mode: Mode,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let began = Instant::now();
        let cached = terms::cached(layout, access.section, files);
        let budget = terms::budget(access.hints);
        let mut terms = terms::terms(access.hints, &self.found, files, cached, None, budget);
        terms.flushed = self.flushed(access);
        terms.home = home(&self.described.layout, access);
        let (array, direction) = (&self.described.layout, access.direction);
        terms = terms::past_cache(terms, access.hints, &self.found, array, direction);
        if direction == Direction::Write && !is_cached(terms.cached_permille) {
            terms.stored = terms::stored(layout, access.section, files);
        }
        if direction == Direction::Write
            && access.hints.concurrent_writers.load(Ordering::Relaxed) > 0
        {
            terms.rates.dirty_ns = terms.rates.dirty_ns.max(terms.rates.contended_dirty_ns);
        }
        let request = Request {
            layout: &self.described.layout,
            table: None,
            section: access.section,
            user_stride: access.strides,
            direction: access.direction,
        };
        let mut plan = Plan::new(&request, &terms);
        if plan.as_ref().is_ok_and(Plan::turns_on_faults) {
            if let Some(faults) = terms::faults(layout, access.section, files) {
                terms.faults = Some(Faults { rent: self.habit.rent(), ..faults });
                plan = Plan::new(&request, &terms);
            }
        }
        // What is held for an access that this one is a part of, that one tells.
        let ours = if mode == Mode::Nested { i64::MAX } else { 0 };
        let plan = plan.map_err(|error| terms::refused(error, access.hints, ours))?;
        if mode != Mode::Look {
            self.habit.read(&plan);
        }
        let (plan, alone) = self.alone(plan, &request, terms, access, files)?;
        let Access { section, data, .. } = *access;
        let (sink, tables, chunk_cache) = (None, 0, CacheUse::Never);
        let (times, reach) = (1, reach(section, access.strides, self.described.item()));
        let step = Step {
            plan,
            files,
            data,
            section,
            cached,
            sink,
            tables,
            chunk_cache,
            alone,
            times,
            reach,
            planned: began.elapsed(),
        };
        work(step)
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

    /// The plan for a file that nobody else has open, if that is so and makes a difference: windows
    /// may be read, changed and written back then. It does for writes that a flush follows.
    fn alone<'a>(
        &self,
        plan: Plan,
        request: &Request,
        terms: Terms,
        access: &Access,
        files: &'a FileTable,
    ) -> Result<(Plan, Option<Alone<'a>>), Fault> {
        let hints = access.hints;
        let of_use = terms.flushed && !hints.exclusive && hints.method.is_none();
        if !of_use || !self.described.plain || files.len() != 1 {
            return Ok((plan, None));
        }
        let patched = match Plan::new(request, &Terms { exclusive: true, ..terms }) {
            Ok(patched) if patched.writes_back() => patched,
            _ => return Ok((plan, None)), // It is no other, or has no room.
        };
        let claim = match files.open(0)? {
            FileRef::Kept(file) => Claim::new(file),
            FileRef::Shared(_) | FileRef::Once(_) => None,
        };
        Ok(match claim {
            Some(claim) => (patched, Some(Alone { claim, otherwise: plan })),
            None => (plan, None),
        })
    }

    pub(crate) fn run_step(
        &self,
        access: &Access,
        mut step: Step,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        if let Some(Alone { claim, otherwise }) = step.alone.take() {
            let wanted = || claim.is_wanted();
            let result = self.run_plan(access, &step, interrupts, &wanted);
            let cancelled = matches!(&result, Err(fault) if fault.is_cancelled());
            if !cancelled || interrupts.raised() {
                return result;
            }
            // Somebody waits for the file: let him in, and begin again beside him.
            drop(claim);
            step.plan = otherwise;
        }
        self.run_plan(access, &step, interrupts, &|| false)
    }

    /// Runs the plan of a step, until it is interrupted or `wanted`.
    fn run_plan(
        &self,
        access: &Access,
        step: &Step,
        interrupts: &dyn Interrupts,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        if step.plan.slot_bytes() > 0 {
            admission::refuse_crumbs(access.hints)?;
        }
        let _turn = self.turn(access, step, interrupts)?;
        let (low, high) = step.reach;
        let user = step.data.within(low, high)?;
        let waits = self.remember(access, step);
        let past = step.plan.past_cache().is_some();
        let flushed = self.flushed(access) && !waits && !past;
        let interrupted = || wanted() || interrupts.check();
        let job = Job {
            plan: &step.plan,
            direction: access.direction,
            files: step.files,
            user,
            fill: &self.described.fill,
            pipeline: Some(&self.described.pipeline),
            sink: step.sink,
            engine: &*self.engine(access.hints).engine,
            arena: &Arena::global(),
            chunk_cache: step.chunk_cache,
            threads: terms::lanes(access.hints) as usize,
            cached: step.cached.is_some_and(|permille| is_cached(permille.into())),
            flushed,
            interrupted: &interrupted,
        };
        let watch = learning::watch(&self.described.pipeline, &self.found, access, step);
        let mut done = exec::run(&job)?;
        done.times.plan += exec::nanoseconds(step.planned);
        if let Some(watch) = watch {
            watch.end(done.reads, done.read_bytes);
        }
        self.count(&done);
        Ok(())
    }

    fn count(&self, done: &Report) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).add(done);
    }

    /// Remembers what a write in place is about to leave; says whether it had better wait for the flush,
    /// which will make gaps of it dirty.
    fn remember(&self, access: &Access, step: &Step) -> bool {
        let through_cache = access.hints.cache != Cache::Bypass;
        if access.direction == Direction::Read || step.sink.is_some() || !through_cache {
            return false;
        }
        let written = step.plan.written();
        let waits = gaps::waits(&written, &self.found.prices(step.files));
        self.written.add(written);
        waits
    }

    /// Whether a write would leave gaps that a flush then makes dirty.
    pub fn leaves_gaps(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<bool, Fault> {
        let mut found = false;
        self.each(access, Mode::Look, interrupts, &mut |step| {
            found |= gaps::waits(&step.plan.written(), &self.found.prices(step.files));
            Ok(())
        })?;
        Ok(found)
    }

    /// A turn at the windows, for writes that need one.
    fn turn(
        &self,
        access: &Access,
        step: &Step,
        interrupts: &dyn Interrupts,
    ) -> Result<Option<Turn<'_>>, Fault> {
        let in_place = access.direction == Direction::Write && step.sink.is_none();
        let alone = step.plan.writes_back() || step.plan.past_cache().is_some();
        let path = &self.described.path;
        in_place.then(|| self.windows.turn(alone, path, interrupts)).transpose()
    }

    /// From now on a flush follows each write, or many of them.
    pub fn expect_flush(&self) {
        self.habit.tell();
    }

    /// Whether a flush is expected to follow the next write.
    pub fn is_flush_expected(&self) -> bool {
        self.habit.flushed()
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

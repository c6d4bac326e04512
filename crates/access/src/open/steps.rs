//! The steps of an access: one plan at a time, with the files that it numbers.
//!
//! An access to a strided array is one step. An access to a chunked array loops over batches of chunks, each
//! of which must be found (and, for a write, locked) before it can be planned.

use std::sync::atomic::Ordering;
use std::time::Instant;

use outcore_io::exec::CacheUse;
use outcore_io::lock::FileLock;
use outcore_io::{Claim, FileRef, FileTable, StorageError};
use outcore_plan::{is_cached, Direction, Faults, Layout, Plan, Request, Strided, Terms};

use super::{Open, Place};
use crate::admission::Mode;
use crate::error::Fault;
use crate::guard;
use crate::interrupt::Interrupts;
use crate::nesting::Reading;
use crate::part::Context;
use crate::prefetch;
use crate::step::{home, reach, Access, Alone, Step};
use crate::terms;

impl Open {
    /// Calls `work` for each step of the access. Locks and creates the chunks of a write, unless the mode
    /// only looks.
    pub(crate) fn each(
        &self,
        access: &Access,
        mode: Mode,
        interrupts: &dyn Interrupts,
        work: &mut dyn FnMut(Step) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let done = self.each_step(access, mode, interrupts, work);
        match mode {
            // The turn of this thread is over, so the memory that is held now belongs to others.
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
                // Inside the turn: a thread that waits for a turn must not lock out a writer of the file.
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

    /// Locks a library out of its file, before elements are written in place.
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

    /// Performs the single step of an access to a dense array.
    pub(super) fn dense(
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
        // Memory that is held for an access of which this one is a part is reported by that access.
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

    /// Returns the plan for a file that no other process has open, if that is so and the plan differs: then
    /// windows may be read, changed and written back. Such a plan is used for writes that a flush follows.
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
            _ => return Ok((plan, None)), // It is not different, or memory is too short.
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

    /// Checks whether the section could be moved now, for a caller that is in a turn.
    ///
    /// # Errors
    /// The errors of moving it, before the first byte.
    pub fn look(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        self.each(access, Mode::Look, interrupts, &mut |_| Ok(()))
    }

    /// Asks the operating system to read ahead the data of the section.
    pub fn prefetch(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        let mut left = prefetch::MOST;
        let done = self
            .each(access, Mode::Look, interrupts, &mut |step| prefetch::ahead(&step, &mut left));
        match done {
            Err(fault) if left == 0 && fault.is_cancelled() && !interrupts.raised() => Ok(()),
            done => done,
        }
    }
}

//! Reads and writes: runs the steps of an access, either of a separate call or of a part of another access.
//!
//! A step runs in its turn at the windows. If the disk is unknown, a small part of the step may run first.
//!
//! Invariants. Only `exec::run` accesses memory of the caller, within the bounds computed from shape and
//! strides.

use std::sync::atomic::Ordering;

use outcore_io::disks::{self, Origin};
use outcore_io::exec::{self, Job, User};
use outcore_io::{strings, Arena};
use outcore_plan::{is_cached, trial, Direction, Layout, Section};

use super::{Open, Place, WRITES};
use crate::admission::{self, Mode};
use crate::error::Fault;
use crate::habit::InParts;
use crate::hints::{Cache, Hints};
use crate::interrupt::Interrupts;
use crate::learning;
use crate::step::{Access, Alone, Step};
use crate::terms;
use crate::windows::Turn;

impl Open {
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

    /// Pads the strings of a section that was read, if the file ends them differently.
    fn finish_strings(&self, access: &Access) -> Result<(), Fault> {
        let counts = access.section.ranges().iter().map(|range| range.count);
        let axes: Vec<(i64, i64)> = counts.zip(access.strides.iter().copied()).collect();
        self.finish_strings_at(access.data, &axes)
    }

    /// As [`Open::finish_strings`], for elements along axes with these counts and strides.
    pub(crate) fn finish_strings_at(&self, data: User, axes: &[(i64, i64)]) -> Result<(), Fault> {
        let item = usize::try_from(self.described.item()).unwrap_or(0);
        Ok(strings::finish(data, axes, item, &self.described.strings)?)
    }

    /// Writes one part of a write of several parts, which count as one write.
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

    /// Reads the section if it is in the page cache; returns whether it did. Encoded chunks never count as
    /// cached: they may have to be decoded.
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

    /// Moves the section, for a caller that is in a turn.
    pub fn run_nested(&self, access: &Access, interrupts: &dyn Interrupts) -> Result<(), Fault> {
        self.run_as(Mode::Nested, access, interrupts)
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

    /// Writes in parts: `work` produces the data and passes it to [`Open::run_nested`], inside separate
    /// turns. All parts count as one write.
    pub fn write_in_parts(&self, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        self.as_one(true, work)
    }

    /// Counts the work as a separate write, or (`one` is false) as a part of another write.
    fn as_one(&self, one: bool, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        WRITES.fetch_add(1, Ordering::SeqCst);
        let result = work();
        WRITES.fetch_add(1, Ordering::SeqCst);
        if one {
            self.habit.write();
        }
        result
    }

    /// Runs a step; runs a small part of it first if it reads from an unknown disk, and if that matters.
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
            // A write that overwrites pages and stays in the page cache costs the same on any disk.
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

    /// Returns whether the disk differs from the assumptions.
    fn surprises(&self) -> bool {
        self.disk().1 == Origin::Learned
    }

    /// Returns the number of requests of a read of a section, if they are scattered over an unknown disk;
    /// otherwise 0.
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
        // If something cannot be read, the access itself reports it.
        let _ = self.dense(layout, files, &access, Mode::Look, &mut |step| {
            reads = learning::untried(layout, &self.found, &access, &step);
            Ok(())
        });
        reads
    }

    /// Reads a few elements of a section to learn the speed of its disk; `reads` is the value of
    /// [`Open::untried`]. An error here is ignored: the access itself meets and reports it.
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
        // Not between two trials: a throttled device saves up capacity in a pause, which makes it look fast.
        tried.iter().for_each(|few| terms::forget(layout, few, files));
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
            // Another process waits for the file: release the claim, and begin again without it.
            drop(claim);
            step.plan = otherwise;
        }
        self.run_plan(access, &step, interrupts, &|| false)
    }

    /// Runs the plan of a step, until it is interrupted or `wanted` returns true.
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

    /// Takes a turn at the windows, for writes that need one.
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
}

//! Several accesses at once, one memory budget.
//!
//! Problem. Each access plans with the memory that is free. Two that start together may plan with
//! the same bytes, and one is then refused although it would fit a moment later. The same goes for open
//! files (`descriptors.rs`).
//!
//! Idea. Accesses that run are counted. One that is refused while others run, or ran since it
//! started, tries again alone: it waits until nobody runs, and nobody starts before it has ended.
//! One that is refused while it is alone is refused for good. Doing a step twice does no harm: it
//! moves the same bytes to the same places.
//!
//! A signal handler, or a finalizer, may make an access inside one of its own thread (`nesting.rs`). It is
//! a part of that turn. If it waits for another thread, which waits here, neither could go on: so after
//! `STUCK` others do not wait any longer for a turn in which a handler runs.
//!
//! Invariant. Who waits here holds neither slots nor locks on files, so somebody always runs.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use outcore_io::process::PerProcess;
use outcore_io::Arena;

use crate::error::{Fault, Reason};
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::nesting::{self, Seat, Seated};

static ADMISSION: PerProcess<Admission> = PerProcess::new(Admission::default);

/// Between two looks for Ctrl-C while waiting.
const GLANCE: Duration = Duration::from_millis(50);
/// How long others wait for a turn in which a handler of a signal runs.
const STUCK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Admission {
    counts: Mutex<Counts>,
    changed: Condvar,
    /// Threads that have a turn and run handlers of signals, since when.
    handling: Mutex<Vec<(ThreadId, Instant)>>,
}

#[derive(Default, Clone, Copy)]
struct Counts {
    /// Accesses that run.
    running: u64,
    /// Accesses that have ended.
    ended: u64,
    /// Accesses that wait to run alone, or do.
    alone: u64,
    /// Threads that wait for a change: to wake nobody is a system call too.
    asleep: u64,
}

impl Admission {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handling(&self) -> MutexGuard<'_, Vec<(ThreadId, Instant)>> {
        self.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns that nobody waits for any longer.
    fn stuck(&self) -> u64 {
        self.handling().iter().filter(|(_, since)| since.elapsed() > STUCK).count() as u64
    }
}

/// A thread that runs handlers of signals, until it is dropped.
#[must_use]
pub struct Handling(bool);

impl Handling {
    /// Begins, if this thread has a turn.
    pub fn begin() -> Handling {
        let counts = nesting::seat() == Seat::Has;
        if counts {
            ADMISSION.get().handling().push((thread::current().id(), Instant::now()));
        }
        Handling(counts)
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        if self.0 {
            let me = thread::current().id();
            ADMISSION.get().handling().retain(|(thread, _)| *thread != me);
        }
    }
}

/// Whether a thread runs a handler for so long that nobody waits for it any longer.
pub fn is_stuck(thread: ThreadId) -> bool {
    ADMISSION.get().handling().iter().any(|(one, since)| *one == thread && since.elapsed() > STUCK)
}

/// How much of an access is done, and whether it waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Plans only.
    Look,
    /// Runs, each step in its turn.
    Run,
    /// Runs inside a turn that the caller has, who holds memory for it already.
    Nested,
}

impl Mode {
    /// Does a step of an access.
    pub fn step(
        self,
        interrupts: &dyn Interrupts,
        mut step: impl FnMut() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self {
            Mode::Run => in_turn(interrupts, step),
            Mode::Look | Mode::Nested => step(),
        }
    }
}

/// Does `step`, and does it again alone if others were in its way. Of an access that was made inside
/// another one of this thread, each step is a part of that one's turn.
pub fn in_turn(
    interrupts: &dyn Interrupts,
    mut step: impl FnMut() -> Result<(), Fault>,
) -> Result<(), Fault> {
    match nesting::seat() {
        Seat::Has | Seat::Shares => {
            let _shares = Seated::on(Seat::Shares);
            return step();
        }
        // The outer access waits to run alone and holds nothing: this one goes first.
        Seat::Waits => return alone(interrupts, step),
        Seat::None => {}
    }
    let admission = ADMISSION.get();
    let before = admission.enter(interrupts, |counts| counts.alone == 0)?;
    let running = Running::new(admission);
    let result = step();
    drop(running);
    let counts = *admission.lock();
    let others = counts.running > 0 || counts.ended != before.ended + 1;
    match result {
        Err(refused) if refused.is_about_room() && others => {}
        result => return result,
    }
    admission.lock().alone += 1;
    let _waiting = Waiting(admission, Seated::on(Seat::Waits));
    alone(interrupts, step)
}

/// Waits until nobody runs, and does `step`.
fn alone(
    interrupts: &dyn Interrupts,
    step: impl FnOnce() -> Result<(), Fault>,
) -> Result<(), Fault> {
    let admission = ADMISSION.get();
    admission.enter(interrupts, |counts| counts.running <= admission.stuck())?;
    let _running = Running::new(admission);
    step()
}

/// Somebody who runs; the end is counted on drop, also after a panic.
struct Running(&'static Admission, #[allow(dead_code, reason = "kept for its drop")] Seated);

impl Running {
    /// Admission control counts it already.
    fn new(admission: &'static Admission) -> Running {
        Running(admission, Seated::on(Seat::Has))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        counts.running -= 1;
        counts.ended += 1;
        if counts.asleep > 0 {
            self.0.changed.notify_all();
        }
    }
}

/// Somebody who wants to run alone.
struct Waiting(&'static Admission, #[allow(dead_code, reason = "kept for its drop")] Seated);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().alone -= 1;
        self.0.changed.notify_all();
    }
}

impl Admission {
    /// Waits until `free`, then counts the caller as running.
    fn enter(
        &self,
        interrupts: &dyn Interrupts,
        free: impl Fn(&Counts) -> bool,
    ) -> Result<Counts, Fault> {
        let mut counts = self.lock();
        while !free(&counts) {
            counts.asleep += 1;
            let waited = self.changed.wait_timeout(counts, GLANCE);
            counts = waited.unwrap_or_else(PoisonError::into_inner).0;
            counts.asleep -= 1;
            // A handler may make an access, which comes here, too.
            drop(counts);
            interrupts.stop()?;
            counts = self.lock();
        }
        let before = *counts;
        counts.running += 1;
        Ok(before)
    }
}

/// Whether the caller, who is in a turn, is the only one; or cannot wait for the others.
pub fn is_alone() -> bool {
    nesting::seat() == Seat::Shares || ADMISSION.get().lock().running < 2
}

/// Refuses to go on with crumbs: a plan made for a fraction of the budget, because others hold the
/// rest for a moment, would be slow for no reason. Called by a step in its turn.
pub fn refuse_crumbs(hints: &Hints) -> Result<(), Fault> {
    let arena = Arena::global();
    let enough = (arena.limit() / 8).min(hints.memory.unwrap_or(u64::MAX));
    if is_alone() || arena.available() >= enough {
        return Ok(());
    }
    Err(crumbs())
}

/// The refusal of a step that others are in the way of: seen by nobody if it is tried again alone.
pub fn crumbs() -> Fault {
    Reason::Busy.into()
}

#[cfg(test)]
mod tests;

//! Concurrent accesses share one memory budget.
//!
//! Problem. Each access plans with the memory that is free. Two that start together may plan with the same
//! bytes. One of them is then refused memory although it would fit a moment later. The same holds for open
//! files (`descriptors.rs`).
//!
//! Idea. Running accesses are counted. If an access is refused memory while others run, or ran since it
//! started, it tries again alone: it waits until no access runs, and no other access starts before it has
//! ended. If it is refused memory while it is alone, the refusal is final. Repeating a step does no harm: it
//! moves the same bytes to the same places.
//!
//! A signal handler or a finalizer may make an access inside another access of its thread (`nesting.rs`). The
//! inner access is a part of the outer one's turn. If it waits for another thread that waits here, neither
//! can continue. So after `STUCK`, others stop waiting for a turn in which a handler runs.
//!
//! Invariant. A thread that waits here holds neither slots nor locks on files, so some access always runs.

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

/// Interval between two checks for Ctrl-C while waiting.
const GLANCE: Duration = Duration::from_millis(50);
/// Time that other threads wait for a turn in which a signal handler runs.
const STUCK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Admission {
    counts: Mutex<Counts>,
    changed: Condvar,
    /// Threads that have a turn and run signal handlers, and the time at which the handler began.
    handling: Mutex<Vec<(ThreadId, Instant)>>,
}

#[derive(Default, Clone, Copy)]
struct Counts {
    /// Number of accesses that run.
    running: u64,
    /// Number of accesses that have ended.
    ended: u64,
    /// Number of accesses that run alone or wait to do so.
    alone: u64,
    /// Threads that wait for a change. If there is none, the system call that wakes threads is skipped.
    asleep: u64,
}

impl Admission {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handling(&self) -> MutexGuard<'_, Vec<(ThreadId, Instant)>> {
        self.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of turns that other threads no longer wait for.
    fn stuck(&self) -> u64 {
        self.handling().iter().filter(|(_, since)| since.elapsed() > STUCK).count() as u64
    }
}

/// A thread that runs signal handlers, until this is dropped.
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

/// Returns whether a thread has run a handler for so long that others no longer wait for it.
pub fn is_stuck(thread: ThreadId) -> bool {
    ADMISSION.get().handling().iter().any(|(one, since)| *one == thread && since.elapsed() > STUCK)
}

/// Extent to which an access is performed, and whether it waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Plans only.
    Look,
    /// Runs each step in its own turn.
    Run,
    /// Runs inside the turn of the caller, which already holds memory for it.
    Nested,
}

impl Mode {
    /// Performs a step of an access.
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

/// Performs `step`. If other accesses were in its way, it is performed again alone. If the access was made
/// inside another access of this thread, each step is a part of that access's turn.
pub fn in_turn(
    interrupts: &dyn Interrupts,
    mut step: impl FnMut() -> Result<(), Fault>,
) -> Result<(), Fault> {
    match nesting::seat() {
        Seat::Has | Seat::Shares => {
            let _shares = Seated::on(Seat::Shares);
            return step();
        }
        // The outer access waits to run alone and holds nothing, so this one runs first.
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

/// Waits until no access runs, then performs `step`.
fn alone(
    interrupts: &dyn Interrupts,
    step: impl FnOnce() -> Result<(), Fault>,
) -> Result<(), Fault> {
    let admission = ADMISSION.get();
    admission.enter(interrupts, |counts| counts.running <= admission.stuck())?;
    let _running = Running::new(admission);
    step()
}

/// A running access. Its end is counted on drop, also after a panic.
struct Running(&'static Admission, #[allow(dead_code, reason = "kept for its drop")] Seated);

impl Running {
    /// Takes the seat of an access that admission control has already counted.
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

/// An access that waits to run alone.
struct Waiting(&'static Admission, #[allow(dead_code, reason = "kept for its drop")] Seated);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().alone -= 1;
        self.0.changed.notify_all();
    }
}

impl Admission {
    /// Waits until `free` returns true, then counts the caller as running.
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
            // A signal handler may make an access, which locks the counts, too.
            drop(counts);
            interrupts.stop()?;
            counts = self.lock();
        }
        let before = *counts;
        counts.running += 1;
        Ok(before)
    }
}

/// Returns whether the caller, which has a turn, runs alone or cannot wait for others.
pub fn is_alone() -> bool {
    nesting::seat() == Seat::Shares || ADMISSION.get().lock().running < 2
}

/// Returns an error if little memory is free only because other accesses hold the rest. A plan for a fraction
/// of the budget would be slow for no lasting reason. A step calls this in its turn.
pub fn refuse_crumbs(hints: &Hints) -> Result<(), Fault> {
    let arena = Arena::global();
    let enough = (arena.limit() / 8).min(hints.memory.unwrap_or(u64::MAX));
    if is_alone() || arena.available() >= enough {
        return Ok(());
    }
    Err(crumbs())
}

/// Returns the error of a step that others are in the way of. The user does not see it if the step is tried
/// again alone.
pub fn crumbs() -> Fault {
    Reason::Busy.into()
}

#[cfg(test)]
mod tests;

//! Loops over blocks: memory that is held between accesses.
//!
//! Problem. An access holds memory only while it runs. A loop holds its blocks for as long as its caller
//! needs, and needs memory to read the next block all the time. Several loops could hold so much together
//! that none can read.
//!
//! Idea. The least memory that a loop needs to read its blocks is known before it begins ([`Blocks::least`]).
//! A loop begins only if its blocks leave free the largest of these minimums over all running loops: accesses
//! that are refused memory run one at a time (`admission.rs`), so that amount serves all of them. A loop that
//! does not fit because of other loops waits until one ends, in the order of arrival.
//!
//! A write of several parts needs memory until it ends. Its minimum is promised to it in the same way
//! ([`promise`]), before its first byte is written.
//!
//! Invariants. Memory that is held between accesses leaves the promised bytes free. A thread that has an open
//! loop never waits here, since it might wait for itself. No thread waits for loops that make no progress:
//! they may be waiting for that thread. A thread that waits has not been admitted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use outcore_io::process::{self, PerProcess};
use outcore_io::{Arena, Reservation, StorageError};

use crate::admission;
use crate::error::{Fault, Reason};
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::nesting;

static LOOPS: PerProcess<Loops> = PerProcess::new(Loops::default);

/// Interval between two checks for Ctrl-C while waiting.
const GLANCE: Duration = Duration::from_millis(50);
/// Time to wait while no other loop requests its next block, in milliseconds.
static PATIENCE: AtomicU64 = AtomicU64::new(60_000);

/// Changes how long a loop waits for loops that make no progress; for tests.
pub fn wait_for_loops(patience: Duration) {
    let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    PATIENCE.store(millis, Ordering::Relaxed);
}

#[derive(Default)]
struct Loops {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: Vec<Running>,
    /// Promises to writes: number, bytes and thread of each.
    writes: Vec<(u64, u64, ThreadId)>,
    /// Waiting loops, in the order of arrival.
    queue: VecDeque<u64>,
    /// Number of loops that have begun or waited.
    numbers: u64,
    /// Number of loops that have ended.
    ended: u64,
    /// Progress counter: blocks that were requested, and loops that have ended.
    steps: u64,
}

struct Running {
    number: u64,
    /// The thread that requested a block last.
    thread: ThreadId,
    held: u64,
    least: u64,
}

impl Loops {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn promised(&self) -> u64 {
        let loops = self.running.iter().map(|one| one.least);
        loops.chain(self.writes.iter().map(|(_, least, _)| *least)).max().unwrap_or(0)
    }

    /// As `promised`, without the promises to writes of this thread, which now uses that memory.
    fn promised_to_others(&self) -> u64 {
        let me = std::thread::current().id();
        let loops = self.running.iter().map(|one| one.least);
        let writes = self.writes.iter().filter(|(_, _, thread)| *thread != me);
        loops.chain(writes.map(|(_, least, _)| *least)).max().unwrap_or(0)
    }

    fn held(&self) -> u64 {
        self.running.iter().map(|one| one.held).sum()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn in_this_thread(&self) -> bool {
        let me = std::thread::current().id();
        self.running.iter().any(|one| one.thread == me)
    }
}

/// Counts memory that is held between accesses, if the promised bytes stay free.
pub fn reserve(what: &'static str, bytes: u64) -> Result<Reservation, StorageError> {
    let state = LOOPS.get().lock();
    Arena::global().reserve_leaving(what, bytes, state.promised_to_others())
}

/// A promise to a write, until it is dropped.
#[must_use]
pub struct Promise {
    number: u64,
    pid: u32,
}

/// Promises memory to a write: from now on, memory that is held between accesses leaves `bytes` free.
pub fn promise(bytes: i64) -> Promise {
    let mut state = LOOPS.get().lock();
    let number = state.number();
    let me = std::thread::current().id();
    state.writes.push((number, u64::try_from(bytes).unwrap_or(0), me));
    Promise { number, pid: process::id() }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.pid == process::id() {
            let loops = LOOPS.get();
            let mut state = loops.lock();
            state.writes.retain(|(number, ..)| *number != self.number);
            // A loop may have waited for this memory.
            if !state.queue.is_empty() {
                state.ended += 1;
                state.steps += 1;
                loops.changed.notify_all();
            }
        }
    }
}

/// A loop that has begun: the memory of its blocks, until it is released.
pub struct Loop {
    number: u64,
    pid: u32,
    least: u64,
    held: Mutex<Option<Reservation>>,
}

impl Loop {
    /// Returns the least bytes that reading (or writing) a block needs, in addition to the blocks.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// Records that the calling thread is the one that works with the blocks.
    pub fn step(&self) {
        if self.pid == std::process::id() {
            let mut state = LOOPS.get().lock();
            state.steps += 1;
            let me = std::thread::current().id();
            let mine = state.running.iter_mut().find(|one| one.number == self.number);
            mine.into_iter().for_each(|one| one.thread = me);
        }
    }

    /// Ends the loop. Another call does nothing.
    pub fn release(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.pid == std::process::id() {
            let loops = LOOPS.get();
            let mut state = loops.lock();
            let before = state.running.len();
            state.running.retain(|one| one.number != self.number);
            let ended = (before - state.running.len()) as u64;
            state.ended += ended;
            state.steps += ended;
            loops.changed.notify_all();
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.release();
    }
}

/// The blocks of a loop, as far as their memory is concerned.
pub trait Blocks {
    /// Returns the least bytes that reading or copying a block needs.
    ///
    /// # Errors
    /// The errors of reading a block; the computation itself may be refused memory.
    fn least(&self) -> Result<u64, Fault>;

    /// As [`Blocks::least`], without tables that could not be loaded, if these are small.
    fn least_besides_tables(&self) -> u64;

    /// Chooses blocks: takes the bytes that they may have together; returns the bytes that they will have, or
    /// would need. The last choice counts.
    ///
    /// # Errors
    /// The errors that the caller raises.
    fn choose(&self, room: u64) -> Result<u64, Fault>;
}

/// A loop that is about to begin.
pub struct Start<'a> {
    /// Blocks of the loop.
    pub blocks: &'a dyn Blocks,
    /// The path of the array, for messages.
    pub path: &'a str,
    /// Its hints.
    pub hints: &'a Hints,
}

/// Result of an attempt to begin a loop.
enum Tried {
    Begun(Loop),
    /// Other loops hold too much.
    Full(Fault),
}

impl Start<'_> {
    /// Begins the loop; waits for other loops if necessary.
    ///
    /// # Errors
    /// `BlockTooLarge`, the errors of [`Blocks`], `Cancelled`.
    pub fn begin(&self, interrupts: &dyn Interrupts) -> Result<Loop, Fault> {
        let loops = LOOPS.get();
        let queued = Queued::new(loops);
        let mut ended = None;
        loop {
            let patient = queued
                .wait(interrupts, |state| queued.first(state) && ended != Some(state.ended))?;
            ended = Some(loops.lock().ended);
            let mut tried = None;
            admission::in_turn(interrupts, || {
                tried = Some(self.attempt(loops)?);
                Ok(())
            })?;
            match tried {
                Some(Tried::Begun(begun)) => return Ok(begun),
                Some(Tried::Full(refused)) if !patient => return Err(refused),
                _ => {}
            }
        }
    }

    /// Begins the loop if it fits. Call it in a turn.
    fn attempt(&self, loops: &Loops) -> Result<Tried, Fault> {
        let arena = Arena::global();
        let alone = admission::is_alone();
        let least = match self.blocks.least() {
            Err(refused) if refused.is_about_memory() => {
                let more = self.blocks.choose(0)?;
                let more = more.saturating_add(self.blocks.least_besides_tables());
                let more = i64::try_from(more).unwrap_or(i64::MAX);
                return Err(refused.beside("the blocks and their buffers for reading", more));
            }
            least => least?,
        };
        let (promised, held) = {
            let state = loops.lock();
            (state.promised().max(least), state.held())
        };
        let hint = self.hints.memory.unwrap_or(u64::MAX).saturating_sub(least);
        let room = |free: u64| free.saturating_sub(promised).min(hint);
        // Running accesses hold memory only for a moment: no reason for smaller blocks.
        let best = if alone { None } else { Some(self.blocks.choose(room(arena.limit() - held))?) };
        let room = room(arena.available());
        let wanted = self.blocks.choose(room)?;
        if !alone && (wanted > room || best != Some(wanted)) {
            return Err(Reason::Busy.into());
        }
        let mut state = loops.lock();
        if wanted > room {
            return self.does_not_fit(&state, wanted, least);
        }
        let promised = state.promised().max(least);
        let reserved = arena.reserve_leaving("blocks()", wanted, promised)?;
        let (number, thread) = (state.number(), std::thread::current().id());
        state.running.push(Running { number, thread, held: wanted, least });
        let held = Mutex::new(Some(reserved));
        Ok(Tried::Begun(Loop { number, pid: std::process::id(), least, held }))
    }

    /// Determines whether the loop will fit when other loops have ended, and whether it may wait for them.
    fn does_not_fit(&self, state: &State, wanted: u64, least: u64) -> Result<Tried, Fault> {
        let arena = Arena::global();
        let others = arena.used().saturating_sub(state.held());
        let needed = wanted.saturating_add(least);
        if self.hints.memory.is_some_and(|hint| hint < needed) {
            return Err(self.refused(needed, least, "Hints(memory=...) allows less"));
        }
        let needed = needed.saturating_add(others);
        if needed > arena.limit() {
            return Err(self.refused(needed, least, "the memory budget is smaller"));
        }
        let beside =
            wanted.saturating_add(arena.used()).saturating_add(state.promised().max(least));
        if state.in_this_thread() {
            let why = "open loops of this thread hold the rest: end or close() them";
            return Err(self.refused(beside, least, why));
        }
        if nesting::is_nested() {
            let why = "the call in progress on this thread, or on another one, holds the rest";
            return Err(self.refused(beside, least, why));
        }
        let why = "loops of other threads hold the rest and make no progress: end or close() them";
        Ok(Tried::Full(self.refused(beside, least, why)))
    }

    fn refused(&self, needed: u64, least: u64, why: &'static str) -> Fault {
        let limit = Arena::global().limit();
        Reason::BlockTooLarge { path: self.path.to_owned(), needed, least, limit, why }.into()
    }
}

/// A place in the queue, released on drop. Threads that have an open loop, or are inside an access, do not
/// enter the queue.
struct Queued<'a> {
    loops: &'a Loops,
    number: Option<u64>,
}

impl Queued<'_> {
    fn new(loops: &Loops) -> Queued<'_> {
        let mut state = loops.lock();
        let number = (!state.in_this_thread() && !nesting::is_nested()).then(|| state.number());
        state.queue.extend(number);
        Queued { loops, number }
    }

    fn first(&self, state: &State) -> bool {
        self.number.is_none() || state.queue.front() == self.number.as_ref()
    }

    /// Waits until `ready` returns true; returns false if the other loops make no progress.
    fn wait(
        &self,
        interrupts: &dyn Interrupts,
        ready: impl Fn(&State) -> bool,
    ) -> Result<bool, Fault> {
        let mut state = self.loops.lock();
        let (mut steps, mut since) = (state.steps, Instant::now());
        while !ready(&state) {
            let waited = self.loops.changed.wait_timeout(state, GLANCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.steps != steps {
                (steps, since) = (state.steps, Instant::now());
            }
            // The check may wait for other threads (for the GIL), and these for the lock.
            drop(state);
            interrupts.stop()?;
            if since.elapsed() > Duration::from_millis(PATIENCE.load(Ordering::Relaxed)) {
                return Ok(false);
            }
            state = self.loops.lock();
        }
        Ok(true)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut state = self.loops.lock();
        state.queue.retain(|number| Some(*number) != self.number);
        self.loops.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;

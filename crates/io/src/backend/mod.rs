//! Engines: many reads and writes in flight at once, behind one small trait.
//!
//! Problem: a disk reaches its rate only when many requests wait for it (at depth 64 it serves five
//! times as many 4 KiB requests a second as at depth 1), and the kernel offers several ways to keep
//! them waiting, of which not every one is allowed everywhere.
//!
//! Idea: a [`Session`] takes positioned [`Request`]s and hands back [`Completion`]s in the order in
//! which they end. No cursors, no files, no plans: a descriptor, an offset, memory. The executor is
//! written once against this trait.
//!
//! Invariants, kept by every engine and checked by the one list of tests in `conformance.rs`:
//! 1. a short transfer is continued inside the session until it is whole or the file ends, so a
//!    completed read is smaller than its request only at the end of the file;
//! 2. `EINTR` and `EAGAIN` never reach the caller;
//! 3. dropping a session waits for everything in flight, so that no memory is written after its
//!    owner is gone;
//! 4. an engine belongs to a process: a forked child that asks again gets new threads and rings.
//!
//! | engine | what it is |
//! |---|---|
//! | [`threads`] | `pread` and `pwrite` on up to 64 threads; everywhere |
//! | [`uring`] | io_uring, one ring a thread, depth 128; Linux, where it is permitted |
//! | [`memory`] | files held in RAM, finished at once and in a shuffled order; for tests |
//! | [`faulty`] | wraps another engine, fails on purpose, keeps a log of writes; feature `testing` |

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::error::StorageError;

#[cfg(test)]
mod conformance;
#[cfg(feature = "testing")]
pub mod faulty;
pub mod memory;
#[cfg(feature = "testing")]
pub mod replay;
pub mod sys;
pub mod threads;
#[cfg(target_os = "linux")]
pub mod uring;

/// One positioned read or write.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Comes back in the [`Completion`]; the engine does not look at it.
    pub tag: u64,
    /// An open file. It must stay open until the completion.
    pub fd: RawFd,
    /// First byte in the file.
    pub offset: i64,
    /// Bytes to transfer.
    pub len: usize,
    /// Where they go to or come from.
    pub memory: *mut u8,
    /// Memory to file.
    pub write: bool,
    /// Drop the pages from the page cache afterwards (`RWF_DONTCACHE`); ignored where the kernel or
    /// the file system does not know it.
    pub dontcache: bool,
}

/// The end of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The tag of the request.
    pub tag: u64,
    /// Bytes transferred, or the error number. Fewer bytes than asked for: the file ended.
    pub result: Result<usize, i32>,
}

/// A way to keep many requests in flight.
pub trait Engine: Send + Sync {
    /// `"threads"`, `"uring"`, ...: what `explain` prints.
    fn name(&self) -> &'static str;

    /// Starts a session that keeps at most `depth` requests in flight (an engine may keep fewer).
    ///
    /// # Errors
    /// The system refused threads or rings.
    fn session(&self, depth: usize) -> Result<Box<dyn Session>, StorageError>;
}

/// Requests in flight. Belongs to the thread that made it.
///
/// Dropping it waits for everything in flight.
pub trait Session {
    /// How many more requests start at once. Requests beyond that are queued, not refused.
    fn room(&self) -> usize;

    /// Requests submitted and not yet handed back by [`wait`](Session::wait).
    fn pending(&self) -> usize;

    /// Takes a request. It may start only with the next [`flush`](Session::flush) or
    /// [`wait`](Session::wait): submit a batch, then flush.
    ///
    /// # Safety
    /// `memory..memory + len` must be valid for the transfer, and touched by nobody else, until the
    /// completion was handed back or the session was dropped. `mem::forget` of the session is
    /// allowed only if the memory is never freed. The descriptor must stay open as long.
    unsafe fn submit(&mut self, request: Request);

    /// Starts what was submitted, without waiting.
    ///
    /// # Errors
    /// The system refuses to take requests; what is in flight goes on.
    fn flush(&mut self) -> Result<(), StorageError>;

    /// Starts what was submitted, waits until `at_least` completions are there (or nothing is
    /// pending any more), and appends all that are there to `done`.
    ///
    /// # Errors
    /// As [`flush`](Session::flush). Errors of single requests are in their completions.
    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) -> Result<(), StorageError>;
}

/// Which engine the caller prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring where it works, else threads.
    #[default]
    Auto,
    /// `pread` on threads.
    Threads,
    /// io_uring; threads, with a reason, where it does not work.
    Uring,
}

/// The engine that was chosen.
pub struct Chosen {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Why it is not io_uring; `None` where it is, or where threads were asked for. A text for
    /// `explain`.
    pub fallback: Option<String>,
}

/// Picks an engine: io_uring if the probe says that it works, else threads and the reason.
///
/// With feature `testing`, and while a fault plan is armed, the engine is wrapped in
/// [`faulty`]'s.
pub fn choose(choice: Choice) -> Chosen {
    let (engine, fallback): (Arc<dyn Engine>, _) = match choice {
        Choice::Threads => (Arc::new(threads::Threads), None),
        Choice::Auto | Choice::Uring => match uring_if_permitted() {
            Ok(engine) => (engine, None),
            Err(why) => (Arc::new(threads::Threads), Some(why)),
        },
    };
    #[cfg(feature = "testing")]
    let engine = faulty::wrap_if_armed(engine);
    Chosen { engine, fallback }
}

#[cfg(target_os = "linux")]
fn uring_if_permitted() -> Result<Arc<dyn Engine>, String> {
    crate::probe::uring()?;
    Ok(Arc::new(uring::Uring))
}

#[cfg(not(target_os = "linux"))]
fn uring_if_permitted() -> Result<Arc<dyn Engine>, String> {
    crate::probe::uring()?;
    Err("io_uring exists on Linux only".to_owned())
}

/// A request and how far it has come: invariants 1 and 2, in one place for all engines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    request: Request,
    done: usize,
    dontcache: bool,
}

// SAFETY: the memory behind the pointer is, by the contract of `Session::submit`, left to the engine
// until the completion; which thread of the engine touches it does not matter.
unsafe impl Send for Progress {}

/// What to do after a call returned.
pub(crate) enum Step {
    /// Issue [`Progress::rest`].
    Again,
    /// Hand this back.
    Finished(Completion),
}

/// One system call covers at most this much (Linux itself stops a little below 2 GiB, at a length
/// that is not a multiple of large blocks).
const LARGEST_CALL: usize = 1 << 30;

impl Progress {
    pub(crate) fn new(request: Request) -> Progress {
        Progress { request, done: 0, dontcache: request.dontcache }
    }

    /// What is still to be transferred, in one call.
    pub(crate) fn rest(&self) -> Request {
        Request {
            offset: self.request.offset.saturating_add(self.done as i64),
            len: (self.request.len - self.done).min(LARGEST_CALL),
            memory: self.request.memory.wrapping_add(self.done),
            dontcache: self.dontcache,
            ..self.request
        }
    }

    /// Takes the result of one call: a count, or a negative error number.
    pub(crate) fn advance(&mut self, result: Result<usize, i32>) -> Step {
        let finished = |result| Step::Finished(Completion { tag: self.request.tag, result });
        match result {
            Err(libc::EINTR | libc::EAGAIN) => Step::Again,
            Err(libc::EOPNOTSUPP) if self.dontcache => {
                self.dontcache = false;
                Step::Again
            }
            Err(errno) => finished(Err(errno)),
            // A write that moves nothing and names no reason would be tried for ever.
            Ok(0) if self.request.write && self.done < self.request.len => finished(Err(libc::EIO)),
            Ok(0) => finished(Ok(self.done)),
            Ok(count) => {
                self.done += count.min(self.request.len - self.done);
                // Asking a direct descriptor for the bytes after an odd end is an error (EINVAL)
                // on some file systems, so the length decides, not another read.
                if self.done == self.request.len || (!self.request.write && self.at_end()) {
                    Step::Finished(Completion { tag: self.request.tag, result: Ok(self.done) })
                } else {
                    Step::Again
                }
            }
        }
    }

    fn at_end(&self) -> bool {
        sys::regular_len(self.request.fd)
            .is_some_and(|len| self.request.offset.saturating_add(self.done as i64) >= len)
    }
}

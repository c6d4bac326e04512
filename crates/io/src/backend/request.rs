//! What engines take and give back.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::time::Duration;

use crate::error::StorageError;

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

    /// As [`wait`](Session::wait) for one completion, but comes back without any after `limit`, where the engine
    /// can: for who has to look after something else meanwhile.
    ///
    /// # Errors
    /// As [`wait`](Session::wait).
    fn wait_for(
        &mut self,
        _limit: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<(), StorageError> {
        self.wait(1, done)
    }
}

//! Requests and completions of engines.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::time::Duration;

use crate::error::StorageError;

/// One positioned read or write.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Returned in the [`Completion`]; not used by the engine.
    pub tag: u64,
    /// An open file, which must stay open until the completion.
    pub fd: RawFd,
    /// First byte in the file.
    pub offset: i64,
    /// Bytes to transfer.
    pub len: usize,
    /// Memory to read into or write from.
    pub memory: *mut u8,
    /// Set for writes.
    pub write: bool,
    /// Drop the pages from the page cache afterwards (`RWF_DONTCACHE`); ignored if the kernel or
    /// the file system does not support it.
    pub dontcache: bool,
}

/// The end of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The tag of the request.
    pub tag: u64,
    /// Transferred bytes, or the error number. Fewer bytes than requested mean that the file ended.
    pub result: Result<usize, i32>,
}

/// A way to keep many requests in flight.
pub trait Engine: Send + Sync {
    /// Returns the name that `explain` prints: `"threads"`, `"uring"`, ...
    fn name(&self) -> &'static str;

    /// Starts a session that keeps at most `depth` requests in flight (an engine may keep fewer).
    ///
    /// # Errors
    /// The system could not provide threads or rings.
    fn session(&self, depth: usize) -> Result<Box<dyn Session>, StorageError>;
}

/// Requests in flight; belongs to the thread that made it.
///
/// Dropping it waits for everything in flight.
pub trait Session {
    /// Returns how many more requests start immediately. Requests beyond that are queued, not
    /// rejected.
    fn room(&self) -> usize;

    /// Returns the number of submitted requests that [`wait`](Session::wait) has not returned yet.
    fn pending(&self) -> usize;

    /// Takes a request. It may start only with the next [`flush`](Session::flush) or
    /// [`wait`](Session::wait): submit a batch, then flush.
    ///
    /// # Safety
    /// `memory..memory + len` must be valid for the transfer, and not be touched by other code,
    /// until the completion was returned or the session was dropped. `mem::forget` of the session
    /// is allowed only if the memory is never freed. The descriptor must stay open for the same
    /// time.
    unsafe fn submit(&mut self, request: Request);

    /// Starts the submitted requests without waiting.
    ///
    /// # Errors
    /// The system does not take requests; those in flight continue.
    fn flush(&mut self) -> Result<(), StorageError>;

    /// Starts the submitted requests, waits for `at_least` completions (or until nothing is
    /// pending), and appends all available completions to `done`.
    ///
    /// # Errors
    /// As [`flush`](Session::flush). Errors of single requests are in their completions.
    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) -> Result<(), StorageError>;

    /// Waits for one completion like [`wait`](Session::wait), but at most for `limit` if the engine
    /// supports it; for callers that must do other work in between.
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

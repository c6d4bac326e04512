//! Progress of a request: short transfers are continued, interrupted calls are repeated.

#![allow(unsafe_code)]

use super::call::regular_len;
use super::request::{Completion, Request};

/// A request and its progress: implements invariants 1 and 2 for all engines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    request: Request,
    done: usize,
    dontcache: bool,
}

// SAFETY: by the contract of `Session::submit`, the memory behind the pointer belongs to the engine
// until the completion; any of its threads may touch it.
unsafe impl Send for Progress {}

/// Next step after a call has returned.
pub(crate) enum Step {
    /// Issue [`Progress::rest`].
    Again,
    /// Return this completion.
    Finished(Completion),
}

/// Most bytes in one system call (Linux itself stops a little below 2 GiB, at a length that is not
/// a multiple of large blocks).
const LARGEST_CALL: usize = 1 << 30;

impl Progress {
    pub(crate) fn new(request: Request) -> Progress {
        Progress { request, done: 0, dontcache: request.dontcache }
    }

    /// Returns the next part to transfer, in one call.
    pub(crate) fn rest(&self) -> Request {
        Request {
            offset: self.request.offset.saturating_add(self.done as i64),
            len: (self.request.len - self.done).min(LARGEST_CALL),
            memory: self.request.memory.wrapping_add(self.done),
            dontcache: self.dontcache,
            ..self.request
        }
    }

    /// Processes the result of one call: a count, or an error number.
    pub(crate) fn advance(&mut self, result: Result<usize, i32>) -> Step {
        let finished = |result| Step::Finished(Completion { tag: self.request.tag, result });
        match result {
            Err(libc::EINTR | libc::EAGAIN) => Step::Again,
            Err(libc::EOPNOTSUPP) if self.dontcache => {
                self.dontcache = false;
                Step::Again
            }
            Err(errno) => finished(Err(errno)),
            // A write that transfers nothing without an error would be repeated for ever.
            Ok(0) if self.request.write && self.done < self.request.len => finished(Err(libc::EIO)),
            Ok(0) => finished(Ok(self.done)),
            Ok(count) => {
                self.done += count.min(self.request.len - self.done);
                // On some file systems, a direct read after an unaligned end is an error (EINVAL),
                // so the length decides, not another read.
                if self.done == self.request.len || (!self.request.write && self.at_end()) {
                    Step::Finished(Completion { tag: self.request.tag, result: Ok(self.done) })
                } else {
                    Step::Again
                }
            }
        }
    }

    fn at_end(&self) -> bool {
        regular_len(self.request.fd)
            .is_some_and(|len| self.request.offset.saturating_add(self.done as i64) >= len)
    }
}

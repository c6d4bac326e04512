//! How far a request has come: short transfers go on, interrupted calls are made again.

#![allow(unsafe_code)]

use super::call::regular_len;
use super::request::{Completion, Request};

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
        regular_len(self.request.fd)
            .is_some_and(|len| self.request.offset.saturating_add(self.done as i64) >= len)
    }
}

//! Turns at the windows of one array.
//!
//! Problem. A window that is read, changed and written back overwrites data that another thread writes into
//! its holes in the meantime. Either no other process has the file open (`access::Alone`), or none writes it
//! (`Hints(exclusive=True)`); threads that share the array still may.
//!
//! Idea. While a write through windows runs, no other write in place runs. Writers wait for each other; a
//! write inside another write of its own thread (`nesting.rs`) does not wait.

use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::error::Fault;
use crate::interrupt::Interrupts;
use crate::{admission, nesting};

/// Interval between two attempts to get a turn.
const GLANCE: Duration = Duration::from_millis(1);

/// Reason for the error of a nested write.
const WRITTEN: &str = "the array is being written through windows";

/// The threads that write to an array in place.
#[derive(Debug, Default)]
pub struct Windows {
    turn: RwLock<()>,
    /// Threads that have a turn.
    holders: Mutex<Vec<ThreadId>>,
}

/// Turn of a write, released on drop.
pub struct Turn<'a> {
    windows: &'a Windows,
    #[allow(dead_code, reason = "kept for its drop")]
    kind: Kind<'a>,
}

#[allow(dead_code, reason = "kept for their drop")]
enum Kind<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let (mut holders, me) = (self.windows.holders(), thread::current().id());
        if let Some(at) = holders.iter().position(|one| *one == me) {
            holders.swap_remove(at);
        }
    }
}

impl Windows {
    /// Waits for a turn, `alone` or shared with others that are not. `path` is for messages.
    pub fn turn(
        &self,
        alone: bool,
        path: &str,
        interrupts: &dyn Interrupts,
    ) -> Result<Turn<'_>, Fault> {
        loop {
            if let Some(kind) = self.attempt(alone) {
                self.holders().push(thread::current().id());
                return Ok(Turn { windows: self, kind });
            }
            // A thread that runs a signal handler for a long time may wait for this very write.
            if nesting::is_nested() || self.holders().iter().any(|one| admission::is_stuck(*one)) {
                return Err(nesting::refused(path, WRITTEN));
            }
            interrupts.stop()?;
            thread::sleep(GLANCE);
        }
    }

    fn attempt(&self, alone: bool) -> Option<Kind<'_>> {
        if alone {
            free(self.turn.try_write()).map(Kind::Alone)
        } else {
            free(self.turn.try_read()).map(Kind::Shared)
        }
    }

    fn holders(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn free<T>(tried: Result<T, TryLockError<T>>) -> Option<T> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests;

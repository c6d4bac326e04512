//! Requests to stop an access: Ctrl-C, or another thread. The code that checks need not know which.

use outcore_io::StorageError;

use crate::error::Fault;

/// Checked periodically by the thread that made the call, and by its helper threads.
pub trait Interrupts: Sync {
    /// Returns whether to stop. May run code of the caller (signal handlers), which may make an access.
    fn check(&self) -> bool;

    /// Returns whether an earlier check returned true. Runs no code of the caller.
    fn raised(&self) -> bool;

    /// As [`check`](Interrupts::check), with an error as the result.
    ///
    /// # Errors
    /// `Cancelled` if the access must stop.
    fn stop(&self) -> Result<(), Fault> {
        match self.check() {
            true => Err(StorageError::Cancelled.into()),
            false => Ok(()),
        }
    }
}

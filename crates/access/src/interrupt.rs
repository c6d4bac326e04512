//! What may stop an access: Ctrl-C, or another thread. Who asks need not know which.

use outcore_io::StorageError;

use crate::error::Fault;

/// Asked now and then by the thread that made the call, and by threads that help it.
pub trait Interrupts: Sync {
    /// Whether to stop. May run code of the caller (handlers of signals), which may make an access.
    fn check(&self) -> bool;

    /// Whether the answer was yes before. Runs nothing.
    fn raised(&self) -> bool;

    /// The same as [`check`](Interrupts::check), as an error.
    ///
    /// # Errors
    /// `Cancelled`.
    fn stop(&self) -> Result<(), Fault> {
        match self.check() {
            true => Err(StorageError::Cancelled.into()),
            false => Ok(()),
        }
    }
}

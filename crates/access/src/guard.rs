//! Locks that protect the file of an array against programs that change it through the format's own library
//! (HDF5).
//!
//! Problem. While that library has a file open for writing, it moves chunks, and keeps copies of elements and
//! of its own tables. Writes of other programs in the meantime are lost, and their reads may get the bytes of
//! another chunk.
//!
//! Idea. An access that reads chunks or writes elements in place holds the library's lock (`flock`) for
//! reading, in addition to our own. So it waits for a program that has the file open for writing, and makes
//! such a program wait.
//!
//! Invariants. Waiting is bounded, and ends with Ctrl-C.

use std::any::Any;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outcore_io::lock::{FileLock, Patience};
use outcore_io::StorageError;

use crate::error::Fault;
use crate::interrupt::Interrupts;
use crate::nesting;

/// Time to wait for another writer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time to wait for a program that has the file open in the HDF5 library: it may keep it open for hours.
const HDF5_PATIENCE: Duration = Duration::from_secs(2);
/// Interval between two checks for Ctrl-C while waiting.
const GLANCE: Duration = Duration::from_millis(100);

/// Protection of the file against programs that change it through the library.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Path of the log of an interrupted change of the file.
    pub log: PathBuf,
    /// Access to the library's own locks, and to such changes.
    pub keeper: Arc<dyn Keeper>,
}

/// Handling of the library's locks by a format.
pub trait Keeper: Debug + Send + Sync {
    /// Completes, or discards, an interrupted change of the file.
    ///
    /// # Errors
    /// The errors that the format raises.
    fn recover(&self) -> Result<(), StorageError>;

    /// Takes the library's lock for writing; dropping the returned value releases it.
    ///
    /// # Errors
    /// The errors that the format raises.
    fn hold(&self) -> Result<Held, StorageError>;
}

/// The library's lock for writing, until it is dropped.
pub type Held = Box<dyn Any + Send>;

impl Guard {
    /// Locks out programs, and other threads, that change the file at `path` through the library, while
    /// chunks are looked up and read, or elements are written in place. A chunk that is stored again moves,
    /// and its old place soon holds another chunk, whose bytes would be mistaken for its own. The library
    /// also keeps copies of elements, with which it overwrites what others wrote. If files cannot be locked,
    /// the caller continues without a lock. A change that a killed process left incomplete is completed
    /// first.
    ///
    /// # Errors
    /// The errors of [`FileLock::beside`], and those of completing such a change.
    pub fn share(
        &self,
        path: &Path,
        patience: Patience<'_>,
    ) -> Result<Option<FileLock>, StorageError> {
        let lock = beside(path, patience)?;
        // No live process makes a log while we hold the lock.
        if std::fs::symlink_metadata(&self.log).is_err() {
            return Ok(lock);
        }
        drop(lock);
        self.keeper.recover()?;
        beside(path, patience)
    }
}

fn beside(path: &Path, patience: Patience<'_>) -> Result<Option<FileLock>, StorageError> {
    use StorageError::{Cancelled, InUse, Locked};
    match FileLock::beside(path, !unlocked(), patience) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ (Locked { .. } | InUse { .. } | Cancelled)) => Err(error),
        // Locks exist, but there is no file descriptor for this one.
        Err(error) if error.code() == "too-many-open-files" => Err(error),
        Err(_) => Ok(None),
    }
}

/// Returns whether HDF5 was configured to use no locks: then neither side takes any.
fn unlocked() -> bool {
    let told = std::env::var_os("HDF5_USE_FILE_LOCKING");
    told.is_some_and(|word| word == "0" || word.eq_ignore_ascii_case("false"))
}

/// Waits for other processes that have a file locked, in short intervals, so that Ctrl-C works. `array` is
/// for messages.
pub fn patiently<T>(
    array: &str,
    interrupts: &dyn Interrupts,
    mut attempt: impl FnMut(Patience) -> Result<T, StorageError>,
) -> Result<T, Fault> {
    let started = Instant::now();
    // The lock may be held by the access inside which this one was made.
    let nested = nesting::is_nested();
    let wait = if nested { Duration::ZERO } else { GLANCE };
    loop {
        let refused = match attempt(Patience { timeout: Some(wait), cancelled: None }) {
            Err(error @ (StorageError::Locked { .. } | StorageError::InUse { .. })) => error,
            other => return Ok(other?),
        };
        if nested || refused.path().is_some_and(nesting::changes_here) {
            return Err(nesting::refused(array, "it is locked"));
        }
        interrupts.stop()?;
        let waited = started.elapsed();
        match refused {
            StorageError::Locked { path, .. } if waited > PATIENCE => {
                return Err(StorageError::Locked { path, waited }.into());
            }
            StorageError::InUse { path, .. } if waited > HDF5_PATIENCE => {
                return Err(StorageError::InUse { path, waited }.into());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;

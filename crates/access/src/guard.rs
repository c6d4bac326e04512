//! What keeps an array's file from those who change it through the format's own library (HDF5).
//!
//! Problem. That library moves chunks, and keeps copies of elements and of its own tables, while it has
//! a file open for writing: what others write meanwhile is lost, what they read belongs to others.
//!
//! Idea. Whoever reads chunks or writes elements in place holds the library's lock (`flock`) for reading
//! beside our own, and so waits for a program that has the file open for writing, and keeps it waiting.
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

/// How long to wait for another writer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for a program that has the file open in the HDF5 library: it may for hours.
const HDF5_PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks for Ctrl-C while waiting.
const GLANCE: Duration = Duration::from_millis(100);

/// How the file is kept from those who change it through the library.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Where a change of the file lies that was interrupted.
    pub log: PathBuf,
    /// Who knows the library's own locks, and such changes.
    pub keeper: Arc<dyn Keeper>,
}

/// What a format does about the locks of its library.
pub trait Keeper: Debug + Send + Sync {
    /// Completes, or forgets, a change of the file that was interrupted.
    ///
    /// # Errors
    /// What the format raises.
    fn recover(&self) -> Result<(), StorageError>;

    /// Takes the library's lock for writing; it is given back when what is returned is dropped.
    ///
    /// # Errors
    /// What the format raises.
    fn hold(&self) -> Result<Held, StorageError>;
}

/// The library's lock for writing, until it is dropped.
pub type Held = Box<dyn Any + Send>;

impl Guard {
    /// Keeps out whoever changes the file at `path` through the library, here or in another program,
    /// while chunks are looked up and read, or elements written in place: a chunk that is stored anew
    /// moves, and its old place soon belongs to another, whose bytes would pass for its own; and of
    /// elements the library keeps copies, with which it overwrites what others wrote. Where files cannot
    /// be locked, the caller goes on without. A change that a killed process left half done is completed
    /// first.
    ///
    /// # Errors
    /// As [`FileLock::beside`], and what completing such a change raises.
    pub fn share(
        &self,
        path: &Path,
        patience: Patience<'_>,
    ) -> Result<Option<FileLock>, StorageError> {
        let lock = beside(path, patience)?;
        // Nobody who lives makes a log while we hold the lock.
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
        // Not that there are no locks, but no descriptor for this one.
        Err(error) if error.code() == "too-many-open-files" => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether HDF5 was told to use no locks: then neither side takes any.
fn unlocked() -> bool {
    let told = std::env::var_os("HDF5_USE_FILE_LOCKING");
    told.is_some_and(|word| word == "0" || word.eq_ignore_ascii_case("false"))
}

/// Waits for others who have a file locked, a little at a time, so that Ctrl-C works. `array` is for
/// messages.
pub fn patiently<T>(
    array: &str,
    interrupts: &dyn Interrupts,
    mut attempt: impl FnMut(Patience) -> Result<T, StorageError>,
) -> Result<T, Fault> {
    let started = Instant::now();
    // What is locked may be so by an access that this one was made in.
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

//! Flushes of one array, one at a time; each succeeds only if all data is safe.
//!
//! Problem. If two threads flush concurrently, the second must not return before the first has done
//! the work of both. In addition, the kernel reports a failed write-back once: it then treats the
//! pages as clean, so the next `fsync` succeeds although the bytes are lost.
//!
//! Idea. Flushes run one after another. A flush that waited while another one began and ended needs
//! no work, and returns the result of the other: concurrent flushes share a sync, as they would in
//! the kernel. A failed sync is remembered, and all later flushes raise it: it is unknown which
//! bytes were lost, so the only remedy is to open the array again and write it again.
//!
//! Invariants. A flush succeeds only if everything that was written before its call is on the disk.
//! After a failed sync, every flush raises its error. If something could not be tried (no
//! descriptor left), the next flush tries it again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::StorageError;

/// Reason why a flush did not succeed.
#[derive(Debug)]
pub enum Trouble {
    /// The disk did not accept the data, which may be lost.
    Lost(StorageError),
    /// Some work was not tried; nothing is lost yet.
    Untried(StorageError),
}

/// Order of the flushes of one array.
#[derive(Debug, Default)]
pub struct Flushes {
    /// Number of flushes that have begun.
    begun: AtomicU64,
    turn: Mutex<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome {
    /// The first sync that failed.
    lost: Option<StorageError>,
    /// Reason why the last flush did not try everything.
    untried: Option<StorageError>,
}

impl Flushes {
    /// Waits for its turn, then lets `work` sync everything written so far, unless another flush
    /// that began in the meantime has done so. `work` must try everything, even if a part of it
    /// fails.
    ///
    /// # Errors
    /// The first failed sync of this flush or of an earlier one; otherwise the work that was not
    /// tried.
    pub fn flush(&self, work: impl FnOnce() -> Result<(), Trouble>) -> Result<(), StorageError> {
        let seen = self.begun.load(Ordering::SeqCst);
        let mut outcome = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.begun.load(Ordering::SeqCst) == seen {
            self.begun.fetch_add(1, Ordering::SeqCst);
            outcome.take(work());
        }
        let error = outcome.lost.as_ref().or(outcome.untried.as_ref());
        error.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns whether no sync has failed so far.
    pub fn is_sound(&self) -> bool {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).lost.is_none()
    }

    /// Syncs a part of the written data early. A flush that follows waits for it, and raises its
    /// error too.
    ///
    /// # Errors
    /// As `work`.
    pub fn early(&self, work: impl FnOnce() -> Result<(), Trouble>) -> Result<(), StorageError> {
        let mut outcome = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match work() {
            Ok(()) => Ok(()),
            Err(Trouble::Untried(error)) => Err(error),
            Err(Trouble::Lost(error)) => {
                outcome.lost.get_or_insert_with(|| error.clone());
                Err(error)
            }
        }
    }
}

impl Outcome {
    fn take(&mut self, result: Result<(), Trouble>) {
        self.untried = None;
        match result {
            Ok(()) => {}
            Err(Trouble::Lost(error)) => {
                self.lost.get_or_insert(error);
            }
            Err(Trouble::Untried(error)) => self.untried = Some(error),
        }
    }
}

/// Combines results: lost data takes precedence over work that was not tried.
pub fn all(results: impl IntoIterator<Item = Result<(), Trouble>>) -> Result<(), Trouble> {
    let mut untried = None;
    let mut lost = None;
    for result in results {
        match result {
            Ok(()) => {}
            Err(Trouble::Lost(error)) => lost = lost.or(Some(error)),
            Err(Trouble::Untried(error)) => untried = untried.or(Some(error)),
        }
    }
    match (lost, untried) {
        (Some(error), _) => Err(Trouble::Lost(error)),
        (None, Some(error)) => Err(Trouble::Untried(error)),
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use super::*;

    fn failure(errno: i32) -> StorageError {
        StorageError::io("fsync", Path::new("/a"), errno)
    }

    #[test]
    fn a_flush_waits_for_the_one_before_it_and_those_that_wait_share_one() {
        let flushes = Flushes::default();
        let (runs, written, safe) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            runs.fetch_add(1, Ordering::SeqCst);
            let now = written.load(Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(100));
            safe.fetch_max(now, Ordering::SeqCst);
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                    flushes.flush(work).unwrap();
                    assert!(safe.load(Ordering::SeqCst) >= mine);
                });
            }
        });
        // One flush that began before other threads had written, and one for all of these; a thread
        // that started late may need a third.
        assert!((2..=8).contains(&runs.into_inner()));
    }

    #[test]
    fn a_failed_sync_is_raised_by_all_later_flushes_and_an_untried_one_until_it_was_tried() {
        let flushes = Flushes::default();
        let full = || Err(Trouble::Untried(failure(libc::EMFILE)));
        assert_eq!(Err(failure(libc::EMFILE)), flushes.flush(full));
        assert!(flushes.is_sound(), "nothing is lost yet");
        assert_eq!(Ok(()), flushes.flush(|| Ok(())));
        assert_eq!(
            Err(failure(libc::EIO)),
            flushes.flush(|| Err(Trouble::Lost(failure(libc::EIO))))
        );
        assert!(!flushes.is_sound());
        assert_eq!(Err(failure(libc::EIO)), flushes.flush(|| Ok(())));
        let other = || Err(Trouble::Lost(failure(libc::ENOSPC)));
        assert_eq!(Err(failure(libc::EIO)), flushes.flush(other));
        // A flush also raises the error of an early sync.
        let flushes = Flushes::default();
        assert_eq!(Err(failure(libc::ENOSPC)), flushes.early(other));
        assert_eq!(Ok(()), flushes.early(|| Ok(())));
        assert_eq!(Err(failure(libc::ENOSPC)), flushes.flush(|| Ok(())));
    }

    #[test]
    fn a_flush_that_waited_raises_what_the_one_that_served_it_raised() {
        let flushes = Flushes::default();
        let started = Instant::now();
        let slow = || {
            std::thread::sleep(Duration::from_millis(100));
            Err(Trouble::Lost(failure(libc::EIO)))
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| flushes.flush(slow))).collect();
            for one in all {
                assert_eq!(Err(failure(libc::EIO)), one.join().unwrap());
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn a_loss_outweighs_what_was_not_tried() {
        let lost = || Err(Trouble::Lost(failure(libc::EIO)));
        let untried = || Err(Trouble::Untried(failure(libc::EMFILE)));
        assert!(matches!(all([Ok(()), Ok(())]), Ok(())));
        assert!(matches!(all([untried(), lost(), Ok(())]), Err(Trouble::Lost(_))));
        assert!(matches!(all([Ok(()), untried()]), Err(Trouble::Untried(_))));
    }
}

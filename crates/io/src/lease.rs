//! State of an open file for claims of it (`claim.rs`).

#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(target_os = "linux")]
use std::sync::Once;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of an open file for claims of it.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Forks of this process before the file was opened.
    pub(crate) forks: u64,
    /// Claims that hold the lease.
    holders: Mutex<usize>,
}

impl Lease {
    /// For a file that is being opened.
    pub(crate) fn new() -> Lease {
        Lease { forks: forks(), holders: Mutex::new(0) }
    }

    /// For a descriptor that others may share.
    pub(crate) fn shared() -> Lease {
        Lease { forks: u64::MAX, holders: Mutex::new(0) }
    }

    pub(crate) fn holders(&self) -> MutexGuard<'_, usize> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(target_os = "linux")]
static FORKS: AtomicU64 = AtomicU64::new(0);

#[cfg(target_os = "linux")]
extern "C" fn before_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// Returns how often this process has forked since the first call.
#[cfg(target_os = "linux")]
pub(crate) fn forks() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to an atomic number.
        let failed = unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
        if failed != 0 {
            // Never equal to the number that a file remembers, so nothing is claimed.
            FORKS.store(u64::MAX / 2, Ordering::SeqCst);
        }
    });
    FORKS.load(Ordering::SeqCst)
}

/// Other systems have no leases: no file is claimed there.
#[cfg(not(target_os = "linux"))]
pub(crate) fn forks() -> u64 {
    0
}

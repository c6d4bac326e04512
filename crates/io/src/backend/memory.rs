//! Files in memory, and an engine that finishes requests immediately, in a shuffled order.
//!
//! Problem: tests need to run plans without a disk, and to see the effect of completions that do
//! not come in the order of submission, reproducibly.
//!
//! Idea: an anonymous file of the system (`memfd`) has a descriptor like any other, so the whole
//! crate works on it unchanged. The engine runs every request in `submit`, and a small generator
//! with a given seed chooses which completion is returned next.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use super::progress::{Progress, Step};
use super::request::{Completion, Engine, Request, Session};
use super::sys;
use crate::error::StorageError;

/// Makes a file in memory that holds `content`; it ends with its descriptor.
///
/// # Errors
/// `Io` if the system has no anonymous files, or no memory.
pub fn file(content: &[u8]) -> Result<OwnedFd, StorageError> {
    let fail = |errno| StorageError::io("create a file in memory", "".as_ref(), errno);
    let fd = anonymous().map_err(fail)?;
    sys::write_at(fd.as_raw_fd(), content, 0).map_err(fail)?;
    Ok(fd)
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn anonymous() -> Result<OwnedFd, i32> {
    use std::os::fd::FromRawFd;
    // SAFETY: a NUL-terminated string and a flag.
    let fd = unsafe { libc::memfd_create(c"outcore".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    // SAFETY: just created, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// On other systems: a temporary file without a name.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn anonymous() -> Result<OwnedFd, i32> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("outcore-{}-{number}", std::process::id()));
    let fd = sys::open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)?;
    sys::unlink(&sys::Spot::of(&path)?)?;
    Ok(fd)
}

/// The engine; works on any descriptor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Seed of the order of completions.
    pub seed: u64,
}

impl Engine for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn session(&self, depth: usize) -> Result<Box<dyn Session>, StorageError> {
        let state = self.seed;
        Ok(Box::new(MemorySession { depth: depth.max(1), state, finished: Vec::new() }))
    }
}

struct MemorySession {
    depth: usize,
    state: u64,
    finished: Vec<Completion>,
}

impl MemorySession {
    /// Draws a number with SplitMix64 (Steele, Lea, Flood 2014).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

impl Session for MemorySession {
    fn room(&self) -> usize {
        self.depth.saturating_sub(self.finished.len())
    }

    fn pending(&self) -> usize {
        self.finished.len()
    }

    unsafe fn submit(&mut self, request: Request) {
        let mut progress = Progress::new(request);
        loop {
            // SAFETY: the caller's promise.
            let result = unsafe { sys::transfer(&progress.rest()) };
            if let Step::Finished(completion) = progress.advance(result) {
                self.finished.push(completion);
                return;
            }
        }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Returns exactly `at_least` completions, so that callers see every possible interleaving.
    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) -> Result<(), StorageError> {
        for _ in 0..at_least.min(self.finished.len()) {
            let pick = self.draw() as usize % self.finished.len();
            done.push(self.finished.swap_remove(pick));
        }
        Ok(())
    }
}

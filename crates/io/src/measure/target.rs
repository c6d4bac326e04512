//! The file of a measurement, and the effort.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::{self, sys};
use crate::durable;
use crate::error::StorageError;
use crate::probe;

pub(super) const MIB: u64 = 1 << 20;

/// Size and duration of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Effort<'a> {
    /// Bytes of the file; rounded down to whole MiB, at least 16 MiB.
    pub file_bytes: u64,
    /// Duration of one of about thirty single measurements.
    pub slice: Duration,
    /// Engine to use.
    pub engine: backend::Choice,
    /// Ends the measurement with [`StorageError::Cancelled`] soon after it becomes true.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Default for Effort<'_> {
    fn default() -> Self {
        Effort {
            file_bytes: 1 << 30,
            slice: Duration::from_millis(250),
            engine: backend::Choice::Auto,
            cancelled: None,
        }
    }
}

impl Effort<'_> {
    pub(super) fn check(&self) -> Result<(), StorageError> {
        match self.cancelled {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(StorageError::Cancelled),
            _ => Ok(()),
        }
    }
}

pub(super) fn per_second(bytes: u64, ns: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))) as u64
}

/// A step of a xorshift generator (Marsaglia 2003).
pub(super) fn next(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// The file, whose name has been removed.
pub(crate) struct Target {
    pub(super) cached: OwnedFd,
    pub(super) direct: Option<OwnedFd>,
    pub(super) bytes: u64,
    pub(super) folder: PathBuf,
}

impl Target {
    pub(super) fn create(folder: &Path, bytes: u64) -> Result<Target, StorageError> {
        let bytes = (bytes / MIB).clamp(16, 1 << 22) * MIB;
        // Removed when `temp` is dropped, at the end of this function: the descriptors keep the
        // bytes.
        let temp = durable::TempFile::beside(&folder.join("bench"))?;
        temp.reserve(bytes as i64)?;
        let again = |flags| sys::open(temp.path(), libc::O_RDWR | flags, 0);
        let cached = again(0).map_err(|errno| StorageError::io("open", temp.path(), errno))?;
        let direct = match probe::direct_alignment(temp.path()) {
            Some(alignment) if alignment.offset.max(alignment.memory) <= 4096 => again(DIRECT).ok(),
            _ => None,
        };
        Ok(Target { cached, direct, bytes, folder: folder.to_path_buf() })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.direct.as_ref().unwrap_or(&self.cached).as_raw_fd()
    }
}

pub(super) fn sync(file: &Target) -> Result<(), StorageError> {
    durable::sync(file.cached.as_raw_fd(), &file.folder)
}

#[cfg(target_os = "linux")]
const DIRECT: i32 = libc::O_DIRECT;
#[cfg(not(target_os = "linux"))]
const DIRECT: i32 = 0;

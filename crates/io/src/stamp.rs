//! States of a file, distinguished by their metadata.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Age from which a file counts as settled: longer than a tick of the clock, and than one `write`
/// takes on a busy disk.
pub(crate) const QUIET: Duration = Duration::from_secs(2);

/// A state of a file: any change of its bytes makes another stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: i128,
    changed: i128,
}

impl Stamp {
    /// Makes the stamp from the result of `stat`.
    pub(crate) fn of(found: &libc::stat) -> Stamp {
        let nanoseconds =
            |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        #[allow(clippy::unnecessary_cast, reason = "these types differ between systems")]
        Stamp {
            device: found.st_dev as u64,
            inode: found.st_ino as u64,
            size: found.st_size,
            modified: nanoseconds(found.st_mtime as i64, found.st_mtime_nsec as i64),
            changed: nanoseconds(found.st_ctime as i64, found.st_ctime_nsec as i64),
        }
    }

    /// Returns whether any later change must make another stamp, because the last change is old
    /// enough.
    pub(crate) fn is_settled(&self) -> bool {
        self.age() >= QUIET.as_nanos() as i128
    }

    /// Returns nanoseconds since the last change; negative if that time is in the future, which
    /// means unknown.
    pub(crate) fn age(&self) -> i128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as i128 - self.modified.max(self.changed)
    }

    /// Makes a stamp from device and inode, size, and the times of the last change of bytes and of
    /// metadata in nanoseconds.
    pub fn new((device, inode): (u64, u64), size: i64, modified: i128, changed: i128) -> Stamp {
        Stamp { device, inode, size, modified, changed }
    }
}

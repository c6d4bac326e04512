//! States of a file, told apart by what the system says of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that nobody changed for so long is settled. Longer than a tick of the clock, and
/// than one call of `write` takes on a busy disk.
pub(crate) const QUIET: Duration = Duration::from_secs(2);

/// A state of a file: any change of its bytes makes another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: i128,
    changed: i128,
}

impl Stamp {
    /// Of what the system says of a file.
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

    /// Whether a change from now on must make another one: nobody changed the file for a while.
    pub(crate) fn is_settled(&self) -> bool {
        self.age() >= QUIET.as_nanos() as i128
    }

    /// Nanoseconds since the last change; negative for a time in the future, which says nothing.
    pub(crate) fn age(&self) -> i128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as i128 - self.modified.max(self.changed)
    }

    /// Of its parts: device, inode, size, and the times of bytes and of the file in nanoseconds.
    pub fn new((device, inode): (u64, u64), size: i64, modified: i128, changed: i128) -> Stamp {
        Stamp { device, inode, size, modified, changed }
    }
}

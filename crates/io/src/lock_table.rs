//! Locks on byte ranges among the threads of this process, for files whose file system has no
//! locks.
//!
//! They exclude each other like locks of open file descriptions: each open file by its descriptor.
//! Other processes do not see them.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::backend::sys;

#[derive(Debug, Clone, Copy)]
struct Held {
    /// Device and inode.
    file: (u64, u64),
    fd: RawFd,
    /// Bytes `first..end`.
    first: i64,
    end: i64,
    /// Set for readers, which share the range.
    shared: bool,
}

/// Process id and locks: a forked child has none of them.
static TABLE: Mutex<(u32, Vec<Held>)> = Mutex::new((0, Vec::new()));
/// Set after the first lock.
static USED: AtomicBool = AtomicBool::new(false);

/// Locks bytes `first..end` of an open file.
///
/// # Errors
/// `EAGAIN` if another descriptor holds a lock on these bytes; errors of `fstat`.
pub(crate) fn lock(fd: RawFd, (first, end): (i64, i64), shared: bool) -> Result<(), i32> {
    let found = sys::stat(fd)?;
    // The fields' widths differ from one C library to the other.
    #[allow(clippy::unnecessary_cast)]
    let file = (found.st_dev as u64, found.st_ino as u64);
    USED.store(true, Ordering::SeqCst);
    with_table(|held| {
        let blocks = |other: &Held| {
            let apart = other.end <= first || end <= other.first;
            other.file == file && other.fd != fd && !apart && !(shared && other.shared)
        };
        if held.iter().any(blocks) {
            return Err(libc::EAGAIN);
        }
        cut(held, fd, first, end);
        held.push(Held { file, fd, first, end, shared });
        Ok(())
    })
}

/// Releases the locks of a descriptor on bytes `first..end`.
pub(crate) fn release(fd: RawFd, (first, end): (i64, i64)) {
    if USED.load(Ordering::SeqCst) {
        with_table(|held| cut(held, fd, first, end));
    }
}

/// Removes bytes `first..end` from the locks of a descriptor.
fn cut(held: &mut Vec<Held>, fd: RawFd, first: i64, end: i64) {
    let mut rest = Vec::new();
    held.retain(|one| {
        if one.fd != fd || one.end <= first || end <= one.first {
            return true;
        }
        let (before, behind) = (Held { end: first, ..*one }, Held { first: end, ..*one });
        rest.extend([before, behind].into_iter().filter(|part| part.first < part.end));
        false
    });
    held.append(&mut rest);
}

fn with_table<T>(work: impl FnOnce(&mut Vec<Held>) -> T) -> T {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if table.0 != pid {
        *table = (pid, Vec::new());
    }
    work(&mut table.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn ranges_exclude_each_other_as_those_of_the_kernel() {
        let path = std::env::temp_dir().join(format!("outcore-locks-{}", std::process::id()));
        let open = || std::fs::File::create(&path).unwrap();
        let (one, two) = (open(), open());
        let (a, b) = (one.as_raw_fd(), two.as_raw_fd());
        let whole = (0, i64::MAX);
        let write = |fd, range| lock(fd, range, false);
        let read = |fd, range| lock(fd, range, true);
        assert_eq!(Ok(()), write(a, (0, 10)));
        assert_eq!(Err(libc::EAGAIN), read(b, (9, 10)));
        assert_eq!(Ok(()), write(b, (10, i64::MAX)));
        assert_eq!(Err(libc::EAGAIN), read(a, whole));
        release(a, (4, 6));
        assert_eq!(Ok(()), read(b, (4, 6)));
        assert_eq!(Ok(()), read(a, (5, 8)));
        assert_eq!(Err(libc::EAGAIN), read(b, (3, 4)));
        assert_eq!(Err(libc::EAGAIN), write(b, (6, 7)));
        release(a, whole);
        assert_eq!(Ok(()), write(b, (0, 10)));
        release(b, whole);
        assert_eq!(Ok(()), write(a, whole));
        release(a, whole);
        std::fs::remove_file(path).unwrap();
    }
}

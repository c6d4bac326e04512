//! System calls that are repeated after signals, and calls that fault plans do not see.

#![allow(unsafe_code)]

use std::os::fd::RawFd;

use super::hook::Errno;

pub(super) fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Repeats a call that a signal interrupted.
pub(super) fn retried(mut call: impl FnMut() -> i64) -> Result<i64, Errno> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        match errno() {
            libc::EINTR => {}
            other => return Err(other),
        }
    }
}

/// Returns the length of a regular file; `None` for anything else.
pub(crate) fn regular_len(fd: RawFd) -> Option<i64> {
    let found = stat(fd).ok()?;
    (found.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(found.st_size)
}

/// `fstat`.
///
/// # Errors
/// The error number of the system call.
pub(crate) fn stat(fd: RawFd) -> Result<libc::stat, Errno> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing.
    retried(|| unsafe { i64::from(libc::fstat(fd, &raw mut stat)) })?;
    Ok(stat)
}

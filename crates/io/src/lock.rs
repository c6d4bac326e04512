//! Locks on byte ranges of files, between threads, processes and (if the file system supports it)
//! nodes.
//!
//! Problem: two writers of one compressed chunk each read it, change a part and store it whole; one
//! change is lost. POSIX record locks do not help inside a process, and vanish when any descriptor
//! of the file is closed.
//!
//! Idea: locks of the *open file description* (`F_OFD_SETLK`, Linux 3.15). Every guard opens the
//! file for itself, so two threads exclude each other like two processes, and closing other
//! descriptors changes nothing. The kernel releases the lock of a process that dies.
//!
//! Invariants:
//! - after locking, the path still names the file that was locked; if a rename put another file
//!   there in the meantime, that one is locked instead;
//! - a forked child that drops an inherited guard does not release its parent's lock.
//!
//! HDF5 locks whole files with `flock`, which is independent of these locks: [`FileLock::beside`]
//! takes both, for readers that no HDF5 library may disturb.
//!
//! Waiting is polling (1 to 20 ms), so that a timeout and Ctrl-C work; waiters are not queued in
//! order of arrival. On systems other than Linux the whole file is locked with `flock`. If the file
//! system has no locks, only threads of this process exclude each other (`lock_table`).

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::backend::sys;
use crate::error::StorageError;
#[cfg(target_os = "linux")]
use crate::lock_table;

/// Kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Any number of readers.
    Shared,
    /// One writer.
    Exclusive,
}

/// Bytes that a lock covers; they need not exist in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: i64,
    /// Number of bytes; 0 means to the end, however far the file grows.
    pub len: i64,
}

impl Range {
    /// The whole file, including bytes that will be appended.
    pub const WHOLE: Range = Range { start: 0, len: 0 };

    /// The byte that a process locks while it waits for `flock` for writing
    /// (`formats/hdf5/access.py`); beyond every file.
    ///
    /// New readers wait for it, so they cannot delay the writer for ever.
    pub const TURNSTILE: Range = Range { start: 1 << 62, len: 1 };

    /// All bytes before the turnstile.
    pub const CONTENT: Range = Range { start: 0, len: 1 << 62 };
}

/// Limits on waiting for a lock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience<'a> {
    /// Longest wait; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Ends the wait when it becomes true.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Patience<'_> {
    /// Takes the lock now or not at all.
    pub const NONE: Patience<'static> = Patience { timeout: Some(Duration::ZERO), cancelled: None };
}

/// A lock, released on drop.
#[derive(Debug)]
pub struct FileLock {
    fd: OwnedFd,
    ranges: Vec<Range>,
    /// Set if `flock` is held too.
    flocked: bool,
    pid: u32,
}

impl FileLock {
    /// Locks a range of an existing file.
    ///
    /// # Errors
    /// [`StorageError::Locked`] when the wait ends, [`StorageError::Cancelled`], or `Io` if the
    /// file cannot be opened or locked (`ENOLCK`: the file system has no locks).
    pub fn acquire(
        path: &Path,
        range: Range,
        mode: Mode,
        patience: Patience<'_>,
    ) -> Result<FileLock, StorageError> {
        FileLock::acquire_all(path, &[range], mode, patience)
    }

    /// Locks several ranges of an existing file, one after the other; pass them in ascending order,
    /// so that no two callers wait for each other.
    ///
    /// # Errors
    /// As [`acquire`](FileLock::acquire); no range is locked then.
    pub fn acquire_all(
        path: &Path,
        ranges: &[Range],
        mode: Mode,
        patience: Patience<'_>,
    ) -> Result<FileLock, StorageError> {
        let access = match mode {
            Mode::Shared => libc::O_RDONLY,
            Mode::Exclusive => libc::O_RDWR,
        };
        let started = Instant::now();
        loop {
            let fd = sys::open(path, access, 0)
                .map_err(|errno| StorageError::io("open for locking", path, errno))?;
            // From here on, dropping `lock` releases all ranges.
            let (ranges_held, pid) = (ranges.to_vec(), std::process::id());
            let lock = FileLock { fd, ranges: ranges_held, flocked: false, pid };
            for &range in ranges {
                wait_for(lock.fd(), path, range, mode, patience, started)?;
            }
            if still_named(lock.fd.as_raw_fd(), path) {
                return Ok(lock);
            }
        }
    }

    /// Locks a file for reading, together with other readers and with writers of elements in place.
    ///
    /// Processes that rewrite chunks are excluded: writers of outcore, and programs that have the
    /// file open for writing in the HDF5 library, unless `flocks` is false because no program uses
    /// that lock.
    ///
    /// # Errors
    /// [`StorageError::Locked`] while a writer of outcore has the lock, [`StorageError::InUse`]
    /// while another program has it, and as [`acquire`](FileLock::acquire).
    pub fn beside(
        path: &Path,
        flocks: bool,
        patience: Patience<'_>,
    ) -> Result<FileLock, StorageError> {
        let mut lock = FileLock::acquire(path, Range::WHOLE, Mode::Shared, patience)?;
        // On other systems the lock above is `flock` already.
        if cfg!(target_os = "linux") && flocks {
            let started = Instant::now();
            let outcome = poll(patience, started, || flock(lock.fd(), libc::LOCK_SH));
            lock.flocked = match outcome {
                Ok(()) => true,
                Err(Refused::Busy(waited)) => {
                    return Err(StorageError::InUse { path: path.to_path_buf(), waited })
                }
                Err(Refused::Cancelled) => return Err(StorageError::Cancelled),
                // A file system without `flock`: HDF5 cannot lock there either.
                Err(Refused::Errno(_)) => false,
            };
        }
        if cfg!(target_os = "linux") {
            // On an error the range stays locked until the guard is dropped.
            let _ = set(lock.fd(), Range::TURNSTILE, None);
        }
        Ok(lock)
    }

    /// Returns whether HDF5 libraries respect this lock.
    pub fn flocked(&self) -> bool {
        self.flocked
    }

    /// Returns device and inode of the locked file; `None` if the system call fails.
    pub fn inode(&self) -> Option<(u64, u64)> {
        // SAFETY: all zeroes is a valid `stat`.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open, the memory is large enough.
        let done = unsafe { libc::fstat(self.fd(), &mut stat) } == 0;
        // The fields' widths differ from one C library to the other.
        #[allow(clippy::unnecessary_cast)]
        done.then_some((stat.st_dev as u64, stat.st_ino as u64))
    }

    /// Descriptor of the locked file, open for reading (and writing, if the lock is exclusive).
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing releases the lock, unless a forked child still shares the description: therefore
        // the holder releases it explicitly, and the child must not.
        if self.pid == std::process::id() {
            // On an error, the close that follows releases the lock.
            for &range in &self.ranges {
                let _ = set(self.fd.as_raw_fd(), range, None);
            }
            if self.flocked {
                let _ = flock(self.fd.as_raw_fd(), libc::LOCK_UN);
            }
        }
    }
}

/// Reason why the lock was not taken.
enum Refused {
    Busy(Duration),
    Cancelled,
    Errno(i32),
}

fn wait_for(
    fd: RawFd,
    path: &Path,
    range: Range,
    mode: Mode,
    patience: Patience<'_>,
    started: Instant,
) -> Result<(), StorageError> {
    poll(patience, started, || set(fd, range, Some(mode))).map_err(|refused| match refused {
        Refused::Busy(waited) => StorageError::Locked { path: path.to_path_buf(), waited },
        Refused::Cancelled => StorageError::Cancelled,
        Refused::Errno(errno) => StorageError::io("lock", path, errno),
    })
}

/// Tries until the lock is free, or the wait ends.
fn poll(
    patience: Patience<'_>,
    started: Instant,
    attempt: impl Fn() -> Result<(), i32>,
) -> Result<(), Refused> {
    let mut pause = Duration::from_millis(1);
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(libc::EINTR) => continue,
            Err(libc::EAGAIN | libc::EACCES) => {}
            Err(errno) => return Err(Refused::Errno(errno)),
        }
        if patience.cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(Refused::Cancelled);
        }
        let waited = started.elapsed();
        if let Some(timeout) = patience.timeout {
            if waited >= timeout {
                return Err(Refused::Busy(waited));
            }
            pause = pause.min(timeout - waited);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).clamp(Duration::from_millis(1), Duration::from_millis(20));
    }
}

/// Locks a whole file as BSD does.
fn flock(fd: RawFd, operation: libc::c_int) -> Result<(), i32> {
    // SAFETY: plain numbers.
    match unsafe { libc::flock(fd, operation | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(crate::error::errno()),
    }
}

/// Locks a range, or releases it (no mode). If the file system has no such locks, threads of this
/// process still exclude each other ([`lock_table`]).
#[cfg(target_os = "linux")]
fn set(fd: RawFd, range: Range, mode: Option<Mode>) -> Result<(), i32> {
    match set_in_kernel(fd, range, mode) {
        Err(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => match mode {
            Some(mode) => lock_table::lock(fd, bytes(range), mode == Mode::Shared),
            None => {
                lock_table::release(fd, bytes(range));
                Ok(())
            }
        },
        Ok(()) if mode.is_none() => {
            lock_table::release(fd, bytes(range));
            Ok(())
        }
        done => done,
    }
}

/// Returns the first byte, and the end of the last.
#[cfg(target_os = "linux")]
fn bytes(range: Range) -> (i64, i64) {
    let end = if range.len == 0 { i64::MAX } else { range.start.saturating_add(range.len) };
    (range.start, end)
}

#[cfg(target_os = "linux")]
fn set_in_kernel(fd: RawFd, range: Range, mode: Option<Mode>) -> Result<(), i32> {
    // SAFETY: all zeroes is a valid `flock`; `l_pid` must be 0 for this kind of lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = match mode {
        Some(Mode::Shared) => libc::F_RDLCK,
        Some(Mode::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    } as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (range.start, range.len);
    // SAFETY: `lock` is valid for the call.
    match unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(crate::error::errno()),
    }
}

#[cfg(not(target_os = "linux"))]
fn set(fd: RawFd, _range: Range, mode: Option<Mode>) -> Result<(), i32> {
    flock(
        fd,
        match mode {
            Some(Mode::Shared) => libc::LOCK_SH,
            Some(Mode::Exclusive) => libc::LOCK_EX,
            None => libc::LOCK_UN,
        },
    )
}

/// Returns whether `path` still names the open file; false if it was replaced or removed.
fn still_named(fd: RawFd, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: all zeroes is a valid `stat`, and fstat writes nothing else.
    let mut open: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `open` is valid for writing.
    if unsafe { libc::fstat(fd, &mut open) } != 0 {
        return false;
    }
    std::fs::metadata(path)
        .is_ok_and(|named| (named.dev(), named.ino()) == (open.st_dev as u64, open.st_ino as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("outcore-lock-{name}-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        path
    }

    const FRONT: Range = Range { start: 0, len: 4 };
    const BACK: Range = Range { start: 4, len: 4 };

    #[test]
    fn threads_exclude_each_other_on_the_same_bytes_only() {
        let path = scratch("threads");
        let held = FileLock::acquire(&path, FRONT, Mode::Exclusive, Patience::NONE).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = FileLock::acquire(&path, FRONT, Mode::Shared, Patience::NONE);
                let error = other.unwrap_err();
                assert_eq!("locked", error.code());
                assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
                FileLock::acquire(&path, BACK, Mode::Exclusive, Patience::NONE).unwrap();
            });
        });
        // Closing an unrelated descriptor of the file does not release the lock.
        drop(std::fs::File::open(&path).unwrap());
        assert!(FileLock::acquire(&path, Range::WHOLE, Mode::Shared, Patience::NONE).is_err());
        drop(held);
        let first = FileLock::acquire(&path, FRONT, Mode::Shared, Patience::NONE).unwrap();
        let second = FileLock::acquire(&path, FRONT, Mode::Shared, Patience::NONE).unwrap();
        drop((first, second));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_released() {
        let path = scratch("waiter");
        let held = FileLock::acquire(&path, FRONT, Mode::Exclusive, Patience::NONE).unwrap();
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || {
                let long = Patience { timeout: Some(Duration::from_secs(20)), cancelled: None };
                FileLock::acquire(&path, FRONT, Mode::Exclusive, long).map(drop)
            })
        };
        std::thread::sleep(Duration::from_millis(30));
        assert!(!waiter.is_finished());
        drop(held);
        waiter.join().unwrap().unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn waiting_can_be_cancelled() {
        let path = scratch("cancel");
        let _held = FileLock::acquire(&path, FRONT, Mode::Exclusive, Patience::NONE).unwrap();
        let flag = AtomicBool::new(true);
        let patience = Patience { timeout: None, cancelled: Some(&flag) };
        let error = FileLock::acquire(&path, FRONT, Mode::Shared, patience).unwrap_err();
        assert_eq!(StorageError::Cancelled, error);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_was_replaced_while_waiting_is_not_the_one_that_gets_locked() {
        let (path, fresh) = (scratch("old"), scratch("fresh"));
        let held = FileLock::acquire(&path, FRONT, Mode::Exclusive, Patience::NONE).unwrap();
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || {
                FileLock::acquire(&path, FRONT, Mode::Exclusive, Patience::default())
            })
        };
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&fresh, b"fresh").unwrap();
        std::fs::rename(&fresh, &path).unwrap();
        drop(held);
        let lock = waiter.join().unwrap().unwrap();
        let mut seen = [0; 5];
        assert_eq!(Ok(5), sys::read_at(lock.fd(), &mut seen, 0));
        assert_eq!(b"fresh", &seen);
        assert!(FileLock::acquire(&path, FRONT, Mode::Shared, Patience::NONE).is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_reader_beside_hdf5_keeps_out_who_rewrites_chunks_and_lets_others_queue() {
        let path = scratch("beside");
        let library = std::fs::File::open(&path).unwrap();
        flock(library.as_raw_fd(), libc::LOCK_EX).unwrap();
        let refused = FileLock::beside(&path, true, Patience::NONE);
        assert!(matches!(refused, Err(StorageError::InUse { .. })), "{refused:?}");
        assert!(!FileLock::beside(&path, false, Patience::NONE).unwrap().flocked());
        flock(library.as_raw_fd(), libc::LOCK_SH).unwrap();
        let reader = FileLock::beside(&path, true, Patience::NONE).unwrap();
        assert!(reader.flocked());
        drop(FileLock::beside(&path, true, Patience::NONE).unwrap());
        assert!(flock(library.as_raw_fd(), libc::LOCK_EX).is_err());
        for range in [FRONT, BACK, Range::CONTENT] {
            assert!(FileLock::acquire(&path, range, Mode::Exclusive, Patience::NONE).is_err());
        }
        // A waiting writer holds the turnstile; no reader gets in before it.
        let writer = FileLock::acquire(&path, Range::TURNSTILE, Mode::Exclusive, Patience::NONE);
        let refused = FileLock::beside(&path, true, Patience::NONE);
        assert!(matches!(refused, Err(StorageError::Locked { .. })), "{refused:?}");
        drop(writer.unwrap());
        drop(reader);
        flock(library.as_raw_fd(), libc::LOCK_EX).unwrap();
        let content = FileLock::acquire(&path, Range::CONTENT, Mode::Exclusive, Patience::NONE);
        FileLock::acquire(&path, Range::TURNSTILE, Mode::Exclusive, Patience::NONE).unwrap();
        drop(content.unwrap());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_forked_child_neither_keeps_nor_releases_the_lock() {
        for lets_go in [true, false] {
            forked(lets_go);
        }
    }

    /// Forks a child that has the file, or that releases the lock before the parent does.
    fn forked(lets_go: bool) {
        let path = scratch(if lets_go { "fork" } else { "fork-kept" });
        let held = FileLock::acquire(&path, FRONT, Mode::Exclusive, Patience::NONE).unwrap();
        let mut pipe = [0; 2];
        // SAFETY: two ints are written.
        assert_eq!(0, unsafe { libc::pipe(pipe.as_mut_ptr()) });
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            if lets_go {
                drop(held);
            }
            let mut byte = [0u8];
            // SAFETY: waits until the parent closes the pipe, then leaves.
            unsafe {
                libc::close(pipe[1]);
                libc::read(pipe[0], byte.as_mut_ptr().cast(), 1);
                libc::_exit(0);
            }
        }
        std::thread::sleep(Duration::from_millis(30));
        assert!(FileLock::acquire(&path, FRONT, Mode::Shared, Patience::NONE).is_err());
        drop(held);
        FileLock::acquire(&path, FRONT, Mode::Exclusive, Patience::NONE).unwrap();
        // SAFETY: descriptors and the child of this test.
        unsafe {
            libc::close(pipe[1]);
            libc::close(pipe[0]);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        std::fs::remove_file(path).unwrap();
    }
}

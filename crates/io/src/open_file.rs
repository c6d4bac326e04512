//! An open file, with a second descriptor for direct I/O and a mapping on demand.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{sys, Request};
use crate::descriptors::{self, Places};
use crate::error::{ShortRead, StorageError, FLUSH};
use crate::flush::Trouble;
use crate::lease::Lease;
use crate::mapping::Mapping;
use crate::pool::Arena;

/// State of the descriptor for direct I/O.
#[derive(Debug, Default)]
enum Direct {
    /// Opened when it is needed.
    #[default]
    Unopened,
    Open(Arc<DirectFd>),
    /// The file system does not support it.
    Missing,
}

/// A counted descriptor for direct I/O.
#[derive(Debug)]
pub struct DirectFd {
    fd: OwnedFd,
    #[allow(dead_code, reason = "kept for its drop")]
    place: Places,
}

impl AsRawFd for DirectFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) writable: bool,
    fd: OwnedFd,
    direct: Mutex<Direct>,
    mapping: Mutex<Option<Arc<Mapping>>>,
    lease: Lease,
    /// Place in the budget of open files, unless the code that opened it holds one.
    #[allow(dead_code, reason = "kept for its drop")]
    place: Option<Places>,
}

impl AsRawFd for OpenFile {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl OpenFile {
    /// Opens a file for reading, or for reading and writing.
    pub fn open(path: &Path, writable: bool) -> Result<OpenFile, StorageError> {
        // Made first, so that a fork in the meantime is noticed.
        let lease = Lease::new();
        // The metadata of an array may name other files. If such a name leads to a pipe, opening it
        // must not wait for a writer.
        let opened = match open_with(path, writable, libc::O_NONBLOCK) {
            // Another process has a lease on the file; a blocking open makes it release the lease.
            Err(libc::EAGAIN) => open_with(path, writable, 0),
            opened => opened,
        };
        let fd = opened.map_err(|n| StorageError::io("open", path, n))?;
        if sys::regular_len(fd.as_raw_fd()).is_none() {
            return Err(StorageError::NotRegular { path: path.to_path_buf() });
        }
        Ok(OpenFile { lease, ..OpenFile::from_fd(path, fd, writable) })
    }

    /// Wraps a descriptor that is open already.
    pub fn from_fd(path: &Path, fd: OwnedFd, writable: bool) -> OpenFile {
        OpenFile {
            path: path.to_path_buf(),
            writable,
            fd,
            direct: Mutex::default(),
            mapping: Mutex::new(None),
            lease: Lease::shared(),
            place: None,
        }
    }

    /// Adds its place in the budget of open files.
    pub(crate) fn counted(self, place: Places) -> OpenFile {
        OpenFile { place: Some(place), ..self }
    }

    /// Returns the path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its state for claims.
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the descriptor that uses the page cache.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns the descriptor for direct I/O, which stays open while the result lives; `None` if
    /// the file system does not support it, or too many files are open.
    pub fn direct(&self) -> Option<Arc<DirectFd>> {
        let mut direct = self.lock_direct();
        if let Direct::Unopened = *direct {
            let place = descriptors::take_some(1);
            if place.number() == 0 {
                return None;
            }
            // Opened through `/proc`: its path may now name another file.
            let same = PathBuf::from(format!("/proc/self/fd/{}", self.fd()));
            let open = direct_flag().and_then(|flag| open_with(&same, self.writable, flag).ok());
            let counted = |fd| Direct::Open(Arc::new(DirectFd { fd, place }));
            *direct = open.map_or(Direct::Missing, counted);
        }
        match &*direct {
            Direct::Open(fd) => Some(Arc::clone(fd)),
            _ => None,
        }
    }

    /// Closes the descriptor for direct I/O, unless it is in use.
    pub(crate) fn release_direct(&self) {
        let mut direct = self.lock_direct();
        if matches!(&*direct, Direct::Open(fd) if Arc::strong_count(fd) == 1) {
            *direct = Direct::Unopened;
        }
    }

    fn lock_direct(&self) -> MutexGuard<'_, Direct> {
        self.direct.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current length, bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> Result<i64, StorageError> {
        Ok(self.stat()?.st_size)
    }

    /// Returns the current metadata of the file.
    pub(crate) fn stat(&self) -> Result<libc::stat, StorageError> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the descriptor is open, the memory is large enough.
        if unsafe { libc::fstat(self.fd(), stat.as_mut_ptr()) } != 0 {
            return Err(StorageError::last("stat", &self.path));
        }
        // SAFETY: fstat succeeded and filled it.
        Ok(unsafe { stat.assume_init() })
    }

    /// Returns device and inode, which identify the file on this machine.
    pub(crate) fn inode(&self) -> Result<(u64, u64), StorageError> {
        let stat = self.stat()?;
        // The fields' widths differ from one C library to the other.
        #[allow(clippy::unnecessary_cast)]
        Ok((stat.st_dev as u64, stat.st_ino as u64))
    }

    /// Returns a mapping of the whole file, made again if it is shorter than `needed` or has
    /// failed.
    pub fn mapping(&self, needed: i64, arena: &Arena) -> Result<Arc<Mapping>, StorageError> {
        let mut kept = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mapping) = kept.as_ref() {
            if mapping.serves(needed, arena) {
                return Ok(Arc::clone(mapping));
            }
        }
        let fresh = Arc::new(Mapping::new(self.fd(), &self.path, self.writable, arena)?);
        if let Some(old) = kept.replace(Arc::clone(&fresh)) {
            drop(kept);
            drop(old);
        }
        Ok(fresh)
    }

    /// Returns whether it was opened for writing.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Reads exactly `len` bytes.
    ///
    /// # Safety
    /// `memory` is valid for writes of `len` bytes.
    pub unsafe fn read_at(
        &self,
        offset: i64,
        memory: *mut u8,
        len: usize,
    ) -> Result<(), StorageError> {
        let fd = self.fd();
        let request = Request { tag: 0, fd, offset, len, memory, write: false, dontcache: false };
        // SAFETY: the caller's promise.
        match unsafe { sys::run(request) } {
            Ok(got) if got == len => Ok(()),
            Ok(_) => Err(self.short(offset, len)),
            Err(number) => Err(self.failed("read", offset, len, number)),
        }
    }

    /// Writes exactly `len` bytes.
    ///
    /// # Safety
    /// `memory` is valid for reads of `len` bytes.
    pub unsafe fn write_at(
        &self,
        offset: i64,
        memory: *const u8,
        len: usize,
    ) -> Result<(), StorageError> {
        let (fd, memory) = (self.fd(), memory.cast_mut());
        let request = Request { tag: 0, fd, offset, len, memory, write: true, dontcache: false };
        // SAFETY: the caller's promise; a write only reads the memory.
        match unsafe { sys::run(request) } {
            Ok(put) if put == len => Ok(()),
            Ok(_) => Err(self.failed("write", offset, len, libc::EIO)),
            Err(number) => Err(self.failed("write", offset, len, number)),
        }
    }

    /// Advises the kernel that bytes will be read soon; never fails.
    pub fn will_need(&self, offset: i64, len: i64) {
        #[cfg(target_os = "linux")]
        // SAFETY: the descriptor is open; the call takes no memory.
        unsafe {
            libc::posix_fadvise(self.fd(), offset, len, libc::POSIX_FADV_WILLNEED);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len);
    }

    /// Syncs everything written so far; part of the work of a [`Flushes`].
    ///
    /// # Errors
    /// `Lost` if the disk did not accept the data.
    pub fn settle(&self) -> Result<(), Trouble> {
        let lost = |number| Trouble::Lost(StorageError::io(FLUSH, &self.path, number));
        sys::sync(self.fd(), false).map_err(lost)
    }

    /// Starts write-back of a range, so that a later flush waits for less.
    pub fn send(&self, offset: i64, len: i64) {
        sys::send(self.fd(), offset, len);
    }

    /// Makes the error for a file that ended within a read.
    pub fn short(&self, offset: i64, len: usize) -> StorageError {
        let (len, file_len) = (len as i64, self.len().unwrap_or(-1));
        StorageError::ShortRead(ShortRead { path: self.path.clone(), offset, len, file_len })
    }

    /// Makes the error for a failed transfer.
    pub fn failed(&self, op: &'static str, offset: i64, len: usize, errno: i32) -> StorageError {
        StorageError::io_at(op, &self.path, offset, len as i64, errno)
    }
}

fn open_with(path: &Path, writable: bool, extra: libc::c_int) -> Result<OwnedFd, i32> {
    let mode = if writable { libc::O_RDWR } else { libc::O_RDONLY };
    sys::open(path, mode | extra, 0)
}

#[cfg(target_os = "linux")]
fn direct_flag() -> Option<libc::c_int> {
    Some(libc::O_DIRECT)
}

#[cfg(not(target_os = "linux"))]
fn direct_flag() -> Option<libc::c_int> {
    None
}

//! The system calls that touch files, in one place.
//!
//! Problem: crash and fault tests must see every write, sync and rename in order, and must be able
//! to make any of them fail, anywhere in the crate.
//!
//! Idea: the plain paths of the executor, `durable` and the chunk stores call the functions here.
//! Without feature `testing` they are thin wrappers. With it, each queries the armed fault plan
//! first and reports to its log afterwards (`backend::faulty`); requests that go through an engine
//! are seen by the wrapped engine instead.
//!
//! Errors are plain error numbers: only the caller knows the path and the operation. `EINTR` is
//! handled here.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::call::{errno, retried};
pub(crate) use super::call::{regular_len, stat};
pub(crate) use super::hook::Hook;
pub use super::hook::{Errno, Kind};
use super::progress::{Progress, Step};
use super::request::Request;
use crate::descriptors::{self, is_shortage};

#[cfg(feature = "testing")]
use super::faulty as hooks;

/// Without feature `testing`, there are no queries and no log.
#[cfg(not(feature = "testing"))]
mod hooks {
    use super::{Hook, Kind, Path, RawFd};

    #[inline(always)]
    pub(super) fn hook_fd(_: Kind, _: RawFd, _: i64, _: usize) -> Hook {
        Hook::Go
    }
    #[inline(always)]
    pub(super) fn hook_path(_: Kind, _: &Path) -> Hook {
        Hook::Go
    }
    #[inline(always)]
    pub(super) fn wrote(_: RawFd, _: i64, _: &[u8]) {}
    #[inline(always)]
    pub(super) fn resized(_: RawFd, _: i64) {}
    #[inline(always)]
    pub(super) fn synced(_: RawFd) {}
    #[inline(always)]
    pub(super) fn opened(_: RawFd, _: &Path, _: i32, _: bool) {}
    #[inline(always)]
    pub(super) fn renamed(_: &Path, _: &Path) {}
    #[inline(always)]
    pub(super) fn exchanged(_: &Path, _: &Path) {}
    #[inline(always)]
    pub(super) fn unlinked(_: &Path) {}
    #[inline(always)]
    pub(super) fn armed() -> bool {
        false
    }
}

fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)
}

/// Runs one `pread` or `pwrite`, unseen by fault plans; for the threads of engines.
///
/// # Safety
/// The memory of the request must be valid for the transfer.
pub(crate) unsafe fn transfer(request: &Request) -> Result<usize, Errno> {
    let Request { fd, offset, len, memory, write, dontcache, .. } = *request;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if dontcache {
        let part = libc::iovec { iov_base: memory.cast(), iov_len: len };
        // SAFETY: the caller guarantees the memory; `part` lives until the call returns.
        let count = unsafe {
            if write {
                libc::pwritev2(fd, &part, 1, offset, libc::RWF_DONTCACHE)
            } else {
                libc::preadv2(fd, &part, 1, offset, libc::RWF_DONTCACHE)
            }
        };
        return if count < 0 { Err(errno()) } else { Ok(count as usize) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = dontcache;
    // SAFETY: the caller guarantees the memory.
    let count = unsafe {
        if write {
            libc::pwrite(fd, memory.cast(), len, offset)
        } else {
            libc::pread(fd, memory.cast(), len, offset)
        }
    };
    if count < 0 {
        Err(errno())
    } else {
        Ok(count as usize)
    }
}

/// Runs a request to its end on this thread, without an engine; fault plans see it.
///
/// Returns the transferred bytes; fewer than requested only at the end of the file.
///
/// # Errors
/// The error number of the system call.
///
/// # Safety
/// The memory of the request must be valid for the transfer.
pub unsafe fn run(request: Request) -> Result<usize, Errno> {
    let kind = if request.write { Kind::Write } else { Kind::Read };
    let mut progress = Progress::new(request);
    loop {
        let mut rest = progress.rest();
        let mut ends = false;
        match hooks::hook_fd(kind, rest.fd, rest.offset, rest.len) {
            Hook::Go => {}
            Hook::Short(most) => rest.len = rest.len.min(most.max(1)),
            Hook::End(most) => (rest.len, ends) = (rest.len.min(most), true),
            Hook::Fail(errno) => return Err(errno),
        }
        // SAFETY: the caller's promise, for a part of the memory.
        let result = unsafe { transfer(&rest) };
        if let (Ok(count), true) = (result, rest.write && hooks::armed()) {
            // SAFETY: the kernel has just read `count` bytes from there.
            hooks::wrote(rest.fd, rest.offset, unsafe {
                std::slice::from_raw_parts(rest.memory, count)
            });
        }
        match progress.advance(result) {
            Step::Finished(completion) => return completion.result,
            Step::Again if ends => return Ok((progress.rest().offset - request.offset) as usize),
            Step::Again => {}
        }
    }
}

/// Reads until `into` is full or the file ends; returns the bytes read.
///
/// # Errors
/// The error number of the system call.
pub fn read_at(fd: RawFd, into: &mut [u8], offset: i64) -> Result<usize, Errno> {
    let (memory, len) = (into.as_mut_ptr(), into.len());
    let request = Request { tag: 0, fd, offset, len, memory, write: false, dontcache: false };
    // SAFETY: `into` is valid for writing and borrowed for the call.
    unsafe { run(request) }
}

/// Writes all of `bytes`.
///
/// # Errors
/// The error number of the system call; some bytes may have been written.
pub fn write_at(fd: RawFd, bytes: &[u8], offset: i64) -> Result<(), Errno> {
    let (memory, len) = (bytes.as_ptr().cast_mut(), bytes.len());
    let request = Request { tag: 0, fd, offset, len, memory, write: true, dontcache: false };
    // SAFETY: a write only reads the memory, which is borrowed for the call.
    match unsafe { run(request) } {
        Ok(count) if count == len => Ok(()),
        // Only a fault plan ends a write early without an error.
        Ok(_) => Err(libc::EIO),
        Err(errno) => Err(errno),
    }
}

/// Reports bytes that reached a file through a mapping to the log of an armed fault plan.
pub fn note_mapped_write(fd: RawFd, offset: i64, bytes: &[u8]) {
    if hooks::armed() {
        hooks::wrote(fd, offset, bytes);
    }
}

/// A name for system calls: relative to an open folder, or the whole path.
#[derive(Debug)]
pub(crate) struct Spot<'a> {
    dir: RawFd,
    name: CString,
    /// The whole path, for the log.
    path: &'a Path,
}

impl<'a> Spot<'a> {
    /// Makes a name below the open folder `dir`, which must stay open.
    pub(crate) fn new(dir: RawFd, name: CString, path: &'a Path) -> Spot<'a> {
        Spot { dir, name, path }
    }

    /// Refers to an open file itself.
    pub(crate) fn open(fd: RawFd) -> Spot<'static> {
        Spot { dir: fd, name: CString::default(), path: Path::new("") }
    }

    /// Returns the path if the system call uses the whole path.
    pub(crate) fn whole(&self) -> Option<&'a Path> {
        (self.dir == libc::AT_FDCWD).then_some(self.path)
    }

    /// Returns the whole path, unresolved.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// Makes a name from a whole path.
    pub(crate) fn of(path: &'a Path) -> Result<Spot<'a>, Errno> {
        Ok(Spot { dir: libc::AT_FDCWD, name: c_path(path)?, path })
    }
}

/// `open(2)` with `O_CLOEXEC`; `flags` as in libc.
///
/// # Errors
/// The error number of the system call.
pub fn open(path: &Path, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    open_at(&Spot::of(path)?, flags, mode)
}

/// Opens a name below an open folder.
pub(crate) fn open_at(spot: &Spot, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    let creates = flags & libc::O_CREAT != 0;
    if creates {
        if let Hook::Fail(errno) = hooks::hook_path(Kind::Create, spot.path) {
            return Err(errno);
        }
    }
    let is_new = creates && hooks::armed() && !spot.path.exists();
    let fd = open_call(spot, flags, mode)?;
    hooks::opened(fd.as_raw_fd(), spot.path, flags, is_new);
    Ok(fd)
}

/// Repeats an open once after closing idle files, if too many files are open.
fn with_a_place(mut call: impl FnMut() -> i64) -> Result<i64, Errno> {
    match retried(&mut call) {
        Err(errno) if is_shortage(errno) && descriptors::release_idle() > 0 => retried(call),
        other => other,
    }
}

/// Opens a name without recording it in the log.
pub(crate) fn open_call(spot: &Spot, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: a NUL-terminated string and plain numbers.
    let fd = with_a_place(|| unsafe {
        let flags = flags | libc::O_CLOEXEC;
        i64::from(libc::openat(spot.dir, spot.name.as_ptr(), flags, mode as libc::c_uint))
    })?;
    // SAFETY: the descriptor was just opened, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Reports a file that was opened in another way to the log of an armed fault plan.
pub(crate) fn note_opened(fd: RawFd, path: &Path, flags: i32) {
    hooks::opened(fd, path, flags, false);
}

/// Makes a folder in an open folder; an existing one is not an error.
pub(crate) fn make_folder(dir: RawFd, name: &CStr) -> Result<(), Errno> {
    // SAFETY: a NUL-terminated string and plain numbers.
    match retried(|| unsafe { i64::from(libc::mkdirat(dir, name.as_ptr(), 0o777)) }) {
        Ok(_) | Err(libc::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Returns the metadata of the file that a name leads to, or of the link itself with `link`.
///
/// # Errors
/// The error number of the system call.
pub(crate) fn stat_at(spot: &Spot, link: bool) -> Result<libc::stat, Errno> {
    if let Hook::Fail(errno) = hooks::hook_path(Kind::Look, spot.path) {
        return Err(errno);
    }
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let flags = if link { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
    // SAFETY: a NUL-terminated string; `stat` is valid for writing.
    retried(|| unsafe {
        i64::from(libc::fstatat(spot.dir, spot.name.as_ptr(), &raw mut stat, flags))
    })?;
    Ok(stat)
}

/// Returns device and inode of an open file, or of the file that a name leads to, and its birth
/// time in nanoseconds, or 0 if it is unknown.
///
/// # Errors
/// The error number of the system call.
pub(crate) fn identify(spot: &Spot) -> Result<((u64, u64), i128), Errno> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: all zeroes is a valid `statx`.
        let mut found: libc::statx = unsafe { std::mem::zeroed() };
        let wanted = libc::STATX_INO | libc::STATX_BTIME;
        // SAFETY: a NUL-terminated string; `found` is valid for writing.
        let told = retried(|| unsafe {
            let flags = libc::AT_EMPTY_PATH;
            let name = spot.name.as_ptr();
            i64::from(libc::statx(spot.dir, name, flags, wanted, &raw mut found))
        });
        match told {
            Ok(_) => {
                let born = match found.stx_mask & libc::STATX_BTIME {
                    0 => 0,
                    _ => {
                        let at = found.stx_btime;
                        i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec)
                    }
                };
                let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
                return Ok(((device, found.stx_ino), born));
            }
            // A kernel, or a sandbox, without the call.
            Err(libc::ENOSYS | libc::EPERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    let found = match spot.name.is_empty() {
        true => stat(spot.dir)?,
        false => stat_at(spot, false)?,
    };
    #[allow(clippy::unnecessary_cast, reason = "the fields' widths differ between systems")]
    Ok(((found.st_dev as u64, found.st_ino as u64), 0))
}

/// Starts write-back of a range of a file; may wait while the queue of the disk is full. A later
/// `fsync` reports errors.
pub fn send(fd: RawFd, offset: i64, len: i64) {
    #[cfg(target_os = "linux")]
    // SAFETY: takes no memory; an invalid descriptor is only an error.
    unsafe {
        libc::sync_file_range(fd, offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (fd, offset, len);
}

/// Calls `fsync` (or, if length and times do not matter, `fdatasync`) on a file or folder.
///
/// # Errors
/// The error number of the system call.
pub fn sync(fd: RawFd, data_only: bool) -> Result<(), Errno> {
    if let Hook::Fail(errno) = hooks::hook_fd(Kind::Sync, fd, 0, 0) {
        return Err(errno);
    }
    // SAFETY: plain numbers.
    retried(|| unsafe { i64::from(sync_call(fd, data_only)) })?;
    hooks::synced(fd);
    Ok(())
}

#[cfg(target_os = "linux")]
unsafe fn sync_call(fd: RawFd, data_only: bool) -> i32 {
    // SAFETY: plain numbers.
    unsafe {
        if data_only {
            libc::fdatasync(fd)
        } else {
            libc::fsync(fd)
        }
    }
}

#[cfg(not(target_os = "linux"))]
unsafe fn sync_call(fd: RawFd, _data_only: bool) -> i32 {
    // SAFETY: plain numbers.
    unsafe { libc::fsync(fd) }
}

/// Renames; with `exclusive`, fails (`EEXIST`) if `to` exists.
///
/// # Errors
/// The error number of the system call.
pub(crate) fn rename(from: &Spot, to: &Spot, exclusive: bool) -> Result<(), Errno> {
    if let Hook::Fail(errno) = hooks::hook_path(Kind::Rename, to.path) {
        return Err(errno);
    }
    if exclusive {
        rename_exclusive(from, to)?;
    } else {
        rename_call(from, to)?;
    }
    hooks::renamed(from.path, to.path);
    Ok(())
}

/// Renames without replacing, in one of three ways, depending on the file system.
///
/// First, the system's own call. Second, a second name, which fails if the name exists already,
/// after which the first name is removed. Third, if there are no second names either (a folder
/// never has any), an empty file or folder that takes the name if it is free, and is replaced
/// immediately. A crash in between leaves both names of one file, which is harmless, or the empty
/// file or folder, which readers take for damage and not for data.
fn rename_exclusive(from: &Spot, to: &Spot) -> Result<(), Errno> {
    match renameat2(Kind::RenameNew, from, to, NOREPLACE) {
        Err(errno) if unknown(errno) => {}
        other => return other,
    }
    match link(from, to) {
        Err(errno) if unknown(errno) => {}
        // If the answer of a server was lost, the request is repeated, and finds the name that it
        // made.
        Err(libc::EEXIST) if !same_file(from, to) => return Err(libc::EEXIST),
        Ok(()) | Err(libc::EEXIST) => {
            // The file has its name; if the other name stays, the next writer removes it.
            let _ = unlink_call(from);
            return Ok(());
        }
        Err(errno) => return Err(errno),
    }
    if is_folder(from) {
        return take_name_of_folder(from, to);
    }
    let empty = open_at(to, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o666)?;
    let result = rename_call(from, to);
    if result.is_err() && names(to, empty.as_raw_fd()) {
        // The first failure is reported.
        let _ = unlink(to);
    }
    result
}

/// Does the same with an empty folder, which a rename replaces only while it is empty.
fn take_name_of_folder(from: &Spot, to: &Spot) -> Result<(), Errno> {
    // SAFETY: a NUL-terminated string and plain numbers.
    retried(|| unsafe { i64::from(libc::mkdirat(to.dir, to.name.as_ptr(), 0o777)) })?;
    let result = rename_call(from, to);
    if result.is_err() {
        let flags = libc::AT_REMOVEDIR;
        // SAFETY: as above. If the folder is no longer empty, it stays.
        let _ = retried(|| unsafe { i64::from(libc::unlinkat(to.dir, to.name.as_ptr(), flags)) });
    }
    result
}

/// Returns whether a name, without following links, is that of a folder.
pub(crate) fn is_folder(spot: &Spot) -> bool {
    stat_at(spot, true).is_ok_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

/// Returns whether an error may mean that the system, file system or sandbox lacks a call. If
/// `EPERM` is a real refusal, the other ways fail as well.
pub(crate) fn unknown(errno: Errno) -> bool {
    matches!(errno, libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM)
}

/// Exchanges two names in one step; see [`unknown`] for systems that cannot.
///
/// # Errors
/// The error number of the system call.
pub(crate) fn exchange(one: &Spot, other: &Spot) -> Result<(), Errno> {
    renameat2(Kind::Exchange, one, other, EXCHANGE)?;
    hooks::exchanged(one.path, other.path);
    Ok(())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
const NOREPLACE: libc::c_uint = libc::RENAME_NOREPLACE;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const EXCHANGE: libc::c_uint = libc::RENAME_EXCHANGE;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const NOREPLACE: libc::c_uint = 0;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const EXCHANGE: libc::c_uint = 0;

fn renameat2(kind: Kind, from: &Spot, to: &Spot, flags: libc::c_uint) -> Result<(), Errno> {
    if let Hook::Fail(errno) = hooks::hook_path(kind, to.path) {
        return Err(errno);
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: two NUL-terminated strings.
        let result = retried(|| unsafe {
            let (old, new) = (from.name.as_ptr(), to.name.as_ptr());
            i64::from(libc::renameat2(from.dir, old, to.dir, new, flags))
        });
        result.map(|_| ())
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = (from, flags);
        Err(libc::ENOSYS)
    }
}

fn link(from: &Spot, to: &Spot) -> Result<(), Errno> {
    if let Hook::Fail(errno) = hooks::hook_path(Kind::Link, to.path) {
        return Err(errno);
    }
    // SAFETY: two NUL-terminated strings.
    let result = retried(|| unsafe {
        i64::from(libc::linkat(from.dir, from.name.as_ptr(), to.dir, to.name.as_ptr(), 0))
    });
    result.map(|_| ())
}

fn rename_call(from: &Spot, to: &Spot) -> Result<(), Errno> {
    // SAFETY: two NUL-terminated strings.
    let result = retried(|| unsafe {
        i64::from(libc::renameat(from.dir, from.name.as_ptr(), to.dir, to.name.as_ptr()))
    });
    result.map(|_| ())
}

fn same_file(one: &Spot, other: &Spot) -> bool {
    let id = |spot| stat_at(spot, true).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns whether a name is that of an open file.
pub(crate) fn names(spot: &Spot, fd: RawFd) -> bool {
    let (open, named) = (stat(fd), stat_at(spot, true));
    matches!((open, named), (Ok(open), Ok(named))
        if (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino))
}

/// Returns the name of this machine; empty if it has none.
pub(crate) fn node_name() -> Vec<u8> {
    // SAFETY: all zeroes is a valid `utsname`.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is valid for writing. If the call fails, the name stays empty.
    unsafe { libc::uname(&mut name) };
    name.nodename.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect()
}

/// Holder of the lock on a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This descriptor, from now on until its last copy is closed.
    We,
    /// Another descriptor.
    Another,
    /// Unknown: the file system has no locks.
    Unknown,
}

/// Tries to lock a whole file (`flock`), without waiting.
pub(crate) fn hold(fd: RawFd) -> Holder {
    // SAFETY: plain numbers.
    match retried(|| unsafe { i64::from(libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB)) }) {
        Ok(_) => Holder::We,
        Err(libc::EWOULDBLOCK) => Holder::Another,
        Err(_) => Holder::Unknown,
    }
}

/// `unlink`.
///
/// # Errors
/// The error number of the system call.
pub(crate) fn unlink(spot: &Spot) -> Result<(), Errno> {
    if let Hook::Fail(errno) = hooks::hook_path(Kind::Unlink, spot.path) {
        return Err(errno);
    }
    unlink_call(spot)?;
    hooks::unlinked(spot.path);
    Ok(())
}

fn unlink_call(spot: &Spot) -> Result<(), Errno> {
    // SAFETY: a NUL-terminated string and plain numbers.
    retried(|| unsafe { i64::from(libc::unlinkat(spot.dir, spot.name.as_ptr(), 0)) }).map(|_| ())
}

/// `ftruncate`.
///
/// # Errors
/// The error number of the system call.
pub fn truncate(fd: RawFd, len: i64) -> Result<(), Errno> {
    if let Hook::Fail(errno) = hooks::hook_fd(Kind::Truncate, fd, len, 0) {
        return Err(errno);
    }
    // SAFETY: plain numbers.
    retried(|| unsafe { i64::from(libc::ftruncate(fd, len)) })?;
    hooks::resized(fd, len);
    Ok(())
}

/// Reserves disk space for `len` bytes from byte `offset` on and makes the file at least that long.
///
/// # Errors
/// `ENOSPC` if the disk is too full; `EOPNOTSUPP` if the file system cannot reserve.
pub fn allocate(fd: RawFd, offset: i64, len: i64) -> Result<(), Errno> {
    if let Hook::Fail(errno) = hooks::hook_fd(Kind::Allocate, fd, 0, 0) {
        return Err(errno);
    }
    #[cfg(target_os = "linux")]
    {
        let before = regular_len(fd).unwrap_or(0);
        // SAFETY: plain numbers.
        retried(|| unsafe { i64::from(libc::fallocate(fd, 0, offset, len)) })?;
        hooks::resized(fd, before.max(offset + len));
        Ok(())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (offset, len);
        Err(libc::EOPNOTSUPP)
    }
}

/// Bytes in one step of a copy outside the kernel, on the stack.
const COPY: usize = 32 << 10;

/// Copies bytes from one file to another, inside the kernel if possible; returns the copied bytes,
/// fewer than requested only if `from` ends.
///
/// # Errors
/// The error number of the system call; some bytes may have been copied.
pub fn copy_range(
    from: RawFd,
    from_at: i64,
    to: RawFd,
    to_at: i64,
    len: i64,
) -> Result<i64, Errno> {
    let mut done = copy_in_kernel(from, from_at, to, to_at, len)?;
    let mut buffer = [0; COPY];
    while done < len {
        let part = &mut buffer[..COPY.min((len - done) as usize)];
        let got = read_at(from, part, from_at + done)?;
        if got == 0 {
            break;
        }
        write_at(to, &buffer[..got], to_at + done)?;
        done += got as i64;
    }
    Ok(done)
}

/// Copies inside the kernel; returns 0 if it cannot, or if a fault plan is armed.
#[cfg(target_os = "linux")]
fn copy_in_kernel(
    from: RawFd,
    mut from_at: i64,
    to: RawFd,
    mut to_at: i64,
    len: i64,
) -> Result<i64, Errno> {
    let mut done = 0;
    while done < len && !hooks::armed() {
        let rest = (len - done).min(1 << 30) as usize;
        // SAFETY: both offsets are valid for writing; the rest are plain numbers.
        let copied = retried(|| unsafe {
            libc::copy_file_range(from, &mut from_at, to, &mut to_at, rest, 0) as i64
        });
        match copied {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(errno @ (libc::ENOSPC | libc::EDQUOT | libc::EIO)) => return Err(errno),
            // Different file systems, or one that does not support it.
            Err(_) => break,
        }
    }
    Ok(done)
}

#[cfg(not(target_os = "linux"))]
fn copy_in_kernel(_: RawFd, _: i64, _: RawFd, _: i64, _: i64) -> Result<i64, Errno> {
    Ok(0)
}

/// Allocates the blocks of a range inside the file; nothing else changes.
///
/// Succeeds if the file system does not support it. Fails with an errno.
pub(crate) fn reserve_range(fd: RawFd, offset: i64, len: i64) -> Result<(), i32> {
    #[cfg(target_os = "linux")]
    // SAFETY: plain numbers.
    if unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, offset, len) } != 0 {
        return match crate::error::errno() {
            libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL => Ok(()),
            number => Err(number),
        };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (fd, offset, len);
    Ok(())
}

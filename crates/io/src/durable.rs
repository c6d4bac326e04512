//! Files that appear or change in one step: after a crash a file has its old bytes or its new ones.
//!
//! Idea: write to a temporary file in the same folder, `fsync` it, `rename` it over the final name,
//! `fsync` the folder. The order matters: a rename that reaches the disk before the bytes would
//! leave the final name on an empty file, and without the last step the name itself may be lost.
//!
//! Invariants:
//! - a file is published only after its bytes are synced, and an error of `fsync` is never retried
//!   (the kernel forgets the pages that it could not write, so a second try "succeeds");
//! - a [`TempFile`] that was not published is removed on drop; a killed process leaves a temporary
//!   name (`temporary.rs`), never a broken NAME;
//! - a leftover is removed by the next process that makes a temporary file for NAME on that
//!   machine: such names are few and known, so no folder is searched;
//! - users never see a temporary name: errors name the final one;
//! - all calls go through [`sys`], where tests inject faults and log the order.
//!
//! Paper: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::backend::sys::{self, Errno, Holder, Spot};
use crate::beneath::{self, Beneath, Missing};
use crate::error::StorageError;
use crate::temporary::{self, Age, Fate};

/// Permissions of new files before the process's umask.
const NEW_FILE: u32 = 0o666;

/// Links that are followed in a path; the limit of Linux.
const LINKS: usize = 40;
/// Attempts if a name appears or disappears concurrently.
const TRIES: usize = 4;

/// Writer of a temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Any owner of its descriptor; the file is locked from the beginning.
    Descriptor,
    /// A library that opens the file by its name and locks it itself. The file is locked when the
    /// library is done. Its name is one under which only old files are orphans.
    Library,
}

/// A file under a temporary name next to its final place; removed on drop unless published.
///
/// Its errors name the final path.
#[derive(Debug)]
pub struct TempFile {
    fd: OwnedFd,
    path: PathBuf,
    target: PathBuf,
    /// Folder from which its folder is found, when it is made and when it gets its name.
    root: Option<Arc<Beneath>>,
    /// Permissions of the file that it replaces.
    mode: Option<libc::mode_t>,
    writer: Writer,
    published: bool,
    pid: u32,
}

/// Returns the path of the file to make if `path` may be a link.
fn followed(path: &Path) -> PathBuf {
    // Another thread may change the current folder of the process in the meantime.
    let mut target = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for _ in 0..LINKS {
        match (std::fs::read_link(&target), target.parent()) {
            (Ok(to), Some(folder)) => target = folder.join(to),
            _ => break,
        }
    }
    target
}

/// Returns the folder of a file, found from `root` or by its path.
fn folder<'a>(
    root: Option<&'a Beneath>,
    path: &Path,
    missing: Missing,
) -> Result<beneath::Holder<'a>, StorageError> {
    root.map_or(Ok(beneath::Holder::Anywhere), |root| root.holder(path, missing))
}

impl TempFile {
    /// Creates an empty file in the folder of `target`, open for reading and writing.
    ///
    /// # Errors
    /// `Io` if a system call fails.
    pub fn beside(target: &Path) -> Result<TempFile, StorageError> {
        TempFile::make(target, None, Writer::Descriptor)
    }

    /// Creates an empty file as [`beside`](TempFile::beside), below an open folder out of which no
    /// link leads; makes missing folders.
    ///
    /// # Errors
    /// `link-leads-out`, and `Io` if a system call fails.
    pub fn below(root: &Arc<Beneath>, target: &Path) -> Result<TempFile, StorageError> {
        TempFile::make(target, Some(root), Writer::Descriptor)
    }

    /// Creates a file that will replace `path`, following links, with the permissions of the old
    /// file.
    ///
    /// With `exclusive`, `path` must not exist.
    ///
    /// # Errors
    /// `already-exists`; `Io` if `path` is a folder, or a system call fails.
    pub fn replacing(
        path: &Path,
        exclusive: bool,
        writer: Writer,
    ) -> Result<TempFile, StorageError> {
        let target = followed(path);
        let refuse = |errno| Err(StorageError::io("create", path, errno));
        let found = Spot::of(&target).and_then(|spot| sys::stat_at(&spot, false));
        let mode = match found {
            Ok(_) if exclusive => return refuse(libc::EEXIST),
            Ok(found) if found.st_mode & libc::S_IFMT == libc::S_IFDIR => {
                return refuse(libc::EISDIR)
            }
            Ok(found) => Some(found.st_mode & 0o7777),
            Err(libc::ENOENT) => None,
            Err(errno) => return refuse(errno),
        };
        if writer == Writer::Library {
            temporary::remove_left(&target, Age::Hour);
        }
        let mut file = TempFile::make(&target, None, writer)?;
        file.mode = mode;
        Ok(file)
    }

    fn make(
        target: &Path,
        root: Option<&Arc<Beneath>>,
        writer: Writer,
    ) -> Result<TempFile, StorageError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let pid = std::process::id();
        let folder = folder(root.map(|root| &**root), target, Missing::Make)?;
        let made = |fd, path| {
            let (target, root) = (target.to_path_buf(), root.cloned());
            TempFile { fd, path, target, root, mode: None, writer, published: false, pid }
        };
        let refused = |errno| StorageError::io("create", target, errno);
        let ours = writer == Writer::Descriptor;
        for place in 0..if ours { PLACES } else { 0 } {
            let mark = if place == 0 { String::new() } else { place.to_string() };
            let path = temporary::name(target, &mark);
            let taken = folder.spot(&path).and_then(|spot| take(&spot));
            if let Some(fd) = taken.map_err(refused)? {
                return Ok(made(fd, path));
            }
        }
        // More processes than there are places make the same file concurrently, or a library makes
        // it.
        loop {
            let mark = format!("{pid}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
            let path = temporary::name(target, &mark);
            // The name may be taken: by a leftover of a killed process that had the same id.
            let created = folder.spot(&path).and_then(|spot| create(&spot));
            if let Some(fd) = created.map_err(refused)? {
                if ours {
                    sys::hold(fd.as_raw_fd());
                }
                return Ok(made(fd, path));
            }
        }
    }

    /// Descriptor of the open file.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Final path.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// `Io` if a system call fails; some bytes may have been written.
    pub fn write(&self, bytes: &[u8], offset: i64) -> Result<(), StorageError> {
        let fail = |n| StorageError::io_at("write", &self.target, offset, bytes.len() as i64, n);
        sys::write_at(self.fd(), bytes, offset).map_err(fail)
    }

    /// Sets the length, with all blocks; see [`reserve`].
    ///
    /// # Errors
    /// `disk-full`, with the number of bytes.
    pub fn reserve(&self, len: i64) -> Result<(), StorageError> {
        reserve(self.fd(), &self.target, 0, len)
    }

    /// Waits until the bytes are on the disk.
    ///
    /// # Errors
    /// As [`sync`].
    pub fn sync(&self) -> Result<(), StorageError> {
        sync(self.fd(), &self.target)
    }

    /// Sets the permissions of the replaced file, syncs the file, renames it to its final name and
    /// syncs the folder.
    ///
    /// With `exclusive`, an existing file of that name is not changed, and is reported
    /// (`already-exists`).
    ///
    /// # Errors
    /// `Io` if a system call fails; the temporary file is then removed. Before the rename, the file
    /// of that name is unchanged.
    pub fn publish(self, exclusive: bool) -> Result<(), StorageError> {
        if self.writer == Writer::Library {
            sys::hold(self.fd());
        }
        self.keep_mode()?;
        self.sync()?;
        let target = self.target.clone();
        self.install(exclusive)?;
        sync_folder_of(&target)
    }

    fn keep_mode(&self) -> Result<(), StorageError> {
        let Some(mode) = self.mode else { return Ok(()) };
        // SAFETY: plain numbers.
        match unsafe { libc::fchmod(self.fd(), mode) } {
            0 => Ok(()),
            _ => Err(StorageError::last("set permissions", &self.target)),
        }
    }

    /// Renames the file to its final name without waiting for the disk.
    ///
    /// After a crash of the machine the name may be missing until the folder is synced, or its
    /// bytes incomplete without [`sync`](Self::sync). With `exclusive`, an existing file is not
    /// changed, and is reported (`already-exists`).
    ///
    /// # Errors
    /// `Io` if a system call fails; the target is then unchanged and the temporary file removed.
    pub fn install(mut self, exclusive: bool) -> Result<(), StorageError> {
        let renamed = {
            let folder = folder(self.root.as_deref(), &self.target, Missing::Refuse)?;
            let from = folder.spot(&self.path);
            from.and_then(|from| sys::rename(&from, &folder.spot(&self.target)?, exclusive))
        };
        renamed.map_err(|errno| StorageError::io("rename", &self.target, errno))?;
        self.published = true;
        Ok(())
    }
}

/// Number of temporary names for one file that all processes of a machine know; a leftover has one
/// of them, unless more processes than this made the file concurrently.
const PLACES: usize = 8;

/// Creates and locks a new file with a known temporary name; `None` if another process is making
/// it.
///
/// Its maker locks it before it is used. A process that finds it unlocked removes it, and only
/// while the name is that of the locked file; a maker that locks its own file too late finds the
/// name gone.
fn take(spot: &Spot) -> Result<Option<OwnedFd>, Errno> {
    for _ in 0..TRIES {
        match create(spot)? {
            Some(fd) => match sys::hold(fd.as_raw_fd()) {
                Holder::We if !sys::names(spot, fd.as_raw_fd()) => {}
                // Another process considers it abandoned, and will remove it.
                Holder::Another => return Ok(None),
                Holder::We | Holder::Unknown => return Ok(Some(fd)),
            },
            None if temporary::remove(spot, Age::Any) == Fate::Gone => {}
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Creates a new file, open for reading and writing; `None` if the name exists.
fn create(spot: &Spot) -> Result<Option<OwnedFd>, Errno> {
    match sys::open_at(spot, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, NEW_FILE) {
        Ok(fd) => Ok(Some(fd)),
        Err(libc::EEXIST) => Ok(None),
        Err(errno) => Err(errno),
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A forked child must not remove its parent's files.
        if !self.published && self.pid == std::process::id() {
            // An error cannot be reported here; the next maker of the file removes it.
            let folder = folder(self.root.as_deref(), &self.path, Missing::Refuse);
            let _ = folder.map(|folder| sys::unlink(&folder.spot(&self.path)?));
        }
    }
}

/// Renames a complete, durable file or folder to `target`, durably; returns the path of the old
/// one.
///
/// `target` is replaced in one step. If both are files, the old one is gone; otherwise they
/// exchange names. If the system cannot do that, the old one is renamed to `aside`. With
/// `exclusive`, an existing `target` is not changed, and is reported (`already-exists`).
///
/// # Errors
/// `Io` if a system call fails; all names are then the old ones, unless the folder cannot be
/// synced.
pub fn move_into_place(
    fresh: &Path,
    target: &Path,
    aside: &Path,
    exclusive: bool,
) -> Result<Option<PathBuf>, StorageError> {
    let spots = Spot::of(fresh).and_then(|from| Ok((from, Spot::of(target)?, Spot::of(aside)?)));
    let moved = spots.and_then(|(from, to, old)| {
        if exclusive || !sys::is_folder(&from) && !sys::is_folder(&to) {
            return sys::rename(&from, &to, exclusive).map(|()| None);
        }
        change_places(&from, &to, &old)
    });
    let left = moved.map_err(|errno| StorageError::io("rename", target, errno))?;
    sync_folder_of(target)?;
    Ok(left.map(Path::to_path_buf))
}

/// Renames if one of the two is a folder; returns the path of the old one, if there was one.
fn change_places<'p>(
    from: &Spot<'p>,
    to: &Spot,
    aside: &Spot<'p>,
) -> Result<Option<&'p Path>, Errno> {
    for _ in 0..TRIES {
        let exchanged = match sys::exchange(from, to) {
            Ok(()) => return Ok(Some(from.path())),
            Err(errno) if sys::unknown(errno) => sys::rename(to, aside, false),
            Err(errno) => Err(errno),
        };
        match exchanged {
            Ok(()) => {
                let renamed = sys::rename(from, to, false);
                if renamed.is_err() {
                    // The first failure is reported.
                    let _ = sys::rename(aside, to, true);
                }
                return renamed.map(|()| Some(aside.path()));
            }
            // The name does not exist.
            Err(libc::ENOENT) => match sys::rename(from, to, true) {
                Err(libc::EEXIST) => {}
                renamed => return renamed.map(|()| None),
            },
            Err(errno) => return Err(errno),
        }
    }
    Err(libc::EEXIST)
}

/// Waits until the bytes and the length of an open file are on the disk.
///
/// # Errors
/// `Io` if the system could not write them: data written since the last sync may be lost.
pub fn sync(fd: RawFd, path: &Path) -> Result<(), StorageError> {
    sys::sync(fd, false).map_err(|errno| StorageError::io("fsync", path, errno))
}

/// Makes the names in the folder of `path` durable: files created, renamed or removed there.
///
/// # Errors
/// The folder cannot be opened, or the disk failed.
pub fn sync_folder_of(path: &Path) -> Result<(), StorageError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let fd = sys::open(folder, libc::O_RDONLY | libc::O_DIRECTORY, 0)
        .map_err(|errno| StorageError::io("open folder", folder, errno))?;
    match sys::sync(fd.as_raw_fd(), false) {
        // Some network file systems cannot sync folders: names are durable there immediately.
        Ok(()) | Err(libc::EINVAL) => Ok(()),
        Err(errno) => Err(StorageError::io("fsync folder", folder, errno)),
    }
}

/// Makes a file at least `end` bytes long and reserves the disk space from byte `start` on, so that
/// a full disk is found now and not in the middle of the data. New bytes read as zeros.
///
/// If the file system cannot reserve space, the file is extended without it, after a check of the
/// free space.
///
/// # Errors
/// `disk-full`, with the number of bytes.
pub fn reserve(fd: RawFd, path: &Path, start: i64, end: i64) -> Result<(), StorageError> {
    let len = end.saturating_sub(start);
    if len <= 0 {
        return Ok(());
    }
    let fail = |errno| StorageError::io_at("reserve disk space", path, start, len, errno);
    match sys::allocate(fd, start, len) {
        Ok(()) => return Ok(()),
        Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV) => {}
        Err(errno) => return Err(fail(errno)),
    }
    let old = sys::regular_len(fd).unwrap_or(0);
    if old >= end {
        return Ok(());
    }
    if free_bytes(fd).is_some_and(|free| free < (end - old.max(start)) as u64) {
        return Err(fail(libc::ENOSPC));
    }
    sys::truncate(fd, end).map_err(fail)
}

/// Returns the bytes that an ordinary user may still write to the file system of an open file.
fn free_bytes(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeroes is a valid `statvfs`.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing.
    if unsafe { libc::fstatvfs(fd, &mut stat) } != 0 {
        return None;
    }
    (stat.f_bavail as u64).checked_mul(stat.f_frsize as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// A separate folder for each test; removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("outcore-durable-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = std::fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Replaces a file with the steps of the library.
    fn replace(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
        let file = TempFile::replacing(path, false, Writer::Descriptor)?;
        file.write(bytes, 0)?;
        file.publish(false)
    }

    #[test]
    fn replace_swaps_the_content_keeps_the_mode_and_leaves_nothing_behind() {
        let folder = Folder::new("replace");
        let (path, link) = (folder.0.join("a"), folder.0.join("link"));
        replace(&path, b"one").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let old = std::fs::File::open(&path).unwrap();
        replace(&link, b"another").unwrap();
        assert_eq!(b"another".as_slice(), std::fs::read(&path).unwrap());
        assert_eq!(0o640, std::fs::metadata(&path).unwrap().mode() & 0o777);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        // A process that has the old file open still reads the old bytes.
        let mut seen = [0; 8];
        assert_eq!(Ok(3), sys::read_at(old.as_raw_fd(), &mut seen, 0));
        assert_eq!(b"one", &seen[..3]);
        assert_eq!(["a", "link"], folder.names().as_slice());
    }

    #[test]
    fn publish_exclusively_leaves_an_existing_file_alone() {
        let folder = Folder::new("publish");
        let target = folder.0.join("target");
        for exclusive in [true, true, false] {
            let temp = TempFile::beside(&target).unwrap();
            sys::write_at(temp.fd(), format!("{exclusive}").as_bytes(), 0).unwrap();
            let existed = target.exists();
            let result = temp.publish(exclusive);
            match (existed, exclusive) {
                (true, true) => assert_eq!("already-exists", result.unwrap_err().code()),
                _ => result.unwrap(),
            }
        }
        assert_eq!("false", std::fs::read_to_string(&target).unwrap());
        assert_eq!(["target"], folder.names().as_slice());
    }

    #[test]
    fn reserve_extends_but_never_shortens_and_names_what_is_missing() {
        let folder = Folder::new("reserve");
        let path = folder.0.join("r");
        let file = std::fs::File::create_new(&path).unwrap();
        let reserve = |start, end| reserve(file.as_raw_fd(), &path, start, end);
        for (start, end, len) in [(0, 0, 0), (0, 90_000, 90_000), (90_000, 100_000, 100_000)] {
            reserve(start, end).unwrap();
            assert_eq!(len, std::fs::metadata(&path).unwrap().len());
        }
        reserve(0, 10).unwrap();
        reserve(500_000, 400_000).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(100_000, meta.len());
        assert!(meta.blocks() * 512 >= 100_000);
        let error = reserve(0, 1 << 50).unwrap_err();
        assert!(
            matches!(&error, StorageError::Io(f) if [libc::ENOSPC, libc::EFBIG].contains(&f.errno)),
            "{error}"
        );
        assert!(error.to_string().contains("1125899906842624 bytes"), "{error}");
        assert_eq!(100_000, std::fs::metadata(&path).unwrap().len());
    }

    /// Forks a process that dies with a temporary file of `len` bytes for `target`.
    fn killed_while_making(target: &Path, len: usize) {
        // SAFETY: the child makes a file and leaves without cleaning up.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let made = TempFile::beside(target).is_ok_and(|temp| {
                let written = sys::write_at(temp.fd(), &vec![7; len], 0).is_ok();
                std::mem::forget(temp);
                written
            });
            // SAFETY: ends the child immediately.
            unsafe { libc::_exit(i32::from(!made)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(0, status);
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next_who_makes_the_same_file() {
        let folder = Folder::new("killed");
        let target = folder.0.join("a");
        for _ in 0..3 {
            killed_while_making(&target, 5000);
            assert_eq!(1, folder.names().len(), "{:?}", folder.names());
        }
        killed_while_making(&folder.0.join("b"), 10);
        assert_eq!(2, folder.names().len());
        replace(&target, b"whole").unwrap();
        assert_eq!(b"whole".as_slice(), std::fs::read(&target).unwrap());
        let left = folder.names();
        assert!(left.len() == 2 && left[0].starts_with(".b.") && left[1] == "a", "{left:?}");
    }

    #[test]
    fn what_is_left_under_the_next_known_name_is_removed_by_who_needs_it() {
        let folder = Folder::new("places");
        let target = folder.0.join("a");
        let alive = TempFile::beside(&target).unwrap();
        for _ in 0..3 {
            killed_while_making(&target, 10);
            assert_eq!(2, folder.names().len(), "{:?}", folder.names());
        }
        let next = TempFile::beside(&target).unwrap();
        assert_eq!(2, folder.names().len(), "{:?}", folder.names());
        drop((alive, next));
        assert!(folder.names().is_empty());
    }

    #[test]
    fn a_temporary_file_of_somebody_who_lives_stays() {
        let folder = Folder::new("alive");
        let target = folder.0.join("a");
        let temps: Vec<_> = (0..3).map(|_| TempFile::beside(&target).unwrap()).collect();
        for (k, temp) in temps.iter().enumerate() {
            sys::write_at(temp.fd(), &[k as u8; 100], 0).unwrap();
        }
        assert_eq!(3, folder.names().len());
        for (k, temp) in temps.into_iter().enumerate() {
            temp.publish(false).unwrap();
            assert_eq!([k as u8; 100].as_slice(), std::fs::read(&target).unwrap());
        }
        assert_eq!(["a"], folder.names().as_slice());
    }

    #[test]
    fn many_who_make_one_file_all_make_it_whole() {
        let folder = Folder::new("many");
        let target = folder.0.join("a");
        killed_while_making(&target, 300);
        std::thread::scope(|scope| {
            for k in 0..8u8 {
                let target = &target;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let temp = TempFile::beside(target).unwrap();
                        sys::write_at(temp.fd(), &[k; 64], 0).unwrap();
                        sys::write_at(temp.fd(), &[k; 64], 64).unwrap();
                        temp.install(false).unwrap();
                        let seen = std::fs::read(target).unwrap();
                        assert!(seen.len() == 128 && seen.iter().all(|byte| *byte == seen[0]));
                    }
                });
            }
        });
        assert_eq!(["a"], folder.names().as_slice());
    }

    #[test]
    fn a_link_that_leads_to_nothing_yet_is_followed() {
        let folder = Folder::new("links");
        std::fs::create_dir(folder.0.join("far")).unwrap();
        std::os::unix::fs::symlink("far/b", folder.0.join("a")).unwrap();
        std::os::unix::fs::symlink("../far/c", folder.0.join("far/b")).unwrap();
        replace(&folder.0.join("a"), b"new").unwrap();
        assert_eq!(b"new".as_slice(), std::fs::read(folder.0.join("far/c")).unwrap());
        assert!(folder.0.join("a").is_symlink() && folder.0.join("far/b").is_symlink());
        std::os::unix::fs::symlink("loop", folder.0.join("loop")).unwrap();
        let error = replace(&folder.0.join("loop"), b"x").unwrap_err();
        assert!(matches!(&error, StorageError::Io(io) if io.errno == libc::ELOOP), "{error}");
        // The error comes at the beginning, not after all bytes are written.
        let far = folder.0.join("far");
        let error = TempFile::replacing(&far, false, Writer::Descriptor).unwrap_err();
        assert!(matches!(&error, StorageError::Io(io) if io.errno == libc::EISDIR), "{error}");
    }

    #[test]
    fn what_is_to_be_new_is_refused_at_the_beginning_and_at_the_end() {
        let folder = Folder::new("new");
        let target = folder.0.join("a");
        let file = TempFile::replacing(&target, true, Writer::Descriptor).unwrap();
        file.write(b"ours", 0).unwrap();
        std::fs::write(&target, b"another's").unwrap();
        assert_eq!("already-exists", file.publish(true).unwrap_err().code());
        let error = TempFile::replacing(&target, true, Writer::Descriptor).unwrap_err();
        assert_eq!(("already-exists", Some(target.as_path())), (error.code(), error.path()));
        assert_eq!(b"another's".as_slice(), std::fs::read(&target).unwrap());
        assert_eq!(["a"], folder.names().as_slice());
    }

    #[test]
    fn a_library_may_lock_what_it_makes_and_only_what_is_old_is_its_orphan() {
        let folder = Folder::new("library");
        let target = folder.0.join("a.h5");
        std::fs::write(&target, b"old").unwrap();
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o604)).unwrap();
        let make = || TempFile::replacing(&target, false, Writer::Library).unwrap();
        let file = make();
        let library = std::fs::File::create(file.path()).unwrap();
        assert_eq!(Holder::We, sys::hold(library.as_raw_fd()));
        std::io::Write::write_all(&mut &library, b"made by its name").unwrap();
        drop(library);
        // Other makers of the same file leave it alone: it is young.
        drop((make(), TempFile::beside(&target).unwrap()));
        assert!(file.path().exists());
        // They remove the old leftover of a killed process.
        let left = temporary::name(&target, "1-99999999");
        let orphan = std::fs::File::create_new(&left).unwrap();
        orphan.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        drop((orphan, make()));
        assert!(!left.exists());
        file.publish(false).unwrap();
        assert_eq!(b"made by its name".as_slice(), std::fs::read(&target).unwrap());
        assert_eq!(0o604, std::fs::metadata(&target).unwrap().mode() & 0o777);
        assert_eq!(["a.h5"], folder.names().as_slice());
    }

    #[test]
    fn an_unwritable_folder_is_named() {
        let error = replace(Path::new("/nonexistent/folder/file"), b"x").unwrap_err();
        assert_eq!("not-found", error.code());
        assert!(error.to_string().contains("/nonexistent/folder"), "{error}");
    }
}

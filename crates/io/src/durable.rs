//! Files that appear, or change, all at once: a crash leaves the old bytes or the new ones.
//!
//! Idea: write to a temporary file in the same folder, `fsync` it, `rename` it over the final name,
//! `fsync` the folder. The order is what counts: a rename that reaches the disk before the bytes
//! would leave a whole name on an empty file, and without the last step the name itself may be lost.
//!
//! Invariants:
//! - nothing is published whose bytes were not synced, and an error of `fsync` is never retried (the
//!   kernel forgets the pages that it could not write, so a second try "succeeds");
//! - a [`TempFile`] that was not published is removed on drop; a process that is killed leaves a
//!   temporary name behind (`temporary.rs`), never a broken NAME;
//! - what was left behind is removed by the next who makes a temporary file for NAME on that machine:
//!   such names are few and known, so no folder is searched;
//! - all calls go through [`sys`], where tests inject faults and log the order.
//!
//! Paper: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::backend::sys::{self, Holder, Spot};
use crate::beneath::{self, Beneath, Missing};
use crate::error::StorageError;
use crate::temporary::{self, Age, Fate};

/// Permissions of new files before the process's umask.
const NEW_FILE: u32 = 0o666;

/// Replaces the content of `path`, or creates it. A symbolic link is followed; permissions of an
/// existing file are kept.
///
/// # Errors
/// The system's refusal at any step; `path` then still has its old content, or none.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let temp = TempFile::beside(&target)?;
    if let Ok(old) = std::fs::metadata(&target) {
        keep_mode(&temp, &old)?;
    }
    sys::write_at(temp.fd(), bytes, 0)
        .map_err(|errno| StorageError::io_at("write", temp.path(), 0, bytes.len() as i64, errno))?;
    temp.publish(&target, false)
}

fn keep_mode(temp: &TempFile, old: &std::fs::Metadata) -> Result<(), StorageError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = old.permissions().mode() & 0o7777;
    // SAFETY: plain numbers.
    match unsafe { libc::fchmod(temp.fd(), mode as libc::mode_t) } {
        0 => Ok(()),
        _ => Err(StorageError::last("set permissions", temp.path())),
    }
}

/// A file under a temporary name beside its final place; removed on drop unless published.
#[derive(Debug)]
pub struct TempFile {
    fd: OwnedFd,
    path: PathBuf,
    /// Its folder is found from here, when it was made and when it gets its name.
    root: Option<Arc<Beneath>>,
    published: bool,
    pid: u32,
}

/// The folder of a file, found from `root` or by its path.
fn folder<'a>(
    root: Option<&'a Beneath>,
    path: &Path,
    missing: Missing,
) -> Result<beneath::Holder<'a>, StorageError> {
    root.map_or(Ok(beneath::Holder::Anywhere), |root| root.holder(path, missing))
}

fn spot<'p>(folder: &beneath::Holder, path: &'p Path) -> Result<Spot<'p>, StorageError> {
    folder.spot(path).map_err(|errno| StorageError::io("create", path, errno))
}

impl TempFile {
    /// Creates an empty file in the folder of `target`, open for reading and writing.
    ///
    /// # Errors
    /// The system's refusal to create it.
    pub fn beside(target: &Path) -> Result<TempFile, StorageError> {
        TempFile::make(target, None)
    }

    /// The same below an open folder, out of which no link leads; folders that are missing are made.
    ///
    /// # Errors
    /// `link-leads-out`, and the system's refusal to create it.
    pub fn below(root: &Arc<Beneath>, target: &Path) -> Result<TempFile, StorageError> {
        TempFile::make(target, Some(root))
    }

    fn make(target: &Path, root: Option<&Arc<Beneath>>) -> Result<TempFile, StorageError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let pid = std::process::id();
        let folder = folder(root.map(|root| &**root), target, Missing::Make)?;
        let made = |fd, path| TempFile { fd, path, root: root.cloned(), published: false, pid };
        for place in 0..PLACES {
            let mark = if place == 0 { String::new() } else { place.to_string() };
            let path = temporary::name(target, &mark);
            if let Some(fd) = take(&spot(&folder, &path)?, &path)? {
                return Ok(made(fd, path));
            }
        }
        // So many make the same file at the same time.
        loop {
            let mark = format!("{pid}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
            let path = temporary::name(target, &mark);
            // Or one is left behind by a killed process that had our number.
            if let Some(fd) = create(&spot(&folder, &path)?, &path)? {
                sys::hold(fd.as_raw_fd());
                return Ok(made(fd, path));
            }
        }
    }

    /// The open file.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Its temporary name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file and gives it its final name; see [`publish`].
    ///
    /// # Errors
    /// As [`publish`]; the temporary file is removed then.
    pub fn publish(self, target: &Path, exclusive: bool) -> Result<(), StorageError> {
        sync(self.fd(), &self.path)?;
        self.install(target, exclusive)?;
        sync_folder_of(target)
    }
}

/// How often a temporary file that is in the way is looked at before another name is taken.
const TRIES: usize = 4;
/// Names for the same file that all on a machine know: what is left behind is under one of them, unless
/// more than so many made it at once.
const PLACES: usize = 8;

/// A new file with a known temporary name, held; none if somebody makes it.
///
/// Its maker locks it before it is used. Who finds it unlocked removes it, and only while the name is that
/// of the locked file; a maker that comes late to lock its own file finds the name gone.
fn take(spot: &Spot, path: &Path) -> Result<Option<OwnedFd>, StorageError> {
    for _ in 0..TRIES {
        match create(spot, path)? {
            Some(fd) => match sys::hold(fd.as_raw_fd()) {
                Holder::We if !sys::names(spot, fd.as_raw_fd()) => {}
                // Somebody takes it for abandoned, and will remove it.
                Holder::Another => return Ok(None),
                Holder::We | Holder::Unknown => return Ok(Some(fd)),
            },
            None if temporary::remove(spot, Age::Any) == Fate::Gone => {}
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// A new file, open for reading and writing; `None` if there is one of that name.
fn create(spot: &Spot, path: &Path) -> Result<Option<OwnedFd>, StorageError> {
    match sys::open_at(spot, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, NEW_FILE) {
        Ok(fd) => Ok(Some(fd)),
        Err(libc::EEXIST) => Ok(None),
        Err(errno) => Err(StorageError::io("create", path, errno)),
    }
}

impl TempFile {
    /// Gives the file its final name without waiting for the disk: after a crash of the machine the
    /// name may be missing or its bytes incomplete until [`sync_paths`] and [`sync_folder_of`] have
    /// run. With `exclusive`, an existing `target` is left alone and reported (`already-exists`).
    ///
    /// # Errors
    /// The system's refusal; `target` is untouched and the temporary file removed then.
    pub fn install(mut self, target: &Path, exclusive: bool) -> Result<(), StorageError> {
        let renamed = {
            let folder = folder(self.root.as_deref(), target, Missing::Refuse)?;
            let from = folder.spot(&self.path);
            from.and_then(|from| sys::rename(&from, &folder.spot(target)?, exclusive))
        };
        renamed.map_err(|errno| StorageError::io("rename", target, errno))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A forked child has no say in its parent's files.
        if !self.published && self.pid == std::process::id() {
            // There is nobody to tell about a temporary file that cannot be removed.
            let folder = folder(self.root.as_deref(), &self.path, Missing::Refuse);
            let _ = folder.map(|folder| sys::unlink(&folder.spot(&self.path)?));
        }
    }
}

/// Syncs the finished file `temp`, renames it to `target` and syncs the folder.
///
/// With `exclusive`, an existing `target` is left alone and reported (`already-exists`).
///
/// # Errors
/// The system's refusal; before the rename, `target` is untouched.
pub fn publish(temp: &Path, target: &Path, exclusive: bool) -> Result<(), StorageError> {
    sync_path(temp)?;
    rename(temp, target, exclusive)?;
    sync_folder_of(target)
}

fn rename(from: &Path, to: &Path, exclusive: bool) -> Result<(), StorageError> {
    let renamed = Spot::of(from).and_then(|from| sys::rename(&from, &Spot::of(to)?, exclusive));
    renamed.map_err(|errno| StorageError::io("rename", to, errno))
}

/// Waits until the bytes and the length of an open file are on the disk.
///
/// # Errors
/// The system could not write them: what was written since the last sync may be lost.
pub fn sync(fd: RawFd, path: &Path) -> Result<(), StorageError> {
    sys::sync(fd, false).map_err(|errno| StorageError::io("fsync", path, errno))
}

/// [`sync`] for files (or folders) by name.
///
/// # Errors
/// As [`sync`], or a file cannot be opened.
pub fn sync_paths<P: AsRef<Path>>(paths: &[P]) -> Result<(), StorageError> {
    paths.iter().try_for_each(|path| sync_path(path.as_ref()))
}

fn sync_path(path: &Path) -> Result<(), StorageError> {
    let fd = sys::open(path, libc::O_RDONLY, 0)
        .map_err(|errno| StorageError::io("open for fsync", path, errno))?;
    sync(fd.as_raw_fd(), path)
}

/// Makes the names in the folder of `path` durable: what was created, renamed or removed there.
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
        // Some network file systems have no sync of folders: names are durable there at once.
        Ok(()) | Err(libc::EINVAL) => Ok(()),
        Err(errno) => Err(StorageError::io("fsync folder", folder, errno)),
    }
}

/// Creates an empty file that must not exist yet, open for reading and writing.
///
/// Its name is durable after [`sync_folder_of`].
///
/// # Errors
/// `already-exists`, or the system's refusal.
pub fn create_exclusive(path: &Path) -> Result<OwnedFd, StorageError> {
    sys::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, NEW_FILE)
        .map_err(|errno| StorageError::io("create", path, errno))
}

/// Makes a file `len` bytes long (never shorter than it is) and reserves the disk space, so that a
/// full disk is found now and not in the middle of the data.
///
/// Where the file system cannot reserve, the file is extended without space, after a look at what
/// is free.
///
/// # Errors
/// `disk-full`, with the bytes that were wanted.
pub fn reserve(fd: RawFd, path: &Path, len: i64) -> Result<(), StorageError> {
    let fail = |errno| StorageError::io_at("reserve disk space", path, 0, len, errno);
    match sys::allocate(fd, len) {
        Ok(()) => return Ok(()),
        Err(libc::EOPNOTSUPP | libc::ENOSYS) => {}
        // A length of zero is nothing to reserve, and an error to the system.
        Err(libc::EINVAL) if len == 0 => return Ok(()),
        Err(errno) => return Err(fail(errno)),
    }
    let old = sys::regular_len(fd).unwrap_or(0);
    if old >= len {
        return Ok(());
    }
    if free_bytes(fd).is_some_and(|free| free < (len - old) as u64) {
        return Err(fail(libc::ENOSPC));
    }
    sys::truncate(fd, len).map_err(fail)
}

/// What an ordinary user may still write to the file system of an open file.
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

    /// A folder of its own for each test; removed at the end.
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
        // Who has the old file open goes on reading the old bytes.
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
            let result = temp.publish(&target, exclusive);
            match (existed, exclusive) {
                (true, true) => assert_eq!("already-exists", result.unwrap_err().code()),
                _ => result.unwrap(),
            }
        }
        assert_eq!("false", std::fs::read_to_string(&target).unwrap());
        assert_eq!(["target"], folder.names().as_slice());
        std::fs::write(folder.0.join("ready"), b"ready").unwrap();
        publish(&folder.0.join("ready"), &target, false).unwrap();
        assert_eq!("ready", std::fs::read_to_string(&target).unwrap());
        let error = create_exclusive(&target).unwrap_err();
        assert_eq!(("already-exists", Some(target.as_path())), (error.code(), error.path()));
        sync_paths(&[&target, &folder.0]).unwrap();
    }

    #[test]
    fn reserve_extends_but_never_shortens_and_names_what_is_missing() {
        let folder = Folder::new("reserve");
        let path = folder.0.join("r");
        let fd = create_exclusive(&path).unwrap();
        reserve(fd.as_raw_fd(), &path, 0).unwrap();
        reserve(fd.as_raw_fd(), &path, 100_000).unwrap();
        reserve(fd.as_raw_fd(), &path, 10).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(100_000, meta.len());
        let error = reserve(fd.as_raw_fd(), &path, 1 << 50).unwrap_err();
        assert!(
            matches!(&error, StorageError::Io(f) if [libc::ENOSPC, libc::EFBIG].contains(&f.errno)),
            "{error}"
        );
        assert!(error.to_string().contains("1125899906842624 bytes"), "{error}");
        assert_eq!(100_000, std::fs::metadata(&path).unwrap().len());
    }

    /// A process that dies with a temporary file for `target` of so many bytes.
    fn killed_while_making(target: &Path, len: usize) {
        // SAFETY: the child makes a file and leaves without cleaning up.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let made = TempFile::beside(target).is_ok_and(|temp| {
                let written = sys::write_at(temp.fd(), &vec![7; len], 0).is_ok();
                std::mem::forget(temp);
                written
            });
            // SAFETY: ends the child at once.
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
            temp.publish(&target, false).unwrap();
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
                        temp.install(target, false).unwrap();
                        let seen = std::fs::read(target).unwrap();
                        assert!(seen.len() == 128 && seen.iter().all(|byte| *byte == seen[0]));
                    }
                });
            }
        });
        assert_eq!(["a"], folder.names().as_slice());
    }

    #[test]
    fn an_unwritable_folder_is_named() {
        let error = replace(Path::new("/nonexistent/folder/file"), b"x").unwrap_err();
        assert_eq!("not-found", error.code());
        assert!(error.to_string().contains("/nonexistent/folder"), "{error}");
    }
}

//! Names below one folder; no symbolic link leads outside it.
//!
//! Problem. The folder of an array may come from elsewhere and contain links. A process that writes
//! or removes by path follows them, and changes files anywhere else. In addition, a path that led
//! to the array a moment ago may lead to another one now.
//!
//! Idea. The folder is opened once, and every name is looked up from there, so it does not matter
//! if the path leads elsewhere later. For writing, the system is asked to stay below the folder
//! (`openat2` with `RESOLVE_BENEATH`): relative links that stay inside are followed, all others are
//! rejected. If the system or a container lacks that call, names are followed one folder at a time,
//! and no link at all.
//!
//! Reading follows links wherever they point: it changes nothing, and users keep chunks on other
//! disks.
//!
//! Invariants. A file is made, renamed and removed in a folder that was found from the open one,
//! under a name of one part, and never through a link.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::backend::sys::{self, Errno, Spot};
use crate::descriptors::{self, is_shortage};
use crate::error::StorageError;

/// An open folder, and its path when it was opened.
#[derive(Debug)]
pub struct Beneath {
    fd: OwnedFd,
    path: PathBuf,
    stamp: (u64, u64),
}

/// The folder that holds a file: where names of one part are looked up.
#[derive(Debug)]
pub(crate) enum Holder<'a> {
    /// The folder to which the whole path leads.
    Anywhere,
    /// The open folder itself.
    Root(&'a Beneath),
    /// A folder below it.
    Below(OwnedFd),
}

/// Flags for opening a folder as a starting point.
#[cfg(target_os = "linux")]
const FOLDER: i32 = libc::O_PATH | libc::O_DIRECTORY;
#[cfg(not(target_os = "linux"))]
const FOLDER: i32 = libc::O_RDONLY | libc::O_DIRECTORY;

impl Beneath {
    /// Opens the folder; links in `path` itself are followed, because the caller chose the path.
    ///
    /// # Errors
    /// `Io` if the system call fails.
    pub fn open(path: &Path) -> Result<Beneath, StorageError> {
        let refused = |errno| StorageError::io("open", path, errno);
        let fd = sys::open(path, FOLDER, 0).map_err(refused)?;
        let found = sys::stat(fd.as_raw_fd()).map_err(refused)?;
        #[allow(clippy::unnecessary_cast, reason = "these types differ between systems")]
        let stamp = (found.st_dev as u64, found.st_ino as u64);
        Ok(Beneath { fd, path: path.to_path_buf(), stamp })
    }

    /// Device and inode of the folder.
    pub fn stamp(&self) -> (u64, u64) {
        self.stamp
    }

    /// Opens a file below the folder for reading; links are followed.
    pub(crate) fn read(&self, path: &Path, flags: i32) -> Result<OwnedFd, StorageError> {
        let name = self.inside(path).and_then(c_name);
        let spot = name.map(|name| Spot::new(self.fd.as_raw_fd(), name, path));
        let fd = spot.and_then(|spot| sys::open_at(&spot, flags, 0));
        fd.map_err(|errno| StorageError::io("open", path, errno))
    }

    /// Opens a file below the folder for writing; a link that leads outside is an error.
    pub(crate) fn write(&self, path: &Path, flags: i32) -> Result<OwnedFd, StorageError> {
        let fd = self.inside(path).and_then(|inside| self.resolve(inside, flags));
        let fd = fd.map_err(|errno| refused("open", path, errno))?;
        sys::note_opened(fd.as_raw_fd(), path, flags);
        Ok(fd)
    }

    /// Opens the folder of a file below this one; makes it, and all folders above it, if `missing`
    /// is [`Missing::Make`].
    pub(crate) fn holder(&self, path: &Path, missing: Missing) -> Result<Holder<'_>, StorageError> {
        let folder = path.parent().unwrap_or(path);
        let found = self.inside(folder).and_then(|inside| match inside.as_os_str().is_empty() {
            true => Ok(Holder::Root(self)),
            false => self.folder(inside, missing).map(Holder::Below),
        });
        let doing = if missing == Missing::Make { "create folder" } else { "open" };
        found.map_err(|errno| refused(doing, folder, errno))
    }

    fn folder(&self, inside: &Path, missing: Missing) -> Result<OwnedFd, Errno> {
        match (self.resolve(inside, FOLDER), inside.file_name()) {
            (Err(libc::ENOENT), Some(name)) if missing == Missing::Make => {
                let above = inside.parent().filter(|above| !above.as_os_str().is_empty());
                let above = above.map(|above| self.folder(above, missing)).transpose()?;
                let dir = above.as_ref().map_or(self.fd.as_raw_fd(), AsRawFd::as_raw_fd);
                sys::make_folder(dir, &c_name(Path::new(name))?)?;
                drop(above);
                self.resolve(inside, FOLDER)
            }
            (found, _) => found,
        }
    }

    fn inside<'a>(&self, path: &'a Path) -> Result<&'a Path, Errno> {
        path.strip_prefix(&self.path).map_err(|_| libc::EXDEV)
    }

    fn resolve(&self, inside: &Path, flags: i32) -> Result<OwnedFd, Errno> {
        match beneath(self.fd.as_raw_fd(), &c_name(inside)?, flags) {
            Err(libc::ENOSYS | libc::EPERM | libc::E2BIG) => {
                step_by_step(self.fd.as_raw_fd(), inside, flags)
            }
            other => other,
        }
    }
}

/// Treatment of folders that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Make them.
    Make,
    /// Return an error.
    Refuse,
}

impl Holder<'_> {
    /// Returns the entry of a file in this folder; `path` is its whole path.
    pub(crate) fn spot<'p>(&self, path: &'p Path) -> Result<Spot<'p>, Errno> {
        let last = || c_name(path.file_name().map(Path::new).ok_or(libc::EINVAL)?);
        Ok(match self {
            Holder::Anywhere => Spot::of(path)?,
            Holder::Root(root) => Spot::new(root.fd.as_raw_fd(), last()?, path),
            Holder::Below(fd) => Spot::new(fd.as_raw_fd(), last()?, path),
        })
    }
}

fn c_name(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)
}

fn refused(op: &'static str, path: &Path, errno: Errno) -> StorageError {
    match errno {
        libc::EXDEV | libc::ELOOP => StorageError::LeadsOut { path: path.to_path_buf() },
        errno => StorageError::io(op, path, errno),
    }
}

/// Attempts if folders are moved while the system resolves a name.
#[cfg(target_os = "linux")]
const TRIES: usize = 16;

#[cfg(target_os = "linux")]
fn beneath(dir: RawFd, name: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: all zeroes is a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_BENEATH;
    for _ in 0..TRIES {
        // SAFETY: a NUL-terminated string, and a structure of the given size.
        let fd = unsafe {
            libc::syscall(libc::SYS_openat2, dir, name.as_ptr(), &raw const how, size_of_val(&how))
        };
        if fd >= 0 {
            // SAFETY: just opened, so it has no other owner.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        }
        match crate::error::errno() {
            libc::EAGAIN | libc::EINTR => {}
            errno if is_shortage(errno) && descriptors::release_idle() > 0 => {}
            errno => return Err(errno),
        }
    }
    Err(libc::EAGAIN)
}

#[cfg(not(target_os = "linux"))]
fn beneath(_: RawFd, _: &CStr, _: i32) -> Result<OwnedFd, Errno> {
    Err(libc::ENOSYS)
}

/// Opens a file like `beneath` on systems without that call: no link is followed, not even one
/// that stays inside.
fn step_by_step(dir: RawFd, inside: &Path, flags: i32) -> Result<OwnedFd, Errno> {
    let mut parts = inside.components().peekable();
    let mut above: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(libc::EXDEV) };
        let flags = if parts.peek().is_some() { FOLDER } else { flags };
        let from = above.as_ref().map_or(dir, AsRawFd::as_raw_fd);
        let spot = Spot::new(from, c_name(Path::new(name))?, inside);
        // With `O_NOFOLLOW`, a system may open the link itself, or report that it is not a folder.
        let found = sys::stat_at(&spot, true)?;
        if found.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return Err(libc::ELOOP);
        }
        above = Some(sys::open_call(&spot, flags | libc::O_NOFOLLOW, 0)?);
    }
    above.ok_or(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn links_that_lead_out_are_refused_with_and_without_the_system_s_help() {
        let dir = TestDir::new("beneath");
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, dir.path(name)).unwrap();
        };
        for folder in ["store/c/0", "outside/0"] {
            std::fs::create_dir_all(dir.path(folder)).unwrap();
            std::fs::write(dir.path(folder).join("1"), b"x").unwrap();
        }
        link("../outside", "store/out");
        link(&dir.path("outside/0/1").to_string_lossy(), "store/c/0/file");
        link("c", "store/inside");
        link("loop", "store/loop");
        let root = Beneath::open(&dir.path("store")).unwrap();
        let (fd, here) = (root.fd.as_raw_fd(), |name: &str| dir.path("store").join(name));
        let by_hand = |name: &str| step_by_step(fd, Path::new(name), libc::O_RDWR).map(drop);
        for name in ["out/0/1", "c/0/file", "loop/1", "../outside/0/1", "c/../../outside/0/1"] {
            let error = root.write(&here(name), libc::O_RDWR).unwrap_err();
            assert_eq!("link-leads-out", error.code(), "{name}");
            assert!(matches!(by_hand(name), Err(libc::ELOOP | libc::EXDEV)), "{name}");
        }
        for name in ["out/0/new", "out/new/1"] {
            let error = root.holder(&here(name), Missing::Make).unwrap_err();
            assert_eq!("link-leads-out", error.code(), "{name}");
        }
        assert!(!dir.path("outside/new").exists());
        root.write(&here("c/0/1"), libc::O_RDWR).unwrap();
        assert_eq!(Ok(()), by_hand("c/0/1"));
        // A link that stays inside is followed if the system can check it.
        root.write(&here("inside/0/1"), libc::O_RDWR).unwrap();
        assert_eq!(Err(libc::ELOOP), by_hand("inside/0/1"));
        assert_eq!(Err(libc::ENOENT), by_hand("c/5/1"));
        root.holder(&here("c/5/6/7"), Missing::Make).unwrap();
        assert!(here("c/5/6").is_dir());
        // Reading follows links anywhere.
        root.read(&here("out/0/1"), libc::O_RDONLY).unwrap();
        // A new folder at the path does not matter.
        std::fs::rename(dir.path("store"), dir.path("moved")).unwrap();
        std::fs::create_dir_all(here("c")).unwrap();
        let moved = root.holder(&here("c/8/1"), Missing::Make);
        moved.unwrap();
        assert!(dir.path("moved/c/8").is_dir() && !here("c/8").exists());
        std::fs::remove_dir_all(dir.path("moved")).unwrap();
        assert_eq!("not-found", root.holder(&here("c/9/1"), Missing::Make).unwrap_err().code());
    }
}

//! Temporary names of files next to their final place, and removal of files that killed makers
//! left.
//!
//! Problem. A file that must appear in one step is made under another name first. A killed maker
//! leaves it behind. It must be removed later, and be distinguished from files that are being made
//! now, here or on another machine.
//!
//! Idea. All names have one form, `.NAME.HOST-MARK.outcore-tmp`, which contains the final name and
//! the machine. The maker holds a lock (`flock`) on the file as long as it lives. A file without a
//! lock is an orphan, and the next process that makes the same file or folder on that machine
//! removes it.
//!
//! Invariants:
//! - only files that were locked first, and still have their name, are removed;
//! - between creation and locking, a file has no lock. So an orphan must be an hour old
//!   ([`Age::Hour`]), unless its makers check after locking whether it still has its name
//!   ([`Age::Any`]; `TempFile` does), or no maker can be about to make one;
//! - a folder that contains both an `old` and a `new` array stays: where the system cannot exchange
//!   two names, `old` may be the only copy;
//! - if files cannot be locked, or belong to other machines, nothing is removed.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::sys::{self, Holder, Spot};

/// Ending of all temporary names.
pub const ENDING: &str = ".outcore-tmp";
/// Bytes of the final name in a temporary one: the rest fits into the 255 bytes that folders allow.
const NAME: usize = 200;
/// Longer than any maker takes between creating a file and locking it.
const HOUR: Duration = Duration::from_secs(3600);

/// Minimum age of an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// One hour: its maker may not have locked it yet.
    Hour,
    /// Any age: makers check the name after locking, or there are none.
    Any,
}

/// Outcome for a possible orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The name is free, as far as can be determined.
    Gone,
    /// It has a maker, is young, or cannot be removed.
    Stays,
}

/// Returns a temporary name next to `target`; the common one of this machine if `mark` is empty.
pub fn name(target: &Path, mark: &str) -> PathBuf {
    let mut name = beginning(target);
    if !mark.is_empty() {
        name.push("-");
        name.push(mark);
    }
    name.push(ENDING);
    target.with_file_name(name)
}

/// Returns the beginning of all names for `target` on this machine.
fn beginning(target: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(short(target.file_name().unwrap_or_default()));
    name.push(format!(".{:08x}", host()));
    name
}

/// Shortens a name to at most [`NAME`] bytes; a shortened one ends with a hash of the whole.
fn short(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    if bytes.len() <= NAME {
        return name.to_os_string();
    }
    // FNV-1a: two long names that differ in their ends must not share a temporary one.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mark = format!("~{hash:016x}");
    let cut = &bytes[..NAME - mark.len()];
    // Not half a character: some file systems reject it.
    let whole = std::str::from_utf8(cut).map_or_else(|error| error.valid_up_to(), str::len);
    let mut short = OsStr::from_bytes(&cut[..whole]).to_os_string();
    short.push(mark);
    short
}

/// Returns a mark of this machine, because locks of other machines may be invisible.
fn host() -> u32 {
    crc32c::crc32c(&sys::node_name())
}

/// Locks an open temporary file or folder while its maker lives; ends with the last copy of the
/// descriptor.
pub fn hold(fd: RawFd) {
    sys::hold(fd);
}

/// Removes leftovers of killed makers for `target` on this machine.
pub fn remove_left(target: &Path, age: Age) {
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let beginning = beginning(target);
    let ours = |name: &OsStr| {
        let rest = name.as_bytes().strip_prefix(beginning.as_bytes());
        let mark = rest.and_then(|rest| rest.strip_suffix(ENDING.as_bytes()));
        mark.is_some_and(|mark| mark.is_empty() || mark[0] == b'-')
    };
    // Without access to the folder nothing can be removed; making the file will report the error.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if ours(&entry.file_name()) {
            let path = entry.path();
            let _ = Spot::of(&path).map(|spot| remove(&spot, age));
        }
    }
}

/// Removes a temporary file or folder if it is an orphan; `folder` is an open folder below which
/// `path` is found.
pub fn remove_orphan(path: &Path, folder: Option<RawFd>, age: Age) -> Fate {
    let spot = match (folder, CString::new(path.as_os_str().as_bytes())) {
        (Some(folder), Ok(name)) => Ok(Spot::new(folder, name, path)),
        _ => Spot::of(path),
    };
    spot.map_or(Fate::Stays, |spot| remove(&spot, age))
}

/// Applies the rule for orphans, for all callers.
pub(crate) fn remove(spot: &Spot, age: Age) -> Fate {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // Network file systems lock only files open for writing; a folder cannot be.
    let opened = match sys::open_at(spot, libc::O_RDWR | flags, 0) {
        Err(libc::EISDIR) => sys::open_at(spot, libc::O_RDONLY | libc::O_DIRECTORY | flags, 0),
        opened => opened,
    };
    let file = match opened {
        Ok(fd) => File::from(fd),
        Err(libc::ENOENT) => return Fate::Gone,
        Err(_) => return Fate::Stays,
    };
    let Ok(found) = file.metadata() else { return Fate::Stays };
    let unused = found.modified().ok().and_then(|at| at.elapsed().ok());
    if age == Age::Hour && unused.is_none_or(|unused| unused <= HOUR) {
        return Fate::Stays; // not locked either: its maker may be about to lock it
    }
    if !found.is_file() && !found.is_dir() || sys::hold(file.as_raw_fd()) != Holder::We {
        return Fate::Stays;
    }
    // Another process may have removed it before the lock, and a new file may have that name.
    if !sys::names(spot, file.as_raw_fd()) {
        return Fate::Gone;
    }
    let removed = match found.is_dir() {
        true => spot.whole().is_some_and(remove_folder),
        false => sys::unlink(spot).is_ok(),
    };
    if removed {
        Fate::Gone
    } else {
        Fate::Stays
    }
}

/// Removes a folder and its contents, unless it may be the only copy of an array.
fn remove_folder(path: &Path) -> bool {
    let both = ["old", "new"].iter().all(|name| path.join(name).symlink_metadata().is_ok());
    !both && std::fs::remove_dir_all(path).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::testdir::TestDir;

    fn make(path: &Path, folder: bool, old: bool) -> File {
        match folder {
            true => std::fs::create_dir(path).unwrap(),
            false => std::fs::write(path, b"half").unwrap(),
        }
        let file = File::open(path).unwrap();
        if old {
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        file
    }

    #[test]
    fn names_tell_the_target_and_the_machine_and_are_short() {
        let target = Path::new("/folder/a.npy");
        let common = name(target, "");
        assert_eq!(Some(Path::new("/folder")), common.parent());
        let text = common.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(text.starts_with(".a.npy.") && text.ends_with(ENDING), "{text}");
        assert_eq!(text.len() + 3, name(target, "12").file_name().unwrap().len());
        for letter in ["x", "ä", "\u{1f600}"] {
            let long = letter.repeat(255 / letter.len());
            let names = [format!("{long}1"), format!("{long}2")].map(|n| name(Path::new(&n), "ab"));
            assert_ne!(names[0], names[1]);
            assert!(names.iter().all(|n| n.as_os_str().len() <= 255 && n.to_str().is_some()));
        }
    }

    #[test]
    fn only_what_nobody_holds_and_is_old_is_removed() {
        let dir = TestDir::new("temporary");
        let target = dir.path("a");
        let at = |mark: &str| name(&target, mark);
        // Old, young, locked, and of another target; files and folders.
        for folder in [false, true] {
            let mark = |one: &str| format!("{one}{}", u8::from(folder));
            make(&at(&mark("old")), folder, true);
            make(&at(&mark("young")), folder, false);
            let held = make(&at(&mark("held")), folder, true);
            assert_eq!(Holder::We, sys::hold(held.as_raw_fd()));
            make(&name(&dir.path("b"), &mark("old")), folder, true);
            remove_left(&target, Age::Hour);
            let there = |mark: &str| at(mark).exists();
            let found = [mark("old"), mark("young"), mark("held")].map(|one| there(&one));
            assert_eq!([false, true, true], found, "folder: {folder}");
            assert!(name(&dir.path("b"), &mark("old")).exists());
            remove_left(&target, Age::Any);
            assert_eq!((false, true), (there(&mark("young")), there(&mark("held"))));
        }
    }

    #[test]
    fn the_common_name_is_swept_and_a_folder_that_may_be_the_only_copy_is_not() {
        let dir = TestDir::new("temporary-kinds");
        let target = dir.path("a");
        make(&name(&target, ""), false, true);
        let both = name(&target, "both");
        make(&both, true, true);
        make(&both.join("old"), true, true);
        make(&both.join("new"), true, true);
        std::os::unix::fs::symlink("somewhere", name(&target, "link")).unwrap();
        remove_left(&target, Age::Any);
        assert_eq!((false, true), (name(&target, "").exists(), both.exists()));
        assert!(name(&target, "link").is_symlink());
        std::fs::remove_dir(both.join("old")).unwrap();
        assert_eq!(Fate::Gone, remove_orphan(&both, None, Age::Any));
        assert_eq!(Fate::Gone, remove_orphan(&both, None, Age::Any), "there is none");
        // Below an open folder, whatever the current folder is.
        make(&name(&target, "file"), false, true);
        let folder = File::open(target.parent().unwrap()).unwrap();
        let bare = name(Path::new("a"), "file");
        assert_eq!(Fate::Gone, remove_orphan(&bare, Some(folder.as_raw_fd()), Age::Hour));
        assert!(!name(&target, "file").exists());
    }
}

//! Claims of a file: no other process has it open.
//!
//! Problem: a sparse write is fastest as windows that are read, changed and written back; but that
//! undoes concurrent writes of other processes into the gaps.
//!
//! Idea: a lease (`F_SETLEASE`, fcntl(2)). The kernel grants one for writing only if no other
//! descriptor and no other mapping of the file exists. A process that then opens the file waits
//! until the lease is released, for 45 seconds at most. So a claim is short, and often checks
//! whether another process waits.
//!
//! Invariants: only files of file systems that belong to this machine alone are claimed: elsewhere
//! the kernel does not see other machines. A descriptor that existed when the process forked may
//! have a copy in the child, which the kernel does not report; it is not claimed. The kernel asks
//! for the file with a signal that is ignored unless the program handles it.

#![allow(unsafe_code)]

use crate::lease;
use crate::open_file::OpenFile;

/// Returns whether a file is on a file system of this machine alone, whose kernel sees every
/// change.
pub(crate) fn is_local(file: &OpenFile) -> bool {
    system::is_local(file)
}

/// A guard: while it lives, no other process has the file open. Dropping it releases the lease.
#[derive(Debug)]
pub struct Claim<'a> {
    file: &'a OpenFile,
}

impl Claim<'_> {
    /// Claims a file; `None` if another process has it open or waits for it, or if that cannot be
    /// determined.
    pub fn new(file: &OpenFile) -> Option<Claim<'_>> {
        let lease = file.lease();
        if !file.writable() || lease.forks != lease::forks() {
            return None;
        }
        let mut holders = lease.holders();
        if *holders > 0 && !system::is_held(file) {
            // Another process waits until all holders have released the lease: new ones could delay
            // it for ever.
            return None;
        }
        if *holders == 0 {
            // For the kernel, our second descriptor is another open of the file.
            file.release_direct();
            if !(system::is_local(file) && system::acquire(file)) {
                return None;
            }
        }
        *holders += 1;
        Some(Claim { file })
    }

    /// Returns whether another process waits for the file, or has stopped waiting.
    pub fn is_wanted(&self) -> bool {
        !system::is_held(self.file)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut holders = self.file.lease().holders();
        *holders -= 1;
        if *holders == 0 {
            system::release(self.file);
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::mem::MaybeUninit;

    use super::OpenFile;

    /// From linux/fcntl.h; the crate libc lacks it.
    const F_SETSIG: libc::c_int = 10;
    /// ext2 to ext4, XFS, Btrfs, F2FS, tmpfs.
    const LOCAL: [u32; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994];

    pub(super) fn is_local(file: &OpenFile) -> bool {
        let mut found = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the descriptor is open, the memory is large enough.
        if unsafe { libc::fstatfs(file.fd(), found.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: fstatfs succeeded and filled it.
        let kind = unsafe { found.assume_init() }.f_type;
        // The type's width and sign differ from one C library to the other.
        #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
        LOCAL.contains(&(kind as u32))
    }

    pub(super) fn acquire(file: &OpenFile) -> bool {
        // The default action of SIGURG is to ignore it; SIGIO would end the process. The kernel
        // forgets the choice with each lease.
        // SAFETY: fcntl with integers, on an open descriptor.
        unsafe {
            libc::fcntl(file.fd(), F_SETSIG, libc::SIGURG) == 0
                && libc::fcntl(file.fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
        }
    }

    pub(super) fn is_held(file: &OpenFile) -> bool {
        // SAFETY: as above. While another process waits, the kernel returns the lease as it will be
        // after the release.
        unsafe { libc::fcntl(file.fd(), libc::F_GETLEASE) == libc::F_WRLCK }
    }

    pub(super) fn release(file: &OpenFile) {
        // SAFETY: as above. It fails only if the kernel took the lease away.
        unsafe { libc::fcntl(file.fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::OpenFile;

    pub(super) fn is_local(_: &OpenFile) -> bool {
        false
    }

    pub(super) fn acquire(_: &OpenFile) -> bool {
        false
    }

    pub(super) fn is_held(_: &OpenFile) -> bool {
        false
    }

    pub(super) fn release(_: &OpenFile) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn only_files_of_known_file_systems_are_claimed() {
        let foreign = OpenFile::open(Path::new("/proc/self/comm"), true).unwrap();
        assert!(!is_local(&foreign));
        let dir = TestDir::new("claim-local");
        let file = OpenFile::open(&dir.file("a.bin", &[7; 10]), true).unwrap();
        // If temporary files can be claimed, their file system is a known one.
        assert!(is_local(&file) || Claim::new(&file).is_none());
        for folder in ["/dev/shm", "/run"] {
            let path = Path::new(folder).join(format!("outcore-claim-{}", std::process::id()));
            if std::fs::write(&path, b"x").is_ok() {
                let file = OpenFile::open(&path, true);
                std::fs::remove_file(&path).unwrap();
                assert!(is_local(&file.unwrap()), "{folder}");
                return;
            }
        }
        eprintln!("SKIPPED: no tmpfs: whether its files are claimed is not tested");
    }
}

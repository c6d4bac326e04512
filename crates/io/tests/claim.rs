//! Claims of files, in a separate program: tests that fork pass files of other tests to their
//! children.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../src/testdir.rs"]
#[allow(dead_code, clippy::pub_use, reason = "for the crate's own tests")]
mod testdir;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outcore_io::{Arena, Claim, OpenFile};
use testdir::TestDir;

/// One test forks; files that are open at that moment cannot be claimed any more.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_file_that_others_have_open_is_not_claimed() {
    let _alone = alone();
    let dir = TestDir::new("claim");
    let path = dir.file("a.bin", &[7u8; 8192]);
    let file = OpenFile::open(&path, true).unwrap();
    let arena = Arena::new(1 << 30);
    drop(file.mapping(8192, &arena).unwrap());
    for writable in [false, true] {
        let other = OpenFile::open(&path, writable).unwrap();
        assert!(Claim::new(&file).is_none());
        let mapping = other.mapping(8192, &arena).unwrap();
        drop(other);
        assert!(Claim::new(&file).is_none(), "mapped by somebody who closed it");
        drop(mapping);
        let claims = [Claim::new(&file), Claim::new(&file)];
        assert!(claims.iter().flatten().all(|claim| !claim.is_wanted()));
        assert_eq!(2, claims.iter().flatten().count());
    }
    let reader = OpenFile::open(&path, false).unwrap();
    assert!(Claim::new(&reader).is_none());
}

#[test]
fn who_opens_a_claimed_file_waits() {
    let _alone = alone();
    let dir = TestDir::new("claim-wait");
    let path = dir.file("a.bin", &[7u8; 8192]);
    let file = OpenFile::open(&path, true).unwrap();
    let (first, second) = (Claim::new(&file).unwrap(), Claim::new(&file).unwrap());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| OpenFile::open(&path, false).unwrap());
        let start = Instant::now();
        while !first.is_wanted() {
            assert!(start.elapsed() < Duration::from_secs(20), "nobody asked for the file");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Claim::new(&file).is_none(), "who waits would wait for this one, too");
        drop(first);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!other.is_finished(), "one claim is left");
        drop(second);
        let other = other.join().unwrap();
        assert!(Claim::new(&file).is_none());
        drop(other);
        assert!(Claim::new(&file).is_some());
    });
}

#[test]
fn a_file_that_a_fork_may_share_is_not_claimed() {
    let _alone = alone();
    let dir = TestDir::new("claim-fork");
    let path = dir.file("a.bin", &[7u8; 8192]);
    let file = OpenFile::open(&path, true).unwrap();
    assert!(Claim::new(&file).is_some());
    // SAFETY: the child calls only `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(child, unsafe { libc::waitpid(child, &raw mut status, 0) });
    assert!(Claim::new(&file).is_none());
    drop(file);
    assert!(Claim::new(&OpenFile::open(&path, true).unwrap()).is_some());
}

use std::sync::atomic::{AtomicU32, Ordering};

use outcore_io::lock::{Mode, Range};

use super::*;
use crate::nesting::Inside;
use crate::testing::{Button, Never, TestDir};

#[derive(Debug)]
struct Format {
    log: PathBuf,
    recovered: AtomicU32,
}

impl Keeper for Format {
    fn recover(&self) -> Result<(), StorageError> {
        self.recovered.fetch_add(1, Ordering::SeqCst);
        std::fs::remove_file(&self.log).unwrap();
        Ok(())
    }

    fn hold(&self) -> Result<Held, StorageError> {
        Ok(Box::new(()))
    }
}

fn locked() -> StorageError {
    StorageError::Locked { path: PathBuf::from("a"), waited: GLANCE }
}

#[test]
fn others_are_waited_for_a_little_at_a_time() {
    let mut tries = 0;
    let found = patiently("a", &Never, |patience| {
        assert_eq!(Some(GLANCE), patience.timeout);
        tries += 1;
        if tries < 3 {
            Err(locked())
        } else {
            Ok(tries)
        }
    });
    assert_eq!(Ok(3), found);
}

#[test]
fn waiting_ends_with_an_interrupt() {
    let button = Button::default();
    button.press();
    let found: Result<(), Fault> = patiently("a", &button, |_| Err(locked()));
    assert!(found.unwrap_err().is_cancelled());
}

#[test]
fn a_failure_is_no_reason_to_wait() {
    let mut tries = 0;
    let found: Result<(), Fault> = patiently("a", &Never, |_| {
        tries += 1;
        Err(StorageError::io("open", Path::new("a"), 5))
    });
    assert_eq!(("disk-failure", 1), (found.unwrap_err().reason().code(), tries));
}

#[test]
fn a_nested_call_does_not_wait_at_all() {
    let (_outer, _inner) = (Inside::enter(), Inside::enter());
    let mut tries = 0;
    let found: Result<(), Fault> = patiently("the array", &Never, |patience| {
        assert_eq!(Some(Duration::ZERO), patience.timeout);
        tries += 1;
        Err(locked())
    });
    let refused = found.unwrap_err();
    assert_eq!(("nested-call", 1), (refused.reason().code(), tries));
    assert_eq!(Some("the array"), refused.path());
}

#[test]
fn a_file_that_this_thread_changes_is_not_waited_for() {
    use std::os::unix::fs::MetadataExt;
    let dir = TestDir::new("guard-changed");
    let path = dir.file("a", b"x");
    let found = std::fs::metadata(&path).unwrap();
    nesting::begin_change((found.dev(), found.ino()));
    let refused: Result<(), Fault> = patiently("a", &Never, |_| {
        Err(StorageError::Locked { path: path.clone(), waited: GLANCE })
    });
    nesting::end_change((found.dev(), found.ino()));
    assert_eq!("nested-call", refused.unwrap_err().reason().code());
}

#[test]
fn a_program_that_has_the_file_open_is_waited_for_two_seconds() {
    let started = Instant::now();
    let found: Result<(), Fault> = patiently("a", &Never, |patience| {
        std::thread::sleep(patience.timeout.unwrap());
        Err(StorageError::InUse { path: PathBuf::from("a"), waited: GLANCE })
    });
    assert_eq!("locked", found.unwrap_err().reason().code());
    let waited = started.elapsed();
    assert!(waited > HDF5_PATIENCE && waited < 2 * HDF5_PATIENCE, "{waited:?}");
}

#[test]
fn a_change_that_was_interrupted_is_completed_first_with_no_lock_held() {
    let dir = TestDir::new("guard-log");
    let path = dir.file("a", b"x");
    let log = dir.path().join("log");
    let format = Arc::new(Format { log: log.clone(), recovered: AtomicU32::new(0) });
    let guard = Guard { log: log.clone(), keeper: format.clone() };
    assert!(guard.share(&path, Patience::NONE).unwrap().is_some());
    assert_eq!(0, format.recovered.load(Ordering::SeqCst));
    std::fs::write(&log, b"half a change").unwrap();
    let lock = guard.share(&path, Patience::NONE).unwrap();
    assert_eq!(1, format.recovered.load(Ordering::SeqCst));
    assert!(lock.is_some() && !log.exists());
}

#[test]
fn who_shares_keeps_writers_out_and_waits_for_them() {
    let dir = TestDir::new("guard-share");
    let path = dir.file("a", b"x");
    let log = dir.path().join("log");
    let format = Arc::new(Format { log: log.clone(), recovered: AtomicU32::new(0) });
    let guard = Guard { log, keeper: format };
    let write = || FileLock::acquire(&path, Range::CONTENT, Mode::Exclusive, Patience::NONE);
    let writer = write().unwrap();
    let refused = guard.share(&path, Patience::NONE).unwrap_err();
    assert_eq!("locked", refused.code());
    drop(writer);
    let shared = guard.share(&path, Patience::NONE).unwrap();
    assert!(shared.is_some() && write().is_err());
}

#[test]
fn a_file_that_is_gone_is_read_without_a_lock() {
    let lock = beside(Path::new("/nonexistent/a"), Patience::NONE);
    assert!(lock.unwrap().is_none(), "whoever reads it says what is wrong");
}

//! Early write-back of written bytes, concurrently with the writes.
//!
//! Problem: after a large write, all data is left to the fsync, while the disk was idle. Asking the
//! kernel to begin immediately (`sync_file_range`) makes write and fsync together 1.5 to 2 times
//! faster, but the call itself waits while the disk's queue is full, which made the write alone
//! twice as slow. Even on another thread it costs a copying thread a quarter of its speed, so it is
//! done only if a flush follows.
//!
//! Idea: a separate thread makes these calls. It holds duplicates of the descriptors and no memory
//! of other code, so the job need not wait for it; it ends when write-back of all its pieces has
//! started. If it does not start or does not keep up, nothing is lost: fsync then does the work.
//!
//! Invariant: consecutive pieces of one file share a duplicate, and this process never has more
//! than [`DUPLICATES`], so a slow disk does not use up descriptors. A duplicate may outlive the
//! job, and the array, by the time that the disk takes to accept the waiting pieces.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;

use crate::backend::sys;
use crate::open_file::OpenFile;

/// Most waiting pieces; further ones are left to fsync.
const WAITING: usize = 1024;

/// Most descriptors of all threads of this process; further files are left to fsync.
const DUPLICATES: usize = 32;

/// Current number of duplicates.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// A piece of a file.
type Piece = (Arc<Duplicate>, i64, i64);

/// A second descriptor of an open file.
struct Duplicate {
    fd: OwnedFd,
    /// Device and inode, because descriptor numbers are reused.
    inode: (u64, u64),
}

impl Duplicate {
    fn of(file: &OpenFile, inode: (u64, u64)) -> Option<Arc<Duplicate>> {
        // SAFETY: the descriptor is open, as `file` is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
        if HELD.fetch_add(1, Ordering::Relaxed) < DUPLICATES {
            if let Ok(fd) = fd.try_clone_to_owned() {
                return Some(Arc::new(Duplicate { fd, inode }));
            }
        }
        HELD.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        // The count is reduced just before the descriptor is closed: the field is dropped after
        // this.
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Channel to the thread, which ends after this is dropped.
#[derive(Default)]
pub(super) struct Writeback {
    thread: Option<SyncSender<Piece>>,
    refused: bool,
    last: Option<Arc<Duplicate>>,
    /// Number of pieces so far, for tests: otherwise only times would show the effect.
    #[cfg(test)]
    pub(super) told: u64,
}

impl Writeback {
    /// Queues write-back of bytes of a file; never waits, never fails.
    pub(super) fn soon(&mut self, file: &OpenFile, offset: i64, len: i64) {
        #[cfg(test)]
        {
            self.told += 1;
        }
        let Some(file) = self.duplicate(file) else { return };
        if self.thread.is_none() && !self.refused {
            let (send, receive) = sync_channel::<Piece>(WAITING);
            let thread = std::thread::Builder::new().name("outcore-wback".into());
            let work = move || {
                for (file, offset, len) in receive {
                    sys::send(file.fd.as_raw_fd(), offset, len);
                }
            };
            match thread.stack_size(64 << 10).spawn(work) {
                Ok(_) => self.thread = Some(send),
                Err(_) => self.refused = true,
            }
        }
        if let Some(thread) = &self.thread {
            // If the queue is full or the thread has ended, the piece is left to fsync.
            let _ = thread.try_send((file, offset, len));
        }
    }

    /// Returns the duplicate of the previous piece if it is of the same file, otherwise a new one.
    fn duplicate(&mut self, file: &OpenFile) -> Option<Arc<Duplicate>> {
        let inode = file.inode().ok()?;
        if self.last.as_ref().is_none_or(|last| last.inode != inode) {
            self.last = None; // closed before the next one is opened
            self.last = Duplicate::of(file, inode);
        }
        self.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn pieces_of_one_file_share_a_descriptor_and_other_files_are_bounded() {
        let dir = TestDir::new("writeback");
        let open = |name: &str| OpenFile::open(&dir.file(name, b"x"), true).unwrap();
        let (one, again, other) = (open("a"), open("a"), open("b"));
        let mut back = Writeback::default();
        let first = back.duplicate(&one).unwrap();
        assert!(Arc::ptr_eq(&first, &back.duplicate(&again).unwrap()));
        let second = back.duplicate(&other).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        let files: Vec<_> = (0..2 * DUPLICATES).map(|k| open(&k.to_string())).collect();
        let many: Vec<_> = files.iter().filter_map(|file| back.duplicate(file)).collect();
        assert!(many.len() < DUPLICATES && !many.is_empty());
        drop((first, second, many));
        assert!(back.duplicate(&one).is_some());
    }
}

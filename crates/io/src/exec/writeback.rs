//! Starts to put written bytes on the disk, beside the writing.
//!
//! Problem: a large write leaves everything to the later fsync, while the disk was idle. Asking the
//! kernel to begin at once (`sync_file_range`) makes write and fsync together 1.5 to 2 times faster,
//! but the call itself waits while the disk's queue is full, which made the write alone twice as
//! slow. Even beside the writing it costs a copying thread a quarter of its speed, so it is done only
//! where a flush is going to follow.
//!
//! Idea: a thread of its own makes these calls. It holds duplicates of the descriptors and no memory
//! of anybody, so the job need not wait for it; it ends when all it was told is on its way. Should
//! it not start or not keep up, nothing is lost: fsync does the work then.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{sync_channel, SyncSender};

/// Pieces that may wait; further ones are left to fsync.
const WAITING: usize = 1024;

/// A piece of a file.
type Piece = (OwnedFd, i64, i64);

/// The way to the thread. It ends after this is dropped.
#[derive(Default)]
pub(super) struct Writeback {
    thread: Option<SyncSender<Piece>>,
    refused: bool,
    /// Pieces so far, for tests: what the kernel makes of them shows in times only.
    #[cfg(test)]
    pub(super) told: u64,
}

impl Writeback {
    /// Lets bytes of a file be written to the disk soon. Never waits, never fails.
    pub(super) fn soon(&mut self, file: &impl AsRawFd, offset: i64, len: i64) {
        #[cfg(test)]
        {
            self.told += 1;
        }
        // SAFETY: the descriptor is open, as `file` is borrowed.
        let file = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
        let Ok(file) = file.try_clone_to_owned() else { return };
        if self.thread.is_none() && !self.refused {
            let (send, receive) = sync_channel::<Piece>(WAITING);
            let thread = std::thread::Builder::new().name("outcore-wback".into());
            let work = move || {
                for (file, offset, len) in receive {
                    start(&file, offset, len);
                }
            };
            match thread.stack_size(64 << 10).spawn(work) {
                Ok(_) => self.thread = Some(send),
                Err(_) => self.refused = true,
            }
        }
        if let Some(thread) = &self.thread {
            // Full or gone: left to fsync.
            let _ = thread.try_send((file, offset, len));
        }
    }
}

fn start(file: &OwnedFd, offset: i64, len: i64) {
    #[cfg(target_os = "linux")]
    // SAFETY: the descriptor is open; the call takes no memory.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}

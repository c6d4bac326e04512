//! Publishing of files, from temporary to final names, while other threads make the next ones.
//!
//! Problem. A file may get its name only when its bytes are on the disk: otherwise a crash of the
//! machine leaves an empty or torn file under a final name. Waiting for that after each chunk takes
//! longer than making the chunk, and so does the rename, in which the system waits while it frees
//! the blocks of the replaced file. All of this is waiting, not work.
//!
//! Idea. Threads that encode chunks pass finished temporary files on ([`Publisher::push`]) and
//! continue. Threads of the publisher take a few of the waiting files, sync them one by one (the
//! first sync makes the journal of the file system include the others), and rename them. There is
//! one thread, and more as files accumulate: they sleep while the disk works, which completes many
//! syncs in the time of one. A single file needs no thread: [`finish`](Publisher::finish) publishes
//! it.
//!
//! Invariants. No file is renamed before its own sync has succeeded. Few files wait at a time, each
//! with an open descriptor: `push` waits for room. The first error stops everything: files that are
//! not renamed by then are removed, so each name is old or new. When `finish` or `drop` returns, no
//! thread is left.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::unsynced::Unsynced;
use crate::durable::TempFile;
use crate::error::StorageError;

/// Most waiting files; each has an open descriptor.
const WAITING: usize = 64;
/// Files that one thread takes in one step, and waiting files for each thread. With more, the syncs
/// of a few chunks would run one after another on one thread; fewer gained nothing.
const AT_ONCE: usize = 4;
/// Most threads. Syncing 1024 files of 7 kB took 260 ms with one, 130 with four, 76 with sixteen.
const THREADS: usize = WAITING / AT_ONCE;

/// Most open files: waiting, taken by threads, and being written.
pub(super) const MOST_OPEN: i64 = 3 * WAITING as i64;

/// Publishes files of one batch.
#[derive(Debug)]
pub(super) struct Publisher {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A complete file.
#[derive(Debug)]
struct Ready {
    temp: TempFile,
    exclusive: bool,
}

#[derive(Debug)]
struct Queue {
    unsynced: Arc<Unsynced>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Ready>,
    /// Set when no more files will come.
    closed: bool,
    /// The first error.
    error: Option<StorageError>,
}

impl Publisher {
    /// Makes a publisher; `unsynced` will sync the new names.
    pub(super) fn new(unsynced: &Arc<Unsynced>) -> Publisher {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let queue = Arc::new(Queue { unsynced: Arc::clone(unsynced), state, changed });
        Publisher { queue, threads: Mutex::default() }
    }

    /// Queues a complete file for renaming. With `exclusive`, an existing file of that name stays,
    /// and the new one is removed, without an error.
    ///
    /// # Errors
    /// The first failure of any file so far.
    pub(super) fn push(&self, temp: TempFile, exclusive: bool) -> Result<(), StorageError> {
        let mut state = self.queue.lock();
        while state.waiting.len() >= WAITING && state.error.is_none() {
            let waited = self.queue.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.check()?;
        state.waiting.push_back(Ready { temp, exclusive });
        let waiting = state.waiting.len();
        drop(state);
        self.queue.changed.notify_one();
        self.staff(waiting);
        Ok(())
    }

    /// Starts a thread if there are too few for the waiting files. Without threads, `finish` does
    /// all the work.
    fn staff(&self, waiting: usize) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() < wanted(waiting) {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new().name("outcore-publish".into());
            if let Ok(started) = thread.stack_size(256 << 10).spawn(move || queue.serve()) {
                threads.push(started);
            } else if threads.is_empty() && waiting >= WAITING / 2 {
                // No other thread will make room.
                self.queue.work(AT_ONCE);
            }
        }
    }

    /// Waits until all files have their names.
    ///
    /// # Errors
    /// The first failure of any file.
    pub(super) fn finish(self) -> Result<(), StorageError> {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        while self.queue.work(1) {}
        self.join();
        let result = self.queue.lock().check();
        result
    }

    fn join(&self) {
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                self.queue.fail(StorageError::BadJob("a thread of the chunk store died".into()));
            }
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // After `finish` nothing is left to do here; without it, waiting files are discarded.
        let given_up = {
            let mut state = self.queue.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        self.queue.changed.notify_all();
        drop(given_up);
        self.join();
    }
}

/// Returns the number of threads for `waiting` files.
fn wanted(waiting: usize) -> usize {
    match waiting {
        0 | 1 => 0,
        n => n.div_ceil(AT_ONCE).min(THREADS),
    }
}

impl State {
    fn check(&self) -> Result<(), StorageError> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let mut state = self.lock();
            while state.waiting.is_empty() {
                if state.closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            self.work(AT_ONCE);
        }
    }

    /// Publishes up to `most` files; returns whether there were any.
    fn work(&self, most: usize) -> bool {
        let some: Vec<Ready> = {
            let mut state = self.lock();
            let number = state.waiting.len().min(most);
            state.waiting.drain(..number).collect()
        };
        if some.is_empty() {
            return false;
        }
        // Wakes threads that wait for room.
        self.changed.notify_all();
        if let Err(error) = self.publish(some) {
            self.fail(error);
        }
        true
    }

    fn publish(&self, some: Vec<Ready>) -> Result<(), StorageError> {
        for ready in &some {
            ready.temp.sync()?;
        }
        for Ready { temp, exclusive } in some {
            let target = temp.target().to_path_buf();
            match temp.install(exclusive) {
                Err(error) if exclusive && error.code() == "already-exists" => {}
                other => other.and_then(|()| self.unsynced.renamed(&target))?,
            }
        }
        Ok(())
    }

    /// Records the first error, and discards the waiting files.
    fn fail(&self, error: StorageError) {
        let given_up = {
            let mut state = self.lock();
            state.error.get_or_insert(error);
            std::mem::take(&mut state.waiting)
        };
        self.changed.notify_all();
        drop(given_up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sys;
    use crate::testdir::TestDir;

    fn ready(target: &std::path::Path, bytes: &[u8]) -> TempFile {
        let temp = TempFile::beside(target).unwrap();
        sys::write_at(temp.fd(), bytes, 0).unwrap();
        temp
    }

    fn names(dir: &std::path::Path) -> usize {
        std::fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn all_files_get_their_names_and_no_thread_is_left() {
        let dir = TestDir::new("publish-all");
        let root = dir.path("");
        for number in [0usize, 1, 2, 5 * WAITING] {
            let publisher = Publisher::new(&Unsynced::new(&root));
            for k in 0..number {
                let target = dir.path(&format!("{k}"));
                publisher.push(ready(&target, &k.to_le_bytes()), false).unwrap();
            }
            let queue = Arc::clone(&publisher.queue);
            publisher.finish().unwrap();
            assert_eq!(1, Arc::strong_count(&queue));
            for k in 0..number {
                let seen = std::fs::read(dir.path(&format!("{k}"))).unwrap();
                assert_eq!(k.to_le_bytes().as_slice(), seen);
            }
        }
        assert_eq!(5 * WAITING, names(&root));
    }

    #[test]
    fn there_are_threads_as_files_pile_up_and_none_for_one_file() {
        assert_eq!([0, 0, 1, 1], [0, 1, 2, AT_ONCE].map(wanted));
        assert_eq!([2, 3], [AT_ONCE + 1, 2 * AT_ONCE + 1].map(wanted));
        assert_eq!([THREADS, THREADS], [WAITING, 10 * WAITING].map(wanted));
    }

    #[test]
    fn an_exclusive_name_stays_with_who_has_it() {
        let dir = TestDir::new("publish-exclusive");
        let target = dir.file("taken", b"first");
        let publisher = Publisher::new(&Unsynced::new(&dir.path("")));
        publisher.push(ready(&target, b"second"), true).unwrap();
        publisher.finish().unwrap();
        assert_eq!(b"first".as_slice(), std::fs::read(&target).unwrap());
        assert_eq!(1, names(&dir.path("")));
    }

    #[test]
    fn the_first_error_is_told_and_nothing_is_left_behind() {
        let dir = TestDir::new("publish-error");
        let root = dir.path("");
        let folder = dir.path("folder");
        std::fs::create_dir(&folder).unwrap();
        let publisher = Publisher::new(&Unsynced::new(&root));
        // A file cannot be renamed to a folder.
        publisher.push(ready(&folder, b"x"), false).unwrap();
        let mut results = Vec::new();
        for k in 0..3 * WAITING {
            let target = dir.path(&format!("{k}"));
            results.push(publisher.push(ready(&target, b"y"), false));
        }
        results.push(publisher.finish());
        let last = results.pop().unwrap().unwrap_err();
        assert_eq!(Some(folder.as_path()), last.path(), "{last}");
        // After the first error, all calls raise it.
        assert!(results.into_iter().skip_while(Result::is_ok).all(|result| result.is_err()));
        let left = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name());
        let hidden = left.filter(|name| name.to_string_lossy().starts_with('.')).count();
        assert_eq!(0, hidden);
    }

    #[test]
    fn what_is_given_up_leaves_nothing_half_done() {
        let dir = TestDir::new("publish-drop");
        let publisher = Publisher::new(&Unsynced::new(&dir.path("")));
        for k in 0..WAITING {
            let target = dir.path(&format!("{k}"));
            publisher.push(ready(&target, b"whole"), false).unwrap();
        }
        drop(publisher);
        for entry in std::fs::read_dir(dir.path("")).unwrap() {
            let path = entry.unwrap().path();
            assert!(!path.file_name().unwrap().to_string_lossy().starts_with('.'), "{path:?}");
            assert_eq!(b"whole".as_slice(), std::fs::read(path).unwrap());
        }
    }
}

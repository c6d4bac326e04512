//! Files and names that were written and may not be on the disk yet.
//!
//! Files that were written in place are collected and synced together, in parallel. After them,
//! their folders are synced, and the folders of files with new names (whose bytes are on the disk
//! already), up to the root of the array. The lists are bounded: when one is full, its files are
//! synced immediately.
//!
//! After a failure, the rest of the list is still tried. If a sync could not be tried (no
//! descriptor left), its file is listed again; after a failed sync, all flushes of the array fail
//! (`flush`). Files are opened by name for their sync: the kernel reports a failed write-back to a
//! new descriptor if it has not reported it before.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::sys;
use crate::descriptors;
use crate::error::{self, StorageError};
use crate::flush::{self, Flushes, Trouble};

/// Most names that are collected before an early sync.
const MOST: usize = 8192;
/// Syncs in flight: the journal of the file system combines them.
const THREADS: usize = 8;

#[derive(Debug)]
pub(super) struct Unsynced {
    root: PathBuf,
    late: Mutex<Late>,
    flushes: Flushes,
}

#[derive(Debug, Default)]
struct Late {
    /// Files whose bytes may not be on the disk.
    files: BTreeSet<PathBuf>,
    /// Folders whose names may not be on the disk.
    folders: BTreeSet<PathBuf>,
}

impl Unsynced {
    /// Makes a list for files below `root`.
    pub(super) fn new(root: &Path) -> Arc<Unsynced> {
        let (late, flushes) = (Mutex::default(), Flushes::default());
        Arc::new(Unsynced { root: root.to_path_buf(), late, flushes })
    }

    fn lock(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a file with a new name, whose bytes are on the disk.
    pub(super) fn renamed(&self, path: &Path) -> Result<(), StorageError> {
        self.folders(&mut self.lock().folders, path);
        self.trim()
    }

    /// Adds the folders that hold `path`, up to the root.
    fn folders(&self, folders: &mut BTreeSet<PathBuf>, path: &Path) {
        for folder in path.ancestors().skip(1).take_while(|p| p.starts_with(&self.root)) {
            if !folders.insert(folder.to_path_buf()) {
                break;
            }
        }
    }

    /// Syncs early if the list is full.
    pub(super) fn trim(&self) -> Result<(), StorageError> {
        if !self.lock().is_full() {
            return Ok(());
        }
        self.flushes.early(|| {
            // Another thread may have emptied the list while this one waited for its turn.
            let full = {
                let mut late = self.lock();
                if late.is_full() {
                    std::mem::take(&mut *late)
                } else {
                    Late::default()
                }
            };
            self.sync(full)
        })
    }

    /// Waits until all files are on the disk under their names.
    pub(super) fn flush(&self) -> Result<(), StorageError> {
        self.flushes.flush(|| {
            let late = std::mem::take(&mut *self.lock());
            self.sync(late)
        })
    }

    fn sync(&self, late: Late) -> Result<(), Trouble> {
        let Late { files, mut folders } = late;
        for path in &files {
            self.folders(&mut folders, path);
        }
        let files: Vec<PathBuf> = files.into_iter().collect();
        // Each thread has a file open; this thread in any case.
        let others = descriptors::take_some(files.len().min(THREADS) as u64);
        let part = files.len().div_ceil(others.number().max(1) as usize).max(1);
        let some = |some: &[PathBuf]| Ok(flush::all(some.iter().map(|path| self.file(path))));
        let synced = match side_by_side(files.chunks(part).collect(), some) {
            Ok(parts) => flush::all(parts),
            Err(died) => Err(Trouble::Lost(died)),
        };
        let named = flush::all(folders.iter().map(|folder| self.folder(folder)));
        flush::all([synced, named])
    }

    fn file(&self, path: &Path) -> Result<(), Trouble> {
        match sys::open(path, libc::O_RDONLY | libc::O_NONBLOCK, 0) {
            Ok(fd) => sys::sync(fd.as_raw_fd(), false).map_err(|errno| lost(path, errno)),
            // Removed by a concurrent resize: no data is left to lose.
            Err(libc::ENOENT | libc::ENOTDIR) => Ok(()),
            Err(errno) => {
                self.lock().files.insert(path.to_path_buf());
                Err(Trouble::Untried(StorageError::io("open for a flush", path, errno)))
            }
        }
    }

    fn folder(&self, folder: &Path) -> Result<(), Trouble> {
        match sys::open(folder, libc::O_RDONLY | libc::O_DIRECTORY, 0) {
            Ok(fd) => match sys::sync(fd.as_raw_fd(), false) {
                // Some network file systems cannot sync folders: names are durable there
                // immediately.
                Ok(()) | Err(libc::EINVAL) => Ok(()),
                Err(errno) => Err(lost(folder, errno)),
            },
            Err(libc::ENOENT) if folder != self.root => Ok(()),
            Err(errno) => {
                self.lock().folders.insert(folder.to_path_buf());
                Err(Trouble::Untried(StorageError::io("open for a flush", folder, errno)))
            }
        }
    }
}

impl Late {
    fn is_full(&self) -> bool {
        self.files.len().max(self.folders.len()) >= MOST
    }
}

fn lost(path: &Path, errno: i32) -> Trouble {
    Trouble::Lost(StorageError::io(error::FLUSH, path, errno))
}

/// Files that are being written in place; listed when this is dropped, after the writes.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) unsynced: Arc<Unsynced>,
    pub(super) paths: Vec<PathBuf>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let paths = std::mem::take(&mut self.paths);
        self.unsynced.lock().files.extend(paths);
    }
}

/// Runs `work` on each item, on this thread and on others if the system provides them; returns the
/// first error in the order of items.
pub(super) fn side_by_side<I: Send, O: Send>(
    items: Vec<I>,
    work: impl Fn(I) -> Result<O, StorageError> + Sync,
) -> Result<Vec<O>, StorageError> {
    let others = items.len().saturating_sub(1);
    let done: Vec<Mutex<Option<Result<O, StorageError>>>> =
        items.iter().map(|_| Mutex::default()).collect();
    let items = Mutex::new(items.into_iter().zip(&done));
    let serve = || loop {
        let next = items.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((item, done)) = next else { break };
        let result = work(item);
        *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    };
    std::thread::scope(|scope| {
        for _ in 0..others {
            let thread = std::thread::Builder::new().name("outcore-files".into());
            if thread.spawn_scoped(scope, serve).is_err() {
                break;
            }
        }
        serve();
    });
    drop(items);
    let lost = || Err(StorageError::BadJob("a thread of the chunk store died".into()));
    let result = |one: Mutex<Option<_>>| {
        one.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(lost)
    };
    done.into_iter().map(result).collect()
}

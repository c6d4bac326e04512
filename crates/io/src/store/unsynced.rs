//! Which files and names were written and are not yet known to be on the disk.
//!
//! Files that were written in place are collected and synced together, side by side; then the folders
//! that hold them, or that hold files with new names (whose bytes are on the disk already), up to the
//! root of the array. The lists are bounded: when one is full, what they hold is synced at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::durable::{sync_folder_of, sync_paths};
use crate::error::StorageError;

/// Names kept before they are synced without being asked.
const MOST: usize = 8192;
/// Syncs in flight: the journal of the file system joins them.
const THREADS: usize = 8;

#[derive(Debug)]
pub(super) struct Unsynced {
    root: PathBuf,
    late: Mutex<Late>,
}

#[derive(Debug, Default)]
struct Late {
    /// Files whose bytes may not be on the disk.
    files: BTreeSet<PathBuf>,
    /// Folders whose names may not be.
    folders: BTreeSet<PathBuf>,
}

impl Unsynced {
    /// Files below `root`.
    pub(super) fn new(root: &Path) -> Arc<Unsynced> {
        Arc::new(Unsynced { root: root.to_path_buf(), late: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a file that has a new name, its bytes being on the disk.
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

    /// Makes room for more names.
    pub(super) fn trim(&self) -> Result<(), StorageError> {
        let mut late = self.lock();
        if late.files.len().max(late.folders.len()) < MOST {
            return Ok(());
        }
        let full = std::mem::take(&mut *late);
        drop(late);
        self.sync(full)
    }

    /// Waits until all files are on the disk under their names. What fails is not tried again: the
    /// kernel forgets pages that it could not write.
    pub(super) fn flush(&self) -> Result<(), StorageError> {
        let late = std::mem::take(&mut *self.lock());
        self.sync(late)
    }

    fn sync(&self, late: Late) -> Result<(), StorageError> {
        let Late { files, mut folders } = late;
        for path in &files {
            self.folders(&mut folders, path);
        }
        let files: Vec<PathBuf> = files.into_iter().collect();
        let part = files.len().div_ceil(THREADS).max(1);
        side_by_side(files.chunks(part).collect(), |some| some.iter().try_for_each(sync_one))?;
        folders.iter().try_for_each(|folder| sync_folder_of(&folder.join("entry")))
    }
}

/// Files that are being written in place; remembered when this is dropped, after the writes.
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

fn sync_one(path: &PathBuf) -> Result<(), StorageError> {
    match sync_paths(&[path]) {
        // Removed meanwhile, by a resize: nothing is left that could be lost.
        Err(error) if error.code() == "not-found" => Ok(()),
        other => other,
    }
}

/// Runs `work` on each item, each on a thread of its own; the first error in the order of items.
pub(super) fn side_by_side<I: Send, O: Send>(
    items: Vec<I>,
    work: impl Fn(I) -> Result<O, StorageError> + Sync,
) -> Result<Vec<O>, StorageError> {
    if items.len() < 2 {
        return items.into_iter().map(work).collect();
    }
    std::thread::scope(|scope| {
        let work = &work;
        let spawn = |item| scope.spawn(move || work(item));
        let threads: Vec<_> = items.into_iter().map(spawn).collect();
        let lost = |_| Err(StorageError::BadJob("a thread of the chunk store died".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    })
}

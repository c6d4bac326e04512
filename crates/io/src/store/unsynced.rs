//! Which files were written and are not yet known to be on the disk.
//!
//! Waiting for the disk after each chunk would cost more than the chunk. So names are collected and
//! synced together: files first, side by side, then the folders that hold them, up to the root of
//! the array. The list is bounded: when it is full, what it holds is synced at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::durable::{sync_folder_of, sync_paths};
use crate::error::StorageError;

/// Names kept before they are synced without being asked.
const MOST: usize = 8192;
/// Syncs in flight: the journal of the file system joins them.
const THREADS: usize = 8;

#[derive(Debug)]
pub(super) struct Unsynced {
    root: PathBuf,
    paths: Mutex<BTreeSet<PathBuf>>,
}

impl Unsynced {
    /// Files below `root`.
    pub(super) fn new(root: &Path) -> Arc<Unsynced> {
        Arc::new(Unsynced { root: root.to_path_buf(), paths: Mutex::new(BTreeSet::new()) })
    }

    /// Remembers a file that was written or renamed.
    pub(super) fn add(&self, path: PathBuf) -> Result<(), StorageError> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
        self.trim()
    }

    /// Makes room for more names.
    pub(super) fn trim(&self) -> Result<(), StorageError> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() < MOST {
            return Ok(());
        }
        let full = std::mem::take(&mut *paths);
        drop(paths);
        self.sync(full)
    }

    /// Waits until all files are on the disk under their names. What fails is not tried again: the
    /// kernel forgets pages that it could not write.
    pub(super) fn flush(&self) -> Result<(), StorageError> {
        let paths = std::mem::take(&mut *self.paths.lock().unwrap_or_else(PoisonError::into_inner));
        self.sync(paths)
    }

    fn sync(&self, paths: BTreeSet<PathBuf>) -> Result<(), StorageError> {
        if paths.is_empty() {
            return Ok(());
        }
        let mut folders = BTreeSet::new();
        for path in &paths {
            let inside = |p: &&Path| p.starts_with(&self.root);
            for folder in path.ancestors().skip(1).take_while(inside) {
                if !folders.insert(folder.to_path_buf()) {
                    break;
                }
            }
        }
        let files: Vec<PathBuf> = paths.into_iter().collect();
        let part = files.len().div_ceil(THREADS);
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
        self.unsynced.paths.lock().unwrap_or_else(PoisonError::into_inner).extend(paths);
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

//! The folder of an array of chunk files, and the check that it is still the array that was opened.
//!
//! Problem. Chunks are found by name, long after the metadata were read. In the meantime another
//! array may have these names (`create`, `convert`, another program), or none. Chunks that are read
//! or written with the shape of the old array are then wrong for both.
//!
//! Idea. The folder is opened once and kept open: all names are looked up from there, so a write
//! ends in the folder in which it began, even if another folder gets its name. In addition, after
//! opening its files, each access queries the file to which the name of the metadata leads, with
//! one call. If that is the file that was read, with the same times, the files belong to this
//! array. Otherwise an attribute or the shape has changed, or it is another array: the format reads
//! the metadata again and decides.
//!
//! Invariants. No chunk is created, written or read, unless the metadata were those of the array
//! after the folder and its files had been opened.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Cells;
use crate::backend::sys::{self, Spot};
use crate::beneath::Beneath;
use crate::descriptors::{self, Places};
use crate::error::StorageError;
use crate::stamp::Stamp;

/// Result of reading the metadata again.
#[derive(Debug, Clone)]
pub struct Found {
    /// Stamp of the file that was read.
    pub document: Stamp,
    /// Current chunks per axis, where they are fewer than before.
    pub limits: Vec<i64>,
}

/// Function that reads the metadata again; returns the text of an error if they belong to another
/// array.
pub type Again = Box<dyn Fn() -> Result<Found, String> + Send + Sync>;

/// State of an array when its metadata were read.
pub struct Identity {
    /// Device and inode of its folder.
    pub folder: Option<(u64, u64)>,
    /// Path of the file that holds its metadata.
    pub file: PathBuf,
    /// State of that file when it was read.
    pub document: Option<Stamp>,
    /// Reads it again.
    pub again: Again,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// The folder of an array.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    identity: Option<Identity>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Open folder, and its place in the budget of open files.
    folder: Option<(Arc<Beneath>, Places)>,
    /// Stamp of the metadata that were found to be those of this array.
    document: Option<Stamp>,
    limits: Vec<i64>,
}

/// Attempts if metadata change while they are checked.
const TRIES: usize = 8;

impl Root {
    /// Makes the root at `path`. Without an identity, any folder at the first access is accepted.
    pub(super) fn new(path: &Path, identity: Option<Identity>) -> Root {
        let document = identity.as_ref().and_then(|identity| identity.document);
        let state = Mutex::new(State { document, ..State::default() });
        Root { path: path.to_path_buf(), identity, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open folder; open files from here, and then call [`confirm`](Root::confirm).
    ///
    /// # Errors
    /// `not-found`, `file-changed`, and `Io` if a system call fails.
    pub(super) fn folder(&self) -> Result<Arc<Beneath>, StorageError> {
        if let Some((folder, _)) = &self.state().folder {
            return Ok(Arc::clone(folder));
        }
        let folder = Arc::new(Beneath::open(&self.path)?);
        self.same_folder(folder.stamp())?;
        let counted = || (folder, descriptors::note());
        Ok(Arc::clone(&self.state().folder.get_or_insert_with(counted).0))
    }

    /// Returns the open folder for reading; `None` if there is none. If a group above stores the
    /// metadata, an array without writes needs no folder.
    ///
    /// # Errors
    /// As `folder`.
    pub(super) fn folder_if_there(&self) -> Result<Option<Arc<Beneath>>, StorageError> {
        match self.folder() {
            Err(error) if error.code() == "not-found" => Ok(None),
            found => found.map(Some),
        }
    }

    fn same_folder(&self, found: (u64, u64)) -> Result<(), StorageError> {
        let known = self.state().folder.as_ref().map(|(folder, _)| folder.stamp());
        let known = known.or_else(|| self.identity.as_ref().and_then(|identity| identity.folder));
        match known {
            Some(known) if known != found => Err(self.replaced("another array has replaced it")),
            _ => Ok(()),
        }
    }

    fn replaced(&self, why: &str) -> StorageError {
        let name = self.path.display();
        let why = format!("{name} is not the array that was opened: {why}; open it again");
        StorageError::Replaced { path: self.path.clone(), why }
    }

    /// Checks that the files opened below the folder belong to this array: its metadata still
    /// exist, and still include these chunks.
    ///
    /// # Errors
    /// `not-found` if it was removed, `file-changed` if it was replaced, or made too small.
    pub(super) fn confirm(&self, cells: &Cells) -> Result<(), StorageError> {
        let Some(identity) = &self.identity else { return Ok(()) };
        let mut now = look(&identity.file)?;
        let mut turn = 0;
        while self.state().document != Some(now) {
            // An attribute, a new length, or another array; the format decides.
            let found = (identity.again)();
            let found =
                found.map_err(|why| StorageError::Replaced { path: self.path.clone(), why })?;
            now = look(&identity.file)?;
            self.same_folder(Beneath::open(&self.path)?.stamp())?;
            turn += 1;
            if found.document == now {
                let state = &mut *self.state();
                (state.document, state.limits) = (Some(now), found.limits);
            } else if turn == TRIES {
                return Err(self.replaced("its metadata keep changing"));
            }
        }
        let end = |d: usize| cells.lo[d].saturating_add(cells.count[d]);
        let short = self.state().limits.iter().enumerate().any(|(d, limit)| end(d) > *limit);
        match short && !cells.is_empty() {
            true => Err(self.replaced("it was made smaller")),
            false => Ok(()),
        }
    }
}

fn look(file: &Path) -> Result<Stamp, StorageError> {
    let found = Spot::of(file).and_then(|spot| sys::stat_at(&spot, false));
    found.map(|found| Stamp::of(&found)).map_err(|errno| StorageError::io("stat", file, errno))
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::backend::faulty::{arm, Fault, Faults, Rule};
    use crate::backend::sys::Kind;
    use crate::testdir::TestDir;

    #[test]
    fn an_access_asks_once_and_reads_metadata_again_only_when_they_changed() {
        let dir = TestDir::new("root-asks-once");
        let file = dir.file("zarr.json", b"{}");
        let reads = Arc::new(AtomicUsize::new(0));
        let (counted, read) = (Arc::clone(&reads), file.clone());
        let again = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let document = look(&read).map_err(|error| error.to_string())?;
            Ok(Found { document, limits: vec![2] })
        };
        let document = Some(look(&file).unwrap());
        let identity =
            Identity { folder: None, file: file.clone(), document, again: Box::new(again) };
        let root = Root::new(&dir.path(""), Some(identity));
        let cells = |count| Cells { lo: vec![0], count: vec![count] };
        root.folder().unwrap();
        {
            // The second query of an access would fail.
            let rule = Rule::every(2, Fault::Errno(libc::EIO)).on(Kind::Look).path("asks-once");
            let _armed = arm(Faults::new([rule]));
            root.confirm(&cells(5)).unwrap();
            assert_eq!("disk-failure", root.confirm(&cells(5)).unwrap_err().code());
        }
        assert_eq!(0, reads.load(Ordering::SeqCst));
        std::fs::write(&file, b"{ }").unwrap();
        root.confirm(&cells(2)).unwrap();
        root.confirm(&cells(2)).unwrap();
        assert_eq!(1, reads.load(Ordering::SeqCst));
        assert_eq!("file-changed", root.confirm(&cells(3)).unwrap_err().code());
        std::fs::remove_file(&file).unwrap();
        assert_eq!("not-found", root.confirm(&cells(2)).unwrap_err().code());
    }

    #[test]
    fn a_folder_that_took_the_place_of_ours_is_told_by_its_stamp() {
        let dir = TestDir::new("root-another-folder");
        let (ours, file) = (dir.path("a"), dir.path("a/zarr.json"));
        std::fs::create_dir(&ours).unwrap();
        std::fs::write(&file, b"{}").unwrap();
        let identity = |folder| {
            // A format that sees no difference.
            let read = file.clone();
            let again = move || {
                let document = look(&read).map_err(|error| error.to_string())?;
                Ok(Found { document, limits: Vec::new() })
            };
            let document = Some(look(&file).unwrap());
            Identity { folder, file: file.clone(), document, again: Box::new(again) }
        };
        let stamp = Beneath::open(&ours).unwrap().stamp();
        let opened = Root::new(&ours, Some(identity(None)));
        opened.folder().unwrap();
        let late = Root::new(&ours, Some(identity(Some(stamp))));
        std::fs::rename(&ours, dir.path("b")).unwrap();
        std::fs::create_dir(&ours).unwrap();
        std::fs::write(&file, b"{}").unwrap();
        let cells = Cells { lo: vec![0], count: vec![1] };
        assert_eq!("file-changed", opened.confirm(&cells).unwrap_err().code());
        assert_eq!("file-changed", late.folder().unwrap_err().code());
    }
}

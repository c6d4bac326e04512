//! The folder of an array of chunk files, and whether it is still the array that was opened.
//!
//! Problem. Chunks are found by name, long after the metadata were read. By then another array may lie
//! under these names (`create`, `convert`, another program), or none; chunks of its shape, read or
//! written as chunks of the old one, are neither.
//!
//! Idea. The folder is opened once and kept: all names are looked up from there, so a write that has
//! begun ends in the folder in which it began, whatever takes its name meanwhile. And each access asks,
//! after it has opened its files, what the name of the metadata leads to: one call. If that is the file
//! that was read, with the same times, the files are those of this array. If it is not, somebody changed
//! an attribute or the shape, or it is another array: the format reads it again and tells.
//!
//! Invariants. No chunk is created, written or read, unless the metadata were those of the array after
//! the folder had been opened and its files with it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Cells;
use crate::backend::sys::{self, Spot};
use crate::beneath::Beneath;
use crate::descriptors::{self, Places};
use crate::error::StorageError;
use crate::stamp::Stamp;

/// What the format finds when it reads the metadata again.
#[derive(Debug, Clone)]
pub struct Found {
    /// Of the file that it read.
    pub document: Stamp,
    /// Chunks per axis that the array has by now, where these are fewer than it had.
    pub limits: Vec<i64>,
}

/// Reads the metadata again; an error in words, if they are of another array.
pub type Again = Box<dyn Fn() -> Result<Found, String> + Send + Sync>;

/// What was known of an array when its metadata were read.
pub struct Identity {
    /// Device and inode of its folder.
    pub folder: Option<(u64, u64)>,
    /// The file that holds its metadata.
    pub file: PathBuf,
    /// That file, as it was read.
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
    /// With its place among the open files.
    folder: Option<(Arc<Beneath>, Places)>,
    /// The metadata that were found to be those of this array.
    document: Option<Stamp>,
    limits: Vec<i64>,
}

/// How often metadata that change while they are looked at are read again.
const TRIES: usize = 8;

impl Root {
    /// The folder at `path`. Without an identity it is whatever is there at the first access.
    pub(super) fn new(path: &Path, identity: Option<Identity>) -> Root {
        let document = identity.as_ref().and_then(|identity| identity.document);
        let state = Mutex::new(State { document, ..State::default() });
        Root { path: path.to_path_buf(), identity, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open folder: files are opened from here, and then [`confirm`](Root::confirm) asked.
    ///
    /// # Errors
    /// `not-found`, `file-changed`, and what the system says.
    pub(super) fn folder(&self) -> Result<Arc<Beneath>, StorageError> {
        if let Some((folder, _)) = &self.state().folder {
            return Ok(Arc::clone(folder));
        }
        let folder = Arc::new(Beneath::open(&self.path)?);
        self.same_folder(folder.stamp())?;
        let counted = || (folder, descriptors::note());
        Ok(Arc::clone(&self.state().folder.get_or_insert_with(counted).0))
    }

    /// The same for who only looks: None if there is no folder. Where metadata are kept by a group above,
    /// an array that nobody has written to needs none.
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
            Some(known) if known != found => Err(self.replaced("another array took its place")),
            _ => Ok(()),
        }
    }

    fn replaced(&self, why: &str) -> StorageError {
        let name = self.path.display();
        let why = format!("{name} is not the array that was opened: {why}; open it again");
        StorageError::Replaced { path: self.path.clone(), why }
    }

    /// Whether what was opened below the folder is of this array: its metadata are still there, and still
    /// promise these chunks.
    ///
    /// # Errors
    /// `not-found` if it was removed, `file-changed` if it was replaced, or made too small.
    pub(super) fn confirm(&self, cells: &Cells) -> Result<(), StorageError> {
        let Some(identity) = &self.identity else { return Ok(()) };
        let mut now = look(&identity.file)?;
        let mut turn = 0;
        while self.state().document != Some(now) {
            // An attribute, a new length, or another array; the format knows.
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
                return Err(self.replaced("its metadata change all the time"));
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
    found.map(|found| Stamp::of(&found)).map_err(|errno| StorageError::io("look at", file, errno))
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
            // The second look of an access would fail.
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

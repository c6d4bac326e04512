//! The files of one array or operation: from numbers to paths to open descriptors.
//!
//! Problem: plans name files by number. An array may be split over thousands of files, most of
//! which an operation never touches, and the number of descriptors of a process is limited.
//!
//! Idea: a [`FileTable`] opens a file at its first use and keeps it open, as long as the process
//! has a place for it (`descriptors`). When none is left, idle files of tables with many files are
//! closed, and others are opened for one use only. Each [`OpenFile`] has, on demand, a second
//! descriptor for direct I/O, which a claim closes again, and a mapping.
//!
//! Invariants: a descriptor from [`FileTable::open`] stays open while it is borrowed; a file that
//! was opened for writing is synced by [`FileTable::sync`], whether it is still open or not, and
//! after a failed sync all later ones fail (`flush`); every failure has the path, the offset and
//! the length.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::claim;
use crate::descriptors::{self, Idle};
use crate::error::StorageError;
use crate::flush::{self, Flushes, Trouble};
pub use crate::open_file::{DirectFd, OpenFile};
use crate::original::{self, Original};

/// Tables with at most this many files keep them open until they are dropped: an array in one file,
/// and its log.
const FEW: usize = 2;

/// The files of an array or operation, by number.
#[derive(Debug, Default)]
pub struct FileTable {
    files: Vec<Entry>,
    writable: bool,
    flushes: Flushes,
}

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    /// The file if it stays open as long as the table lives.
    open: OnceLock<OpenFile>,
    /// The file if it stays open as long as there is a place for it.
    slot: Arc<Slot>,
    /// State of the file when its metadata were read.
    original: Option<Original>,
    /// Length of an adopted file just after its opening.
    len: Option<i64>,
    /// Set if the file was written since the last sync.
    written: AtomicBool,
}

/// A file that is kept open, and may be closed while it is not in use.
#[derive(Debug, Default)]
struct Slot {
    open: RwLock<Option<Arc<OpenFile>>>,
    /// Set if it was closed after an open for writing.
    late: AtomicBool,
}

impl Slot {
    fn get(&self) -> Option<Arc<OpenFile>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Idle for Slot {
    fn close(&self) -> Option<bool> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|file| Arc::strong_count(file) > 1) {
            return None;
        }
        let file = open.take();
        if file.as_ref().is_some_and(|file| file.writable) {
            self.late.store(true, Ordering::Release);
        }
        Some(file.is_some())
    }
}

impl Entry {
    fn new(path: PathBuf) -> Entry {
        let (open, slot, written) = (OnceLock::new(), Arc::default(), AtomicBool::new(false));
        Entry { path, open, slot, original: None, len: None, written }
    }

    /// Opens the file; an error if it is not the original one.
    fn fresh(&self, writable: bool) -> Result<OpenFile, StorageError> {
        let file = OpenFile::open(&self.path, writable)?;
        self.original.as_ref().map_or(Ok(()), |original| original.same(&file))?;
        Ok(file)
    }

    /// Syncs the file; an error if the written data can no longer be found under its name.
    fn settle(&self, file: &OpenFile) -> Result<(), Trouble> {
        let written = self.written.swap(false, Ordering::SeqCst);
        file.settle()?;
        match written {
            true => self.still_named(file).map_err(Trouble::Lost),
            false => Ok(()),
        }
    }

    /// Syncs a file that was closed again, like `settle`.
    fn settle_again(&self) -> Result<(), Trouble> {
        match self.fresh(false) {
            Ok(file) => self.settle(&file),
            Err(error @ StorageError::Replaced { .. }) => {
                match self.written.swap(false, Ordering::SeqCst) {
                    true => Err(Trouble::Lost(error)),
                    false => Ok(()),
                }
            }
            Err(error) => Err(Trouble::Untried(error)),
        }
    }

    /// Returns an error if the name of the file leads to another one.
    fn still_named(&self, file: &OpenFile) -> Result<(), StorageError> {
        match self.original {
            Some(_) => original::still_named(file, &file.stat()?),
            None => Ok(()),
        }
    }
}

/// An open file that the table keeps, or that is closed after this use.
#[derive(Debug)]
pub enum FileRef<'a> {
    /// Open as long as its table lives.
    Kept(&'a OpenFile),
    /// Open while it is used, and as long as there is a place for it.
    Shared(Arc<OpenFile>),
    /// Closed when dropped.
    Once(Box<OpenFile>),
}

impl Deref for FileRef<'_> {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        match self {
            FileRef::Kept(file) => file,
            FileRef::Shared(file) => file,
            FileRef::Once(file) => file,
        }
    }
}

impl FileRef<'_> {
    /// Returns the file if its next use will probably find it open.
    pub fn kept(&self) -> Option<&OpenFile> {
        match self {
            FileRef::Kept(_) | FileRef::Shared(_) => Some(self),
            FileRef::Once(_) => None,
        }
    }
}

impl FileTable {
    /// Makes a table of files, opened for reading, or for reading and writing.
    pub fn new(paths: Vec<PathBuf>, writable: bool) -> FileTable {
        let files = paths.into_iter().map(Entry::new).collect();
        FileTable { files, writable, ..FileTable::default() }
    }

    /// Sets the files whose metadata were read, in the order of the paths: opening others is an
    /// error.
    #[must_use]
    pub fn known(mut self, originals: Vec<Option<Original>>) -> FileTable {
        for (entry, original) in self.files.iter_mut().zip(originals) {
            entry.original = original;
        }
        self
    }

    /// Appends a file; returns its number.
    pub fn push(&mut self, path: PathBuf) -> Result<u32, StorageError> {
        let number = u32::try_from(self.files.len())
            .map_err(|_| StorageError::BadJob("more than 2^32 files".into()))?;
        self.files.push(Entry::new(path));
        Ok(number)
    }

    /// Appends a file that was just opened, with its length; returns its number.
    ///
    /// It stays open even if its name is removed.
    pub fn adopt(&mut self, file: OpenFile, len: i64) -> Result<u32, StorageError> {
        let number = self.push(file.path.clone())?;
        if let Some(entry) = self.files.last_mut() {
            (entry.open, entry.len) = (OnceLock::from(file), Some(len));
        }
        Ok(number)
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns whether the files are opened for writing too.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Returns the path of a file.
    pub fn path(&self, file: u32) -> Result<&Path, StorageError> {
        self.entry(file).map(|entry| entry.path.as_path())
    }

    fn entry(&self, file: u32) -> Result<&Entry, StorageError> {
        let unknown = || StorageError::BadJob(format!("no file {file} among {}", self.files.len()));
        usize::try_from(file).ok().and_then(|n| self.files.get(n)).ok_or_else(unknown)
    }

    /// Returns a file, opened if necessary.
    pub fn open(&self, file: u32) -> Result<FileRef<'_>, StorageError> {
        let entry = self.entry(file)?;
        if let Some(open) = entry.open.get() {
            return Ok(FileRef::Kept(open));
        }
        if let Some(open) = entry.slot.get() {
            return Ok(FileRef::Shared(open));
        }
        let keep = descriptors::keep();
        let keep = keep.or_else(|| (descriptors::release_idle() > 0).then(descriptors::keep)?);
        let keeps = keep.is_some();
        let Some(place) = keep.or_else(|| descriptors::take(1)) else {
            return Err(StorageError::no_place("open", &entry.path));
        };
        let fresh = entry.fresh(self.writable)?;
        let fresh = fresh.counted(place);
        if !keeps {
            if self.writable {
                entry.slot.late.store(true, Ordering::Release);
            }
            return Ok(FileRef::Once(Box::new(fresh)));
        }
        // Two threads may open it concurrently: the second descriptor is closed again.
        if self.files.len() <= FEW {
            return Ok(FileRef::Kept(entry.open.get_or_init(|| fresh)));
        }
        let mut slot = entry.slot.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = &*slot {
            return Ok(FileRef::Shared(Arc::clone(first)));
        }
        let fresh = Arc::new(fresh);
        *slot = Some(Arc::clone(&fresh));
        drop(slot);
        let slot = Arc::downgrade(&entry.slot);
        descriptors::may_close(slot);
        Ok(FileRef::Shared(fresh))
    }

    /// Returns the lengths of all files in bytes, against which a plan is checked.
    pub fn lengths(&self) -> Result<Vec<i64>, StorageError> {
        (0..self.files.len()).map(|n| self.open(n as u32)?.len()).collect()
    }

    /// Returns the length of a file in bytes at the beginning of an access, after checking the
    /// file.
    ///
    /// The file must still match its metadata; before a write, its name must also still lead to it.
    /// An adopted file is not checked before a read: if it becomes shorter, the read raises the
    /// error.
    ///
    /// # Errors
    /// `file-changed`, `not-found`, and `Io` if a system call fails.
    pub fn begin(&self, file: u32, write: bool) -> Result<i64, StorageError> {
        let entry = self.entry(file)?;
        if let (Some(len), false) = (entry.len, write) {
            return Ok(len);
        }
        let open = self.open(file)?;
        let now = open.stat()?;
        if let Some(original) = &entry.original {
            original.confirm(&open, &now)?;
            if write {
                original::still_named(&open, &now)?;
                entry.written.store(true, Ordering::SeqCst);
            }
        }
        Ok(now.st_size)
    }

    /// Syncs everything written so far. Files that were closed again are opened for it: the kernel
    /// syncs a file, not the writes of one descriptor. After a failure, the other files are synced
    /// nevertheless.
    ///
    /// # Errors
    /// The first failure, in this call or an earlier one (`flush`).
    pub fn sync(&self) -> Result<(), StorageError> {
        self.flushes.flush(|| {
            flush::all(self.files.iter().map(|entry| {
                let shared = entry.slot.get();
                match entry.open.get().or(shared.as_deref()) {
                    Some(file) => entry.settle(file),
                    // `late` is not reset: a thread may be writing the file at this moment.
                    None if entry.slot.late.load(Ordering::Acquire) => entry.settle_again(),
                    None => Ok(()),
                }
            }))
        })
    }

    /// Returns device and inode of the only file of this table, if any process of this machine can
    /// flush it for this one.
    ///
    /// Such a flush syncs the writes of this process and gets its errors. This requires a file
    /// system of this machine alone, and that no sync of this table has failed: only its own
    /// flushes remember that.
    pub fn shared_flush(&self) -> Option<(u64, u64)> {
        let [entry] = &self.files[..] else { return None };
        let file = entry.open.get()?;
        let sound = self.flushes.is_sound() && entry.still_named(file).is_ok();
        if !claim::is_local(file) || !sound {
            return None;
        }
        file.inode().ok()
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use crate::error::ShortRead;
    use crate::original::FileId;
    use crate::testdir::TestDir;

    #[test]
    fn files_open_when_used_and_errors_name_them() {
        let dir = TestDir::new("files");
        let path = dir.file("a.bin", &[7u8; 100]);
        let table = FileTable::new(vec![path.clone(), dir.path("missing")], false);
        assert_eq!(100, table.open(0).unwrap().len().unwrap());
        let missing = table.open(1).unwrap_err();
        assert_eq!("not-found", missing.code());
        assert_eq!(Some(dir.path("missing").as_path()), missing.path());
        let mut memory = [0u8; 64];
        let file = table.open(0).unwrap();
        // SAFETY: the memory holds 64 bytes.
        let short = unsafe { file.read_at(60, memory.as_mut_ptr(), 64) }.unwrap_err();
        let expected = ShortRead { path, offset: 60, len: 64, file_len: 100 };
        assert_eq!(StorageError::ShortRead(expected), short);
        // SAFETY: as above.
        let refused = unsafe { file.write_at(0, memory.as_ptr(), 64) }.unwrap_err();
        assert!(matches!(refused, StorageError::Io(_)), "{refused}");
        assert!(table.open(2).is_err());
    }

    #[test]
    fn a_file_that_was_just_opened_is_asked_for_its_length_only_before_it_is_written() {
        let dir = TestDir::new("files-adopted");
        let path = dir.file("a", &[7u8; 100]);
        let mut table = FileTable::new(Vec::new(), true);
        table.adopt(OpenFile::open(&path, true).unwrap(), 100).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(40).unwrap();
        assert_eq!(100, table.begin(0, false).unwrap());
        assert_eq!(40, table.begin(0, true).unwrap());
        let mut memory = [0u8; 64];
        // SAFETY: the memory holds 64 bytes.
        let short = unsafe { table.open(0).unwrap().read_at(36, memory.as_mut_ptr(), 64) };
        let expected = ShortRead { path, offset: 36, len: 64, file_len: 40 };
        assert_eq!(StorageError::ShortRead(expected), short.unwrap_err());
    }

    #[test]
    fn files_that_nobody_uses_are_closed_when_others_need_a_place() {
        let dir = TestDir::new("many-files");
        let paths: Vec<_> = (0..20).map(|k| dir.file(&format!("{k}"), &[k as u8; 3])).collect();
        let table = FileTable::new(paths, true);
        let kept =
            |table: &FileTable| table.files.iter().filter(|e| e.slot.get().is_some()).count();
        let before = descriptors::held();
        let used = table.open(3).unwrap();
        assert_eq!(vec![3; 20], table.lengths().unwrap());
        assert!(kept(&table) > 1 && descriptors::held() > before);
        descriptors::release_idle();
        assert_eq!(1, kept(&table));
        // Closed files are synced as well, and read as before.
        let late = table.files.iter().filter(|e| e.slot.late.load(Ordering::Relaxed)).count();
        assert_eq!(19, late);
        table.sync().unwrap();
        for k in 0..20 {
            let mut byte = 0u8;
            // SAFETY: one byte of memory.
            unsafe { table.open(k).unwrap().read_at(2, &raw mut byte, 1) }.unwrap();
            assert_eq!(k as u8, byte);
        }
        drop(used);
        descriptors::release_idle();
        assert_eq!(0, kept(&table));
    }

    /// Makes a table of these files in their current state.
    fn known(paths: &[PathBuf], writable: bool) -> FileTable {
        let original = |path: &PathBuf| Some(Original::new(FileId::at(path).unwrap()));
        let originals = paths.iter().map(original).collect();
        FileTable::new(paths.to_vec(), writable).known(originals)
    }

    #[test]
    fn another_file_under_the_name_is_not_opened_nor_written_past() {
        let dir = TestDir::new("another-file");
        let path = dir.file("a", &[7; 100]);
        let (fresh, held) =
            (known(std::slice::from_ref(&path), true), known(std::slice::from_ref(&path), true));
        assert_eq!(100, held.begin(0, true).unwrap());
        std::fs::rename(dir.file("b", &[8; 200]), &path).unwrap();
        assert_eq!("file-changed", fresh.begin(0, false).unwrap_err().code());
        // A table that has the old file open reads it, but no longer writes it.
        assert_eq!(100, held.begin(0, false).unwrap());
        assert_eq!("file-changed", held.begin(0, true).unwrap_err().code());
        assert_eq!(None, held.shared_flush());
        assert_eq!("file-changed", held.sync().unwrap_err().code());
        // A file without writes has nothing to lose.
        let reader = known(std::slice::from_ref(&path), true);
        assert_eq!(200, reader.begin(0, false).unwrap());
        assert!(reader.shared_flush().is_some() || !claim::is_local(&reader.open(0).unwrap()));
        std::fs::remove_file(&path).unwrap();
        reader.sync().unwrap();
        assert_eq!("not-found", reader.begin(0, true).unwrap_err().code());
        // Files without a known original are not compared.
        let unknown = FileTable::new(vec![dir.file("c", b"c")], true);
        unknown.begin(0, true).unwrap();
        std::fs::remove_file(dir.path("c")).unwrap();
        unknown.begin(0, true).unwrap();
        unknown.sync().unwrap();
    }

    #[test]
    fn files_that_are_closed_meanwhile_are_compared_again() {
        let dir = TestDir::new("compared-again");
        let names = ["0", "1", "2"];
        let paths: Vec<_> = names.iter().map(|name| dir.file(name, b"abc")).collect();
        let last = FEW as u32;
        let begun = || {
            let table = known(&paths, true);
            for k in 0..=last {
                table.begin(k, k == last).unwrap();
            }
            // As if there were no places left for them.
            table.files.iter().for_each(|entry| assert!(entry.slot.close().is_some()));
            table
        };
        let table = begun();
        std::fs::rename(dir.file("b", b"def"), &paths[1]).unwrap();
        table.sync().unwrap(); // nothing was written to that file
        std::fs::rename(dir.file("b", b"def"), &paths[2]).unwrap();
        assert_eq!("file-changed", table.open(last).unwrap_err().code());
        table.sync().unwrap(); // the written data reached the disk before
        let table = begun();
        std::fs::rename(dir.file("b", b"ghi"), &paths[2]).unwrap();
        assert_eq!("file-changed", table.sync().unwrap_err().code());
    }
}

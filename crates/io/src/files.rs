//! The files of one array or operation: number to path to open descriptors.
//!
//! Problem: plans name files by number; an array may be split over thousands of them, most of which
//! an operation never touches, and a process may hold only so many descriptors.
//!
//! Idea: a [`FileTable`] opens a file when it is first used and keeps it open, as long as the process
//! has a place for it (`descriptors`): when none is left, the files of tables of many that nobody uses
//! are closed, and others are opened for one use only. Each [`OpenFile`] has, on demand, a second
//! descriptor for direct I/O, closed again for a claim, and a mapping.
//!
//! Invariants: a descriptor that [`FileTable::open`] handed out stays open while it is borrowed;
//! a file that was handed out for writing is synced by [`FileTable::sync`], whether it is still
//! open or not, and a sync that failed once fails for good (`flush`); every failure names the path,
//! the offset and the length.

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

/// Tables of so few files keep them until they are dropped: an array in one file, and its log.
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
    /// Open for as long as the table lives.
    open: OnceLock<OpenFile>,
    /// Open as long as there is a place for it.
    slot: Arc<Slot>,
    /// What was known of it when its metadata were read.
    original: Option<Original>,
    /// Its length as it was when it was opened by somebody else, a moment ago.
    len: Option<i64>,
    /// It was written to since the last sync.
    written: AtomicBool,
}

/// A file that is kept open, and may be closed while nobody uses it.
#[derive(Debug, Default)]
struct Slot {
    open: RwLock<Option<Arc<OpenFile>>>,
    /// It was handed out for writing, and closed again.
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

    /// Opens the file, if it is still the one that is meant.
    fn fresh(&self, writable: bool) -> Result<OpenFile, StorageError> {
        let file = OpenFile::open(&self.path, writable)?;
        self.original.as_ref().map_or(Ok(()), |original| original.same(&file))?;
        Ok(file)
    }

    /// Puts what was written on the disk, and says if nobody will find it there.
    fn settle(&self, file: &OpenFile) -> Result<(), Trouble> {
        let written = self.written.swap(false, Ordering::SeqCst);
        file.settle()?;
        match written {
            true => self.still_named(file).map_err(Trouble::Lost),
            false => Ok(()),
        }
    }

    /// The same for a file that was closed again.
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

    /// Refuses a file that has lost its name.
    fn still_named(&self, file: &OpenFile) -> Result<(), StorageError> {
        match self.original {
            Some(_) => original::still_named(file, &file.stat()?),
            None => Ok(()),
        }
    }
}

/// An open file: one that the table keeps, or one that is closed after this use.
#[derive(Debug)]
pub enum FileRef<'a> {
    /// Kept open by its table.
    Kept(&'a OpenFile),
    /// Kept open while it is used, and as long as there is a place for it.
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
    /// The file, if the next use of it will probably find it open.
    pub fn kept(&self) -> Option<&OpenFile> {
        match self {
            FileRef::Kept(_) | FileRef::Shared(_) => Some(self),
            FileRef::Once(_) => None,
        }
    }
}

impl FileTable {
    /// A table of these files, opened for reading, or for reading and writing.
    pub fn new(paths: Vec<PathBuf>, writable: bool) -> FileTable {
        let files = paths.into_iter().map(Entry::new).collect();
        FileTable { files, writable, ..FileTable::default() }
    }

    /// These are the files whose metadata were read, in the order of the paths: others are refused.
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

    /// Appends a file that was just opened, with its length, and stays open, whatever happens to its name;
    /// returns its number.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether the files are opened for writing too.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The path of a file.
    pub fn path(&self, file: u32) -> Result<&Path, StorageError> {
        self.entry(file).map(|entry| entry.path.as_path())
    }

    fn entry(&self, file: u32) -> Result<&Entry, StorageError> {
        let unknown = || StorageError::BadJob(format!("no file {file} among {}", self.files.len()));
        usize::try_from(file).ok().and_then(|n| self.files.get(n)).ok_or_else(unknown)
    }

    /// The file, opened if it is not yet open.
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
        // Two threads may open at once: the second's descriptor is closed again.
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

    /// Lengths of all files, bytes: what a plan is checked against.
    pub fn lengths(&self) -> Result<Vec<i64>, StorageError> {
        (0..self.files.len()).map(|n| self.open(n as u32)?.len()).collect()
    }

    /// Length of a file, bytes, for an access that begins: the file still holds what its metadata said, and
    /// if it will be written to, its name still leads to it. One that was adopted is not asked again before
    /// it is read: should it become shorter, the read says so.
    ///
    /// # Errors
    /// `file-changed`, `not-found`, and what the system says.
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

    /// Puts everything written so far on the disk. Files that were closed again are opened for it:
    /// the kernel syncs a file, not what one descriptor wrote. A failure does not keep the other
    /// files from being synced.
    ///
    /// # Errors
    /// The first that failed, now or in an earlier call (`flush`).
    pub fn sync(&self) -> Result<(), StorageError> {
        self.flushes.flush(|| {
            flush::all(self.files.iter().map(|entry| {
                let shared = entry.slot.get();
                match entry.open.get().or(shared.as_deref()) {
                    Some(file) => entry.settle(file),
                    // It stays so: somebody may be writing it at this moment.
                    None if entry.slot.late.load(Ordering::Acquire) => entry.settle_again(),
                    None => Ok(()),
                }
            }))
        })
    }

    /// Device and inode of the one file of this table, if a flush of it by any process of this machine
    /// puts on the disk what this one wrote, and tells what went wrong: its file system is this machine's
    /// alone, and no sync of this table has failed, which only its own flushes remember.
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
        // Those that were closed are put on the disk as well, and read as before.
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

    /// A table of these files, as they are now.
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
        // Who holds the old one reads it, and does not write into it any more.
        assert_eq!(100, held.begin(0, false).unwrap());
        assert_eq!("file-changed", held.begin(0, true).unwrap_err().code());
        assert_eq!(None, held.shared_flush());
        assert_eq!("file-changed", held.sync().unwrap_err().code());
        // What was not written cannot be lost.
        let reader = known(std::slice::from_ref(&path), true);
        assert_eq!(200, reader.begin(0, false).unwrap());
        assert!(reader.shared_flush().is_some() || !claim::is_local(&reader.open(0).unwrap()));
        std::fs::remove_file(&path).unwrap();
        reader.sync().unwrap();
        assert_eq!("not-found", reader.begin(0, true).unwrap_err().code());
        // Files that are only known by their names are not compared.
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
        table.sync().unwrap(); // nothing was written to that one
        std::fs::rename(dir.file("b", b"def"), &paths[2]).unwrap();
        assert_eq!("file-changed", table.open(last).unwrap_err().code());
        table.sync().unwrap(); // what was written reached the disk before
        let table = begun();
        std::fs::rename(dir.file("b", b"ghi"), &paths[2]).unwrap();
        assert_eq!("file-changed", table.sync().unwrap_err().code());
    }
}

//! One file per chunk.
//!
//! A chunk that is replaced is written under a temporary name and renamed, so a reader sees the old
//! chunk or the new one. A chunk without codecs is created once, whole, by a rename that does not
//! replace, and from then on written in place: two processes that write different elements of it
//! share the file and lose nothing.
//!
//! Crash model. Every file is synced before it gets its name (`publish`): after a crash of the
//! machine a chunk is old, new or missing, and never torn. `flush` makes the names durable, and the
//! data written in place.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outcore_plan::{ChunkTable, Stored};

use super::listing::{self, Listed};
use super::publish::{self, Publisher};
use super::root::{Identity, Root};
use super::unsynced::{Unsynced, Writing};
use super::{Cells, ChunkSink, ChunkSize, ChunkStore, InPlace, Naming, Resolved, BYTES_A_CHUNK};
use crate::backend::sys;
use crate::beneath::Beneath;
use crate::cpu;
use crate::durable::TempFile;
use crate::error::{IndexFailure, ShortRead, StorageError};
use crate::files::{FileTable, OpenFile};
use crate::lock::{FileLock, Mode, Patience, Range};

/// A store with one file for each chunk.
#[derive(Debug)]
pub struct FileStore {
    naming: Naming,
    lock: PathBuf,
    grid: Vec<i64>,
    size: ChunkSize,
    root: Root,
    unsynced: Arc<Unsynced>,
}

impl FileStore {
    /// Makes a store for an array with `grid` chunks per axis; `lock` is an existing file of the
    /// array alone (its metadata).
    pub fn new(naming: Naming, lock: PathBuf, grid: Vec<i64>, size: ChunkSize) -> FileStore {
        let unsynced = Unsynced::new(&naming.root);
        let root = Root::new(&naming.root, None);
        FileStore { naming, lock, grid, size, root, unsynced }
    }

    /// Sets the identity of an array whose metadata were read before.
    #[must_use]
    pub fn known(self, identity: Option<Identity>) -> FileStore {
        FileStore { root: Root::new(&self.naming.root, identity), ..self }
    }

    /// Creates missing chunks, whole, unless another process does.
    fn create(&self, paths: &[&PathBuf], fill: &[u8]) -> Result<(), StorageError> {
        let publisher = Publisher::new(&self.unsynced);
        let folder = self.root.folder()?;
        for path in paths {
            let temp = TempFile::below(&folder, path)?;
            write_fill(&temp, 0, self.size.decoded, fill)?;
            publisher.push(temp, true)?;
        }
        publisher.finish()
    }

    /// Returns which cells of a box are wanted, and their paths.
    fn chosen(&self, cells: &Cells, wanted: &dyn Fn(&[i64]) -> bool) -> (Vec<bool>, Vec<PathBuf>) {
        let chosen: Vec<bool> = cells.iter().map(|cell| wanted(&cell)).collect();
        let of = cells.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
        let paths = of.map(|(cell, _)| self.naming.path(&cell)).collect();
        (chosen, paths)
    }

    fn checked(&self, file: OpenFile, len: i64) -> Result<(OpenFile, i64), StorageError> {
        let size = self.size;
        let why = if !size.encoded && len < size.decoded {
            let path = file.path().to_path_buf();
            let short = ShortRead { path, offset: 0, len: size.decoded, file_len: len };
            return Err(StorageError::ShortRead(short));
        } else if len == 0 {
            "the chunk's file is empty: its write was interrupted".to_owned()
        } else if len > size.limit {
            format!("the chunk has {len} bytes; chunks of this array have at most {}", size.limit)
        } else {
            return Ok((file, len));
        };
        Err(damaged(file.path(), None, why))
    }
}

/// Makes the error for files that disappear immediately after their creation.
pub(super) fn vanishing(root: &Path) -> StorageError {
    damaged(root, None, "another process keeps removing new chunks".to_owned())
}

pub(super) fn damaged(path: &Path, offset: Option<i64>, why: String) -> StorageError {
    StorageError::Index(IndexFailure { path: path.to_path_buf(), offset, why })
}

/// Opens a file below a folder and returns it with its length; `None` if either does not exist.
pub(super) fn open_if_there(
    folder: Option<&Beneath>,
    path: &Path,
    writable: bool,
) -> Result<Option<(OpenFile, i64)>, StorageError> {
    let Some(folder) = folder else { return Ok(None) };
    // If a chunk's name leads to a pipe, opening it must not wait for a writer.
    let opened = match writable {
        true => folder.write(path, libc::O_RDWR | libc::O_NONBLOCK),
        false => folder.read(path, libc::O_RDONLY | libc::O_NONBLOCK),
    };
    match opened {
        Ok(fd) => match sys::regular_len(fd.as_raw_fd()) {
            Some(len) => Ok(Some((OpenFile::from_fd(path, fd, writable), len))),
            None => Err(StorageError::NotRegular { path: path.to_path_buf() }),
        },
        Err(StorageError::Io(failure)) if matches!(failure.errno, libc::ENOENT | libc::ENOTDIR) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Files that one thread opens to measure the time, and files in one step of a thread.
const TRIAL: usize = 8;
/// An open that takes longer waits for a disk or a network, so more threads pay off.
const SLOW: Duration = Duration::from_micros(60);
pub(super) const THREADS: usize = 8;

/// Opens many files with `open`, on as many threads as there are cores, or on more if it takes
/// long.
pub(super) fn open_many<I: Sync, T: Send>(
    paths: &[I],
    open: impl Fn(&I) -> Result<T, StorageError> + Sync,
) -> Result<Vec<T>, StorageError> {
    let (first, rest) = paths.split_at(paths.len().min(TRIAL));
    let started = Instant::now();
    let mut files = first.iter().map(&open).collect::<Result<Vec<_>, _>>()?;
    let slow = started.elapsed() >= SLOW * TRIAL as u32;
    let parts: Vec<(&[I], Mutex<Vec<_>>)> =
        rest.chunks(TRIAL).map(|part| (part, Mutex::default())).collect();
    let next = AtomicUsize::new(0);
    let lanes = if slow { THREADS } else { cpu::cores() }.min(parts.len());
    cpu::side_by_side(lanes, &|_| {
        while let Some((part, opened)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found: Vec<_> = part.iter().map(&open).collect();
            *opened.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    });
    for (_, opened) in parts {
        for file in opened.into_inner().unwrap_or_else(PoisonError::into_inner) {
            files.push(file?);
        }
    }
    Ok(files)
}

/// Returns the bytes of the lock file for a box: one byte per cell, in C order of the grid.
pub(super) fn lock_ranges(cells: &Cells, grid: &[i64]) -> Result<Vec<Range>, StorageError> {
    let mut ranges: Vec<Range> = Vec::new();
    for cell in cells.iter() {
        let start =
            cell.iter().zip(grid).try_fold(0i64, |at, (&c, &n)| at.checked_mul(n)?.checked_add(c));
        let Some(start) = start else {
            return Err(StorageError::BadJob(format!("a grid of {grid:?} chunks is too large")));
        };
        match ranges.last_mut() {
            Some(last) if last.start + last.len == start => last.len += 1,
            _ => ranges.push(Range { start, len: 1 }),
        }
    }
    Ok(ranges)
}

/// Bytes of a repeated value in one write, on the stack.
const REPEAT: usize = 32 << 10;

/// Writes `fill` repeatedly into `len` bytes from byte `offset` on.
///
/// Zeros are only reserved, so the file must be new there.
pub(super) fn write_fill(
    temp: &TempFile,
    offset: i64,
    len: i64,
    fill: &[u8],
) -> Result<(), StorageError> {
    let end = offset + len;
    temp.reserve(end)?;
    if fill.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    let mut block = [0; REPEAT];
    let whole = REPEAT - REPEAT % fill.len();
    block[..whole].chunks_exact_mut(fill.len()).for_each(|item| item.copy_from_slice(fill));
    // An element that is larger than the block is written directly.
    let block = if whole > 0 { &block[..whole] } else { fill };
    let mut at = offset;
    while at < end {
        let part = block.len().min((end - at) as usize);
        temp.write(&block[..part], at)?;
        at += part as i64;
    }
    Ok(())
}

/// Attempts to create missing chunks before concluding that another process removes them.
pub(super) const PATIENT: usize = 16;

/// Bytes of an open file and its entry in a table of files, without its name.
const OPEN_FILE: u64 = 704;

/// Returns the bytes of a file while it is found, open, and replaced: its own, and several copies
/// of its name.
pub(super) fn bytes_a_file(naming: &Naming, axes: usize) -> u64 {
    // A coordinate has up to 19 digits, but few have more than 7.
    let separators = axes * (naming.separator.len() + 7);
    let name = naming.root.as_os_str().len() + naming.prefix.len() + separators;
    OPEN_FILE + 4 * (name as u64 + 32)
}

impl ChunkStore for FileStore {
    fn held_bytes(&self, cells: &Cells, _replacing: bool) -> u64 {
        cells.len() as u64 * (BYTES_A_CHUNK + bytes_a_file(&self.naming, self.grid.len()))
    }

    fn open_files(&self, files: i64, write: bool) -> i64 {
        files + if write { files.min(publish::MOST_OPEN) } else { 0 }
    }

    fn resolve_some(
        &self,
        cells: &Cells,
        writable: bool,
        wanted: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Resolved, StorageError> {
        let (chosen, paths) = self.chosen(cells, wanted);
        let mut files = FileTable::new(Vec::new(), writable);
        let mut stored = Vec::with_capacity(chosen.len());
        let folder = self.root.folder_if_there()?;
        let folder = folder.as_deref();
        let found = open_many(&paths, |path| open_if_there(folder, path, writable))?;
        self.root.confirm(cells)?;
        let mut found = found.into_iter();
        for chosen in chosen {
            stored.push(match if chosen { found.next().flatten() } else { None } {
                None => None,
                Some((file, len)) => {
                    let (file, len) = self.checked(file, len)?;
                    Some(Stored { file: files.adopt(file, len)?, offset: 0, len, mask: 0 })
                }
            });
        }
        let table = ChunkTable { lo: cells.lo.clone(), count: cells.count.clone(), stored };
        Ok(Resolved { table, files })
    }

    fn list(
        &self,
        lo_and_count: (&[i64], &[i64]),
        most: usize,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Listed>, StorageError> {
        listing::list(&self.naming, lo_and_count, most, interrupted)
    }

    fn lock(&self, cells: &Cells, patience: Patience<'_>) -> Result<FileLock, StorageError> {
        let ranges = lock_ranges(cells, &self.grid)?;
        FileLock::acquire_all(&self.lock, &ranges, Mode::Exclusive, patience)
    }

    fn begin<'a>(
        &'a self,
        cells: &Cells,
        _expected: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Box<dyn ChunkSink + 'a>, StorageError> {
        let publisher = Publisher::new(&self.unsynced);
        let folder = self.root.folder()?;
        Ok(Box::new(FileSink { store: self, folder, cells: cells.clone(), publisher }))
    }

    fn in_place_some(
        &self,
        cells: &Cells,
        fill: &[u8],
        wanted: &dyn Fn(&[i64]) -> bool,
        _patience: Patience<'_>,
    ) -> Result<InPlace, StorageError> {
        if self.size.encoded {
            return Err(StorageError::BadJob("encoded chunks cannot be written in place".into()));
        }
        self.unsynced.trim()?;
        let (chosen, paths) = self.chosen(cells, wanted);
        for _ in 0..PATIENT {
            let resolved = self.resolve_some(cells, true, wanted)?;
            let found = resolved.table.stored.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
            let missing = paths.iter().zip(found).filter(|(_, (at, _))| at.is_none());
            let missing: Vec<&PathBuf> = missing.map(|(path, _)| path).collect();
            if missing.is_empty() {
                let writing = Writing { unsynced: Arc::clone(&self.unsynced), paths };
                return Ok(InPlace { resolved, guard: None, writing });
            }
            self.create(&missing, fill)?;
        }
        Err(vanishing(&self.naming.root))
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.unsynced.flush()
    }
}

#[derive(Debug)]
struct FileSink<'a> {
    store: &'a FileStore,
    folder: Arc<Beneath>,
    cells: Cells,
    publisher: Publisher,
}

impl ChunkSink for FileSink<'_> {
    fn commit(&self, chunk: &[i64], mask: u32, bytes: &[u8]) -> Result<(), StorageError> {
        if mask != 0 || !self.cells.contains(chunk) {
            return Err(StorageError::BadJob(format!(
                "chunk {chunk:?} with filter mask {mask:#x} in a batch of files {:?}",
                self.cells
            )));
        }
        let temp = TempFile::below(&self.folder, &self.store.naming.path(chunk))?;
        temp.write(bytes, 0)?;
        self.publisher.push(temp, false)
    }

    fn finish(self: Box<Self>) -> Result<(), StorageError> {
        self.publisher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn files_are_opened_in_their_order_and_the_first_failure_is_told() {
        for number in [0, 1, TRIAL, TRIAL + 1, 5 * TRIAL + 3] {
            let paths: Vec<usize> = (0..number).collect();
            assert_eq!(paths, open_many(&paths, |k| Ok(*k)).unwrap());
            let late = |k: &usize| match *k >= number / 2 {
                true => Err(damaged(Path::new("a"), Some(*k as i64), String::new())),
                false => Ok(()),
            };
            let told = open_many(&paths, late).map(|done| done.len());
            let first = damaged(Path::new("a"), Some((number / 2) as i64), String::new());
            assert_eq!(if number == 0 { Ok(0) } else { Err(first) }, told);
        }
    }

    #[test]
    fn elements_of_any_size_are_repeated_over_whole_files() {
        let dir = TestDir::new("write-fill");
        for (item, len) in [(1, 70_000), (3, 99_999), (8, 64), (1 << 15, 1 << 17), (40_000, 80_000)]
        {
            let fill: Vec<u8> = (0..item).map(|k| k as u8 | 1).collect();
            let temp = TempFile::beside(&dir.path("filled")).unwrap();
            write_fill(&temp, 5, len, &fill).unwrap();
            let seen = std::fs::read(temp.path()).unwrap();
            let expected: Vec<u8> = fill.iter().copied().cycle().take(len as usize).collect();
            assert_eq!(([0; 5].as_slice(), expected.as_slice()), seen.split_at(5));
        }
    }
}

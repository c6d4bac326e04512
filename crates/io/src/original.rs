//! Check that a file is still the one whose metadata were read.
//!
//! Problem. A file is opened when an access needs it, long after its header was read. In the
//! meantime its name may lead to another file (`create`, `convert` and careful programs replace
//! files by a rename), or another array may have been written into the same file (`numpy.save`
//! truncates). Elements of another type or order, read according to the old header, are neither the
//! old ones nor the new ones; and data written into a file without a name is lost.
//!
//! Idea. The identity of the file ([`FileId`]) and the bytes of its header are recorded. Opening
//! the file compares the identity ([`Original::same`]). Each access queries the length of the file
//! once, and with it its times: if the file was written since the last comparison, the bytes of the
//! header are compared again ([`Original::confirm`]). If they differ, the format decides whether
//! they mean the same (for example, the array became longer).
//!
//! Invariants. An access uses only descriptors of the file that was opened. No byte of an access is
//! moved unless the header described this array when the access began. A header is taken for
//! unchanged without being read only if no change of it can have had the same times (as in
//! `chunk_cache`).

use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::sys::{self, Errno, Spot};
use crate::claim;
use crate::error::StorageError;
use crate::open_file::OpenFile;
use crate::stamp::Stamp;

/// Identity of a file, which differs even if a new file reuses the inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// Device and inode.
    pub inode: (u64, u64),
    /// Birth time in nanoseconds; 0 if the system does not report it.
    pub born: i128,
}

impl FileId {
    /// Identifies an open file.
    ///
    /// # Errors
    /// The error number of the system call.
    pub fn of(fd: RawFd) -> Result<FileId, Errno> {
        sys::identify(&Spot::open(fd)).map(|(inode, born)| FileId { inode, born })
    }

    /// Identifies the file to which a path leads.
    ///
    /// # Errors
    /// The error number of the system call.
    pub fn at(path: &Path) -> Result<FileId, Errno> {
        sys::identify(&Spot::of(path)?).map(|(inode, born)| FileId { inode, born })
    }
}

fn inode(found: &libc::stat) -> (u64, u64) {
    #[allow(clippy::unnecessary_cast, reason = "the fields' widths differ between systems")]
    (found.st_dev as u64, found.st_ino as u64)
}

/// Function that reads the header again: returns first byte and bytes; fails if it describes
/// another array.
pub type Again = Box<dyn Fn() -> Result<(i64, Vec<u8>), StorageError> + Send + Sync>;

/// State of a file when its metadata were read.
pub struct Original {
    id: FileId,
    header: Option<Header>,
}

struct Header {
    state: Mutex<State>,
    again: Again,
}

struct State {
    at: i64,
    bytes: Vec<u8>,
    /// State of the file when these bytes were found there, if a later change of them must make
    /// another stamp.
    compared: Option<Stamp>,
    /// True if the times of the file come from this machine, once determined.
    local: Option<bool>,
}

impl std::fmt::Debug for Original {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Original").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Attempts if a header changes while it is compared.
const TRIES: usize = 8;
/// Bytes of a header that are compared in one step, on the stack.
const PIECE: usize = 4096;

impl Original {
    /// A file without a header, or for which only its identity matters.
    pub fn new(id: FileId) -> Original {
        Original { id, header: None }
    }

    /// Adds a header: the bytes from `at` on that describe the elements.
    pub fn with_header(self, at: i64, bytes: Vec<u8>, again: Again) -> Original {
        let state = Mutex::new(State { at, bytes, compared: None, local: None });
        Original { header: Some(Header { state, again }), ..self }
    }

    /// Returns an error if a file that was just opened is another one.
    pub(crate) fn same(&self, file: &OpenFile) -> Result<(), StorageError> {
        let found = FileId::of(file.fd());
        let found = found.map_err(|errno| StorageError::io("stat", file.path(), errno))?;
        // In a layered file system, a file that is copied up keeps its number and gets a new birth
        // time.
        let same = found == self.id || found.inode == self.id.inode && !claim::is_local(file);
        match same {
            true => Ok(()),
            false => Err(replaced(file.path(), "another file has replaced it")),
        }
    }

    /// Returns an error if the header of an open file now describes another array; `now` is the
    /// current metadata of the file.
    pub(crate) fn confirm(&self, file: &OpenFile, now: &libc::stat) -> Result<(), StorageError> {
        let Some(header) = &self.header else { return Ok(()) };
        let stamp = Stamp::of(now);
        let mut state = header.state();
        if state.compared == Some(stamp) {
            return Ok(());
        }
        for _ in 0..TRIES {
            if state.is_in(file)? {
                let local = *state.local.get_or_insert_with(|| claim::is_local(file));
                state.compared = (local && stamp.is_settled()).then_some(stamp);
                return Ok(());
            }
            // `again` may call Python; other threads may hold its lock while they wait for the
            // state.
            drop(state);
            let (at, bytes) = (header.again)()?;
            state = header.state();
            (state.at, state.bytes) = (at, bytes);
        }
        Err(replaced(file.path(), "its header keeps changing"))
    }
}

impl Header {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether these bytes are in the file.
    fn is_in(&self, file: &OpenFile) -> Result<bool, StorageError> {
        let (mut piece, mut at) = ([0; PIECE], self.at);
        for bytes in self.bytes.chunks(PIECE) {
            let read = &mut piece[..bytes.len()];
            let failed = |errno| file.failed("read", at, bytes.len(), errno);
            // A file that ends earlier differs.
            let got = sys::read_at(file.fd(), read, at).map_err(failed)?;
            if read[..got] != *bytes {
                return Ok(false);
            }
            at += bytes.len() as i64;
        }
        Ok(true)
    }
}

/// Returns an error before a write to a file whose name leads to another file or nowhere, because
/// the data could not be found later. `held` is the current metadata of the file.
pub(crate) fn still_named(file: &OpenFile, held: &libc::stat) -> Result<(), StorageError> {
    match Spot::of(file.path()).and_then(|spot| sys::stat_at(&spot, false)) {
        Ok(found) if inode(&found) == inode(held) => Ok(()),
        Ok(_) => {
            Err(replaced(file.path(), "another file has replaced it, and its name leads there"))
        }
        Err(errno @ (libc::ENOENT | libc::ENOTDIR)) => {
            Err(StorageError::io("stat", file.path(), errno))
        }
        // Without permission for the path, rely on the link count of the open file.
        Err(_) if held.st_nlink > 0 => Ok(()),
        Err(errno) => Err(StorageError::io("stat", file.path(), errno)),
    }
}

fn replaced(path: &Path, why: &str) -> StorageError {
    let why = format!("{} is not the array that was opened: {why}; open it again", path.display());
    StorageError::Replaced { path: path.to_path_buf(), why }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use super::*;
    use crate::backend::faulty::{arm, Fault, Faults, Rule};
    use crate::backend::sys::Kind;
    use crate::files::FileTable;
    use crate::testdir::TestDir;

    /// Makes a file with a header of 8000 bytes, which means the same as long as it begins with
    /// `HEAD`.
    fn table(path: &PathBuf, asked: &Arc<AtomicUsize>) -> FileTable {
        let (asked, read) = (Arc::clone(asked), path.clone());
        let again = move || {
            asked.fetch_add(1, Ordering::SeqCst);
            let found = std::fs::read(&read).unwrap();
            match found.starts_with(b"HEAD") {
                true => Ok((0, found[..found.len().min(8000)].to_vec())),
                false => Err(replaced(&read, "it says so")),
            }
        };
        let original = Original::new(FileId::at(path).unwrap());
        let original =
            original.with_header(0, std::fs::read(path).unwrap()[..8000].to_vec(), Box::new(again));
        FileTable::new(vec![path.clone()], true).known(vec![Some(original)])
    }

    fn header(begin: &[u8], end: u8) -> Vec<u8> {
        let mut bytes = vec![b'.'; 9000];
        bytes[..begin.len()].copy_from_slice(begin);
        bytes[7999] = end;
        bytes
    }

    #[test]
    fn a_header_is_compared_by_its_bytes_and_the_format_asked_only_if_they_are_others() {
        let dir = TestDir::new("original");
        let (path, asked) = (dir.file("a", &header(b"HEAD", b'1')), Arc::default());
        let table = table(&path, &asked);
        assert_eq!(9000, table.begin(0, false).unwrap());
        // Elements after the header may change.
        std::fs::write(&path, [&header(b"HEAD", b'1')[..8999], b"!"].concat()).unwrap();
        table.begin(0, true).unwrap();
        assert_eq!(0, asked.load(Ordering::SeqCst));
        // A different header with the same meaning; from then on it is the one to compare with.
        std::fs::write(&path, header(b"HEAD", b'2')).unwrap();
        table.begin(0, true).unwrap();
        table.begin(0, false).unwrap();
        assert_eq!(1, asked.load(Ordering::SeqCst));
        // Another array in place, or a truncated one.
        for other in [header(b"OTHER", b'2'), b"HEA".to_vec()] {
            std::fs::write(&path, other).unwrap();
            for write in [false, true] {
                assert_eq!("file-changed", table.begin(0, write).unwrap_err().code());
            }
        }
        std::fs::write(&path, header(b"HEAD", b'3')).unwrap();
        table.begin(0, true).unwrap();
        table.sync().unwrap();
    }

    #[test]
    fn a_header_is_not_read_again_while_nobody_writes() {
        let dir = TestDir::new("original-quiet");
        let (path, asked) = (dir.file("quiet", &header(b"HEAD", b'1')), Arc::default());
        let table = table(&path, &asked);
        // A file that was just written may be written again with the same times.
        table.begin(0, false).unwrap();
        let any = |errno| Rule::every(1, Fault::Errno(errno)).path("quiet");
        {
            let _armed = arm(Faults::new([any(libc::EIO).on(Kind::Read)]));
            assert_eq!("disk-failure", table.begin(0, false).unwrap_err().code());
        }
        std::thread::sleep(std::time::Duration::from_millis(2_050));
        table.begin(0, true).unwrap();
        if !claim::is_local(&table.open(0).unwrap()) {
            return; // times of other machines prove nothing
        }
        let look = any(libc::ENOENT).on(Kind::Look);
        let _armed = arm(Faults::new([any(libc::EIO).on(Kind::Read), look]));
        table.begin(0, false).unwrap();
        // Only a write checks the name.
        assert_eq!("not-found", table.begin(0, true).unwrap_err().code());
    }

    #[test]
    fn a_header_that_is_never_the_one_that_was_read_is_given_up() {
        let dir = TestDir::new("original-restless");
        let path = dir.file("a", b"0123456789");
        let turn = AtomicUsize::new(0);
        let again = move || Ok((0, vec![turn.fetch_add(1, Ordering::SeqCst) as u8; 4]));
        let original = Original::new(FileId::at(&path).unwrap());
        let original = original.with_header(0, b"9999".to_vec(), Box::new(again));
        let table = FileTable::new(vec![path], false).known(vec![Some(original)]);
        assert_eq!("file-changed", table.begin(0, false).unwrap_err().code());
    }

    #[test]
    fn a_number_that_was_given_to_another_file_is_told_by_its_birth() {
        let dir = TestDir::new("original-born");
        let path = dir.file("a", b"x");
        let file = OpenFile::open(&path, false).unwrap();
        let id = FileId::of(file.fd()).unwrap();
        assert_eq!(id, FileId::at(&path).unwrap());
        Original::new(id).same(&file).unwrap();
        let other = Original::new(FileId { born: id.born + 1, ..id });
        assert_eq!(claim::is_local(&file), other.same(&file).is_err());
        let (device, inode) = id.inode;
        let other = Original::new(FileId { inode: (device, inode + 1), ..id });
        assert_eq!("file-changed", other.same(&file).unwrap_err().code());
    }
}

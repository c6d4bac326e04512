//! Errors of the storage layer.
//!
//! One enum with small structs inside, so that the border to Python can turn every field into an
//! attribute. Each variant has a stable [`code`](StorageError::code). A text names the failure, the
//! object and the numbers; the next step comes last.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outcore_plan::PlanError;
use thiserror::Error;

use crate::descriptors;

/// Operation of an [`IoFailure`] in which written data could not be put on the disk.
pub const FLUSH: &str = "flush";

/// An operating system call on a file failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoFailure {
    /// Operation: `"open"`, `"read"`, `"write"`, `"fsync"`, `"rename"`, ...
    pub op: &'static str,
    /// Path of the file; empty if the operation concerns no file.
    pub path: PathBuf,
    /// First byte, if the operation has a position.
    pub offset: Option<i64>,
    /// Number of bytes, if the operation has a length.
    pub len: Option<i64>,
    /// The system's error number.
    pub errno: i32,
}

/// A file that ended before the bytes that its layout requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortRead {
    /// Path of the file.
    pub path: PathBuf,
    /// First requested byte.
    pub offset: i64,
    /// Number of requested bytes.
    pub len: i64,
    /// Length of the file when it was found too short.
    pub file_len: i64,
}

/// A memory request that does not fit the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetFailure {
    /// Purpose of the memory.
    pub what: &'static str,
    /// Requested bytes.
    pub needed: u64,
    /// The budget of the process.
    pub limit: u64,
    /// Bytes in use at that moment.
    pub used: u64,
}

/// A stored chunk that a codec could not encode or decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecFailure {
    /// Name of the codec.
    pub codec: &'static str,
    /// Reason of the failure.
    pub why: String,
    /// The file, where known.
    pub path: PathBuf,
    /// First byte of the stored chunk, where known.
    pub offset: Option<i64>,
    /// Grid coordinates of the chunk, where known.
    pub chunk: Vec<i64>,
}

/// A table of chunks (of HDF5, or the index of a shard) that contradicts itself or its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFailure {
    /// The file.
    pub path: PathBuf,
    /// Position of the wrong byte, where known.
    pub offset: Option<i64>,
    /// Contradiction, with the numbers.
    pub why: String,
}

/// An error that code above this crate raised, and that this crate passes on.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// Text of the error.
    pub text: String,
    /// Sufficient budget in bytes, if the error is a lack of memory.
    pub needed: Option<i64>,
    /// The error object itself.
    pub raised: Arc<dyn Any + Send + Sync>,
}

impl PartialEq for Foreign {
    fn eq(&self, other: &Foreign) -> bool {
        Arc::ptr_eq(&self.raised, &other.raised)
    }
}

impl Eq for Foreign {}

/// Any error of the storage layer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StorageError {
    /// A system call failed.
    #[error("{}", io_text(.0))]
    Io(IoFailure),
    /// The file is shorter than its layout requires.
    #[error(
        "{} ends at byte {}, but {} bytes from byte {} were expected; it was cut off: copy it again, or \
         open it again if its array was made shorter",
        .0.path.display(), .0.file_len, .0.len, .0.offset
    )]
    ShortRead(ShortRead),
    /// A mapped file shrank, or its disk failed, while it was read or written.
    #[error(
        "{} changed during an access (it shrank, or the disk failed or is full); \
         the data read from it is invalid: open it again",
        path.display()
    )]
    Shrunk {
        /// The file.
        path: PathBuf,
    },
    /// Another array has replaced the one that was opened.
    #[error("{why}")]
    Replaced {
        /// Path of its folder or file.
        path: PathBuf,
        /// Text: the finding, and the next step.
        why: String,
    },
    /// A symbolic link on the path of a file to be written or removed points outside the array's
    /// folder.
    #[error(
        "{} is not changed: a symbolic link in its path points outside the array's folder (only a \
         relative link that stays inside is followed); put the files themselves there, or mount the \
         other folder in place of the link",
        path.display()
    )]
    LeadsOut {
        /// Path of the file or folder.
        path: PathBuf,
    },
    /// The work does not fit the memory budget.
    #[error(
        "{} needs {} bytes, but of a budget of {} bytes {} are in use; raise the budget to at \
         least {} bytes (outcore.memory)",
        .0.what, .0.needed, .0.limit, .0.used, .0.needed.saturating_add(.0.used)
    )]
    Budget(BudgetFailure),
    /// The plan could not be made, or is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A chunk could not be encoded or decoded.
    #[error("{}", codec_text(.0))]
    Codec(CodecFailure),
    /// A table of chunks is invalid.
    #[error(
        "the chunk table of {} is invalid: {}; the file is damaged or was cut off; restore it from \
         a copy",
        .0.path.display(), .0.why
    )]
    Index(IndexFailure),
    /// A path to a file leads to a pipe, a device or a folder.
    #[error(
        "{} is not a regular file; restore the file at this path, or remove the entry that names it",
        path.display()
    )]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// A write to an array that is open for reading only.
    #[error("{} is open for reading only; open it with mode 'r+'", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Another process or thread holds the lock on a file, or on a part of it.
    #[error(
        "{} is locked by another writer or reader; stopped waiting after {} ms; wait for it to finish \
         and try again",
        path.display(), waited.as_millis()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// Time spent waiting for the lock.
        waited: std::time::Duration,
    },
    /// A program that changes the file through the HDF5 library has it open.
    #[error(
        "{} is open for writing in a program that uses the HDF5 library, which may move data in the \
         file at any moment; stopped waiting after {} ms; close it there (in this process, close the \
         h5py or netCDF4 handle) and try again",
        path.display(), waited.as_millis()
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// Time spent waiting for the lock.
        waited: std::time::Duration,
    },
    /// The caller asked to stop (Ctrl-C); all requests in flight have ended.
    #[error("interrupted; all requests have ended")]
    Cancelled,
    /// The system lacks an ability that was requested by name.
    #[error("{what} is not available here: {why}")]
    Unavailable {
        /// Requested ability.
        what: &'static str,
        /// Reason why it is missing.
        why: String,
    },
    /// Code that this crate called has failed; its error is passed on to the caller of this crate.
    #[error("{}", .0.text)]
    Foreign(Foreign),
    /// An inconsistent job: a bug above this crate.
    #[error("internal: {0}")]
    BadJob(String),
}

fn io_text(failure: &IoFailure) -> String {
    let system = std::io::Error::from_raw_os_error(failure.errno);
    let mut text = format!("{} failed", failure.op);
    if !failure.path.as_os_str().is_empty() {
        text += &format!(" on {}", failure.path.display());
    }
    match (failure.offset, failure.len) {
        (Some(offset), Some(len)) => text += &format!(" ({len} bytes at byte {offset})"),
        (Some(offset), None) => text += &format!(" (at byte {offset})"),
        (None, Some(len)) => text += &format!(" ({len} bytes)"),
        (None, None) => {}
    }
    text += &format!(": {system}");
    if failure.op == FLUSH {
        text +=
            "; data written since the last successful flush may be lost: open the array again and \
                 write it again";
    }
    match failure.errno {
        libc::ENOSPC | libc::EDQUOT => text += "; free some space and try again",
        libc::EMFILE => {
            text += &format!(
                "; this process may have {} files open (RLIMIT_NOFILE): raise that limit (ulimit -n), \
                 close files, or use fewer threads",
                descriptors::allowed()
            );
        }
        libc::ENFILE => {
            text += "; the whole system has too many open files: raise fs.file-max, or close some"
        }
        libc::ENOENT | libc::ENOTDIR => text += "; it was removed or renamed: open the array again",
        libc::EACCES | libc::EPERM => text += "; check its owner and its mode",
        libc::EROFS => text += "; mount it for writing, or work on a copy",
        libc::EIO => text += "; the disk or its connection has failed; check the system log",
        _ => {}
    }
    text
}

fn codec_text(failure: &CodecFailure) -> String {
    let mut text = format!("codec {}: {}", failure.codec, failure.why);
    if !failure.chunk.is_empty() {
        text += &format!(", chunk {:?}", failure.chunk);
    }
    if !failure.path.as_os_str().is_empty() {
        text += &format!(" of {}", failure.path.display());
    }
    if let Some(offset) = failure.offset {
        text += &format!(" at byte {offset}; `outcore verify` lists all chunks that are damaged");
    }
    text
}

impl StorageError {
    /// An [`Io`](StorageError::Io) without a position.
    pub fn io(op: &'static str, path: &Path, errno: i32) -> StorageError {
        StorageError::Io(IoFailure { op, path: path.to_path_buf(), offset: None, len: None, errno })
    }

    /// An [`Io`](StorageError::Io) with a position.
    pub fn io_at(op: &'static str, path: &Path, offset: i64, len: i64, errno: i32) -> StorageError {
        StorageError::Io(IoFailure {
            op,
            path: path.to_path_buf(),
            offset: Some(offset),
            len: Some(len),
            errno,
        })
    }

    /// Error for a budget of open files that is used up.
    pub fn no_place(op: &'static str, path: &Path) -> StorageError {
        StorageError::io(op, path, libc::EMFILE)
    }

    /// Error of the last system call of this thread.
    pub fn last(op: &'static str, path: &Path) -> StorageError {
        StorageError::io(op, path, errno())
    }

    /// Stable code; append-only, listed in `docs/status/error-codes.md`.
    pub fn code(&self) -> &'static str {
        match self {
            StorageError::Io(failure) => match failure.errno {
                libc::ENOENT | libc::ENOTDIR => "not-found",
                libc::EACCES | libc::EPERM => "permission-denied",
                libc::EROFS => "read-only-file-system",
                libc::EEXIST => "already-exists",
                libc::ENOSPC | libc::EDQUOT => "disk-full",
                libc::EIO => "disk-failure",
                libc::EMFILE | libc::ENFILE => "too-many-open-files",
                _ => "io-failure",
            },
            StorageError::ShortRead(_) => "file-truncated",
            StorageError::Shrunk { .. } | StorageError::Replaced { .. } => "file-changed",
            StorageError::LeadsOut { .. } => "link-leads-out",
            StorageError::Budget(_) => "budget-too-small",
            StorageError::Plan(error) => error.code(),
            StorageError::Codec(_) => "codec-failure",
            StorageError::Index(_) => "chunk-table-damaged",
            StorageError::NotRegular { .. } => "not-regular",
            StorageError::ReadOnly { .. } => "read-only",
            StorageError::Locked { .. } | StorageError::InUse { .. } => "locked",
            StorageError::Cancelled => "interrupted",
            StorageError::Unavailable { .. } => "unavailable",
            StorageError::Foreign(Foreign { needed: Some(_), .. }) => "budget-too-small",
            StorageError::Foreign(_) | StorageError::BadJob(_) => "internal-job",
        }
    }

    /// Path of the file concerned, if there is one.
    pub fn path(&self) -> Option<&Path> {
        let path = match self {
            StorageError::Io(failure) => &failure.path,
            StorageError::ShortRead(short) => &short.path,
            StorageError::Codec(failure) => &failure.path,
            StorageError::Index(failure) => &failure.path,
            StorageError::Shrunk { path }
            | StorageError::Replaced { path, .. }
            | StorageError::LeadsOut { path }
            | StorageError::NotRegular { path }
            | StorageError::ReadOnly { path }
            | StorageError::Locked { path, .. }
            | StorageError::InUse { path, .. } => path,
            _ => return None,
        };
        (!path.as_os_str().is_empty()).then_some(path)
    }
}

/// Error number of the last failed system call of this thread.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_file_the_numbers_and_the_next_step() {
        let full = StorageError::io_at("write", Path::new("a.npy"), 128, 4096, libc::ENOSPC);
        let text = full.to_string();
        for part in ["write failed on a.npy", "4096 bytes at byte 128", "free some space"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!("disk-full", full.code());
        let budget = BudgetFailure { what: "a result", needed: 100, limit: 64, used: 10 };
        assert!(StorageError::Budget(budget).to_string().contains("at least 110 bytes"));
    }
}

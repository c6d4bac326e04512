//! Stores for the chunks of an array: finding, locking, storing.
//!
//! Problem. A plan needs the location of each chunk of a box (file, offset, stored length), which
//! must still be correct when the bytes are read, although other processes replace chunks in the
//! meantime. In addition, two writers that change different elements of one encoded chunk must not
//! lose changes.
//!
//! Idea. [`ChunkStore::resolve`] opens the files of a box of chunks and returns them together with
//! the [`ChunkTable`]: a replaced chunk is a new file, and a reader with the old file open still
//! reads the whole old chunk. Writers first lock the chunks of a batch ([`ChunkStore::lock`], byte
//! ranges of the array's own metadata file, ascending, so that there is no circular wait), then
//! resolve, and store through a [`ChunkSink`].
//!
//! | store | location of chunks | format |
//! |---|---|---|
//! | [`files::FileStore`] | one file each | Zarr without sharding |
//! | [`shards::ShardStore`] | shards with an index | Zarr v3 `sharding_indexed` |
//! | [`table`] | one file, listed in a table that the format reads | HDF5 |
//!
//! A write of encoded chunks, batch by batch (a few hundred chunks, or one shard):
//!
//! ```text
//! let guard = store.lock(&cells, patience)?;      // waits for other writers
//! let before = store.resolve_some(&cells, false, ...)?;   // the old chunks
//! let sink = store.begin(&cells, ...)?;
//! ... read and decode partly covered chunks, change, encode, sink.commit(chunk, mask, bytes) ...
//! sink.finish()?;  drop(guard);                   // now other processes see the new chunks
//! store.flush()?;                                 // at the end: on the disk
//! ```
//!
//! A write of chunks without codecs: `let place = store.in_place(&cells, fill, patience)?`, then
//! plan and write into `place.resolved`, then drop `place`.
//!
//! Invariants. Everything read from files is checked before it is used: no offset outside its file,
//! no two chunks on the same bytes, no length that no codec produces. A chunk or shard appears and
//! is replaced whole, by a rename after its bytes have reached the disk (`publish`).

pub mod files;
pub mod listing;
mod naming;
mod publish;
pub mod root;
pub mod shards;
pub mod table;
mod unsynced;

use outcore_plan::ChunkTable;

use crate::error::StorageError;
use crate::files::FileTable;
use crate::lock::{FileLock, Patience};

use listing::Listed;
pub use naming::Naming;

/// A box of chunks: grid coordinates `lo[d] .. lo[d] + count[d]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cells {
    /// First coordinate of the box, per axis.
    pub lo: Vec<i64>,
    /// Number of chunks, per axis.
    pub count: Vec<i64>,
}

/// Most chunks of one box: those of the largest shard, which is found and rewritten as a whole. Its
/// index has 64 MiB.
pub const LARGEST_BOX: i64 = 1 << 22;

impl Cells {
    /// Makes a box inside a grid of `grid` chunks per axis.
    ///
    /// # Errors
    /// `BadJob` if the box is not inside, or has more than [`LARGEST_BOX`] chunks.
    pub fn new(lo: &[i64], count: &[i64], grid: &[i64]) -> Result<Cells, StorageError> {
        let fits = lo.len() == grid.len()
            && count.len() == grid.len()
            && (0..grid.len()).all(|d| {
                lo[d] >= 0
                    && count[d] >= 0
                    && lo[d].checked_add(count[d]).is_some_and(|end| end <= grid[d])
            });
        let cells = Cells { lo: lo.to_vec(), count: count.to_vec() };
        let size = count.iter().try_fold(1i64, |n, &c| n.checked_mul(c));
        match size {
            Some(size) if fits && size <= LARGEST_BOX => Ok(cells),
            _ => Err(StorageError::BadJob(format!(
                "chunks {lo:?} + {count:?} of a grid {grid:?}, at most {LARGEST_BOX} at once"
            ))),
        }
    }

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.count.iter().product::<i64>() as usize
    }

    /// Returns whether the box has no chunks.
    pub fn is_empty(&self) -> bool {
        self.count.contains(&0)
    }

    /// Returns whether a chunk is in the box.
    pub fn contains(&self, chunk: &[i64]) -> bool {
        chunk.len() == self.lo.len()
            && (0..chunk.len()).all(|d| (0..self.count[d]).contains(&(chunk[d] - self.lo[d])))
    }

    /// Iterates over the coordinates of all chunks in C order, the order of `ChunkTable::stored`.
    pub fn iter(&self) -> impl Iterator<Item = Vec<i64>> + '_ {
        let mut next = (!self.is_empty()).then(|| self.lo.clone());
        std::iter::from_fn(move || {
            let current = next.take()?;
            let mut following = current.clone();
            for d in (0..following.len()).rev() {
                following[d] += 1;
                if following[d] < self.lo[d] + self.count[d] {
                    next = Some(following);
                    break;
                }
                following[d] = self.lo[d];
            }
            Some(current)
        })
    }
}

/// Sizes of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    /// Bytes of a decoded chunk.
    pub decoded: i64,
    /// Bytes of the longest stored chunk (`Pipeline::stored_limit`); `decoded` without codecs.
    pub limit: i64,
    /// Set if there are codecs; otherwise each stored chunk has exactly `decoded` bytes.
    pub encoded: bool,
}

/// Locations of the chunks of a box, and their open files.
#[derive(Debug)]
pub struct Resolved {
    /// One entry per chunk; file numbers are those of `files`.
    pub table: ChunkTable,
    /// Open files; they stay open until this is dropped.
    pub files: FileTable,
}

/// Chunks that can be written in place, and the lock that keeps their files from being replaced.
#[derive(Debug)]
pub struct InPlace {
    /// Locations of the chunks; no wanted chunk is missing. The files are open for writing.
    pub resolved: Resolved,
    /// Held while the chunks are being written; `None` if no lock is needed.
    pub guard: Option<FileLock>,
    /// Registers the files for the next flush when dropped.
    #[allow(dead_code, reason = "kept for its drop")]
    writing: unsynced::Writing,
}

/// Bytes of one chunk for the duration of its batch, in any store: its row from the format, its
/// entry in the table and in the plan's copy, its round, its extent while extents are compared.
pub const BYTES_A_CHUNK: u64 = 192;

/// A store for the chunks of one array.
pub trait ChunkStore: Send + Sync + std::fmt::Debug {
    /// Returns the most memory of a batch in addition to its chunks: table, open files, and indexes
    /// of shards, including new ones if chunks are to be replaced (`replacing`).
    fn held_bytes(&self, cells: &Cells, replacing: bool) -> u64;

    /// Returns the most open files of a batch of `files` files (of chunks, or of shards) if its
    /// chunks are to be read, or written.
    fn open_files(&self, files: i64, write: bool) -> i64;

    /// Finds the chunks of a box and opens their files, for writing too if `writable`.
    ///
    /// `Index` if a table or index is invalid, `ShortRead` if a chunk without codecs is cut off,
    /// and `Io` if a system call fails. A missing chunk is `None`, not an error.
    fn resolve(&self, cells: &Cells, writable: bool) -> Result<Resolved, StorageError> {
        self.resolve_some(cells, writable, &|_| true)
    }

    /// Does the same as [`resolve`](ChunkStore::resolve) for the chunks of the box that are
    /// `wanted`; the others count as missing. A file without wanted chunks is not opened.
    ///
    /// # Errors
    /// As `resolve`.
    fn resolve_some(
        &self,
        cells: &Cells,
        writable: bool,
        wanted: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Resolved, StorageError>;

    /// Lists the existing files of a box of chunks, or of shards (then the box counts shards).
    /// `None` after more than `most` names: querying each file of the box may be cheaper.
    ///
    /// # Errors
    /// `Cancelled` if `interrupted`, `Budget` if the list is too long.
    fn list(
        &self,
        lo_and_count: (&[i64], &[i64]),
        most: usize,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Listed>, StorageError>;

    /// Waits until no other writer holds a chunk of the box, and excludes others until the result
    /// is dropped.
    ///
    /// # Errors
    /// `Locked` when the wait ends, `Cancelled`, and `Io` if a system call fails.
    fn lock(&self, cells: &Cells, patience: Patience<'_>) -> Result<FileLock, StorageError>;

    /// Starts to replace chunks of the box, which the caller has locked. The caller will commit all
    /// chunks that are `expected`: with the last of them a shard is complete and can be published.
    ///
    /// # Errors
    /// `Index`, and `Io` if a system call fails.
    fn begin<'a>(
        &'a self,
        cells: &Cells,
        expected: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Box<dyn ChunkSink + 'a>, StorageError>;

    /// Creates the missing chunks of a box with every element equal to `fill`, so that all can be
    /// written in place; only for chunks without codecs.
    ///
    /// Two processes may do so concurrently; neither undoes the other's writes.
    ///
    /// # Errors
    /// As [`resolve`](ChunkStore::resolve) and [`lock`](ChunkStore::lock).
    fn in_place(
        &self,
        cells: &Cells,
        fill: &[u8],
        patience: Patience<'_>,
    ) -> Result<InPlace, StorageError> {
        self.in_place_some(cells, fill, &|_| true, patience)
    }

    /// Does the same as [`in_place`](ChunkStore::in_place) for the chunks of the box that are
    /// `wanted`; the others count as missing, and are not created.
    ///
    /// # Errors
    /// As `in_place`.
    fn in_place_some(
        &self,
        cells: &Cells,
        fill: &[u8],
        wanted: &dyn Fn(&[i64]) -> bool,
        patience: Patience<'_>,
    ) -> Result<InPlace, StorageError>;

    /// Waits until everything stored so far is on the disk, under its name.
    ///
    /// # Errors
    /// `Io` if the disk failed or is full: data stored since the last flush may be lost.
    fn flush(&self) -> Result<(), StorageError>;
}

/// A sink for the encoded chunks of one batch.
pub trait ChunkSink: Send + Sync {
    /// Stores one chunk; may be called from several threads, once per chunk.
    ///
    /// # Errors
    /// `BadJob` for a chunk outside the batch, and `Io` if a system call fails.
    fn commit(&self, chunk: &[i64], mask: u32, bytes: &[u8]) -> Result<(), StorageError>;

    /// Publishes the committed chunks. Without this call, each chunk may or may not have been
    /// replaced, but is whole.
    ///
    /// # Errors
    /// `Io` if a system call fails; each chunk is then old or new.
    fn finish(self: Box<Self>) -> Result<(), StorageError>;
}

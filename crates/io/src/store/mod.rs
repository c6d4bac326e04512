//! Where the chunks of an array are kept: found, locked, stored.
//!
//! Problem. A plan needs to know where each chunk of a box lies (file, offset, stored length), and
//! the answer must still be true when the bytes are read, although other processes replace chunks
//! meanwhile. And of two writers who change different elements of one encoded chunk, none may lose.
//!
//! Idea. [`ChunkStore::resolve`] opens what a box of chunks needs and hands out the open files
//! together with the [`ChunkTable`]: a replaced chunk is a new file, and who holds the old one
//! goes on reading the old one whole. Writers lock the chunks of a batch first
//! ([`ChunkStore::lock`], byte ranges of the array's own metadata file, ascending, so that writers
//! never wait in a circle), resolve afterwards, and store through a [`ChunkSink`].
//!
//! | store | chunks lie in | format |
//! |---|---|---|
//! | [`files::FileStore`] | one file each | Zarr without sharding |
//! | [`shards::ShardStore`] | shards with an index | Zarr v3 `sharding_indexed` |
//! | [`table`] | one file, listed in a table that the format reads | HDF5 |
//!
//! A write of encoded chunks, batch by batch (a few hundred chunks, or one shard):
//!
//! ```text
//! let guard = store.lock(&cells, patience)?;      // waits for other writers
//! let before = store.resolve_some(&cells, false, ...)?;   // what is there now
//! let sink = store.begin(&cells, ...)?;
//! ... read and decode what is covered in part, change, encode, sink.commit(chunk, mask, bytes) ...
//! sink.finish()?;  drop(guard);                   // now others see it
//! store.flush()?;                                 // at the end: on the disk
//! ```
//!
//! A write of chunks that are stored as they are: `let place = store.in_place(&cells, fill,
//! patience)?`, then plan and write into `place.resolved`, then drop `place`.
//!
//! Invariants. What files say is checked before it is used: no offset outside its file, no two
//! chunks on the same bytes, no length that no codec makes. A chunk or shard appears and is replaced
//! whole, by a rename that its bytes reached the disk before (`publish`).

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

/// The most chunks that one box may have: those of the largest shard, which is found and made anew as
/// a whole. Its index has 64 MiB.
pub const LARGEST_BOX: i64 = 1 << 22;

impl Cells {
    /// A box inside a grid of `grid` chunks per axis.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count.contains(&0)
    }

    /// Whether a chunk is in the box.
    pub fn contains(&self, chunk: &[i64]) -> bool {
        chunk.len() == self.lo.len()
            && (0..chunk.len()).all(|d| (0..self.count[d]).contains(&(chunk[d] - self.lo[d])))
    }

    /// Coordinates of all chunks in C order: the order of `ChunkTable::stored`.
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

/// How large chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    /// Bytes of a decoded chunk.
    pub decoded: i64,
    /// The longest stored chunk (`Pipeline::stored_limit`); `decoded` if there are no codecs.
    pub limit: i64,
    /// Whether chunks go through codecs. If not, each has exactly `decoded` bytes.
    pub encoded: bool,
}

/// Where the chunks of a box are, and the open files they are in.
#[derive(Debug)]
pub struct Resolved {
    /// One entry per chunk; file numbers are those of `files`.
    pub table: ChunkTable,
    /// The files, already open; they stay so until this is dropped.
    pub files: FileTable,
}

/// Chunks that can be written in place, and the lock that keeps their files where they are.
#[derive(Debug)]
pub struct InPlace {
    /// Where they are; none that is wanted is missing. The files are open for writing.
    pub resolved: Resolved,
    /// Held while the chunks are being written; `None` where none is needed.
    pub guard: Option<FileLock>,
    /// Tells the store on drop what has to be flushed.
    #[allow(dead_code, reason = "kept for its drop")]
    writing: unsynced::Writing,
}

/// Bytes that one chunk takes while its batch lasts, wherever it is kept: its row as the format tells
/// it, its entry in the table and in the plan's copy, its round, its extent while they are compared.
pub const BYTES_A_CHUNK: u64 = 192;

/// A place that keeps the chunks of one array.
pub trait ChunkStore: Send + Sync + std::fmt::Debug {
    /// The most memory that a batch takes here besides its chunks: table, open files, indices of
    /// shards; those that are made anew too, if chunks are to be replaced (`replacing`).
    fn held_bytes(&self, cells: &Cells, replacing: bool) -> u64;

    /// The most files that a batch of so many files (of chunks, or of shards) has open at once, if its
    /// chunks are to be read, or written.
    fn open_files(&self, files: i64, write: bool) -> i64;

    /// Finds the chunks of a box and opens their files, for writing too if `writable`.
    ///
    /// # Errors
    /// `Index` if a table or index cannot be true, `ShortRead` if a chunk that is stored as it is
    /// has lost its end, and what the system says. A chunk that is missing is `None`, no error.
    fn resolve(&self, cells: &Cells, writable: bool) -> Result<Resolved, StorageError> {
        self.resolve_some(cells, writable, &|_| true)
    }

    /// [`resolve`](ChunkStore::resolve) for those chunks of the box that are `wanted`; the others
    /// count as missing. A file that holds none that is wanted is not opened.
    ///
    /// # Errors
    /// As `resolve`.
    fn resolve_some(
        &self,
        cells: &Cells,
        writable: bool,
        wanted: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Resolved, StorageError>;

    /// Lists the files that there are in a box of them: of chunks, or of shards (then the box counts
    /// shards). None if more than `most` names were seen: asking for each of the box may be cheaper.
    ///
    /// # Errors
    /// `Cancelled` if `interrupted`, `Budget` if the list is too long.
    fn list(
        &self,
        lo_and_count: (&[i64], &[i64]),
        most: usize,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Listed>, StorageError>;

    /// Waits until no other writer holds a chunk of the box, and keeps them out until the result
    /// is dropped.
    ///
    /// # Errors
    /// `Locked` when patience ends, `Cancelled`, and what the system says.
    fn lock(&self, cells: &Cells, patience: Patience<'_>) -> Result<FileLock, StorageError>;

    /// Starts to replace chunks of the box, which the caller has locked. It is about to commit all
    /// that are `expected`: with the last of them a shard is complete and can be published.
    ///
    /// # Errors
    /// `Index`, and what the system says.
    fn begin<'a>(
        &'a self,
        cells: &Cells,
        expected: &dyn Fn(&[i64]) -> bool,
    ) -> Result<Box<dyn ChunkSink + 'a>, StorageError>;

    /// Makes the chunks of a box exist, so that they can be written in place: those that are
    /// missing are created with every element equal to `fill`. Only where chunks are not encoded.
    ///
    /// Two processes may do so at once; none undoes the other's writes.
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

    /// [`in_place`](ChunkStore::in_place) for those chunks of the box that are `wanted`; the others count as
    /// missing, and are not created.
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
    /// The disk failed or is full: what was stored since the last flush may be lost.
    fn flush(&self) -> Result<(), StorageError>;
}

/// Takes the encoded chunks of one batch.
pub trait ChunkSink: Send + Sync {
    /// Stores one chunk. May be called from several threads, once per chunk.
    ///
    /// # Errors
    /// `BadJob` for a chunk outside the batch, and what the system says.
    fn commit(&self, chunk: &[i64], mask: u32, bytes: &[u8]) -> Result<(), StorageError>;

    /// Publishes what was committed. Without this, chunks may or may not have been replaced, each
    /// whole.
    ///
    /// # Errors
    /// What the system says; each chunk is then old or new.
    fn finish(self: Box<Self>) -> Result<(), StorageError>;
}

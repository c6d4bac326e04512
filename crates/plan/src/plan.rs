//! The plan: the steps of an access, as a value, in rounds.
//!
//! A plan can be printed, counted and checked without accessing a disk. Repetition is described,
//! not enumerated: a [`Family`] is any number of equal extents, a [`Move`] any number of elements,
//! so the size of a plan is proportional to the number of axes, not of elements. Only elements that
//! are chosen one by one are listed, in an [`IndexedMove`].
//!
//! Order inside a round: `reads` and `chunk_reads`, then `moves`, then `indexed`, then `writes` and
//! `chunk_writes`.

use alloc::vec::Vec;

use crate::address::round_up;
use crate::points::{Addresses, Counts};

/// Reading from disk to memory, or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// File to memory.
    Read,
    /// Memory to file.
    Write,
}

/// Methods to access the bytes; `ARCHITECTURE.md` describes when each one is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Transfers of runs directly between file and the caller's array.
    Straight,
    /// Data sieving: windows of the file pass through a slot, with a strided copy.
    ///
    /// A write packs whole windows. If no other process uses the file, it may read the windows
    /// first.
    Window,
    /// Strided copy out of (or into) a file mapping, for bytes that are in the page cache.
    Mapped,
    /// List I/O with a deep queue.
    ///
    /// Many requests for only the needed blocks are in flight; a strided copy follows.
    List,
    /// Whole chunks through the codecs.
    Chunks,
}

impl Method {
    /// The name of the method in texts and hints.
    pub fn name(self) -> &'static str {
        match self {
            Method::Straight => "straight",
            Method::Window => "window",
            Method::Mapped => "mapped",
            Method::List => "list",
            Method::Chunks => "chunks",
        }
    }
}

/// Kernel path of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Through the page cache.
    Cached,
    /// Bypassing the page cache (`O_DIRECT`).
    ///
    /// Every extent of a read is rounded outward to whole blocks in the file *and* in the slot;
    /// slot addresses are therefore congruent to file addresses modulo the block. Of an extent of a
    /// write, only the whole blocks inside it are written.
    Direct,
    /// The part of a write extent before its first whole block, through the page cache.
    Head,
    /// The part of a write extent after its last whole block, through the page cache.
    Tail,
}

impl Channel {
    /// The written part of an extent `first..end` of the file.
    ///
    /// Head, whole blocks and tail are disjoint, and together they are the whole extent.
    pub fn written(self, first: i64, end: i64, block: i64) -> (i64, i64) {
        let border = round_up(first, block);
        let (inner, outer) = if border > end { (end, end) } else { (border, end & -block) };
        match self {
            Channel::Cached => (first, end),
            Channel::Direct => (inner, outer),
            Channel::Head => (first, inner),
            Channel::Tail => (outer, end),
        }
    }
}

/// Place of one end of a move or transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The caller's array: byte addresses relative to its element `[0, ..., 0]`; may be negative.
    User,
    /// The slot of this round: addresses `0..slot_bytes`.
    Slot,
    /// The file itself, through a mapping: byte addresses in that file.
    File(u32),
    /// One element of the fill value, at address 0, always read with strides 0.
    Fill,
}

/// Equal extents at regular distances.
///
/// Extent `i` begins at `offset + sum(i[d] * stride[d])` and has `len` bytes. No axes: one extent.
/// The first axis is the outermost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// First byte of the first extent.
    pub offset: i64,
    /// Bytes of each extent.
    pub len: i64,
    /// Number of extents along each axis.
    pub count: Vec<i64>,
    /// Distance in bytes along each axis.
    pub stride: Vec<i64>,
}

/// A family of extents read into, or written from, memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Number of the file.
    pub file: u32,
    /// The extents in the file.
    pub extents: Family,
    /// [`Place::Slot`] or [`Place::User`].
    pub memory: Place,
    /// Address of the first extent in memory.
    pub at: i64,
    /// Distance in memory along each axis of the family.
    pub at_stride: Vec<i64>,
    /// Kernel path.
    pub channel: Channel,
}

/// One stored chunk, read and decoded into the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRead {
    /// Grid coordinates of the chunk.
    pub chunk: Vec<i64>,
    /// Number of the file, first byte, stored bytes, and HDF5 filter mask.
    pub stored: crate::layout::Stored,
    /// Address in the slot where the encoded bytes are staged.
    pub staged_at: i64,
    /// Address in the slot of the decoder's scratch.
    pub scratch_at: i64,
    /// Bytes of the decoder's scratch.
    pub scratch: i64,
    /// Address in the slot of the decoded chunk.
    pub at: i64,
    /// Bytes of the decoded chunk.
    pub len: i64,
    /// True if only some of the chunk's elements inside the array are used.
    pub partly: bool,
}

/// One chunk, encoded from the slot and stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkWrite {
    /// Grid coordinates of the chunk.
    pub chunk: Vec<i64>,
    /// Address in the slot of the decoded chunk.
    pub at: i64,
    /// Bytes of the decoded chunk.
    pub len: i64,
    /// Address in the slot of the encoder's scratch, where its output is staged.
    pub staged_at: i64,
    /// Bytes of the encoder's scratch, at least `bound`.
    pub scratch: i64,
    /// Maximum bytes of output.
    pub bound: i64,
}

/// An n-d strided copy of elements between two places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The source.
    pub src: Place,
    /// Address of the first element in the source.
    pub src_at: i64,
    /// Byte strides in the source, one per axis; zero repeats.
    pub src_stride: Vec<i64>,
    /// The target. Never [`Place::Fill`].
    pub dst: Place,
    /// Address of the first element in the target.
    pub dst_at: i64,
    /// Byte strides in the target; a single move never writes a byte twice.
    pub dst_stride: Vec<i64>,
    /// Elements along each axis.
    pub count: Vec<i64>,
    /// Bytes of an element.
    pub item: i64,
}

/// A copy of equal blocks between two places, with listed addresses.
///
/// Blocks are copied one after another. If several blocks have the same target address, the last
/// one remains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedMove {
    /// Number of addresses on each side.
    pub points: usize,
    /// Number of consecutive blocks at each address; more than one only for blocks without axes.
    pub counts: Counts,
    /// The source.
    pub src: Place,
    /// Address in the source to which the addresses of the blocks are added.
    pub src_at: i64,
    /// Addresses of the blocks in the source.
    pub src_points: Addresses,
    /// Byte strides inside a block in the source, one per axis.
    pub src_stride: Vec<i64>,
    /// The target. Never [`Place::Fill`].
    pub dst: Place,
    /// Address in the target to which the addresses of the blocks are added.
    pub dst_at: i64,
    /// Addresses of the blocks in the target.
    pub dst_points: Addresses,
    /// Byte strides inside a block in the target; a block never has a byte twice.
    pub dst_stride: Vec<i64>,
    /// Elements of a block along each axis.
    pub count: Vec<i64>,
    /// Bytes of an element.
    pub item: i64,
}

/// Bytes of a cache line.
const LINE: i64 = 64;

impl IndexedMove {
    /// Number of bytes moved.
    pub fn bytes(&self) -> i64 {
        let block = self.count.iter().fold(self.item, |bytes, n| bytes.saturating_mul(*n));
        block.saturating_mul(i64::try_from(self.counts.blocks(self.points)).unwrap_or(i64::MAX))
    }

    /// Bytes of memory touched on one side, in whole cache lines, which determine the time.
    pub fn touched(&self) -> i64 {
        let lines = i64::try_from(self.points).unwrap_or(i64::MAX).saturating_mul(LINE);
        self.bytes().max(lines)
    }
}

/// One step of a plan. Rounds touch disjoint parts of the caller's array and may run concurrently.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Round {
    /// Reads into the slot or directly into the caller's array.
    pub reads: Vec<Transfer>,
    /// Chunks to read and decode.
    pub chunk_reads: Vec<ChunkRead>,
    /// Copies, in this order.
    pub moves: Vec<Move>,
    /// Copies of listed blocks, in this order, after the others.
    pub indexed: Vec<IndexedMove>,
    /// Writes from the slot or directly from the caller's array.
    pub writes: Vec<Transfer>,
    /// Chunks to encode and store.
    pub chunk_writes: Vec<ChunkWrite>,
    /// Bytes of slot this round uses.
    pub slot_bytes: i64,
}

/// Resources that a plan uses when run, counted exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Read requests (system calls or ring entries).
    pub reads: i64,
    /// Bytes of read requests.
    pub read_bytes: i64,
    /// Write requests.
    pub writes: i64,
    /// Bytes of write requests.
    pub written_bytes: i64,
    /// Bytes copied directly out of or into mapped files.
    pub mapped_bytes: i64,
    /// Bytes that the caller requested.
    pub useful_bytes: i64,
    /// Chunks decoded.
    pub decodes: i64,
    /// Chunks encoded.
    pub encodes: i64,
    /// Rounds.
    pub rounds: i64,
    /// Peak memory in addition to the caller's array, bytes.
    pub peak_bytes: i64,
}

//! Layouts: where the elements of an array live in its files.
//!
//! Two kinds, because their cost differs by orders of magnitude: [`Strided`] (any element is found
//! by arithmetic) and [`Chunked`] (a grid of chunks, found through a table, perhaps encoded).

/// Where the elements of an array live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Raw, `.npy`, contiguous HDF5.
    Strided(Strided),
    /// Zarr, chunked HDF5.
    Chunked(Chunked),
}

/// Element `i` lies at byte `sum(i[d] * strides[d])` of the concatenation of `parts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strided {
    /// Length of each axis.
    pub shape: Vec<i64>,
    /// Size of an element, bytes.
    pub item: i64,
    /// Byte strides, one per axis, none negative.
    pub strides: Vec<i64>,
    /// The pieces of file that hold the elements, in order. One piece unless split over files.
    pub parts: Vec<Part>,
}

/// A contiguous piece of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of the file in the array's file table.
    pub file: u32,
    /// First byte in that file.
    pub offset: i64,
    /// Bytes.
    pub len: i64,
}

/// A regular grid of chunks of equal shape. Chunks at the upper edges are stored whole (padded).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunked {
    /// Length of each axis.
    pub shape: Vec<i64>,
    /// Size of an element, bytes.
    pub item: i64,
    /// Shape of a chunk, each at least 1.
    pub chunk: Vec<i64>,
    /// Byte strides of the elements inside a decoded chunk (C order, Fortran order, transposed).
    pub strides: Vec<i64>,
    /// Whether stored chunks must go through a codec. If not, parts of a chunk can be read and
    /// written in place.
    pub encoded: bool,
}

/// Where one chunk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Number of the file in the operation's file table.
    pub file: u32,
    /// First byte.
    pub offset: i64,
    /// Stored (encoded) bytes.
    pub len: i64,
    /// HDF5 filter mask: bit k set means codec k was skipped for this chunk.
    pub mask: u32,
}

/// The part of an array's chunk table that an access touches: an input of the planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTable {
    /// First grid coordinate of the box, per axis.
    pub lo: Vec<i64>,
    /// Number of grid cells of the box, per axis.
    pub count: Vec<i64>,
    /// One entry per cell of the box in C order; `None` is a chunk that was never written.
    pub stored: Vec<Option<Stored>>,
}

//! Layouts: the places of an array's elements in its files.
//!
//! There are two kinds, because their costs differ by orders of magnitude: [`Strided`] (any element
//! is found by arithmetic) and [`Chunked`] (a grid of chunks, found through a table, possibly
//! encoded).

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::error::PlanError;
use crate::section::Section;
use crate::slabs::Slabs;

/// The places of an array's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Raw, `.npy`, contiguous HDF5.
    Strided(Strided),
    /// Zarr, chunked HDF5.
    Chunked(Chunked),
}

/// Layout with element `i` at byte `sum(i[d] * strides[d])` of the concatenation of `parts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strided {
    /// Length of each axis.
    pub shape: Vec<i64>,
    /// Size of an element, bytes.
    pub item: i64,
    /// Byte strides, one per axis, none negative.
    pub strides: Vec<i64>,
    /// The pieces of files that hold the elements, in order.
    ///
    /// There is only one unless the array is split over files.
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
    /// True if stored chunks must go through a codec.
    ///
    /// Otherwise, parts of a chunk can be read and written in place.
    pub encoded: bool,
    /// Maximum bytes of an encoded chunk (the codecs' bound); unused if not encoded.
    pub encoded_bound: i64,
}

/// Location of a stored chunk.
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

/// The part of an array's chunk table that an access touches, an input of the planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTable {
    /// First grid coordinate of the box, per axis.
    pub lo: Vec<i64>,
    /// Number of grid cells of the box, per axis.
    pub count: Vec<i64>,
    /// One entry per cell of the box in C order; `None` for a chunk that was never written.
    pub stored: Vec<Option<Stored>>,
}

/// Order of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Last axis fastest.
    C,
    /// First axis fastest.
    F,
}

impl Order {
    /// Byte strides of a dense array of this shape.
    pub fn strides(self, shape: &[i64], item: i64) -> Result<Vec<i64>, PlanError> {
        let mut strides = vec![item; shape.len()];
        let mut stride = item;
        let mut next = |d: usize| {
            strides[d] = stride;
            stride = stride.checked_mul(shape[d].max(1))?;
            Some(())
        };
        match self {
            Order::C => (0..shape.len()).rev().try_for_each(&mut next),
            Order::F => (0..shape.len()).try_for_each(&mut next),
        }
        .ok_or(PlanError::TooLarge("the array"))?;
        Ok(strides)
    }

    /// The axes of an array, the fastest first.
    pub fn fastest_first(self, ndim: usize) -> Vec<usize> {
        match self {
            Order::C => (0..ndim).rev().collect(),
            Order::F => (0..ndim).collect(),
        }
    }
}

fn bad<T>(why: String) -> Result<T, PlanError> {
    Err(PlanError::BadLayout(why))
}

/// Returns the bytes from the first to the last element, or an error if elements overlap.
///
/// Sorted by length, each stride must be at least the span of the shorter ones. The result is 0 if
/// there are no elements.
fn span_of(shape: &[i64], item: i64, strides: &[i64]) -> Result<i64, PlanError> {
    if item < 1 {
        return bad(format!("elements have {item} bytes"));
    }
    if shape.len() != strides.len() {
        return bad(format!("there are {} axes but {} strides", shape.len(), strides.len()));
    }
    if shape.iter().chain(strides).any(|n| *n < 0) {
        return bad(format!(
            "a length or stride is negative: shape {shape:?}, strides {strides:?}"
        ));
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let mut span = item;
    for (n, s) in shape.iter().zip(strides) {
        span = (n - 1)
            .checked_mul(*s)
            .and_then(|reach| span.checked_add(reach))
            .ok_or(PlanError::TooLarge("the array"))?;
    }
    if !crate::address::nests(item, shape, strides) {
        return bad(format!("elements overlap: shape {shape:?}, strides {strides:?}, item {item}"));
    }
    Ok(span)
}

impl Strided {
    /// Creates a checked layout of an array spread over `parts`.
    pub fn new(
        shape: Vec<i64>,
        item: i64,
        strides: Vec<i64>,
        parts: Vec<Part>,
    ) -> Result<Strided, PlanError> {
        let layout = Strided { shape, item, strides, parts };
        layout.validate()?;
        Ok(layout)
    }

    /// Creates the layout of a dense array in one file.
    pub fn dense(
        shape: &[i64],
        item: i64,
        order: Order,
        file: u32,
        offset: i64,
    ) -> Result<Strided, PlanError> {
        let strides = order.strides(shape, item)?;
        let len = span_of(shape, item, &strides)?;
        Strided::new(shape.to_vec(), item, strides, vec![Part { file, offset, len }])
    }

    /// First byte of a section in its file; None unless the array has one part.
    pub fn begin(&self, section: &Section) -> Option<i64> {
        let [part] = self.parts.as_slice() else { return None };
        let ranges = section.ranges().iter().zip(&self.strides);
        let first = ranges.map(|(range, stride)| range.start.saturating_mul(*stride));
        Some(first.fold(part.offset, i64::saturating_add))
    }

    /// Rejects layouts whose elements overlap, lie outside their parts, or cross a border of parts.
    pub fn validate(&self) -> Result<(), PlanError> {
        let span = span_of(&self.shape, self.item, &self.strides)?;
        let mut total = 0_i64;
        for p in &self.parts {
            if p.offset < 0 || p.len < 0 || p.offset.checked_add(p.len).is_none() {
                return bad(format!("a part has {} bytes at byte {}", p.len, p.offset));
            }
            total = total.checked_add(p.len).ok_or(PlanError::TooLarge("the files together"))?;
        }
        if span > total {
            return bad(format!("elements span {span} bytes, but the parts have {total} bytes"));
        }
        Ok(())
    }
}

/// A box of grid cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridBox {
    /// First grid coordinate, per axis.
    pub lo: Vec<i64>,
    /// Number of cells per axis; 0 along some axis if no cell is touched.
    pub count: Vec<i64>,
}

impl GridBox {
    /// Number of cells.
    pub fn cells(&self) -> Result<i64, PlanError> {
        let product = self.count.iter().try_fold(1_i64, |n, c| n.checked_mul(*c));
        product.ok_or(PlanError::TooLarge("the number of chunks"))
    }
}

/// Maximum number of chunks of one access: a petabyte in chunks of a megabyte.
pub const MOST_CHUNKS: i64 = 1 << 30;

impl Chunked {
    /// Creates a checked chunked layout.
    pub fn new(
        shape: Vec<i64>,
        item: i64,
        chunk: Vec<i64>,
        strides: Vec<i64>,
        encoded: bool,
        encoded_bound: i64,
    ) -> Result<Chunked, PlanError> {
        let layout = Chunked { shape, item, chunk, strides, encoded, encoded_bound };
        layout.validate()?;
        Ok(layout)
    }

    /// Rejects chunks that are empty, overlap themselves, or whose sizes do not fit 63 bits.
    pub fn validate(&self) -> Result<(), PlanError> {
        if self.chunk.len() != self.shape.len() {
            return bad(format!(
                "the array has {} axes, but chunks have {}",
                self.shape.len(),
                self.chunk.len()
            ));
        }
        if self.chunk.iter().any(|n| *n < 1) || self.shape.iter().any(|n| *n < 0) {
            return bad(format!(
                "chunks have shape {:?} in an array of shape {:?}",
                self.chunk, self.shape
            ));
        }
        if self.encoded_bound < 0 {
            return bad(format!("encoded chunks have at most {} bytes", self.encoded_bound));
        }
        let span = span_of(&self.chunk, self.item, &self.strides)?;
        let bytes = self.chunk.iter().try_fold(self.item, |n, c| n.checked_mul(*c));
        if bytes != Some(span) {
            return bad(format!(
                "chunks are not dense: shape {:?}, strides {:?}",
                self.chunk, self.strides
            ));
        }
        let whole = self.shape.iter().try_fold(self.item, |n, c| n.checked_mul((*c).max(1)));
        whole.ok_or(PlanError::TooLarge("the array"))?;
        Ok(())
    }

    /// Bytes of a decoded chunk.
    pub fn chunk_bytes(&self) -> i64 {
        self.chunk.iter().fold(self.item, |n, c| n.saturating_mul(*c))
    }

    /// Number of chunks along each axis.
    pub fn grid(&self) -> Vec<i64> {
        let cells = |(n, c): (&i64, &i64)| if *n == 0 { 0 } else { (n - 1) / c + 1 };
        self.shape.iter().zip(&self.chunk).map(cells).collect()
    }

    /// The smallest box of chunks that contains a section.
    pub fn touched(&self, section: &Section) -> Result<GridBox, PlanError> {
        section.within(&self.shape)?;
        if section.is_empty() {
            let zero = vec![0; self.shape.len()];
            return Ok(GridBox { lo: zero.clone(), count: zero });
        }
        let ranges = || section.ranges().iter().zip(&self.chunk);
        let lo = ranges().map(|(r, c)| r.start / c).collect();
        let count = ranges().map(|(r, c)| (r.stop() - 1) / c - r.start / c + 1).collect();
        Ok(GridBox { lo, count })
    }

    /// Upper bound of the number of chunks with an element of a section; long steps skip chunks.
    pub fn met(&self, section: &Section) -> Result<i64, PlanError> {
        let touched = self.touched(section)?;
        let along = touched.count.iter().zip(section.ranges()).map(|(n, r)| *n.min(&r.count));
        Ok(along.fold(1, i64::saturating_mul))
    }

    /// Rejects a section that touches more chunks than one access may.
    ///
    /// An example is the whole of an array whose metadata claims 10^15 chunks.
    pub fn admit(&self, section: &Section) -> Result<(), PlanError> {
        match self.met(section)? {
            chunks if chunks > MOST_CHUNKS => {
                Err(PlanError::TooManyChunks { chunks, most: MOST_CHUNKS })
            }
            _ => Ok(()),
        }
    }

    /// Cuts a section into slabs that touch boxes of at most `chunks` chunks (at least one each).
    ///
    /// Slabs come in the order of the grid.
    pub fn batches(&self, section: &Section, chunks: i64) -> Result<Slabs, PlanError> {
        self.validate()?;
        section.within(&self.shape)?;
        let order = Order::C.fastest_first(self.shape.len());
        Ok(Slabs::of_blocks(section, &self.chunk, order, chunks))
    }
}

impl ChunkTable {
    /// Creates a checked table: as many entries as cells, valid sizes.
    pub fn new(
        lo: Vec<i64>,
        count: Vec<i64>,
        stored: Vec<Option<Stored>>,
    ) -> Result<ChunkTable, PlanError> {
        let table = ChunkTable { lo, count, stored };
        table.validate()?;
        Ok(table)
    }

    /// See [`new`](ChunkTable::new).
    pub fn validate(&self) -> Result<(), PlanError> {
        if self.lo.len() != self.count.len() || self.lo.iter().chain(&self.count).any(|n| *n < 0) {
            return bad(format!(
                "the chunk table begins at {:?} and has {:?} cells",
                self.lo, self.count
            ));
        }
        let cells = self.count.iter().try_fold(1_i64, |n, c| n.checked_mul(*c));
        if cells != i64::try_from(self.stored.len()).ok() {
            return bad(format!(
                "the chunk table has shape {:?} but {} cells",
                self.count,
                self.stored.len()
            ));
        }
        for s in self.stored.iter().flatten() {
            if s.offset < 0 || s.len < 0 || s.offset.checked_add(s.len).is_none() {
                return bad(format!("a stored chunk has {} bytes at byte {}", s.len, s.offset));
            }
        }
        Ok(())
    }

    /// The entry of a grid cell; an error if the cell is outside the table.
    pub fn entry(&self, cell: &[i64]) -> Result<Option<Stored>, PlanError> {
        let mut index = 0;
        if cell.len() != self.lo.len() {
            return bad(format!(
                "the chunk table has {} axes, which does not match cell {cell:?}",
                self.lo.len()
            ));
        }
        for ((c, lo), n) in cell.iter().zip(&self.lo).zip(&self.count) {
            let k = c - lo;
            if k < 0 || k >= *n {
                return bad(format!("the chunk table does not contain chunk {cell:?}"));
            }
            index = index * n + k;
        }
        Ok(self.stored.get(index as usize).copied().flatten())
    }
}

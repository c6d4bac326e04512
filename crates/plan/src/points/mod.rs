//! Elements that are chosen one by one: index lists instead of regular sections.
//!
//! Problem. Unstructured codes reach their data through indirection arrays: any elements, in any order, some
//! of them several times. No loops describe them, and 10^8 of them must cost little more than a copy.
//!
//! Idea. [`Index`] is what is asked for: lists along some axes of the array, and regular ranges along the
//! others. [`Points`] is what a plan is made of: for each point its address in the file (or its chunk and the
//! address there) and its address in the caller's array, perhaps ordered by *windows*: stretches of the file
//! of a power of two, or chunks. Within a window points keep the order of the caller, so that of several
//! values for one element the last one wins, and no full sort is needed: a window is read as a whole, or the pages of
//! it that are wanted, and its points are copied out of a cache.
//!
//! | file      | question it answers                                    |
//! |-----------|--------------------------------------------------------|
//! | `index`   | which elements, and is each of them inside the array?  |
//! | `grid`    | which number has the chunk of a point?                 |
//! | `order`   | in which window does each point lie?                   |
//! | `extents` | which parts of the file do points of a window touch?   |
//! | `reach`   | which way to their bytes?                              |
//! | `strided` | rounds of points in a strided array                    |
//!
//! Source: No and Choudhary, *Techniques to provide run-time support for solving irregular problems*
//! (reordered indirection array, section 3.1.1); HDF5 calls this a point selection, MPI an indexed type.

mod extents;
mod grid;
mod index;
mod order;
pub(crate) mod reach;
pub(crate) mod strided;


use alloc::vec::Vec;
use core::ops::Range;

pub use grid::Grid;
pub use index::{Index, Lists};
pub(crate) use index::Padded;

/// Addresses of points in one of the places of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// At regular distances.
    Row {
        /// Address of the first point.
        first: i64,
        /// Bytes from one point to the next.
        stride: i64,
    },
    /// Anywhere: bytes from the first element of the place.
    List(Vec<i64>),
}

impl Addresses {
    /// The address of point `k`.
    pub fn of(&self, k: usize) -> i64 {
        match self {
            Addresses::Row { first, stride } => first + k as i64 * stride,
            Addresses::List(list) => list[k],
        }
    }

    /// Those of some points.
    pub(crate) fn part(&self, range: Range<usize>) -> Addresses {
        match self {
            Addresses::Row { stride, .. } => {
                Addresses::Row { first: self.of(range.start), stride: *stride }
            }
            Addresses::List(list) => Addresses::List(list[range].to_vec()),
        }
    }

    /// As a list of so many.
    fn listed(&self, number: usize) -> Vec<i64> {
        match self {
            Addresses::Row { .. } => (0..number).map(|k| self.of(k)).collect(),
            Addresses::List(list) => list.clone(),
        }
    }

    /// Lowest and highest address of so many points, at least one.
    pub fn span(&self, number: usize) -> (i64, i64) {
        match self {
            Addresses::Row { .. } => {
                let (first, last) = (self.of(0), self.of(number - 1));
                (first.min(last), first.max(last))
            }
            Addresses::List(list) => list
                .iter()
                .fold((i64::MAX, i64::MIN), |(low, high), a| (low.min(*a), high.max(*a))),
        }
    }
}

/// Points of one access, with their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Points {
    /// Strided layouts: bytes from element `[0, ..., 0]`, through the concatenation of the parts, each of
    /// which begins at a multiple of a window (`Padded`). Chunked ones: number of the chunk along the indexed axes, shifted by `cell_bits`, plus bytes inside a chunk.
    file: Vec<i64>,
    /// In the caller's array. No two points have the same address.
    user: Addresses,
    /// A window has `1 << bits` of these addresses.
    bits: u32,
    /// A chunk has `1 << cell_bits` of them; as many as there are in strided layouts.
    cell_bits: u32,
    /// How chunks are counted.
    grid: Grid,
    /// The windows that hold points, ascending; none before the points are ordered.
    windows: Vec<Window>,
}

/// The points of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its number: addresses shifted by the bits of a window.
    pub number: i64,
    /// Its first point.
    pub first: usize,
    /// One past its last point.
    pub end: usize,
    /// Different addresses among them, if somebody asked.
    pub distinct: usize,
}

impl Points {
    /// Number of points.
    pub fn len(&self) -> usize {
        self.file.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// The windows that hold points, ascending; none before [`Points::order`].
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// How chunks are counted.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of the chunk in which a window lies.
    pub fn cell(&self, window: &Window) -> i64 {
        window.number >> (self.cell_bits - self.bits)
    }

    /// The address of a point: see `file`.
    pub fn address(&self, k: usize) -> i64 {
        self.file[k]
    }

    /// Address of a point inside its chunk, or in the file.
    pub(crate) fn inside(&self, k: usize) -> i64 {
        self.file[k] & ((1_i64 << self.cell_bits) - 1)
    }

    /// Addresses of some points in the caller's array.
    pub(crate) fn user(&self, range: Range<usize>) -> Addresses {
        self.user.part(range)
    }

    /// Bytes that the lists of points take, here and in the plan.
    pub fn bytes(&self) -> usize {
        let user = match &self.user {
            Addresses::Row { .. } => 0,
            Addresses::List(list) => list.capacity(),
        };
        8 * (self.file.capacity() + user)
            + self.windows.capacity() * core::mem::size_of::<Window>()
    }
}

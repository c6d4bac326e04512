//! Elements that are chosen one by one: index lists instead of regular sections.
//!
//! Problem. Unstructured codes reach their data through indirection arrays: any elements, in any order, some
//! of them several times. No loops describe them, and 10^8 of them must cost little more than a copy.
//!
//! Idea. [`Index`] is what is asked for: lists along some axes of the array, and regular ranges along the
//! others. [`Points`] is what a plan is made of: for each point its address in the file (or its chunk and the
//! address there) and its address in the caller's array; of points that follow each other on both sides, those of the
//! first one and their number; perhaps ordered by *windows*: stretches of the file
//! of a power of two, or chunks. Within a window points keep the order of the caller, so that of several
//! values for one element the last one wins, and no full sort is needed: a window is read as a whole, or the pages of
//! it that are wanted, and its points are copied out of a cache.
//!
//! | file      | question it answers                                    |
//! |-----------|--------------------------------------------------------|
//! | `list`    | where does each of them lie, in the file and in memory? |
//! | `index`   | which elements, and is each of them inside the array?  |
//! | `place`   | which addresses do they have, and which are runs?      |
//! | `grid`    | which number has the chunk of a point?                 |
//! | `order`   | in which window does each point lie?                   |
//! | `extents` | which parts of the file do points of a window touch?   |
//! | `last`    | which of several values for an element is written?     |
//! | [`divide`] | which owner has which of them, in which round?        |
//! | [`choice`] | each rank by itself, or through owners?               |
//! | `reach`   | which way to their bytes?                              |
//! | `strided` | rounds of points in a strided array                    |
//!
//! Source: No and Choudhary, *Techniques to provide run-time support for solving irregular problems*
//! (reordered indirection array, section 3.1.1); HDF5 calls this a point selection, MPI an indexed type.

pub mod choice;
pub mod divide;
mod extents;
mod grid;
mod index;
mod last;
mod list;
mod order;
mod place;
pub(crate) mod reach;
pub(crate) mod strided;

pub use grid::Grid;
pub use index::{Index, Lists};
pub use list::{Addresses, Chosen, Counts, Points, Shared, Window};

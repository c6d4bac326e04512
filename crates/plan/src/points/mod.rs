//! Elements that are chosen one by one: index lists instead of regular sections.
//!
//! Problem: unstructured codes access their data through indirection arrays: any elements, in any
//! order, some of them several times. Loops cannot describe them, and 10^8 of them must cost little
//! more than a copy.
//!
//! Approach: an [`Index`] is a request: lists along some axes of the array, and regular ranges
//! along the others. [`Points`] are the input of a plan: for each point its address in the file (or
//! its chunk and the address there) and its address in the caller's array; for points that are
//! adjacent on both sides, the addresses of the first one and their number. Points may be ordered
//! by *windows*: intervals of the file of a power of two, or chunks. Within a window points stay in
//! the order of the caller, so that the last of several values for one element remains, and no full
//! sort is needed: a window is read as a whole, or only the pages with points, and its points are
//! copied out of a cache.
//!
//! | file      | contents                                               |
//! |-----------|--------------------------------------------------------|
//! | `list`    | addresses of points, in the file and in memory         |
//! | `index`   | index lists of a request, and their checks             |
//! | `place`   | computation of addresses, detection of runs            |
//! | `grid`    | numbers of chunks                                      |
//! | `order`   | order of points by windows                             |
//! | `extents` | parts of the file that points of a window touch        |
//! | `last`    | the last of several values for an element              |
//! | [`divide`] | owner and round of each element                       |
//! | [`choice`] | choice between independent accesses and owners        |
//! | `reach`   | ways to access the bytes                               |
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

//! Distributions: the owner of each index.
//!
//! Problem: an array is divided over the ranks of a grid, axis by axis, in the ways of HPF: BLOCK,
//! CYCLIC, block-cyclic, blocks of any length, or undivided; aligned with a template by an offset
//! and a stride of any sign; with copies along axes of the grid that no axis of the array uses.
//! Readers, writers and messages need the same information: the owner of an element, its place in
//! the owner's memory, and the regular sections of a rank.
//!
//! Approach: axes are independent: the elements of a rank are the product of the indices of its
//! coordinates ([`axis`]). The functions of one axis use arithmetic, whatever its length.
//!
//! Invariants: every element has exactly one owner, `owner`. Along a grid axis that the array does
//! not use (replication) all ranks have the element, and the lowest of them is the owner. A rank
//! stores its elements in a dense array, in ascending order along each axis. The `pieces` of all
//! owners divide the array.
//!
//! Koelbel et al., *The High Performance Fortran Handbook* (1994), chapters 4 and 5.
//!
//! | file | contents |
//! |---|---|
//! | [`grid`]     | coordinates of ranks |
//! | [`axis`]     | one axis: owners of indices, ranges of coordinates |
//! | [`exchange`] | messages for a change of distribution or a combination of ghosts |
//! | [`patches`]  | the part of a section that a rank has |
//! | [`locate`]   | the ranks that have a section, and the places there |
//! | [`traffic`]  | messages of each round, and the operation on received elements |

mod axis;
mod exchange;
mod grid;
mod locate;
mod owners;
mod patches;
mod pattern;
mod traffic;

pub use axis::{Ghost, Strip};
pub use exchange::{accumulate_plan, exchange_plan, Parts};
pub use grid::Grid;
pub use locate::Located;
pub use owners::{Distribution, Mapping, Piece};
pub use patches::Patch;
pub use pattern::{Align, Pattern};
pub use traffic::{Message, Operation, Traffic};

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

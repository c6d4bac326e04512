//! Distributions: which rank owns which index.
//!
//! Problem. An array is divided over the ranks of a grid, axis by axis, in the ways of HPF: BLOCK,
//! CYCLIC, block-cyclic, blocks of any length, not at all; aligned with a template by an offset and a
//! stride of any sign; with copies along axes of the grid that no axis of the array uses. Readers,
//! writers and messages all ask the same: whose is this element, where does it lie there, and which
//! regular sections does a rank have?
//!
//! Idea. Axes do not know of each other: what a rank has is the product of what its coordinates have
//! ([`axis`]). One axis answers by arithmetic, whatever its length.
//!
//! Invariants. Every element has exactly one owner, `owner`. Along a grid axis that the array does
//! not use (replication) all ranks have the element, and the owner is the lowest of them. A rank
//! stores what it has in a dense array, in ascending order along each axis. `pieces` of all owners
//! divide the array.
//!
//! Koelbel et al., *The High Performance Fortran Handbook* (1994), chapters 4 and 5.
//!
//! | file | question |
//! |---|---|
//! | [`grid`]     | which rank has which coordinates? |
//! | [`axis`]     | one axis: which coordinate owns an index, which ranges has a coordinate? |
//! | [`exchange`] | who sends what to whom when a distribution changes, or ghosts are combined? |
//! | [`patches`]  | what does a rank have of a section? |
//! | [`locate`]   | which ranks have a section, and where? |
//! | [`traffic`]  | what goes in which round, and what is done with it where it comes? |

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

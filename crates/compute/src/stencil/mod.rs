//! Stencils: weighted sums of neighbours, many steps of them in one pass, and medians of windows.
//!
//! | file | contents |
//! |---|---|
//! | `boundary.rs` | elements beyond the ends of an axis |
//! | `sums.rs`     | weighted sums along a run of elements |
//! | `sweep.rs`    | the geometry of a pass over an array that makes many time steps |
//! | `tile.rs`     | the work of one lane: one tile, one time step after another |
//! | `network.rs`  | networks of comparators |
//! | `rank.rs`     | the element of a given rank in a window: medians, minima, maxima |

mod boundary;
mod network;
mod rank;
mod run;
mod sums;
mod sweep;
#[cfg(test)]
mod tests;
mod tile;

pub use boundary::Boundary;
pub use rank::{Ordered, RankFilter, Shaped};
pub use sums::Real;
pub use sweep::{Problem, Refused, Sweep, Tap};

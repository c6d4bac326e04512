//! Kernels on blocks that are in memory: NumPy arrays to slices.
//!
//! | file | translates |
//! |---|---|
//! | `merge.rs`   | merging sorted runs |
//! | `nonzero.rs` | places of masks |
//! | `reduce.rs`  | reductions |
//! | `stencil.rs` | stencils |

pub mod merge;
pub mod nonzero;
pub mod reduce;
pub mod stencil;

//! Kernels on blocks in memory: from NumPy arrays to slices.
//!
//! | file | translates |
//! |---|---|
//! | `masks.rs`   | places of masks, and what they choose of a block |
//! | `merge.rs`   | merging sorted runs |
//! | `reduce.rs`  | reductions |
//! | `regions.rs` | rows in regions of memory |
//! | `stencil.rs` | stencils |

pub mod masks;
pub mod merge;
pub mod reduce;
pub mod regions;
pub mod stencil;

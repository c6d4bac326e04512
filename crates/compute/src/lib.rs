//! Kernels: what steps of a schedule compute with blocks that are in memory.
//!
//! NumPy, SciPy and BLAS compute most of it. Here is what they do not do at the speed of memory, or not
//! with the same bits for every way to cut an array.
//!
//! Invariants. A kernel reads and changes the slices it is given, and nothing else; it does no input and
//! no output. Its result does not depend on the number of threads, nor on the instructions that the
//! processor has.

#![deny(unsafe_code)]

pub mod masked;
pub mod merge;
pub mod nonzero;
pub mod order;
pub mod reduce;
pub mod regions;
pub mod simd;
pub mod sort;
pub mod stencil;

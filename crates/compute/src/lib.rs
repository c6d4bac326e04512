//! Kernels: computations of a schedule's steps on blocks in memory.
//!
//! NumPy, SciPy and BLAS do most of the computation. This crate has the kernels that they do not
//! run at the speed of memory, or whose bits would depend on the cuts of an array.
//!
//! Invariants: a kernel reads and changes only its argument slices, and does no input or output.
//! Its result depends neither on the number of threads nor on the processor's instruction set.

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

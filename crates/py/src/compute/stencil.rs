//! Stencils.

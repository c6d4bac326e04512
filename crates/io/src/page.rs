//! Sizes of pages.

/// Size of a page; the alignment of every buffer.
pub const PAGE: usize = 4096;

/// A huge page: the alignment of mappings, and the unit in which their resident pages are counted.
pub const GRANULE: usize = 2 << 20;

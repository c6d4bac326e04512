//! What is asked of the planner.

use crate::layout::{ChunkTable, Layout};
use crate::plan::Direction;
use crate::section::Section;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Where the array lives.
    pub layout: &'a Layout,
    /// Chunked layouts: the part of the chunk table that the section touches.
    pub table: Option<&'a ChunkTable>,
    /// Which elements.
    pub section: &'a Section,
    /// Byte strides of the caller's array, one per axis of the section, any sign. Zero repeats an
    /// element, in writes only.
    pub user_stride: &'a [i64],
    /// Read or write.
    pub direction: Direction,
}

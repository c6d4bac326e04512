//! The input of the planner: one access to an array.

use crate::layout::{ChunkTable, Layout};
use crate::plan::Direction;
use crate::section::Section;

/// One access to plan.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Layout of the array.
    pub layout: &'a Layout,
    /// Chunked layouts: the part of the chunk table that the section touches.
    pub table: Option<&'a ChunkTable>,
    /// The requested elements.
    pub section: &'a Section,
    /// Byte strides of the caller's array, one per axis of the section, any sign.
    ///
    /// A stride of zero repeats an element, in writes only.
    pub user_stride: &'a [i64],
    /// Direction of the access.
    pub direction: Direction,
}

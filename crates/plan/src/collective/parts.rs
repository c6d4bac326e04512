//! Parts: what one owner has of an array, as numbers.

/// A stretch of units of one region that one rank owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Number of the array.
    pub array: u32,
    /// Number of its region.
    pub region: u32,
    /// First unit.
    pub low: i64,
    /// One past the last.
    pub high: i64,
}

/// What one share of an array has of a block-cyclic assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CyclicPart {
    pub array: u32,
    /// Number of the share.
    pub share: u32,
}

/// Tiles of an owner that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Span(Span),
    CyclicPart(CyclicPart),
}

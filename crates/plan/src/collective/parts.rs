//! Parts: the tiles of an array that one owner has, as numbers.

/// An interval of units of one region that one rank owns.
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

/// The part of one share in a block-cyclic assignment of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CyclicPart {
    pub array: u32,
    /// Number of the share.
    pub share: u32,
}

/// Consecutive tiles of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Span(Span),
    CyclicPart(CyclicPart),
}

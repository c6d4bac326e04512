//! Pieces: nests cut into rounds, and the way to their bytes.

use crate::cut::Cut;
use crate::emit::{self, Edges, Gather, Means};
use crate::nest::Nest;
use crate::plan::Round;

/// The way to the bytes of a nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Straight {
        /// Boxes of equal shape begin at the same place in their pages.
        paged: bool,
    },
    Mapped,
    Gather(Gather),
    /// The parts of runs that a gather bypassing the page cache does not write.
    Sides(Gather),
}

impl Way {
    /// Adds the steps of one box to a round.
    ///
    /// Returns the number of slot bytes that they use from `slot` on.
    pub fn emit(self, b: &Nest, means: Means, slot: i64, round: &mut Round) -> i64 {
        match self {
            Way::Straight { paged } => emit::straight(b, paged, means, round),
            Way::Mapped => emit::mapped(b, means, round),
            Way::Gather(how) => return emit::gather(b, how, means, slot, round),
            Way::Sides(how) => return emit::sides(b, how, means, slot, round),
        }
        0
    }
}

/// Data that a round reads so that it is in the page cache when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Extents including their small holes, as a gather reads them.
    Pages(Gather),
    /// One byte at each end of each run.
    Edges(Edges),
}

impl Fetch {
    pub fn slot(self, b: &Nest) -> i64 {
        match self {
            Fetch::Pages(how) => emit::slot_used(b, how, 1),
            Fetch::Edges(edges) => edges.number(b),
        }
    }
}

/// A nest cut into rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub nest: Nest,
    pub cut: Cut,
    pub way: Way,
    pub fetch: Option<Fetch>,
    /// Largest slot of its rounds.
    pub slot: i64,
    /// Number of rounds that may be in flight within the budget.
    pub lanes: i64,
}

impl Piece {
    pub fn rounds(&self) -> u64 {
        self.cut.rounds(&self.nest)
    }

    /// Adds the steps of round `k` to a round.
    ///
    /// Returns the number of slot bytes that they use from `slot` on.
    pub fn emit(&self, k: u64, means: Means, slot: i64, round: &mut Round) -> i64 {
        let b = self.cut.round(&self.nest, k);
        let read = match self.fetch {
            Some(Fetch::Pages(how)) => emit::fetch_pages(&b, how, means, slot, round),
            Some(Fetch::Edges(edges)) => emit::fetch_edges(&b, edges, slot, round),
            None => 0,
        };
        // The data read is not used, so the same slot receives the data to write.
        read.max(self.way.emit(&b, means, slot, round))
    }

    /// Returns whether the piece reads, changes and writes back.
    pub fn patches(&self) -> bool {
        matches!(self.way, Way::Gather(Gather { patch: true, .. }))
    }
}

//! Whether points of chunks are read by calls or out of mappings.
//!
//! Problem. Chunks in files of their own are mapped for one read: that takes as long as dozens of calls. Idea. The
//! pages that hold points are counted exactly, in some of the chunks, and both ways get a price.

use super::{Cells, Listed};
use crate::plan::{Direction, Method};
use crate::points::reach::Reach;

/// Chunks of which is counted how their points are read best.
const WEIGHED: usize = 16;

impl Cells {
    /// Whether points of chunks are read faster by calls than out of mappings that are made for this read alone, as
    /// far as some of the chunks tell.
    pub(super) fn prefers_calls(&self, number: usize, reach: Option<(Reach, Method)>) -> bool {
        let terms = &self.terms;
        let anew = terms.faults.is_some_and(|faults| faults.chunks > 0);
        let (Some((mapped, Method::Mapped)), true) = (reach, anew) else { return false };
        if self.means.direction == Direction::Write || terms.method.is_some() {
            return false;
        }
        let (calls, _) = mapped.by_calls(terms);
        let (mut by_calls, mut by_mapping) = (0_i64, 0_i64);
        for k in (0..number).step_by(number.div_ceil(WEIGHED).max(1)) {
            let (Some(stored), Some(window)) = (self.stored[k], self.window(k)) else { continue };
            let nest = self.nest(&self.cell(k), 0, 0);
            let listed = Listed { cell: nest, window, stored, slot: 0 };
            let Some(spot) = self.spot(&listed) else { continue };
            let runs = window.first..window.end;
            by_calls = by_calls.saturating_add(calls.price(&spot, runs.clone(), terms));
            by_mapping = by_mapping.saturating_add(mapped.price(&spot, runs, terms));
        }
        by_calls < by_mapping
    }
}

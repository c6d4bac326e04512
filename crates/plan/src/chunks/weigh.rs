//! Choice between calls and mappings for reading points of chunks.
//!
//! Problem: chunks in separate files are mapped for a single read, which takes as long as dozens of
//! calls. Approach: the pages that contain points are counted exactly for some of the chunks, and
//! the times of both methods are estimated from these counts.

use super::{Cells, Listed};
use crate::plan::{Direction, Method};
use crate::points::reach::Reach;

/// Number of chunks for which the pages are counted.
const WEIGHED: usize = 16;

impl Cells {
    /// Returns whether calls read points of chunks faster than mappings made for this read alone.
    ///
    /// The estimate uses a sample of the chunks.
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

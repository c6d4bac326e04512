//! Regular sections: which elements of an array are meant.

use crate::error::PlanError;

/// One axis of a [`Section`]: `start, start+step, ...`, `count` indices in all.
///
/// Canonical: an empty range is `0, 0, 1`; a range of one index has step 1. Equal sets of indices
/// are therefore equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// First index.
    pub start: i64,
    /// Number of indices.
    pub count: i64,
    /// Distance of neighbours, at least 1.
    pub step: i64,
}

/// A regular section `(l:u:s, ...)`: the product of one [`Range`] per axis. Zero axes: one element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Section {
    ranges: Vec<Range>,
}

impl Range {
    /// A canonical range, or an error when it is not one (negative, step < 1, overflow).
    pub fn new(start: i64, count: i64, step: i64) -> Result<Range, PlanError> {
        let bad = |why| PlanError::BadSection { what: format!("{start}+{count}*{step}"), why };
        if start < 0 || count < 0 {
            return Err(bad("start and count must not be negative"));
        }
        if step < 1 {
            return Err(bad("step must be at least 1"));
        }
        if count == 0 {
            return Ok(Range { start: 0, count: 0, step: 1 });
        }
        if count == 1 {
            return Ok(Range { start, count, step: 1 });
        }
        (count - 1)
            .checked_mul(step)
            .and_then(|span| span.checked_add(start))
            .filter(|last| *last < i64::MAX)
            .ok_or_else(|| bad("the last index does not fit in 63 bits"))?;
        Ok(Range { start, count, step })
    }

    /// One past the last index; `start` when empty.
    pub fn stop(&self) -> i64 {
        if self.count == 0 {
            self.start
        } else {
            self.start + (self.count - 1) * self.step + 1
        }
    }
}

impl Section {
    /// A section from its ranges.
    pub fn new(ranges: Vec<Range>) -> Section {
        Section { ranges }
    }

    /// The whole of an array of this shape.
    pub fn whole(shape: &[i64]) -> Result<Section, PlanError> {
        let ranges = shape.iter().map(|n| Range::new(0, *n, 1)).collect::<Result<_, _>>()?;
        Ok(Section { ranges })
    }

    /// The ranges, one per axis.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Number of axes.
    pub fn ndim(&self) -> usize {
        self.ranges.len()
    }
}

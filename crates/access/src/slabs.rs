//! Cutting a section into slabs of bounded size.
//!
//! Used where a whole section at once would break the memory promise: a value that must be cast
//! before it is written. Slabs are disjoint and cover the section.

use outcore_plan::{PlanError, Range, Section};

/// A part of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slab {
    /// First index within the section's own ranges, per axis.
    pub lo: Vec<i64>,
    /// Indices per axis.
    pub count: Vec<i64>,
    /// The elements, in the array.
    pub section: Section,
}

/// The slabs of a section, one at a time, in the order of the file.
pub struct Slabs {
    ranges: Vec<Range>,
    /// Axes, the fastest first.
    order: Vec<usize>,
    thick: Vec<i64>,
    /// First index and count of the current piece, per axis; `None` at the end.
    now: Option<Vec<(i64, i64)>>,
}

/// Cuts `section` into slabs of at most `limit` elements (or of one element, if that is more).
pub fn cut(section: &Section, fortran: bool, limit: i64) -> Slabs {
    let ranges = section.ranges().to_vec();
    let order: Vec<usize> =
        if fortran { (0..ranges.len()).collect() } else { (0..ranges.len()).rev().collect() };
    let thick = thickness(&ranges, &order, limit.max(1));
    let mut slabs = Slabs { ranges, order, thick, now: None };
    if slabs.ranges.iter().all(|range| range.count > 0) {
        slabs.now = Some((0..slabs.ranges.len()).map(|d| slabs.piece(d, 0)).collect());
    }
    slabs
}

impl Slabs {
    /// The piece of one axis that begins at index `at` of its range.
    fn piece(&self, d: usize, at: i64) -> (i64, i64) {
        (at, self.thick[d].min(self.ranges[d].count - at))
    }

    fn slab(&self, pieces: &[(i64, i64)]) -> Result<Slab, PlanError> {
        let section = self
            .ranges
            .iter()
            .zip(pieces)
            .map(|(r, (lo, n))| Range::new(r.start + lo * r.step, *n, r.step))
            .collect::<Result<_, _>>()?;
        let (lo, count) = pieces.iter().copied().unzip();
        Ok(Slab { lo, count, section: Section::new(section) })
    }
}

impl Iterator for Slabs {
    type Item = Result<Slab, PlanError>;

    fn next(&mut self) -> Option<Result<Slab, PlanError>> {
        let pieces = self.now.take()?;
        let ends = |d: usize| pieces[d].0 + pieces[d].1;
        // The fastest axis moves first: slabs follow each other in the file.
        let moves = self.order.iter().position(|d| ends(*d) < self.ranges[*d].count);
        if let Some(k) = moves {
            let mut next = pieces.clone();
            next[self.order[k]] = self.piece(self.order[k], ends(self.order[k]));
            for d in &self.order[..k] {
                next[*d] = self.piece(*d, 0);
            }
            self.now = Some(next);
        }
        Some(self.slab(&pieces))
    }
}

/// Indices per axis of a full slab: whole axes, the fast ones first.
fn thickness(ranges: &[Range], order: &[usize], limit: i64) -> Vec<i64> {
    let mut thick = vec![1; ranges.len()];
    let mut left = limit;
    for d in order {
        thick[*d] = ranges[*d].count.clamp(1, left);
        left /= thick[*d];
    }
    thick
}

#[cfg(test)]
mod tests;

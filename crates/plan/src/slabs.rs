//! Slabs: pieces of a section below a limit.
//!
//! Problem: data that is cast, packed, resolved or loaded in one step must fit memory, but a
//! section has any size. Pieces should be runs of the file, and should consist of whole chunks,
//! shards or pages if these are processed as a whole.
//!
//! Approach: an axis of a section is a row of cells: its indices, or the blocks (chunks, shards,
//! pages) that contain them. Along the fastest axis, a slab takes all cells if the limit allows,
//! and so on outwards; the first axis that does not fit is cut into as many cells as the limit
//! allows, and the axes outside it are walked. Cells between two indices of a long step are
//! skipped.
//!
//! Invariants: slabs are disjoint, cover the section, and follow each other in the order of the
//! axes. A slab spans at most `limit` cells (one, if the limit is less). Borders lie between cells.
//!
//! Memory: that of one slab, whatever their number.

use alloc::vec;
use alloc::vec::Vec;

use crate::section::{Range, Section};

/// A piece of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slab {
    /// The elements of the slab, as a section of the array.
    pub section: Section,
    /// Index within the section at which the slab begins, per axis.
    pub at: Vec<i64>,
}

/// One axis of the section.
#[derive(Debug, Clone)]
struct Axis {
    range: Range,
    /// Number of array indices of a cell; None: each member of the range is a cell.
    block: Option<i64>,
    /// Number of cells of a full slab.
    thick: i64,
}

/// The slabs of a section, one at a time.
#[derive(Debug, Clone)]
pub struct Slabs {
    axes: Vec<Axis>,
    /// Numbers of the axes, the fastest first.
    order: Vec<usize>,
    /// Start of the next slab: member of the range, per axis.
    next: Option<Vec<i64>>,
}

/// Number of cells per axis of a full slab of at most `limit` cells.
///
/// Whole axes are taken in the order of `order`.
pub fn thickness(cells: &[i64], order: &[usize], limit: i64) -> Vec<i64> {
    let (mut thick, mut left) = (vec![1; cells.len()], limit.max(1));
    for &d in order {
        if let (Some(most), Some(one)) = (cells.get(d), thick.get_mut(d)) {
            *one = (*most).clamp(1, left);
            left /= *one;
        }
    }
    thick
}

impl Slabs {
    /// Slabs of at most `limit` elements. `order` lists the axes, the fastest first.
    pub fn of_elements(section: &Section, order: Vec<usize>, limit: i64) -> Slabs {
        Slabs::new(section, order, limit, |_| None)
    }

    /// Slabs with bounding boxes of at most `limit` blocks, without cutting any block.
    ///
    /// Block `k` of an axis has its indices `k * block..(k + 1) * block`.
    pub fn of_blocks(section: &Section, block: &[i64], order: Vec<usize>, limit: i64) -> Slabs {
        Slabs::new(section, order, limit, |d| block.get(d).copied())
    }

    fn new(
        section: &Section,
        order: Vec<usize>,
        limit: i64,
        block: impl Fn(usize) -> Option<i64>,
    ) -> Slabs {
        let axis = |(d, range): (usize, &Range)| Axis {
            range: *range,
            block: block(d).map(|n| n.max(1)),
            thick: 1,
        };
        let mut axes: Vec<Axis> = section.ranges().iter().enumerate().map(axis).collect();
        let cells: Vec<i64> = axes.iter().map(Axis::cells).collect();
        let thick = thickness(&cells, &order, limit);
        axes.iter_mut().zip(thick).for_each(|(axis, thick)| axis.thick = thick);
        let next = (!section.is_empty()).then(|| vec![0; axes.len()]);
        Slabs { axes, order, next }
    }
}

impl Axis {
    /// Number of cells from the first index to the last one.
    fn cells(&self) -> i64 {
        match self.block {
            Some(block) if self.range.count > 0 => {
                (self.range.stop() - 1) / block - self.range.start / block + 1
            }
            _ => self.range.count,
        }
    }

    /// One past the last member of the slab that begins with member `first`.
    fn end(&self, first: i64) -> i64 {
        match self.block {
            Some(block) => {
                let last = self.range.index(first) / block + self.thick;
                self.range.members(0, last.saturating_mul(block)).1
            }
            None => first.saturating_add(self.thick).min(self.range.count),
        }
    }
}

impl Iterator for Slabs {
    type Item = Slab;

    fn next(&mut self) -> Option<Slab> {
        let at = self.next.take()?;
        let ends: Vec<i64> = self.axes.iter().zip(&at).map(|(axis, k)| axis.end(*k)).collect();
        // The fastest axis moves first, so slabs follow each other in the file.
        let moves = self.order.iter().position(|d| ends[*d] < self.axes[*d].range.count);
        self.next = moves.map(|k| {
            let mut next = at.clone();
            next[self.order[k]] = ends[self.order[k]];
            self.order[..k].iter().for_each(|d| next[*d] = 0);
            next
        });
        let pieces = self.axes.iter().zip(at.iter().zip(&ends));
        let ranges = pieces.map(|(axis, (first, end))| axis.range.part(*first, end - first));
        Some(Slab { section: Section::new(ranges.collect()), at })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn section(ranges: &[(i64, i64, i64)]) -> Section {
        let range = |&(start, count, step)| Range::new(start, count, step).unwrap();
        Section::new(ranges.iter().map(range).collect())
    }

    /// Number of blocks along an axis from a range's first index to its last.
    fn spanned(range: &Range, block: i64) -> i64 {
        (0..range.count).map(|k| range.index(k) / block).max().unwrap()
            - (0..range.count).map(|k| range.index(k) / block).min().unwrap()
            + 1
    }

    /// Checks the invariants of the module, element by element.
    fn check(whole: &Section, order: &[usize], limit: i64, block: Option<&[i64]>) {
        let limit_of = limit.max(1);
        let slabs = match block {
            Some(block) => Slabs::of_blocks(whole, block, order.to_vec(), limit),
            None => Slabs::of_elements(whole, order.to_vec(), limit),
        };
        let (mut seen, mut before) = (BTreeSet::new(), None);
        for slab in slabs {
            let ranges = slab.section.ranges();
            let cells: i64 = match block {
                Some(block) => ranges.iter().zip(block).map(|(r, n)| spanned(r, *n)).product(),
                None => slab.section.count().unwrap(),
            };
            assert!(cells <= limit_of, "{cells} cells in a slab of at most {limit_of}");
            assert!(!slab.section.is_empty());
            for (d, range) in ranges.iter().enumerate() {
                assert_eq!(whole.ranges()[d].index(slab.at[d]), range.start);
                // A block in this slab must not reach outside the slab along this axis.
                let Some(n) = block.map(|block| block[d]) else { continue };
                let inside: BTreeSet<i64> = (0..range.count).map(|k| range.index(k)).collect();
                let all = (0..whole.ranges()[d].count).map(|k| whole.ranges()[d].index(k));
                let cut = |index: &i64| inside.iter().any(|one| one / n == index / n);
                assert!(all.filter(cut).all(|index| inside.contains(&index)), "a block is cut");
            }
            // Coordinates from the slowest axis to the fastest.
            let place: Vec<i64> = order.iter().rev().map(|d| slab.at[*d]).collect();
            assert!(before < Some(place.clone()), "slabs are not in order");
            before = Some(place);
            for index in slab.section.indices() {
                assert!(seen.insert(index), "an element is in two slabs");
            }
        }
        assert_eq!(whole.indices().collect::<BTreeSet<_>>(), seen);
    }

    fn axis() -> impl Strategy<Value = ((i64, i64, i64), i64, u32)> {
        ((0..9_i64, 0..6_i64, 1..7_i64), 1..7_i64, any::<u32>())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn slabs_are_the_section_under_the_limit(
            axes in prop::collection::vec(axis(), 0..4),
            limit in 0..40_i64,
            blocks in any::<bool>(),
        ) {
            let ranges: Vec<_> = axes.iter().map(|axis| axis.0).collect();
            let block: Vec<i64> = axes.iter().map(|axis| axis.1).collect();
            let mut order: Vec<usize> = (0..axes.len()).collect();
            order.sort_by_key(|d| axes[*d].2);
            check(&section(&ranges), &order, limit, blocks.then_some(&block));
        }

        #[test]
        fn a_slab_is_as_large_as_the_limit_allows(
            cells in prop::collection::vec(1..9_i64, 1..4),
            limit in 1..60_i64,
        ) {
            let order: Vec<usize> = (0..cells.len()).rev().collect();
            let thick = thickness(&cells, &order, limit);
            let all: i64 = thick.iter().product();
            prop_assert!(all <= limit);
            // One more cell along the axis that is cut would exceed the limit. Axes inside it are
            // whole, and a slab has one cell along the axes outside it.
            if let Some(cut) = order.iter().position(|d| thick[*d] < cells[*d]) {
                let one = thick[order[cut]];
                prop_assert!(all / one * (one + 1) > limit);
                prop_assert!(order[cut + 1..].iter().all(|d| thick[*d] == 1));
            }
        }
    }

    #[test]
    fn nothing_has_no_slabs_and_one_element_has_one() {
        assert_eq!(0, Slabs::of_elements(&section(&[(0, 3, 1), (0, 0, 1)]), vec![1, 0], 9).count());
        assert_eq!(1, Slabs::of_elements(&Section::new(vec![]), vec![], 0).count());
    }

    #[test]
    fn blocks_between_two_indices_are_leapt_over() {
        // Indices 0, 1000, ..., 9000, in blocks of 10: each slab has two indices and touches 101
        // blocks.
        let whole = section(&[(0, 10, 1000)]);
        assert_eq!(5, Slabs::of_blocks(&whole, &[10], vec![0], 101).count());
        assert_eq!(10, Slabs::of_blocks(&whole, &[10], vec![0], 100).count());
    }

    #[test]
    fn large_sections_do_not_wrap() {
        let end = i64::MAX - 1;
        let whole = section(&[(0, end, 1), (5, 2, end - 6)]);
        let first = Slabs::of_blocks(&whole, &[end, end], vec![1, 0], i64::MAX).next().unwrap();
        assert_eq!(whole, first.section);
        let slab = Slabs::of_elements(&whole, vec![1, 0], end).next().unwrap();
        assert_eq!(vec![end / 2, 2], slab.section.shape());
        assert_eq!(vec![end, 1], thickness(&[end, end], &[0, 1], end));
    }
}

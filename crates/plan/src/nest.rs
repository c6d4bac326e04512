//! Nests of regular loops over file and memory, the geometry of all strided planners.
//!
//! Problem: a section of an array, whatever its order in the file, in memory and in the call, is a
//! set of `(file address, user address)` pairs. Approach: it is stored as loops, sorted so that the
//! file is walked forwards, with consecutive loops merged. Invariant: loops *nest* in the file,
//! `axes[d].file >= span of axes[d+1..]`, so that a range of an outer loop is a range of the file,
//! and two different ranges never interleave. The constructors of layouts ensure this.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::address::PAGE;
use crate::error::PlanError;
use crate::layout::Part;

/// One loop: `count` steps, `file` bytes apart in the file and `user` bytes apart in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axis {
    pub count: i64,
    pub file: i64,
    pub user: i64,
}

/// Loops around an element of `item` bytes, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nest {
    /// Number of the file.
    pub file: u32,
    /// Address of the first element in the file.
    pub base: i64,
    /// Address of that element in the caller's array.
    pub user: i64,
    pub item: i64,
    pub axes: Vec<Axis>,
}

impl Nest {
    /// Sorts the loops into file order and merges consecutive ones.
    ///
    /// Loops of one step are dropped. No loop may be empty.
    pub fn new(file: u32, base: i64, user: i64, item: i64, mut axes: Vec<Axis>) -> Nest {
        axes.retain(|a| a.count != 1);
        axes.sort_by_key(|a| core::cmp::Reverse(a.file));
        let mut kept = 0;
        for k in 0..axes.len() {
            let inner = axes[k];
            if kept > 0 {
                let outer = axes[kept - 1];
                let continues = |o: i64, i: i64| inner.count.checked_mul(i) == Some(o);
                if continues(outer.file, inner.file) && continues(outer.user, inner.user) {
                    axes[kept - 1] = Axis { count: outer.count * inner.count, ..inner };
                    continue;
                }
            }
            axes[kept] = inner;
            kept += 1;
        }
        axes.truncate(kept);
        Nest { file, base, user, item, axes }
    }

    /// Number of elements.
    pub fn elements(&self) -> i64 {
        self.axes.iter().map(|a| a.count).product()
    }

    /// Number of steps of the loops outside `level`.
    pub fn steps(&self, level: usize) -> i64 {
        self.axes[..level].iter().map(|a| a.count).product()
    }

    /// Returns whether borders between elements can coincide with borders of blocks.
    pub fn divides(&self, block: i64) -> bool {
        block % self.item == 0 && self.base % block % self.item == 0
    }

    /// The nest with other counts.
    pub fn block(&self, counts: &[i64]) -> Nest {
        let axes = self.axes.iter().zip(counts).map(|(a, n)| Axis { count: *n, ..*a }).collect();
        Nest { axes, ..*self }
    }

    /// The nest of the first element alone.
    pub fn one(&self) -> Nest {
        let axes = self.axes.iter().map(|a| Axis { count: 1, ..*a }).collect();
        Nest { axes, ..*self }
    }

    /// Number of requested bytes.
    pub fn bytes(&self) -> i64 {
        self.elements() * self.item
    }

    /// Bytes from the first to the last byte of the loops `level..`, holes included.
    pub fn extent(&self, level: usize) -> i64 {
        self.axes[level..].iter().map(|a| (a.count - 1) * a.file).sum::<i64>() + self.item
    }

    /// The outermost level whose extents have no hole of `gap` bytes or more between their pieces.
    pub fn level(&self, gap: i64) -> usize {
        let mut extent = self.item;
        let mut level = self.axes.len();
        for (d, a) in self.axes.iter().enumerate().rev() {
            if a.count > 1 {
                if a.file - extent >= gap.max(1) {
                    break;
                }
                extent += (a.count - 1) * a.file;
            }
            level = d;
        }
        level
    }

    /// The outermost level whose extents are contiguous both in the file and in memory.
    pub fn run_level(&self) -> usize {
        let mut run = self.item;
        let mut level = self.axes.len();
        for (d, a) in self.axes.iter().enumerate().rev() {
            if a.count > 1 {
                if a.file != run || a.user != run {
                    break;
                }
                run *= a.count;
            }
            level = d;
        }
        level
    }

    /// Returns whether memory is walked in another order than the file.
    pub fn transposed(&self) -> bool {
        let moving = |a: &&Axis| a.count > 1 && a.user != 0;
        let inner = self.axes.iter().rev().find(moving).map(|a| a.user.abs());
        let least = self.axes.iter().filter(moving).map(|a| a.user.abs()).min();
        inner != least
    }

    /// The same nest with the bytes of an element as its innermost loop.
    ///
    /// This nest can be cut anywhere.
    pub fn in_bytes(&self) -> Nest {
        let mut axes = self.axes.clone();
        axes.push(Axis { count: self.item, file: 1, user: 1 });
        Nest::new(self.file, self.base, self.user, 1, axes)
    }

    /// Cuts a nest over the concatenation of `parts` into nests that each lie in one part.
    ///
    /// The result has at most `2 * axes + 1` nests for each border inside the nest.
    pub fn over_parts(self, parts: &[Part]) -> Result<Vec<Nest>, PlanError> {
        let mut pieces = Vec::with_capacity(1);
        let mut todo = vec![self];
        let mut part = 0;
        let mut start = 0; // start of parts[part] in the concatenation
        while let Some(mut nest) = todo.pop() {
            let Some(p) = advance(parts, &mut part, &mut start, nest.base) else {
                return Err(PlanError::BadLayout(format!(
                    "an element at byte {} is past the end of the parts, {start}",
                    nest.base
                )));
            };
            let end = start + p.len;
            if nest.base + nest.extent(0) <= end {
                nest.base = nest.base - start + p.offset;
                nest.file = p.file;
                pieces.push(nest);
                continue;
            }
            let Some(outer) = nest.axes.first().copied() else {
                return Err(PlanError::BadLayout(format!(
                    "the element at byte {} crosses the border of two parts at byte {end}",
                    nest.base
                )));
            };
            let inner = nest.extent(1);
            let room = end - nest.base - inner;
            let below = if room < 0 { 0 } else { (room / outer.file + 1).min(outer.count) };
            // Later pieces are pushed first: `todo` is a stack.
            if below + 1 < outer.count {
                todo.push(nest.range(0, below + 1, outer.count - below - 1));
            }
            todo.push(nest.range(0, below, 1));
            if below > 0 {
                todo.push(nest.range(0, 0, below));
            }
        }
        Ok(pieces)
    }

    /// The two halves along the outermost loop; None if there is no loop.
    pub fn halves(&self) -> Option<[Nest; 2]> {
        let count = self.axes.first()?.count;
        let half = count / 2;
        (half > 0).then(|| [self.range(0, 0, half), self.range(0, half, count - half)])
    }

    /// Steps `first..first + count` of one loop; a single step drops the loop.
    fn range(&self, axis: usize, first: i64, count: i64) -> Nest {
        let mut nest = self.clone();
        let a = &mut nest.axes[axis];
        a.count = count;
        nest.base += first * a.file;
        nest.user += first * a.user;
        if count == 1 {
            nest.axes.remove(axis);
        }
        nest
    }
}

/// Advances to the part that contains byte `at` of the concatenation.
fn advance<'a>(parts: &'a [Part], part: &mut usize, start: &mut i64, at: i64) -> Option<&'a Part> {
    while let Some(p) = parts.get(*part) {
        if at < *start + p.len {
            return Some(p);
        }
        *start += p.len;
        *part += 1;
    }
    None
}

/// Returns whether all extents of a level begin on pages.
pub(crate) fn starts_page(nest: &Nest, level: usize, shift: i64) -> bool {
    (nest.base + shift) % PAGE == 0 && nest.axes[..level].iter().all(|a| a.file % PAGE == 0)
}

/// Returns whether all extents of a level end on pages.
pub(crate) fn ends_page(nest: &Nest, level: usize) -> bool {
    starts_page(nest, level, nest.extent(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_sorted_and_merged() {
        let axes = vec![
            Axis { count: 4, file: 8, user: 240 },
            Axis { count: 1, file: 1, user: 1 },
            Axis { count: 3, file: 320, user: 8 },
            Axis { count: 10, file: 32, user: 24 },
        ];
        let nest = Nest::new(0, 5, 7, 8, axes);
        // (3, 320, 8) and (10, 32, 24) are consecutive in the file, but not in memory.
        assert_eq!(vec![3, 10, 4], nest.axes.iter().map(|a| a.count).collect::<Vec<_>>());
        assert!(nest.transposed());
        let axes = vec![Axis { count: 4, file: 8, user: 8 }, Axis { count: 3, file: 32, user: 32 }];
        assert_eq!(vec![Axis { count: 12, file: 8, user: 8 }], Nest::new(0, 0, 0, 8, axes).axes);
    }

    #[test]
    fn levels_follow_the_gaps() {
        let axes =
            vec![Axis { count: 5, file: 1000, user: 40 }, Axis { count: 10, file: 8, user: 4 }];
        let nest = Nest::new(0, 0, 0, 4, axes);
        assert_eq!((2, 1, 0), (nest.level(0), nest.level(5), nest.level(925)));
        assert_eq!((4, 76, 4076), (nest.extent(2), nest.extent(1), nest.extent(0)));
    }

    #[test]
    fn pages_are_counted_once_a_run_or_once_a_page() {
        let rows = |number, file, len| {
            let axes =
                vec![Axis { count: number, file, user: 8 }, Axis { count: len, file: 8, user: 8 }];
            crate::choose::pages(&Nest::new(0, 0, 0, 8, axes))
        };
        // Thin columns: one page per row. Rows that share pages: one page per 4096 bytes. Long
        // runs: both.
        assert_eq!(
            (1003, 13, 39),
            (rows(1000, 32_768, 2), rows(100, 500, 10), rows(10, 65_536, 1536))
        );
    }

    #[test]
    fn borders_of_parts_cut_a_nest() {
        let axes = vec![Axis { count: 4, file: 40, user: 40 }, Axis { count: 5, file: 8, user: 8 }];
        let nest = Nest { file: 9, base: 0, user: 0, item: 8, axes };
        let part = |file, offset, len| Part { file, offset, len };
        let pieces = nest
            .over_parts(&[part(0, 100, 56), part(1, 0, 0), part(2, 7, 64), part(3, 0, 40)])
            .unwrap();
        assert_eq!(160, pieces.iter().map(Nest::bytes).sum::<i64>());
        let places: Vec<_> = pieces.iter().map(|p| (p.file, p.base, p.user)).collect();
        assert_eq!((0, 100, 0), places[0]);
        assert!(places.contains(&(2, 7, 56)) && places.contains(&(3, 0, 120)));
    }
}

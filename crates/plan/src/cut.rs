//! Cutting a nest into rounds: boxes of equal shape, found by arithmetic from the round's number.
//!
//! Problem: rounds must fit a buffer, be large enough to justify a request, and be small enough to
//! occupy several threads, for every shape. Approach: there is one block length per loop, and round
//! `k` is a digit per loop. Blocks grow from the innermost loop outwards, so that rounds are ranges
//! of the file. If memory is walked in another order, loops that are short in memory grow as well,
//! so that rounds are tiles. Invariant: the boxes of all rounds partition the nest.

use alloc::vec::Vec;

use crate::nest::Nest;

/// Block length per loop.
///
/// Borders of the innermost loop are shifted down by `phase` steps, so that they can coincide with
/// borders of blocks of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub block: Vec<i64>,
    pub phase: i64,
}

/// Equal blocks of one loop: `repeat` blocks of `len` steps, the first at step `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    pub start: i64,
    pub len: i64,
    pub repeat: i64,
}

impl Cut {
    /// A cut into one round.
    pub fn whole(nest: &Nest) -> Cut {
        Cut { block: nest.axes.iter().map(|a| a.count).collect(), phase: 0 }
    }

    fn phase_of(&self, axis: usize) -> i64 {
        if axis + 1 == self.block.len() {
            self.phase
        } else {
            0
        }
    }

    /// Number of blocks along one loop.
    fn blocks(&self, nest: &Nest, axis: usize) -> i64 {
        let (n, b) = (nest.axes[axis].count, self.block[axis]);
        let shifted = i128::from(n) + i128::from(self.phase_of(axis));
        i64::try_from((shifted - 1) / i128::from(b) + 1).unwrap_or(i64::MAX)
    }

    /// Number of rounds.
    pub fn rounds(&self, nest: &Nest) -> u64 {
        (0..nest.axes.len()).map(|d| self.blocks(nest, d) as u64).product()
    }

    /// The box of round `k`. Loops of one step are preserved, so that levels do not change.
    pub fn round(&self, nest: &Nest, mut k: u64) -> Nest {
        let mut box_ = nest.clone();
        for d in (0..nest.axes.len()).rev() {
            let blocks = self.blocks(nest, d) as u64;
            let digit = (k % blocks) as i64;
            k /= blocks;
            let (n, b, phase) = (nest.axes[d].count, self.block[d], self.phase_of(d));
            if b == n && phase == 0 {
                continue;
            }
            let first = if digit == 0 { 0 } else { digit * b - phase };
            let last = if n - first <= b { n } else { ((digit + 1) * b - phase).min(n) };
            let a = &mut box_.axes[d];
            a.count = last - first;
            box_.base += first * a.file;
            box_.user += first * a.user;
        }
        box_
    }

    /// The classes of blocks along one loop: at most three (first, whole, last).
    pub fn classes(&self, nest: &Nest, axis: usize) -> Vec<Class> {
        let (n, b, phase) = (nest.axes[axis].count, self.block[axis], self.phase_of(axis));
        let mut classes = Vec::with_capacity(3);
        let mut start = 0;
        if phase > 0 {
            let len = (b - phase).min(n);
            classes.push(Class { start, len, repeat: 1 });
            start = len;
        }
        let whole = (n - start) / b;
        if whole > 0 {
            classes.push(Class { start, len: b, repeat: whole });
            start += whole * b;
        }
        if start < n {
            classes.push(Class { start, len: n - start, repeat: 1 });
        }
        classes
    }
}

/// Rules for the growth of blocks.
pub(crate) struct Growth {
    /// Blocks grow while their measure does not exceed this.
    pub target: i64,
    /// For tiles: bytes of a tile along the file before it grows along memory.
    pub along: i64,
    /// True if rounds may be tiles; otherwise rounds are ranges of the file.
    pub tiles: bool,
}

/// Block lengths with `measure(blocks) <= target`, or all ones if even these exceed it.
///
/// `measure` gets the nest with the counts of one block.
pub(crate) fn grow(nest: &Nest, how: &Growth, measure: impl Fn(&Nest) -> i64) -> Cut {
    if measure(nest) <= how.target {
        return Cut::whole(nest);
    }
    let mut block = nest.clone();
    block.axes.iter_mut().for_each(|a| a.count = 1);
    let inner_first: Vec<usize> = (0..nest.axes.len()).rev().collect();
    if how.tiles && nest.transposed() {
        for &d in &inner_first {
            let have = block.extent(d + 1);
            let wanted = ((how.along - have) / nest.axes[d].file.max(1) + 1).max(1);
            let full = extend(nest, &mut block, d, wanted.min(nest.axes[d].count), how, &measure);
            if !full || block.axes[d].count < nest.axes[d].count {
                break;
            }
        }
        let mut by_memory = inner_first.clone();
        by_memory.sort_by_key(|&d| nest.axes[d].user.unsigned_abs());
        for &d in &by_memory {
            if !extend(nest, &mut block, d, nest.axes[d].count, how, &measure) {
                break;
            }
        }
    }
    for &d in &inner_first {
        if !extend(nest, &mut block, d, nest.axes[d].count, how, &measure) {
            break;
        }
    }
    Cut { block: block.axes.iter().map(|a| a.count).collect(), phase: 0 }
}

/// Lengthens one loop of `block` towards `wanted` as far as the measure allows.
///
/// Returns false if the loop stays shorter.
fn extend(
    nest: &Nest,
    block: &mut Nest,
    axis: usize,
    wanted: i64,
    how: &Growth,
    measure: &impl Fn(&Nest) -> i64,
) -> bool {
    let mut low = block.axes[axis].count;
    let mut high = wanted.min(nest.axes[axis].count);
    if low >= high {
        return true;
    }
    let mut fits = |count: i64| {
        block.axes[axis].count = count;
        measure(block) <= how.target
    };
    if fits(high) {
        return true;
    }
    // Invariant: `low` fits (or is the initial length), `high` does not.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    // The same number of blocks, with more equal lengths.
    let n = nest.axes[axis].count;
    let blocks = (n - 1) / low + 1;
    block.axes[axis].count = (n - 1) / blocks + 1;
    false
}

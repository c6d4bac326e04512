//! Reductions of one axis of a block, in an order that depends on the indices along that axis alone.
//!
//! Problem: a floating-point sum depends on its order, and the order of a sum over an array on disk
//! would depend on the cuts of the array: on the budget, the file, the number of threads and of
//! ranks. In addition, the elements of an axis are neighbours in memory in one file, and rows apart
//! in another.
//!
//! Approach: the order is a tree over the global indices of the axis. A *leaf* is [`LEAF`]
//! consecutive indices; in it index `i` belongs to lane `i % LANES`, a lane adds its elements one
//! after another, and the lanes are added as a binary tree. This fills vector registers both if the
//! axis is contiguous (one group of lanes is one vector) and if it is not (a lane is a row of sums,
//! one for each of the adjacent outputs). Leaves are the leaves of a binary tree over their
//! numbers: node `k` of a level adds nodes `2k` and `2k + 1` below. An axis comes in pieces of any
//! length, in order: the state between two pieces is the lanes of an unfinished leaf and one node
//! for each bit of the number of leaves so far, as in a binary counter. An aligned power of two of
//! leaves is one node, so threads take such segments and only their nodes are pushed in order.
//! Processes may do the same: the nodes of segments that each begin at a multiple of their common
//! length, a power of two of leaves, are joined as leaves are, and the last segment may be shorter.
//! Operations that do not depend on order (integers, extremes) have neither lanes nor levels.
//! Several axes are reduced one after another, each as a separate reduction.
//!
//! Invariants: equal elements along an axis give equal bits, whatever its pieces, the order in
//! memory, the number of outputs and threads, and the instructions of the processor. All NaNs are
//! the same NaN.
//!
//! Reference: N. J. Higham, "The accuracy of floating point summation", 1993 (pairwise summation;
//! NumPy's has the same leaves); T. F. Chan, G. H. Golub, R. J. LeVeque, 1983 (moments of the union
//! of two sets).

mod arg;
mod exact;
mod fold;
mod moments;
mod ops;
mod pairs;
mod tree;

use std::sync::{Mutex, PoisonError};

use outcore_io::cpu;

use crate::simd::widest;

pub use arg::{Arg, ArgOfNodes, Ordered};
pub use exact::Exact;
pub use fold::{levels, Fold, Node, Rows, Run, LANES, LEAF};
pub use moments::{Moments, MomentsOfNodes, Real};
pub use ops::*;
pub use pairs::{accumulate, ArgPairs, ArgPairsOfNodes, Merge, Pairs, Part};
pub use tree::Tree;

/// Maximum number of outputs that one thread processes at a time.
///
/// Their lanes should stay in the processor's cache.
pub const WIDTH: usize = 512;
/// Maximum number of rows of short dense axes, and number of axes that are transposed at a time.
const SHORT: usize = 32;
const TURNED: usize = 64;
/// Minimum number of segments that threads share if there are too few outputs to share.
const SEGMENTS: usize = 16;
/// Maximum of outputs times threads for which threads share segments of the axis.
///
/// Above it, they share outputs.
const MANY: usize = 2048;
/// Number of elements below which a second thread does not pay off.
const SMALL: usize = 1 << 15;

/// A piece of the reduced axis of a block.
///
/// It has `outer` times `rows` times `inner` elements, dense; rows are numbered along the axis.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Product of the lengths of the axes outside.
    pub outer: usize,
    /// Number of indices of the reduced axis.
    pub rows: usize,
    /// Product of the lengths of the axes inside.
    pub inner: usize,
    /// Global number of the first row.
    pub first: usize,
    /// Global number of the row at which the state begins.
    ///
    /// This is the segment's first row, an edge of leaves.
    pub base: usize,
}

impl Piece {
    /// Number of results of the block.
    pub fn outputs(&self) -> usize {
        self.outer * self.inner
    }
}

/// A reduction of one axis of a given length.
#[derive(Debug)]
pub struct Axis<F> {
    how: F,
    length: usize,
    threads: usize,
}

impl<F: Fold> Axis<F> {
    /// A reduction of `length` indices.
    pub fn new(how: F, length: usize) -> Self {
        Axis { how, length, threads: cpu::cores() }
    }

    /// The same reduction with `threads` threads.
    pub fn with_threads(self, threads: usize) -> Self {
        Axis { threads: threads.max(1), ..self }
    }

    fn levels(&self) -> usize {
        levels(self.length)
    }

    fn slots(&self) -> usize {
        F::slots(self.levels())
    }

    /// Returns whether there are too few outputs to divide among threads.
    ///
    /// Each thread then has a separate state.
    fn is_few(&self, outputs: usize) -> bool {
        outputs * self.threads <= MANY && self.threads > 1 && self.length >= 2 * LEAF
    }

    /// Number of values of the state between pieces.
    pub fn state(&self, outputs: usize) -> usize {
        self.slots() * outputs
    }

    /// Number of scratch values that `fold` and `whole` need for `outputs` outputs, or fewer.
    pub fn scratch(&self, outputs: usize) -> usize {
        let few = outputs.min(MANY / self.threads);
        let few = if self.is_few(few) { few } else { 0 };
        let each = (self.threads + 1) * self.slots() + 2 * SEGMENTS * F::PLANES;
        (few * each).max(self.threads * self.slots() * WIDTH.min(outputs))
    }

    /// Adds a piece.
    ///
    /// Pieces come in order, from index 0 on; the previous contents of `state` are ignored at the
    /// first one.
    pub fn fold(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        state: &mut [F::Acc],
        scratch: &mut [F::Acc],
    ) {
        let outputs = piece.outputs();
        if outputs == 0 || piece.rows == 0 {
            return;
        }
        let leaves = piece.rows / LEAF;
        if !self.is_few(outputs) || piece.rows * outputs < SMALL || leaves < 2 {
            return self.by_outputs(x, piece, 0..piece.rows, state);
        }
        // A power of two of leaves, so that there are between SEGMENTS and twice as many segments.
        let level = (leaves / SEGMENTS).max(1).ilog2() as usize;
        let segment = LEAF << level;
        let at = piece.first - piece.base;
        let low = at.next_multiple_of(segment) - at;
        let high = (at + piece.rows) / segment * segment;
        if high <= at + low {
            return self.by_outputs(x, piece, 0..piece.rows, state);
        }
        let high = high - at;
        self.by_outputs(x, piece, 0..low, state);
        self.by_segments(x, piece, (low..high, level), state, scratch);
        self.by_outputs(x, piece, high..piece.rows, state);
    }

    fn by_outputs(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        rows: std::ops::Range<usize>,
        state: &mut [F::Acc],
    ) {
        if rows.is_empty() {
            return;
        }
        let few = rows.len() * piece.outputs() < SMALL;
        let threads = if few { 1 } else { self.threads };
        let parts = Mutex::new(state.chunks_mut(self.slots() * WIDTH).enumerate());
        cpu::side_by_side(threads, &|_| {
            while let Some((k, part)) = next(&parts) {
                self.runs(x, piece, &rows, (k * WIDTH, piece.base), part);
            }
        });
    }

    /// Adds rows of the outputs from `begin` on, as many as the state is for.
    ///
    /// It is never inlined: it is compiled once for each instruction set, which takes long enough.
    #[inline(never)]
    fn runs(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        rows: &std::ops::Range<usize>,
        begin: (usize, usize),
        state: &mut [F::Acc],
    ) {
        if F::WIDE {
            widest(
                #[inline(always)]
                || self.each_run(x, piece, rows, begin, state),
            );
        } else {
            self.each_run(x, piece, rows, begin, state);
        }
    }

    #[inline(always)]
    fn each_run(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        rows: &std::ops::Range<usize>,
        (begin, base): (usize, usize),
        state: &mut [F::Acc],
    ) {
        let width = state.len() / self.slots();
        let levels = self.levels();
        let mut column = 0;
        if piece.inner == 1 && x.len() == 1 && rows.len() <= SHORT && width >= SHORT {
            return self.short(x[0], piece, rows, (begin, base), state);
        }
        while column < width {
            let (o, c) = ((begin + column) / piece.inner, (begin + column) % piece.inner);
            let len = (piece.inner - c).min(width - column);
            let run = Run {
                planes: x,
                start: (o * piece.rows + rows.start) * piece.inner + c,
                stride: piece.inner,
                len,
                rows: rows.len(),
                first: piece.first + rows.start,
                base,
            };
            let mut part = Rows { data: &mut *state, width, column, len };
            self.how.fold(&mut part, &run, levels);
            column += len;
        }
    }

    /// Adds rows of dense axes, transposed.
    ///
    /// This is faster than one axis after another if axes are short.
    #[inline(always)]
    fn short(
        &self,
        x: &[F::In],
        piece: &Piece,
        rows: &std::ops::Range<usize>,
        (begin, base): (usize, usize),
        state: &mut [F::Acc],
    ) {
        let Some(blank) = x.first() else { return };
        let mut turned = [*blank; SHORT * TURNED];
        let width = state.len() / self.slots();
        for column in (0..width).step_by(TURNED) {
            let len = TURNED.min(width - column);
            let all = &x[(begin + column) * piece.rows..][..len * piece.rows];
            for (k, axis) in all.chunks_exact(piece.rows).enumerate() {
                for (r, value) in axis[rows.clone()].iter().enumerate() {
                    turned[r * TURNED + k] = *value;
                }
            }
            let run = Run {
                planes: &[&turned],
                start: 0,
                stride: TURNED,
                len,
                rows: rows.len(),
                first: piece.first + rows.start,
                base,
            };
            let mut part = Rows { data: &mut *state, width, column, len };
            self.how.fold(&mut part, &run, self.levels());
        }
    }

    /// Adds whole segments: threads compute their nodes, which are pushed in order.
    fn by_segments(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        (rows, level): (std::ops::Range<usize>, usize),
        state: &mut [F::Acc],
        scratch: &mut [F::Acc],
    ) {
        let (outputs, levels, slots) = (piece.outputs(), self.levels(), self.slots());
        let segment = LEAF << level;
        let size = F::PLANES * outputs;
        let (own, nodes) = scratch.split_at_mut(self.threads * slots * outputs);
        let batch = (nodes.len() / size).max(1);
        let mut begin = rows.start;
        while begin < rows.end {
            let count = ((rows.end - begin) / segment).min(batch);
            let nodes = &mut nodes[..count * size];
            {
                let states = Mutex::new(own.chunks_mut(slots * outputs));
                let parts = Mutex::new(nodes.chunks_mut(size).enumerate());
                cpu::side_by_side(self.threads, &|_| {
                    let Some(state) = next(&states) else { return };
                    while let Some((k, node)) = next(&parts) {
                        let from = begin + k * segment;
                        let base = piece.first + from;
                        self.runs(x, piece, &(from..from + segment), (0, base), state);
                        let mut all = self.root(state, segment);
                        for (plane, to) in node.chunks_mut(outputs).enumerate() {
                            to.copy_from_slice(all.row(F::place(plane, levels)));
                        }
                    }
                });
            }
            for (k, values) in nodes.chunks(size).enumerate() {
                let at = piece.first - piece.base + begin + k * segment;
                for (n, part) in state.chunks_mut(slots * WIDTH).enumerate() {
                    let len = part.len() / slots;
                    let column = n * WIDTH;
                    let node = Node { values, width: outputs, column, len, at, level };
                    let mut part = Rows { data: part, width: len, column: 0, len };
                    self.how.push(&mut part, &node, levels);
                }
            }
            begin += count * segment;
        }
    }

    /// Computes the results after all of the axis was added. The state is invalid afterwards.
    pub fn finish(&self, state: &mut [F::Acc], outs: &mut [&mut [F::Out]]) {
        self.close(state, self.length, outs, F::seal);
    }

    /// Computes the node of the `count` rows added since the base. The state is invalid afterwards.
    pub fn node(&self, state: &mut [F::Acc], count: usize, outs: &mut [&mut [F::Acc]]) {
        self.close(state, count, outs, |value| value);
    }

    fn close<T: Send>(
        &self,
        state: &mut [F::Acc],
        count: usize,
        outs: &mut [&mut [T]],
        seal: impl Fn(F::Acc) -> T + Sync,
    ) {
        let slots = self.slots();
        let parts = Mutex::new(state.chunks_mut(slots * WIDTH).zip(parts_of(outs)));
        cpu::side_by_side(self.threads, &|_| {
            while let Some((state, mut outs)) = next(&parts) {
                self.seal(state, count, &mut outs, &seal);
            }
        });
    }

    /// Computes the node of all `count` rows.
    #[inline(never)]
    fn root<'a>(&self, state: &'a mut [F::Acc], count: usize) -> Rows<'a, F::Acc> {
        let width = state.len() / self.slots();
        let mut all = Rows { data: state, width, column: 0, len: width };
        self.how.root(&mut all, count, self.levels());
        all
    }

    fn seal<T>(
        &self,
        state: &mut [F::Acc],
        count: usize,
        outs: &mut [&mut [T]],
        seal: impl Fn(F::Acc) -> T,
    ) {
        let levels = self.levels();
        let mut all = self.root(state, count);
        for (plane, to) in outs.iter_mut().enumerate() {
            for (to, value) in to.iter_mut().zip(all.row(F::place(plane, levels))) {
                *to = seal(*value);
            }
        }
    }

    /// Reduces the whole axis, which is in the block.
    pub fn whole(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        outs: &mut [&mut [F::Out]],
        scratch: &mut [F::Acc],
    ) {
        self.all(x, piece, outs, scratch, F::seal);
    }

    /// Computes the node of a whole segment, which is in the block.
    pub fn whole_node(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        outs: &mut [&mut [F::Acc]],
        scratch: &mut [F::Acc],
    ) {
        self.all(x, piece, outs, scratch, |value| value);
    }

    fn all<T: Send>(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        outs: &mut [&mut [T]],
        scratch: &mut [F::Acc],
        seal: impl Fn(F::Acc) -> T + Sync,
    ) {
        let outputs = piece.outputs();
        if outputs == 0 {
            return;
        }
        if self.is_few(outputs) {
            let (state, rest) = scratch.split_at_mut(self.state(outputs));
            self.fold(x, piece, state, rest);
            return self.close(state, piece.rows, outs, seal);
        }
        let (slots, few) = (self.slots(), piece.rows * outputs < SMALL);
        let threads = if few { 1 } else { self.threads };
        let states = Mutex::new(scratch.chunks_mut(slots * WIDTH.min(outputs)));
        let parts = Mutex::new(parts_of(outs).enumerate());
        cpu::side_by_side(threads, &|_| {
            let Some(state) = next(&states) else { return };
            while let Some((k, mut outs)) = next(&parts) {
                let begin = k * WIDTH;
                let state = &mut state[..slots * WIDTH.min(outputs - begin)];
                self.runs(x, piece, &(0..piece.rows), (begin, piece.base), state);
                self.seal(state, piece.rows, &mut outs, &seal);
            }
        });
    }

    /// The results of an axis whose leaves are the nodes of segments.
    ///
    /// `nodes` has them plane by plane, and segment by segment within a plane. The axis has `LEAF`
    /// times as many indices as there are segments. The last segment may be shorter than the
    /// others: it is only added after all segments before it have become one node, so it may have
    /// any level.
    pub fn join(
        &self,
        nodes: &[F::Acc],
        outputs: usize,
        outs: &mut [&mut [F::Out]],
        scratch: &mut [F::Acc],
    ) {
        let (slots, levels) = (self.slots(), self.levels());
        let width = self.length / LEAF * outputs;
        let states = Mutex::new(scratch.chunks_mut(slots * WIDTH.min(outputs.max(1))));
        let parts = Mutex::new(parts_of(outs).enumerate());
        cpu::side_by_side(self.threads, &|_| {
            let Some(state) = next(&states) else { return };
            while let Some((k, mut outs)) = next(&parts) {
                let column = k * WIDTH;
                let len = WIDTH.min(outputs - column);
                let state = &mut state[..slots * len];
                for segment in 0..self.length / LEAF {
                    let values = &nodes[segment * outputs..];
                    let node = Node { values, width, column, len, at: segment * LEAF, level: 0 };
                    let mut all = Rows { data: &mut *state, width: len, column: 0, len };
                    self.how.push(&mut all, &node, levels);
                }
                self.seal(state, self.length, &mut outs, F::seal);
            }
        });
    }
}

/// The planes of a result, `WIDTH` outputs at a time.
fn parts_of<'a, O>(outs: &'a mut [&mut [O]]) -> impl Iterator<Item = Vec<&'a mut [O]>> {
    let mut planes: Vec<_> = outs.iter_mut().map(|plane| plane.chunks_mut(WIDTH)).collect();
    std::iter::from_fn(move || {
        let parts: Vec<_> = planes.iter_mut().filter_map(Iterator::next).collect();
        (!parts.is_empty()).then_some(parts)
    })
}

fn next<T>(of: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    of.lock().unwrap_or_else(PoisonError::into_inner).next()
}

#[cfg(test)]
mod tests;

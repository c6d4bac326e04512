//! Reductions of one axis of a block, in an order that depends on the indices along that axis alone.
//!
//! Problem. A floating sum depends on its order, and the order of a sum over an array on disk would depend
//! on how the array is cut: on the budget, the file, the number of threads and of ranks. And the elements of
//! an axis are neighbours in memory in one file, and rows apart in another.
//!
//! Idea. The order is a tree over the global indices of the axis. A *leaf* is [`LEAF`] consecutive indices;
//! in it index `i` belongs to lane `i % LANES`, a lane adds its elements one after the other, and the lanes
//! are added as a binary tree. This fills vector registers where the axis is contiguous (one group of lanes
//! is one vector) and where it is not (a lane is a row of sums, one for each of the outputs that lie side by
//! side). Leaves are the leaves of a binary tree over their numbers: node `k` of a level adds nodes `2k` and
//! `2k + 1` below. An axis comes in pieces of any length, in order: what is between two pieces is the lanes
//! of an unfinished leaf and one node for each bit of the number of leaves so far, as in a binary counter.
//! An aligned power of two of leaves is one node, so threads take such segments and only their nodes
//! are pushed in order. So may processes: the nodes of segments that each begin at a multiple of their common
//! length, a power of two of leaves, are joined as leaves are, and the last segment may be shorter. What does
//! not depend on order (integers, extremes) has neither lanes nor levels. Several axes are reduced one after
//! the other, each as a reduction of its own.
//!
//! Invariants. Equal elements along an axis give equal bits, whatever its pieces, the order in memory, the
//! number of outputs, of threads, and the instructions of the processor. NaN is one NaN.
//!
//! Reference: N. J. Higham, "The accuracy of floating point summation", 1993 (pairwise summation; NumPy's
//! has the same leaves); T. F. Chan, G. H. Golub, R. J. LeVeque, 1983 (moments of two sets out of theirs).

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

/// Most outputs that one thread works on at a time: their lanes should stay in the processor's cache.
pub const WIDTH: usize = 512;
/// Rows that are few where an axis is dense, and axes that are turned around at a time then.
const SHORT: usize = 32;
const TURNED: usize = 64;
/// Segments that threads share where there are too few outputs to share.
const SEGMENTS: usize = 16;
/// Outputs times threads up to which threads share segments of the axis instead of outputs.
const MANY: usize = 2048;
/// Elements that are not worth a second thread.
const SMALL: usize = 1 << 15;

/// A piece of the reduced axis of a block: `outer` times `rows` times `inner` elements, dense, rows first
/// along the axis.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Product of the lengths of the axes outside.
    pub outer: usize,
    /// Indices of the reduced axis.
    pub rows: usize,
    /// Product of the lengths of the axes inside.
    pub inner: usize,
    /// Global number of the first row.
    pub first: usize,
    /// Global number of the row where the state begins: that of the segment, an edge of leaves.
    pub base: usize,
}

impl Piece {
    /// Results of the block.
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

    /// The same with so many threads.
    pub fn with_threads(self, threads: usize) -> Self {
        Axis { threads: threads.max(1), ..self }
    }

    fn levels(&self) -> usize {
        levels(self.length)
    }

    fn slots(&self) -> usize {
        F::slots(self.levels())
    }

    /// Whether there are too few outputs to give threads some of them: then each has a state of its own.
    fn is_few(&self, outputs: usize) -> bool {
        outputs * self.threads <= MANY && self.threads > 1 && self.length >= 2 * LEAF
    }

    /// Values of the state between pieces.
    pub fn state(&self, outputs: usize) -> usize {
        self.slots() * outputs
    }

    /// Values of scratch memory that `fold` and `whole` need for so many outputs, or fewer.
    pub fn scratch(&self, outputs: usize) -> usize {
        let few = outputs.min(MANY / self.threads);
        let few = if self.is_few(few) { few } else { 0 };
        let each = (self.threads + 1) * self.slots() + 2 * SEGMENTS * F::PLANES;
        (few * each).max(self.threads * self.slots() * WIDTH.min(outputs))
    }

    /// Takes a piece in. Pieces come in order, from index 0 on; `state` may hold anything before.
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
        // A power of two of leaves, so that there are from SEGMENTS to twice as many.
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

    /// Takes rows of the outputs from `begin` on in, as many as the state is for. Whoever needs it calls it:
    /// it is compiled once for each kind of vectors, which takes the compiler long enough.
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

    /// Dense axes, so short that one after the other would take longer than turning them around.
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

    /// Takes whole segments in: threads find their nodes, which are pushed in order.
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

    /// The results, when all of the axis is taken in. The state is of no use then.
    pub fn finish(&self, state: &mut [F::Acc], outs: &mut [&mut [F::Out]]) {
        self.close(state, self.length, outs, F::seal);
    }

    /// The node of the `count` rows that were taken in since the base. The state is of no use then.
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

    /// The node of all `count` rows.
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

    /// Reduces all of the axis, which is in the block.
    pub fn whole(
        &self,
        x: &[&[F::In]],
        piece: &Piece,
        outs: &mut [&mut [F::Out]],
        scratch: &mut [F::Acc],
    ) {
        self.all(x, piece, outs, scratch, F::seal);
    }

    /// The node of a segment, which is in the block.
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

    /// The results of an axis whose leaves are the nodes of segments: `nodes` has them plane by plane, the
    /// nodes of a plane segment by segment. The axis has `LEAF` times as many indices as there are segments,
    /// the last of which may be shorter than the others: nothing is added to it before all that come before
    /// it are one node, so that it may stand at any level.
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
